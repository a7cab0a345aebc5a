"""How many examples hypothesis tries: few in the suite, fewer in its quick tests, and so many times more if
``EVFLOW_EXAMPLES`` says so."""

from __future__ import annotations

import os

_QUICK = 1 / 3


def hurry() -> None:
    """From now on fewer are tried: the whole suite tries the others."""
    global _times
    _times = _asked * _QUICK


_asked = _times = float(os.environ.get("EVFLOW_EXAMPLES", "1"))


def tried(count: int) -> int:
    """How many examples to try where the suite tries ``count``."""
    return max(1, round(count * _times))
