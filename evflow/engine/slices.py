"""A large batch as slices; between two of them runs what the handlers of the events have submitted."""

from __future__ import annotations

from collections.abc import Iterator

from evflow.events.batch import EventBatch
from evflow.events.view import View

_FIRST, _MOST = 16, 1024
"""Events of the first slice, of which nobody knows what comes, and of any."""

_MUCH = 256 << 10
"""Bytes of what a slice has led to after which the next one is shorter."""

_SHARED = 1 << 16
"""Events of a batch whose views are shared, at most: views take more memory than most events."""


class Shared:
    """The slices of a batch that several stones get, one after the other.

    Args:
        batch: the events.
    """

    def __init__(self, batch: EventBatch) -> None:
        self.batch = batch
        self._slices: dict[tuple[int, int], EventBatch] = {}
        self._held = 0

    def slice(self, start: int, stop: int) -> EventBatch:
        """The events from position ``start`` up to ``stop``, the same object each time if there is room."""
        found = self._slices.get((start, stop))
        if found is None:
            whole = stop - start == len(self.batch)
            found = self.batch if whole else self.batch.slice(start, stop)
            self._held += stop - start
            if self._held <= _SHARED:
                found = self._slices[start, stop] = _Slice(found)
        return found


class _Slice(EventBatch):
    """Events whose views are made once, as views of another batch: whoever keeps one keeps no others."""

    __slots__ = ("_events", "_views")

    def __init__(self, events: EventBatch) -> None:
        super().__init__(
            events.schema, events.data, events.rows, events.offsets, events.selection, events.attributes
        )
        self._events = events
        self._views: list[View] | None = None

    def __iter__(self) -> Iterator[View]:
        if self._views is None:
            self._views = list(self._events)
        return iter(self._views)


class Slices:
    """The slices of a batch, in order, each as long as what the one before has led to allows.

    Args:
        batch: the events.
        shared: what slices them, if other stones get them too.

    Attributes:
        left: how many events come after the slice that was given last.
    """

    def __init__(self, batch: EventBatch, shared: Shared | None) -> None:
        self._batch = batch
        self._shared = shared
        self._size = _FIRST
        self.left = len(batch)

    def __iter__(self) -> Iterator[EventBatch]:
        batch, count = self._batch, self.left
        while self.left:
            start = count - self.left
            size = min(self._size, self.left)
            self.left -= size
            if self._shared is not None:
                yield self._shared.slice(start, start + size)
            else:
                yield batch if size == count else batch.slice(start, start + size)

    def led_to(self, size: int) -> None:
        """Handlers of the last slice have submitted so many bytes."""
        self._size = max(1, self._size // 2) if size > _MUCH else min(self._size * 2, _MOST)
