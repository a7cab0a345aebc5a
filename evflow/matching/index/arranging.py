"""Decides by what matching takes whether weak filters stand in lists or in the pool, and moves them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evflow.events.gather import address_of
from evflow.matching.index import layout as at
from evflow.matching.index.axes import Axes, choose_axes
from evflow.matching.index.cost import BETTER, ENTER, FEWEST, Counts, pool_instead
from evflow.matching.index.memory import Buffer
from evflow.matching.index.pool import drain_pool, fill_pool, renew_pool, sample_intervals

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
