"""Many events in parallel, each matched by one thread (ME-IP, two-phase paper, section IV).

Events are cut to pieces, and each thread takes the next piece when it is done with one. Kernels release the
interpreter's lock. A thread has counters of its own, so nothing is shared that is written to.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evflow.events.gather import starts_of
from evflow.matching.engine import Matches
from evflow.matching.twophase.compiled import Rows, Words
from evflow.matching.twophase.held import Held
from evflow.matching.twophase.satisfied import BLOCK, Satisfied, room_for
from evflow.matching.twophase.scratch import Scratch, new_scratch

__all__ = ["Run", "run_parallel"]

_PIECES = 4
"""Pieces for each thread, so that none waits long for the last."""


@dataclass(frozen=True, slots=True)
class Run:
    """Both phases over some events.

    Attributes:
        find: the kernel of phase one.
        match: the kernel of phase two.
        events: the events.
        words: operands that are strings.
        held: the filters.
        one: the arrays of phase one.
        two: the arrays of phase two.
        apart: filters that are tested one by one.
        predicates: how many predicates there are.
        counters: how many counters a thread needs.
        free: scratch that no thread uses now; made for these structures.
    """

    find: Callable[..., int]
    match: Callable[..., tuple[int, int]]
    events: Rows
    words: Words
    held: Held
    one: Any
    two: Any
    apart: NDArray[np.int32]
    predicates: int
    counters: int
    free: list[tuple[Satisfied, Scratch]]

    def piece(
        self, begin: int, end: int, counts: NDArray[np.int64]
    ) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """Events ``begin`` up to ``end``: the ids that they match, and what was counted."""
        satisfied, scratch = self._scratch()
        held, most = self.held.columns, self.held.live
        found: list[NDArray[np.int32]] = []
        used = 0
        while begin < end:
            stop = self.find(self.events, self.words, self.one, begin, min(begin + BLOCK, end), satisfied)
            at = begin
            while at < stop:
                at, used = self.match(
                    self.events, held, self.words, self.two, self.apart, satisfied, begin, at, stop, scratch,
                    used, most, counts,
                )  # fmt: skip
                if at < stop:
                    found.append(scratch.ids[:used].copy())
                    used = 0
            begin = stop
        found.append(scratch.ids[:used].copy())
        tally = scratch.tally.copy()
        scratch.tally[:] = 0
        self.free.append((satisfied, scratch))
        return np.concatenate(found), tally

    def _scratch(self) -> tuple[Satisfied, Scratch]:
        try:
            return self.free.pop()
        except IndexError:
            held = self.held
            scratch = new_scratch(self.counters, len(held.first), held.names, held.live)
            return room_for(self.predicates), scratch


def run_parallel(run: Run, events: int, threads: int) -> tuple[Matches, NDArray[np.int64]]:
    """Matches events on several threads; the result does not depend on how many."""
    counts = np.zeros(events, np.int64)
    if threads <= 1 or events <= 1:
        parts = [run.piece(0, events, counts)]
    else:
        bounds = np.linspace(0, events, min(threads * _PIECES, events) + 1).astype(int).tolist()
        with ThreadPoolExecutor(threads, thread_name_prefix="two-phase") as pool:
            parts = list(pool.map(lambda a, b: run.piece(a, b, counts), bounds[:-1], bounds[1:]))
    tally = np.sum([part[1] for part in parts], axis=0)
    return Matches(starts_of(counts), np.concatenate([part[0] for part in parts])), tally
