"""Dicts as rows of events, read by compiled code through the interpreter's own functions.

It knows the usual: names that are strings, and values that are numbers, strings, bytes or None. Whatever else
a dict holds, Python has to look at: ``usual`` in ``evflow.matching.encoding.events``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evflow.events.gather import address_of
from evflow.matching.encoding.events import Utf8
from evflow.matching.encoding.values import Vocabulary
from evflow.matching.globe import place_vector
from evflow.matching.kernels import hash_of, probe
from evflow.matching.model import LIMIT
from evflow.matching.native import (
    compiled,
    i64,
    int64s,
    outside,
    set_f64,
    set_i64,
    set_u8,
    set_u32,
    short_kernel,
    uint8s,
    uint64s,
)
from evflow.matching.rows import NUMBER, OTHER, TEXT, EventRows

DONE, UNUSUAL, ATTRIBUTES, CHARS = range(4)
"""Why reading ended: nothing is left, Python has to look, or there is no room for attributes or for bytes."""

_NAN = float("nan")
_U = np.uint64
_I, _F = "int64", "float64"
# Of the interpreter; all that they give are lent.
_next = outside("PyDict_Next", "intc", _I, _I, _I, _I)
_value = outside("PyDict_GetItemWithError", _I, _I, _I)
_item = outside("PyList_GetItem", _I, _I, _I)
_bytes = outside("PyBytes_AsString", _I, _I)
_count = outside("PyBytes_Size", _I, _I)
_utf8 = outside("PyUnicode_AsUTF8AndSize", _I, _I, _I)
_integer: Callable[..., int] = outside("PyLong_AsLongLong", _I, _I)
_integral: Callable[..., float] = outside("PyLong_AsDouble", _F, _I)
_real: Callable[..., float] = outside("PyFloat_AsDouble", _F, _I)
_is_subtype = outside("PyType_IsSubtype", "intc", _I, _I)
_error = outside("PyErr_Occurred", _I)
_clear = outside("PyErr_Clear", "void")

# What events are read for, in bytes: where an object's type stands, objects, and the table of strings.
_TYPE, _DICT, _FLOAT, _INT, _BOOL, _STR, _BYTES, _UTF8, _NONE = range(0, 72, 8)
_NAMES, _INNER, _X, _Y, _DOTTED, _GLOBE, _DATA, _OFFSETS, _SLOTS, _MASK, _SEED = range(72, 160, 8)
_KNOWN = 20
# What is written: where columns stand, how much room there is, and what is used of it.
_ABOUT, _BOUNDS, _NAME, _KIND, _NUMBER, _TEXT, _CHARS, _START, _LENGTH, _PLACE = range(0, 80, 8)
_WIDEST, _LONGEST, _USED, _WRITTEN, _ENDED = range(80, 120, 8)
_POSITION, _KEY, _HELD, _BYTE_COUNT = range(120, 152, 8)  # of the walk through a dict
_TOLD = 19


@compiled
def _put_text(told: int, i: int, source: int, length: int) -> bool:
    """Writes the bytes of a string, and its number if there is one; whether there is room."""
    about, end = i64(told), i64(told + _WRITTEN)
    if end + length > i64(told + _LONGEST):
        set_i64(told + _ENDED, CHARS)
        return False
    target = i64(told + _CHARS) + end
    for k in range(length):
        set_u8(target + k, uint8s(source)[k])
    hashed = hash_of(uint8s(target), 0, length, _U(i64(about + _SEED)))
    data, offsets, slots = i64(about + _DATA), i64(about + _OFFSETS), i64(about + _SLOTS)
    mask = _U(i64(about + _MASK))
    found = probe(uint8s(target), 0, length, uint8s(data), int64s(offsets), uint64s(slots), mask, hashed)
    set_u32(i64(told + _TEXT) + 4 * i, max(found, -1))
    set_i64(i64(told + _START) + 8 * i, end)
    set_u32(i64(told + _LENGTH) + 4 * i, length)
    set_i64(told + _WRITTEN, end + length)
    return True


@compiled
def _is_real(about: int, kind: int) -> bool:
    return kind == i64(about + _FLOAT) or _is_subtype(kind, i64(about + _FLOAT)) != 0


@compiled
def _is_whole(about: int, kind: int) -> bool:
    return kind == i64(about + _INT) or kind == i64(about + _BOOL)


@compiled
def _is_text(about: int, kind: int) -> bool:
    return kind == i64(about + _STR) or kind == i64(about + _BYTES) or kind == i64(about + _UTF8)


@compiled
def _put(told: int, i: int, held: int) -> bool:
    """Writes the value of an attribute; False if it is unusual, or there is no room."""
    about = i64(told)
    kind = i64(held + i64(about + _TYPE))
    if kind == i64(about + _STR):
        source = _utf8(held, told + _BYTE_COUNT)
        set_u8(i64(told + _KIND) + i, TEXT)
        return source != 0 and _put_text(told, i, source, i64(told + _BYTE_COUNT))
    if kind == i64(about + _UTF8):
        set_u8(i64(told + _KIND) + i, TEXT)
        return _put_text(told, i, _bytes(held), _count(held))
    if kind == i64(about + _BYTES):
        set_u8(i64(told + _KIND) + i, OTHER)
        return True
    set_u8(i64(told + _KIND) + i, NUMBER)
    if _is_whole(about, kind):
        # Beyond the range of float64 it leaves an error.
        set_f64(i64(told + _NUMBER) + 8 * i, _integral(held))
        return True
    if not _is_real(about, kind):
        return False
    set_f64(i64(told + _NUMBER) + 8 * i, _real(held))
    return True


@compiled
def _coordinate(told: int, event: int, name: int) -> tuple[bool, float]:
    """Whether compiled code knows what a coordinate is, and the number, NaN if it is none."""
    about = i64(told)
    held = _value(event, i64(about + name))
    if held == 0:
        return i64(about + _DOTTED) == 0, _NAN
    kind = i64(held + i64(about + _TYPE))
    if held == i64(about + _NONE) or _is_text(about, kind):
        return True, _NAN
    if _is_whole(about, kind):
        return True, _integral(held)
    return (True, _real(held)) if _is_real(about, kind) else (False, _NAN)


@compiled
def _put_place(told: int, event: int, number: int) -> bool:
    """Writes the place of an event."""
    known, x = _coordinate(told, event, _X)
    other_known, y = _coordinate(told, event, _Y)
    if i64(i64(told) + _GLOBE):
        place = i64(told + _PLACE) + 24 * number
        a, b, c = place_vector(x, y)
        set_f64(place, a)
        set_f64(place + 8, b)
        set_f64(place + 16, c)
    else:
        place = i64(told + _PLACE) + 16 * number
        there = abs(x) <= LIMIT and abs(y) <= LIMIT
        set_f64(place, x if there else _NAN)
        set_f64(place + 8, y if there else _NAN)
    return known and other_known


@compiled
def _is_plain(told: int, held: int) -> bool:
    """Whether a value is surely not a record."""
    about = i64(told)
    kind = i64(held + i64(about + _TYPE))
    number = kind == i64(about + _FLOAT) or _is_whole(about, kind)
    return number or _is_text(about, kind) or held == i64(about + _NONE)


@compiled
def _put_attributes(told: int, event: int) -> bool:
    """Writes the attributes of an event; False if one is unusual, or there is no room."""
    about, i = i64(told), i64(told + _USED)
    set_i64(told + _ENDED, UNUSUAL)
    if i64(event + i64(about + _TYPE)) != i64(about + _DICT):
        return False
    set_i64(told + _POSITION, 0)
    while _next(event, told + _POSITION, told + _KEY, told + _HELD):
        key, held = i64(told + _KEY), i64(told + _HELD)
        if i64(key + i64(about + _TYPE)) != i64(about + _STR):
            return False
        name = _value(i64(about + _NAMES), key)
        if name == 0:
            inner = i64(about + _INNER)
            if inner and _value(inner, key) and not _is_plain(told, held):
                return False
        elif held != i64(about + _NONE):
            if i == i64(told + _WIDEST):
                set_i64(told + _ENDED, ATTRIBUTES)
                return False
            if not _put(told, i, held):
                return False
            set_u32(i64(told + _NAME) + 4 * i, _integer(name))
            i += 1
    set_i64(told + _USED, i)
    return True


@compiled
def _read(told: int, event: int, number: int) -> bool:
    """Writes the columns of an event; False if that was not all."""
    used, written = i64(told + _USED), i64(told + _WRITTEN)
    done = _put_attributes(told, event) and _put_place(told, event, number)
    if _error():
        _clear()
        done = False
    if done:
        set_i64(i64(told + _BOUNDS) + 8 * number + 8, i64(told + _USED))
        set_i64(told + _ENDED, DONE)
        return True
    set_i64(told + _USED, used)
    set_i64(told + _WRITTEN, written)
    return False


@short_kernel
def read_one(told: int, event: int) -> int:
    """Writes the columns of the only event; how many attributes it has, or -1: see ``_ENDED``."""
    set_i64(told + _USED, 0)
    set_i64(told + _WRITTEN, 0)
    return i64(told + _USED) if _read(told, event, 0) else -1


@short_kernel
def read_many(told: int, events: int, first: int, stop: int) -> int:
    """Writes the columns of events ``first`` to ``stop`` of a list; where it ended.

    See ``_ENDED`` for the reason.
    """
    for event in range(first, stop):
        if not _read(told, _item(events, event), event):
            return event
    return stop


class Reading:
    """What compiled code reads events for.

    Args:
        known: names and strings; ``renew`` when there are more.

    Attributes:
        at: where that stands.
    """

    def __init__(self, known: Vocabulary) -> None:
        self._known = known
        self._told = np.zeros(_KNOWN, np.int64)
        self.at = address_of(self._told)
        self._held: tuple[Any, ...] = ()
        self.renew()

    def renew(self) -> None:
        """Takes new names and strings in."""
        known = self._known
        names, (data, offsets, slots, seed) = known.names, known.strings.table
        # The last field of what every object begins with.
        objects = object.__basicsize__ - 8, *map(id, (dict, float, int, bool, str, bytes, Utf8, None))
        inner = id(names.inner) if names.inner else 0
        dotted = "." in "".join(known.location)
        places = id(names.numbers), inner, *map(id, known.location), dotted, known.space.dimensions == 3
        arrays: tuple[NDArray[Any], ...] = data, offsets, slots
        table = *map(address_of, arrays), len(slots) - 1, int(seed.view(np.int64))
        self._told[:] = *objects, *places, *table
        # Only now what was told before may go.
        self._held = arrays


class Columns:
    """Columns of ``EventRows`` that compiled code writes.

    Args:
        reading: what events are read for.
        events: how many events there is room for.
        attributes: for how many attributes.
        chars: for how many bytes of strings.
        dimensions: of a place.

    Attributes:
        at: what kernels are called with.
    """

    def __init__(self, reading: Reading, events: int, attributes: int, chars: int, dimensions: int) -> None:
        self._reading = reading
        self._told = np.zeros(_TOLD, np.int64)
        self.at = address_of(self._told)
        self._seen: Any = self._told.data
        self.bounds, self.place = np.zeros(events + 1, np.int64), np.empty((events, dimensions))
        kinds: tuple[Any, ...] = (np.int32, np.uint8, np.float64, np.int32)
        self.arrays: list[NDArray[Any]] = [np.zeros(attributes, kind) for kind in kinds]
        self.arrays += [np.zeros(chars, np.uint8), np.zeros(attributes, np.int64)]
        self.arrays += [np.zeros(attributes, np.int32)]
        self._tell()

    def _tell(self) -> None:
        columns = self.bounds, *self.arrays, self.place
        self._told[: _WIDEST // 8] = self._reading.at, *map(address_of, columns)
        self._told[_WIDEST // 8], self._told[_LONGEST // 8] = len(self.arrays[0]), len(self.arrays[4])

    @property
    def ended(self) -> int:
        """Why reading ended: ``DONE``, ``UNUSUAL``, ``ATTRIBUTES`` or ``CHARS``."""
        ended: int = self._seen[_ENDED // 8]
        return ended

    @property
    def written(self) -> int:
        """How many bytes of strings there are."""
        written: int = self._seen[_WRITTEN // 8]
        return written

    def grow(self) -> None:
        """Makes twice as much room of what was too little."""
        chars = self.ended == CHARS
        for i, array in enumerate(self.arrays):
            if (i == 4) == chars:
                self.arrays[i] = np.zeros(2 * len(array), array.dtype)
                self.arrays[i][: len(array)] = array
        self._tell()

    def rows(self, events: int) -> EventRows:
        """The first events as rows; their attributes are those that the last one ended at."""
        width = int(self.bounds[events])
        name, kind, number, text, chars, start, length = self.arrays
        chars = chars[: self.written] if events > 1 else chars
        return EventRows(
            self.bounds[: events + 1], name[:width], kind[:width], number[:width], text[:width],
            chars, start[:width], length[:width], self.place[:events],
        )  # fmt: skip
