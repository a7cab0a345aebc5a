"""Arrays that grow: entities by key, sets of attributes, and sets of matches."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evflow.errors import EvflowError
from evflow.matching.areas.columns import AreaColumns
from evflow.matching.areas.flat import WORK
from evflow.tiles.kernels import fields, tables
from evflow.tiles.kernels.zones import Shapes
from evflow.tiles.messages import MOVE, POLYGON, Rows, words

__all__ = [
    "Attributes",
    "Contents",
    "Entities",
    "Seen",
    "content_of",
    "grown",
    "outline_of",
    "outlines_of",
    "table_of",
]

Attributes = tuple[tuple[str, Any], ...]
"""Names and values, sorted."""

Content = Attributes | tuple[bytes, ...]
"""What moves name by number: a set of attributes, or an outline, the corners of each ring as float64."""

_MOST_DELETED = 1 << 16
"""Subscriptions, the newest, of which a client remembers that it deleted them."""

LEAST = 1024
"""Contents that a role may know without looking which are named."""

MOST_CORNERS = 1000
"""Corners that an outline may have."""

Words = NDArray[np.int64]


def table_of(size: int) -> Words:
    """An empty hash table for so many keys."""
    return np.full((1 << max(4, (2 * size).bit_length()), 2), -1, np.int64)


def grown(array: NDArray[Any], size: int) -> NDArray[Any]:
    """An array with at least so many rows, doubled if it has to grow."""
    if size <= len(array):
        return array
    shape = max(size, 2 * len(array), 64), *array.shape[1:]
    # Rows of 64 bytes lie in as few lines of the processor's cache as they can.
    held = np.zeros(math.prod(shape) * array.itemsize + 64, np.uint8)
    larger = held[-held.ctypes.data % 64 :][: len(held) - 64].view(array.dtype).reshape(shape)
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
        self.count = np.zeros(10, np.int64)
        self.count[fields.FREE] = -1

    def __len__(self) -> int:
        return int(self.count[fields.USED])

    @property
    def rows(self) -> Rows:
        """A copy of what is held, as moves."""
        return self.part(0, len(self))

    def part(self, start: int, stop: int) -> Rows:
        """A copy of some of them, as moves; those that come later come after all others.

        Args:
            start: the first.
            stop: the one after the last; there may be fewer.
        """
        held = self.held[start : min(stop, len(self)), : fields.MOVE_WORDS]
        return np.array(held, order="C").reshape(-1).view(MOVE)

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
    return (_number(content) if content else 0), content


def outline_of(corners: ArrayLike, rings: ArrayLike) -> tuple[int, tuple[bytes, ...]]:
    """The number of the outline of a polygon, and the outline as it is told.

    Args:
        corners: latitudes and longitudes in degrees, (P, 2); the first of each ring once more at its end.
        rings: where the corners of a ring start and end.

    Raises:
        EvflowError: they are not those of a ``GlobePolygon``, or more than 1,000.
    """
    area = AreaColumns.polygons(corners, rings, [0, np.size(rings) - 1], "globe")
    if len(area.corners) - len(area.rings) + 1 > MOST_CORNERS:
        raise EvflowError(f"polygon of {len(area.corners)} corners: expected at most {MOST_CORNERS:,}")
    outline = tuple(area.corners[i:j].tobytes() for i, j in pairwise(area.rings.tolist()))
    return _number(outline), outline


def _number(content: Content) -> int:
    digest = hashlib.blake2b(repr(content).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1 or 1


class Contents:
    """The sets of attributes and the outlines that a role knows, by number."""

    def __init__(self) -> None:
        self._work = (np.zeros(3, np.uint8), np.zeros((3, 4)), *np.zeros((2, 3), np.int64), np.zeros(WORK))
        self._most = LEAST
        self._clear()

    def _clear(self) -> None:
        self.known: dict[int, Content] = {}
        self._interned: dict[tuple[str, str, Any], int] = {}
        self.table, self.ends = table_of(0), np.zeros(0, np.int64)
        self.attributes = np.zeros(0, np.int64)
        self._starts, self._rings = np.zeros(1, np.int64), np.zeros(1, np.int64)
        self._bounds, self._corners = np.zeros((0, 4)), np.zeros((0, 2))
        self._filled = 0

    @property
    def shapes(self) -> Shapes:
        """What kernels need of polygons."""
        return Shapes(self.table, self._starts, self._bounds, self._rings, self._corners, *self._work)

    def forget(self, *rows: Words) -> None:
        """Drops what no moves name any more, once that may be as much as is known.

        Args:
            rows: all moves that are held, as words.
        """
        if len(self.known) < self._most:
            return
        named = [held[:, column] for held in rows for column in (fields.CONTENT, fields.ZONE)]
        used = set(np.concatenate([np.zeros(0, np.int64), *named]).tolist())
        kept = {number: content for number, content in self.known.items() if number in used}
        self._clear()
        self.learn(kept)
        self._most = 2 * len(kept) + LEAST

    def learn(self, contents: Mapping[int, Content]) -> None:
        """Takes sets of attributes and outlines.

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
            rings = [ring for ring in content if isinstance(ring, bytes)]
            pairs = [pair for pair in content if not isinstance(pair, bytes)]
            self._draw(len(self.known) - 1, rings)
            keys = [(name, type(value).__name__, value) for name, value in pairs]
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

    def _draw(self, at: int, rings: list[bytes]) -> None:
        """Writes the outline of a content."""
        first = int(self._starts[at])
        self._starts, self._bounds = grown(self._starts, at + 2), grown(self._bounds, at + 1)
        self._rings = grown(self._rings, first + len(rings) + 1)
        for number, ring in enumerate(rings, first):
            start = int(self._rings[number])
            self._rings[number + 1] = stop = start + len(ring) // 16
            self._corners = grown(self._corners, stop)
            self._corners[start:stop] = np.frombuffer(ring).reshape(-1, 2)
        self._starts[at + 1] = first + len(rings)
        if rings:
            drawn = self._corners[self._rings[first] : self._rings[first + len(rings)]]
            self._bounds[at] = (*drawn.min(axis=0), *drawn.max(axis=0))

    def of(self, rows: Rows) -> dict[int, Content]:
        """The sets and outlines that moves name."""
        if not self.known:
            return {}
        named = np.unique(rows["content"]).tolist() + np.unique(outlines_of(rows)).tolist()
        return {number: self.known[number] for number in named if number in self.known}


def outlines_of(rows: Rows) -> Words:
    """The numbers of the outlines of polygons, which stand in the first word of their zones."""
    there = rows[rows["kind"] == POLYGON]
    return words(there)[:, fields.ZONE]


class Seen:
    """The keys of matches that came, in a bounded set: of the newest, at least half as many as it may hold.

    Each has the number with which it came first.

    Args:
        most: how many keys.
    """

    def __init__(self, most: int = 1 << 20) -> None:
        self._half, self._count, self._number = max(most // 2, 1), 0, 0
        self._present = self._past = self._empty(0)

    def _empty(self, keys: int) -> tuple[Words, Words]:
        """Room for so many keys as they come, and a small table of where each of them is."""
        keys_of = np.zeros((keys, fields.KEY_WORDS + 1), np.int64)
        return keys_of, np.full(1 << (2 * keys).bit_length(), -1, np.int64)

    def fresh(self, rows: Rows) -> NDArray[np.bool_]:
        """Which matches have not come before.

        Args:
            rows: of ``MATCH``.
        """
        numbers = np.arange(self._number, self._number + len(rows))
        self._number += len(rows)
        fresh: NDArray[np.bool_] = self.first(rows, numbers) == numbers
        return fresh

    def first(self, rows: Rows, numbers: Words) -> Words:
        """With which numbers matches came first.

        Args:
            rows: of ``MATCH``.
            numbers: those with which they come now, not negative.
        """
        found = numbers.copy()
        for start in range(0, len(rows), self._half):
            part = words(rows[start : start + self._half])
            self._make_room(len(part))
            some = found[start : start + self._half]
            self._count = tables.first(part, self._count, *self._present, *self._past, some)
        return found

    def drop(self, rows: Rows) -> None:
        """Forgets matches: they count as if they had not come.

        Args:
            rows: of ``MATCH``.
        """
        for keys, table in (self._present, self._past):
            tables.drop(words(rows), keys, table)

    def _make_room(self, more: int) -> None:
        held = self._present[0]
        if self._count >= self._half:
            self._present, self._past, self._count = self._empty(len(held)), self._present, 0
        elif self._count + more > len(held):
            self._present = self._empty(2 * (self._count + more))
            numbers = held[: self._count, fields.KEY_WORDS].copy()
            tables.first(held[: self._count], 0, *self._present, *self._empty(0), numbers)


class Pairs:
    """Which publications are inside which subscriptions, as their client knows.

    Tile Managers tell of versions of two entities that they match or have come apart. Of a pair the newest
    counts: what is older of either entity than what was told before is dropped. So each pair enters, is
    inside, and leaves by turns. Of pairs that are apart at least half as many as it may hold are remembered,
    the newest.

    Args:
        most: how many pairs, unless more are inside.
    """

    def __init__(self, most: int = 1 << 20) -> None:
        self._most, self._count = most, np.zeros(2, np.int64)
        self._table = np.full((16, 6), -1, np.int64)
        self._deleted = dict[int, int]()
        self._deletions: NDArray[np.int64] | None = None

    def __len__(self) -> int:
        return int(self._count[0])

    def follow(self, rows: Rows, subscriptions: Entities) -> NDArray[np.bool_]:
        """Writes the events of matches; returns which are told, those that their subscriptions ask for.

        Args:
            rows: of ``MATCH``.
            subscriptions: those of the client, as it sent them.
        """
        told = np.ones(len(rows), np.uint8)
        if rows["event"].any():
            if 2 * (len(self) + len(rows)) > len(self._table):
                self._make_room(len(rows))
            latest = subscriptions.table, subscriptions.held
            tables.follow(words(rows), self._table, self._count, *latest, told)
        return told.view(np.bool_)

    def delete(self, ids: NDArray[np.int64], versions: NDArray[np.int64]) -> None:
        """Tells that subscriptions were deleted: what is told of them before is over, also once they are new.

        Args:
            ids: int64.
            versions: of the deletions.
        """
        if not len(ids):
            return
        self._deleted |= dict(zip(ids.tolist(), versions.tolist(), strict=True))
        self._deletions = None
        while len(self._deleted) > _MOST_DELETED:
            del self._deleted[next(iter(self._deleted))]

    def are_over(self, rows: Rows) -> NDArray[np.bool_]:
        """Which events are older than the deletion of their subscription, if it has been deleted.

        Args:
            rows: of ``MATCH``.
        """
        if not self._deleted:
            return np.zeros(len(rows), np.bool_)
        if self._deletions is None:
            given = (self._deleted.keys(), self._deleted.values())
            found = np.array([np.fromiter(each, np.int64, len(self._deleted)) for each in given])
            self._deletions = found[:, np.argsort(found[0])]
        ids, versions = self._deletions
        at = np.minimum(np.searchsorted(ids, rows["sub"]), len(ids) - 1)
        over: NDArray[np.bool_] = (ids[at] == rows["sub"]) & (rows["sub_version"] < versions[at])
        over &= rows["event"] != 0
        return over

    def end(self, ids: NDArray[np.int64]) -> None:
        """Tells that subscriptions were deleted, or ask for no events any more: nothing leaves them.

        Args:
            ids: int64.
        """
        if len(self) and len(ids):
            self._table[np.isin(self._table[:, 1], ids), 4] = 0

    def _make_room(self, more: int) -> None:
        held = self._table[self._table[:, 0] != -1]
        if len(held) + more > self._most:
            apart = np.flatnonzero(held[:, 4] == 0)
            oldest = apart[np.argsort(held[apart, 5])][: max(0, len(apart) - self._most // 2)]
            held = np.delete(held, oldest, axis=0)
        self._table = np.full((1 << (4 * (len(held) + more)).bit_length(), 6), -1, np.int64)
        self._count[0] = len(held)
        tables.pair_up(held, self._table)
