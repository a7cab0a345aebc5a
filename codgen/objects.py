"""Functions of machine code that Python calls with an object, and that put its bytes into memory.

They are builtin functions as those of C extensions are, so a call costs some tens of nanoseconds, and nothing
else runs in Python meanwhile, unless much is copied.
"""

from __future__ import annotations

import ctypes
import logging
import struct
import sys
import sysconfig
from collections.abc import Callable
from functools import cache
from typing import Any, cast

import numpy as np

from evflow.codgen.llvm import append_ir as ir
from evflow.codgen.llvm.object_ir import Layout, can_encode, write_encoder
from evflow.codgen.memory import MethodDef, new_builtin
from evflow.codgen.native import Native
from evflow.schema import Schema
from evflow.schema.description import held_record

_log = logging.getLogger("evflow.flow")

Append = Callable[[Any], int]
Words = np.ndarray[Any, np.dtype[np.int64]]


def append_event(schema: Schema, words: Words) -> Append | None:
    """The function that encodes an event of the schema's class where ``words`` say.

    It gives True if it has taken the event, ``append_ir.SENT`` if the event is sent already, else False: the
    event is none of the very class, a value is not plainly right, there is no room, another thread is writing
    a large one, or the calling thread is the one that ``words`` name.

    Args:
        schema: the events' schema.
        words: int64, one for each of ``append_ir.WORDS``: the address where the event goes, that where the
            memory ends, the identity of a thread, the address of a gate, how many events it has rejected, and
            where the ends of events of varying width are noted. What is taken moves the first.

    Returns:
        None if there can be no such function: the schema has lists, fields that may be missing, or no class;
        or this Python keeps its objects in another way.
    """
    if not is_usable() or not can_encode(schema):
        return None
    code = schema.made.get("object encoder")
    if code is None:
        layouts: dict[Schema, Layout] = {}
        if not _add_layouts(schema, layouts):
            return None
        code = schema.made["object encoder"] = Native(write_encoder(schema, layouts), optimised=False)
    return builtin(code, words)


def append_bytes(words: Words, varying: bool) -> Append | None:
    """The function that copies ``bytes``, an event each, to where ``words`` say; see ``append_event``."""
    return builtin(_appender(varying), words) if is_usable() else None


@cache
def _appender(varying: bool) -> Native:
    return Native(ir.write_appender(varying), optimised=False)


def _add_layouts(schema: Schema, layouts: dict[Schema, Layout]) -> bool:
    """Finds where the classes of a schema and of the records in it have their fields."""
    kind = schema.made.get("event class")
    if kind is None:
        return False
    slots = {field.name: _slot(kind, field.name) for field in schema.fields}
    if None in slots.values():
        return False
    layouts[schema] = Layout(kind, cast("dict[str, int]", slots))
    held = [record.schema for field in schema.fields if (record := held_record(field.type)[0]) is not None]
    return all(within in layouts or _add_layouts(within, layouts) for within in held)


def layouts_of(*schemas: Schema) -> dict[Schema, Layout]:
    """Where the classes of those schemas that have one, and of the records in them, have their fields."""
    layouts: dict[Schema, Layout] = {}
    for schema in schemas:
        found = dict(layouts)
        if _add_layouts(schema, found):
            layouts = found
    return layouts


def slots_of(kind: type) -> dict[str, int]:
    """Bytes from the beginning of an object to each of the slots of its class."""
    return {name: cast(int, _slot(kind, name)) for name in kind.__dict__["__slots__"]}


class _MemberDef(ctypes.Structure):
    _fields_ = (("name", ctypes.c_char_p), ("kind", ctypes.c_int), ("offset", ctypes.c_ssize_t))


_MEMBER = 40
"""Bytes from a member descriptor to the pointer to what defines it."""
_ONE_ARGUMENT = 8
_SLOT_OF_OBJECT = 16
"""The kind of a slot: an object, which may be missing."""


def _slot(kind: type, name: str) -> int | None:
    """Bytes from the beginning of an object to the pointer to a field; None if the field has no slot."""
    for base in kind.__mro__:
        member = base.__dict__.get(name)
        if member is not None:
            break
    if type(member) is not _MEMBER_TYPE:
        return None
    definition = _MemberDef.from_address(ctypes.c_void_p.from_address(id(member) + _MEMBER).value or 0)
    return definition.offset if definition.kind == _SLOT_OF_OBJECT else None


class _Probe:
    __slots__ = ("first", "second")

    first: Any
    second: Any


_MEMBER_TYPE = type(_Probe.__dict__["first"])

# Asked at once: the answer is in a file, which cannot be opened where too many are open.
_WITHOUT_LOCK = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))


def is_usable() -> bool:
    """Whether this Python keeps objects as the code expects; says once if not."""
    known = _known_layout()
    if not known:
        _say_slow()
    return known


@cache
def _say_slow() -> None:
    """Says once that events are encoded the slow way, and why."""
    if sys.implementation.name != "cpython":
        why = f"this Python is {sys.implementation.name}, not CPython"
    elif _WITHOUT_LOCK:
        why = "this Python is built without the interpreter lock"
    else:
        why = f"Python {sys.version.split()[0]} on {sys.platform} keeps objects in another way"
    _log.warning("events and tables are encoded the slow way: %s; columns of numbers are not", why)


@cache
def _known_layout() -> bool:
    """Whether this Python keeps objects where the code looks for them."""
    if sys.implementation.name != "cpython" or _WITHOUT_LOCK:
        return False
    if sys.byteorder != "little" or ctypes.sizeof(ctypes.c_void_p) != 8:
        return False
    probe = _Probe()
    probe.first, probe.second = 1.5, b"some bytes"
    array = np.arange(6, dtype=np.float64).reshape(2, 3)
    items = [probe, array]
    word = ctypes.c_int64.from_address
    slots = _slot(_Probe, "first"), _slot(_Probe, "second")
    if None in slots or [word(id(probe) + cast(int, at)).value for at in slots] != [
        id(probe.first),
        id(probe.second),
    ]:
        return False
    return (
        word(id(probe.first) + ir.TYPE).value == id(float)
        and ctypes.c_double.from_address(id(probe.first) + ir.FLOAT_VALUE).value == probe.first
        and word(id(probe.second) + ir.BYTES_SIZE).value == len(probe.second)
        and ctypes.string_at(id(probe.second) + ir.BYTES_DATA, len(probe.second)) == probe.second
        and word(id(items) + ir.LIST_SIZE).value == 2
        and word(word(id(items) + ir.LIST_ITEMS).value + 8).value == id(array)
        and word(id(array) + ir.ARRAY_DATA).value == array.ctypes.data
        and ctypes.c_int.from_address(id(array) + ir.ARRAY_NDIM).value == 2
        and struct.unpack("<2q", ctypes.string_at(word(id(array) + ir.ARRAY_SHAPE).value, 16)) == (2, 3)
        and struct.unpack("<2q", ctypes.string_at(word(id(array) + ir.ARRAY_STRIDES).value, 16)) == (24, 8)
        and word(id(array) + ir.ARRAY_DTYPE).value == id(array.dtype)
        and ctypes.c_int.from_address(id(array.dtype) + ir.DTYPE_NUMBER).value == array.dtype.num
        and ctypes.string_at(id(np.dtype(">f8")) + ir.DTYPE_ORDER, 1) == b">"
        and [ctypes.c_int.from_address(id(a) + ir.ARRAY_FLAGS).value & 1 for a in (array, array.T)] == [1, 0]
    )


def builtin(code: Native, words: Words) -> Append:
    """The code as a function of Python with ``words`` as its self."""
    definition = MethodDef(b"append", code.address, _ONE_ARGUMENT, None)
    # What it needs as long as it lives goes with it as the module that it is said to be from.
    return cast(Append, new_builtin(definition, words, (definition, code)))
