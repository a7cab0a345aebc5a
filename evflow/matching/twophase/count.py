"""Phase two by counting: a counter for each filter, incremented for each of its predicates that is satisfied.

Then all counters are compared with the numbers of predicates. Counters are bytes and compared eight at once.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from evflow.matching.twophase.compiled import Columns, Int, Rows, Words, compiled, kernel
from evflow.matching.twophase.predicates import Pairs
from evflow.matching.twophase.scratch import (
    INCREMENTS,
    SATISFIED,
    SCANNED,
    Satisfied,
    Scratch,
    begin_event,
    report_hits,
)


class CounterArrays(NamedTuple):
    """P predicates and F filters.

    Attributes:
        start: int64, P + 1: where the filters of a predicate start and end.
        filter: uint32: the filters that have it.
        needed: uint64: the number of predicates of each filter, eight in each.
        size: int64, 1: F.
    """

    start: NDArray[np.int64]
    filter: NDArray[np.uint32]
    needed: NDArray[np.uint64]
    size: NDArray[np.int64]


_ONES = np.uint64(0x0101010101010101)
_TOPS = np.uint64(0x8080808080808080)


@compiled
def any_zero_byte(word: np.uint64) -> np.uint64:
    """Not zero if and only if one of the eight bytes is zero."""
    return (word - _ONES) & ~word & _TOPS


@kernel
def count_matches(
    events: Rows,
    held: Columns,
    words: Words,
    lists: CounterArrays,
    apart: NDArray[np.int32],
    satisfied: Satisfied,
    base: Int,
    event: Int,
    stop: Int,
    scratch: Scratch,
    used: Int,
    most: Int,
    counts: NDArray[np.int64],
) -> tuple[Int, Int]:
    """Phase two for events from ``event`` up to ``stop``.

    Args:
        events: the events.
        held: the filters.
        words: operands that are strings.
        lists: the filters of each predicate.
        apart: filters that no counter stands for.
        satisfied: what phase one found.
        base: the first event that it holds.
        event: the first event.
        stop: the one behind the last.
        scratch: of this thread.
        used: how many subscriptions stand in it.
        most: how many an event may match.
        counts: how many each event matched, by its number.

    Returns:
        The event that there is no more room for, or ``stop``; how many subscriptions there are.
    """
    counters, whole, tally = scratch.bytes, scratch.counters, scratch.tally
    list_start, list_filter, needed_by = lists.start, lists.filter, lists.needed
    starts, firsts, lasts, size = satisfied.start, satisfied.first, satisfied.last, lists.size[0]
    for e in range(event, stop):
        if used + most > len(scratch.ids):
            return e, used
        before = used
        used = begin_event(held, apart, words, events, e, scratch, used)
        whole[: len(needed_by)] = 0
        true = increments = 0
        for i in range(starts[e - base], starts[e - base + 1]):
            # The lists of neighbours stand next to each other.
            start, end = list_start[firsts[i]], list_start[lasts[i]]
            true += lasts[i] - firsts[i]
            increments += end - start
            for j in range(np.uintp(start), np.uintp(end)):
                counters[list_filter[j]] += 1
        hits = 0
        for chunk in range(0, len(needed_by), 8):
            hit = np.uint64(0)
            for word in range(np.uintp(chunk), np.uintp(chunk + 8)):
                hit |= any_zero_byte(whole[word] ^ needed_by[word])
            if hit == 0:
                continue
            needed = needed_by[chunk : chunk + 8].view(np.uint8)
            for f in range(8 * chunk, min(8 * chunk + 64, size)):
                if counters[f] == needed[f - 8 * chunk]:
                    scratch.hits[hits] = f
                    hits += 1
        used = report_hits(held, events, e, hits, scratch, used)
        tally[SATISFIED] += true
        tally[INCREMENTS] += increments
        tally[SCANNED] += size
        counts[e] = used - before
    return stop, used


class Counters:
    """The filters of each predicate, for counting."""

    kind = CounterArrays
    match = staticmethod(count_matches)

    def __init__(self, pairs: Pairs) -> None:
        size = len(pairs.needed)
        needed = np.full(-(-size // 64) * 64, 255, np.uint8)
        needed[:size] = pairs.needed
        self.arrays = CounterArrays(
            pairs.starts(), pairs.filter.astype(np.uint32), needed.view(np.uint64), np.array([size])
        )

    @staticmethod
    def counters(arrays: CounterArrays) -> int:
        """How many counters a thread needs."""
        return int(arrays.size[0])

    @staticmethod
    def sizes(arrays: CounterArrays) -> dict[str, int]:
        """What the lists are made of: an event costs its satisfied predicates' filters, and F, to count."""
        return {"filters": int(arrays.size[0]), "entries": len(arrays.filter), "clusters": 1}
