"""Zones and the tiles that they touch.

Places and borders go through additions, multiplications, divisions and roots only, which every machine rounds
alike: the tiles of a zone are the same wherever they are computed.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from evflow.matching.globe import sine_cosine
from evflow.matching.native import Read, ReadRows, Write, array_kernel, compiled, float_of
from evflow.matching.space import EARTH_RADIUS
from evflow.tiles.kernels.fields import WORD, Floats, I, Words

_DEGREES = 180.0 / (math.pi * EARTH_RADIUS)
_RADIAN = math.pi / 180.0
_SLACK = 1e-6
"""Metres by which circles are larger for their tiles, so that rounding never parts two that touch."""


@compiled
def row_of(latitude: float, borders: Floats, guess: NDArray[np.int32]) -> int:
    """The row of tiles that a latitude is in; it only rises to the south."""
    rows = len(borders) - 1
    bucket = min(max(I((90.0 - latitude) * (len(guess) / 180.0)), 0), len(guess) - 1)
    row: int = I(guess[bucket])
    while row < rows - 1 and latitude < borders[row + 1]:
        row += 1
    return row


@compiled
def column_of(longitude: float, columns: int) -> int:
    """The column that a longitude is in, not wrapped."""
    column: int = I(math.floor((longitude + 180.0) / 360.0 * columns))
    return column


@compiled
def span(
    kind: int, a: float, b: float, c: float, d: float, borders: Floats, guess: NDArray[np.int32]
) -> tuple[int, int, int, int]:
    """First and last row, first and last column (not wrapped) of the tiles that a zone may touch."""
    n = len(borders) - 1
    if kind == 1:
        west, east = column_of(b, n), column_of(d, n)
        if east - west >= n:
            west, east = 0, n - 1
        return row_of(c, borders, guess), row_of(a, borders, guess), west, east
    reach = (c + 2.0 * _SLACK) * _DEGREES
    north, south = a + reach, a - reach
    top, bottom = row_of(min(north, 90.0), borders, guess), row_of(max(south, -90.0), borders, guess)
    if north >= 90.0 or south <= -90.0:
        return top, bottom, 0, n - 1
    # The longitudes of a circle are at most asin(x) away, which is less than atan of this.
    x = sine_cosine(reach)[0] / sine_cosine(a)[1]
    if x >= 1.0:
        return top, bottom, 0, n - 1
    wide = x / math.sqrt(1.0 - x * x) / _RADIAN
    west, east = column_of(b - wide, n), column_of(b + wide, n)
    if wide >= 180.0 or east - west >= n:
        return top, bottom, 0, n - 1
    return top, bottom, west, east


@compiled
def _turned(longitude: float) -> float:
    """A difference of longitudes in -180 to 180."""
    while longitude > 180.0:
        longitude -= 360.0
    while longitude < -180.0:
        longitude += 360.0
    return longitude


@compiled
def _versine(latitude: float, other: float, apart: float) -> float:
    """The square of the sine of half the distance of two places (haversine)."""
    north = sine_cosine((latitude - other) / 2.0)[0]
    east = sine_cosine(apart / 2.0)[0]
    return north * north + sine_cosine(latitude)[1] * sine_cosine(other)[1] * east * east


@compiled
def circle_meets_box(
    a: float, b: float, radius: float, south: float, west: float, north: float, east: float, slack: float
) -> bool:
    """Whether a circle and a box have a place in common; ``slack`` is 1.0 where rounding may only add."""
    reach = (radius + slack * _SLACK) * _DEGREES
    if reach >= 180.0:
        return True
    into = b - west
    into -= math.floor(into / 360.0) * 360.0
    if into <= east - west or east - west >= 360.0:
        return south - a <= reach and a - north <= reach
    apart = min(abs(_turned(west - b)), abs(_turned(east - b)))
    if apart < 90.0:
        s, c = sine_cosine(apart)
        up, out = sine_cosine(a)
        low_up, low_out = sine_cosine(south)
        high_up, high_out = sine_cosine(north)
        # The nearest place of the meridian is within the box.
        if up * low_out >= low_up * out * c and up * high_out <= high_up * out * c:
            if reach >= 90.0:
                return True
            sine = sine_cosine(reach)[0]
            return out * s <= sine * (1.0 + slack * 1e-12) + (slack * 1e-15 if sine > 0.5 else 0.0)
    half = sine_cosine(reach / 2.0)[0]
    most = half * half * (1.0 + slack * 1e-12) + (slack * 1e-15 if half > 0.5 else 0.0)
    return min(_versine(a, south, apart), _versine(a, north, apart)) <= most


@compiled
def boxes_meet(
    a: float, b: float, c: float, d: float, south: float, west: float, north: float, east: float
) -> bool:
    """Whether two boxes have coordinates in common."""
    if south > c or a > north:
        return False
    into, other = west - b, b - west
    into -= math.floor(into / 360.0) * 360.0
    other -= math.floor(other / 360.0) * 360.0
    return into <= d - b or other <= east - west


@compiled
def in_tile(kind: int, a: float, b: float, c: float, row: int, column: int, borders: Floats) -> bool:
    """Whether a zone touches a tile of its span, if this has more than one."""
    if kind == 1:
        return True
    side = 360.0 / (len(borders) - 1)
    west = column * side - 180.0
    return circle_meets_box(a, b, c, borders[row + 1], west, borders[row], west + side, 1.0)


@compiled
def tile_id(row: int, column: int, n: int) -> int:
    """The number of a tile: a one, the bits of its row, those of its column (wrapped)."""
    return n * n + row * n + (column & (n - 1))


@compiled
def span_of(row: Words, borders: Floats, guess: NDArray[np.int32]) -> tuple[int, int, int, int]:
    """The span of a move's zone."""
    return span(
        row[WORD] & 255,
        float_of(row[6]),
        float_of(row[7]),
        float_of(row[8]),
        float_of(row[9]),
        borders,
        guess,
    )


@compiled
def in_zone(tile: int, row: Words, spanned: tuple[int, int, int, int], borders: Floats) -> bool:
    """Whether a move's zone, of which the span is known, touches a tile."""
    n = len(borders) - 1
    top, bottom, west, east = spanned
    y, x = (tile - n * n) // n, tile & (n - 1)
    x = (x - west) & (n - 1)
    if y < top or y > bottom or x > east - west:
        return False
    if top == bottom and west == east:
        return True
    return in_tile(
        row[WORD] & 255, float_of(row[6]), float_of(row[7]), float_of(row[8]), y, west + x, borders
    )


@compiled
def fill(row: Words, borders: Floats, guess: NDArray[np.int32], out: Words, at: int) -> int:
    """Writes the tiles of a move's zone to ``out`` from ``at`` on; returns how far. Its span has to fit."""
    n = len(borders) - 1
    top, bottom, west, east = span_of(row, borders, guess)
    kind, a, b, c = row[WORD] & 255, float_of(row[6]), float_of(row[7]), float_of(row[8])
    alone = top == bottom and west == east
    for y in range(top, bottom + 1):
        for x in range(west, east + 1):
            if alone or in_tile(kind, a, b, c, y, x, borders):
                out[at] = tile_id(y, x, n)
                at += 1
    return at


@array_kernel
def spans(
    rows: ReadRows[np.int64], borders: Read[np.float64], guess: Read[np.int32], sizes: Write[np.int64]
) -> None:
    """How many tiles each zone may touch at most."""
    for i in range(len(rows)):
        top, bottom, west, east = span_of(rows[i], borders, guess)
        sizes[i] = (bottom - top + 1) * (east - west + 1)


@array_kernel
def tiles_of(
    rows: ReadRows[np.int64],
    borders: Read[np.float64],
    guess: Read[np.int32],
    ends: Write[np.int64],
    tiles: Write[np.int64],
) -> None:
    """Writes the tiles of each zone, one zone after the other, and where those of each end."""
    at = 0
    for i in range(len(rows)):
        at = fill(rows[i], borders, guess, tiles, at)
        ends[i] = at
