"""Arrays of files, mapped into memory, and arrays that grow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray


def mapped(path: Path) -> NDArray[Any]:
    """The array of a .npy file, copy-on-write: processes share what none of them changes, and the file stays.

    Raises:
        OSError: there is no such file.
        ValueError: it is no .npy file, or not whole.
    """
    # A plain array, since numba and numpy are slower with the subclass that maps.
    return np.asarray(np.load(path, mmap_mode="c", allow_pickle=False))


def with_room(column: NDArray[Any], size: int) -> NDArray[Any]:
    """A column with at least that many rows, or itself."""
    if len(column) >= size:
        return column
    # Room that nothing has been written to takes no memory yet, and the next row is not to copy all others.
    larger = np.empty((size * 3 // 2, *column.shape[1:]), column.dtype)
    larger[: len(column)] = column
    return larger
