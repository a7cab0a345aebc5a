"""What handlers submit in the thread that drives the engine: they cannot wait for room there.

Each stone has a queue of its own, so that the events of one source stay in order. It is emptied before the
handler gets much more to do, so only what comes back to the handler's own events fills a queue.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

from evflow.engine.engine import Engine
from evflow.engine.topology import Slot
from evflow.errors import FlowError
from evflow.events.batch import EventBatch
from evflow.flow.source_queue import Item, Single, are_alike, batch_of, weight

_BESIDE = 64
"""Bytes that a submission takes beside its events, about."""

_TOGETHER = 1024
"""Events that are run as one batch, if they were submitted one by one."""

_TOGETHER_BYTES = 64 << 10

_DEEPEST = 32
"""Stones at which events that are under way came in: beyond so many, what handlers submit has to wait."""


class _Queue:
    """What handlers have submitted to one stone.

    Attributes:
        items: batches and events, oldest first.
        bytes: what they take.
        before: how many items it had when the handlers that may submit now were called.
    """

    __slots__ = ("before", "bytes", "items")

    def __init__(self) -> None:
        self.items: deque[Item] = deque()
        self.bytes = 0
        self.before = 0


class Handed:
    """The queues of one flow; used by the thread that drives the engine. Any thread may call ``told`` and set
    ``closing``.

    Args:
        engine: the engine; it runs what is put in between two slices of a batch.
        aside: within it events are moved that are not a part of what came over a link.
        max_events: submissions that may wait at each stone before a handler that submits more is called.
        max_bytes: bytes that may wait at each stone.

    Attributes:
        refused: how often a queue was full, so far.
        refusal: the first refusal that nobody has been told of yet; "" if there is none.
        closing: whether the flow ends: then nothing more goes in once a queue was full.
        waiting: submissions that wait.
    """

    def __init__(
        self,
        engine: Engine,
        aside: Callable[[], AbstractContextManager[None]],
        max_events: int,
        max_bytes: int,
    ) -> None:
        self.refused = 0
        self.refusal = ""
        self.closing = False
        self._engine = engine
        self._aside = aside
        engine.aside = self.run_aside
        self._max_events, self._max_bytes = max_events, max_bytes
        # The one that was put into last stands last.
        self._queues: dict[Slot, _Queue] = {}
        self._last: Slot | None = None
        self.waiting = self._size = 0
        self._ahead: dict[Slot, frozenset[Slot]] = {}
        self._version = -1

    def put(self, slot: Slot, item: Item) -> None:
        """Puts in a batch or an event for a stone.

        Raises:
            FlowError: its queue is full.
        """
        queue = self._queues.get(slot)
        if slot is not self._last or queue is None:
            # What was led to last is run first: so the queues before it stay as they are meanwhile.
            queue = self._queues.pop(slot, None) or _Queue()
            self._queues[slot], self._last = queue, slot
        full = queue.before >= self._max_events or queue.bytes >= self._max_bytes
        if full or (self.closing and self.refused):
            self._refuse(slot, queue)
        size = _size(item)
        queue.items.append(item)
        queue.bytes += size
        self._size += size
        self.waiting += 1
        self._engine.loose = True

    def _refuse(self, slot: Slot, queue: _Queue) -> None:
        reason = (
            f"stone {slot.name!r} is full: {len(queue.items):,} events and batches wait that handlers have "
            "submitted to it; a handler must not submit more to where its events come from than it takes; "
            "submit many events as one batch, or run the graph with a larger max_events or max_bytes"
        )
        self.refused += 1
        self.refusal = self.refusal or reason
        raise FlowError(reason)

    def told(self) -> None:
        """Raises the first refusal that nobody has been told of.

        Raises:
            FlowError: there is one.
        """
        refusal, self.refusal = self.refusal, ""
        if refusal:
            raise FlowError(f"{refusal} ({self.refused:,} refused; see the dead letters)")

    def run(self, until: float = math.inf) -> None:
        """Moves what waits, and what handlers submit meanwhile, as far as it overtakes nothing that was
        submitted to the same stone before and is under way.

        Args:
            until: when it leaves the rest for later, as ``time.monotonic`` tells it: handlers may submit
                without an end.
        """
        self._look()
        while time.monotonic() < until and (found := self._next()) is not None:
            slot, batch = found
            self._engine.submit(slot, batch, origin=(slot.name, b""))
            self._engine.run()
            self._look()

    def run_aside(self) -> int:
        """Does the same while other events are under way; gives by how many bytes less waits then."""
        if not self.waiting or len(self._engine.begun) > _DEEPEST:
            self._look()
            return 0
        size = self._size
        with self._aside():
            self.run()
        return size - self._size

    def extract(self) -> Iterator[tuple[Slot, EventBatch]]:
        """Takes out all that waits."""
        while self.waiting:
            slot = next(slot for slot, queue in self._queues.items() if queue.items)
            yield slot, self._taken(self._queues[slot])

    def _next(self) -> tuple[Slot, EventBatch] | None:
        """Takes out what is to be run next; None if nothing may be run now."""
        for slot in reversed(self._queues):
            queue = self._queues[slot]
            if queue.items and not self._overtakes(slot):
                batch = self._taken(queue)
                queue.before = len(queue.items)
                return slot, batch
        if not self.waiting:
            self._queues.clear()
            self._last = None
        return None

    def _look(self) -> None:
        """Handlers are called again: from now on what waits already counts for who may submit."""
        for queue in self._queues.values():
            queue.before = len(queue.items)

    def _overtakes(self, slot: Slot) -> bool:
        begun = self._engine.begun
        if not begun:
            return False
        if self._version != self._engine.version:
            self._ahead.clear()
            self._version = self._engine.version
        ahead = self._ahead.get(slot)
        if ahead is None:
            ahead = self._ahead[slot] = frozenset(self._engine.topology.ahead(slot))
        return not ahead.isdisjoint(begun)

    def _taken(self, queue: _Queue) -> EventBatch:
        first = queue.items.popleft()
        taken = 1
        if isinstance(first, EventBatch):
            size, batch = _size(first), first
        else:
            events = [first, *_alike(queue.items, first)] if queue.items else [first]
            size, taken = sum(map(_size, events)), len(events)
            batch = batch_of(events)
        queue.bytes -= size
        self._size -= size
        self.waiting -= taken
        return batch


def _alike(items: deque[Item], first: Single) -> Iterator[Single]:
    """Takes out the single events that come first and are like another, as many as may be run together."""
    count, size = 1, weight(first)
    while items and count < _TOGETHER and size < _TOGETHER_BYTES:
        item = items[0]
        if isinstance(item, EventBatch) or not are_alike(first, item):
            return
        size += weight(item)
        # One that is too large to be sent must not take others along.
        if size > _TOGETHER_BYTES:
            return
        items.popleft()
        count += 1
        yield item


def _size(item: Item) -> int:
    return _BESIDE + (item.nbytes if isinstance(item, EventBatch) else weight(item))
