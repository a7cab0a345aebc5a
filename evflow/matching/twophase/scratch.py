"""What one thread needs of its own while it matches, and what the phases hand on in it."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from evflow.matching.compare import number_holds, order, text_holds
from evflow.matching.native import compiled
from evflow.matching.rows import NUMBER, TEXT
from evflow.matching.twophase.compiled import Columns, Int, Rows, Words
from evflow.matching.twophase.predicates import EXISTS, NEVER, TEXTS


class Attribute(NamedTuple):
    """An attribute of an event: its kind, and its number, or where the bytes of its string stand."""

    kind: Int
    number: Any
    start: Int
    length: Int


@compiled
def order_of(chars: NDArray[np.uint8], at: Int, length: Int, words: Words, text: Int) -> Int:
    """Negative, 0 or positive as a string of an event stands before an operand, equals it, or behind it."""
    operand: Int = words.offsets[text]
    size: Int = words.offsets[text + 1] - operand
    return order(chars.ctypes.data + at, length, words.data.ctypes.data + operand, size)


@compiled
def satisfies(
    test: Int, number: Any, text: Int, words: Words, attribute: Attribute, chars: NDArray[np.uint8]
) -> Any:
    """Whether an attribute satisfies a test with an operand."""
    if test == EXISTS:
        return True
    if test < TEXTS:
        return attribute.kind == NUMBER and number_holds(test, attribute.number, number)
    if test == NEVER or attribute.kind != TEXT:
        return False
    operand: Int = words.offsets[text]
    size: Int = words.offsets[text + 1] - operand
    return text_holds(
        test - TEXTS,
        chars.ctypes.data + attribute.start,
        attribute.length,
        words.data.ctypes.data + operand,
        size,
    )


@compiled
def near(held: Columns, filter_: Int, place: NDArray[Any], event: Int) -> Any:
    """Whether an event's place lies in a filter's area, if there is one."""
    if math.isnan(held.centre[filter_, 0]):
        return True
    dx = place[event, 0] - held.centre[filter_, 0]
    dy = place[event, 1] - held.centre[filter_, 1]
    if held.centre.shape[1] == 2:
        return dx * dx + dy * dy <= held.reach[filter_]
    dz = place[event, 2] - held.centre[filter_, 2]
    return dx * dx + dy * dy + dz * dz <= held.reach[filter_]


@compiled
def read_event(events: Rows, event: Int, where: NDArray[np.int64]) -> None:
    """Notes at which row each attribute of an event stands."""
    for i in range(events.start[event], events.start[event + 1]):
        if events.name[i] < len(where):
            where[events.name[i]] = i


@compiled
def unread_event(events: Rows, event: Int, where: NDArray[np.int64]) -> None:
    """Undoes ``read_event``."""
    for i in range(events.start[event], events.start[event + 1]):
        if events.name[i] < len(where):
            where[events.name[i]] = -1


@compiled
def tested(held: Columns, filter_: Int, words: Words, events: Rows, where: NDArray[np.int64]) -> Any:
    """Whether the event that was read satisfies all constraints of a filter, one after the other."""
    for c in range(held.start[filter_], held.start[filter_ + 1]):
        i = where[held.name[c]]
        if i < 0:
            return False
        attribute = Attribute(
            np.int64(events.kind[i]), events.number[i], events.char_start[i], np.int64(events.char_length[i])
        )
        if not satisfies(held.test[c], held.number[c], held.text[c], words, attribute, events.chars):
            return False
    return True


BLOCK = 64
"""Events that go through one phase and then the other, so that what is between them stays in the cache."""


class Satisfied(NamedTuple):
    """Of the events of a block.

    Attributes:
        first: int32: the first predicate of each range, event after event.
        last: int32: the one behind the last of each range.
        start: int64, BLOCK + 1: where the ranges of an event start and end.
        attributes: int64, BLOCK: how many attributes of an event satisfied any predicate.
        seen: uint8: one a predicate, zeros except while a value is looked at.
    """

    first: NDArray[np.int32]
    last: NDArray[np.int32]
    start: NDArray[np.int64]
    attributes: NDArray[np.int64]
    seen: NDArray[np.uint8]


def room_for(predicates: int) -> Satisfied:
    """Room for some events; an event has as many ranges as there are predicates at most."""
    room = 2 * predicates + (1 << 14)
    return Satisfied(
        np.empty(room, np.int32),
        np.empty(room, np.int32),
        np.zeros(BLOCK + 1, np.int64),
        np.zeros(BLOCK, np.int64),
        np.zeros(predicates, np.uint8),
    )


@compiled
def append(first: Int, last: Int, firsts: NDArray[np.int32], lasts: NDArray[np.int32], n: Int) -> Int:
    """Appends a range unless it is empty; returns how many ranges there are."""
    # Without a branch, which is often predicted wrong. Unsigned, or numba tests whether it is less than zero.
    firsts[np.uintp(n)] = first
    lasts[np.uintp(n)] = last
    return n + (last > first)


@compiled
def emit(
    test: Int,
    first: Int,
    lower: Int,
    equal: Int,
    last: Int,
    firsts: NDArray[np.int32],
    lasts: NDArray[np.int32],
    n: Int,
) -> Int:
    """Appends what a value satisfies of a family, given its place among the operands.

    Args:
        test: the family's, which compares.
        first: its first predicate.
        lower: the first one whose operand is not less than the value.
        equal: 1 if that operand is the value, else 0.
        last: the predicate behind its last.
        firsts: of the ranges.
        lasts: of the ranges.
        n: how many ranges there are.

    Returns:
        How many ranges there are then.
    """
    op = test if test < TEXTS else test - TEXTS
    low = first if op == 1 or op >= 4 else lower + (equal if op == 2 else 0)
    high = last if 1 <= op <= 3 else lower + (0 if op == 4 else equal)
    if op == 1 and equal:
        n = append(first, lower, firsts, lasts, n)
        low = lower + 1
    return append(low, high, firsts, lasts, n)


SATISFIED, INCREMENTS, SCANNED, MATCHED = 0, 1, 2, 3
"""What is tallied: satisfied predicates, increments, counters reset and looked at, complete counters."""


class Scratch(NamedTuple):
    """Arrays of one thread.

    Attributes:
        counters: uint64: counters of one byte, eight in each.
        bytes: uint8: the same memory.
        hits: uint32: what counters were found to be complete.
        stamp: int64: one a subscription: the last event for which it was reported.
        where: int64: one an attribute: its row in the event that is read, or -1.
        ids: int32: the subscriptions found.
        mark: int64, 1: the number of the event.
        tally: int64, 4: what was counted.
    """

    counters: NDArray[np.uint64]
    bytes: NDArray[np.uint8]
    hits: NDArray[np.uint32]
    stamp: NDArray[np.int64]
    where: NDArray[np.int64]
    ids: NDArray[np.int32]
    mark: NDArray[np.int64]
    tally: NDArray[np.int64]


def new_scratch(counters: int, ids: int, names: int, subscriptions: int) -> Scratch:
    """Scratch for so many of each."""
    words = np.zeros(-(-counters // 64) * 8, np.uint64)
    return Scratch(
        words,
        words.view(np.uint8),
        np.zeros(counters, np.uint32),
        np.zeros(ids, np.int64),
        np.full(names, -1, np.int64),
        np.empty(subscriptions + (1 << 14), np.int32),
        np.zeros(1, np.int64),
        np.zeros(4, np.int64),
    )


@compiled
def report(held: Columns, filter_: Int, events: Rows, event: Int, scratch: Scratch, used: Int) -> Int:
    """Appends the subscription of a filter whose constraints hold, unless it is there or the place is not in
    the area.

    Returns:
        How many are there then.
    """
    subscription = held.subscription[filter_]
    if subscription < 0 or scratch.stamp[subscription] == scratch.mark[0]:
        return used
    if not near(held, filter_, events.place, event):
        return used
    scratch.stamp[subscription] = scratch.mark[0]
    scratch.ids[used] = subscription
    return used + 1


@compiled
def report_hits(held: Columns, events: Rows, event: Int, hits: Int, scratch: Scratch, used: Int) -> Int:
    """Reports the filters that are the first ``hits`` of ``scratch.hits``.

    They are collected first and reported then, so that what has to be fetched from memory for one does not
    wait for the one before.
    """
    scratch.tally[MATCHED] += hits
    for i in range(hits):
        used = report(held, np.int64(scratch.hits[i]), events, event, scratch, used)
    return used


@compiled
def begin_event(
    held: Columns,
    apart: NDArray[np.int32],
    words: Words,
    events: Rows,
    event: Int,
    scratch: Scratch,
    used: Int,
) -> Int:
    """Begins an event: appends what it satisfies of the filters that are tested one by one."""
    scratch.mark[0] += 1
    if len(apart):
        read_event(events, event, scratch.where)
        for i in range(len(apart)):
            if tested(held, apart[i], words, events, scratch.where):
                used = report(held, np.int64(apart[i]), events, event, scratch, used)
        unread_event(events, event, scratch.where)
    return used
