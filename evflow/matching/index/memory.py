"""Memory that compiled code reads by address: it grows without being copied, in huge pages if it can."""

from __future__ import annotations

import mmap
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evflow.events.gather import address_of
from evflow.matching.mapped import mapped

PADDING = 4096
"""Bytes behind the end that vector instructions may read."""


def _pages(size: int) -> mmap.mmap:
    """Pages of this process alone: only those can be moved to make room."""
    if not hasattr(mmap, "MAP_PRIVATE"):
        return mmap.mmap(-1, size)
    pages = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        pages.madvise(mmap.MADV_HUGEPAGE)
    return pages


class Buffer:
    """Bytes that are zero at first.

    Attributes:
        address: where they stand; another after ``grow``.
        size: how many there are.
    """

    def __init__(self, size: int = 0) -> None:
        self.size = 0
        self.address = 0
        self._map: mmap.mmap | None = None
        self._array: NDArray[np.uint8] | None = None
        if size:
            self.grow(size)

    def grow(self, size: int) -> None:
        """Makes it at least this large; what is there stays."""
        size = -(-size // PADDING) * PADDING
        if size <= self.size:
            return
        if self._map is None or not self._resized(size + PADDING):
            old = self.view(np.uint8) if self.size else None
            self._map = _pages(size + PADDING)
            if old is not None:
                np.frombuffer(self._map, np.uint8)[: len(old)] = old
            self._array = None
        self.address = address_of(np.frombuffer(self._map, np.uint8))
        self.size = size

    def _resized(self, size: int) -> bool:
        """Whether the system could move the pages."""
        assert self._map is not None
        try:
            self._map.resize(size)
        except (BufferError, OSError, SystemError, ValueError):
            return False
        return True

    def view(self, kind: Any) -> NDArray[Any]:
        """The bytes as an array, which is to be dropped before the next ``grow``."""
        source = self._array if self._map is None else np.frombuffer(self._map, np.uint8)
        assert source is not None
        return source[: self.size].view(kind)

    def save(self, path: Path, used: int) -> None:
        """Writes the first ``used`` bytes, and padding, to a file."""
        size = min(-(-used // PADDING) * PADDING, self.size)
        data = np.zeros(size + PADDING, np.uint8)
        if size:
            data[:size] = self.view(np.uint8)[:size]
        np.save(path, data)

    def load(self, path: Path) -> None:
        """Takes what ``save`` wrote, mapped copy-on-write."""
        self._map = None
        self._array = mapped(path)
        self.address = address_of(self._array)
        self.size = len(self._array) - PADDING
