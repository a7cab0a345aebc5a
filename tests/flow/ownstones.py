"""Stones that are not evflow's own: as a user would write them, simple ones, and ones that fail."""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np

import evflow as ev
from evflow.schema import Schema
from evflow.stone import Acting, Actor, Checkpoint, Context, Held


class Rec(ev.Event):
    seq: int


class Half(ev.Event):
    half: float


class Halves(Acting):
    """What comes leaves by port 0, and half of each number by port 1."""

    linked_ports = "any"
    emits_by_port = True

    def emits(self, schema: Schema | None) -> tuple[Schema | None, ...]:
        return (schema, Half.schema)

    def open(self, context: Context) -> Actor:
        return _Halves(context)


class _Halves(Actor):
    def receive(self, batch: ev.EventBatch, input: str) -> None:
        self.context.emit(batch)
        self.context.emit(ev.EventBatch.from_columns(Half, {"half": batch["seq"] / 2}), 1)


class Every(Acting):
    """Lets every nth event through; it goes on counting wherever it moves to."""

    def __init__(self, nth: int, *, name: str | None = None, on: str | None = None) -> None:
        super().__init__(name=name, on=on)
        if nth < 1:
            raise ev.GraphError(f"nth {nth}: expected 1 or more")
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
        numbers = np.arange(self._seen, self._seen + len(batch))
        self._seen += len(batch)
        self.context.emit(batch.take(np.flatnonzero(numbers % self._nth == self._nth - 1)))

    def checkpoint(self) -> Checkpoint:
        return Checkpoint(state=np.frombuffer(self._seen.to_bytes(8, "little"), np.uint8))

    def restore(self, checkpoint: Checkpoint) -> bool:
        if checkpoint.state is not None:
            self._seen = int.from_bytes(checkpoint.state.tobytes(), "little")
        return not checkpoint.held


class Last(Acting):
    """Holds the newest ``count`` events back; what they push out goes on."""

    kind = "last few"

    def __init__(self, count: int, *, name: str | None = None, on: str | None = None) -> None:
        super().__init__(name=name, on=on)
        self.count = count

    def settings(self) -> dict[str, Any]:
        return {"count": self.count}

    def open(self, context: Context) -> Actor:
        return _Last(context, self.count)


class _Last(Actor):
    def __init__(self, context: Context, count: int) -> None:
        super().__init__(context)
        self._count = count
        self._held: deque[ev.EventBatch] = deque()
        self._taken = 0

    def receive(self, batch: ev.EventBatch, input: str) -> None:
        self._taken += len(batch)
        self._held.extend(batch.slice(i, i + 1) for i in range(len(batch)))
        while len(self._held) > self._count:
            self.context.emit(self._held.popleft())

    @property
    def queued(self) -> int:
        return len(self._held)

    @property
    def taken(self) -> int:
        return self._taken

    @property
    def oldest(self) -> int:
        return self._taken - len(self._held)

    def extract(self, count: int | None = None) -> list[ev.EventBatch]:
        most = len(self._held) if count is None else min(count, len(self._held))
        return [self._held.popleft() for _ in range(most)]

    def checkpoint(self) -> Checkpoint:
        return Checkpoint(tuple(Held("input", batch) for batch in self._held))

    def restore(self, checkpoint: Checkpoint) -> bool:
        self._held.extend(held.batch for held in checkpoint.held)
        self._taken = len(self._held)
        return True


class AtLeast(ev.Filter):
    """One that derives from a stone of evflow's own."""

    kind = "at least"

    def __init__(self, least: int, *, name: str | None = None, on: str | None = None) -> None:
        super().__init__(f"input.seq >= {least}", name=name, on=on)
        self.least = least

    def settings(self) -> dict[str, Any]:
        return {"least": self.least}

    @classmethod
    def from_settings(cls, settings: Any) -> AtLeast:
        return cls(settings["least"])


def a_function() -> None:
    """No stone."""
