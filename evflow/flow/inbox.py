"""The inbox of a flow: what threads submit and the engine's thread takes, bounded.

Each stone that is submitted to has its own ``Intake``, so events from one source stay in order. Small events
of one schema lie there as they are encoded, back to back, and the engine's thread takes all that lie there
as one
batch: batches form exactly while the engine is busy, and an event never waits for a batch to fill.
"""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Callable, Iterator
from itertools import groupby

import numpy as np

from evflow.errors import FlowError
from evflow.events.batch import EventBatch
from evflow.events.gather import address_of
from evflow.schema import Schema

__all__ = ["FRAME", "SMALL", "Bell", "Intake", "Item"]

SMALL = 4096
"""Events of a fixed width up to this many bytes are bounded by their number alone."""

_JOINED = 64 << 10
"""Bytes up to which events that were put in one by one are joined to a batch."""

_TOGETHER = 512 << 10
"""Bytes up to which batches become one where that needs no copy."""

FRAME = struct.Struct("<I")
"""The length before an event of varying width in an intake's buffer."""

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
        buffer: events of ``schema``, encoded, each behind its length (``FRAME``) where their width varies;
        any
            thread may extend it without a lock, by whole events.
        schema: their schema; see ``begin``.
        room: bytes that may wait in the buffer.
    """

    def __init__(self, stone: str, max_events: int, max_bytes: int) -> None:
        self.buffer = bytearray()
        self.schema: Schema | None = None
        self.room = 0
        self._max_events = max_events
        self._stone = stone
        self._max_bytes = max_bytes
        # Other items, each with the number of bytes that went into the buffer before it.
        self._items: list[tuple[int, Item]] = []
        self._seal: memoryview | None = None
        self._sealed = ""
        self._taken = 0
        self._bytes = 0
        self._changed = threading.Condition()

    def begin(self, schema: Schema) -> None:
        """Sets the schema of the events in the buffer; to be called once."""
        self.schema = schema
        self.room = self._max_events * (schema.width or SMALL)
        if schema.width is None:
            self.room = min(self.room, self._max_bytes)

    def put(self, item: Item) -> None:
        """Puts in a batch or an event, for which there is room (see ``wait``).

        Raises:
            FlowError: it is sealed.
        """
        with self._changed:
            if self._seal is not None:
                raise FlowError(f"stone {self._stone!r}: {self._sealed}")
            self._items.append((self._taken + len(self.buffer), item))
            self._bytes += _size(item)

    def seal(self, reason: str = "the flow is closed") -> None:
        """From now on nothing goes in: ``put`` is refused, and extending ``buffer`` raises ``BufferError``.

        What went in before is still there to be taken.
        """
        with self._changed:
            if self._seal is None:
                self._sealed = reason
                # A bytearray cannot grow while a view of it exists; what it holds moves to another one.
                self._seal = memoryview(self.buffer)
                self.buffer = bytearray(self._seal)

    @property
    def waiting(self) -> bool:
        """Whether anything waits."""
        return bool(self.buffer or self._items)

    @property
    def full(self) -> bool:
        """Whether a submitter has to wait."""
        if self.schema is not None and len(self.buffer) >= self.room:
            return True
        return len(self._items) >= self._max_events or self._bytes >= self._max_bytes

    def wait(self, timeout: float | None, alive: Callable[[], bool]) -> None:
        """Waits until there is room.

        Raises:
            FlowError: there was none within ``timeout`` seconds, or the flow ended.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        with self._changed:
            while self.full and alive():
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    raise FlowError(
                        f"stone {self._stone!r} is full: what was submitted waits, and there was no room "
                        f"within {timeout} s; a stone downstream is slow or frozen, or give a longer timeout"
                    )
                # Woken now and then all the same, since a flow may end without taking anything.
                self._changed.wait(0.1 if left is None else min(left, 0.1))

    def take(self) -> Iterator[EventBatch]:
        """All that waits now, as few batches as its order allows. Called by the engine's thread."""
        with self._changed:
            data = bytes(self.buffer)
            # What another thread appends between these two lines stays.
            del self.buffer[: len(data)]
            items, self._items = self._items, []
            first, self._taken = self._taken, self._taken + len(data)
            self._bytes = 0
            self._changed.notify_all()
        at = 0
        for (before, schema), group in groupby(items, _kind):
            yield from self._events(data[at : before - first])
            at = before - first
            if schema is None:
                yield from _together([item for _, item in group if isinstance(item, EventBatch)])
            else:
                events = [item[1] for _, item in group if isinstance(item, tuple)]
                yield from (EventBatch.from_encoded(schema, part) for part in _parts(events))
        yield from self._events(data[at:])

    def _events(self, data: bytes) -> Iterator[EventBatch]:
        if not data:
            return
        assert self.schema is not None
        width = self.schema.width
        if width is None:
            yield EventBatch.from_encoded(self.schema, list(_framed(data)))
        else:
            yield EventBatch(self.schema, np.frombuffer(data, np.uint8), len(data) // width)


def _parts(events: list[bytes]) -> Iterator[list[bytes]]:
    """Events that become one batch: large ones stay alone, so that they are not copied."""
    start, size = 0, 0
    for position, event in enumerate(events):
        if size and size + len(event) > _JOINED:
            yield events[start:position]
            start, size = position, 0
        size += len(event)
    yield events[start:]


def _together(batches: list[EventBatch]) -> Iterator[EventBatch]:
    """Batches that lie back to back in memory as one, up to some size; the others as they are."""
    start, size, end = 0, 0, -1
    for position, batch in enumerate(batches):
        at, length = address_of(batch.data), len(batch.data)
        alike = batch.schema is batches[start].schema and _plain(batch) and _plain(batches[start])
        if size and not (at == end and alike and size + length <= _TOGETHER):
            yield _one(batches[start:position])
            start, size = position, 0
        size += length
        end = at + length
    yield _one(batches[start:])


def _one(batches: list[EventBatch]) -> EventBatch:
    return batches[0] if len(batches) == 1 else EventBatch.concat(batches)


def _plain(batch: EventBatch) -> bool:
    return batch.selection is None and batch.attributes is None


def _framed(data: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(data):
        (size,) = FRAME.unpack_from(data, at)
        at += FRAME.size + size
        yield data[at - size : at]


def _kind(entry: tuple[int, Item]) -> tuple[int, Schema | None]:
    """What entries have in common that may become one batch: no bytes between them, and the schema."""
    before, item = entry
    return before, item[0] if isinstance(item, tuple) else None


def _size(item: Item) -> int:
    return item.nbytes if isinstance(item, EventBatch) else len(item[1])
