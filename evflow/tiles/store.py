"""Arrays that grow: entities by key, sets of attributes, and sets of matches."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evflow.errors import EvflowError
from evflow.tiles.kernels import fields, tables
from evflow.tiles.messages import MOVE, Rows, words

__all__ = ["Attributes", "Contents", "Entities", "Seen", "content_of", "grown", "table_of"]

Attributes = tuple[tuple[str, Any], ...]
"""Names and values, sorted."""

Words = NDArray[np.int64]


def table_of(size: int) -> Words:
    """An empty hash table for so many keys."""
    return np.full((1 << max(4, (2 * size).bit_length()), 2), -1, np.int64)


def grown(array: NDArray[Any], size: int) -> NDArray[Any]:
    """An array with at least so many rows, doubled if it has to grow."""
    if size <= len(array):
        return array
    larger = np.zeros((max(size, 2 * len(array), 64), *array.shape[1:]), array.dtype)
    larger[: len(array)] = array
    return larger


class Entities:
    """Publications and subscriptions by id, each in one row of words.

    Args:
        width: words of a row, the first of which are those of a move.

    Attributes:
        table: where each is; see ``kernels.tables.find``.
        held: the rows.
        count: the numbers that kernels count in.
    """

    def __init__(self, width: int = fields.MOVE_WORDS) -> None:
        self.table, self.held = table_of(0), np.zeros((0, width), np.int64)
        self.count = np.zeros(9, np.int64)
        self.count[fields.FREE] = -1

    def __len__(self) -> int:
        return int(self.count[fields.USED])

    @property
    def rows(self) -> Rows:
        """A copy of what is held, as moves."""
        held = np.ascontiguousarray(self.held[: len(self), : fields.MOVE_WORDS])
        return held.reshape(-1).view(MOVE)

    def room(self, more: int) -> None:
        """Makes room for so many more."""
        self.held = grown(self.held, len(self) + more)
        if 2 * (len(self) + more) > len(self.table):
            self._index(2 * (len(self) + more))

    def _index(self, size: int) -> None:
        held = self.held[: len(self)]
        self.table = table_of(size)
        tables.enter(held[:, fields.ID] << 1 | held[:, fields.WORD] >> 8 & 1, 0, self.table)

    def keep(self, kept: NDArray[np.bool_]) -> None:
        """Drops those that are not marked."""
        rest = self.held[: len(self)][kept]
        self.held[: len(rest)] = rest
        self.count[fields.USED] = len(rest)
        self._index(len(rest))


def content_of(attributes: Mapping[str, Any]) -> tuple[int, Attributes]:
    """The number of a set of attributes, and the set in the form in which sets are compared.

    Args:
        attributes: text, numbers and truth values by name. Numbers are equal by value.

    Raises:
        EvflowError: something else is a value, or a name is not text.
    """
    pairs = []
    for name, value in attributes.items():
        if not isinstance(name, str) or not isinstance(value, str | int | float) or value != value:
            raise EvflowError(f"attribute {name!r}={value!r}: expected text, a number or a truth value")
        whole = isinstance(value, float) and value.is_integer()
        pairs.append((name, int(value) if whole else value))
    content = tuple(sorted(pairs))
    if not content:
        return 0, content
    return int.from_bytes(
        hashlib.blake2b(repr(content).encode(), digest_size=8).digest(), "big"
    ) >> 1 or 1, content


class Contents:
    """The sets of attributes that a role knows, by number."""

    def __init__(self) -> None:
        self.known: dict[int, Attributes] = {}
        self._interned: dict[tuple[str, str, Any], int] = {}
        self.table, self.ends = table_of(0), np.zeros(0, np.int64)
        self.attributes = np.zeros(0, np.int64)
        self._filled = 0

    def learn(self, contents: Mapping[int, Attributes]) -> None:
        """Takes sets of attributes.

        Args:
            contents: by number.

        Raises:
            EvflowError: a number is that of another set already.
        """
        for number, content in contents.items():
            if number in self.known:
                held = self.known[number]
                if held != content:
                    raise EvflowError(f"attributes {content!r}: expected {held!r}, which has the same number")
                continue
            self.known[number] = content
            keys = [(name, type(value).__name__, value) for name, value in content]
            ids = sorted(self._interned.setdefault(key, len(self._interned)) for key in keys)
            self.attributes = grown(self.attributes, self._filled + len(ids))
            self.attributes[self._filled : self._filled + len(ids)] = ids
            self._filled += len(ids)
            self.ends = grown(self.ends, len(self.known))
            self.ends[len(self.known) - 1] = self._filled
            if 2 * len(self.known) > len(self.table):
                self.table = table_of(2 * len(self.known))
                tables.enter(np.array(list(self.known), np.int64), 0, self.table)
            else:
                tables.enter(np.array([number], np.int64), len(self.known) - 1, self.table)

    def of(self, rows: Rows) -> dict[int, Attributes]:
        """The sets that moves name."""
        if not self.known:
            return {}
        return {n: self.known[n] for n in np.unique(rows["content"]).tolist() if n in self.known}


class Seen:
    """The keys of matches that came, in a bounded set: of the newest, at least half as many as it may hold.

    Args:
        most: how many keys.
        width: how many words of a match are its key: 4, or 5 with where its client is connected.
    """

    def __init__(self, most: int = 1 << 20, width: int = 4) -> None:
        self._half, self._width = max(most // 2, 1), width
        self._present, self._past, self._count = self._empty(0), self._empty(0), 0

    def _empty(self, keys: int) -> Words:
        return np.full((1 << max(4, (2 * keys).bit_length()), self._width), -1, np.int64)

    def fresh(self, rows: Rows) -> NDArray[np.bool_]:
        """Which matches have not come before.

        Args:
            rows: of ``MATCH``.
        """
        marks = np.zeros(len(rows), np.uint8)
        for start in range(0, len(rows), self._half):
            part = words(rows[start : start + self._half])
            self._make_room(len(part))
            marked = marks[start : start + self._half]
            tables.fresh(part, self._width, self._present, self._past, marked)
            self._count += int(marked.sum())
        return marks.view(np.bool_)

    def _make_room(self, more: int) -> None:
        if self._count >= self._half:
            self._present, self._past, self._count = self._empty(more), self._present, 0
        elif 2 * (self._count + more) > len(self._present):
            held = self._present[self._present[:, 0] != -1]
            self._present = self._empty(2 * (self._count + more))
            tables.fresh(held, self._width, self._present, self._empty(0), np.zeros(len(held), np.uint8))
