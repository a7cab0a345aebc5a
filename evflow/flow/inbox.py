"""The inbox of a flow: what threads submit and the engine's thread takes, bounded.

Each stone that is submitted to has its own ``Intake``, so events from one source stay in order. Events of one
schema are encoded to where they lie, back to back, and the engine's thread takes all that lie there as one
batch: batches form exactly while the engine is busy, and an event never waits for a batch to fill.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from itertools import groupby

from evflow.errors import FlowError
from evflow.events.batch import EventBatch
from evflow.events.gather import Room, address_of
from evflow.flow.tray import MOST, Tray
from evflow.schema import Schema

__all__ = ["Bell", "Intake", "Item"]

_JOINED = 64 << 10
"""Bytes up to which events that were put in one by one are joined to a batch."""

_TOGETHER = 512 << 10
"""Bytes up to which batches become one where that needs no copy."""

Item = EventBatch | tuple[Schema, bytes]
"""A batch, or an event with its schema."""


class Bell:
    """Wakes the engine's thread, which sleeps only after it has seen that nothing waits."""

    def __init__(self) -> None:
        self.asleep = False
        self._lock = threading.Lock()
        self._lock.acquire()

    def ring(self) -> None:
        """Wakes the sleeper; does nothing if it is awake."""
        # Until it sleeps again nobody else needs to.
        self.asleep = False
        try:
            self._lock.release()
        except RuntimeError:
            # Released already: the sleeper is on its way.
            return

    def sleep(self, waiting: Callable[[], bool], seconds: float | None) -> None:
        """Sleeps until rung or for ``seconds``, but not at all if ``waiting()`` after ``asleep`` is set."""
        self.asleep = True
        if not waiting():
            self._lock.acquire(timeout=-1 if seconds is None else max(seconds, 0.0))
        self.asleep = False


class Intake:
    """What waits to enter at one stone.

    Args:
        stone: the stone's name, for errors.
        max_events: events, and batches, that may wait.
        max_bytes: bytes of batches and other events that may wait.

    Attributes:
        tray: the events of one schema that were put in last.
        changed: has the lock of all that waits, and wakes who waits for room.
    """

    def __init__(self, stone: str, max_events: int, max_bytes: int) -> None:
        self.tray = Tray()
        self._stone = stone
        self._max_events = max_events
        self._max_bytes = max_bytes
        # Bytes of events of the tray that may wait, and that do among the items.
        self._room = self._laid = 0
        self._items: list[Item] = []
        self._count = 0
        self._bytes = 0
        self._sealed: str | None = None
        self.changed = threading.Condition()

    def begin(self, schema: Schema, thread: int, room: Room) -> None:
        """Makes room for events in the tray; to be called once.

        Args:
            schema: of these events.
            thread: the identity of the engine's thread, which does not put any there.
            room: see ``Tray.begin``.
        """
        with self.changed:
            self.tray.begin(schema, thread, room)
            self._room = min(self._max_events * self.tray.least, self._max_bytes)
            self._renew(self.tray.least)

    def put(self, item: Item) -> None:
        """Puts in a batch or an event, for which there is room (see ``wait``).

        Raises:
            FlowError: it is sealed.
        """
        with self.changed:
            if self._sealed is not None:
                raise FlowError(f"stone {self._stone!r}: {self._sealed}")
            tray = self.tray
            self._add(tray.take())
            self._items.append(item)
            needed, size = tray.least, _size(item)
            if isinstance(item, tuple) and item[0] is tray.schema:
                # It found no room in the tray, but is one of those.
                self._laid += size
                needed = max(needed, size)
            else:
                self._count += 1
                self._bytes += size
                if isinstance(item, EventBatch) and item.rows == 1 and item.schema is tray.schema:
                    needed = max(needed, size)
            if needed <= MOST and tray.lacks(needed):
                self._renew(needed)

    @property
    def cramped(self) -> bool:
        """Whether the tray has no room for a further event."""
        return self.tray.schema is not None and self.tray.lacks(self.tray.wanted)

    def make_room(self) -> bool:
        """Gives the tray room again, if it is cramped; False if there is none, or nothing may go in."""
        with self.changed:
            if self.cramped:
                self._renew(self.tray.wanted)
            return not self.cramped

    def seal(self, reason: str = "the flow is closed") -> None:
        """From now on nothing goes in: ``put`` is refused, and the tray has no room.

        What went in before is still there to be taken.
        """
        with self.changed:
            if self._sealed is None:
                self._sealed = reason
                self._add(self.tray.shut())

    def _add(self, laid: EventBatch | None) -> None:
        """Lays what lay in the tray behind all else."""
        if laid is not None:
            self._items.append(laid)
            self._laid += laid.nbytes

    def _renew(self, size: int) -> None:
        """Makes room in the tray for events of so many bytes, as far as events may wait."""
        self._add(self.tray.shut())
        if self._sealed is None:
            self.tray.renew(self._room - self._laid, size)

    @property
    def waiting(self) -> bool:
        """Whether anything waits."""
        return bool(self._items) or self.tray.waiting > 0

    @property
    def full(self) -> bool:
        """Whether a submitter has to wait."""
        laid = self._laid + self.tray.waiting
        if laid and laid + self.tray.least > self._room:
            return True
        return self._count >= self._max_events or self._bytes >= self._max_bytes

    def wait(self, timeout: float | None, alive: Callable[[], bool]) -> None:
        """Waits until there is room.

        Raises:
            FlowError: there was none within ``timeout`` seconds, or the flow ended.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        with self.changed:
            while self.full and alive():
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    raise FlowError(
                        f"stone {self._stone!r} is full: what was submitted waits, and there was no room "
                        f"within {timeout} s; a stone downstream is slow or frozen, or give a longer timeout"
                    )
                # Woken now and then all the same, since a flow may end without taking anything.
                self.changed.wait(0.1 if left is None else min(left, 0.1))

    def take(self) -> Iterator[EventBatch]:
        """All that waits now, as few batches as its order allows. Called by the engine's thread."""
        with self.changed:
            self._add(self.tray.take())
            items, self._items = self._items, []
            self._count = self._bytes = self._laid = 0
            if self.tray.few:
                # So that a source of few events always uses the same little memory.
                self._renew(self.tray.least)
            self.changed.notify_all()
        if len(items) == 1 and isinstance(items[0], EventBatch):
            yield items[0]
            return
        for schema, group in groupby(items, _kind):
            if schema is None:
                yield from _together([item for item in group if isinstance(item, EventBatch)])
            else:
                events = [item[1] for item in group if isinstance(item, tuple)]
                for part in _parts(events):
                    yield from _encoded(schema, part)


def _parts(events: list[bytes]) -> Iterator[list[bytes]]:
    """Events that become one batch: large ones stay alone, so that they are not copied."""
    start, size = 0, 0
    for position, event in enumerate(events):
        if size and size + len(event) > _JOINED:
            yield events[start:position]
            start, size = position, 0
        size += len(event)
    yield events[start:]


def _encoded(schema: Schema, events: list[bytes]) -> Iterator[EventBatch]:
    """Events as one batch; where there is no memory for all of them at once, one by one."""
    try:
        batches = [EventBatch.from_encoded(schema, events)]
    except MemoryError:
        batches = [EventBatch.from_encoded(schema, [event]) for event in events]
    yield from batches


def _together(batches: list[EventBatch]) -> Iterator[EventBatch]:
    """Batches that lie back to back in memory as one, up to some size; the others as they are."""
    start, size, end = 0, 0, -1
    for position, batch in enumerate(batches):
        at, length = address_of(batch.data), len(batch.data)
        alike = batch.schema is batches[start].schema and _plain(batch) and _plain(batches[start])
        if size and not (at == end and alike and size + length <= _TOGETHER):
            yield from _one(batches[start:position])
            start, size = position, 0
        size += length
        end = at + length
    yield from _one(batches[start:])


def _one(batches: list[EventBatch]) -> list[EventBatch]:
    try:
        return batches if len(batches) == 1 else [EventBatch.concat(batches)]
    except MemoryError:
        return batches


def _plain(batch: EventBatch) -> bool:
    return batch.selection is None and batch.attributes is None


def _kind(item: Item) -> Schema | None:
    """What items have in common that may become one batch: the schema of single events."""
    return None if isinstance(item, EventBatch) else item[0]


def _size(item: Item) -> int:
    return item.nbytes if isinstance(item, EventBatch) else len(item[1])
