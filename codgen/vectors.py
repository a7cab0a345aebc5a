"""The vectors of a kernel: arrays that native code appends to, and what becomes of them after a run."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np

from evflow.codgen.llvm.context import Context
from evflow.codgen.memory import Array, address

_SMALL = 4096
"""Bytes up to which a vector's content is copied out, and its memory kept for the next run."""

_FIRST = 64
_DTYPES: dict[object, Any] = {"bytes": np.uint8, "texts": np.uint8, "origin": np.int32}


@cache
def most_made() -> int:
    """Bytes of records that the events of one batch may make: 1 GiB, or an eighth of this host's memory if
    that is more."""
    return max(1 << 30, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 8)


class Vectors:
    """The vectors of one kernel. A vector is named by the index of its first word.

    Args:
        block: the context's words.
        context: what they are.
        ways: for each exit whose selection native code does not check, how many rows an event may add.
    """

    def __init__(self, block: Array, context: Context, ways: Mapping[int, int]) -> None:
        self._words: Any = block.data
        self._context = context
        self._arrays: dict[int, Array] = {}
        self._dtypes: dict[int, Any] = {}
        self._offsets: dict[int, int] = {}
        self._bounded: list[tuple[int, int]] = []
        self._ends: list[int] = []
        self._taken: dict[int, Array] = {}
        self._rates: dict[int, float] = {}
        self._records: list[int] = []
        self._events = 0
        for key, word in context.words.items():
            if key[0] == "vector":
                self._add(key[1:], word, ways)

    def _add(self, key: tuple[Any, ...], word: int, ways: Mapping[int, int]) -> None:
        self._dtypes[word] = np.dtype(_DTYPES.get(key[0], np.int64))
        self._arrays[word] = np.empty(0, self._dtypes[word])
        if key[0] == "bytes":
            self._records.append(word)
        if key[0] == "exit" and key[1] in ways:
            self._dtypes[word] = np.dtype(np.int32)
            self._bounded.append((word, ways[key[1]]))
        else:
            self._ends.append(word + 1)
        if key[0] == "origin" and ("vector", "offsets", key[1]) in self._context.words:
            self._offsets[word] = self.word("offsets", key[1])

    def word(self, *key: str | int) -> int:
        """The vector of a key, or -1 if the code has none."""
        return self._context.words.get(("vector", *key), -1)

    def begin(self, events: int) -> None:
        """Empties all, and makes room in the selections that native code does not check."""
        words = self._words
        self._events = events
        self._taken.clear()
        for end in self._ends:
            words[end] = 0
        for word, ways in self._bounded:
            # One more, since a row is written before it is known whether it counts.
            if words[word + 2] <= events * ways:
                self._allocate(word, events * ways + 1, 0)

    def allows(self, word: int, need: int) -> bool:
        """Whether a vector may have ``need`` elements; those of records have a bound together."""
        return word not in self._records or need <= self._most(word)

    def _most(self, word: int) -> int:
        """Bytes that a vector of records may have beside the others."""
        beside: int = sum(self._words[other + 1] for other in self._records if other != word)
        return most_made() - beside

    def grow(self, word: int, need: int) -> None:
        """Makes room for ``need`` elements, and for as many as the last run made an event."""
        array = self._arrays[word]
        expected = min(int(self._rates.get(word, 0.0) * self._events), 1 << 26)
        size = max(need, 2 * len(array), expected, _FIRST)
        if word in self._records:
            size = max(need, min(size, self._most(word)))
        self._allocate(word, size, len(array))
        offsets = self._offsets.get(word)
        if offsets is not None:
            self._allocate(offsets, size + 1, min(len(array) + 1, len(self._arrays[offsets])))
            self._arrays[offsets][0] = 0

    def _allocate(self, word: int, size: int, keep: int) -> None:
        new = np.empty(size, self._dtypes[word])
        new[:keep] = self._arrays[word][:keep]
        self._arrays[word] = new
        self._words[word] = address(new)
        self._words[word + 2] = size

    def count(self, word: int) -> int:
        """Elements in a vector."""
        return self._words[word + 1] if word >= 0 else 0

    def view(self, word: int) -> Array:
        """A vector's elements, until the next run."""
        return self._arrays[word][: self._words[word + 1]]

    def take(self, word: int) -> Array:
        """A vector's elements for good: copied where they are few, else the vector gives its memory away."""
        known = self._taken.get(word)
        if known is not None:
            return known
        array, used = self._arrays[word], self._words[word + 1]
        content = array[:used]
        if content.nbytes <= _SMALL or 2 * used < len(array):
            content = content.copy()
        else:
            self._release(word)
        self._rates[word] = 1.0625 * used / max(self._events, 1)
        self._taken[word] = content
        return content

    def offsets(self, buffer: int, rows: int) -> Array:
        """Where the records of a buffer start and the last ends, for good."""
        if rows == 0:
            return np.zeros(1, np.int64)
        return self._arrays[self.word("offsets", buffer)][: rows + 1].copy()

    def _release(self, word: int) -> None:
        self._arrays[word] = np.empty(0, self._dtypes[word])
        self._words[word] = self._words[word + 2] = 0
