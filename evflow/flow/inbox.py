"""The inbox of a flow: what threads submit and the engine's thread takes, bounded.

Each stone that is submitted to has its own ``Intake``, so events from one source stay in order. Small events
of one schema are encoded to where they lie, back to back, and the engine's thread takes all that lie there as
one batch: batches form exactly while the engine is busy, and an event never waits for a batch to fill.
"""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Callable, Iterator
from ctypes import c_int64
from itertools import groupby
from typing import Any

import numpy as np

from evflow.engine.gate import Gate
from evflow.errors import FlowError
from evflow.events.batch import EventBatch
from evflow.events.gather import ByteArray, address_of, frozen
from evflow.schema import Schema

__all__ = ["FRAME", "SMALL", "Bell", "Intake", "Item"]

SMALL = 4096
"""Events of a fixed width up to this many bytes are bounded by their number alone."""

_JOINED = 64 << 10
"""Bytes up to which events that were put in one by one are joined to a batch."""

_TOGETHER = 512 << 10
"""Bytes up to which batches become one where that needs no copy."""

_CHUNK = 1 << 20
"""Bytes of the memory that small events are encoded to."""

_LENT = _CHUNK // 4
"""Bytes from which what lies there is not copied, but becomes a batch where it is."""

_MANY = 20_000
"""Small events after which a gate pays."""

FRAME = struct.Struct("<I")
"""The length before an event of varying width in an intake's memory."""

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
        words: int64[5]: where the next small event goes, where the room for them ends (0 while there is
            none), the engine's thread, and the gate; see ``evflow.codgen.objects``. Each event lies behind
            its length (``FRAME``) where their width varies.
        schema: of the small events; None while there can be none.
        gate: what small events have to pass to get in, see ``set_gate``.
        many: whether so many of them came that a gate pays.
    """

    def __init__(self, stone: str, max_events: int, max_bytes: int) -> None:
        self.words = np.zeros(5, np.int64)
        # The same words; to read one of them so takes half the time.
        self._words: Any = (c_int64 * 5).from_buffer(self.words.data)
        self._stone = stone
        self._max_events = max_events
        self._max_bytes = max_bytes
        self.schema: Schema | None = None
        self.gate: Gate | None = None
        self.many = False
        self._came = 0
        self._least = self._room = 0
        self._chunk: ByteArray = np.empty(0, np.uint8)
        self._lent = False
        # Where the events begin that are no item yet.
        self._start = 0
        self._items: list[Item] = []
        self._counted = 0
        self._numbered = 0
        self._bytes = 0
        self._blocks = 0
        self._sealed: str | None = None
        self._changed = threading.Condition()

    def begin(self, schema: Schema, thread: int) -> None:
        """Makes room for small events, which any thread but one may put where ``words`` say; called once.

        Args:
            schema: of these events.
            thread: the identity of that one, the engine's.
        """
        with self._changed:
            self.schema = schema
            self._least = schema.width or SMALL
            self._room = min(self._max_events * self._least, self._max_bytes)
            self._words[2] = thread
            self._renew()

    def put(self, item: Item) -> None:
        """Puts in a batch or an event, for which there is room (see ``wait``).

        Raises:
            FlowError: it is sealed.
        """
        with self._changed:
            if self._sealed is not None:
                raise FlowError(f"stone {self._stone!r}: {self._sealed}")
            self._cut()
            self._items.append(item)
            if isinstance(item, tuple) and item[0] is self.schema:
                # It found no room where small events lie, but is one of them.
                self._blocks += len(item[1])
            else:
                self._numbered += 1
                self._bytes += _size(item)
            if self.schema is not None and self._words[1] - self._words[0] < self._least:
                self._renew()

    def seal(self, reason: str = "the flow is closed") -> None:
        """From now on nothing goes in: ``put`` is refused, and there is no room where ``words`` say.

        What went in before is still there to be taken.
        """
        with self._changed:
            if self._sealed is None:
                self._sealed = reason
                self._words[1] = 0

    def _cut(self) -> None:
        """Makes an item of the events that lie in the chunk."""
        at = self._words[0]
        size = at - self._start
        if size:
            first = self._start - address_of(self._chunk)
            data = self._chunk[first : first + size]
            if size >= _LENT:
                self._lent = True
            else:
                data = data.copy()
            self._items.append(self._batch(frozen(data)))
            self._blocks += size
            self._came += size
            self._start = at
            self.many = self._came > _MANY * self._least

    def _batch(self, data: ByteArray) -> EventBatch:
        schema = self.schema
        assert schema is not None
        if schema.width is None:
            return EventBatch.from_encoded(schema, list(_framed(bytes(data))))
        return EventBatch(schema, data, len(data) // schema.width)

    def _renew(self) -> None:
        """Begins a chunk anew, as far as events may wait."""
        # With the end at 0 no thread puts anything in between.
        self._words[1] = 0
        self._cut()
        if self._lent or not len(self._chunk):
            self._chunk = np.empty(_CHUNK, np.uint8)
            self._lent = False
        self._start = self._words[0] = address_of(self._chunk)
        if self._sealed is None:
            self._words[1] = self._start + max(0, min(_CHUNK, self._room - self._blocks))

    def set_gate(self, gate: Gate | None) -> None:
        """From now on a filter is asked for each small event; called by the engine's thread, as ``sync``."""
        self._words[3] = 0
        self.sync()
        self.gate = gate
        self._words[3] = 0 if gate is None else gate.code.address

    def sync(self) -> None:
        """Has the gate count what it has rejected."""
        rejected = self._words[4] - self._counted
        if rejected and self.gate is not None:
            self.gate.rejected(rejected)
            self._counted += rejected

    @property
    def waiting(self) -> bool:
        """Whether anything waits."""
        return bool(self._items) or self._words[0] != self._start

    @property
    def full(self) -> bool:
        """Whether a submitter has to wait."""
        small = self._blocks + self._words[0] - self._start
        if small and small + self._least > self._room:
            return True
        return self._numbered >= self._max_events or self._bytes >= self._max_bytes

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
            self._cut()
            if self._start and not self._lent:
                # So that a source of few events always uses the same little memory.
                self._renew()
            items, self._items = self._items, []
            self._numbered = self._bytes = self._blocks = 0
            self._changed.notify_all()
        self.sync()
        for schema, group in groupby(items, _kind):
            if schema is None:
                yield from _together([item for item in group if isinstance(item, EventBatch)])
            else:
                events = [item[1] for item in group if isinstance(item, tuple)]
                yield from (EventBatch.from_encoded(schema, part) for part in _parts(events))


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


def _kind(item: Item) -> Schema | None:
    """What items have in common that may become one batch: the schema of single events."""
    return None if isinstance(item, EventBatch) else item[0]


def _size(item: Item) -> int:
    return item.nbytes if isinstance(item, EventBatch) else len(item[1])
