"""Addresses of numpy arrays, and arrays that native code fills and Python lengthens."""

from __future__ import annotations

from ctypes import c_int64
from typing import Any

import numpy as np

BRIEF = 256 << 10
"""Bytes up to which memory is copied while no other thread runs; to have the interpreter back would take
longer."""

Array = np.ndarray[Any, np.dtype[Any]]

_DATA = object.__basicsize__
_read = c_int64.from_address


def _fast(array: Array) -> int:
    # The data pointer is the first member of an array object, right behind the object's head.
    return _read(id(array) + _DATA).value


def _plain(array: Array) -> int:
    return array.ctypes.data


_probe = np.arange(3)
address = _fast if _fast(_probe) == _plain(_probe) else _plain
"""The address of an array's first element; a quarter of the time that ``array.ctypes`` takes."""


def packed_texts(texts: list[str]) -> tuple[Array, Array]:
    """Texts as UTF-8 for native code: (address, length) pairs as int64[n, 2], and the bytes they point to."""
    encoded = [text.encode("utf-8", "surrogateescape") for text in texts]
    data = np.frombuffer(b"".join(encoded) or b"\0", np.uint8)
    pairs = np.empty((len(encoded), 2), np.int64)
    pairs[:, 1] = [len(e) for e in encoded]
    pairs[:, 0] = address(data) + np.cumsum(pairs[:, 1]) - pairs[:, 1]
    return pairs, data
