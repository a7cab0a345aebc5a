"""Handlers that return only when the test lets them, and graphs with one terminal."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import evflow as ev

__all__ = ["Gate", "Rec", "Small", "columns_of", "handled", "opened", "terminal_graph"]


class Rec(ev.Event):
    """An event with fields of many types."""

    key: int
    seq: int
    word: ev.Str[8] = ""
    text: str = ""
    data: bytes = b""
    sure: bool = False
    price: float = 0.0
    maybe: int | None = None
    values: ev.Array[ev.f64, 2] | None = None


class Small(ev.Event):
    """An event without a key."""

    seq: int


class Gate:
    """A handler that notes each event's number, and returns from it only when it may.

    Attributes:
        begun: numbers of which the handling has begun, in order; ``ended`` those where it has ended.
        most: handlers that were at work at once.
    """

    def __init__(self, shut: bool = True) -> None:
        self.begun: list[int] = []
        self.ended: list[int] = []
        self.most = 0
        self._at_work = 0
        self._passes = 0
        self._open = not shut
        self._changed = threading.Condition()

    def __call__(self, event: Any) -> None:
        with self._changed:
            self.begun.append(event.seq)
            self._at_work += 1
            self.most = max(self.most, self._at_work)
            if not self._changed.wait_for(lambda: self._open or event.seq in self._passing(), 60):
                raise AssertionError("the test did not open the gate")
            self._at_work -= 1
            self.ended.append(event.seq)

    def _passing(self) -> list[int]:
        return self.begun[: self._passes]

    def let(self, count: int) -> None:
        """Lets so many more pass, those that began first."""
        with self._changed:
            self._passes += count
            self._changed.notify_all()

    def open(self) -> None:
        """Lets all pass."""
        with self._changed:
            self._open = True
            self._changed.notify_all()


@contextmanager
def opened(*gates: Gate) -> Iterator[None]:
    """Opens the gates at the end, whatever happens."""
    try:
        yield
    finally:
        for gate in gates:
            gate.open()


def terminal_graph(handler: Any, *sources: str, **settings: Any) -> ev.Graph:
    """Sources that all lead to one terminal, ``end``."""
    g = ev.Graph()
    end = g.add(ev.Terminal(handler, name="end", **settings))
    for name in sources or ("recs",):
        g.source(name, Rec) >> end
    return g


def columns_of(keys: list[int], first: int = 0) -> dict[str, list[int]]:
    """Events with these keys, numbered from ``first``."""
    return {"key": keys, "seq": list(range(first, first + len(keys)))}


def handled(flow: ev.Flow) -> tuple[int, int, int]:
    """Of the terminal the events that came, those that failed, and those that it holds."""
    stats = flow.stats()["end"]
    return int(stats["in"]), int(stats["errors"]), int(stats["queued"])
