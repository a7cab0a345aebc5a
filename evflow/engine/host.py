"""The host's state, as stone functions see it (EVPath paper, section 3.4)."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from contextvars import ContextVar

NETWORK = ("bandwidth", "round_trip", "queued_bytes", "queued_events")
"""The system values that a node tells."""

NetworkReader = Callable[[str], float]
"""A name in ``NETWORK`` → its value now."""


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


_network: ContextVar[NetworkReader | None] = ContextVar("network", default=None)


def use_network(reader: NetworkReader | None) -> None:
    """Says who tells the network's values to the stones of the engine that the calling thread drives.

    It holds for this thread alone, so each node of a process has its own; None: all values are 0.
    """
    _network.set(reader)


def system_values(names: Iterable[str]) -> dict[str, float]:
    """The values asked for, by name (``evflow.codgen.library.SYSTEM``); 0 where nobody can tell."""
    return {name: _READERS[name]() if name in _READERS else _network_value(name) for name in names}


def _network_value(name: str) -> float:
    reader = _network.get()
    return 0.0 if reader is None else float(reader(name))
