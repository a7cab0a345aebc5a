"""The host's state, as stone functions see it (EVPath paper, section 3.4)."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable

__all__ = ["system_values"]


def _load() -> float:
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0


def _free_memory() -> float:
    try:
        return float(os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (ValueError, OSError, AttributeError):
        return 0.0


_READERS: dict[str, Callable[[], float]] = {
    "time": time.time,
    "load": _load,
    "free_memory": _free_memory,
    "cores": lambda: float(os.cpu_count() or 1),
}


def system_values(names: Iterable[str]) -> dict[str, float]:
    """The values asked for, by name (``evflow.codgen.library.SYSTEM``); 0 where the host cannot tell."""
    return {name: _READERS[name]() for name in names}
