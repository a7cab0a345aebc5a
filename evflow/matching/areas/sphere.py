"""Overlap of circles on the globe with points, boxes and polygons: squares of chords, in float64."""

from __future__ import annotations

import math
from typing import Any

from evflow.matching.globe import place_vector, sine_cosine
from evflow.matching.native import compiled
from evflow.matching.space import METRE, WHOLE

_RADIAN = math.pi / 180.0
_ROUNDING = 1e-15
_NEAR = 1e-16
"""Chords are told apart to this much of their squares."""


@compiled
def reach_of(radius: float) -> float:
    """The square of the chord of a radius in metres, as ``Globe.reach`` has it."""
    degrees = radius * METRE
    if degrees >= 90.0:
        return WHOLE
    half = sine_cosine(degrees)[0]
    return (2.0 * half) * (2.0 * half)


@compiled
def chord(first: float, second: float, centre: tuple[float, float, float]) -> float:
    """The square of the chord from a place to a centre, a unit vector."""
    x, y, z = place_vector(first, second)
    dx, dy, dz = x - centre[0], y - centre[1], z - centre[2]
    return dx * dx + dy * dy + dz * dz


@compiled
def circles_meet(one: tuple[float, float, float], other: tuple[float, float, float], radius: float) -> bool:
    """Whether two circles overlap, by the unit vectors of their centres and the sum of their radii."""
    dx, dy, dz = one[0] - other[0], one[1] - other[1], one[2] - other[2]
    return dx * dx + dy * dy + dz * dz <= reach_of(radius)


@compiled
def _to_meridian(
    east: tuple[float, float], low: tuple[float, float], high: tuple[float, float],
    centre: tuple[float, float, float],
) -> float:  # fmt: skip
    """The square of the least chord from a centre to a piece of a meridian.

    Args:
        east: sine and cosine of its longitude.
        low, high: those of the latitudes at its ends.
        centre: a unit vector.
    """
    found = 8.0
    for up, out in (low, high):
        dx, dy, dz = out * east[1] - centre[0], out * east[0] - centre[1], up - centre[2]
        found = min(found, dx * dx + dy * dy + dz * dz)
    out, up = centre[0] * east[1] + centre[1] * east[0], centre[2]
    # The foot of the centre on the whole meridian lies north of the southern end, south of the northern.
    if out > 0.0 and low[1] * up - low[0] * out >= 0.0 and high[0] * out - high[1] * up >= 0.0:
        away = centre[0] * east[0] - centre[1] * east[1]
        rest = away * away / (1.0 + math.sqrt(out * out + up * up))
        found = min(found, away * away + rest * rest)
    return found


@compiled
def circle_range(
    latitude: float, longitude: float, reach: float, centre: tuple[float, float, float],
    south: float, west: float, north: float, east: float,
) -> bool:  # fmt: skip
    """Whether a circle and a range of latitudes and longitudes, west at most east, overlap."""
    if west <= longitude <= east or (longitude == -180.0 and east == 180.0):
        if south <= latitude <= north:
            return True
        return chord(min(max(latitude, south), north), longitude, centre) <= reach
    low, high = sine_cosine(south), sine_cosine(north)
    return (
        _to_meridian(sine_cosine(west), low, high, centre) <= reach
        or _to_meridian(sine_cosine(east), low, high, centre) <= reach
    )


@compiled
def circle_edge(
    a: float, b: float, c: float, d: float, reach: float, centre: tuple[float, float, float], work: Any
) -> bool:
    """Whether a circle holds a place of an edge from (a, b) to (c, d) that is straight in degrees.

    The edge is halved where a bound on the second derivative of the chord's square leaves it open whether the
    circle holds something in between, until the bound is within ``_NEAR``.
    """
    at_first, at_last = chord(a, b, centre), chord(c, d, centre)
    if at_first <= reach or at_last <= reach:
        return True
    up, along = (c - a) * _RADIAN, (d - b) * _RADIAN
    bend = (2.0 * up * up + along * along) / 4.0
    work[0], work[1], work[2], work[3] = 0.0, at_first, 1.0, at_last
    count = 4
    while count:
        count -= 4
        first, at_first, last, at_last = work[count], work[count + 1], work[count + 2], work[count + 3]
        size = last - first
        slack = bend * size * size
        if slack < _NEAR or min(at_first, at_last) - slack - _ROUNDING > reach:
            continue
        middle = (first + last) / 2.0
        at_middle = chord(a + middle * (c - a), b + middle * (d - b), centre)
        if at_middle <= reach:
            return True
        work[count], work[count + 1], work[count + 2], work[count + 3] = first, at_first, middle, at_middle
        count += 4
        work[count], work[count + 1], work[count + 2], work[count + 3] = middle, at_middle, last, at_last
        count += 4
    return False


@compiled
def circle_rings(area: Any, i: int, reach: float, centre: tuple[float, float, float], work: Any) -> bool:
    """Whether a circle holds a place of an edge of a polygon."""
    rings, corners = area[4], area[5]
    for ring in range(area[2][i], area[3][i]):
        for at in range(rings[ring], rings[ring + 1] - 1):
            if circle_edge(
                corners[at, 0], corners[at, 1], corners[at + 1, 0], corners[at + 1, 1], reach, centre, work
            ):
                return True
    return False
