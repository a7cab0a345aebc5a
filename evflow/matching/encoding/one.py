"""One event as rows, as fast as can be: into buffers that are made once a thread.

The arrays of the rows are parts of these buffers, so rows are good until the thread encodes its next event.
Engines may bring compiled code that reads dicts; what it does not know, Python reads.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from evflow.events.event import Event
from evflow.events.view import View
from evflow.matching.encoding.events import encode_events
from evflow.matching.encoding.values import (
    KINDS,
    MISSING,
    Vocabulary,
    attributes_of,
    is_converted,
    seen,
)
from evflow.matching.rows import NUMBER, TEXT, EventRows
from evflow.matching.space import Space
from evflow.matching.strings import utf8

_WIDEST = 64
_LONGEST = 4096
_REMEMBERED = 4096
_SHORT = 256
_NAN = float("nan")


class _Buffers(threading.local):
    """What a thread encodes into, and the rows of each width over it."""

    def __init__(self, space: Space, reader_of: Callable[[list[Any]], Any] | None) -> None:
        kinds: tuple[Any, ...] = (np.int32, np.uint8, np.float64, np.int32, np.int64, np.int32)
        self.arrays: list[Any] = [np.zeros(_WIDEST, kind) for kind in kinds]
        self.chars = bytearray(_LONGEST)
        self.place: Any = np.full((1, space.dimensions), np.nan)
        views: list[Any] = [array.data for array in self.arrays]
        place: Any = self.place
        place = place.data.cast("B").cast("d")
        self.rows: list[EventRows | None] = [None] * (_WIDEST + 1)
        # All in one, since to look up what belongs to a thread takes long.
        self.views = (self.rows, self.chars, *views, place)
        chars = np.frombuffer(self.chars, np.uint8)
        reader: Any = reader_of([*self.arrays, chars, self.place]) if reader_of else None
        self.direct: Any = (reader, reader and reader.at, self.rows, place)

    def make(self, width: int) -> EventRows:
        """The rows of an event with so many attributes."""
        name, kind, number, text, start, length = (array[:width] for array in self.arrays)
        bounds = np.array([0, width], np.int64)
        chars = np.frombuffer(self.chars, np.uint8)
        made = EventRows(bounds, name, kind, number, text, chars, start, length, self.place)
        self.rows[width] = made
        return made


class OneEncoder:
    """Encodes single events.

    Args:
        known: what events are read for.
        reader: makes what reads dicts: ``evflow.matching.index.dicts.DictReader``.
    """

    def __init__(self, known: Vocabulary, reader: Any = None) -> None:
        self._known = known
        self._names, self._strings = known.names, known.strings
        self._space, self._location = known.space, known.location
        self._nested = "." in "".join(known.location)
        # It stays the same dict, since compiled code knows it by its address.
        self._memo: dict[str, tuple[int, bytes, int]] = {}
        self._readers: dict[type, Callable[[Any], dict[str, Any]]] = {}
        self._reader = reader
        self._read: Callable[[int, int], int] | None = None
        self._globe = known.space.dimensions == 3
        reader_of = reader and (
            lambda columns: reader(known.names.numbers, self._memo, known.location, columns)
        )
        self._buffers = _Buffers(known.space, reader_of)
        self.forget()

    def forget(self) -> None:
        """New names or strings came."""
        self._memo.clear()
        self._readers = {}
        nested = self._nested or self._names.inner
        self._read = self._reader.read if self._reader and not nested else None

    def _remember(self, text: str) -> tuple[int, bytes, int]:
        piece = utf8(text)
        if len(piece) > _SHORT:
            return self._strings.number(piece), piece, len(piece)
        memo = self._memo
        if len(memo) >= _REMEMBERED:
            memo.clear()
        held = memo[text] = self._strings.number(piece), piece, len(piece)
        return held

    def encode(self, event: Any) -> EventRows:
        """The rows of one event, good until this thread encodes the next.

        Raises:
            SchemaError: it is not an event.
        """
        if type(event) is not dict:
            event = self._fields(event) if isinstance(event, Event | View) else attributes_of(event)
        if self._read and type(event) is dict:
            reader, at, made, place = self._buffers.direct
            width = self._read(at, id(event))
            if width >= 0:
                if self._globe:
                    self._space.put(place, *reader.place)
                return made[width] or self._buffers.make(width)
        try:
            rows = self._fill(event)
        except (IndexError, ValueError, OverflowError):
            rows = None
        if rows is None:
            rows = encode_events([event], self._known)
        return rows

    def _fill(self, event: Any) -> EventRows | None:
        """The rows, if the event is one of the usual; else None or an error."""
        rows, chars, names, kinds, numbers, texts, starts, lengths, place = self._buffers.views
        number_of_name, inner, memo = self._names.numbers.get, self._names.inner, self._memo
        i = at = 0
        for name, value in event.items():
            number = number_of_name(name)
            if number is None:
                if inner and name in inner:
                    return None
                continue
            kind = KINDS.get(type(value))
            if kind == NUMBER:
                numbers[i] = value
            elif kind == TEXT:
                texts[i], piece, size = memo.get(value) or self._remember(value)
                end = at + size
                if end > _LONGEST:
                    return None
                chars[at:end] = piece
                starts[i], lengths[i] = at, size
                at = end
            elif kind is None or (inner and name in inner):
                return None
            elif kind == MISSING:
                continue
            names[i] = number
            kinds[i] = kind
            i += 1
        if not self._put_place(event, place):
            return None
        return rows[i] or self._buffers.make(i)

    def _put_place(self, event: Any, place: Any) -> bool:
        """Writes the place of an event; False if that takes more than a number each."""
        if self._nested:
            return False
        first, second = self._location
        x, y = event.get(first), event.get(second)
        if KINDS.get(type(x)) == NUMBER == KINDS.get(type(y)):
            # An integer too large for this is an error that `encode` handles.
            self._space.put(place, float(x), float(y))
        elif x is None or y is None:
            place[0] = place[1] = place[-1] = _NAN
        else:
            return False
        return True

    def _fields(self, event: Event | View) -> dict[str, Any]:
        """What matters of an event."""
        read = self._readers.get(type(event))
        if read is None:
            known = {*self._names.numbers, *self._names.inner, *(n.partition(".")[0] for n in self._location)}
            wanted = [field for field in event.schema.fields if field.name in known]
            converted = {f"see_{f.name}": partial(seen, f.type) for f in wanted if is_converted(f.type)}
            # The names are words of Python, and written out they are found in half the time.
            text = ", ".join(
                f"{f.name!r}: {f'see_{f.name}' * is_converted(f.type)}(event.{f.name})" for f in wanted
            )
            read = self._readers[type(event)] = eval(f"lambda event: {{{text}}}", converted)
        fields = read(event)
        attributes = event.attrs if isinstance(event, View) else None
        return {**attributes, **fields} if attributes else fields
