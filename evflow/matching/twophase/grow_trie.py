"""How the trie is made: predicates are spelt into it one by one, then its nodes are put in order."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from evflow.matching.strings import Strings
from evflow.matching.twophase.compiled import Int, Words, compiled, kernel, words_of
from evflow.matching.twophase.predicates import EXISTS, SUFFIX, TEXTS, number_keys
from evflow.matching.twophase.trie import TrieArrays, digit_at, digits_of, find_in_trie

__all__ = ["Trie"]

_CHILD, _NEXT, _DIGIT, _ENDS = 0, 1, 2, 3
"""A node while the trie grows: its first child, next sibling, digit, and whether a predicate ends there."""

_BEFORE = 12
"""Digits before an operand at most: eleven of a name, one of the test."""


@compiled
def _step(nodes: NDArray[np.int32], count: Int, node: Int, digit: Int) -> Int:
    """The child of a node by its digit, which becomes node ``count`` if there is none."""
    before, c = np.int64(-1), np.int64(nodes[node, _CHILD])
    while c and nodes[c, _DIGIT] < digit:
        before, c = c, np.int64(nodes[c, _NEXT])
    if c and nodes[c, _DIGIT] == digit:
        return c
    nodes[count, _CHILD], nodes[count, _NEXT] = 0, c
    nodes[count, _DIGIT], nodes[count, _ENDS] = digit, 0
    if before < 0:
        nodes[node, _CHILD] = count
    else:
        nodes[before, _NEXT] = count
    return count


@kernel
def _spell(
    name: NDArray[np.int32],
    test: NDArray[np.uint8],
    key: NDArray[np.int64],
    text: NDArray[np.int32],
    words: Words,
    nodes: NDArray[np.int32],
    leaf: NDArray[np.int32],
    state: NDArray[np.int64],
) -> None:
    """Spells constraints into a trie, and notes at which node each ends, until there is no more room.

    Args:
        name: of the constraints.
        test: of the constraints.
        key: their operands that are numbers, by ``number_keys``.
        text: their operands that are strings.
        words: the bytes of these.
        nodes: of the trie.
        leaf: the node at which each constraint ends.
        state: how many constraints are spelt, and how many nodes there are; both go on from there.
    """
    count = state[1]
    for i in range(state[0], len(name)):
        numeric, size, at, step = test[i] < TEXTS, np.int64(0), np.int64(0), 1
        if numeric:
            size = digits_of(key[i])
        elif test[i] < EXISTS:
            at = words.offsets[text[i]]
            size = 2 * (words.offsets[text[i] + 1] - at)
            if test[i] == SUFFIX:
                at, step = words.offsets[text[i] + 1] - 1, -1
        if count + size + _BEFORE > len(nodes):
            break
        node, rest, more = np.int64(0), np.int64(name[i]), name[i] >= 0
        while more:
            digit = rest & 7
            rest >>= 3
            more = rest > 0
            node = _step(nodes, count, node, digit | 8 if more else digit)
            count = max(count, node + 1)
        node = _step(nodes, count, node, np.int64(test[i]))
        count = max(count, node + 1)
        for j in range(size):
            node = _step(nodes, count, node, digit_at(numeric, key[i], words.data, at, step, j))
            count = max(count, node + 1)
        nodes[node, _ENDS] = 1
        leaf[i] = node
        state[0] = i + 1
    state[1] = count


@kernel
def _lay_out(
    nodes: NDArray[np.int32],
    trie: TrieArrays,
    leaf: NDArray[np.int32],
    order: NDArray[np.int32],
    size: NDArray[np.int32],
) -> None:
    """Puts the nodes in order, level after level, and predicates in place of leaves.

    Args:
        nodes: as ``_spell`` left them, without the room behind.
        trie: what is filled.
        leaf: the node of each constraint; then the predicate.
        order: scratch, zeros, one a node.
        size: likewise.
    """
    count, n = len(nodes), 1
    for i in range(count):
        node = order[i]
        trie.digit[i] = nodes[node, _DIGIT]
        trie.start[i] = n
        c = nodes[node, _CHILD]
        while c:
            order[n] = c
            n += 1
            c = nodes[c, _NEXT]
    trie.start[count] = n
    for i in range(count - 1, -1, -1):
        size[i] = nodes[order[i], _ENDS]
        for c in range(trie.start[i], trie.start[i + 1]):
            size[i] += size[c]
    trie.low[0], trie.low[count] = 0, size[0]
    for i in range(count):
        low = trie.low[i] + nodes[order[i], _ENDS]
        for c in range(trie.start[i], trie.start[i + 1]):
            trie.low[c] = low
            low += size[c]
    for i in range(count):
        size[order[i]] = trie.low[i]
    for i in range(len(leaf)):
        leaf[i] = size[leaf[i]]


class Trie:
    """The predicates of constraints as a trie.

    Attributes:
        arrays: the trie.
        predicate: int32: the predicate of each constraint that it was built of.
    """

    kind = TrieArrays
    find = staticmethod(find_in_trie)

    def __init__(
        self,
        name: NDArray[np.int32],
        test: NDArray[np.uint8],
        number: NDArray[np.float64],
        text: NDArray[np.int32],
        strings: Strings,
    ) -> None:
        self.predicate = np.empty(len(name), np.int32)
        key = number_keys(number).view(np.int64)
        nodes = _grown(name, test, key, text, words_of(strings), self.predicate)
        count = len(nodes)
        self.arrays = TrieArrays(
            np.empty(count, np.uint8), np.empty(count + 1, np.int32), np.empty(count + 1, np.int32)
        )
        _lay_out(nodes, self.arrays, self.predicate, *np.zeros((2, count), np.int32))

    @staticmethod
    def sizes(arrays: TrieArrays) -> dict[str, int]:
        """What the trie is made of; it has at most one node more than characters, O(W)."""
        count = len(arrays.digit)
        depth = np.zeros(count, np.int64)
        children = np.diff(arrays.start)
        parent = np.repeat(np.arange(count), children)
        for level_start, level_end in _levels(arrays.start):
            depth[level_start:level_end] = depth[parent[level_start - 1 : level_end - 1]] + 1
        ends = (children == 0) | (arrays.low[np.minimum(arrays.start[:-1], count)] > arrays.low[:-1])
        return {
            "predicates": int(arrays.low[-1]),
            "nodes": count,
            "characters": int(depth[ends].sum()) if count > 1 else 0,
        }


def _grown(
    name: NDArray[np.int32],
    test: NDArray[np.uint8],
    key: NDArray[np.int64],
    text: NDArray[np.int32],
    words: Words,
    leaf: NDArray[np.int32],
) -> NDArray[np.int32]:
    """The nodes of a trie of constraints; notes at which one each ends."""
    nodes, state = np.zeros((1024, 4), np.int32), np.array([0, 1])
    while True:
        _spell(name, test, key, text, words, nodes, leaf, state)
        spelt, count = state.tolist()
        if spelt == len(name):
            return nodes[:count]
        length = (
            2 * int(words.offsets[text[spelt] + 1] - words.offsets[text[spelt]]) if text[spelt] >= 0 else 16
        )
        larger = np.zeros((2 * len(nodes) + length, 4), np.int32)
        larger[:count] = nodes[:count]
        nodes = larger


def _levels(start: NDArray[np.int32]) -> list[tuple[int, int]]:
    """Where each level below the root starts and ends."""
    levels, begin, end = [], 1, int(start[1])
    while begin < end:
        levels.append((begin, end))
        begin, end = end, int(start[end])
    return levels
