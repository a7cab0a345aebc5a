"""Queue: a function that sees the events that wait, of several schemas."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from evflow.codgen.front import Input, build
from evflow.codgen.queuekernel import QueueState, queue_kernel
from evflow.codgen.runtime import kept_state, layout_of, new_state, request_at, take_request
from evflow.codgen.tree import Function
from evflow.engine.host import system_values
from evflow.engine.passes import reason_of, sent
from evflow.errors import GraphError
from evflow.events.attributes import Attributes
from evflow.events.batch import EventBatch
from evflow.events.gather import frozen
from evflow.schema import Schema
from evflow.stone import Acting, Actor, Checkpoint, Context, Held, checked_integer, titled
from evflow.stones.code import Code, Described


class Queue(Described, Acting):
    """Queues events of several schemas and calls its function at each arrival: joins, windows, thresholds.

    In the function ``count(a)`` is the number of events that wait at input ``a``, ``a[0].field`` reads the
    oldest
    one, ``discard(a, 0)`` takes it out, and ``submit(port, a[0])`` or ``submit(port, out)`` sends it, or a
    record
    made of an output, out of a port. This is EVPath's multi-typed queue (paper, section 4.2).

    An event that finds ``limit`` others waiting at its input is refused and goes to the dead letters.

    Args:
        code: Cod, or a Python function of the inputs and outputs in order.
        inputs: input name → schema (or ``Event`` class); each event goes to the input it fits best, or to
            ``queue["name"]`` if linked so.
        outputs: output name → schema of the records that the function makes.
        limit: the number of events that may wait at each input.
        fuel: what one call may spend; a unit pays for a short turn of a loop.
        name: the stone's name.
        on: the node it is placed on.

    Raises:
        GraphError: there is no input, or the limit is less than 1.

    Example:
        >>> import evflow as ev
        >>> class Ping(ev.Event):
        ...     number: int
        >>> class Pair(ev.Event):
        ...     first: int
        ...     second: int
        >>> code = '''{
        ...     if (count(pings) == 2) {
        ...         pair.first = pings[0].number;
        ...         pair.second = pings[1].number;
        ...         submit(0, pair);
        ...         discard(pings, 0);
        ...         discard(pings, 0);
        ...     }
        ... }'''
        >>> seen = []
        >>> g = ev.Graph()
        >>> pairs = g.source("pings", Ping) >> ev.Queue(code, inputs={"pings": Ping}, outputs={"pair": Pair})
        >>> _ = pairs >> ev.Terminal(lambda event: seen.append((event.first, event.second)))
        >>> with g.run() as flow:
        ...     flow["pings"].submit_batch({"number": [1, 2, 3, 4]})
        >>> seen
        [(1, 2), (3, 4)]
    """

    kind = "queue"
    parameters = ("code", "inputs", "outputs", "limit", "fuel")
    linked_ports = "any"
    exact = True

    def __init__(
        self,
        code: Code,
        *,
        inputs: Mapping[str, Any],
        outputs: Mapping[str, Any] | None = None,
        limit: int = 100_000,
        fuel: int = 10_000_000,
        name: str | None = None,
        on: str | None = None,
    ) -> None:
        super().__init__(name=name, on=on)
        for what, given in (("inputs", inputs), ("outputs", outputs or {})):
            if not isinstance(given, Mapping) or (what == "inputs" and not given):
                raise GraphError(
                    f"{titled('queue', name)}: expected {what}, a mapping from name to schema, "
                    f"found {given!r}"
                )
        self.code = code
        self._inputs = {key: Schema.of(spec) for key, spec in inputs.items()}
        self.outputs = {key: Schema.of(spec) for key, spec in (outputs or {}).items()}
        self.limit = checked_integer(f"{titled('queue', name)}: limit", limit)
        self.fuel = checked_integer(f"{titled('queue', name)}: fuel", fuel)

    @property
    def inputs(self) -> Mapping[str, Schema | None]:
        return self._inputs

    def emits(self, schema: Schema | None) -> tuple[Schema | None, ...]:
        # It may make records, and pass on any event that it has queued.
        return (*self.outputs.values(), *self._inputs.values())

    def function(self) -> Function:
        """The function of the stone, checked.

        Raises:
            CodeError: the function is wrong; carries line and column.
        """
        inputs = [Input(key, schema) for key, schema in self._inputs.items()]
        return build(self.code, "queue", inputs, list(self.outputs.items()), fuel=self.fuel)

    def check(self) -> None:
        self.function()

    def asks(self, schema: Schema | None) -> bool:
        return self.function().asks_at is not None

    def prepare(self) -> None:
        queue_kernel(self.function())

    def open(self, context: Context) -> Actor:
        return _Queue(context, self.function(), self.limit)


class _Queue(Actor):
    def __init__(self, context: Context, function: Function, limit: int) -> None:
        super().__init__(context)
        self._function = function
        self._kernel = queue_kernel(function)
        self._queues = QueueState(self._kernel.schemas, limit)
        self._state = new_state(function)
        self._request_at = request_at(layout_of(function))
        self._slots = {key: slot for slot, (key, _) in enumerate(function.inputs)}
        self._system = function.system
        self._limit = limit

    def receive(self, batch: EventBatch, input: str) -> None:
        result = self._kernel.run(
            self._slots[input],
            batch.data,
            batch.offsets,
            batch.selection,
            batch.rows,
            None if batch.attributes is None else batch.attributes.columns,
            self._queues,
            self._state,
            self.context.attributes,
            system_values(self._system),
        )
        for segment in result.segments:
            self.context.emit(sent(segment), segment.port)
        for note in result.faults:
            event = batch.slice(note.position, note.position + 1)
            self.context.fault(event, reason_of(note))
        if len(result.refused):
            self.context.fault(
                batch.take(result.refused), f"{self._limit} events wait at input {input!r} already"
            )

    @property
    def queued(self) -> int:
        return len(self._queues)

    @property
    def taken(self) -> int:
        return self._queues.number

    @property
    def oldest(self) -> int:
        return self._queues.oldest

    def take_request(self) -> int:
        return 0 if self._request_at is None else take_request(self._state, self._request_at)

    def extract(self, count: int | None = None) -> list[EventBatch]:
        taken = []
        for slot, schema in enumerate(self._kernel.schemas):
            most = self._queues.length(slot) if count is None else min(count, self._queues.length(slot))
            if most:
                attributes = list(self._queues.attributes_of(slot))[:most]
                events = self._queues.extract(slot, most)
                carried = Attributes.from_rows(attributes) if any(attributes) else None
                taken.append(EventBatch.from_encoded(schema, events, carried))
                count = None if count is None else count - most
        return taken

    def checkpoint(self) -> Checkpoint:
        inputs = [(key, slot) for key, slot in self._slots.items() if self._queues.length(slot)]
        held = tuple(self._held(key, slot) for key, slot in inputs)
        return Checkpoint(held, self._state.copy(), layout_of(self._function))

    def _held(self, key: str, slot: int) -> Held:
        schema = self._kernel.schemas[slot]
        data, offsets, numbers = self._queues.contents(slot)
        carried = self._queues.attributes_of(slot) if self._queues.attributes else []
        attributes = Attributes.from_rows(carried) if any(carried) else None
        starts = offsets if schema.width is None else None
        batch = EventBatch(schema, frozen(data), len(numbers), starts, None, attributes)
        return Held(key, batch, numbers)

    def restore(self, checkpoint: Checkpoint) -> bool:
        if not all(self._fits(held) for held in checkpoint.held):
            return False
        for held in checkpoint.held:
            slot, batch = self._slots[held.input], held.batch
            assert held.numbers is not None
            offsets = batch.offsets
            if offsets is None:
                offsets = np.arange(len(batch) + 1) * (batch.schema.width or 0)
            self._queues.fill(slot, batch.data, offsets, held.numbers)
            if batch.attributes is not None:
                rows = ((n, batch.attributes.of(i)) for i, n in enumerate(held.numbers.tolist()))
                self._queues.attributes.update((number, row) for number, row in rows if row)
        if checkpoint.state is not None:
            kept = kept_state(self._function, checkpoint.state, checkpoint.layout)
            self._state = self._state if kept is None else kept
        return True

    def _fits(self, held: Held) -> bool:
        slot = self._slots.get(held.input)
        known = slot is not None and self._kernel.schemas[slot] == held.batch.schema
        return known and held.numbers is not None and len(held.batch) <= self._limit
