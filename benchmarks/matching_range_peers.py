"""Peers for subscriptions made of ranges, each in its plain form, compiled by numba: they take one event at a
time.

- scan: one filter after another, each until a range fails.
- counting: every range on an attribute of the event is tried, and those that hold are counted a filter (Yan
  and Garcia-Molina, Index structures for selective dissemination of information, TODS 1994).
- bitmaps: a row of bits for each bucket of values says which filters may hold; an event ands a row of each
  attribute, and what is left is tested. Left out where it takes more than ``ROOM``.
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
    return found


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
