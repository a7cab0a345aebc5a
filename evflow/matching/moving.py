"""Areas that move: what the user gives, checked; and single moves, which wait for each other.

A move reads what is in no cache, and a single one waits for each read; many have their reads under way at
once. So single moves are checked when they are called, and made together before anything looks at
subscriptions or changes them.
"""

from __future__ import annotations

from collections.abc import Callable
from math import nan
from struct import Struct
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evflow.errors import SubscriptionError
from evflow.matching.ids import ALL, LARGEST, Ids
from evflow.matching.space import Space

EVERY, KEPT = -1, -1.0
"""Stand for all filters that have an area, and for the radius that there is."""

ROW = Struct("=iiddd")
"""A move as bytes: subscription, filter from 0 or ``EVERY``, centre as it was given, radius or ``KEPT``."""

MOVE = np.dtype([("id", "i4"), ("which", "i4"), ("x", "f8"), ("y", "f8"), ("radius", "f8")])
"""Such a move in an array."""

Moves = NDArray[np.void]
"""Many of them; a later one of the same filter wins."""

ALONE = 32
"""How many moves are made as they come after an event was matched: few that wait cost more than that."""

MOST = 512
"""How many moves wait at most: whoever matches next waits until they are made."""


class SingleMoves:
    """Makes single moves, at once or many together.

    Any thread has moves wait at any time; all else is for one alone.

    Args:
        ids: the ids in use.
        space: where areas are.
        engine: what makes moves; where it cannot make one sooner than many, none waits.
        note: is told the moves that were made, each a ``ROW``.

    Attributes:
        rows: what waits, in the order of the calls; false if nothing does.
    """

    def __init__(self, ids: Ids, space: Space, engine: Any, note: Callable[[bytes], None]) -> None:
        self.rows = bytearray()
        self._ids = ids
        self._space = space
        self._engine = engine
        self._note = note
        self._bounds = space.bounds
        # Some engines move one area sooner than ``move`` could.
        self._quick: Any = getattr(engine, "move_one", None)
        self._most = MOST * ROW.size if self._quick else 0

    def wait(self, id: Any, x: float, y: float, radius: float | None, which: int | None) -> bool:
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
        self._engine.move(np.frombuffer(rows, MOVE))
        self._note(rows)
        # Not before, so that who is interrupted makes them again.
        del self.rows[: len(rows)]

    def move(self, id: int | str, x: float, y: float, radius: float | None, which: int | None) -> None:
        """Makes one move now.

        Raises:
            SubscriptionError: there is no such subscription or filter, it has no area, or a number is wrong.
        """
        number = self._ids.texts.number(id) if isinstance(id, str) else id
        if radius is not None or type(x) is not float or type(y) is not float:
            try:
                x, y, radius = x + 0.0, y + 0.0, None if radius is None else radius + 0.0
            except (TypeError, OverflowError) as error:
                raise SubscriptionError(f"move of subscription {id}: expected numbers: {error}") from None
        filter = EVERY if which is None else which if type(which) is int and 0 <= which < LARGEST else LARGEST
        # What it refuses is looked at more closely.
        if self._quick and type(number) is int and number <= LARGEST:
            size = KEPT if radius is None else radius if radius >= 0 else nan
            if self._quick(number, filter, x, y, size):
                self._note(ROW.pack(number, filter, x, y, size))
                return
        _check_area(self._ids, number, which)
        filters = None if which is None else [which]
        moves = checked_moves(self._ids, self._space, [number], x, y, radius, filters)
        self._engine.move(moves)
        self._note(moves.tobytes())


def checked_moves(
    ids: Ids, space: Space, given: ArrayLike, x: Any, y: Any, radius: Any, filters: Any
) -> Moves:
    """Many moves.

    Raises:
        SubscriptionError: see ``SingleMoves``, or arrays have different lengths; names the first that is
            wrong.
    """
    known = ids.known(given)
    n = len(known)
    moves = np.empty(n, MOVE)
    moves["id"] = known
    moves["x"], moves["y"] = _floats("x", x, n), _floats("y", y, n)
    moves["radius"] = KEPT if radius is None else _floats("radius", radius, n)
    moves["which"] = which = EVERY if filters is None else _numbers(filters, n)
    space.check(moves["x"], moves["y"], None if radius is None else moves["radius"])
    easy = (ids.areas[known] == ALL) & (which < ids.filters[known]) & (moves["which"] >= EVERY)
    for i in np.flatnonzero(~easy).tolist():
        number = int(moves["which"][i])
        _check_area(ids, int(known[i]), None if number == EVERY else number)
    return moves


def _check_area(ids: Ids, id: int, which: int | None) -> None:
    if id not in ids:
        raise SubscriptionError(f"there is no subscription {id!r}")
    if which is not None and which < 0:
        raise SubscriptionError(f"filter {which}: expected a number from 0")
    if not ids.has_area(id, -1 if which is None else which):
        held = f"subscription {id}" if which is None else f"filter {which} of subscription {id}"
        raise SubscriptionError(f"{held} has no area to move; only circles move")


def _floats(what: str, given: Any, n: int) -> NDArray[np.float64]:
    """A number for each of n, or one for all."""
    try:
        array = np.asarray(given, np.float64)
    except (TypeError, ValueError) as error:
        raise SubscriptionError(f"{what}: expected numbers: {error}") from None
    return _one_each(what, array, n)


def _numbers(given: Any, n: int) -> NDArray[np.int32]:
    array = np.asarray(given)
    if array.dtype.kind not in "iu" and array.size:
        raise SubscriptionError(f"filters: expected whole numbers, found {array.dtype}")
    # Larger numbers of filters are none.
    return _one_each("filters", array, n).clip(-(2**31), 2**31 - 1).astype(np.int32)


def _one_each(what: str, array: NDArray[Any], n: int) -> NDArray[Any]:
    """The array; or one of no dimension, which stands for all."""
    if array.ndim and array.shape != (n,):
        raise SubscriptionError(f"{what}: expected one for each of {n} ids, found shape {array.shape}")
    return array
