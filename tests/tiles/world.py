"""What is true of zones: brute force on the sphere, with nothing of evflow in it."""

from __future__ import annotations

import math
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


Zone = Circle | Box


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


def _to_meridian(place: tuple[float, float], longitude: float, south: float, north: float) -> float:
    """The distance to a part of a meridian, by trying ever closer."""
    low, high = south, north
    for _ in range(2):
        steps = [low + (high - low) * k / 64 for k in range(65)]
        best = min(range(65), key=lambda k: metres(place, (steps[k], longitude)))
        low, high = steps[max(best - 1, 0)], steps[min(best + 1, 64)]
    for _ in range(80):
        third = (high - low) / 3
        if metres(place, (low + third, longitude)) < metres(place, (high - third, longitude)):
            high -= third
        else:
            low += third
    return metres(place, (low, longitude))


def to_box(place: tuple[float, float], box: Box) -> float:
    """The distance to a box; 0 inside."""
    if (place[1] - box.west) % 360 <= box.east - box.west:
        return max(box.south - place[0], place[0] - box.north, 0.0) * math.pi * RADIUS / 180
    edges = (_to_meridian(place, edge, box.south, box.north) for edge in (box.west, box.east))
    return min(edges)


def gap(one: Zone, other: Zone) -> float:
    """Metres between two zones: negative if they overlap, near 0 where nobody can tell."""
    if isinstance(one, Circle) and isinstance(other, Circle):
        return metres(one[:2], other[:2]) - one.radius - other.radius
    if isinstance(one, Box) and isinstance(other, Box):
        apart = one.south > other.north or other.south > one.north
        into, back = (other.west - one.west) % 360, (one.west - other.west) % 360
        return 1.0 if apart or (into > one.east - one.west and back > other.east - other.west) else -1.0
    circle, box = (one, other) if isinstance(one, Circle) else (other, one)
    return to_box(circle[:2], box) - circle.radius


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
