"""Fields of encoded events to Python objects, by machine code made for the field."""

from __future__ import annotations

import ctypes
import struct
from functools import cache
from typing import Any

import numpy as np

from evflow.codgen.llvm.read_ir import Numpy, can_read, write_copier, write_reader
from evflow.codgen.memory import Array, address
from evflow.codgen.native import Native, Tiers
from evflow.codgen.objects import builtin, is_usable
from evflow.schema import Schema
from evflow.schema.types import FieldType, Record

_STRETCH = 8192
"""Objects that are made before another thread can take over: about a millisecond."""

_COPIED = 4 << 20
"""Bytes that are copied before another thread can take over."""

_five, _six = struct.Struct("5q").pack, struct.Struct("6q").pack

_NEW, _SET_BASE = 94, 282
"""Where the table of numpy's functions has ``PyArray_NewFromDescr`` and ``PyArray_SetBaseObject``."""


class FieldReader:
    """Makes an object of one field of each event; any number of threads may use it.

    Args:
        ir: the module, of ``write_reader``.
    """

    def __init__(self, ir: str) -> None:
        self._code = Tiers(ir)
        self._bind()

    def _bind(self) -> None:
        self._bound = self._code.native
        self._read: Any = builtin(self._bound, np.zeros(0, np.int64))

    def read(self, data: Array, starts: Array | None, width: int, rows: int) -> Array:
        """An object for each event, 1-D.

        Args:
            data: uint8, 1-D, not writeable: valid events; arrays among the values show them.
            starts: int64, in order in memory: where each event starts; None for one behind the other.
            width: of each event, if they have one.
            rows: how many events.
        """
        self._code.saw(rows)
        if self._bound is not self._code.native:
            self._bind()
        made: Array = np.empty(rows, object)
        at = 0 if starts is None else address(starts)
        for first in range(0, rows, _STRETCH):
            self._read([_five(address(data), at, width, first, min(first + _STRETCH, rows)), made, data])
        return made


def copied_cells(data: Array, starts: Array, at: int, size: int) -> Array | None:
    """Some bytes of each event, back to back: uint8, 1-D; None where there is no machine code.

    Args:
        data: uint8, 1-D: valid events.
        starts: int64, in order in memory: where each event starts.
        at: bytes from there to those that are meant.
        size: how many.
    """
    if not is_usable():
        return None
    out: Array = np.empty(len(starts) * size, np.uint8)
    copy = _copier()
    step = max(1, _COPIED // max(size, 1))
    for first in range(0, len(starts), step):
        some = starts[first : first + step]
        copy(_six(address(data), address(some), at, size, len(some), address(out) + first * size))
    return out


@cache
def _copier() -> Any:
    return builtin(Native(write_copier(), optimised=True), np.zeros(0, np.int64))


def field_reader(schema: Schema, name: str, kind: FieldType) -> FieldReader | None:
    """What reads a field, made when it is asked for first; None if there can be none.

    Args:
        schema: the events'.
        name: the field's dotted name.
        kind: its type, or what its values are kept as.
    """
    key = ("reader", name)
    if key not in schema.made:
        made, path = None, name.split(".")
        numpy = _numpy() if is_usable() and can_read(kind) and _leads(schema, path[:-1]) else None
        if numpy is not None:
            made = FieldReader(write_reader(schema, path, kind, numpy))
        schema.made.setdefault(key, made)
    reader: FieldReader | None = schema.made[key]
    return reader


def _leads(schema: Schema, path: list[str]) -> bool:
    """Whether a path goes through records that are there in every event."""
    for name in path:
        kind = schema[name].type
        if not isinstance(kind, Record):
            return False
        schema = kind.schema
    return True


@cache
def _numpy() -> Numpy | None:
    """The functions of numpy; None if an array that they make is not as it has to be."""
    table = getattr(np, "_core", None)
    capsule = getattr(getattr(table, "_multiarray_umath", None), "_ARRAY_API", None)
    if capsule is None:
        return None
    unpack = ctypes.pythonapi.PyCapsule_GetPointer
    unpack.restype, unpack.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    functions = ctypes.cast(unpack(capsule, None), ctypes.POINTER(ctypes.c_void_p))
    # The third entry is the type of arrays; where it is not, the table is another one.
    new, set_base = functions[_NEW], functions[_SET_BASE]
    if functions[2] != id(np.ndarray) or new is None or set_base is None:
        return None
    return Numpy(new, set_base, np.ndarray)
