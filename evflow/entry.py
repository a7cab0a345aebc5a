"""A stone of a running graph as a place to submit events to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from threading import get_ident
from typing import Any

from evflow.attributes import Attributes
from evflow.batch import EventBatch
from evflow.encode import encoder
from evflow.errors import SchemaError
from evflow.inbox import SMALL
from evflow.schema import Schema
from evflow.topology import Slot
from evflow.worker import Worker

__all__ = ["Entry"]

AttributeValues = Mapping[str, int | float | str]


class Entry:
    """A stone of a running graph, to submit events to; ``flow["name"]``."""

    def __init__(self, worker: Worker, slot: Slot, max_events: int) -> None:
        self._worker = worker
        self._slot = slot
        self._intake = worker.intake(slot)
        self._items = self._intake.items
        self._bell = worker.bell
        self._engine_thread = worker.ident
        self._encoders: dict[type, Callable[[Any], bytes]] = {}
        self._room = max_events

    def close(self) -> None:
        """From now on nothing may be submitted."""
        # Without room each submission goes the long way, which refuses it.
        self._room = -1

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
            attrs: attributes that go along: name → int, float or str.
            timeout: seconds to wait while the flow is full; None waits as long as it takes.

        Raises:
            SchemaError: a value does not fit its field.
            FlowError: the flow is closed, or stayed full.
        """
        encode = self._encoders.get(event.__class__)
        if encode is None or attrs is not None:
            self._submit_rare(event, attrs, timeout)
            return
        data = encode(event)
        items = self._items
        if len(items) >= self._room or len(data) > SMALL or get_ident() == self._engine_thread:
            self._submit_rare(event, attrs, timeout)
            return
        items.append(data)
        if self._bell.asleep:
            self._bell.ring()

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
            attrs: attributes that go along with every event.
            timeout: seconds to wait while the flow is full; None waits as long as it takes.

        Raises:
            SchemaError: a column is missing or a value does not fit; nothing of the table is submitted.
            FlowError: the flow is closed, or stayed full.
        """
        if isinstance(table, EventBatch):
            batch = table
        else:
            batch = EventBatch.from_table(self._schema(schema, table), table)
        if attrs:
            batch = batch.with_attributes(Attributes.constant(attrs, len(batch)))
        if len(batch):
            self._put(batch, batch.nbytes, timeout)

    def _schema(self, schema: Any, table: Any) -> Schema:
        if schema is not None:
            return Schema.of(schema)
        declared = [s for s in self._slot.stone.emits(None) if s is not None]
        if isinstance(table, list) and table and isinstance(getattr(table[0], "schema", None), Schema):
            return Schema.of(table[0])
        if len(declared) != 1:
            raise SchemaError(
                f"stone {self.name!r} declares {len(declared)} schemas, so rows need one: submit_batch(…, schema=…)"
            )
        return declared[0]

    def _submit_rare(self, event: Any, attrs: AttributeValues | None, timeout: float | None) -> None:
        schema = getattr(event, "schema", None)
        if not isinstance(schema, Schema) or isinstance(event, type):
            raise SchemaError(f"stone {self.name!r}: expected an event, found {event!r:.100}")
        encode = encoder(schema)
        data = encode(event)
        if self._intake.schema is None:
            self._intake.schema = schema
        if schema == self._intake.schema:
            self._encoders[event.__class__] = encode
        carried = attrs if attrs is not None else getattr(event, "attrs", None)
        if carried:
            batch = EventBatch.from_encoded(schema, [data])
            self._put(batch.with_attributes(Attributes.constant(carried, 1)), len(data), timeout)
        else:
            self._put((schema, data), len(data) if len(data) > SMALL else 0, timeout)

    def _put(self, item: EventBatch | tuple[Schema, bytes], size: int, timeout: float | None) -> None:
        self._worker.enter(self._slot, self._intake, item, size, timeout)

    def __repr__(self) -> str:
        return f"<stone {self.name}>"
