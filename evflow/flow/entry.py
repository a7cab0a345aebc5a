"""A stone of a running graph as a place to submit events to."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from threading import Lock, get_ident
from typing import Any

from evflow.codgen.objects import Append, Words, append_bytes, append_event, is_usable
from evflow.codgen.tables import append_listed
from evflow.engine.topology import Slot
from evflow.errors import FlowError, SchemaError
from evflow.events.attributes import Attributes, Row, row_of
from evflow.events.batch import EventBatch
from evflow.events.columns.direct import TABLE, small_table
from evflow.events.encode import LARGE, Piece, encoder, encoder_parts
from evflow.events.gather import ByteArray, Place, nbytes_of, running, write_parts
from evflow.events.view import View, encoded
from evflow.flow.loan import lend, taken_up
from evflow.flow.source_queue import Item
from evflow.flow.submit_buffer import MOST, SMALL
from evflow.flow.turns import Turns
from evflow.flow.worker import Worker
from evflow.forked import renew
from evflow.outside import shown
from evflow.schema import Schema
from evflow.schema.types import Record
from evflow.stone import Acting, Actor

AttributeValues = Mapping[str, int | float | str]

_MANY = 1_000
"""Events after which it pays to compile the short way; one of ``LARGE`` counts as ``_LARGE_AS``."""

_LARGE_AS = 10

_SETTING = Lock()


def _encoding_writer(
    kind: type, schema: Schema, append: Append, thread: int | None
) -> Callable[[Any], int | tuple[Piece, ...]]:
    """Encodes the events of a class in Python and writes them to the submit buffer; see ``_Short.encode``."""
    encode = encoder_parts(schema)

    def write(event: Any) -> int | tuple[Piece, ...]:
        if event.__class__ is not kind or get_ident() == thread:
            return False
        parts = encode(event)
        return (nbytes_of(parts) < LARGE and append(b"".join(parts))) or parts

    return write


def _table_writer(schema: Schema, words: Words) -> Append:
    """Writes small tables, columns or events, to the submit buffer; see ``_Short.write_table``."""
    columns: Append = _take_none
    events: Append = _take_none
    names = [field.name for field in schema.fields]
    # The function is given the fields of a record, each as a column, so a column of records is not for it.
    flat = not any(isinstance(field.type, Record) for field in schema.fields)

    def write(table: Any) -> int:
        nonlocal columns, events
        if type(table) is list:
            if events is _take_none:
                events = _bound(schema, "events_encoder", words)
            return events(table)
        if type(table) is not dict:
            return False
        if columns is _take_none:
            columns = _bound(schema, "table_encoder", words)
            if columns is _take_none:
                return False
        if flat and len(table) == len(names) and columns([table.get(name) for name in names]):
            return True
        laid = small_table(schema, table)
        return laid is not None and columns(laid)

    return write


def _bound(schema: Schema, name: str, words: Words) -> Append:
    """An encoder of tables that writes to the submit buffer, once it is as fast as it will be."""
    encoder = schema.made.get(name)
    return encoder.bound(words) if encoder is not None and encoder.settled else _take_none


def _take_none(event: Any) -> bool:
    return False


@dataclass(slots=True)
class _Short:
    """The short way in, for events of one class: to the submit buffer, without a lock.

    It is an object of its own since an ``Entry`` has ``__getattr__``: where there is one, Python takes longer
    to find any attribute.

    Attributes:
        turns: wakes the flow's thread.
        write: writes an event of that class to the submit buffer, and gives True, or ``append_ir.SENT`` if
            the event is sent already; else it gives False.
        encode: the same for values that are not plainly right, such as scalars of numpy; of an event that is
            large, or finds no room, it gives the parts.
        kind: the class; None where ``hand_over`` takes none.
        hand_over: takes an event of that class from a handler, where ``write`` does not.
        write_table: writes a small table of rows of that class's schema, whole; else it gives False.
    """

    turns: Turns
    write: Append = _take_none
    encode: Callable[[Any], int | tuple[Piece, ...]] = _take_none
    write_table: Append = _take_none
    kind: type | None = None
    hand_over: Callable[[Any], object] = _take_none


class Entry:
    """A stone of a running graph, to submit events to; ``flow["name"]``.

    Args:
        worker: the worker of the flow.
        slot: the stone's place in the engine.
    """

    def __init__(self, worker: Worker, slot: Slot) -> None:
        self._worker = worker
        self._slot = slot
        self._queue = worker.open_queue(slot)
        self._short = _Short(worker.turns)
        # Events that took the careful way; less than any number once there is a short one, or can be none.
        self._came: float = 0
        # The same of events in tables.
        self._came_in_tables: float = 0

    def forsake(self) -> None:
        """In a fork: nothing may be submitted."""
        renew(_SETTING)
        self.close()

    def close(self) -> None:
        """From now on nothing may be submitted."""
        # Each submission takes the careful way then, which refuses it.
        with _SETTING:
            short = self._short
            short.write = short.encode = short.write_table = _take_none
            short.kind = None
            self._came = self._came_in_tables = -math.inf

    def end(self, reason: str) -> list[EventBatch]:
        """Takes no more events, since the stone is gone; called in the engine's thread.

        Args:
            reason: why, for whoever submits.

        Returns:
            The events that still waited, oldest first.
        """
        return self._worker.end_queue(self._queue, reason)

    @property
    def name(self) -> str:
        """The stone's name."""
        return self._slot.name

    def submit(
        self, event: Any, *, attrs: AttributeValues | None = None, timeout: float | None = None
    ) -> None:
        """Submits one event; it is encoded at once, so it may be changed and used again.

        Args:
            event: an ``Event``, or an event that a handler got.
            attrs: attributes that go along, at most 1,000: name → int, float or str.
            timeout: seconds to wait while the flow is full; None waits as long as it takes.

        Raises:
            SchemaError: a value does not fit its field, or there are too many attributes.
            FlowError: the flow is closed, or stayed full.
        """
        short = self._short
        if attrs is None and (taken := short.write(event)):
            if short.turns.wanted and taken is True:
                self._wake()
        elif event.__class__ is short.kind and attrs is None and get_ident() == self._worker.ident:
            short.hand_over(event)
        else:
            parts = short.encode(event) if attrs is None else False
            if parts is False or isinstance(parts, tuple):
                self._submit_carefully(event, attrs, timeout, parts)
            elif short.turns.wanted and parts is True:
                self._wake()

    def _wake(self) -> None:
        """Wakes the flow's thread for what was put into the submit buffer."""
        # What is large is on its way for longer than it takes the interpreter to go around.
        if self._queue.buffer.waiting < LARGE:
            self._short.turns.await_one()
        else:
            self._worker.wake()

    def loan(self, schema: Any, /, **fields: Any) -> Any:
        """An event with arrays to be filled in place: ``submit`` takes them as they are, without a copy.

        They lie where the event will be sent from: in memory that nodes on this host share, or that is handed
        to the network. The event is an ordinary one, whose other fields may be changed until it is submitted.
        Then its arrays become read-only; nothing may be written to them any more, also not through views of
        them made before. An event that gets an array of another length instead, or is submitted once more,
        is copied all the same; and one of less than 1 MiB, which is an event as any other.

        Args:
            schema: the class of the event, or its schema.
            fields: the fields' values, but of an array to be filled its shape: an int, or a tuple. Where the
                schema has the shape it need not be given.

        Returns:
            The event. Its arrays hold whatever was in that memory before (of ``bool``: False), so all of them
            has to be written.

        Raises:
            SchemaError: a field is missing, or a shape or value does not fit.

        Example:
            >>> import evflow as ev
            >>> class Scan(ev.Event):
            ...     station: ev.Str[8]
            ...     samples: ev.Array[ev.f64, None]
            >>> g = ev.Graph("scans")
            >>> show = ev.Terminal(lambda scan: print(scan.station, scan.samples.sum()))
            >>> _ = g.source("scans", Scan) >> show
            >>> with g.run() as flow:
            ...     scan = flow["scans"].loan(Scan, station="Jena", samples=100_000)
            ...     scan.samples[:] = 0.5
            ...     flow["scans"].submit(scan)
            Jena 50000.0
        """
        return lend(Schema.of(schema), fields, self._reserve)

    def submit_batch(
        self,
        table: Any,
        *,
        schema: Any = None,
        attrs: AttributeValues | None = None,
        timeout: float | None = None,
    ) -> None:
        """Submits many events at once, in order.

        Args:
            table: a dict of columns, a numpy structured array, a pandas DataFrame, a pyarrow table or record
                batch, a list of events, or an ``EventBatch``.
            schema: what the rows are; by default the one schema that the source declares.
            attrs: attributes that go along with every event, at most 1,000.
            timeout: seconds to wait while the flow is full; None waits as long as it takes.

        Raises:
            SchemaError: a column is missing, a value does not fit, or there are too many attributes; nothing
                of the table is submitted.
            FlowError: the flow is closed, or stayed full.
        """
        short = self._short
        if schema is None and attrs is None and short.write_table(table):
            if short.turns.wanted:
                self._wake()
            return
        if isinstance(table, EventBatch):
            batch = table
        else:
            batch = EventBatch.from_table(self._schema(schema, table), table, self._reserve)
        if attrs:
            batch = batch.with_attributes(Attributes.constant(attrs, len(batch)))
        if len(batch):
            self._worker.enter(self._queue, batch, timeout)
            self._came_in_tables += max(len(batch), TABLE)
            if self._came_in_tables >= _MANY and batch is not table:
                self._shorten_tables(batch.schema)

    def flush(self, timeout: float | None = None) -> None:
        """Returns when all that anyone submitted to this stone before is on the disk: neither a kill of the
        process nor a power cut loses it.

        It waits until each event has got to the stones behind this one that keep events in a file, as a
        ``Storage`` or ``SparkSink`` with a ``path``, and has the disk write these files. Where a bridge leads
        to another node it waits until that node has handled the events or has them in a file; that file
        survives a kill of that node, but may lose the last moments in a power cut there. An event that a
        filter drops on the way, or that becomes a dead letter, is not waited for.

        Args:
            timeout: seconds to wait, as while the disk is full; None waits as long as it takes.

        Raises:
            FlowError: the events were not on the disk within ``timeout`` seconds, and why; no stone behind
                this one keeps events in a file; the disk failed; the flow is closed; or a handler calls.

        Example:
            >>> import tempfile
            >>> from pathlib import Path
            >>> import evflow as ev
            >>> class Ping(ev.Event):
            ...     number: int
            >>> folder = tempfile.TemporaryDirectory()
            >>> g = ev.Graph()
            >>> store = g.source("pings", Ping) >> ev.Storage(1000, path=Path(folder.name) / "pings.db")
            >>> _ = store >> ev.Terminal(lambda event: None)
            >>> with g.run() as flow:
            ...     flow["pings"].submit_batch({"number": [1, 2, 3]})
            ...     flow["pings"].flush(timeout=10)
            ...     # Now the three events are on the disk.
            >>> folder.cleanup()
        """
        self._worker.flush(self._slot, timeout)

    def _schema(self, schema: Any, table: Any) -> Schema:
        if schema is not None:
            return Schema.of(schema)
        declared = [s for s in self._slot.stone.emits(None) if s is not None]
        if (
            isinstance(table, list | tuple)
            and table
            and isinstance(getattr(table[0], "schema", None), Schema)
        ):
            return Schema.of(table[0])
        if len(declared) != 1:
            raise SchemaError(
                f"stone {self.name!r} declares {len(declared)} schemas, so rows need one: "
                "submit_batch(…, schema=…)"
            )
        return declared[0]

    def _submit_carefully(
        self,
        event: Any,
        attrs: AttributeValues | None,
        timeout: float | None,
        taken: int | tuple[Piece, ...],
    ) -> None:
        """Submits an event that the short way did not take; ``taken`` has its parts if it is encoded."""
        worker, queue, short = self._worker, self._queue, self._short
        # Once there is room again it may take the short way after all.
        again = taken is False and attrs is None and short.encode is not _take_none
        if again and worker.make_room(queue, timeout) and short.write(event):
            worker.wake()
            return
        schema = getattr(event, "schema", None)
        if not isinstance(schema, Schema) or isinstance(event, type):
            made = (
                f"{event.__name__}(…)" if isinstance(event, type) else "Trade(…) of a class Trade(ev.Event)"
            )
            raise SchemaError(
                f"stone {self.name!r}: expected an event, such as {made}, found {shown(event)}; submit_batch "
                "takes tables and lists of events"
            )
        parts = taken if isinstance(taken, tuple) else self._encoded(schema, event)
        # A view brings attributes along; a plain event has none.
        carried = getattr(event, "attrs", None) if attrs is None else attrs
        item = self._stored(schema, parts, row_of(carried) if carried else None)
        worker.enter(queue, item, timeout)
        if carried:
            return
        self._came += _LARGE_AS if isinstance(item, EventBatch) else 1
        if self._came >= _MANY and not isinstance(event, View):
            self._shorten(event.__class__, schema)

    def _encoded(self, schema: Schema, event: Any) -> tuple[Piece, ...]:
        if isinstance(event, View):
            return (encoded(event),)
        if schema.width is not None and schema.width < LARGE:
            return (encoder(schema)(event),)
        return encoder_parts(schema)(event)

    def _stored(self, schema: Schema, parts: tuple[Piece, ...], row: Row | None) -> Item:
        size = nbytes_of(parts)
        placed = self._placed(size, parts) if size >= LARGE else None
        if placed is None:
            # What is one piece of bytes already is not copied by this.
            return schema, b"".join(parts), row
        attributes = None if row is None else Attributes.from_alike([row])
        return EventBatch(schema, placed, 1, None if schema.width else running((size,), 1), None, attributes)

    def _placed(self, size: int, parts: tuple[Piece, ...]) -> ByteArray | None:
        """A large event where it is sent from, if there is such a place: then nobody has to copy it again."""
        placed = taken_up(parts)
        if placed is None and (place := self._reserve(size)) is not None:
            write_parts(place.target, parts)
            return place.held
        return placed

    def _reserve(self, size: int) -> Place | None:
        if get_ident() != self._worker.ident:
            self._worker.pace(size)
        return self._worker.reserve(size)

    def _shorten(self, kind: type, schema: Schema) -> None:
        """Lets events of a class take the short way from now on, unless they are too large."""
        short = self._short
        with _SETTING:
            if self._came < _MANY:
                return
            self._came = -math.inf
            width, words = schema.width or 0, self._queue.buffer.words
            append = append_bytes(words, varying=not width)
            own = None
            if schema.made.get("event class") is kind:
                own = append_event(schema, words) or append_listed(schema, words)
            if append is None or (own is None and width > SMALL) or not self._open_buffer(schema):
                return
            short.write = own or _take_none
            short.encode = _encoding_writer(kind, schema, append, self._worker.ident)
            if 0 < width <= SMALL:
                short.hand_over = self._handing(schema)
                short.kind = kind

    def _shorten_tables(self, schema: Schema) -> None:
        """Lets small tables of the source's one schema take the short way from now on."""
        with _SETTING:
            if self._came_in_tables < _MANY:
                return
            self._came_in_tables = -math.inf
            declared = [s for s in self._slot.stone.emits(None) if s is not None]
            if declared == [schema] and is_usable() and self._open_buffer(declared[0]):
                self._short.write_table = _table_writer(declared[0], self._queue.buffer.words)

    def _open_buffer(self, schema: Schema) -> bool:
        """Gives a schema's events the submit buffer; False if they are too large, or others have it."""
        thread, buffer = self._worker.ident, self._queue.buffer
        if buffer.schema is None and thread is not None and (schema.width or 0) <= MOST:
            self._queue.begin(schema, thread, self._worker.spare)
        return buffer.schema is schema

    def _handing(self, schema: Schema) -> Callable[[Any], None]:
        """What takes events of a schema of fixed width that handlers submit."""
        enter, queue, encode = self._worker.enter_inner, self._queue, encoder(schema)
        return lambda event: enter(queue, (schema, encode(event), None))

    def __getattr__(self, name: str) -> Any:
        """What the stone itself has programs do with it; see ``Acting.controls``."""
        if name.startswith("_"):
            raise AttributeError(name)
        stone = self._slot.stone
        controls = stone.controls(self._call) if isinstance(stone, Acting) else None
        if not hasattr(controls, name):
            raise AttributeError(f"stone {self.name!r} ({stone.kind}) has no {name!r}")
        return getattr(controls, name)

    def _call(self, task: Callable[[Actor], Any]) -> Any:
        """Has the engine's thread do a task with the stone's actor; what that raises is raised here."""
        raised: list[Exception] = []

        def work() -> Any:
            actor = self._slot.actor
            if actor is None:
                raise FlowError(f"stone {self.name!r} does not run")
            try:
                return task(actor)
            except Exception as error:  # noqa: BLE001  it is whoever asked for this that must hear of it
                raised.append(error)

        # Between two batches is also where a handler is called.
        done = work() if get_ident() == self._worker.ident else self._worker.do(work)
        if raised:
            raise raised[0]
        return done

    def __repr__(self) -> str:
        return f"<stone {self.name}>"
