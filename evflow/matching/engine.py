"""What the matcher asks of an engine, and the table of engines."""

from __future__ import annotations

import importlib
import os
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import CancelledError, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from evflow.events.gather import starts_of

if TYPE_CHECKING:
    from evflow.matching.moving import Moves
    from evflow.matching.rows import EventRows, Filters
    from evflow.matching.strings import Strings


ENGINES: dict[str, str] = {
    "index": "evflow.matching.index.engine:Index",
    "reference": "evflow.matching.reference:Reference",
    "two-phase": "evflow.matching.twophase.engine:TwoPhase",
    "ccm": "evflow.gpu.ccm:Ccm",
    "clcb": "evflow.gpu.clcb:Clcb",
    "clcb-grid": "evflow.gpu.grid:Grid",
    "auto": "evflow.gpu.auto:Auto",
}
"""Every engine and where its class is; imported on use."""

STATES = ("enter", "inside", "leave")
"""What a subscription may be to an event that is tracked; see ``evflow.matching.tracking``."""


@dataclass(frozen=True, slots=True)
class Matches:
    """The subscriptions that N events satisfy; each once an event, in no order.

    Attributes:
        offsets: int64, N + 1: where the ids of an event start and end.
        ids: int32: ids of subscriptions.
    """

    offsets: NDArray[np.int64]
    ids: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, event: int) -> NDArray[np.int32]:
        """The ids of one event, as a view."""
        if not -len(self) <= event < len(self):
            raise IndexError(f"event {event}: there are {len(self)}")
        event %= len(self)
        return self.ids[self.offsets[event] : self.offsets[event + 1]]


class Engine(Protocol):
    """Decides which subscriptions an event satisfies.

    The matcher lets several threads in ``match`` at once, and one alone in everything else. It gives valid
    input only: ids that are free to ``add``, ids that are there to ``remove`` and ``move``, filters that have
    an area. One that has ``move_one`` too is asked to make moves later than they were called, and passes by
    filters that are gone by then. One that has ``arranging`` is asked to ``arrange`` its filters anew, alone,
    once ``arranging.better`` is true or its ``weigh`` says so of a batch.
    """

    def __init__(self, strings: Strings, dimensions: int, **options: Any) -> None:
        """An engine without subscriptions, on the plane (2 dimensions) or the globe (3)."""

    def add(self, filters: Filters) -> None:
        """Take these in; all filters of a subscription come in one call."""

    def remove(self, ids: NDArray[np.int32]) -> None:
        """Forget subscriptions with all their filters."""

    def move(self, moves: Moves) -> None:
        """Give filters other areas."""

    def match(self, events: EventRows, threads: int = 1) -> Matches:
        """What these events satisfy."""

    def memory(self) -> Mapping[str, int]:
        """Bytes held, by what for."""

    def save(self, folder: Path) -> None:
        """Write all state to files in ``folder``, which is empty."""

    def load(self, folder: Path) -> None:
        """Take the state that ``save`` wrote, mapped copy-on-write: processes share what none changes."""


def engine_class(name: str) -> type[Engine]:
    """The class of an engine by its name in ``ENGINES``."""
    module, _, attribute = ENGINES[name].partition(":")
    kind: type[Engine] = getattr(importlib.import_module(module), attribute)
    return kind


def in_pieces(match: Callable[[int, int], Matches], events: int, threads: int, pieces: int) -> Matches:
    """What events satisfy, piece by piece, on several threads.

    Args:
        match: matches the events from a first up to a last one; it mostly releases the interpreter's lock.
        events: how many there are.
        threads: how many may work at once.
        pieces: how many pieces to cut them to; a thread takes the next when it is done with one.
    """
    pieces = min(pieces, events)
    if threads <= 1 or pieces <= 1:
        return match(0, events)
    bounds = [events * i // pieces for i in range(pieces + 1)]
    pool = _pool(threads)
    over, running = threading.Event(), set[int]()

    def piece(start: int, stop: int) -> Matches:
        running.add(start)
        try:
            if over.is_set():
                raise CancelledError
            return match(start, stop)
        finally:
            running.discard(start)

    try:
        futures = [pool.submit(piece, start, stop) for start, stop in pairwise(bounds)]
        wait(futures)
    finally:
        # None may go on once the caller lets others change subscriptions, even if this thread is interrupted.
        over.set()
        while running:
            with suppress(KeyboardInterrupt):
                time.sleep(1e-3)
    parts = [future.result() for future in futures]
    counts = np.concatenate([np.diff(part.offsets) for part in parts])
    return Matches(starts_of(counts), np.concatenate([part.ids for part in parts]))


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    """Threads that all engines share."""
    return ThreadPoolExecutor(threads, "evflow-matching")


# A fork has none of the threads.
os.register_at_fork(after_in_child=_pool.cache_clear)


@dataclass(frozen=True, slots=True)
class Stats:
    """What a matcher holds and has done.

    Attributes:
        engine: the name of the engine.
        subscriptions, filters, constraints: how many there are.
        names, strings: how many different ones constraints have used so far.
        events: how many have been matched.
        matches: how many ids that gave.
        memory: bytes, by what they are for; those of the engine begin with ``engine.``.
        details: what the engine tells of itself.
    """

    engine: str
    subscriptions: int
    filters: int
    constraints: int
    names: int
    strings: int
    events: int
    matches: int
    memory: Mapping[str, int]
    details: Mapping[str, Any]
