"""The inbox of a flow: what threads submit and the engine's thread takes, bounded.

Each stone that is submitted to has its own ``Intake``, so events from one source stay in order. A single
event lies there as its encoded bytes; the engine's thread takes all that lie there as one batch, so
batches form exactly while the engine is busy, and an event never waits for a batch to fill.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from itertools import groupby
from typing import cast

from evflow.batch import EventBatch
from evflow.errors import FlowError
from evflow.schema import Schema

__all__ = ["SMALL", "Bell", "Intake"]

SMALL = 4096
"""Encoded events up to this many bytes are bounded by their number alone."""

_MOST_AT_ONCE = 65_536

Item = bytes | tuple[Schema, bytes] | EventBatch


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
        max_events: entries that may wait; batches and large events count as one.
        max_bytes: bytes of batches and large events that may wait.

    Attributes:
        items: what waits: an event of ``schema`` as bytes, of another schema as (schema, bytes), or a batch.
        schema: the schema of plain bytes; set at the first event.
    """

    def __init__(self, stone: str, max_events: int, max_bytes: int) -> None:
        self.items: list[Item] = []
        self.schema: Schema | None = None
        self._stone = stone
        self._max_events = max_events
        self._max_bytes = max_bytes
        self._bytes = 0
        self._room = threading.Condition()

    def put(self, item: EventBatch | tuple[Schema, bytes], size: int) -> None:
        """Puts in a batch or an event, for which there is room (see ``wait``); ``size`` bytes are counted."""
        with self._room:
            self._bytes += size
            self.items.append(item)

    @property
    def full(self) -> bool:
        """Whether a submitter has to wait."""
        return len(self.items) >= self._max_events or self._bytes >= self._max_bytes

    def wait(self, timeout: float | None, alive: Callable[[], bool]) -> None:
        """Waits until there is room.

        Raises:
            FlowError: there was none within ``timeout`` seconds, or the flow ended.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        with self._room:
            while self.full and alive():
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    raise FlowError(
                        f"stone {self._stone!r} is full: {len(self.items)} submissions wait and none was taken "
                        f"within {timeout} s; a stone downstream is slow, or give a longer timeout"
                    )
                # Woken now and then all the same, since a flow may end without taking anything.
                self._room.wait(0.1 if left is None else min(left, 0.1))

    def take(self) -> Iterator[EventBatch]:
        """All that waits now, as few batches as its order allows. Called by the engine's thread."""
        waiting = len(self.items)
        while waiting > 0:
            yield from self._take(min(waiting, _MOST_AT_ONCE))
            waiting -= _MOST_AT_ONCE

    def _take(self, count: int) -> Iterator[EventBatch]:
        items, full = self.items, self.full
        # Each of these two steps is one operation of the interpreter; what is appended between them stays.
        taken = items[:count]
        del items[:count]
        if full or self._bytes:
            with self._room:
                self._bytes -= sum(_large(item) for item in taken)
                self._room.notify_all()
        if self.schema is not None and set(map(type, taken)) == {bytes}:
            yield EventBatch.from_encoded(self.schema, cast(list[bytes], taken))
            return
        for schema, group in groupby(taken, self._schema_of):
            if schema is None:
                yield from cast(Iterator[EventBatch], group)
            else:
                yield EventBatch.from_encoded(schema, [_encoded(item) for item in group])

    def _schema_of(self, item: Item) -> Schema | None:
        if type(item) is bytes:
            return self.schema
        return item[0] if isinstance(item, tuple) else None


def _encoded(item: Item) -> bytes:
    return cast(bytes, item[1] if isinstance(item, tuple) else item)


def _large(item: Item) -> int:
    if isinstance(item, EventBatch):
        return item.nbytes
    return len(item[1]) if isinstance(item, tuple) and len(item[1]) > SMALL else 0


