"""Boxes and polygons as objects, checked when they are made."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

from evflow.errors import SubscriptionError
from evflow.matching.literals import LIMIT, checked_number, number_text, shown

MOST_CORNERS = 65_536
"""Corners that a polygon may have."""

LEAST = 1e-250
"""A coordinate of a box or a polygon that is nearer to 0 is 0, so that products of coordinates are exact."""

Ring = tuple[tuple[float, float], ...]


def _coordinate(value: object, what: str, most: float = LIMIT) -> float:
    """A coordinate on the plane; with ``most`` a latitude or longitude.

    Raises:
        SubscriptionError: it is not a number, or further from 0 than ``most``.
    """
    number = checked_number(value, what)
    if not abs(number) <= most:
        limits = f"a number up to {LIMIT:.8g}" if most == LIMIT else f"-{most:g} to {most:g} degrees"
        raise SubscriptionError(f"{what}: expected {limits} but found {number}")
    return 0.0 if abs(number) < LEAST else number


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle on the plane whose sides are parallel to the axes, borders included.

    A point is inside when ``x1 <= x <= x2`` and ``y1 <= y <= y2``. A coordinate nearer to 0 than 1e-250 is 0.

    Args:
        x1, y1: the corner with the least coordinates, at most 3.4028234e38 from 0.
        x2, y2: the corner with the greatest, which may be the same.

    Raises:
        SubscriptionError: something is not a number within these bounds, or the corners are swapped.

    Example:
        >>> print(Box(0, 0, 4, 3))
        inside(0, 0, 4, 3)
    """

    x1: float
    y1: float
    x2: float
    y2: float

    space: ClassVar[str] = "plane"

    def __post_init__(self) -> None:
        for part in ("x1", "y1", "x2", "y2"):
            object.__setattr__(self, part, _coordinate(getattr(self, part), f"{part} of a Box"))
        for least, most in (("x1", "x2"), ("y1", "y2")):
            if getattr(self, least) > getattr(self, most):
                raise SubscriptionError(
                    f"{least} of a Box: expected at most {most} {getattr(self, most)} but found "
                    f"{getattr(self, least)}"
                )

    def __str__(self) -> str:
        return f"inside({', '.join(map(number_text, (self.x1, self.y1, self.x2, self.y2)))})"


@dataclass(frozen=True, slots=True)
class GlobeBox:
    """A range of latitudes and longitudes, borders included.

    Where ``west`` is more than ``east`` the box goes over the antimeridian. The meridians 180 and -180 are
    one. A pole is in each box that reaches its latitude, whatever the longitudes.

    Args:
        south, north: the least and the greatest latitude, -90 to 90 degrees.
        west, east: where the longitudes begin and end, -180 to 180 degrees.

    Raises:
        SubscriptionError: something is not a number within these bounds, or south is north of north.

    Example:
        >>> print(GlobeBox(-20, 170, -10, -175))
        inside(-20, 170, -10, -175 degrees)
    """

    south: float
    west: float
    north: float
    east: float

    space: ClassVar[str] = "globe"

    def __post_init__(self) -> None:
        for part, most in (("south", 90.0), ("west", 180.0), ("north", 90.0), ("east", 180.0)):
            number = _coordinate(getattr(self, part), f"{part} of a GlobeBox", most)
            object.__setattr__(self, part, number)
        if self.south > self.north:
            raise SubscriptionError(
                f"south of a GlobeBox: expected at most north {self.north} but found {self.south}"
            )

    def __str__(self) -> str:
        numbers = ", ".join(map(number_text, (self.south, self.west, self.north, self.east)))
        return f"inside({numbers} degrees)"


@dataclass(frozen=True, slots=True, init=False)
class Polygon:
    """A polygon on the plane, borders included, perhaps with holes or of several parts.

    A point is inside if it lies on an edge, or if a ray from it crosses an odd number of edges of all rings
    together. So a ring within another is a hole, with its border part of the polygon; one outside is another
    part; and a ring that crosses itself has a meaning. Whether a point lies left or right of an edge is told
    exactly. A coordinate nearer to 0 than 1e-250 is 0.

    Args:
        shell: the corners of a ring, three or more pairs of x and y, at most 3.4028234e38 from 0. The first
            may stand once more at the end.
        holes: further rings. A polygon has 65,536 corners at most.

    Attributes:
        rings: the rings, each with its first corner once more at the end.

    Raises:
        SubscriptionError: a ring has too few or too many corners, or a coordinate is not such a number.

    Example:
        >>> print(Polygon([(0, 0), (4, 0), (0, 3)]))
        inside('POLYGON ((0 0, 4 0, 0 3, 0 0))')
    """

    rings: tuple[Ring, ...]

    space: ClassVar[str] = "plane"

    def __init__(self, shell: Iterable[Any], holes: Iterable[Iterable[Any]] = ()) -> None:
        object.__setattr__(self, "rings", _rings(shell, holes, "Polygon", {"x": LIMIT, "y": LIMIT}))

    def __reduce__(self) -> Any:
        return type(self), (self.rings[0], self.rings[1:])

    def __str__(self) -> str:
        return f"inside('{_wkt(self.rings)}')"


@dataclass(frozen=True, slots=True, init=False)
class GlobePolygon:
    """A polygon on the globe, borders included, perhaps with holes or of several parts.

    Edges are straight in latitude and longitude, as in GeoJSON, and go from one longitude to the next as they
    are written: from 170 to 190 over the antimeridian, from 170 to -170 the long way round. A place is inside
    as in ``Polygon``, at its longitude or one turn (360 degrees, added in float64) east or west of it. A pole
    is in each polygon that reaches its latitude.

    Args:
        shell: the corners of a ring, three or more pairs of latitude (-90 to 90) and longitude (-360 to 360,
            all corners within 360 degrees) in degrees. The first may stand once more at the end.
        holes: further rings. A polygon has 65,536 corners at most.

    Attributes:
        rings: the rings, each with its first corner once more at the end.

    Raises:
        SubscriptionError: a ring has too few or too many corners, or a coordinate is not such a number.

    Example:
        >>> print(GlobePolygon([(-20, 170), (-20, 190), (-10, 190)]))
        inside('POLYGON ((170 -20, 190 -20, 190 -10, 170 -20))' degrees)
    """

    rings: tuple[Ring, ...]

    space: ClassVar[str] = "globe"

    def __init__(self, shell: Iterable[Any], holes: Iterable[Iterable[Any]] = ()) -> None:
        rings = _rings(shell, holes, "GlobePolygon", {"latitude": 90.0, "longitude": 360.0})
        longitudes = [corner[1] for ring in rings for corner in ring]
        if max(longitudes) - min(longitudes) > 360.0:
            raise SubscriptionError(
                f"a GlobePolygon: expected longitudes within 360 degrees but found {min(longitudes)} to "
                f"{max(longitudes)}"
            )
        object.__setattr__(self, "rings", rings)

    def __reduce__(self) -> Any:
        return type(self), (self.rings[0], self.rings[1:])

    def __str__(self) -> str:
        # Well-known text has the longitude first.
        turned = tuple(tuple((second, first) for first, second in ring) for ring in self.rings)
        return f"inside('{_wkt(turned)}' degrees)"


Shape = Box | GlobeBox | Polygon | GlobePolygon
SHAPES = (Box, GlobeBox, Polygon, GlobePolygon)


def _rings(
    shell: Iterable[Any], holes: Iterable[Iterable[Any]], kind: str, axes: dict[str, float]
) -> tuple[Ring, ...]:
    found: list[Ring] = []
    (x, furthest), (y, widest) = axes.items()
    left = MOST_CORNERS
    for number, ring in enumerate([shell, *_listed(holes, f"the holes of a {kind}")]):
        corners: list[tuple[float, float]] = []
        for at, given in enumerate(_listed(ring, f"ring {number} of a {kind}")):
            what = f"corner {at} of ring {number} of a {kind}"
            pair = _listed(given, what)
            if len(pair) != 2:
                raise SubscriptionError(f"{what}: expected two numbers but found {shown(given)}")
            first = _coordinate(pair[0], f"{x} of {what}", furthest)
            corners.append((first, _coordinate(pair[1], f"{y} of {what}", widest)))
        if corners and corners[0] == corners[-1]:
            corners.pop()
        if len(corners) < 3:
            raise SubscriptionError(
                f"ring {number} of a {kind}: expected three corners or more but found {len(corners)}"
            )
        left -= len(corners)
        if left < 0:
            raise SubscriptionError(f"a {kind}: expected at most {MOST_CORNERS:,} corners")
        found.append((*corners, corners[0]))
    return tuple(found)


def _listed(given: Any, what: str) -> list[Any]:
    if isinstance(given, (str, bytes)) or not isinstance(given, Iterable):
        raise SubscriptionError(f"{what}: expected a list but found {shown(given)}")
    return list(given)


def _wkt(rings: Iterable[Iterable[Iterable[float]]]) -> str:
    """Rings as well-known text."""
    written = (f"({', '.join(' '.join(map(number_text, corner)) for corner in ring)})" for ring in rings)
    return f"POLYGON ({', '.join(written)})"
