"""Batches: the unit that flows. Encoded events back to back, and which of them are meant."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import count, repeat
from typing import Any

import numpy as np

from evflow.errors import SchemaError
from evflow.events.attributes import Attributes
from evflow.events.columns.direct import events_encoder
from evflow.events.columns.intake import columns_of
from evflow.events.columns.reading import decoded_columns, raw_column, structured
from evflow.events.columns.writing import encode_columns
from evflow.events.encode import encoder
from evflow.events.event import Event
from evflow.events.gather import (
    ByteArray,
    Offsets,
    Room,
    back_to_back,
    frozen,
    gather,
    no_room,
    own_place,
    running,
    starts_of,
)
from evflow.events.view import View, view_class
from evflow.events.wirecheck import check, is_one
from evflow.schema import Schema
from evflow.schema.values import describe

_UINT8 = np.dtype(np.uint8)

_Rows = np.ndarray[Any, np.dtype[np.int32]]
_Positions = np.ndarray[Any, np.dtype[Any]]


class EventBatch:
    """Encoded events of one schema, back to back in one buffer, of which all or some are selected.

    Iterating gives read-only views, ``batch["price"]`` a column. The constructor trusts what it gets; use
    ``from_bytes`` for bytes from outside.

    Args:
        schema: the schema of the events.
        data: bytes, or uint8, 1-D, C-contiguous, not writeable: exactly ``rows`` events.
        rows: how many events are in ``data``.
        offsets: int64, ``rows + 1``: where each event starts and the last ends, if their width varies.
        selection: int32, increasing: the rows that are meant; None for all.
        attributes: columns as long as the batch (the selected events), or None.

    Attributes:
        size: bytes of ``data``.

    Example:
        >>> import evflow as ev
        >>> class Trade(ev.Event):
        ...     price: float
        ...     size: int
        >>> batch = ev.EventBatch.from_columns(Trade.schema, {"price": [1.5, 2.5], "size": [3, 4]})
        >>> batch["price"].sum(), batch[1].size, len(batch.to_bytes())
        (np.float64(4.0), 4, 38)
    """

    __slots__ = ("_buffer", "_data", "attributes", "offsets", "rows", "schema", "selection", "size")

    def __init__(
        self,
        schema: Schema,
        data: ByteArray | bytes,
        rows: int,
        offsets: Offsets | None = None,
        selection: _Rows | None = None,
        attributes: Attributes | None = None,
    ) -> None:
        self.schema = schema
        # A few events go from socket to socket without ever being an array.
        self._data: ByteArray | None = None
        self._buffer: bytes | memoryview | None = None
        if isinstance(data, bytes):
            self._buffer = data
        else:
            self._data = data
        self.rows = rows
        self.offsets = offsets
        self.selection = selection
        self.attributes = attributes
        self.size = len(data)

    @classmethod
    def from_encoded(
        cls, schema: Schema, events: Sequence[bytes | memoryview], attributes: Attributes | None = None
    ) -> EventBatch:
        """A batch of encoded events; one alone is not copied.

        Args:
            schema: the schema of the events.
            events: the bytes of each event, as ``encoder(schema)`` gives them; they are not checked.
            attributes: columns of attributes, as long as ``events``.

        Raises:
            SchemaError: a column of attributes has another length.
        """
        rows = len(events)
        if attributes is not None:
            attributes.check_length(schema.name, rows)
        offsets = None if schema.width else running(map(len, events), rows)
        alone = events[0] if rows == 1 else b"".join(events)
        data = alone if isinstance(alone, bytes) else np.frombuffer(alone, _UINT8)
        return cls(schema, data, rows, offsets, None, attributes)

    @classmethod
    def from_bytes(
        cls, schema: Schema | type[Event], data: bytes | bytearray | memoryview, count: int | None = None
    ) -> EventBatch:
        """A batch of bytes from outside, validated; without a copy where they cannot change.

        Args:
            schema: the schema they claim to have.
            data: events back to back, nothing before or behind. What cannot be written to through it must
                not change otherwise either.
            count: how many events there are; None for as many as there are.

        Raises:
            SchemaError: the bytes are not exactly so many valid events; names event, field, byte, expected
                and found.
        """
        if schema.__class__ is not Schema:
            schema = Schema.of(schema)
        if isinstance(data, bytes) and count == 1 and is_one(schema, data):
            return cls(schema, data, 1)
        try:
            view = memoryview(data)
            held = data if view.readonly and view.c_contiguous else view.tobytes()
        except TypeError:
            raise SchemaError(f"bytes of {schema.name}: expected bytes, found {describe(data)}") from None
        array = np.frombuffer(held, _UINT8)
        rows, offsets = check(schema, array, count)
        return cls(schema, array, rows, offsets)

    @classmethod
    def from_events(cls, events: Iterable[Any], schema: Schema | type[Event] | None = None) -> EventBatch:
        """A batch of events, all of one schema.

        Args:
            events: the events.
            schema: their schema (or ``Event`` class); by default that of the first.

        Raises:
            SchemaError: an event does not fit the schema, there is none to tell it, or ``events`` cannot be
                iterated over.
        """
        try:
            each = iter(events)
        except TypeError:
            raise SchemaError(f"expected events, such as a list of them, found {describe(events)}") from None
        listed = list(each)
        if schema is None:
            if not listed:
                raise SchemaError("a batch of no events: expected schema= to say of what")
            schema = getattr(listed[0], "schema", None)
            if not isinstance(schema, Schema):
                raise SchemaError(
                    f"{describe(listed[0])} is not an event: expected schema= to say what it is"
                )
        schema = Schema.of(schema)
        direct = events_encoder(schema, len(listed)) if listed else None
        rows = None if direct is None else direct.encode(listed, len(listed))
        if rows is not None:
            return cls(schema, rows[0], len(listed), rows[1])
        return cls.from_encoded(schema, list(map(encoder(schema), listed)))

    @classmethod
    def from_columns(
        cls,
        schema: Schema | type[Event],
        columns: Mapping[str, Any],
        attributes: Attributes | None = None,
        room: Room = no_room,
    ) -> EventBatch:
        """A batch of rows given as columns.

        A field of a nested record may be a column of its own, ``position.x``. A column of floats may stand
        for integers if all are integral. Columns that no field has the name of are ignored; fields without a
        column
        take their defaults.

        Args:
            schema: the schema (or ``Event`` class) of the rows.
            columns: field name → array, sequence, column of pandas or pyarrow.
            attributes: columns of attributes, as long as the batch.
            room: gives a place for so many bytes, if they are to be in a certain one.

        Raises:
            SchemaError: a column is missing or of another length, or a value does not fit; names column
                and first row. Or a column of attributes has another length; names the attribute.
        """
        schema = Schema.of(schema)
        if not hasattr(columns, "items"):
            raise SchemaError(
                f"schema {schema.name}: expected columns by name, such as a dict, found {describe(columns)}"
            )
        data, rows, offsets = encode_columns(schema, columns, room)
        if attributes is not None:
            attributes.check_length(schema.name, rows)
        return cls(schema, data, rows, offsets, None, attributes)

    @classmethod
    def from_numpy(cls, schema: Schema | type[Event], rows: np.ndarray[Any, np.dtype[Any]]) -> EventBatch:
        """A batch of the rows of a structured array, which fits ``schema`` as ``from_columns`` says.

        Args:
            schema: the schema (or ``Event`` class) of the rows.
            rows: the array, of one dimension.

        Raises:
            SchemaError: see ``from_columns``.
        """
        schema = Schema.of(schema)
        return cls.from_columns(schema, columns_of(schema, rows))

    @classmethod
    def from_pandas(cls, schema: Schema | type[Event], frame: Any) -> EventBatch:
        """A batch of the rows of a pandas DataFrame, which fits ``schema`` as ``from_columns`` says.

        Args:
            schema: the schema (or ``Event`` class) of the rows.
            frame: the DataFrame.

        Raises:
            SchemaError: see ``from_columns``.
        """
        schema = Schema.of(schema)
        return cls.from_columns(schema, columns_of(schema, frame))

    @classmethod
    def from_arrow(cls, schema: Schema | type[Event], table: Any) -> EventBatch:
        """A batch of the rows of a table of pyarrow, which fits ``schema`` as ``from_columns`` says.

        Args:
            schema: the schema (or ``Event`` class) of the rows.
            table: a Table or RecordBatch.

        Raises:
            SchemaError: see ``from_columns``.
        """
        schema = Schema.of(schema)
        return cls.from_columns(schema, columns_of(schema, table))

    @classmethod
    def from_table(cls, schema: Schema | type[Event], table: Any, room: Room = no_room) -> EventBatch:
        """A batch of the rows of any table.

        Args:
            schema: the schema (or ``Event`` class) of the rows.
            table: dict of columns, structured array, DataFrame, Table, list of events, or a batch itself.
            room: gives a place for so many bytes, if they are to be in a certain one.

        Raises:
            SchemaError: see ``from_columns``; or a batch of another schema.
        """
        schema = Schema.of(schema)
        if isinstance(table, list | tuple) and (not table or isinstance(table[0], Event | View)):
            return cls.from_events(table, schema)
        if not isinstance(table, EventBatch):
            return cls.from_columns(schema, columns_of(schema, table), room=room)
        if table.schema is not schema and table.schema != schema:
            raise SchemaError(f"expected a batch of {schema!r}, found one of {table.schema!r}")
        return table

    @property
    def data(self) -> ByteArray:
        """The events back to back: uint8, 1-D, not writeable."""
        if self._data is None:
            assert self._buffer is not None
            self._data = np.frombuffer(self._buffer, _UINT8)
        return self._data

    @property
    def buffer(self) -> bytes | memoryview:
        """The bytes of ``data``, for views."""
        if self._buffer is None:
            self._buffer = self.data.data
        return self._buffer

    def __len__(self) -> int:
        return self.rows if self.selection is None else len(self.selection)

    def __bool__(self) -> bool:
        return len(self) > 0

    def __iter__(self) -> Iterator[View]:
        view = self.schema.made.get("view class") or view_class(self.schema)
        if self.rows == 1 and self.selection is None:
            return iter((view(self._buffer or self.buffer, 0, self, 0),))
        return map(view, repeat(self.buffer), self.starts(), repeat(self), count())

    def places(self) -> Offsets | None:
        """Where each selected event starts in ``data``: int64, in order in memory; None where the events have
        one width and all are selected."""
        if self.offsets is not None:
            return self.offsets[:-1] if self.selection is None else self.offsets[self.selection]
        if self.selection is not None:
            return self.selection.astype(np.int64) * (self.schema.width or 0)
        return None

    def starts(self) -> Iterable[int]:
        """The same as numbers of Python."""
        places = self.places()
        if places is None:
            width = self.schema.width or 0
            return range(0, self.rows * width, width)
        listed: list[int] = places.tolist()
        return listed

    def __getitem__(self, key: int | slice | str) -> Any:
        """A view of one event, a batch of a slice (step 1), or a column by its name."""
        if isinstance(key, str):
            return self.column(key)
        if isinstance(key, slice):
            start, stop, step = key.indices(len(self))
            if step != 1:
                return self._taken(np.arange(start, stop, step))
            return self.slice(start, stop)
        n = len(self)
        position = key + n if key < 0 else key
        if not 0 <= position < n:
            raise IndexError(f"event {key} is out of range: the batch has {n}")
        row = position if self.selection is None else int(self.selection[position])
        at = row * (self.schema.width or 0) if self.offsets is None else int(self.offsets[row])
        return view_class(self.schema)(self.buffer, at, self, position)

    def column(self, name: str) -> np.ndarray[Any, np.dtype[Any]]:
        """One field of every (selected) event.

        Where the field is of fixed width and nothing is selected this is a view without a copy: numbers
        big-endian, ``Str`` as ``S`` (UTF-8), static arrays with their shape, nested records structured.
        ``bool`` is a copy; ``Bytes`` and everything of variable width is an object array.

        Args:
            name: the name of the field; ``position.x`` names a field of a nested record.

        Raises:
            SchemaError: there is no such field.
        """
        return raw_column(self, name)

    def select(self, positions: _Positions | Sequence[int] | Sequence[bool]) -> EventBatch:
        """The chosen events, by reference.

        Args:
            positions: increasing integers, from 0 to the length of the batch less 1, or a mask (bool) as long
                as the batch. They are copied.

        Raises:
            SchemaError: ``positions`` is neither; names the first that is not a position of the batch.
        """
        # Machine code reads them as they lie, and reads them again later: in order, and nobody else's.
        rows = np.array(self._positions(positions), np.int32, order="C")
        attributes = None if self.attributes is None else self.attributes.take(rows)
        selection = rows if self.selection is None else self.selection[rows]
        return EventBatch(self.schema, self.data, self.rows, self.offsets, selection, attributes)

    def slice(self, start: int, stop: int) -> EventBatch:
        """The events from position ``start`` up to ``stop``, by reference."""
        attributes = None if self.attributes is None else self.attributes.take(slice(start, stop))
        if self.selection is not None:
            return self._narrowed(self.selection[start:stop], attributes)
        start, stop, _ = slice(start, stop).indices(self.rows)
        stop = max(start, stop)
        if self.offsets is None:
            width = self.schema.width or 0
            data = self.data[start * width : stop * width]
            return EventBatch(self.schema, data, stop - start, None, None, attributes)
        offsets = self.offsets[start : stop + 1]
        data = self.data[offsets[0] : offsets[-1]]
        return EventBatch(self.schema, data, stop - start, offsets - offsets[0], None, attributes)

    def _narrowed(self, rows: _Rows, attributes: Attributes | None) -> EventBatch:
        """The events of these rows, in any order, with no more around them than lies between."""
        if not len(rows):
            return EventBatch(self.schema, self.data, self.rows, self.offsets, rows, attributes)
        first, last = int(rows.min()), int(rows.max()) + 1
        around = EventBatch(self.schema, self.data, self.rows, self.offsets).slice(first, last)
        return EventBatch(self.schema, around.data, around.rows, around.offsets, rows - first, attributes)

    def _positions(self, given: _Positions | Sequence[int] | Sequence[bool]) -> _Positions:
        """Whole numbers, each the position of an event of the batch.

        Raises:
            SchemaError: they are something else.
        """
        n = len(self)
        try:
            found = np.asarray(given)
        except (TypeError, ValueError, OverflowError):
            raise self._no_positions(describe(given)) from None
        if found.dtype == bool and found.shape == (n,):
            return np.flatnonzero(found)
        if found.ndim != 1 or (found.dtype.kind not in "iu" and (found.size or found.dtype == bool)):
            raise self._no_positions(f"{found.dtype} of shape {found.shape}")
        if not found.size:
            return np.empty(0, np.intp)
        if int(found.min()) < 0 or int(found.max()) >= n:
            at = int(np.argmax((found < 0) | (found >= n)))
            wanted = f"positions from 0 to {n - 1}" if n else "no positions, since there are no events"
            hint = f"; batch[{found[at]}] counts from the end, positions do not" * bool(-n <= found[at] < 0)
            raise SchemaError(
                f"events of {self.schema.name}: expected {wanted}, found {found[at]} at index {at}{hint}"
            )
        return found

    def _no_positions(self, found: str) -> SchemaError:
        return SchemaError(
            f"events of {self.schema.name}: expected whole positions, or a mask of {len(self)} bools, found "
            f"{found}"
        )

    def take(self, positions: _Positions | Sequence[int] | Sequence[bool]) -> EventBatch:
        """The chosen events, copied.

        Args:
            positions: integers, from 0 to the length of the batch less 1, in the order that the events
                are to have, or a mask (bool) as long as the batch.

        Raises:
            SchemaError: ``positions`` is neither; names the first that is not a position of the batch.
        """
        return self._taken(self._positions(positions).astype(np.intp, copy=False))

    def _taken(self, chosen: _Positions) -> EventBatch:
        """The events at these positions, all of which are in the batch, copied."""
        attributes = None if self.attributes is None else self.attributes.take(chosen)
        rows = chosen if self.selection is None else self.selection[chosen]
        if self.offsets is None:
            width = self.schema.width or 0
            data = self.data.reshape(self.rows, width).take(rows, axis=0).reshape(-1)
            return EventBatch(self.schema, frozen(data), len(rows), None, None, attributes)
        starts = self.offsets[rows]
        lengths = self.offsets[1:][rows] - starts
        data = frozen(gather(self.data, starts, lengths))
        return EventBatch(self.schema, data, len(rows), starts_of(lengths), None, attributes)

    def with_attributes(self, attributes: Attributes | None) -> EventBatch:
        """The same events with other attributes.

        Args:
            attributes: columns as long as the batch; None for no attributes.

        Raises:
            SchemaError: a column of attributes has another length; names the attribute.
        """
        if attributes is not None:
            attributes.check_length(self.schema.name, len(self))
        return EventBatch(self.schema, self.data, self.rows, self.offsets, self.selection, attributes)

    def compact(self) -> EventBatch:
        """The same events with nothing between them and no selection; itself if it is so already."""
        return self if self.selection is None else self._taken(np.arange(len(self.selection)))

    @classmethod
    def concat(cls, batches: Sequence[EventBatch], room: Room = no_room) -> EventBatch:
        """The events of several batches of one schema, in order, with nothing between them.

        Args:
            batches: the batches.
            room: gives a place for so many bytes, if they have to be copied; None for memory of their own.

        Raises:
            SchemaError: there is no batch, or their schemas differ.
        """
        if not batches:
            raise SchemaError("no batches to put together")
        first = batches[0]
        if len(batches) == 1 and (first.selection is None or first.offsets is not None):
            return first.compact()
        for batch in batches:
            if batch.schema is not first.schema and batch.schema != first.schema:
                raise SchemaError(
                    f"batches of two schemas, {first.schema!r} and {batch.schema!r}, cannot be one"
                )
        # What is selected of events of one width is copied only once, to where all belong.
        whole = [batch if batch.offsets is None else batch.compact() for batch in batches]
        data = None
        if all(batch.selection is None for batch in whole):
            data = back_to_back([batch.data for batch in whole])
        if data is None:
            data = _copied(whole, room)
        offsets = None
        if first.schema.width is None:
            offsets = starts_of(np.concatenate([np.diff(b.offsets) for b in whole if b.offsets is not None]))
        attributes = Attributes.concat((batch.attributes, len(batch)) for batch in batches)
        return cls(first.schema, data, sum(map(len, batches)), offsets, None, attributes)

    @property
    def nbytes(self) -> int:
        """Bytes of the selected events."""
        if self.selection is None:
            return self.size
        if self.offsets is None:
            return len(self.selection) * (self.schema.width or 0)
        return int((self.offsets[1:][self.selection] - self.offsets[self.selection]).sum())

    def to_bytes(self) -> bytes:
        """The selected events as msgpack arrays, back to back."""
        return self.compact().data.tobytes()

    def to_events(self) -> list[Event]:
        """The selected events as mutable objects."""
        return [view.to_event() for view in self]

    def to_columns(self) -> dict[str, np.ndarray[Any, np.dtype[Any]]]:
        """Every field as a column: numbers in native byte order, text as object arrays of str, nested
        records as dicts."""
        return decoded_columns(self)

    def to_numpy(self) -> np.ndarray[Any, np.dtype[Any]]:
        """The events as a structured array (``schema.dtype``), a view without a copy where nothing is
        selected; a copy with objects where there are decimals, UUIDs or enumerations.

        Raises:
            SchemaError: the events vary in width.
        """
        return structured(self)

    def to_pandas(self) -> Any:
        """The events as a pandas DataFrame; nested records and arrays are objects, times are in UTC."""
        return importlib.import_module("evflow.events.columns.frames").write_table(
            self.schema, self.to_columns()
        )

    def to_arrow(self) -> Any:
        """The events as a pyarrow Table; nested records are structs, arrays lists."""
        return importlib.import_module("evflow.events.columns.arrow").write_table(self)

    def __repr__(self) -> str:
        return f"EventBatch({self.schema.name}: {len(self)} events, {self.nbytes} bytes)"


def _copied(batches: Sequence[EventBatch], room: Room) -> ByteArray:
    """The bytes of batches without a selection, or of events of one width, back to back."""
    sizes = [batch.nbytes for batch in batches]
    target, held = room(sum(sizes)) or own_place(sum(sizes))
    at = 0
    for batch, size in zip(batches, sizes, strict=True):
        part = target[at : at + size]
        at += size
        if batch.selection is None:
            np.copyto(part, batch.data)
        else:
            width = batch.schema.width or 0
            rows = batch.data.reshape(batch.rows, width)
            # Unless numpy may clip rows out of range, it copies to somewhere else first.
            rows.take(batch.selection, axis=0, out=part.reshape(len(batch), width), mode="clip")
    return held
