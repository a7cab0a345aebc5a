"""The events that wait at a queue stone, and the kernel that lets an event arrive, queues it, and calls the
function, which looks at the queues."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache

import numpy as np
from msgspec import Struct

from evflow.codgen.llvm.queue_ir import ENTRY, QUEUE, write_queue
from evflow.codgen.memory import Array, address
from evflow.codgen.native import compiling
from evflow.codgen.result import FaultNote, Records, read_attributes, runs
from evflow.codgen.runtime import AttributeColumn, LoopCode, Runtime
from evflow.codgen.tree import Function
from evflow.errors import GraphError
from evflow.schema import Schema

AttributeValue = int | float | str

_STORE, _USED, _CAPACITY, _ENTRIES, _TAIL, _ROOM, _HEAD = range(7)
_FIRST_BYTES = 4096
_FIRST_ENTRIES = 64


class QueueState:
    """The queues of one stone: a queue for each input of its function.

    An event is a slice of its queue's ``store``, named by an entry (offset, size, number). Taking events
    out frees nothing; the store is packed when it is full and half of it is free, so that this costs no
    more than what was put in.

    Args:
        schemas: of the events of each queue.
        limit: the greatest number of events in a queue.

    Attributes:
        schemas, limit: as given.
        attributes: the attributes of waiting events that have some, by the event's number.
        number: the number that the next event gets.
    """

    def __init__(self, schemas: Sequence[Schema], limit: int) -> None:
        self.schemas = tuple(schemas)
        self.limit = limit
        self.attributes: dict[int, Mapping[str, AttributeValue]] = {}
        self.number = 0
        self._block = np.zeros(QUEUE * len(self.schemas), np.int64)
        self._words = self._block.reshape(-1, QUEUE)
        self._stores: list[Array] = []
        self._entries: list[Array] = []
        for slot in range(len(self.schemas)):
            self._stores.append(np.empty(0, np.uint8))
            self._entries.append(np.empty((0, ENTRY), np.int64))
            self._set_store(slot, np.empty(_FIRST_BYTES, np.uint8))
            self._set_entries(slot, np.empty((_FIRST_ENTRIES, ENTRY), np.int64))

    @property
    def address(self) -> int:
        """Where the words of the queues are, for native code."""
        return address(self._block)

    def _set_store(self, slot: int, store: Array) -> None:
        self._stores[slot] = store
        self._words[slot, _STORE], self._words[slot, _CAPACITY] = address(store), len(store)

    def _set_entries(self, slot: int, entries: Array) -> None:
        self._entries[slot] = entries
        self._words[slot, _ENTRIES], self._words[slot, _ROOM] = address(entries), len(entries)

    def length(self, slot: int) -> int:
        """How many events wait in a queue."""
        return int(self._words[slot, _TAIL] - self._words[slot, _HEAD])

    def __len__(self) -> int:
        return sum(self.length(slot) for slot in range(len(self.schemas)))

    def _waiting(self, slot: int) -> Array:
        head, tail = self._words[slot, _HEAD], self._words[slot, _TAIL]
        return self._entries[slot][head:tail]

    @property
    def oldest(self) -> int:
        """The number of the oldest event that waits in any queue; ``number`` if none does."""
        heads = [int(self._waiting(slot)[0, 2]) for slot in range(len(self.schemas)) if self.length(slot)]
        return min(heads, default=self.number)

    def events(self, slot: int) -> list[bytes]:
        """The bytes of the events that wait in a queue, the oldest first."""
        store = self._stores[slot]
        return [store[at : at + size].tobytes() for at, size, _ in self._waiting(slot).tolist()]

    def contents(self, slot: int) -> tuple[Array, Array, Array]:
        """The events that wait in a queue, the oldest first, copied back to back: their bytes (uint8), where
        each starts and the last ends (int64), and their numbers (int64)."""
        waiting = self._waiting(slot)
        ends = np.zeros(len(waiting) + 1, np.int64)
        np.cumsum(waiting[:, 1], out=ends[1:])
        return self._packed(slot, np.empty(int(ends[-1]), np.uint8)), ends, waiting[:, 2].copy()

    def fill(self, slot: int, data: Array, offsets: Array, numbers: Array) -> None:
        """Puts valid events into an empty queue, without running the function; see ``contents``.

        Raises:
            GraphError: there are more than the limit.
        """
        count = len(numbers)
        if count > self.limit:
            raise GraphError(f"{count} events for a queue of at most {self.limit}")
        entries = np.empty((max(count, _FIRST_ENTRIES), ENTRY), np.int64)
        entries[:count, 0], entries[:count, 1] = offsets[:-1], np.diff(offsets)
        entries[:count, 2] = numbers
        store = np.empty(max(len(data), _FIRST_BYTES), np.uint8)
        store[: len(data)] = data
        self._set_store(slot, store)
        self._set_entries(slot, entries)
        self._words[slot, _HEAD], self._words[slot, _TAIL], self._words[slot, _USED] = 0, count, len(data)
        if count:
            self.number = max(self.number, int(numbers[-1]) + 1)

    def attributes_of(self, slot: int) -> list[Mapping[str, AttributeValue]]:
        """The attributes of the events that wait in a queue."""
        return [self.attributes.get(number, {}) for number in self._waiting(slot)[:, 2].tolist()]

    def extract(self, slot: int, count: int | None = None) -> list[bytes]:
        """Takes the oldest ``count`` events (by default all) out of a queue."""
        taken = self.events(slot)[:count]
        for number in self._waiting(slot)[: len(taken), 2].tolist():
            self.attributes.pop(number, None)
        self._words[slot, _HEAD] += len(taken)
        return taken

    def grow(self, queue: int, need: int) -> None:
        """Makes room while native code waits.

        Args:
            queue: twice the slot for its store, and one more for its entries.
            need: how many bytes or entries there must be room for.
        """
        slot, entries = divmod(queue, 2)
        if entries:
            self._grow_entries(slot)
        else:
            self._grow_store(slot, need - int(self._words[slot, _USED]))

    def _grow_store(self, slot: int, more: int) -> None:
        waiting = self._waiting(slot)
        live = int(waiting[:, 1].sum())
        size = len(self._stores[slot])
        if live + more > size // 2:
            size = 2 * size + more
        packed = np.empty(size, np.uint8)
        self._packed(slot, packed[:live])
        waiting[:, 0] = np.cumsum(waiting[:, 1]) - waiting[:, 1]
        self._words[slot, _USED] = live
        self._set_store(slot, packed)

    def _packed(self, slot: int, out: Array) -> Array:
        """The bytes of the events that wait in a queue, back to back in ``out``, which has their length."""
        waiting, store, live = self._waiting(slot), self._stores[slot], len(out)
        if live and waiting[0, 0] + live == waiting[-1, 0] + waiting[-1, 1]:
            # Nothing was taken out of the middle.
            out[:] = store[waiting[0, 0] : waiting[0, 0] + live]
        elif live:
            np.concatenate([store[at : at + n] for at, n, _ in waiting.tolist()], out=out)
        return out

    def _grow_entries(self, slot: int) -> None:
        waiting = self._waiting(slot)
        size = len(self._entries[slot])
        if len(waiting) + 1 > size // 2:
            size *= 2
        entries = np.empty((size, ENTRY), np.int64)
        entries[: len(waiting)] = waiting
        self._words[slot, _HEAD], self._words[slot, _TAIL] = 0, len(waiting)
        self._set_entries(slot, entries)

    def prune(self) -> None:
        """Forgets the attributes of events that no longer wait, when these are many."""
        if len(self.attributes) > 2 * len(self) + 64:
            known = self.attributes
            numbers = [n for slot in range(len(self.schemas)) for n in self._waiting(slot)[:, 2].tolist()]
            self.attributes = {n: known[n] for n in numbers if n in known}


class QueueSegment(Struct, eq=False):
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


class QueueResult(Struct, eq=False):
    """A run of a queue's function.

    Attributes:
        segments: what was sent, in order.
        faults: events given up: what their arrival did to the queues was undone, and they were taken out
            themselves.
        refused: int64: positions of the events that found their queue full.
    """

    segments: list[QueueSegment]
    faults: list[FaultNote]
    refused: Array


class QueueCode(LoopCode):
    """The code of a queue's function, which any number of kernels share."""

    def __init__(self, function: Function) -> None:
        self.function = function
        super().__init__(write_queue(function), [function])


class QueueKernel(Runtime):
    """The function of one queue stone; one thread at a time may run it.

    Args:
        code: the machine code, shared with other kernels of the same function.

    Attributes:
        schemas: of the events of each queue.
    """

    def __init__(self, code: QueueCode) -> None:
        super().__init__(code, {})
        function = code.function
        self.schemas = tuple(schema for _, schema in function.inputs if schema is not None)
        self._outputs = len(function.outputs)
        self._buffers = (None, *(schema for _, schema in function.outputs), *self.schemas)
        self._at = {name: code.context.at(name) for name in _WORDS}
        self._sets = [(name, self._vectors.word("attribute", name)) for name in function.sets]
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
        self._call(data, offsets, selection, events, attributes, [state], [stone_attributes], system)
        queues.number = words[at["number"]]
        refused = self._vectors.take(self._refused)
        arrived = None if not attributes else _rows_of(attributes, events)
        if arrived is not None:
            _remember(queues, arrived, refused, first)
        segments = list(self._segments(arrived)) if self._vectors.count(self._notes) else []
        if queues.attributes:
            queues.prune()
        return QueueResult(segments, self._noted_faults(), refused)

    def _enlarge(self, vector: int, need: int) -> None:
        if vector >= 0:
            super()._enlarge(vector, need)
        else:
            assert self._queues is not None
            self._queues.grow(-1 - vector, need)

    def _segments(self, arrived: list[dict[str, AttributeValue]] | None) -> Iterator[QueueSegment]:
        notes = self._vectors.view(self._notes).reshape(-1, 2)
        ports, buffers, rows = notes[:, 0], notes[:, 1] >> 32, notes[:, 1] & 0xFFFFFFFF
        for start, stop in runs(ports, buffers):
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


_WORDS = ("queues", "arriving", "width", "limit", "number")


def queue_kernel(function: Function) -> QueueKernel:
    """A kernel that runs a queue's function; the machine code is made once for one and the same function.

    Raises:
        GraphError: the function is none of a queue, or an input has no schema.
    """
    if function.kind != "queue" or any(schema is None for _, schema in function.inputs):
        raise GraphError(
            f"expected a function of kind 'queue' with a schema for each input, found {function.kind!r}"
        )
    return QueueKernel(_code(function))


@lru_cache(maxsize=256)
def _code(function: Function) -> QueueCode:
    with compiling():
        return QueueCode(function)
