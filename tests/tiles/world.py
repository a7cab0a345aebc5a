"""What is true of zones: brute force on the sphere, with nothing of evflow in it."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import NamedTuple

RADIUS = 6_371_008.8


class Circle(NamedTuple):
    latitude: float
    longitude: float
    radius: float


class Box(NamedTuple):
    south: float
    west: float
    north: float
    east: float


class Polygon(NamedTuple):
    """A ring of (latitude, longitude), longitudes as they are written."""

    corners: tuple[tuple[float, float], ...]


Zone = Circle | Box | Polygon


def metres(one: tuple[float, float], other: tuple[float, float]) -> float:
    """The distance of two places."""
    (a, b), (c, d) = (tuple(map(math.radians, place)) for place in (one, other))
    x, y = (
        math.cos(c) * math.sin(d - b),
        math.cos(a) * math.sin(c) - math.sin(a) * math.cos(c) * math.cos(d - b),
    )
    return RADIUS * math.atan2(
        math.hypot(x, y), math.sin(a) * math.sin(c) + math.cos(a) * math.cos(c) * math.cos(d - b)
    )


def _to_edge(place: tuple[float, float], one: tuple[float, float], other: tuple[float, float]) -> float:
    """The distance to an edge that is straight in degrees, by trying ever closer."""

    def away(share: float) -> float:
        return metres(place, (one[0] + share * (other[0] - one[0]), one[1] + share * (other[1] - one[1])))

    low, high = 0.0, 1.0
    for _ in range(2):
        steps = [low + (high - low) * k / 64 for k in range(65)]
        best = min(range(65), key=lambda k: away(steps[k]))
        low, high = steps[max(best - 1, 0)], steps[min(best + 1, 64)]
    for _ in range(80):
        third = (high - low) / 3
        if away(low + third) < away(high - third):
            high -= third
        else:
            low += third
    return min(away(low), away(0.0), away(1.0))


def to_box(place: tuple[float, float], box: Box) -> float:
    """The distance to a box; 0 inside."""
    if (place[1] - box.west) % 360 <= box.east - box.west:
        return max(box.south - place[0], place[0] - box.north, 0.0) * math.pi * RADIUS / 180
    edges = (_to_edge(place, (box.south, edge), (box.north, edge)) for edge in (box.west, box.east))
    return min(edges)


def _edges(zone: Polygon) -> list[tuple[tuple[float, float], tuple[float, float]]]:
    return list(zip(zone.corners, (*zone.corners[1:], zone.corners[0]), strict=True))


def _holds(zone: Polygon, place: tuple[float, float]) -> bool:
    """Whether an odd number of edges lies north of a place."""
    odd = False
    for (a, b), (c, d) in _edges(zone):
        if (b <= place[1]) != (d <= place[1]):
            odd ^= a + (place[1] - b) * (c - a) / (d - b) > place[0]
    return odd


def _left(a: tuple[float, float], b: tuple[float, float], p: tuple[float, float]) -> Fraction:
    (ax, ay), (bx, by), (px, py) = (tuple(map(Fraction, each)) for each in (a, b, p))
    return (ax - px) * (by - py) - (ay - py) * (bx - px)


def _cross(one: Polygon, other: Polygon) -> bool:
    for a, b in _edges(one):
        for c, d in _edges(other):
            apart = any(
                max(a[k], b[k]) < min(c[k], d[k]) or max(c[k], d[k]) < min(a[k], b[k]) for k in (0, 1)
            )
            if not apart and _left(a, b, c) * _left(a, b, d) <= 0 and _left(c, d, a) * _left(c, d, b) <= 0:
                return True
    return False


def _turned(zone: Polygon, turns: int) -> Polygon:
    return Polygon(tuple((north, east + 360 * turns) for north, east in zone.corners))


def _outline(zone: Box | Polygon) -> Polygon:
    if isinstance(zone, Polygon):
        return zone
    south, west, north, east = zone
    return Polygon(((south, west), (south, east), (north, east), (north, west)))


def _poles(zone: Box | Polygon) -> set[float]:
    norths = [corner[0] for corner in _outline(zone).corners]
    return {90.0, -90.0} & {max(norths), min(norths)}


def gap(one: Zone, other: Zone) -> float:
    """Metres between two zones: negative if they overlap, near 0 where nobody can tell."""
    if isinstance(one, Circle) and isinstance(other, Circle):
        return metres(one[:2], other[:2]) - one.radius - other.radius
    if isinstance(one, Circle) or isinstance(other, Circle):
        circle, area = (one, other) if isinstance(one, Circle) else (other, one)
        assert isinstance(circle, Circle) and not isinstance(area, Circle)
        if isinstance(area, Box):
            return to_box(circle[:2], area) - circle.radius
        if any(_holds(_turned(area, turns), circle[:2]) for turns in (-1, 0, 1)):
            return -circle.radius - 1.0
        return min(_to_edge(circle[:2], *edge) for edge in _edges(area)) - circle.radius
    if _poles(one) & _poles(other):
        return -1.0
    if isinstance(one, Box) and isinstance(other, Box):
        apart = one.south > other.north or other.south > one.north
        into, back = (other.west - one.west) % 360, (one.west - other.west) % 360
        return 1.0 if apart or (into > one.east - one.west and back > other.east - other.west) else -1.0
    first, second = _outline(one), _outline(other)
    for turns in (-2, -1, 0, 1, 2):
        there = _turned(second, turns)
        if _cross(first, there) or _holds(first, there.corners[0]) or _holds(there, first.corners[0]):
            return -1.0
    return 1.0


def tile_box(zoom: int, row: int, column: int) -> Box:
    """A tile of a web map."""
    n = 1 << zoom

    def border(at: int) -> float:
        return (
            90.0
            if at <= 0
            else -90.0
            if at >= n
            else math.degrees(math.atan(math.sinh(math.pi * (1 - 2 * at / n))))
        )

    return Box(border(row + 1), column * 360 / n - 180, border(row), (column + 1) * 360 / n - 180)
