"""Memory that ends where a page begins that nobody may touch, so that native code that reads or writes one
byte too far dies at once.

``guarded`` puts values there, ``read_only`` bytes that cannot be written to either. ``installed`` makes the
run time of the code generator allocate all that it shares with native code in this way: context, vectors,
queues, statics, scratch memory, texts. What is not initialised there holds ``POISON``.
"""

from __future__ import annotations

import ctypes
import math
import mmap
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import numpy as np

__all__ = ["POISON", "guarded", "installed", "read_only"]

POISON = 0xA5

_PAGE = mmap.PAGESIZE
_NONE, _READ = 0, 1
_USERS = ("memory", "queuekernel", "runtime", "validate", "vectors")

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]

Array = np.ndarray[Any, np.dtype[Any]]


def _protect(address: int, size: int, rights: int) -> None:
    if _libc.mprotect(address, size, rights):
        raise OSError(ctypes.get_errno(), "mprotect")


def _space(size: int, dtype: np.dtype[Any]) -> tuple[Array, int, int]:
    """``size`` elements that end at a guard page, and address and length of the pages that they are on."""
    used = size * dtype.itemsize
    length = max(-(-used // _PAGE), 1) * _PAGE
    memory = mmap.mmap(-1, length + _PAGE)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    _protect(address + length, _PAGE, _NONE)
    return np.ndarray((size,), dtype, memory, length - used), address, length


def guarded(values: Array) -> Array:
    """A copy that ends at a guard page."""
    if values.dtype.hasobject or not values.size:
        return values
    array, _, _ = _space(values.size, values.dtype)
    array[:] = values.reshape(-1)
    return array.reshape(values.shape)


def read_only(data: bytes) -> Array:
    """Bytes that end at a guard page, and that nothing can change."""
    array, address, length = _space(len(data), np.dtype(np.uint8))
    array[:] = np.frombuffer(data, np.uint8)
    _protect(address, length, _READ)
    array.flags.writeable = False
    return array


class _Numpy:
    """Numpy, but that what it allocates ends at a guard page."""

    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)

    @staticmethod
    def empty(shape: Any, dtype: Any = np.float64) -> Array:
        kind = np.dtype(dtype)
        size = math.prod(shape) if isinstance(shape, tuple) else int(shape)
        if kind.hasobject or not size:
            return np.empty(shape, kind)
        array, _, _ = _space(size, kind)
        array.view(np.uint8)[: 1 << 16] = POISON
        return array.reshape(shape)

    @classmethod
    def zeros(cls, shape: Any, dtype: Any = np.float64) -> Array:
        array = cls.empty(shape, dtype)
        array[...] = 0
        return array

    @staticmethod
    def frombuffer(data: Any, dtype: Any = np.float64) -> Array:
        return guarded(np.frombuffer(data, dtype))


@contextmanager
def installed() -> Iterator[None]:
    """Guards what the run time of compiled functions allocates."""
    modules = [import_module(f"evflow.codgen.{name}") for name in _USERS]
    for module in modules:
        module.np = _Numpy()  # type: ignore[attr-defined]
    try:
        yield
    finally:
        for module in modules:
            module.np = np  # type: ignore[attr-defined]
