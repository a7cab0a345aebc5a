"""Phase one by a trie: predicates as strings, spelt character by character (two-phase paper, section III C).

A predicate is spelt in digits of four bits: its attribute (whose name is a number here: three bits a digit,
the fourth says that more follow), one digit for the test, then the operand. Operands are spelt so that the
order of spellings is theirs: the bytes of a string, two digits each; a number as the 64 bits that sort like
it (``number_keys``), without the zeros at the end. Operands of ``endswith`` are spelt backwards.

Predicates are numbered in the order of the trie, so a subtree is a range of them. A walk along the digits of
an event's value gives its place among the operands of a test, and for strings every operand that starts it,
ends it, or, if it begins at each character, is contained in it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from evflow.events.gather import places_of, starts_of
from evflow.matching.native import compiled
from evflow.matching.rows import NUMBER, TEXT
from evflow.matching.strings import Strings
from evflow.matching.twophase.compiled import Int, Rows, Words, kernel
from evflow.matching.twophase.predicates import (
    CONTAINS,
    EXISTS,
    PREFIX,
    SUFFIX,
    TEXTS,
    Constraints,
    Families,
    arrange,
    number_keys,
)  # fmt: skip
from evflow.matching.twophase.scratch import Attribute, Satisfied, append, emit

_NAME_DIGITS = 11
_KEY_DIGITS = 16


class TrieArrays(NamedTuple):
    """N nodes, level after level, so that children of one node stand next to each other and ascend.

    Attributes:
        digit: uint8, N: the digit that leads to a node.
        start: int32, N + 1: the first child of a node; its last is the one before the first of the next.
        low: int32, N + 1: the first predicate in the subtree of a node; at N their number. A node that ends a
            predicate has that one, and its first child the next.
        length: int64, 1: W, the digits of all predicates together.
    """

    digit: NDArray[np.uint8]
    start: NDArray[np.int32]
    low: NDArray[np.int32]
    length: NDArray[np.int64]


_U = np.uint64
Int32s = NDArray[np.int32]


@compiled
def _digit_at(numeric: Any, key: Int, chars: NDArray[np.uint8], at: Int, step: Int, i: Int) -> Int:
    """Digit ``i`` of a number's key, or of a string that begins ``at`` and goes on by ``step``."""
    if numeric:
        return np.int64((_U(key) >> _U(60 - 4 * i)) & _U(15))
    byte = np.int64(chars[at + step * (i >> 1)])
    return byte & 15 if i & 1 else byte >> 4


@compiled
def _digits_of(key: Int) -> Int:
    """How many digits the key of a number has, without the zeros at the end."""
    digits = 16
    while digits and not (key >> (64 - 4 * digits)) & 15:
        digits -= 1
    return digits


@compiled
def _child(start: Int32s, digits: NDArray[np.uint8], node: Int, digit: Int) -> Int:
    """The first child whose digit is not less, or the place behind the last child."""
    c, end = np.int64(start[node]), np.int64(start[node + 1])
    while c < end and digits[c] < digit:
        c += 1
    return c


@compiled
def _ends(start: Int32s, low: Int32s, node: Int) -> Int:
    """1 if a predicate ends at a node, else 0: of a leaf always."""
    first = start[node]
    return np.int64(first == start[node + 1] or low[first] > low[node])


@compiled
def _under_name(start: Int32s, digits: NDArray[np.uint8], low: Int32s, name: Int) -> tuple[Int, Int]:
    """The node under which the predicates on an attribute are, or -1; and the predicate behind them."""
    node, end, more = 0, np.int64(low[len(digits)]), True
    while more:
        digit = name & 7
        name >>= 3
        more = name > 0
        if more:
            digit |= 8
        c, behind = _child(start, digits, node, digit), np.int64(start[node + 1])
        if c == behind or digits[c] != digit:
            return -1, 0
        if c + 1 < behind:
            end = np.int64(low[c + 1])
        node = c
    return node, end


@compiled
def _place(
    start: Int32s,
    digits: NDArray[np.uint8],
    low: Int32s,
    node: Int,
    end: Int,
    numeric: Any,
    key: Int,
    chars: NDArray[np.uint8],
    at: Int,
    length: Int,
) -> tuple[Int, Int]:
    """The first predicate under a node that is not less than a value, and 1 if it is that value."""
    for i in range(length):
        digit = _digit_at(numeric, key, chars, at, 1, i)
        c, behind = _child(start, digits, node, digit), np.int64(start[node + 1])
        if c == behind:
            return end, 0
        if digits[c] > digit:
            return np.int64(low[c]), 0
        if c + 1 < behind:
            end = np.int64(low[c + 1])
        node = c
    return np.int64(low[node]), _ends(start, low, node)


@compiled
def _along(
    start: Int32s,
    digit: NDArray[np.uint8],
    low: Int32s,
    node: Int,
    chars: NDArray[np.uint8],
    at: Int,
    step: Int,
    length: Int,
    seen: NDArray[np.uint8],
    firsts: NDArray[np.int32],
    lasts: NDArray[np.int32],
    n: Int,
) -> Int:
    """Appends the predicates that end on the way along a string and were not seen."""
    behind = np.int64(start[node + 1])
    for i in range(length + 1):
        p = low[node]
        if _ends(start, low, node) and not seen[p]:
            seen[p] = 1
            n = append(p, p + 1, firsts, lasts, n)
        if i < length:
            wanted = _digit_at(False, 0, chars, at, step, i)
            node = _child(start, digit, node, wanted)
            # Behind the last child stands another node's child, whose digit may be the same.
            if node == behind or digit[node] != wanted:
                return n
            behind = np.int64(start[node + 1])
    return n


@compiled
def _emit_test(
    start: Int32s,
    digit: NDArray[np.uint8],
    low: Int32s,
    node: Int,
    end: Int,
    attribute: Attribute,
    chars: NDArray[np.uint8],
    key: Int,
    seen: NDArray[np.uint8],
    firsts: NDArray[np.int32],
    lasts: NDArray[np.int32],
    n: Int,
) -> Int:
    """Appends what an attribute, its length in digits, satisfies of the test at a node."""
    test, first = np.int64(digit[node]), np.int64(low[node])
    if test == EXISTS:
        return append(first, end, firsts, lasts, n)
    numeric = test < TEXTS
    if attribute.kind != (NUMBER if numeric else TEXT):
        return n
    at, length = attribute.start, attribute.length
    if test < PREFIX:
        if numeric and attribute.number != attribute.number:
            return emit(test, first, end, 0, end, firsts, lasts, n) if test == 1 else n
        lower, equal = _place(start, digit, low, node, end, numeric, key, chars, at, length)
        return emit(test, first, lower, equal, end, firsts, lasts, n)
    before = n
    if test == PREFIX:
        n = _along(start, digit, low, node, chars, at, 1, length, seen, firsts, lasts, n)
    elif test == SUFFIX:
        n = _along(start, digit, low, node, chars, at + length // 2 - 1, -1, length, seen, firsts, lasts, n)
    elif test == CONTAINS:
        for j in range(length // 2 + 1):
            n = _along(start, digit, low, node, chars, at + j, 1, length - 2 * j, seen, firsts, lasts, n)
    for j in range(before, n):
        seen[firsts[j]] = 0
    return n


@kernel
def find_in_trie(
    events: Rows, words: Words, trie: TrieArrays, event: Int, stop: Int, satisfied: Satisfied
) -> Int:
    """Phase one for events from ``event`` up to ``stop``; returns the event it came to."""
    firsts, lasts, starts, n, base = satisfied.first, satisfied.last, satisfied.start, 0, event
    seen = satisfied.seen
    start, digit, low = trie.start, trie.digit, trie.low
    event_names, event_start, kinds, numbers = events.name, events.start, events.kind, events.number
    chars, char_starts, char_lengths = events.chars, events.char_start, events.char_length
    total = np.int64(low[len(digit)])
    bits = numbers.view(np.int64)
    starts[0] = 0
    for e in range(event, stop):
        if n + total >= len(firsts):
            return e
        attributes = 0
        for i in range(event_start[e], event_start[e + 1]):
            node, end = _under_name(start, digit, low, np.int64(event_names[i]))
            if node < 0:
                continue
            # The key of the number, as ``number_keys``: 0 and -0 are one.
            key = np.int64(0) if numbers[i] == 0 else bits[i]
            key = ~key if key < 0 else key ^ np.int64(-(1 << 63))
            kind = np.int64(kinds[i])
            length = _digits_of(key) if kind == NUMBER else 2 * np.int64(char_lengths[i])
            attribute = Attribute(kind, numbers[i], char_starts[i], length)
            before, behind = n, np.int64(start[node + 1])
            for c in range(start[node], behind):
                last = np.int64(low[c + 1]) if c + 1 < behind else end
                n = _emit_test(start, digit, low, c, last, attribute, chars, key, seen, firsts, lasts, n)
            attributes += n > before
        satisfied.attributes[e - base] = attributes
        starts[e - base + 1] = n
    return stop


class Trie:
    """The predicates of constraints as a trie.

    Args:
        of: the constraints.

    Attributes:
        arrays: the trie.
        predicate: int32: the predicate of each constraint.
    """

    last_test = EXISTS  # filters with a later one are tested one by one
    find = staticmethod(find_in_trie)

    def __init__(self, of: Constraints) -> None:
        families, self.predicate = arrange(of._replace(name=_spelt_names(of.name)))
        self.arrays = _branched(*_spelt(families, of.strings))

    @staticmethod
    def sizes(arrays: TrieArrays) -> dict[str, int]:
        """What the trie is made of; it has at most one node more than characters, O(W)."""
        return {
            "predicates": int(arrays.low[-1]),
            "nodes": len(arrays.digit),
            "characters": int(arrays.length[0]),
        }


def _spelt_names(name: NDArray[np.int32]) -> NDArray[np.int64]:
    """The digits of names, the first in bits 40 to 43, so that they sort as they are spelt."""
    rest, spelt = name.astype(np.int64), np.zeros(len(name), np.int64)
    for i in range(_NAME_DIGITS):
        more = rest > 7
        spelt |= (rest & 7 | more << 3) << (4 * (_NAME_DIGITS - 1 - i))
        rest >>= 3
    return spelt


def _spelt(families: Families, strings: Strings) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """The digits of all predicates, one after the other, and where those of each start and end."""
    sizes = np.diff(families.first)
    name, test = np.repeat(families.name, sizes), np.repeat(families.test, sizes)
    names = np.stack([name >> (4 * i) & 15 for i in range(_NAME_DIGITS - 1, -1, -1)], axis=1)
    before = 1 + (names >> 3).sum(axis=1)
    key = number_keys(families.number)
    keys = np.stack([(key >> _U(4 * i)) & _U(15) for i in range(_KEY_DIGITS - 1, -1, -1)], axis=1)
    numeric, textual = test < TEXTS, (test >= TEXTS) & (test < EXISTS)
    size = np.where(numeric[:, None] & (keys > 0), np.arange(1, _KEY_DIGITS + 1), 0).max(axis=1)
    numbers, backwards = families.text[textual].tolist(), (test[textual] == SUFFIX).tolist()
    words = [strings.bytes_of(n)[:: -1 if b else 1] for n, b in zip(numbers, backwards, strict=True)]
    size[textual] = [2 * len(word) for word in words]
    bounds = starts_of(before + 1 + size)
    digits = np.empty(int(bounds[-1]), np.uint8)
    for i in range(_NAME_DIGITS):
        rows = before > i
        digits[bounds[:-1][rows] + i] = names[rows, i]
    behind = bounds[:-1] + before
    digits[behind] = test
    for i in range(_KEY_DIGITS):
        rows = numeric & (size > i)
        digits[behind[rows] + 1 + i] = keys[rows, i]
    chars = np.frombuffer(b"".join(words), np.uint8)
    digits[places_of(behind[textual] + 1, size[textual])] = np.stack((chars >> 4, chars & 15), axis=1).ravel()
    return digits, bounds


def _branched(digits: NDArray[np.uint8], bounds: NDArray[np.int64]) -> TrieArrays:
    """The trie of predicates that are sorted."""
    start, size = bounds[:-1], np.diff(bounds)
    count = len(size)
    # How many digits each predicate shares with the one before it.
    shared = np.minimum(size, np.append(0, size[:-1]))[:count]
    pair = np.repeat(np.arange(count), shared)
    here = places_of(start, shared)
    differing = np.flatnonzero(digits[here] != digits[here - start[pair] + start[pair - 1]])
    pairs, first = np.unique(pair[differing], return_index=True)
    shared[pairs] = here[differing[first]] - start[pairs]
    # Each further digit is a node; its subtree begins with the predicate. Level after level:
    place, low = places_of(start + shared, size - shared), np.repeat(np.arange(count), size - shared)
    depth = place - start[low] + 1
    order = np.argsort(depth, kind="stable")
    depth, low = np.append(0, depth[order]), np.append(0, low[order])
    level = count + 1
    child = np.searchsorted(depth * level + low, (depth + 1) * level + low)
    return TrieArrays(
        np.append(np.uint8(0), digits[place[order]]),
        np.append(child, len(depth)).astype(np.int32),
        np.append(low, count).astype(np.int32),
        np.array([len(digits)]),
    )
