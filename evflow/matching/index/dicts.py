"""A dict as the row of an event, read by compiled code through the interpreter's own functions.

It knows the usual: names that are strings, values that are numbers, strings met before, or None. Whatever
else a dict holds, Python has to read it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evflow.matching.index.memory import address_of
from evflow.matching.model import LIMIT
from evflow.matching.native import (
    compiled,
    i64,
    outside,
    set_f64,
    set_i64,
    set_u8,
    set_u32,
    short_kernel,
    u8,
)
from evflow.matching.rows import NUMBER, TEXT

_UNUSUAL = -1
_NAN = float("nan")


_I, _F = "int64", "float64"
# Of the interpreter; all that they give are lent.
_next = outside("PyDict_Next", "intc", _I, _I, _I, _I)
_value = outside("PyDict_GetItemWithError", _I, _I, _I)
_item = outside("PyTuple_GetItem", _I, _I, _I)
_bytes = outside("PyBytes_AsString", _I, _I)
_integer: Callable[..., int] = outside("PyLong_AsLongLong", _I, _I)
_integral: Callable[..., float] = outside("PyLong_AsDouble", _F, _I)
_real: Callable[..., float] = outside("PyFloat_AsDouble", _F, _I)
_error = outside("PyErr_Occurred", _I)
_clear = outside("PyErr_Clear", "void")

# What the kernel is told, in bytes.
_TYPE, _FLOAT, _INT, _BOOL, _STR, _NONE = range(0, 48, 8)  # where an object's type stands; objects
_NAMES, _TEXTS, _X, _Y = range(48, 80, 8)
_COLUMNS = 80
_NAME, _KIND, _NUMBER, _TEXT, _START, _LENGTH, _CHARS, _PLACE = range(_COLUMNS, _COLUMNS + 64, 8)
_WIDEST, _LONGEST = 144, 152
_POSITION, _KEY, _HELD = 160, 168, 176  # of the walk through the dict
_FIRST, _SECOND = 184, 192  # of the place, as float64
_TOLD = 25


@compiled
def _put_text(told: int, i: int, end: int, held: int) -> int:
    """Writes a string whose bytes begin at ``end``; where they end, or ``_UNUSUAL``."""
    known = _value(i64(told + _TEXTS), held)
    if known == 0:
        return _UNUSUAL
    source, length = _bytes(_item(known, 1)), _integer(_item(known, 2))
    if end + length > i64(told + _LONGEST):
        return _UNUSUAL
    target = i64(told + _CHARS) + end
    for k in range(length):
        set_u8(target + k, u8(source + k))
    set_u32(i64(told + _TEXT) + 4 * i, _integer(_item(known, 0)))
    set_i64(i64(told + _START) + 8 * i, end)
    set_u32(i64(told + _LENGTH) + 4 * i, length)
    return end + length


@compiled
def _is_number(told: int, kind: int) -> bool:
    return kind == i64(told + _FLOAT) or kind == i64(told + _INT) or kind == i64(told + _BOOL)


@compiled
def _number(told: int, kind: int, held: int) -> float:
    """A number as float64; beyond its range it leaves an error."""
    return _real(held) if kind == i64(told + _FLOAT) else _integral(held)


@compiled
def _coordinate(told: int, event: int, name: int) -> tuple[bool, float]:
    """Whether a coordinate is a number or not there, and the number."""
    held = _value(event, i64(told + name))
    if held == 0 or held == i64(told + _NONE):
        return True, _NAN
    kind = i64(held + i64(told + _TYPE))
    if not _is_number(told, kind):
        return False, _NAN
    return True, _number(told, kind, held)


@compiled
def _put_place(told: int, event: int) -> bool:
    """Writes the place of an event; on the plane as it is, on the globe Python does the rest."""
    known, x = _coordinate(told, event, _X)
    other_known, y = _coordinate(told, event, _Y)
    set_f64(told + _FIRST, x)
    set_f64(told + _SECOND, y)
    place = i64(told + _PLACE)
    if place:
        if not (abs(x) <= LIMIT and abs(y) <= LIMIT):
            x = y = _NAN
        set_f64(place, x)
        set_f64(place + 8, y)
    return known and other_known


@compiled
def _put_all(told: int, event: int) -> int:
    """Writes the columns of an event; how many attributes it has, or ``_UNUSUAL``."""
    i = end = 0
    set_i64(told + _POSITION, 0)
    while _next(event, told + _POSITION, told + _KEY, told + _HELD):
        key, held = i64(told + _KEY), i64(told + _HELD)
        if i64(key + i64(told + _TYPE)) != i64(told + _STR) or i == i64(told + _WIDEST):
            return _UNUSUAL
        name = _value(i64(told + _NAMES), key)
        if name == 0 or held == i64(told + _NONE):
            continue
        kind = i64(held + i64(told + _TYPE))
        if kind == i64(told + _STR):
            end = _put_text(told, i, end, held)
            if end == _UNUSUAL:
                return _UNUSUAL
            set_u8(i64(told + _KIND) + i, TEXT)
        elif _is_number(told, kind):
            set_f64(i64(told + _NUMBER) + 8 * i, _number(told, kind, held))
            set_u8(i64(told + _KIND) + i, NUMBER)
        else:
            return _UNUSUAL
        set_u32(i64(told + _NAME) + 4 * i, _integer(name))
        i += 1
    return i if _put_place(told, event) else _UNUSUAL


@short_kernel
def read_dict(told: int, event: int) -> int:
    """Writes the columns of an event; how many attributes it has, or ``_UNUSUAL``."""
    count = _put_all(told, event)
    if _error():
        _clear()
        return _UNUSUAL
    return count


class DictReader:
    """Reads dicts into columns that stay where they are.

    Args:
        names: name → number.
        texts: string → number, bytes and their length; of strings that were met before.
        location: the attributes that tell a place.
        columns: name, kind, number, text, start, length, chars and place of ``EventRows``, as long as the
            longest event that is read.

    Attributes:
        at: what ``read`` is to be called with, besides the ``id`` of a dict; it gives the number of the
            event's attributes, or -1: Python has to read it.
        place: on the globe, latitude and longitude of the event that was read last.
    """

    read = staticmethod(read_dict)

    def __init__(
        self,
        names: dict[str, int],
        texts: dict[str, tuple[int, bytes, int]],
        location: tuple[str, str],
        columns: Sequence[NDArray[Any]],
    ) -> None:
        self._held = names, texts, location, columns
        self._told = told = np.zeros(_TOLD, np.int64)
        # The last field of what every object begins with.
        objects = object.__basicsize__ - 8, *map(id, (float, int, bool, str, None, names, texts, *location))
        told[: len(objects)] = objects
        addresses = [address_of(column) for column in columns]
        told[_COLUMNS // 8 : _WIDEST // 8] = addresses
        if columns[-1].shape[-1] != 2:
            told[_PLACE // 8] = 0
        told[_WIDEST // 8], told[_LONGEST // 8] = len(columns[0]), len(columns[-2])
        self.at = address_of(told)
        self.place: Any = told[_FIRST // 8 :].data.cast("B").cast("d")
