"""What phase one hands to phase two: the predicates that each event of a block satisfies, as ranges."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from evflow.matching.twophase.compiled import Int, compiled
from evflow.matching.twophase.predicates import TEXTS

__all__ = ["BLOCK", "Satisfied", "append", "emit", "room_for"]

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
