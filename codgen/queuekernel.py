"""Runs a queue's function natively: an event arrives, is queued, and the function looks at the queues."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from evflow.codgen.arrivals import read_attributes
from evflow.codgen.llvm.queue_ir import write_queue
from evflow.codgen.memory import Array
from evflow.codgen.native import Code, compiling
from evflow.codgen.queuestate import AttributeValue, QueueState
from evflow.codgen.result import NO_FAULTS, Faults, Records
from evflow.codgen.runtime import AttributeColumn, Runtime
from evflow.codgen.tree import Function, Loop, walk
from evflow.errors import GraphError

__all__ = ["QueueKernel", "QueueResult", "QueueSegment", "QueueState", "queue_kernel"]

_KERNELS = 256


@dataclass(slots=True, eq=False)
class QueueSegment:
    """Events of one kind that were sent out of one port one after the other.

    Attributes:
        port: the port, any i64.
        output: the output that they are records of, or None.
        queue: the queue that they were in, or None.
        records: the events.
        positions: int32: for each the position, in the input's selected order, of the event whose arrival
            sent it.
        attributes: of each; None if none of them has any.
    """

    port: int
    output: int | None
    queue: int | None
    records: Records
    positions: Array
    attributes: list[dict[str, AttributeValue]] | None

    def __len__(self) -> int:
        return self.records.rows


@dataclass(slots=True, eq=False)
class QueueResult:
    """A run of a queue's function.

    Attributes:
        counts: int64[4]: events in, out, dropped and faulted. What was refused is in none but the first,
            and what was sent is out, whatever port it was sent to.
        segments: what was sent, in order.
        faults: events given up: what their arrival did to the queues was undone, and they were taken out
            themselves.
        refused: int64: positions of the events that found their queue full.
    """

    counts: Array
    segments: list[QueueSegment]
    faults: Faults
    refused: Array


class QueueCode(Code):
    """The code of a queue's function, which any number of kernels share."""

    def __init__(self, function: Function) -> None:
        self.function = function
        self.text = write_queue(function)
        self.loops = any(isinstance(node, Loop) for node in walk(function.body))
        super().__init__(self.text.ir)


class QueueKernel(Runtime):
    """The function of one queue stone; one thread at a time may run it.

    Args:
        code: the machine code, shared with other kernels of the same function.

    Attributes:
        schemas: of the events of each queue.
    """

    def __init__(self, code: QueueCode) -> None:
        text, function = code.text, code.function
        super().__init__(code, text.context, text.scratch, {})
        self._names = text.names
        self.schemas = tuple(schema for _, schema in function.inputs if schema is not None)
        self._outputs = len(function.outputs)
        self._buffers = (None, *(schema for _, schema in function.outputs), *self.schemas)
        self._at = {name: text.context.at(name) for name in _WORDS}
        self._sets = [(name, self._vectors.word("attribute", name)) for name in text.sets]
        self._refused, self._notes = self._vectors.word("refused"), self._vectors.word("notes")
        self._queues: QueueState | None = None

    def run(
        self,
        slot: int,
        data: Array,
        offsets: Array | None,
        selection: Array | None,
        rows: int,
        attributes: Mapping[str, AttributeColumn] | None,
        queues: QueueState,
        state: Array,
        stone_attributes: Mapping[str, object],
        system: Mapping[str, float],
    ) -> QueueResult:
        """Lets events arrive one after the other, and calls the function for each.

        Args:
            slot: the input at which they arrive; for the others see ``Kernel.run``.
            queues: the events that wait; changed in place.
            state: what ``new_state`` gave; changed in place.

        Raises:
            GraphError: ``queues`` are of other schemas.
            MemoryError: there is no memory for the queues or for what the function sends.
        """
        if queues.schemas is not self.schemas and queues.schemas != self.schemas:
            raise GraphError(f"queues of {queues.schemas!r}: expected queues of {self.schemas!r}")
        events, words, at = rows if selection is None else len(selection), self._words, self._at
        self._queues = queues
        words[at["queues"]] = queues.address
        words[at["arriving"]] = slot
        words[at["width"]] = self.schemas[slot].width or 0
        words[at["limit"]] = queues.limit
        words[at["number"]] = first = queues.number
        words[at["out"]] = words[at["faults"]] = 0
        self._call(data, offsets, selection, events, attributes, [state], [stone_attributes], system)
        queues.number = words[at["number"]]
        counts = np.array([events, words[at["out"]], 0, words[at["faults"]]], np.int64)
        refused = self._vectors.take(self._refused)
        arrived = None if not attributes else _rows_of(attributes, events)
        if arrived is not None:
            _remember(queues, arrived, refused, first)
        segments = list(self._segments(arrived)) if self._vectors.count(self._notes) else []
        if queues.attributes:
            queues.prune()
        faults = NO_FAULTS
        if self._vectors.count(self._faults):
            faults = Faults(self._vectors.take(self._faults), self._names)
        return QueueResult(counts, segments, faults, refused)

    def _enlarge(self, vector: int, need: int) -> None:
        if vector >= 0:
            super()._enlarge(vector, need)
        else:
            assert self._queues is not None
            self._queues.grow(-1 - vector, need)

    def _segments(self, arrived: list[dict[str, AttributeValue]] | None) -> Iterator[QueueSegment]:
        notes = self._vectors.view(self._notes).reshape(-1, 2)
        ports, buffers, rows = notes[:, 0], notes[:, 1] >> 32, notes[:, 1] & 0xFFFFFFFF
        changes = np.flatnonzero((ports[1:] != ports[:-1]) | (buffers[1:] != buffers[:-1])) + 1
        cuts = [0, *changes.tolist(), len(notes)]
        for start, stop in pairwise(cuts):
            port, buffer, row = int(ports[start]), int(buffers[start]), int(rows[start])
            count = stop - start
            positions = self._vectors.take(self._vectors.word("origin", buffer))[row : row + count]
            queue = buffer - 1 - self._outputs
            output = buffer - 1 if queue < 0 else None
            records = self._slice(buffer, row, count)
            given = self._attributes_of(arrived, positions, queue, row, start)
            yield QueueSegment(port, output, queue if queue >= 0 else None, records, positions, given)

    def _slice(self, buffer: int, row: int, count: int) -> Records:
        """Consecutive records of a buffer."""
        schema, vectors = self._buffers[buffer], self._vectors
        assert schema is not None
        data = vectors.take(vectors.word("bytes", buffer))
        if schema.width is not None:
            return Records(schema, data[row * schema.width : (row + count) * schema.width], None, count)
        offsets = vectors.offsets(buffer, vectors.count(vectors.word("origin", buffer)))[
            row : row + count + 1
        ]
        return Records(schema, data[offsets[0] : offsets[-1]], offsets - offsets[0], count)

    def _attributes_of(
        self,
        arrived: list[dict[str, AttributeValue]] | None,
        positions: Array,
        queue: int,
        row: int,
        first: int,
    ) -> list[dict[str, AttributeValue]] | None:
        """The attributes of what was sent: those of its event, and over them what was set."""
        count, queues = len(positions), self._queues
        assert queues is not None
        if arrived is None and not queues.attributes and not self._sets:
            return None
        found: list[dict[str, AttributeValue]]
        if queue >= 0:
            numbers = self._vectors.view(self._vectors.word("numbers", queue))[row : row + count].tolist()
            found = [dict(queues.attributes.get(number, {})) for number in numbers]
        else:
            found = [dict(arrived[position]) if arrived else {} for position in positions.tolist()]
        for name, word in self._sets:
            values = read_attributes(self._vectors, word, first, first + count)
            for attributes, value in zip(found, values, strict=True):
                if value is not None:
                    attributes[name] = value
        return found if any(found) else None


def _rows_of(columns: Mapping[str, AttributeColumn], count: int) -> list[dict[str, AttributeValue]]:
    rows: list[dict[str, AttributeValue]] = [{} for _ in range(count)]
    for name, column in columns.items():
        for row, value, present in zip(rows, column.values.tolist(), column.present.tolist(), strict=True):
            if present:
                row[name] = value
    return rows


def _remember(
    queues: QueueState, arrived: list[dict[str, AttributeValue]], refused: Array, first: int
) -> None:
    """Keeps the attributes of the events that arrived, by the numbers that they got."""
    out = set(refused.tolist())
    taken = (row for position, row in enumerate(arrived) if position not in out)
    queues.attributes.update((number, row) for number, row in enumerate(taken, first) if row)


_WORDS = ("queues", "arriving", "width", "limit", "number", "out", "faults")

_codes: OrderedDict[Function, QueueCode] = OrderedDict()


def queue_kernel(function: Function) -> QueueKernel:
    """A kernel that runs a queue's function; the machine code is made once for one and the same function.

    Raises:
        GraphError: the function is none of a queue, or an input has no schema.
    """
    if function.kind != "queue" or any(schema is None for _, schema in function.inputs):
        raise GraphError(
            f"expected a function of kind 'queue' with a schema for each input, found {function.kind!r}"
        )
    with compiling():
        code = _codes.get(function)
        if code is None:
            code = _codes[function] = QueueCode(function)
            if len(_codes) > _KERNELS:
                _codes.popitem(last=False)
        else:
            _codes.move_to_end(function)
    return QueueKernel(code)
