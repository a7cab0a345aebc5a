"""Stones that thin events out."""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np

import evflow as ev
from evflow.stone import Acting, Actor, Checkpoint, Context, Held

__all__ = ["Every", "Newest"]


class Every(Acting):
    """Lets every nth event through.

    It remembers how many have come, so that it goes on counting where it moves to.

    Args:
        nth: 1 for every event, 2 for every other one, and so on.
        name: the stone's name.
        on: the node it is placed on.

    Raises:
        GraphError: ``nth`` is less than 1.
    """

    kind = "every"

    def __init__(self, nth: int, *, name: str | None = None, on: str | None = None) -> None:
        super().__init__(name=name, on=on)
        if nth < 1:
            raise ev.GraphError(f"every: nth {nth}: expected 1 or more")
        self.nth = nth

    def settings(self) -> dict[str, Any]:
        return {"nth": self.nth}

    def open(self, context: Context) -> Actor:
        return _Every(context, self.nth)


class _Every(Actor):
    def __init__(self, context: Context, nth: int) -> None:
        super().__init__(context)
        self._nth = nth
        self._seen = 0

    def receive(self, batch: ev.EventBatch, input: str) -> None:
        # The positions of the nth, 2nth, … of all that have come.
        chosen = np.arange(self._nth - 1 - self._seen % self._nth, len(batch), self._nth)
        self._seen += len(batch)
        self.context.drop(len(batch) - len(chosen))
        if len(chosen):
            self.context.emit(batch.take(chosen))

    def checkpoint(self) -> Checkpoint:
        return Checkpoint(state=np.frombuffer(self._seen.to_bytes(8, "little"), np.uint8))

    def restore(self, checkpoint: Checkpoint) -> bool:
        if checkpoint.state is not None:
            self._seen = int.from_bytes(checkpoint.state.tobytes(), "little")
        return not checkpoint.held


class Newest(Acting):
    """Holds the newest events back; what they push out goes on, oldest first.

    Args:
        count: how many it holds, 1 or more.
        name: the stone's name.
        on: the node it is placed on.

    Raises:
        GraphError: ``count`` is less than 1.
    """

    kind = "newest"

    def __init__(self, count: int, *, name: str | None = None, on: str | None = None) -> None:
        super().__init__(name=name, on=on)
        if count < 1:
            raise ev.GraphError(f"newest: count {count}: expected 1 or more")
        self.count = count

    def settings(self) -> dict[str, Any]:
        return {"count": self.count}

    def open(self, context: Context) -> Actor:
        return _Newest(context, self.count)


class _Newest(Actor):
    def __init__(self, context: Context, count: int) -> None:
        super().__init__(context)
        self._count = count
        self._held: deque[ev.EventBatch] = deque()
        self._holds = 0
        self._taken = 0

    def receive(self, batch: ev.EventBatch, input: str) -> None:
        self._held.append(batch)
        self._holds += len(batch)
        self._taken += len(batch)
        for freed in self.extract(max(0, self._holds - self._count)):
            self.context.emit(freed)

    @property
    def queued(self) -> int:
        return self._holds

    @property
    def taken(self) -> int:
        return self._taken

    @property
    def oldest(self) -> int:
        return self._taken - self._holds

    def extract(self, count: int | None = None) -> list[ev.EventBatch]:
        left = self._holds if count is None else min(count, self._holds)
        self._holds -= left
        freed = []
        while left:
            batch = self._held.popleft()
            if len(batch) > left:
                self._held.appendleft(batch.slice(left, len(batch)))
                batch = batch.slice(0, left)
            left -= len(batch)
            freed.append(batch)
        return freed

    def checkpoint(self) -> Checkpoint:
        return Checkpoint(held=tuple(Held("input", batch) for batch in self._held))

    def restore(self, checkpoint: Checkpoint) -> bool:
        self._held = deque(held.batch for held in checkpoint.held)
        self._holds = self._taken = sum(map(len, self._held))
        return True
