"""The inbox of a flow: what threads submit and the engine's thread takes, bounded.

Each stone that is submitted to has its own ``Intake``, so events from one source stay in order. Small events
of one schema lie there as they are encoded, back to back, and the engine's thread takes all that lie there
as one
batch: batches form exactly while the engine is busy, and an event never waits for a batch to fill.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import numpy as np

from evflow.errors import FlowError
from evflow.events.batch import EventBatch
from evflow.schema import Schema

__all__ = ["SMALL", "Bell", "Intake", "Item"]

SMALL = 4096
"""Events of a fixed width up to this many bytes are bounded by their number alone."""

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
        buffer: small events of ``schema``, encoded; any thread may extend it without a lock.
        schema: their schema, of fixed width; set before the first.
        max_events: as given.
    """

    def __init__(self, stone: str, max_events: int, max_bytes: int) -> None:
        self.buffer = bytearray()
        self.schema: Schema | None = None
        self.max_events = max_events
        self._stone = stone
        self._max_bytes = max_bytes
        # Other items, each with the number of bytes that went into the buffer before it.
        self._items: list[tuple[int, Item]] = []
        self._seal: memoryview | None = None
        self._taken = 0
        self._bytes = 0
        self._changed = threading.Condition()

    def put(self, item: Item) -> None:
        """Puts in a batch or an event, for which there is room (see ``wait``).

        Raises:
            FlowError: it is sealed.
        """
        with self._changed:
            if self._seal is not None:
                raise FlowError(f"stone {self._stone!r}: the flow is closed")
            self._items.append((self._taken + len(self.buffer), item))
            self._bytes += _size(item)

    def seal(self) -> None:
        """From now on nothing goes in: ``put`` is refused, and extending ``buffer`` raises ``BufferError``.

        What went in before is still there to be taken.
        """
        with self._changed:
            if self._seal is None:
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
        width = self.schema.width if self.schema is not None else None
        events = len(self._items) + (len(self.buffer) // width if width else 0)
        return events >= self.max_events or self._bytes >= self._max_bytes

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
        for before, item in items:
            yield from self._events(data[at : before - first])
            at = before - first
            yield item if isinstance(item, EventBatch) else EventBatch.from_encoded(item[0], [item[1]])
        yield from self._events(data[at:])

    def _events(self, data: bytes) -> Iterator[EventBatch]:
        if data:
            assert self.schema is not None and self.schema.width is not None
            yield EventBatch(self.schema, np.frombuffer(data, np.uint8), len(data) // self.schema.width)


def _size(item: Item) -> int:
    return item.nbytes if isinstance(item, EventBatch) else len(item[1])
