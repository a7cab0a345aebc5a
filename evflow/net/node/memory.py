"""Has the C library keep memory that was freed, for what comes next.

ZeroMQ takes memory for each message, and glibc gives it back to the system as soon as a large one is freed:
then each
of its pages is fetched anew, which costs more than to receive what goes into it.
"""

from __future__ import annotations

import ctypes
from functools import cache

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_KEPT = 128 << 20
_LARGEST = 32 << 20


@cache
def keep_freed_memory() -> None:
    """From now on up to 128 MiB that were freed stay with the process; does nothing without glibc."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_MMAP_THRESHOLD, _LARGEST)
        mallopt(_TRIM_THRESHOLD, _KEPT)
