"""Subscriptions and events for the benchmarks of matching, drawn with a seed after the papers' tables.

Attributes are named ``a0``, ``a1``, … and typed by name: half of them hold numbers, 0 to 99, half hold one of
100 words of ten letters. Operators are equally likely; the operand of a prefix is the first three letters of
a word, that of a substring three letters from within one. Where the papers leave something open:

* CCM: a filter may name an attribute twice (``distinct=False``). So the share of interfaces that match and
  the number of constraints on the commonest name under Zipf (exponent 1.7) are those that the paper tells.
* CLCB: names that are drawn independently cannot give filters that 0.5 % of the events satisfy. So names come
  in 20 kinds of events of 5 names each, and a filter or event takes 3 to 5 names of one kind; 15.6 % of the
  constraints are sharp (equality, prefix, substring), the others wide, which gives 0.5 %.
* Uneven space: each coordinate takes one of 100 bins with Zipf's law, in an order of its own, and is uniform
  in the bin.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evflow.matching.model import Op

VALUES = 100
BINS = 100
KINDS = 20
SHARP = 0.156
"""Share of sharp constraints at which 0.5 % of the events satisfy a filter of CLCB."""
NUMERIC = np.array([Op.EQ, Op.NE, Op.LT, Op.GT], np.uint8)
TEXTUAL = np.array([Op.EQ, Op.NE, Op.CONTAINS, Op.PREFIX], np.uint8)
SIX = np.array([Op.LT, Op.LE, Op.EQ, Op.NE, Op.GE, Op.GT], np.uint8)

Array = NDArray[Any]


@dataclass(frozen=True)
class Events:
    """N events: attribute ``i`` of an event holds the number ``value[i]``, or the word of that number.

    Attributes:
        start: N + 1.
        x, y: where they happened; empty if nowhere.
    """

    start: Array
    name: Array
    value: Array
    x: Array
    y: Array

    def __len__(self) -> int:
        return len(self.start) - 1

    def table(self, names: int) -> Array:
        """(N, names) int16: the value of each name, -1 where an event lacks it."""
        found = np.full((len(self), names), -1, np.int16)
        found[np.repeat(np.arange(len(self)), np.diff(self.start)), self.name] = self.value
        return found

    def head(self, count: int) -> Events:
        """The first ``count`` of them."""
        end = self.start[count]
        return Events(
            self.start[: count + 1], self.name[:end], self.value[:end], self.x[:count], self.y[:count]
        )


@dataclass(frozen=True)
class Workload:
    """F filters with C constraints in all, and events for them.

    Attributes:
        texts: operands that are strings; the first 100 are the words.
        numeric: by name: whether it holds numbers.
        start, name, op, number, text: as in ``evflow.matching.FilterColumns``.
        subscription: F: the subscription of each filter.
        x, y, radius: F: the area of each filter; empty if none has one.
    """

    texts: list[str]
    numeric: Array
    start: Array
    name: Array
    op: Array
    number: Array
    text: Array
    subscription: Array
    events: Events
    x: Array = field(default_factory=lambda: np.empty(0, np.float32))
    y: Array = field(default_factory=lambda: np.empty(0, np.float32))
    radius: Array = field(default_factory=lambda: np.empty(0, np.float32))

    def __len__(self) -> int:
        return len(self.start) - 1

    @property
    def names(self) -> list[str]:
        return [f"a{i}" for i in range(len(self.numeric))]

    def dicts(self) -> Iterator[dict[str, float | str]]:
        """The events as dicts, their place as ``x`` and ``y``."""
        events, names, words = self.events, self.names, self.texts[:VALUES]
        texts = (~self.numeric[events.name]).tolist()
        keys = [names[i] for i in events.name.tolist()]
        values = [
            words[v] if text else float(v) for v, text in zip(events.value.tolist(), texts, strict=True)
        ]
        place = list(zip(events.x.tolist(), events.y.tolist(), strict=True))
        for i, (start, end) in enumerate(
            zip(events.start[:-1].tolist(), events.start[1:].tolist(), strict=True)
        ):
            found = dict(zip(keys[start:end], values[start:end], strict=True))
            if place:
                found["x"], found["y"] = place[i]
            yield found


def zipf(count: int, exponent: float) -> Array | None:
    """Probabilities of ranks 1 to ``count``; None (uniform) for exponent 0."""
    if not exponent:
        return None
    weights = 1.0 / np.arange(1, count + 1) ** exponent
    found: Array = weights / weights.sum()
    return found


def distinct(random: np.random.Generator, law: Array | None, names: int, rows: int, most: int) -> Array:
    """(rows, most) names, drawn one after the other so that none stands twice in a row.

    The ``most`` greatest of log p plus Gumbel noise are such draws (Vieira 2014; Kool et al. 2019).
    """
    logs = 0.0 if law is None else np.log(law)
    found = np.empty((rows, most), np.int32)
    piece = max(1, 4_000_000 // names)
    for first in range(0, rows, piece):
        noisy = random.gumbel(size=(min(piece, rows - first), names)) + logs
        top = (
            np.argpartition(-noisy, most - 1, axis=1)[:, :most]
            if most < names
            else np.argsort(-noisy, axis=1)
        )
        order = np.argsort(-np.take_along_axis(noisy, top, axis=1), axis=1)
        found[first : first + piece] = np.take_along_axis(top, order, axis=1)
    return found


def starts(counts: Array) -> Array:
    return np.concatenate(([0], np.cumsum(counts, dtype=np.int64)))


def first_of(rows: Array, counts: Array) -> Array:
    """The first ``counts[i]`` of row i, one row after the other."""
    found: Array = rows[np.arange(rows.shape[1]) < counts[:, None]]
    return found


def vocabulary(random: np.random.Generator) -> list[str]:
    """100 words, the first three letters of each, and three letters from within each."""
    letters = np.array(list("abcdefghijklmnopqrstuvwxy"))
    words = ["".join(letters[random.integers(0, 25, 10)]) for _ in range(VALUES)]
    within = [word[at : at + 3] for word, at in zip(words, random.integers(0, 8, VALUES), strict=True)]
    return words + [word[:3] for word in words] + within


def typed(names: int, share: float = 0.5) -> Array:
    """Which names hold numbers: ``share`` of them, spread evenly, the first one among them."""
    found: Array = np.diff(np.ceil(np.arange(names + 1) * share)) > 0
    return found


def operands(random: np.random.Generator, numeric: Array, op: Array) -> tuple[Array, Array]:
    """Numbers (NaN for texts) and texts (-1 for numbers) for constraints on numeric names, or others."""
    value = random.integers(0, VALUES, len(op))
    offset = np.where(op == Op.PREFIX, VALUES, np.where(op == Op.CONTAINS, 2 * VALUES, 0))
    text = np.where(numeric, -1, value + offset).astype(np.int32)
    return np.where(numeric, value, np.nan), text


def equally(random: np.random.Generator, numeric: Array) -> Array:
    """Operators, all equally likely."""
    which = random.integers(0, 4, len(numeric))
    return np.where(numeric, NUMERIC[which], TEXTUAL[which])


def sharp_or_wide(random: np.random.Generator, numeric: Array) -> Array:
    """Operators of CLCB: sharp ones with probability ``SHARP``, else wide ones."""
    size = len(numeric)
    sharp = np.where(numeric, Op.EQ, TEXTUAL[[0, 2, 3]][random.integers(0, 3, size)])
    wide = np.where(numeric, NUMERIC[1:][random.integers(0, 3, size)], Op.NE)
    found: Array = np.where(random.random(size) < SHARP, sharp, wide).astype(np.uint8)
    return found


def events_of(random: np.random.Generator, rows: Array, least: int, most: int, place: Array) -> Events:
    """Events with the first ``least`` to ``most`` names of each row."""
    counts = random.integers(least, most + 1, len(rows))
    start = starts(counts)
    value = random.integers(0, VALUES, start[-1]).astype(np.int32)
    return Events(start, first_of(rows, counts), value, place[:, 0].copy(), place[:, 1].copy())


NOWHERE = np.empty((0, 2), np.float32)


class Space:
    """Where filters and events are in the unit square: everywhere alike, or in bins after Zipf's law."""

    def __init__(self, random: np.random.Generator, uneven: bool) -> None:
        self._random = random
        self._order = [random.permutation(BINS) for _ in range(2)] if uneven else []

    def draw(self, count: int) -> Array:
        """(count, 2) float32."""
        within = self._random.random((count, 2))
        if self._order:
            law = zipf(BINS, 1.0)
            for axis, order in enumerate(self._order):
                within[:, axis] = (order[self._random.choice(BINS, count, p=law)] + within[:, axis]) / BINS
        return within.astype(np.float32)
