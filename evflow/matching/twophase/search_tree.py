"""Phase one by a parallel search tree: attribute, then operator, then value (two-phase paper, section III D).

The tree that Gryphon matches with, three levels deep: under the root a node for each attribute, under it one
for each of its tests, under that one for each operand; these are the predicates. A node holds a whole name or
value, and children are ordered, so that one is found by halving. Siblings stand next to each other in arrays;
a node is its place there.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from evflow.matching.rows import NUMBER, TEXT
from evflow.matching.strings import Strings
from evflow.matching.twophase.compiled import Int, Rows, Words, compiled, kernel
from evflow.matching.twophase.decide import Attribute, order_of, satisfies
from evflow.matching.twophase.predicates import EXISTS, PREFIX, TEXTS, Arranged, Families
from evflow.matching.twophase.scratch import Satisfied, append, emit


class SearchTreeArrays(NamedTuple):
    """A attributes, F tests and P operands.

    Attributes:
        name: int32, A: the attributes, ascending.
        branch: int32, A + 1: where the tests of an attribute start and end.
        test: uint8, F.
        first: int32, F + 1: where the operands of a test start and end.
        number: float64, P: the operand where it is a number.
        text: int32, P: the operand where it is a string.
    """

    name: NDArray[np.int32]
    branch: NDArray[np.int32]
    test: NDArray[np.uint8]
    first: NDArray[np.int32]
    number: NDArray[np.float64]
    text: NDArray[np.int32]


@compiled
def emit_family(
    test: Int,
    first: Int,
    last: Int,
    skip: Int,
    number: NDArray[np.float64],
    text: NDArray[np.int32],
    words: Words,
    attribute: Attribute,
    chars: NDArray[np.uint8],
    firsts: NDArray[np.int32],
    lasts: NDArray[np.int32],
    n: Int,
) -> Int:
    """Appends what an attribute satisfies of predicates ``first`` up to ``last``, whose operands are in
    order.

    Args:
        test: their test.
        first: the first.
        last: the one behind the last.
        skip: the predicate that the first operand belongs to.
        number: operands that are numbers.
        text: operands that are strings.
        words: their bytes.
        attribute: the attribute.
        chars: the bytes of its string.
        firsts: of the ranges of what is satisfied.
        lasts: likewise.
        n: how many ranges there are.

    Returns:
        How many ranges there are then.
    """
    if test >= PREFIX:
        if test == EXISTS or attribute.kind == TEXT:
            for p in range(first, last):
                if satisfies(test, 0.0, text[p - skip], words, attribute, chars):
                    n = append(p, p + 1, firsts, lasts, n)
        return n
    if attribute.kind != (NUMBER if test < TEXTS else TEXT):
        return n
    value = attribute.number
    if test < TEXTS and value != value:
        return emit(test, first, last, 0, last, firsts, lasts, n) if test == 1 else n
    at, length = attribute.start, attribute.length
    low, high = first, last
    while low < high:
        middle = (low + high) >> 1
        if test < TEXTS:
            # NaN, the last operand, is less than nothing.
            less = number[middle - skip] < value
        else:
            less = order_of(chars, at, length, words, text[middle - skip]) > 0
        if less:
            low = middle + 1
        else:
            high = middle
    equal = 0
    if low < last:
        if test < TEXTS:
            equal = int(number[low - skip] == value)
        else:
            equal = int(order_of(chars, at, length, words, text[low - skip]) == 0)
    return emit(test, first, low, equal, last, firsts, lasts, n)


@kernel
def find_in_tree(
    events: Rows, words: Words, tree: SearchTreeArrays, event: Int, stop: Int, satisfied: Satisfied
) -> Int:
    """Phase one for events from ``event`` up to ``stop``; returns the event it came to."""
    firsts, lasts, starts, n, base = satisfied.first, satisfied.last, satisfied.start, 0, event
    names, branch, tests, begins = tree.name, tree.branch, tree.test, tree.first
    number, text, chars = tree.number, tree.text, events.chars
    event_names, event_start, kinds, numbers = events.name, events.start, events.kind, events.number
    char_starts, char_lengths = events.char_start, events.char_length
    starts[0] = 0
    for e in range(event, stop):
        if n + len(number) >= len(firsts):
            return e
        attributes = 0
        for i in range(event_start[e], event_start[e + 1]):
            name, before = event_names[i], n
            low, high = 0, len(names)
            while low < high:
                middle = (low + high) >> 1
                if names[middle] < name:
                    low = middle + 1
                else:
                    high = middle
            if low == len(names) or names[low] != name:
                continue
            attribute = Attribute(np.int64(kinds[i]), numbers[i], char_starts[i], np.int64(char_lengths[i]))
            for f in range(branch[low], branch[low + 1]):
                test, first, last = np.int64(tests[f]), np.int64(begins[f]), np.int64(begins[f + 1])
                n = emit_family(test, first, last, 0, number, text, words, attribute, chars, firsts, lasts, n)
            attributes += n > before
        satisfied.attributes[e - base] = attributes
        starts[e - base + 1] = n
    return stop


class SearchTree(Arranged):
    """The predicates of constraints as a parallel search tree."""

    kind = SearchTreeArrays
    find = staticmethod(find_in_tree)

    @staticmethod
    def _made(families: Families, strings: Strings) -> SearchTreeArrays:
        names, branch = np.unique(families.name, return_index=True)
        return SearchTreeArrays(
            names,
            np.append(branch, len(families.name)).astype(np.int32),
            families.test,
            families.first,
            families.number,
            families.text,
        )

    @staticmethod
    def sizes(arrays: SearchTreeArrays) -> dict[str, int]:
        """What the tree is made of: with A attributes and P predicates it has 1 + A + F + P nodes, O(P)."""
        nodes = 1 + len(arrays.name) + len(arrays.test) + len(arrays.number)
        return {"predicates": len(arrays.number), "attributes": len(arrays.name), "nodes": nodes}
