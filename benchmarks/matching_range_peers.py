"""Peers for subscriptions made of ranges, each in its plain form, compiled by numba: they take one event at a
time.

- scan: one filter after another, each until a range fails.
- counting: every range on an attribute of the event is tried, and those that hold are counted a filter (Yan
  and Garcia-Molina, Index structures for selective dissemination of information, TODS 1994).
- bitmaps: a row of bits for each bucket of values says which filters may hold; an event ands a row of each
  attribute, and what is left is tested. Left out where it takes more than ``ROOM``.
- REIN: the ends of ranges stand in buckets of values, and an event marks the filters of all ranges that it
  misses; those without a mark match (Qian, Cao, Zhu, Yu, Li, Wang: REIN: a fast event matching approach for
  content-based publish/subscribe systems, INFOCOM 2014).
- TAMA: a range stands in the cells that cover it, of a table that halves the values from level to level; an
  event visits a cell of each level and counts (Zhao, Wu: Towards approximate event processing in a
  large-scale content-based network, ICDCS 2011). The cells at the ends of a range hold more than it does, so
  what is counted is tested: the paper's answer is approximate, this one is not.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from matching_workloads import Array, starts
from numba import njit

VALUES = 100_000
"""Values are whole numbers from 0 on."""
BUCKETS = 32
ROOM = 1 << 28
"""Bytes that bitmaps may take."""
_LINE = 64
"""Words that are anded before others are looked at."""
ENDS = 1000
"""Buckets of REIN."""
LEVELS = 10
"""How often TAMA halves the values."""
_CELLS = 1 << LEVELS


def peers(start: Array, ranges: Array, attributes: int) -> dict[str, Callable[[Array], Array]]:
    """What gives the filters that an event satisfies, ascending, by the name of the method.

    Args:
        start: int64, N + 1: where the ranges of a filter start and end.
        ranges: int32, (C, 3): the attribute, the least and the largest value.
        attributes: how many values an event has; a negative one is lacking.
    """
    filters = len(start) - 1
    out = np.empty(filters, np.int32)
    found: dict[str, Callable[[Array], Array]] = {
        "scan": lambda event: out[: scan(start, ranges, event, out)]
    }
    owner = np.repeat(np.arange(filters, dtype=np.int32), np.diff(start))
    order = np.argsort(ranges[:, 0], kind="stable")
    first = starts(np.bincount(ranges[:, 0], minlength=attributes))
    sorted_owner, sorted_ranges = owner[order], ranges[order]
    needed, counts = np.diff(start).astype(np.int32), np.empty(filters, np.int32)
    found["counting"] = lambda event: out[
        : _count(first, sorted_owner, sorted_ranges, needed, event, counts, out)
    ]
    words = (filters + 63) // 64
    if attributes * (BUCKETS + 1) * words * 8 <= ROOM:
        rows = np.full((attributes, BUCKETS + 1, words), -1, np.int64)
        _clear(owner, ranges, rows)
        found["bitmaps"] = lambda event: out[: _sift(start, ranges, rows, event, out)]
    lows, highs = (_in_buckets(owner, ranges[:, 0], ranges[:, end], attributes) for end in (1, 2))
    marks = np.empty((filters + 63) // 64, np.uint64)
    found["REIN"] = lambda event: out[: _unmarked(lows, highs, event, marks, out)]
    bounds = starts(_cells(ranges, np.zeros(2 * _CELLS * attributes, np.int64)))
    members = np.empty(int(bounds[-1]), np.int32)
    _fill(owner, ranges, bounds[:-1].copy(), members)
    few, tallies = needed.astype(np.uint8), np.empty(filters, np.uint8)
    found["TAMA"] = lambda event: out[: _visit(bounds, members, few, start, ranges, event, tallies, out)]
    return found


def _in_buckets(owner: Array, attribute: Array, value: Array, attributes: int) -> tuple[Array, Array, Array]:
    """One end of ranges by attribute and bucket: where a bucket starts, the values, and their filters."""
    bucket = attribute.astype(np.int64) * ENDS + value.astype(np.int64) * ENDS // VALUES
    order = np.argsort(bucket, kind="stable")
    return starts(np.bincount(bucket, minlength=attributes * ENDS)), value[order], owner[order]


@njit
def _holds(start: Array, ranges: Array, event: Array, i: int) -> bool:
    for j in range(start[i], start[i + 1]):
        value = event[ranges[j, 0]]
        if value < ranges[j, 1] or value > ranges[j, 2]:
            return False
    return True


@njit
def scan(start: Array, ranges: Array, event: Array, out: Array) -> int:
    """Writes to ``out`` the filters that an event satisfies; how many. The others are as for ``peers``."""
    found = 0
    for i in range(len(start) - 1):
        if _holds(start, ranges, event, i):
            out[found] = i
            found += 1
    return found


@njit
def _count(
    first: Array, owner: Array, ranges: Array, needed: Array, event: Array, counts: Array, out: Array
) -> int:
    counts[:] = 0
    for attribute in range(len(first) - 1):
        value = event[attribute]
        if value >= 0:
            for j in range(first[attribute], first[attribute + 1]):
                counts[owner[j]] += ranges[j, 1] <= value <= ranges[j, 2]
    found = 0
    for i in range(len(needed)):
        if counts[i] == needed[i]:
            out[found] = i
            found += 1
    return found


@njit
def _bucket(value: int) -> int:
    return value * BUCKETS // VALUES


@njit
def _clear(owner: Array, ranges: Array, rows: Array) -> None:
    """Clears the bits of filters in rows whose values they do not accept; the last one is of no value."""
    for j in range(len(ranges)):
        attribute, low, high = ranges[j]
        word, bit = owner[j] >> 6, np.int64(1) << (owner[j] & 63)
        for bucket in range(BUCKETS + 1):
            if not _bucket(low) <= bucket <= _bucket(high) or bucket == BUCKETS:
                rows[attribute, bucket, word] &= ~bit


@njit
def _sift(start: Array, ranges: Array, rows: Array, event: Array, out: Array) -> int:
    found, filters = 0, len(start) - 1
    line = np.empty(_LINE, np.int64)
    for begin in range(0, rows.shape[2], _LINE):
        count = min(_LINE, rows.shape[2] - begin)
        line[:] = -1
        for attribute in range(len(event)):
            value = event[attribute]
            row = rows[attribute, _bucket(value) if value >= 0 else BUCKETS]
            for word in range(count):
                line[word] &= row[begin + word]
        for word in range(count):
            left = line[word]
            i = 64 * (begin + word)
            while left and i < filters:
                if left & 1 and _holds(start, ranges, event, i):
                    out[found] = i
                    found += 1
                left = (left >> 1) & 0x7FFFFFFFFFFFFFFF
                i += 1
    return found


@njit
def _mark(marks: Array, owner: Array, first: int, stop: int) -> None:
    for j in range(first, stop):
        marks[owner[j] >> 6] |= np.uint64(1) << np.uint64(owner[j] & 63)


@njit
def _unmarked(
    lows: tuple[Array, ...], highs: tuple[Array, ...], event: Array, marks: Array, out: Array
) -> int:
    low_start, low, low_owner = lows
    high_start, high, high_owner = highs
    marks[:] = 0
    for attribute in range(len(event)):
        value, first, last = event[attribute], attribute * ENDS, (attribute + 1) * ENDS
        if value < 0:
            _mark(marks, low_owner, low_start[first], low_start[last])
            continue
        bucket = first + value * ENDS // VALUES
        _mark(marks, low_owner, low_start[bucket + 1], low_start[last])
        _mark(marks, high_owner, high_start[first], high_start[bucket])
        for j in range(low_start[bucket], low_start[bucket + 1]):
            if low[j] > value:
                _mark(marks, low_owner, j, j + 1)
        for j in range(high_start[bucket], high_start[bucket + 1]):
            if high[j] < value:
                _mark(marks, high_owner, j, j + 1)
    found = 0
    for word in range(len(marks)):
        left = ~marks[word]
        i = 64 * word
        while left and i < len(out):
            if left & np.uint64(1):
                out[found] = i
                found += 1
            left >>= np.uint64(1)
            i += 1
    return found


@njit
def _cover(low: int, high: int, cells: Array) -> int:
    """Writes the cells that cover a range, which are numbered as the nodes of a heap; how many."""
    left, right, count = low * _CELLS // VALUES + _CELLS, high * _CELLS // VALUES + _CELLS + 1, 0
    while left < right:
        if left & 1:
            cells[count] = left
            left, count = left + 1, count + 1
        if right & 1:
            right -= 1
            cells[count] = right
            count += 1
        left, right = left >> 1, right >> 1
    return count


@njit
def _cells(ranges: Array, counts: Array) -> Array:
    """Counts the ranges of each cell of each attribute."""
    cells = np.empty(2 * LEVELS + 2, np.int64)
    for attribute, low, high in ranges:
        for k in range(_cover(low, high, cells)):
            counts[2 * _CELLS * attribute + cells[k]] += 1
    return counts


@njit
def _fill(owner: Array, ranges: Array, ends: Array, members: Array) -> None:
    """Writes the filters of each cell; ``ends`` is where the next one of a cell goes."""
    cells = np.empty(2 * LEVELS + 2, np.int64)
    for j in range(len(ranges)):
        attribute, low, high = ranges[j]
        for k in range(_cover(low, high, cells)):
            at = 2 * _CELLS * attribute + cells[k]
            members[ends[at]] = owner[j]
            ends[at] += 1


@njit
def _visit(
    bounds: Array, members: Array, needed: Array, start: Array, ranges: Array, event: Array, tallies: Array,
    out: Array,
) -> int:  # fmt: skip
    tallies[:] = 0
    for attribute in range(len(event)):
        cell = event[attribute] * _CELLS // VALUES + _CELLS if event[attribute] >= 0 else 0
        while cell:
            at = 2 * _CELLS * attribute + cell
            for j in range(bounds[at], bounds[at + 1]):
                tallies[members[j]] += 1
            cell >>= 1
    found = 0
    for i in range(len(needed)):
        if tallies[i] == needed[i] and _holds(start, ranges, event, i):
            out[found] = i
            found += 1
    return found
