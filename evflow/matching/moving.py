"""Areas that move: what the user gives, checked, as what engines get."""

from __future__ import annotations

import math
from struct import Struct
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evflow.errors import SubscriptionError
from evflow.matching.encoding.values import number_of
from evflow.matching.globe import unit_vector
from evflow.matching.ids import ALL, LARGEST, Ids
from evflow.matching.space import Space

Moves = tuple[NDArray[np.int32], NDArray[np.int32], NDArray[Any], NDArray[Any] | None]
"""The arguments of ``Engine.move``."""

EVERY, KEPT = -1, -1.0
"""Stand for all filters, and for the radius that there is."""

ROW = Struct("=iiddd")
"""A move as bytes: subscription, filter or ``EVERY``, centre as it was given, radius or ``KEPT``."""

COLUMNS = np.dtype([("id", "i4"), ("which", "i4"), ("x", "f8"), ("y", "f8"), ("radius", "f8")])
"""Many of them as an array."""


class OneMove:
    """Makes single moves, in arrays that are made once: numpy takes longer over arrays of one.

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
        self._arrays = np.zeros(1, np.int32), np.zeros(1, np.int32)
        self._centre: Any = np.zeros((1, space.dimensions))
        self._reach: Any = np.zeros(1)
        self._id, self._which = (array.data for array in self._arrays)
        self._place = self._centre.data.cast("B").cast("d")
        self._square = self._reach.data

    def move(self, id: int | str, x: float, y: float, radius: float | None, which: int | None) -> int:
        """Makes one move.

        Returns:
            The id as an integer.

        Raises:
            SubscriptionError: there is no such subscription or filter, it has no area, or a number is wrong.
        """
        # All else that may be wrong the engine's own way refuses.
        if (
            isinstance(x, float)
            and isinstance(y, float)
            and type(id) is int
            and id <= LARGEST
            and self._quick
        ):
            number = EVERY if which is None else self._number(which)
            reach = KEPT if radius is None else self._reach_of(radius)
            if self._globe:
                moved = self._quick(id, number, *unit_vector(x, y), reach)
            else:
                moved = self._quick(id, number, x, y, 0.0, reach)
            if moved:
                return id
        number = self._ids.texts.number(id) if isinstance(id, str) else id
        self._engine.move(*self._checked(number, x, y, radius, which))
        return number

    def _number(self, which: Any) -> int:
        """The number of a filter, one that none has if it is wrong."""
        return which if type(which) is int and 0 <= which < LARGEST else LARGEST

    def _reach_of(self, radius: Any) -> float:
        """The square of a radius, NaN if it is none."""
        if not isinstance(radius, float):
            return math.nan
        self._space.put_reach(self._square, radius)
        reach: float = self._square[0]
        return reach

    def _checked(self, id: int, x: float, y: float, radius: float | None, which: int | None) -> Moves:
        """One move; its arrays are good until the next."""
        if which is not None or not self._ids.moves(id):
            _check_area(self._ids, id, which)
        self._id[0], self._which[0] = id, -1 if which is None else which
        # To compare a float32 of numpy with a larger number gives a warning.
        x, y = (value.item() if isinstance(value, np.generic) else value for value in (x, y))
        try:
            self._space.put(self._place, x, y)
            if radius is not None:
                self._space.put_reach(self._square, radius)
        except (TypeError, OverflowError) as error:
            raise SubscriptionError(f"move of subscription {id}: expected numbers: {error}") from None
        if self._place[0] != self._place[0]:
            self._space.areas(np.array([number_of(x)]), np.array([number_of(y)]))
        if radius is None:
            return *self._arrays, self._centre, None
        if self._square[0] != self._square[0]:
            self._space.checked_reaches(np.array([number_of(radius)]))
        return *self._arrays, self._centre, self._reach


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
    return known, which, centre, reach


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
