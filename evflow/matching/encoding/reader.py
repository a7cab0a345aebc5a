"""Events of any form as rows; those that are objects of Python as fast as can be: compiled code reads dicts.

A single event goes into columns that are made once a thread, so its rows are good until the thread reads its
next event. Where there is no machine code, Python reads all.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from evflow.errors import SchemaError
from evflow.events.batch import EventBatch
from evflow.events.event import Event
from evflow.events.view import View
from evflow.matching.derived import with_derived
from evflow.matching.encoding.batch import encode_batch
from evflow.matching.encoding.columns import encode_columns
from evflow.matching.encoding.events import encode_events, usual
from evflow.matching.encoding.values import Vocabulary, attributes_of, is_converted, seen
from evflow.matching.folding import folded
from evflow.matching.native import HAS_CODE
from evflow.matching.operators import Op
from evflow.matching.patterns import searcher
from evflow.matching.rows import NUMBER, OTHER, TEXT, EventRows

if TYPE_CHECKING:
    from evflow.matching.encoding.dicts import Columns


WIDEST = 64
LONGEST = 4096
_REMEMBERED = 4096
_ABSENT, _EQ_OTHER, _EQ_NOCASE, _MATCHES = map(int, (Op.ABSENT, Op.EQ_OTHER, Op.EQ_NOCASE, Op.MATCHES))


class Alone(threading.local):
    """What a thread reads single events with.

    Args:
        make: makes columns of so many attributes and bytes.

    Attributes:
        columns: where the event is written.
        all: where the columns are, and the rows of each width.
    """

    def __init__(self, make: Callable[[int, int], Columns]) -> None:
        self.columns = make(WIDEST, LONGEST)
        # All in one, since to look up what belongs to a thread takes long.
        rows: list[EventRows | None] = [None] * (WIDEST + 1)
        self.all = self.columns.at, rows
        self._views: list[Any] = [array.data for array in self.columns.arrays]
        self._bounds: Any = self.columns.bounds.data

    def rows(self, width: int) -> EventRows:
        """The rows of an event with so many attributes."""
        self._bounds[1] = width
        rows = self.all[1][width] or self.columns.rows(1)
        self.all[1][width] = rows
        return rows

    def derive(self, width: int, known: Vocabulary, memo: dict[bytes, tuple[int, bytes]]) -> int:
        """Writes the attributes that are derived from those of the event, sooner than ``with_derived`` does.

        Args:
            width: how many attributes the event has.
            known: what constraints ask for.
            memo: texts → the number and the bytes of each folded, for as long as ``known`` stays the same.

        Returns:
            How many attributes it has then; -1 if there is no room for them.
        """
        names, kinds, numbers, texts, chars, starts, lengths = self._views
        at = {name: row for row, name in enumerate(names[:width].tolist())}
        row, end = width, self.columns.written
        for (op, name, other), number in known.names.derived.items():
            source = at.get(name)
            if (source is None) is not (op == _ABSENT):
                continue
            if row == WIDEST:
                return -1
            kind = OTHER
            if source is None:
                pass
            elif op == _EQ_OTHER:
                way = self._way(source, at.get(other))
                if way is None:
                    continue
                kind, numbers[row] = NUMBER, way
            elif kinds[source] != TEXT:
                continue
            elif op == _EQ_NOCASE:
                text = self._text(source)
                held = memo.get(text)
                if held is None:
                    if len(memo) >= _REMEMBERED:
                        memo.clear()
                    made = folded(text)
                    held = memo[text] = known.strings.number(made), made
                texts[row], piece = held
                size = len(piece)
                if end + size > LONGEST:
                    return -1
                chars[end : end + size] = piece
                kind, starts[row], lengths[row] = TEXT, end, size
                end += size
            else:
                search = searcher(known.strings.bytes_of(other).decode())
                if search(self._text(source)) is not (op == _MATCHES):
                    continue
            names[row], kinds[row] = number, kind
            row += 1
        return row

    def _way(self, one: int, two: int | None) -> float | None:
        """How two attributes of the event are ordered; None: they do not compare."""
        _, kinds, numbers, *_ = self._views
        if two is None or kinds[one] != kinds[two] or kinds[one] == OTHER:
            return None
        a, b = (numbers[one], numbers[two]) if kinds[one] == NUMBER else (self._text(one), self._text(two))
        return float((a > b) - (a < b)) if a == a and b == b else float("nan")

    def _text(self, row: int) -> bytes:
        """The UTF-8 bytes of a text, which are ordered as texts are."""
        *_, chars, starts, lengths = self._views
        start: int = starts[row]
        return bytes(chars[start : start + lengths[row]])


_USUAL = 8
"""Attributes that constraints use of an event, to begin with."""
_PIECE = 1024
"""Events that are read before other threads may run."""


class EventReader:
    """Reads events with all that is derived of them.

    Args:
        known: what they are read for.
    """

    def __init__(self, known: Vocabulary) -> None:
        self._known = known
        self._fields_of: dict[type, Callable[[Any], dict[str, Any]]] = {}
        self._version = known.version
        self._folded: dict[bytes, tuple[int, bytes]] = {}
        if HAS_CODE:
            # Without machine code it cannot be imported.
            from evflow.matching.encoding import dicts

            self._reading, self._dicts = dicts.Reading(known), dicts
            self._read_one, self._read_many = dicts.read_one, dicts.read_many
            self._alone = Alone(partial(self._columns, 1))

    def _columns(self, events: int, attributes: int, chars: int) -> Columns:
        return self._dicts.Columns(self._reading, events, attributes, chars, self._known.space.dimensions)

    def renew(self) -> None:
        """Takes new names or strings in, if there are any."""
        if self._known.version != self._version:
            self._version = self._known.version
            self._fields_of = {}
            self._folded = {}
            if HAS_CODE:
                self._reading.renew()

    def read(self, event: Any) -> EventRows:
        """The rows of a dict, an ``Event`` or a view, good until this thread reads the next one.

        Raises:
            SchemaError: it is not an event.
        """
        if not HAS_CODE:
            return self._with_derived(encode_events([attributes_of(event)], self._known))
        at, made = self._alone.all
        while (width := self._read_one(at, id(event))) < 0:
            if self._alone.columns.ended != self._dicts.UNUSUAL:
                return self.read_list([event])
            event = self._simpler(event)
        if self._known.names.derived:
            given, width = width, self._alone.derive(width, self._known, self._folded)
            if width < 0:
                return self._with_derived(self._alone.rows(given))
            return self._alone.rows(width)
        return made[width] or self._alone.rows(width)

    def _with_derived(self, rows: EventRows) -> EventRows:
        names = self._known.names
        return with_derived(rows, names, self._known.strings) if names.derived else rows

    def read_many(self, events: Any) -> EventRows:
        """The rows of many events.

        Args:
            events: a batch, a list of events, a dict of columns, a structured array, a DataFrame, a pyarrow
                table.

        Raises:
            SchemaError: it is none of these, or malformed.
        """
        if isinstance(events, list | tuple):
            return self.read_list(events)
        encode = encode_batch if isinstance(events, EventBatch) else encode_columns
        return self._with_derived(encode(events, self._known))

    def read_list(self, events: Sequence[Any], before: int = 0) -> EventRows:
        """The rows of a list of events.

        Args:
            events: the events.
            before: how many stand before them, by what errors count.

        Raises:
            SchemaError: one is not an event; names it.
        """
        return self._with_derived(self._read_list(events, before))

    def _read_list(self, events: Sequence[Any], before: int = 0) -> EventRows:
        if not HAS_CODE:
            return encode_events(events, self._known, before)
        held = list(events)
        count = len(held)
        attributes = min(len(self._known.names.numbers), _USUAL) * count
        columns = self._columns(count, attributes + WIDEST, attributes + LONGEST)
        first = 0
        while first < count:
            first = self._read_many(columns.at, id(held), first, min(first + _PIECE, count))
            ended = columns.ended
            if ended == self._dicts.UNUSUAL:
                try:
                    held[first] = self._simpler(held[first])
                except SchemaError as error:
                    raise SchemaError(f"event {before + first}: {error}") from None
            elif ended != self._dicts.DONE:
                columns.grow()
        return columns.rows(count)

    def _simpler(self, event: Any) -> dict[str, Any]:
        """An event that compiled code may know where it did not know this one."""
        if not isinstance(event, Event | View):
            return usual(event, self._known)
        read = self._fields_of.get(type(event))
        if read is None:
            names = self._known.names
            location = [name.partition(".")[0] for name in self._known.location]
            known = {*names.numbers, *names.inner, *location}
            wanted = [field for field in event.schema.fields if field.name in known]
            converted = {f"see_{f.name}": partial(seen, f.type) for f in wanted if is_converted(f.type)}
            # The names are words of Python, and written out they are found in half the time.
            text = ", ".join(
                f"{f.name!r}: {f'see_{f.name}' * is_converted(f.type)}(event.{f.name})" for f in wanted
            )
            read = self._fields_of[type(event)] = eval(f"lambda event: {{{text}}}", converted)
        fields = read(event)
        attributes = event.attrs if isinstance(event, View) else None
        return {**attributes, **fields} if attributes else fields
