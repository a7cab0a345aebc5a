"""The kernels that tell which areas overlap: pairs of two columns, and places that an index found near."""

from __future__ import annotations

from typing import Any

import numpy as np

from evflow.matching.areas import flat, sphere
from evflow.matching.areas.flat import holds_point
from evflow.matching.globe import place_vector, turned
from evflow.matching.literals import LIMIT
from evflow.matching.native import Read, ReadRows, Write, WriteRows, array_kernel, compiled
from evflow.matching.outlines import LEAST

_POINT, _CIRCLE, _BOX, _POLYGON = 1, 2, 3, 4
_ALL: Any = np.inf


@compiled
def _small(number: float) -> float:
    return 0.0 if abs(number) < LEAST else number


@compiled
def _plane_holds(x: float, y: float, other: Any, j: int, work: Any) -> bool:
    """Whether a box or a polygon on the plane holds a point."""
    b = other[1]
    x, y = _small(x), _small(y)
    if not (b[j, 0] <= x <= b[j, 2] and b[j, 1] <= y <= b[j, 3]):
        return False
    return other[0][j] == _BOX or holds_point(other, j, x, y, work)


@compiled
def _on_plane(one: Any, i: int, other: Any, j: int, work: Any) -> bool:
    """Whether two areas on the plane overlap; the kind of the first is not after that of the second."""
    kind, second, a, b = one[0][i], other[0][j], one[1], other[1]
    x, y = a[i, 0], a[i, 1]
    if second <= _CIRCLE:
        if not (abs(x) <= LIMIT and abs(y) <= LIMIT and abs(b[j, 0]) <= LIMIT and abs(b[j, 1]) <= LIMIT):
            return False
        dx, dy, radius = x - b[j, 0], y - b[j, 1], a[i, 2] + b[j, 2]
        return bool(dx * dx + dy * dy <= radius * radius)
    if kind == _POINT:
        return _plane_holds(x, y, other, j, work)
    x1, y1, x2, y2 = b[j, 0], b[j, 1], b[j, 2], b[j, 3]
    if kind == _CIRCLE:
        radius = a[i, 2]
        dx, dy = x - min(max(x, x1), x2), y - min(max(y, y1), y2)
        if not dx * dx + dy * dy <= radius * radius:
            return False
        return second == _BOX or flat.circle_polygon(other, j, x, y, radius, work)
    if x1 > a[i, 2] or a[i, 0] > x2 or y1 > a[i, 3] or a[i, 1] > y2:
        return False
    if second == _BOX:
        return True
    if kind == _BOX:
        return flat.polygon_box(other, j, 0.0, a[i, 0], a[i, 1], a[i, 2], a[i, 3], work)
    return flat.polygons_meet(one, i, other, j, 0.0, work)


@compiled
def _at_pole(area: Any, i: int, pole: float) -> bool:
    """Whether a box or polygon reaches a pole, 90 or -90."""
    numbers = area[1]
    return bool(numbers[i, 2] == pole) if pole > 0.0 else bool(numbers[i, 0] == pole)


@compiled
def _in_box(box: Any, j: int, longitude: float) -> bool:
    """Whether a longitude from -180 up to 180 is one of a box."""
    west, east = box[1][j, 1], box[1][j, 3]
    if west > east:
        return bool(longitude >= west or longitude <= east)
    return bool(west <= longitude <= east or (longitude == -180.0 and east == 180.0))


@compiled
def _in_polygon(area: Any, j: int, latitude: float, longitude: float, work: Any) -> bool:
    """Whether a polygon holds a place, at its longitude or a turn from it."""
    numbers = area[1]
    if not numbers[j, 0] <= latitude <= numbers[j, 2]:
        return False
    for turn in (-360.0, 0.0, 360.0):
        at = longitude + turn
        if numbers[j, 1] <= at <= numbers[j, 3] and holds_point(area, j, latitude, at, work):
            return True
    return False


@compiled
def _ranges_meet(west: float, east: float, other_west: float, other_east: float) -> bool:
    """Whether longitudes from -180 to 180 overlap, where 180 is -180."""
    if west <= other_east and other_west <= east:
        return True
    return (east == 180.0 and other_west == -180.0) or (other_east == 180.0 and west == -180.0)


@compiled
def _box_polygon(box: Any, i: int, area: Any, j: int, west: float, east: float, work: Any) -> bool:
    """Whether the part of a box between two longitudes and a polygon overlap."""
    numbers = area[1]
    south, north = box[1][i, 0], box[1][i, 2]
    for turn in (-360.0, 0.0, 360.0):
        apart = numbers[j, 1] + turn > east or numbers[j, 3] + turn < west
        if not apart and flat.polygon_box(area, j, turn, south, west, north, east, work):
            return True
    return False


@compiled
def _with_circle(one: Any, i: int, other: Any, j: int, work: Any) -> bool:
    """Whether a circle on the globe and a box or polygon overlap."""
    numbers = one[1]
    latitude, longitude = numbers[i, 0], turned(numbers[i, 1])
    centre, reach = place_vector(latitude, longitude), sphere.reach_of(numbers[i, 2])
    bounds = other[1]
    south, north = bounds[j, 0], bounds[j, 2]
    if other[0][j] == _BOX:
        west, east = bounds[j, 1], bounds[j, 3]
        if west <= east:
            return sphere.circle_range(latitude, longitude, reach, centre, south, west, north, east)
        return sphere.circle_range(
            latitude, longitude, reach, centre, south, west, north, 180.0
        ) or sphere.circle_range(latitude, longitude, reach, centre, south, -180.0, north, east)
    return _in_polygon(other, j, latitude, longitude, work) or sphere.circle_rings(
        other, j, reach, centre, work
    )


@compiled
def _globe_holds(latitude: float, longitude: float, other: Any, j: int, work: Any) -> bool:
    """Whether a box or a polygon on the globe holds a place."""
    if not -90.0 <= latitude <= 90.0 or not -_ALL < longitude < _ALL:
        return False
    if abs(latitude) == 90.0 and _at_pole(other, j, latitude):
        return True
    latitude, longitude = _small(latitude), _small(turned(longitude))
    if not other[1][j, 0] <= latitude <= other[1][j, 2]:
        return False
    if other[0][j] == _BOX:
        return _in_box(other, j, longitude)
    return _in_polygon(other, j, latitude, longitude, work)


@compiled
def _holds(globe: int, place: Any, i: int, other: Any, j: int, work: Any) -> bool:
    """Whether a box or a polygon holds a place; what is none of these does."""
    if other[0][j] == 0:
        return True
    if globe:
        return _globe_holds(place[i, 0], place[i, 1], other, j, work)
    return _plane_holds(place[i, 0], place[i, 1], other, j, work)


@compiled
def _on_globe(one: Any, i: int, other: Any, j: int, work: Any) -> bool:
    """Whether two areas on the globe overlap; the kind of the first is not after that of the second."""
    kind, second, a, b = one[0][i], other[0][j], one[1], other[1]
    if not -90.0 <= a[i, 0] <= 90.0 or not -_ALL < a[i, 1] < _ALL:
        return False
    if second <= _CIRCLE:
        if not -90.0 <= b[j, 0] <= 90.0 or not -_ALL < b[j, 1] < _ALL:
            return False
        one_centre, other_centre = place_vector(a[i, 0], a[i, 1]), place_vector(b[j, 0], b[j, 1])
        return sphere.circles_meet(one_centre, other_centre, a[i, 2] + b[j, 2])
    if kind == _CIRCLE:
        return _with_circle(one, i, other, j, work)
    if kind == _POINT:
        return _globe_holds(a[i, 0], a[i, 1], other, j, work)
    for pole in (-90.0, 90.0):
        if _at_pole(one, i, pole) and _at_pole(other, j, pole):
            return True
    south, north = b[j, 0], b[j, 2]
    if south > a[i, 2] or a[i, 0] > north:
        return False
    if kind == _BOX:
        west, east = a[i, 1], a[i, 3]
        if second == _BOX:
            other_west, other_east = b[j, 1], b[j, 3]
            if west > east and other_west > other_east:
                return True
            if west > east:
                return _ranges_meet(west, 180.0, other_west, other_east) or _ranges_meet(
                    -180.0, east, other_west, other_east
                )
            if other_west > other_east:
                return _ranges_meet(west, east, other_west, 180.0) or _ranges_meet(
                    west, east, -180.0, other_east
                )
            return _ranges_meet(west, east, other_west, other_east)
        if west <= east:
            return _box_polygon(one, i, other, j, west, east, work)
        return _box_polygon(one, i, other, j, west, 180.0, work) or _box_polygon(
            one, i, other, j, -180.0, east, work
        )
    for turn in (-720.0, -360.0, 0.0, 360.0, 720.0):
        apart = b[j, 1] + turn > a[i, 3] or b[j, 3] + turn < a[i, 1]
        if not apart and flat.polygons_meet(one, i, other, j, turn, work):
            return True
    return False


@compiled
def meet(globe: int, one: Any, i: int, other: Any, j: int, work: Any) -> bool:
    """Whether two areas overlap."""
    if globe:
        if one[0][i] <= other[0][j]:
            return _on_globe(one, i, other, j, work)
        return _on_globe(other, j, one, i, work)
    if one[0][i] <= other[0][j]:
        return _on_plane(one, i, other, j, work)
    return _on_plane(other, j, one, i, work)


@array_kernel
def pairs_meet(
    globe: int,
    kind: Read[np.uint8], numbers: ReadRows[np.float64], first: Read[np.int64], last: Read[np.int64],
    rings: Read[np.int64], corners: ReadRows[np.float64],
    kind2: Read[np.uint8], numbers2: ReadRows[np.float64], first2: Read[np.int64],
    last2: Read[np.int64], rings2: Read[np.int64], corners2: ReadRows[np.float64],
    left: Read[np.int64], right: Read[np.int64], work: Write[np.float64], out: Write[np.uint8],
) -> None:  # fmt: skip
    """Writes 1 for each pair of areas that overlap, else 0.

    Args:
        globe: 1 on the globe, 0 on the plane.
        kind, numbers, first, last, rings, corners: the first areas: see ``AreaColumns``; first and last are
            where the rings of an area start and end.
        kind2, numbers2, first2, last2, rings2, corners2: the second areas.
        left, right: the number of the first and of the second area of each pair.
        work: to work in.
        out: one each pair.
    """
    one = (kind, numbers, first, last, rings, corners)
    other = (kind2, numbers2, first2, last2, rings2, corners2)
    for pair in range(len(left)):
        out[pair] = 1 if meet(globe, one, left[pair], other, right[pair], work) else 0


@array_kernel
def found_hold(
    globe: int, places: ReadRows[np.float64],
    kind: Read[np.uint8], numbers: ReadRows[np.float64], first: Read[np.int64], last: Read[np.int64],
    rings: Read[np.int64], corners: ReadRows[np.float64],
    offsets: Read[np.int64], found: Read[np.int32], work: Write[np.float64], out: Write[np.uint8],
) -> None:  # fmt: skip
    """Writes 1 for each box or polygon that was found for a place and holds it, or what is none; else 0.

    Args:
        globe: 1 on the globe, 0 on the plane.
        places: (N, 2): where.
        kind, numbers, first, last, rings, corners: the areas: see ``AreaColumns``; first and last are where
            the rings of an area start and end.
        offsets: N + 1: where the areas found for each place start and end.
        found: their numbers.
        work: to work in.
        out: one for each that was found.
    """
    areas = (kind, numbers, first, last, rings, corners)
    for place in range(len(offsets) - 1):
        for at in range(offsets[place], offsets[place + 1]):
            out[at] = 1 if _holds(globe, places, place, areas, found[at], work) else 0


@array_kernel
def owners_around(
    globe: int, place: ReadRows[np.float64],
    kind: Read[np.uint8], numbers: ReadRows[np.float64], first: Read[np.int64], last: Read[np.int64],
    rings: Read[np.int64], corners: ReadRows[np.float64],
    found: Read[np.int32], work: Write[np.float64],
    owner: Read[np.int32], several: Read[np.uint8], out: Write[np.int32],
) -> int:  # fmt: skip
    """Writes whose the areas are that were found for one place and hold it, each as often as it has some.

    Args:
        globe, place, kind, numbers, first, last, rings, corners, found, work: see ``found_hold``.
        owner: whose each area is.
        several: whether its owner has others.
        out: as long as ``found``.

    Returns:
        How many it wrote, less ``len(found) + 1`` if an owner may stand twice.
    """
    areas = (kind, numbers, first, last, rings, corners)
    count = twice = 0
    for i in range(len(found)):
        area = found[i]
        if _holds(globe, place, 0, areas, area, work):
            out[count] = owner[area]
            count += 1
            twice |= several[area]
    return count - len(found) - 1 if twice and count > 1 else count


@array_kernel
def located(
    start: Read[np.int64], name: Read[np.int32], kind: Read[np.uint8], number: Read[np.float64],
    first: int, second: int, places: WriteRows[np.float64],
) -> None:  # fmt: skip
    """Writes the numbers that events have for two attributes to the first columns of ``places``.

    Args:
        start, name, kind, number: the events; see ``EventRows``.
        first, second: the attributes.
        places: (N, 2): NaN where an event has no number.
    """
    for event in range(len(start) - 1):
        places[event, 0] = np.nan
        places[event, 1] = np.nan
        for at in range(start[event], start[event + 1]):
            if kind[at] == 1:
                if name[at] == first:
                    places[event, 0] = number[at]
                elif name[at] == second:
                    places[event, 1] = number[at]
