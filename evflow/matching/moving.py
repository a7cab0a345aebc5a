"""Areas that move: what the user gives, checked, as what engines get."""

from __future__ import annotations

from struct import Struct
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evflow.errors import SubscriptionError
from evflow.matching.filters import Moves
from evflow.matching.globe import unit_vector
from evflow.matching.ids import ALL, LARGEST, Ids
from evflow.matching.space import Space

EVERY, KEPT = -1, -1.0
"""Stand for all filters, and for the radius that there is."""

ROW = Struct("=iiddd")
"""A move as bytes: subscription, filter or ``EVERY``, centre as it was given, radius or ``KEPT``."""

COLUMNS = np.dtype([("id", "i4"), ("which", "i4"), ("x", "f8"), ("y", "f8"), ("radius", "f8")])
"""Many of them as an array."""


class OneMove:
    """Makes single moves.

    Args:
        ids: the ids in use.
        space: where areas are.
        engine: what moves them.
    """

    def __init__(self, ids: Ids, space: Space, engine: Any) -> None:
        self._ids = ids
        self._space = space
        self._engine = engine
        # Some engines move one area sooner than ``move`` could.
        self._quick: Any = getattr(engine, "move_one", None)
        self._globe = space.dimensions == 3

    def move(self, id: int | str, x: float, y: float, radius: float | None, which: int | None) -> int:
        """Makes one move.

        Returns:
            The id as an integer.

        Raises:
            SubscriptionError: there is no such subscription or filter, it has no area, or a number is wrong.
        """
        number = self._ids.texts.number(id) if isinstance(id, str) else id
        reach = KEPT
        if radius is not None or type(x) is not float or type(y) is not float:
            try:
                x, y, reach = x + 0.0, y + 0.0, KEPT if radius is None else self._space.reach(radius + 0.0)
            except (TypeError, OverflowError) as error:
                raise SubscriptionError(f"move of subscription {id}: expected numbers: {error}") from None
        # What it refuses is looked at more closely.
        if self._quick and type(number) is int and number <= LARGEST:
            filter = EVERY if which is None else _number(which)
            if self._globe:
                moved = self._quick(number, filter, *unit_vector(x, y), reach)
            else:
                moved = self._quick(number, filter, x, y, 0.0, reach)
            if moved:
                return number
        _check_area(self._ids, number, which)
        filters = None if which is None else [which]
        self._engine.move(checked_moves(self._ids, self._space, [number], x, y, radius, filters))
        return number


def _number(which: Any) -> int:
    """The number of a filter, one that none has if it is wrong."""
    return which if type(which) is int and 0 <= which < LARGEST else LARGEST


def checked_moves(
    ids: Ids, space: Space, given: ArrayLike, x: Any, y: Any, radius: Any, filters: Any
) -> Moves:
    """Many moves.

    Raises:
        SubscriptionError: see ``OneMove``, or arrays have different lengths; names the first that is wrong.
    """
    known = ids.known(given)
    n = len(known)
    centre = space.areas(_floats("x", x, n), _floats("y", y, n))
    reach = None if radius is None else space.checked_reaches(_floats("radius", radius, n))
    which = np.full(n, -1, np.int32) if filters is None else _numbers(filters, n)
    easy = (ids.areas[known] == ALL) & (which < ids.filters[known]) & (which >= -1)
    for i in np.flatnonzero(~easy).tolist():
        number = int(which[i])
        _check_area(ids, int(known[i]), None if number == -1 else number)
    return Moves(known, which, centre, reach)


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
    if array.ndim == 0:
        return np.full(n, array)
    if array.shape != (n,):
        raise SubscriptionError(f"{what}: expected one for each of {n} ids, found shape {array.shape}")
    return array
