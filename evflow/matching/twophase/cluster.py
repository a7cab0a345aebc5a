"""Phase two by counting: a counter for each filter, incremented for each satisfied predicate that it has.

Then counters are compared with the numbers of predicates. They are bytes, and compared eight at once.
Counting with clustering puts filters in clusters by their number of predicates; without, all stand in one.

An event looks at those clusters only that have at most as many predicates as it may satisfy (two-phase paper,
section III B). The paper's predicates are about different attributes each, and an event's number is that of
its attributes. Here filters may test an attribute more than once, so both numbers are a cluster's key: its
attributes, compared with those of the event that satisfied anything, and its predicates, compared with those
satisfied.

Clusters follow one another by attributes, so those that an event looks at come first, and all counters of a
cluster are compared with one number. Counters are reset, incremented and compared part by part, at most
262,144 of them each, so that those in use stay in the cache.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from evflow.matching.native import compiled
from evflow.matching.twophase.compiled import Columns, Int, Rows, Words, kernel
from evflow.matching.twophase.predicates import UNREACHABLE, Pairs, stable_order
from evflow.matching.twophase.scratch import (
    INCREMENTS,
    SATISFIED,
    SCANNED,
    Satisfied,
    Scratch,
    begin_event,
    report_hits,
)

PART = 1 << 18
"""Counters of a part, unless lists by part would take more memory than what is in them."""

_ALIGNED = 64
"""Counters that are compared at once; clusters start at multiples."""


class ClusterArrays(NamedTuple):
    """K pieces of clusters, cut where parts end; P predicates; Q parts.

    Attributes:
        attributes: uint8, K, ascending: how many attributes a filter of the piece tests.
        needed: uint8, K: how many predicates it has; or one a counter, where all stand in one piece.
        start: int64, K: the counter of its first filter.
        size: int64, K: how many filters it has.
        piece: int64, Q + 1: where the pieces of each part start and end.
        filter: int32: the filter of each counter, or -1; empty if counters stand in the order of filters.
        list: int64, (Q, P + 1): where the list of a predicate in a part starts, and the one before ends.
        entry: uint32: counters, by their place in the part, ascending in a list.
        shape: int64, 2: counters of a part, clusters.
    """

    attributes: NDArray[np.uint8]
    needed: NDArray[np.uint8]
    start: NDArray[np.int64]
    size: NDArray[np.int64]
    piece: NDArray[np.int64]
    filter: NDArray[np.int32]
    list: NDArray[np.int64]
    entry: NDArray[np.uint32]
    shape: NDArray[np.int64]


_ONES = np.uint64(0x0101010101010101)
_TOPS = np.uint64(0x8080808080808080)


@compiled
def _any_zero_byte(word: np.uint64) -> np.uint64:
    """Not zero if and only if one of the eight bytes is zero."""
    return (word - _ONES) & ~word & _TOPS


@compiled
def _compare(clusters: ClusterArrays, k: Int, origin: Int, scratch: Scratch, hits: Int) -> Int:
    """Appends the complete counters of a piece to ``scratch.hits``; ``origin`` is the first of the part."""
    counters, whole, needed = scratch.bytes, scratch.counters, clusters.needed[k]
    start = clusters.start[k]
    size: Int = clusters.size[k]
    local = start - origin
    pattern = np.uint64(needed) * _ONES
    for chunk in range(0, size, _ALIGNED):
        hit, begin = np.uint64(0), (local + chunk) >> 3
        for word in range(np.uintp(begin), np.uintp(begin + 8)):
            hit |= _any_zero_byte(whole[word] ^ pattern)
        if hit == 0:
            continue
        for f in range(chunk, min(chunk + _ALIGNED, size)):
            if counters[local + f] == needed:
                scratch.hits[hits] = start + f
                hits += 1
    scratch.tally[SCANNED] += size
    return hits


@compiled
def _compare_each(clusters: ClusterArrays, scratch: Scratch) -> Int:
    """Writes the complete counters to ``scratch.hits``, if each has a number of its own; returns how many."""
    counters, whole, needed, hits = scratch.bytes, scratch.counters, clusters.needed, 0
    words, size = needed.view(np.uint64), clusters.size[0]
    for chunk in range(0, len(words), 8):
        hit = np.uint64(0)
        for word in range(np.uintp(chunk), np.uintp(chunk + 8)):
            hit |= _any_zero_byte(whole[word] ^ words[word])
        if hit == 0:
            continue
        for f in range(8 * chunk, min(8 * chunk + _ALIGNED, size)):
            if counters[f] == needed[f]:
                scratch.hits[hits] = f
                hits += 1
    scratch.tally[SCANNED] += size
    return hits


@compiled
def _increment_some(
    counters: NDArray[np.uint8],
    list_: NDArray[np.int64],
    entry: NDArray[np.uint32],
    first: Int,
    last: Int,
    limit: Int,
) -> Int:
    """Increments those counters of some predicates that are less than ``limit``; returns how many."""
    increments = 0
    for p in range(first, last):
        for j in range(np.uintp(list_[p]), np.uintp(list_[p + 1])):
            if entry[j] >= limit:
                break
            counters[entry[j]] += 1
            increments += 1
    return increments


@compiled
def _end_of_opened(clusters: ClusterArrays, part: Int, attributes: Int) -> Int:
    """The piece of a part behind the last that an event looks at, which satisfied so many attributes."""
    k, end = clusters.piece[part], clusters.piece[part + 1]
    if clusters.attributes[end - 1] <= attributes:
        return end
    while clusters.attributes[k] <= attributes:
        k += 1
    return k


@kernel
def cluster_matches(
    events: Rows,
    held: Columns,
    words: Words,
    clusters: ClusterArrays,
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
        clusters: the filters of each predicate.
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
    counters, tally, lists, entry = scratch.bytes, scratch.tally, clusters.list, clusters.entry
    starts, firsts, lasts, size = satisfied.start, satisfied.first, satisfied.last, clusters.shape[0]
    for e in range(event, stop):
        if used + most > len(scratch.ids):
            return e, used
        before = used
        used = begin_event(held, apart, words, events, e, scratch, used)
        true = increments = 0
        for i in range(starts[e - base], starts[e - base + 1]):
            true += lasts[i] - firsts[i]
        for part in range(len(clusters.piece) - 1):
            opened = _end_of_opened(clusters, part, satisfied.attributes[e - base])
            if opened == clusters.piece[part]:
                break
            whole = opened == clusters.piece[part + 1]
            limit = clusters.start[opened - 1] + clusters.size[opened - 1] - part * size
            scratch.counters[: ((limit + _ALIGNED - 1) // _ALIGNED) * 8] = 0
            list_ = lists[part]
            for i in range(starts[e - base], starts[e - base + 1]):
                if not whole:
                    increments += _increment_some(
                        counters, list_, entry, np.int64(firsts[i]), np.int64(lasts[i]), limit
                    )
                    continue
                # The lists of neighbours stand next to each other.
                begin, end = list_[firsts[i]], list_[lasts[i]]
                increments += end - begin
                for j in range(np.uintp(begin), np.uintp(end)):
                    counters[entry[j]] += 1
            hits = 0
            if len(clusters.needed) > len(clusters.size):
                hits = _compare_each(clusters, scratch)
            else:
                for k in range(clusters.piece[part], opened):
                    if clusters.needed[k] <= true:
                        hits = _compare(clusters, k, part * size, scratch, hits)
                for i in range(hits):
                    scratch.hits[i] = clusters.filter[scratch.hits[i]]
            used = report_hits(held, events, e, hits, scratch, used)
        tally[SATISFIED] += true
        tally[INCREMENTS] += increments
        counts[e] = used - before
    return stop, used


class Clusters:
    """The filters of each predicate by cluster."""

    match = staticmethod(cluster_matches)

    def __init__(self, pairs: Pairs) -> None:
        countable = np.flatnonzero(pairs.needed != UNREACHABLE)
        key = pairs.attributes[countable].astype(np.int32) * 256 + pairs.needed[countable]
        order = stable_order(key, 1 << 16)
        filters, key = countable[order].astype(np.int32), key[order]
        first = np.flatnonzero(np.diff(key, prepend=-1))
        sizes = np.diff(np.append(first, len(key)))
        rooms = -(-sizes // _ALIGNED) * _ALIGNED
        ends = np.cumsum(rooms)
        counter = np.arange(len(filters)) + np.repeat(ends - rooms - first, sizes)
        filter_of = np.full(int(rooms.sum()), -1, np.int32)
        filter_of[counter] = filters
        # At most as many parts as a predicate has filters, so that lists are not longer than what is in them.
        parts = max(1, min(-(-len(filter_of) // PART), len(pairs.filter) // max(pairs.predicates, 1)))
        part_size = max(-(-len(filter_of) // (parts * _ALIGNED)) * _ALIGNED, _ALIGNED)
        parts = -(-len(filter_of) // part_size)
        start, size, cluster = _pieces(ends - rooms, sizes, part_size)
        counter_of = np.zeros(len(pairs.needed), np.int64)
        counter_of[filters] = counter
        self.arrays = ClusterArrays(
            (key[first][cluster] >> 8).astype(np.uint8),
            (key[first][cluster] & 255).astype(np.uint8),
            start,
            size,
            np.searchsorted(start, np.arange(parts + 1) * part_size),
            filter_of,
            *_lists(pairs, counter_of[pairs.filter], part_size, parts),
            np.array([part_size, len(first)]),
        )

    @staticmethod
    def counters(arrays: ClusterArrays) -> int:
        """How many counters a thread needs."""
        return int(arrays.shape[0])

    @staticmethod
    def sizes(arrays: ClusterArrays) -> dict[str, int]:
        """What they are made of; to count, an event costs the filters of satisfied predicates, and all."""
        filters, clusters = int(arrays.size.sum()), int(arrays.shape[1])
        return {"filters": filters, "entries": len(arrays.entry), "clusters": clusters}


class Counters(Clusters):
    """The filters of each predicate, for counting without clusters."""

    def __init__(self, pairs: Pairs) -> None:
        size = len(pairs.needed)
        needed = np.full(-(-size // _ALIGNED) * _ALIGNED, UNREACHABLE, np.uint8)
        needed[:size] = pairs.needed
        begin, piece = np.zeros(1, np.int64), np.array([0, 1])
        whole, in_order, shape = np.array([size]), np.empty(0, np.int32), np.array([size, 1])
        lists = pairs.starts()[None], pairs.filter.astype(np.uint32)
        self.arrays = ClusterArrays(
            begin.astype(np.uint8), needed, begin, whole, piece, in_order, *lists, shape
        )


def _pieces(
    start: NDArray[np.int64], size: NDArray[np.int64], part_size: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.intp]]:
    """Cuts clusters where parts end: the first counter, the size and the cluster of each piece."""
    end = start + size
    pieces = (end - 1) // part_size - start // part_size + 1
    cluster = np.repeat(np.arange(len(start)), pieces)
    within = np.arange(len(cluster)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    begin = np.maximum(start[cluster], (start[cluster] // part_size + within) * part_size)
    stop = np.minimum(end[cluster], (begin // part_size + 1) * part_size)
    return begin, stop - begin, cluster


def _lists(
    pairs: Pairs, counter: NDArray[np.int64], part_size: int, parts: int
) -> tuple[NDArray[np.int64], NDArray[np.uint32]]:
    """The lists of predicates, part by part: ``list`` and ``entry`` of ``ClusterArrays``."""
    order = stable_order(counter, parts * part_size)
    order = order[stable_order(pairs.predicate[order], pairs.predicates)]
    if parts > 1:
        order = order[stable_order(counter[order] // part_size, parts)]
    width = pairs.predicates + 1
    place = counter // part_size * width + pairs.predicate
    lists = np.zeros(parts * width + 1, np.int64)
    np.cumsum(np.bincount(place, minlength=parts * width), out=lists[1:])
    return lists[:-1].reshape(parts, width), (counter[order] % part_size).astype(np.uint32)
