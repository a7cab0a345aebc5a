"""Addresses of numpy arrays, texts at addresses, and functions at addresses that Python calls."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

BRIEF = 256 << 10
"""Bytes up to which memory is copied while no other thread runs; to have the interpreter back would take
longer."""

Array = np.ndarray[Any, np.dtype[Any]]

_DATA = object.__basicsize__
_read = ctypes.c_int64.from_address


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


class MethodDef(ctypes.Structure):
    """``PyMethodDef`` of Python: a function of machine code, and how Python calls it."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


_made = ctypes.pythonapi.PyCFunction_NewEx
_made.restype = ctypes.py_object
_made.argtypes = (ctypes.c_void_p, ctypes.py_object, ctypes.py_object)


def new_builtin(definition: MethodDef, own: object, module: object) -> Any:
    """A builtin function of Python, which keeps ``own`` and ``module`` as long as it lives.

    Args:
        definition: what it calls; one of the others has to hold it.
        own: its first argument.
        module: what its ``__module__`` is.
    """
    return _made(ctypes.addressof(definition), own, module)
