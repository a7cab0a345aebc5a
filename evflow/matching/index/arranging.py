"""Decides by what matching takes whether weak filters stand in lists or in the pool, and moves them.

What an event costs by either way is counted while events are matched, but for the share of the pool that
bitmaps leave before there are any: that is told by a sample of the filters. The nanoseconds were measured on
an AMD EPYC of 2021; only their ratios matter. The sample also says which elements have *axes*, rows of bits
in the pool, and where their buckets begin, by quantiles.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evflow.events.gather import address_of
from evflow.matching.index import layout as at
from evflow.matching.index.keys import INFINITE
from evflow.matching.index.memory import Buffer
from evflow.matching.index.pool import drain_pool, fill_pool, renew_pool, sample_intervals

_BLOCK, _ROW = 10.0, 3.0
"""What a block of the pool takes, and each row of it that is anded."""
_NEAR, _FAR = 25.0, 40.0
"""What the exact test of a filter takes that the rows left, if caches hold the pool, and if they do not."""
ENTER = 1000.0
"""What it takes to move a filter from one way to the other."""
FEWEST = 512
"""Filters below which all is well as it is."""
BETTER = 1.5
"""How many times cheaper another way must be to be taken."""


@dataclass(frozen=True, slots=True)
class Counts:
    """What matching some events has taken.

    Attributes:
        events: how many there were.
        spent: nanoseconds that weak filters in lists have taken, by the number of signatures of which an
            event had all elements, of these elements, and of the filters there.
        candidates: filters of the pool that the rows left.
        reached: filters of the pool whose elements one event had; None where that was not counted.
    """

    events: int
    spent: int
    candidates: int
    reached: int | None = None

    def lists(self) -> float:
        """Nanoseconds an event that weak filters in lists have taken."""
        return self.spent / max(1, self.events)

    def lists_instead(self, filters: int, signatures: int, constraints: float, columns_from: int) -> float:
        """Nanoseconds an event that the pool's filters would take in lists.

        Args:
            filters: how many the pool holds.
            signatures: how many there are in all.
            constraints: elements of a filter on average.
            columns_from: filters of a list that has columns.
        """
        if self.reached is None:
            raise ValueError("reached was not counted; expected counts of an event for which it was asked")
        hits = self.reached * min(1.0, signatures / max(1, filters))
        test = at.NS_LONG if filters >= columns_from * signatures else at.NS_SHORT
        return hits * (at.NS_SIGNATURE + at.NS_NAME * constraints) + test * self.reached

    def pool(self, blocks: int, axes: int) -> float:
        """Nanoseconds an event that a pool of so many blocks and axes has taken."""
        return bits_cost(blocks, axes) + _test_cost(blocks) * self.candidates / max(1, self.events)


def bits_cost(blocks: int, axes: int) -> float:
    """Nanoseconds that the rows of a pool take an event."""
    return blocks * (_BLOCK + _ROW * axes)


def _test_cost(blocks: int) -> float:
    """Nanoseconds that the test of a filter takes in a pool of so many blocks."""
    return _FAR if blocks * at.IN_BLOCK > at.CACHED else _NEAR


def pool_instead(filters: int, blocks: int, axes: int, share: float) -> float:
    """Nanoseconds an event that a pool would take.

    Args:
        filters: how many it would hold.
        blocks, axes: how large it would be.
        share: the share of its filters that its rows would leave.
    """
    return bits_cost(blocks, axes) + _test_cost(blocks) * share * filters


_ROWS_OF_A_CONSTRAINT = 384
"""Rows that a constraint pays for: each takes a bit a filter, so 48 bytes a constraint in all."""
_FEWEST_ROWS = 4
_ALL = 1 << 32


@dataclass(frozen=True, slots=True)
class Axes:
    """Axes as the pool reads them.

    Attributes:
        words: uint32, (axes, 132): element, first row, rows; from word 4 on the first keys of the buckets,
            from word 68 on their widths; the axes by element.
        rows: rows of a block, with that of the slots in use.
        share: the share of filters that rows leave of an event whose values are spread as the bounds of
            intervals are.
    """

    words: NDArray[np.uint32]
    rows: int
    share: float


def choose_axes(intervals: NDArray[np.uint32]) -> Axes:
    """Axes for filters of which these are a sample.

    Args:
        intervals: (N, 4): a number of the filter, ascending; an element; the first key of an interval, and
            its width; at least one.
    """
    filters = intervals[:, 0].astype(np.int64)
    count = int(filters[-1]) + 1
    elements, which, uses = np.unique(intervals[:, 1], return_inverse=True, return_counts=True)
    budget = max(_FEWEST_ROWS, _ROWS_OF_A_CONSTRAINT * len(intervals) // count)
    chosen = np.sort(np.argsort(-uses, kind="stable")[: budget // _FEWEST_ROWS])
    most = min(at.MOST_ROWS, budget // len(chosen))
    words = np.zeros((len(chosen), at.AXIS_SIZE // 4), np.uint32)
    words[:, at.AXIS_LOWS // 4 : at.AXIS_WIDTHS // 4] = at.NO_KEY
    held = np.ones(len(intervals))
    order = np.argsort(which.ravel(), kind="stable")
    starts = np.concatenate([[0], np.cumsum(uses)])
    row = 1
    for axis, i in enumerate(chosen):
        own = order[starts[i] : starts[i + 1]]
        first = -INFINITE if elements[i] % 3 == at.NUMBERS else 0
        lows = (intervals[own, 2].astype(np.int64) - first) % _ALL
        ends = lows + intervals[own, 3] + 1
        edges = _edges(np.concatenate([lows, ends]), most - 1, int(elements[i]) % 3)
        held[own] = _covered(edges, lows, ends - 1)
        words[axis, :3] = elements[i], row, len(edges) + 1
        place = at.AXIS_LOWS // 4 + 1
        words[axis, place : place + len(edges)] = (edges + first) % _ALL
        place = at.AXIS_WIDTHS // 4 + 1
        words[axis, place : place + len(edges)] = np.diff(np.append(edges, _ALL)) - 1
        row += len(edges) + 1
    share = np.ones(count)
    np.multiply.at(share, filters, held)
    return Axes(words, row, float(share.mean()))


def _edges(bounds: NDArray[np.int64], most: int, kind: int) -> NDArray[np.int64]:
    """Where at most ``most`` buckets begin, the first at 0."""
    # Strings that are not an operand have the last key of all.
    given = [0, at.NONE] if kind == at.TEXTS else [0]
    inside = np.sort(bounds[(bounds > 0) & (bounds < _ALL)])
    left = most - len(given)
    if left > 0 and len(inside):
        different = np.unique(inside)
        if len(different) > left:
            different = np.unique(inside[(np.arange(left) * 2 + 1) * len(inside) // (2 * left)])
        inside = different
    else:
        inside = inside[:0]
    return np.unique(np.concatenate([np.array(given[: max(1, most)], np.int64), inside]))


def _covered(edges: NDArray[np.int64], lows: NDArray[np.int64], highs: NDArray[np.int64]) -> Any:
    """The share of buckets that each interval has keys of."""
    first, last = np.searchsorted(edges, lows, "right"), np.searchsorted(edges, highs % _ALL, "right")
    wrapped = highs >= _ALL
    return (last - first + 1 + np.where(wrapped, len(edges), 0)).clip(1, len(edges)) / len(edges)


_SAMPLE = 1 << 15
"""Intervals that are sampled."""
_GROWN = 4
"""Times that the pool has grown when its axes are chosen anew."""


class Arranging:
    """Keeps account of what events cost, and says when weak filters had better stand elsewhere.

    Filters move once events have cost as much as the move does, and each decision doubles that sum, until
    filters come or go. So all moves together cost no more than matching did, even if a move turns out to
    save less than a sample told.

    Args:
        state: of the engine.
        arenas: of the engine, by name.
        grow: makes an arena hold so many of its units.
        make_room: makes room for what a kernel could not place.

    Attributes:
        better: true once ``arrange`` should be called, by one alone.
    """

    def __init__(
        self,
        state: NDArray[np.int64],
        arenas: dict[str, Buffer],
        grow: Callable[[str, int], None],
        make_room: Callable[[], None],
    ) -> None:
        self._state, self._at = state, address_of(state)
        self._arenas, self._grow, self._make_room = arenas, grow, make_room
        self.better = False
        self.asked = False
        self._pool_next = False
        self.reset()

    def reset(self) -> None:
        """Begins the account anew: filters have come or gone."""
        self._spent = 0.0
        self._patience = 1.0
        self._known = int(self._state[at.FILTERS])
        self._renewed = int(self._state[at.POOL_FILTERS])

    @property
    def unsure(self) -> bool:
        """Whether so many filters have come or gone that events may cost something else."""
        held = int(self._state[at.FILTERS])
        return held >= FEWEST and not 0.75 * self._known <= held <= 1.25 * self._known

    def note(self, counts: Counts, times: float = 1.0) -> None:
        """Adds what events have cost to the account.

        Args:
            counts: what they took.
            times: how many times as many events they stand for.
        """
        if self.unsure:
            self.reset()
        held = int(self._state[at.FILTERS])
        if held < FEWEST or self.better:
            return
        cost = self._cost(counts)
        self._spent += cost * counts.events * times
        if self._spent < ENTER * held * self._patience:
            return
        if self._state[at.POOLED] and counts.reached is None:
            self.asked = True
            return
        self._spent = 0.0
        self._patience *= 2.0
        self.better = self._is_better(counts, cost)

    def _cost(self, counts: Counts) -> float:
        """Nanoseconds an event that weak filters have taken."""
        if self._state[at.POOLED]:
            return counts.pool(_blocks(int(self._state[at.SLOTS_USED])), int(self._state[at.AXES_USED]))
        return counts.lists()

    def _is_better(self, counts: Counts, cost: float) -> bool:
        """Whether the pool, or a pool with other axes, or lists would cost clearly less."""
        pooled = bool(self._state[at.POOLED])
        held = int(self._state[at.FILTERS] - self._state[at.LOCATED_FILTERS])
        filters = int(self._state[at.POOL_FILTERS]) if pooled else held
        axes = self._sampled()
        pool = float("inf")
        if axes is not None:
            pool = pool_instead(filters, _blocks(filters), len(axes.words), axes.share)
        lists = float("inf")
        if pooled:
            constraints = int(self._state[at.CONSTRAINTS]) / max(1, int(self._state[at.FILTERS]))
            signatures = int(self._state[at.SIGNATURES])
            lists = counts.lists_instead(filters, signatures, constraints, at.COLUMNS_FROM)
        self._pool_next = pool < lists
        return min(pool, lists) * BETTER < cost

    def _sampled(self) -> Axes | None:
        """Axes for the weak filters that are there; None if there are none."""
        step = max(1, int(self._state[at.SUBSCRIPTIONS]) * 8 // _SAMPLE)
        found = np.empty((_SAMPLE, 4), np.uint32)
        taken = sample_intervals(self._at, step, address_of(found), _SAMPLE)
        return choose_axes(found[:taken]) if taken else None

    def arrange(self) -> None:
        """Moves weak filters to where they cost less."""
        if not self.better:
            return
        pooled = bool(self._state[at.POOLED])
        if self._pool_next and pooled:
            self._renew()
        elif self._pool_next:
            axes = self._sampled()
            if axes is not None:
                self._take(axes)
                self._state[at.AXES_USED] = len(axes.words)
                self._finish(fill_pool)
        else:
            self._finish(drain_pool)
        self.better = False
        self._renewed = int(self._state[at.POOL_FILTERS])

    def _finish(self, kernel: Callable[[int], int]) -> None:
        while kernel(self._at) == at.FULL:
            self._make_room()

    def _take(self, axes: Axes) -> None:
        """Writes axes where the pool reads them."""
        self._grow("axes", len(axes.words))
        words: Any = self._arenas["axes"].view(np.uint32)
        words[: axes.words.size] = axes.words.ravel()
        self._state[at.POOL_ROWS] = axes.rows

    def _renew(self) -> None:
        axes = self._sampled()
        if axes is None:
            return
        self._take(axes)
        self._grow("bits", axes.rows * _blocks(int(self._state[at.POOL_FILTERS])))
        renew_pool(self._at, len(axes.words))

    def keep_up(self) -> None:
        """Chooses axes anew once the pool has grown or shrunk much; called by one alone."""
        if not self._state[at.POOLED]:
            return
        held = int(self._state[at.POOL_FILTERS])
        if (
            held > _GROWN * max(FEWEST, self._renewed)
            or _GROWN * (held + FEWEST) < self._state[at.SLOTS_USED]
        ):
            self._renew()
            self._renewed = held


def _blocks(slots: int) -> int:
    return -(-slots // at.IN_BLOCK)
