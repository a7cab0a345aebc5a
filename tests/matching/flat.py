"""Overlap in fractions, corner by corner and edge by edge: the oracle of boxes and polygons."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from itertools import pairwise

from evflow.matching import Box, Circle, GlobeBox, GlobeCircle, GlobePolygon, Polygon

Point = tuple[Fraction, Fraction]
Rings = list[list[Point]]
TURN = Fraction(360)


def rings_of(area: Box | Polygon) -> Rings:
    """An area on the plane as closed rings."""
    if isinstance(area, Polygon):
        return [[(Fraction(x), Fraction(y)) for x, y in ring] for ring in area.rings]
    x1, y1, x2, y2 = (Fraction(number) for number in (area.x1, area.y1, area.x2, area.y2))
    return [[(x1, y1), (x2, y1), (x2, y2), (x1, y2), (x1, y1)]]


def globe_rings_of(area: GlobeBox | GlobePolygon) -> list[Rings]:
    """The copies of an area on the globe at which a place from -180 up to 180 may be, a turn apart."""
    if isinstance(area, GlobePolygon):
        rings = [[(Fraction(a), Fraction(b)) for a, b in ring] for ring in area.rings]
    else:
        south, west, north, east = (Fraction(n) for n in (area.south, area.west, area.north, area.east))
        east += TURN if east < west else 0
        rings = [[(south, west), (south, east), (north, east), (north, west), (south, west)]]
    return [[[(a, b + n * TURN) for a, b in ring] for ring in rings] for n in range(-2, 3)]


def edges(rings: Rings) -> Iterator[tuple[Point, Point]]:
    for ring in rings:
        yield from pairwise(ring)


def on_edge(point: Point, a: Point, b: Point) -> bool:
    (px, py), (ax, ay), (bx, by) = point, a, b
    if (bx - ax) * (py - ay) != (by - ay) * (px - ax):
        return False
    return min(ax, bx) <= px <= max(ax, bx) and min(ay, by) <= py <= max(ay, by)


def holds(rings: Rings, point: Point) -> bool:
    """On an edge, or with an odd number of edges in the one direction."""
    odd = False
    for a, b in edges(rings):
        if on_edge(point, a, b):
            return True
        (ax, ay), (bx, by) = a, b
        if (ay > point[1]) != (by > point[1]):
            odd ^= ax + (point[1] - ay) * (bx - ax) / (by - ay) > point[0]
    return odd


def cross(a: Point, b: Point, c: Point, d: Point) -> bool:
    """Whether two edges meet, by the place where their lines do."""
    (ax, ay), (bx, by), (cx, cy), (dx, dy) = a, b, c, d
    across = (bx - ax) * (dy - cy) - (by - ay) * (dx - cx)
    if across == 0:
        return on_edge(a, c, d) or on_edge(b, c, d) or on_edge(c, a, b) or on_edge(d, a, b)
    t = ((cx - ax) * (dy - cy) - (cy - ay) * (dx - cx)) / across
    u = ((cx - ax) * (by - ay) - (cy - ay) * (bx - ax)) / across
    return 0 <= t <= 1 and 0 <= u <= 1


def meet(one: Rings, other: Rings) -> bool:
    if any(holds(other, corner) for ring in one for corner in ring):
        return True
    if any(holds(one, corner) for ring in other for corner in ring):
        return True
    return any(cross(a, b, c, d) for a, b in edges(one) for c, d in edges(other))


def away(rings: Rings, point: Point) -> Fraction:
    """The square of the least distance of a point to an edge; 0 within."""
    if holds(rings, point):
        return Fraction(0)
    found = []
    for (ax, ay), (bx, by) in edges(rings):
        along, up = bx - ax, by - ay
        length = along * along + up * up
        t = Fraction(0) if not length else ((point[0] - ax) * along + (point[1] - ay) * up) / length
        t = min(max(t, Fraction(0)), Fraction(1))
        dx, dy = point[0] - ax - t * along, point[1] - ay - t * up
        found.append(dx * dx + dy * dy)
    return min(found)


def inside(area: object, x: float, y: float) -> bool:
    """Whether an area holds a place with exact coordinates; a circle on the plane only."""
    if isinstance(area, Circle):
        dx, dy = Fraction(x) - Fraction(area.x), Fraction(y) - Fraction(area.y)
        return dx * dx + dy * dy <= Fraction(area.radius) ** 2
    if isinstance(area, Box | Polygon):
        return holds(rings_of(area), (Fraction(x), Fraction(y)))
    assert isinstance(area, GlobeBox | GlobePolygon) and not isinstance(area, GlobeCircle)
    copies = globe_rings_of(area)
    latitude, longitude = Fraction(x), Fraction(y) % 360
    if abs(latitude) == 90:
        return any(corner[0] == latitude for ring in copies[0] for corner in ring)
    return any(holds(rings, (latitude, longitude)) for rings in copies)
