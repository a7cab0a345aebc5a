"""Compiled code on disk, which is compiled anew when a source that it was made of has changed.

numba compares the file of the cached function only, and not those of functions that were inlined into it;
what it loaded after one of these had changed would be wrong without a word.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any


def fresh(dispatcher: Any) -> Any:
    """Has a function heed all sources of its folder and of this one, and of those beneath.

    Args:
        dispatcher: what ``njit(cache=True)`` made of the function, not compiled yet.
    """
    # Not public; without it numba's own comparison stays.
    file: Any = getattr(getattr(dispatcher, "_cache", None), "_cache_file", None)
    if hasattr(file, "_source_stamp"):
        own = Path(dispatcher.py_func.__code__.co_filename).parent
        sources = _sources(own) + _sources(Path(__file__).parent)
        file._source_stamp = (file._source_stamp, sources)
    return dispatcher


@cache
def _sources(folder: Path) -> tuple[tuple[str, int, int], ...]:
    """Name, time and size of every source."""
    found = [(path, path.stat()) for path in sorted(folder.rglob("*.py"))]
    return tuple((str(path.relative_to(folder)), held.st_mtime_ns, held.st_size) for path, held in found)
