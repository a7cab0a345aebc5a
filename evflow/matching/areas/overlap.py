"""Which areas overlap: pairs of columns, or of two objects."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evflow.errors import SubscriptionError
from evflow.matching.areas.columns import AreaColumns, space_of_area
from evflow.matching.areas.flat import WORK
from evflow.matching.areas.meeting import pairs_meet
from evflow.matching.literals import shown
from evflow.matching.model import Area


@overload
def overlaps(first: AreaColumns, second: AreaColumns, pairs: Any = None) -> NDArray[np.bool_]: ...


@overload
def overlaps(first: Area, second: Area) -> bool: ...


def overlaps(first: Any, second: Any, pairs: tuple[ArrayLike, ArrayLike] | None = None) -> Any:
    """Whether areas have a place in common, borders included.

    Args:
        first: columns of N areas, or an area as an object.
        second: columns of M areas on the same space, or an area as an object.
        pairs: two columns of P integers: the numbers of the first and of the second area of each pair. None:
            each area with the one of the same number; columns of one area go with all of the others.

    Returns:
        Bool, one a pair: of P pairs, or of N or M. Of two objects a bool.

    Raises:
        SubscriptionError: the areas are in different spaces, the columns have other lengths, or a number is
            none of an area.

    How it is decided, always in float64:

    * A place is in a box by its coordinates, and in a polygon exactly: see ``Box``, ``Polygon``. Two of these
      overlap if their borders have a point in common, told exactly, or one holds a corner of the other.
    * Circles on the plane overlap if ``dx * dx + dy * dy <= r * r`` for their centres and the sum ``r`` of
      their radii. For a box it is the distance of the centre to the nearest place of the box, for a polygon
      to the nearest point of an edge, unless the polygon holds the centre.
    * On the globe chords take the place of distances. The chord to an edge of a polygon is found to within
      1e-15 of the square of the globe's radius.
    * On the globe a polygon is compared where it is written and whole turns of 360 degrees from there, its
      longitudes rounded to float64 (3e-14 degrees).

    The method for polygons: edges that cross, else a corner of each ring within the other polygon.

    Example:
        >>> from evflow.matching import Box, Circle, Polygon
        >>> overlaps(Polygon([(0, 0), (4, 0), (0, 3)]), Circle(4, 3, 2.4))
        True
        >>> boxes = AreaColumns.boxes([0, 5], 0, [1, 6], 1)
        >>> overlaps(boxes, AreaColumns.points(0.5, 0.5))
        array([ True, False])
        >>> overlaps(boxes, boxes, pairs=([0, 0], [0, 1]))
        array([ True, False])
    """
    if not isinstance(first, AreaColumns) and not isinstance(second, AreaColumns):
        spaces = [space_of_area(area) for area in (first, second)]
        for area, space in zip((first, second), spaces, strict=True):
            if space is None:
                raise SubscriptionError(f"overlaps: expected an area or AreaColumns but found {shown(area)}")
        _same(*spaces)
        return bool(overlaps(AreaColumns.of([first]), AreaColumns.of([second]))[0])
    for columns in (first, second):
        if not isinstance(columns, AreaColumns):
            raise SubscriptionError(
                f"overlaps: expected AreaColumns beside others but found {shown(columns)}"
            )
    _same(first.space, second.space)
    left, right = _chosen(first, second, pairs)
    out = np.zeros(len(left), np.uint8)
    globe = int(first.space == "globe")
    pairs_meet(globe, *arrays(first), *arrays(second), left, right, np.empty(WORK), out)
    return out.view(np.bool_)


Arrays = tuple[Any, Any, Any, Any, Any, Any]
"""Kind, numbers, first and last ring, rings, corners."""


def arrays(columns: AreaColumns) -> Arrays:
    """The columns as kernels take them."""
    held = columns.kind, columns.numbers, columns.rings, columns.corners
    kind, numbers, rings, corners = map(np.ascontiguousarray, held)
    return kind, numbers, columns.start[:-1].copy(), columns.start[1:].copy(), rings, corners


def _same(first: str | None, second: str | None) -> None:
    if first != second:
        raise SubscriptionError(f"overlaps: an area is on the {first}, the other on the {second}")


def _chosen(
    first: AreaColumns, second: AreaColumns, pairs: tuple[ArrayLike, ArrayLike] | None
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    if pairs is None:
        n, m = len(first), len(second)
        if n not in (m, 1) and m != 1:
            raise SubscriptionError(
                f"overlaps: {n} areas and {m}: expected as many, or one; else give pairs="
            )
        count = m if n == 1 else n
        all_of = np.arange(count)
        none = np.zeros(count, np.int64)
        return (none if n == 1 else all_of), (none if m == 1 else all_of)
    if not isinstance(pairs, Sequence | np.ndarray) or len(pairs) != 2:
        raise SubscriptionError("overlaps: expected pairs as two columns of integers")
    left, right = (np.asarray(column) for column in pairs)
    for column, areas in ((left, first), (right, second)):
        if column.ndim != 1 or (column.dtype.kind not in "iu" and column.size):
            raise SubscriptionError("overlaps: expected pairs as two columns of integers")
        if column.size and not (int(column.min()) >= 0 and int(column.max()) < len(areas)):
            raise SubscriptionError(f"overlaps: expected numbers of {len(areas)} areas in pairs")
    if len(left) != len(right):
        raise SubscriptionError(f"overlaps: {len(left)} and {len(right)} numbers in pairs: expected as many")
    return left.astype(np.int64), right.astype(np.int64)
