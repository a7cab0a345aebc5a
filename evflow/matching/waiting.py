"""Single moves that wait for each other, so that many are made at once.

A move reads what is in no cache, and a single one waits for each read; many have their reads under way at
once. So moves are checked when they are called, and made before anything looks at subscriptions or changes
them.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evflow.errors import SubscriptionError
from evflow.matching.filters import Moves
from evflow.matching.ids import Ids
from evflow.matching.moving import COLUMNS, EVERY, KEPT, ROW, OneMove
from evflow.matching.space import Space

ALONE = 32
"""How many moves are made as they come after an event was matched: few that wait cost more than that."""

MOST = 512
"""How many moves wait at most: whoever matches next waits until they are made."""

_FEW = 8
"""So many are made sooner one by one."""


class WaitingMoves:
    """Moves that nothing is wrong with, in the order in which they were called.

    Any thread adds to them at any time; ``make`` is for one alone.

    Args:
        ids: the ids in use.
        space: where areas are.
        engine: what makes many moves; where it cannot make one sooner than many, none waits.
        one: what makes one.
        note: is told the moves that were made, each a ``ROW``.

    Attributes:
        rows: what waits; false if nothing does.
    """

    def __init__(
        self, ids: Ids, space: Space, engine: Any, one: OneMove, note: Callable[[bytes], None]
    ) -> None:
        self.rows = bytearray()
        self._note = note
        self._ids = ids
        self._space = space
        self._engine = engine
        self._one = one
        self._bounds = space.bounds
        self._most = MOST * ROW.size if hasattr(engine, "move_one") else 0

    def add(self, id: Any, x: float, y: float, radius: float | None, which: int | None) -> bool:
        """Notes a move, unless too many wait or something may be wrong with it; whether it waits now."""
        first, second, third = self._bounds
        if not (
            isinstance(x, float) and -first < x < first and isinstance(y, float) and -second < y < second
        ):
            return False
        if radius is not None and not (isinstance(radius, float) and 0.0 <= radius < third):
            return False
        if not self._ids.moves(id) or len(self.rows) >= self._most:
            return False
        if which is not None and not (type(which) is int and (which == 0 or self._has(id, which))):
            return False
        # Bytes are added in one step, whatever other threads do.
        self.rows += ROW.pack(id, EVERY if which is None else which, x, y, KEPT if radius is None else radius)
        return True

    def _has(self, id: int, which: int) -> bool:
        """Whether a subscription has a filter of this number, and with an area."""
        return which > 0 and self._ids.has_area(id, which)

    def make(self) -> None:
        """Makes all moves that wait; one whose subscription another thread took away since is none."""
        rows = bytes(self.rows)
        if len(rows) > _FEW * ROW.size:
            self._make_many(np.frombuffer(rows, COLUMNS))
        else:
            for id, which, x, y, radius in ROW.iter_unpack(rows):
                with suppress(SubscriptionError):
                    self._one.move(
                        id, x, y, radius if radius != KEPT else None, which if which != EVERY else None
                    )
        self._note(rows)
        # Not before, so that who is interrupted makes them again.
        del self.rows[: len(rows)]

    def _make_many(self, moves: NDArray[Any]) -> None:
        ids, which = moves["id"], moves["which"]
        centre = self._space.places(moves["x"], moves["y"])
        kept = moves["radius"] == KEPT
        if kept.all():
            self._engine.move(Moves(ids, which, centre, None))
            return
        reach = self._space.reaches(moves["radius"])
        changes = (np.flatnonzero(kept[1:] != kept[:-1]) + 1).tolist()
        for start, stop in pairwise([0, *changes, len(moves)]):
            these = slice(start, stop)
            there = None if kept[start] else reach[these]
            self._engine.move(Moves(ids[these], which[these], centre[these], there))
