"""Memory for the rows of a batch, kept for the next: to fetch pages anew takes longer than to fill them."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Workspace"]

_LARGEST = 32 << 20
"""Bytes that a thread keeps at most."""

_ALIGNED = 64


class Workspace(threading.local):
    """One block of memory for each thread, which each call of ``arrays`` hands out anew.

    Example:
        >>> Workspace().arrays(2, [np.int32, np.float64])
        [array([0, 0], dtype=int32), array([0., 0.])]
    """

    def __init__(self) -> None:
        self._block = np.empty(0, np.uint8)

    def arrays(self, n: int, kinds: Sequence[type[np.generic]]) -> list[NDArray[Any]]:
        """Arrays of n elements each, filled with zeros, which are good until this thread's next call."""
        widths = [-(-n * np.dtype(kind).itemsize // _ALIGNED) * _ALIGNED for kind in kinds]
        total = sum(widths)
        if total > _LARGEST:
            return [np.zeros(n, kind) for kind in kinds]
        if total > len(self._block):
            self._block = np.empty(max(1 << total.bit_length(), 1 << 16), np.uint8)
        self._block[:total] = 0
        found, at = [], 0
        for kind, width in zip(kinds, widths, strict=True):
            found.append(np.ndarray((n,), kind, self._block, at))
            at += width
        return found
