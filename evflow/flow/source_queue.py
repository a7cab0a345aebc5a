"""The source queue: what threads submit to one stone and the engine's thread takes, bounded and in order.

Events of one schema are encoded into the queue's submit buffer, back to back, and the engine's thread takes
all of them as one batch: batches form exactly while the engine is busy, and an event never waits for a batch
to fill. Everything else, as a batch or an event with attributes, is an item of the queue; single events that
are alike become a batch there.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence

from msgspec import Struct

from evflow import mishaps
from evflow.codgen.express import Express
from evflow.codgen.native import is_busy
from evflow.engine.gate import Way, gate_of
from evflow.engine.topology import Slot, Topology
from evflow.errors import FlowError
from evflow.events.attributes import Attributes, Row, alike
from evflow.events.batch import EventBatch
from evflow.events.encode import LARGE
from evflow.events.gather import Room, address_of
from evflow.flow.submit_buffer import MOST, SubmitBuffer
from evflow.mishaps import CONTAINED
from evflow.schema import Schema

_log = logging.getLogger("evflow.flow")

_JOINED = 64 << 10
"""Bytes up to which single events are joined to a batch."""

_TOGETHER = 512 << 10
"""Bytes up to which batches become one where that needs no copy."""

Single = tuple[Schema, bytes, Row | None]
"""An event: its schema, its bytes, and its attributes, if it has any."""

Item = EventBatch | Single
"""A batch, or an event."""


class Onward(Struct):
    """Where events go on to from a source queue, and how many come.

    Attributes:
        way: the way from there to a bridge, if there is one that may be lent.
        came: events that have come there so far.
        busy: for how many times nothing is lent, since many events came.
    """

    way: Way | None
    came: int = 0
    busy: int = 0


class SourceQueue:
    """The events that wait to enter at one stone.

    Args:
        slot: the stone.
        max_events: events, and batches, that may wait.
        max_bytes: bytes of batches and other events that may wait.

    Attributes:
        slot: the stone.
        buffer: the events of one schema that were submitted last.
        changed: the lock of the queue; wakes threads that wait for room.
        taken: items taken out so far.
        ready: batches made of what was taken out, each with the number of items; they wait while a link
            downstream is full.
        onward: where events go on to, found for the graph and the gate that there are now; None until then.
    """

    def __init__(self, slot: Slot, max_events: int, max_bytes: int) -> None:
        self.slot = slot
        self.buffer = SubmitBuffer()
        self._lock = threading.RLock()
        self.changed = threading.Condition(self._lock)
        self.taken = 0
        self._max_events = max_events
        self._max_bytes = max_bytes
        self._items: list[Item] = []
        self.ready: deque[tuple[EventBatch, int]] = deque()
        self._came = 0
        # Bytes of the submit buffer's events that may wait, and that do among the items.
        self._room = self._laid = 0
        # The other items, and their bytes.
        self._count = self._bytes = 0
        self._sealed: str | None = None
        self._waiters = 0
        self._gated = False
        self.onward: Onward | None = None

    # --- in the threads that submit

    def begin(self, schema: Schema, thread: int, room: Room) -> None:
        """Opens the submit buffer; to be called once.

        Args:
            schema: of the events that are written there.
            thread: the identity of the engine's thread, which writes none.
            room: see ``SubmitBuffer.begin``.
        """
        with self._lock:
            self.buffer.begin(schema, thread, room)
            self._room = min(self._max_events * self.buffer.least, self._max_bytes)
            self._renew(self.buffer.least)

    def put(self, item: Item) -> None:
        """Adds a batch or an event, for which there is room (see ``wait``).

        Raises:
            FlowError: the queue is sealed.
        """
        with self._lock:
            if self._sealed is not None:
                raise FlowError(f"stone {self.slot.name!r}: {self._sealed}")
            buffer = self.buffer
            self._add(buffer.take())
            self._items.append(item)
            self._came += 1
            needed, rows, size = buffer.least, 1, _size(item)
            if isinstance(item, tuple) and item[0] is buffer.schema and item[2] is None:
                # It found no room in the submit buffer, but counts as one of its events.
                self._laid += size
                needed = max(needed, size)
            else:
                self._count += 1
                self._bytes += size
                own = isinstance(item, EventBatch) and item.schema is buffer.schema
                if isinstance(item, EventBatch) and own and (item.rows == 1 or size < LARGE):
                    # A single event, or a small table, of which more may come.
                    needed, rows = max(needed, size), item.rows
            if needed <= MOST and buffer.lacks(needed, rows):
                self._renew(needed)

    @property
    def cramped(self) -> bool:
        """Whether the submit buffer has no room for a further event."""
        return self.buffer.schema is not None and self.buffer.lacks(self.buffer.wanted)

    def make_room(self) -> bool:
        """Gives the submit buffer room if it is cramped; False if there is none, or the queue is sealed."""
        with self._lock:
            if self.cramped:
                self._renew(self.buffer.wanted)
            return not self.cramped

    def seal(self, reason: str = "the flow is closed") -> None:
        """From now on nothing goes in: ``put`` is refused, and the submit buffer has no room.

        What went in before is still there to be taken.
        """
        with self._lock:
            if self._sealed is None:
                self._sealed = reason
                self._add(self.buffer.shut())

    @property
    def full(self) -> bool:
        """Whether a submitter has to wait."""
        laid = self._laid + self.buffer.waiting
        if laid and laid + self.buffer.least > self._room:
            return True
        return self._count >= self._max_events or laid + self._bytes >= self._max_bytes

    def wait(self, timeout: float | None, alive: Callable[[], bool]) -> None:
        """Waits until there is room.

        Raises:
            FlowError: there was none within ``timeout`` seconds, or the flow ended.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        with self._lock:
            self._waiters += 1
            try:
                while self.full and alive():
                    left = None if deadline is None else deadline - time.monotonic()
                    if left is not None and left <= 0:
                        raise FlowError(
                            f"stone {self.slot.name!r} is full: what was submitted waits, and there was no "
                            f"room within {timeout} s; a stone downstream is slow or frozen, or give a "
                            "longer timeout"
                        )
                    # Woken now and then all the same, since a flow may end without taking anything.
                    self.changed.wait(0.1 if left is None else min(left, 0.1))
            finally:
                self._waiters -= 1

    # --- in the engine's thread

    @property
    def waiting(self) -> bool:
        """Whether anything waits."""
        return bool(self.ready or self._items) or self.buffer.waiting > 0

    @property
    def came(self) -> int:
        """Items that went in so far; all that was submitted before is among them."""
        with self._lock:
            self._add(self.buffer.take())
            return self._came

    def lend(self, express: Express) -> None:
        """Has events of the submit buffer sent at once, while nothing waits; see ``gone``."""
        with self._lock:
            if not (self.ready or self._items or self._sealed):
                self.buffer.lend(express)

    def gone(self) -> tuple[EventBatch, list[int]] | None:
        """Ends that; gives the events that were sent, and how many each message has."""
        with self._lock:
            self._add(self.buffer.take())
            gone, self.buffer.gone = self.buffer.gone, None
            if gone is not None:
                self._came += 1
                self.taken += 1
        return gone

    def take(self) -> Iterator[EventBatch]:
        """Takes out what waits now, as few batches as its order allows; what is not asked for stays."""
        if not self.ready:
            self._fill()
        while self.ready:
            batch, count = self.ready.popleft()
            self.taken += count
            yield batch

    def _fill(self) -> None:
        self.buffer.sync()
        with self._lock:
            self._add(self.buffer.take())
            items, self._items = self._items, []
            self._count = self._bytes = self._laid = 0
            if self.buffer.few:
                # So that a source of few events always uses the same little memory.
                self._renew(self.buffer.least)
            if self._waiters:
                self.changed.notify_all()
        if len(items) == 1 and isinstance(items[0], EventBatch):
            self.ready.append((items[0], 1))
            return
        for group in _groups(items):
            self.ready.extend(_joined(group))

    def end(self, reason: str) -> list[EventBatch]:
        """Seals the queue, and takes out all that waits."""
        self.seal(reason)
        return [*self.take(), *self.take()]

    def gate(self, topology: Topology) -> None:
        """Has the first filter checked where events are submitted, once many have come; counts what it
        rejected there."""
        buffer = self.buffer
        if self._gated:
            buffer.sync()
        elif buffer.schema is not None and not is_busy():
            self._gated, self.onward = True, None
            try:
                buffer.set_gate(gate_of(self.slot, buffer.schema, topology))
            except CONTAINED as error:
                mishaps.tell(_log, f"stone {self.slot.name!r}", "no filter is asked ahead of it", error)

    def ungate(self) -> None:
        """From now on all events are taken in: the graph changes."""
        self._gated, self.onward = False, None
        self.buffer.set_gate(None)

    # --- with the lock

    def _add(self, laid: EventBatch | None) -> None:
        """Puts what was in the submit buffer behind all other items."""
        if laid is not None:
            self._items.append(laid)
            self._came += 1
            self._laid += laid.nbytes

    def _renew(self, size: int) -> None:
        """Makes room in the submit buffer for events of so many bytes, as far as events may wait."""
        self._add(self.buffer.shut())
        if self._sealed is None:
            self.buffer.renew(min(self._room, self._max_bytes - self._bytes) - self._laid, size)


def _groups(items: list[Item]) -> Iterator[list[Item]]:
    """Items that become one batch: single events of a schema, and batches that lie back to back in memory."""
    group: list[Item] = []
    size, end = 0, -1
    for item in items:
        first = group[0] if group else item
        if isinstance(item, tuple):
            # A large event stays alone, so that it is not copied.
            length = weight(item)
            joins = isinstance(first, tuple) and are_alike(first, item) and size + length <= _JOINED
        else:
            at, length = address_of(item.data), len(item.data)
            joins = at == end and size + length <= _TOGETHER and _plain(item)
            joins = joins and isinstance(first, EventBatch) and first.schema is item.schema and _plain(first)
            end = at + length
        if group and not joins:
            yield group
            group, size = [], 0
        group.append(item)
        size += length
    if group:
        yield group


def _joined(group: list[Item]) -> list[tuple[EventBatch, int]]:
    """A group as one batch, and the number of its items; one by one if there is no memory for all at once."""
    first = group[0]
    try:
        if isinstance(first, EventBatch):
            batches = [item for item in group if isinstance(item, EventBatch)]
            return [(EventBatch.concat(batches) if len(batches) > 1 else first, len(group))]
        return [(batch_of([item for item in group if isinstance(item, tuple)]), len(group))]
    except MemoryError:
        if len(group) == 1:
            raise
        return [one for item in group for one in _joined([item])]


def are_alike(one: Single, other: Single) -> bool:
    """Whether two events may be in one batch."""
    return one[0] is other[0] and alike(one[2], other[2])


def weight(one: Single) -> int:
    """Bytes of an event and of the texts among its attributes."""
    _, data, row = one
    if row is None:
        return len(data)
    return len(data) + sum(len(value) for value in row.values if isinstance(value, str))


def batch_of(events: Sequence[Single]) -> EventBatch:
    """Events that are alike as one batch."""
    schemas, data, rows = zip(*events, strict=True)
    attributes = None if rows[0] is None else Attributes.from_alike(rows)
    return EventBatch.from_encoded(schemas[0], data, attributes)


def _plain(batch: EventBatch) -> bool:
    return batch.selection is None and batch.attributes is None


def _size(item: Item) -> int:
    return item.nbytes if isinstance(item, EventBatch) else weight(item)


class Marks:
    """How far queues have to be run until what was in them has been run."""

    def __init__(self) -> None:
        self._marks: dict[SourceQueue, int] = {}

    def mark(self, queues: Iterable[SourceQueue]) -> None:
        """What is in these queues now is to be run."""
        self._marks = {queue: queue.came for queue in queues}

    @property
    def done(self) -> bool:
        """Whether all has been run."""
        return all(queue.taken >= mark for queue, mark in self._marks.items())
