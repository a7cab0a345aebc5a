"""A large batch as slices; between two of them runs what the handlers of the events have submitted."""

from __future__ import annotations

from collections.abc import Iterator

from evflow.events.batch import EventBatch

_FIRST, _MOST = 16, 1024
"""Events of the first slice, of which nobody knows what comes, and of any."""

_MUCH = 256 << 10
"""Bytes of what a slice has led to after which the next one is shorter."""


class Slices:
    """The slices of a batch, in order, each as long as what the one before has led to allows.

    Args:
        batch: the events.

    Attributes:
        left: how many events come after the slice that was given last.
    """

    def __init__(self, batch: EventBatch) -> None:
        self._batch = batch
        self._size = _FIRST
        self.left = len(batch)

    def __iter__(self) -> Iterator[EventBatch]:
        batch, count = self._batch, self.left
        while self.left:
            start = count - self.left
            size = min(self._size, self.left)
            self.left -= size
            yield batch if size == count else batch.slice(start, start + size)

    def led_to(self, size: int) -> None:
        """Handlers of the last slice have submitted so many bytes."""
        self._size = max(1, self._size // 2) if size > _MUCH else min(self._size * 2, _MOST)
