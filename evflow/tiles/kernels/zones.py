"""Zones and the tiles that they touch.

Places and borders go through additions, multiplications, divisions and roots only, which every machine rounds
alike: the tiles of a zone are the same wherever they are computed. Which zones and tiles overlap is told by
``evflow.matching.areas``; a tuple ``shapes`` has the outlines of polygons and room for three areas of that.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evflow.matching.areas.meeting import meet
from evflow.matching.areas.sphere import circle_range, reach_of
from evflow.matching.globe import place_vector, sine_cosine
from evflow.matching.native import Read, ReadRows, Write, WriteRows, array_kernel, compiled, float_of
from evflow.matching.space import EARTH_RADIUS
from evflow.tiles.kernels.fields import WORD, ZONE, Floats, I, Words
from evflow.tiles.kernels.tables import find

_DEGREES = 180.0 / (math.pi * EARTH_RADIUS)
_RADIAN = math.pi / 180.0
_MORE = 1e-11
"""Degrees of longitude by which polygons are larger for their tiles: a turn of theirs is rounded."""

_TILE = 2
"""The third area of ``shapes`` is that of a tile."""

Shapes = Any
"""See ``shapes_of``."""


@compiled
def _outline(row: Words, shapes: Shapes) -> int:
    """The position of a polygon's outline; -1 if it is not known."""
    table = shapes[0]
    at: int = table[find(table, row[ZONE]), 1]
    return at


@compiled
def numbers_of(row: Words, shapes: Shapes) -> tuple[float, float, float, float]:
    """The numbers of a zone: those of a circle or box, or the box around a polygon."""
    if row[WORD] & 255 == 2:
        at, bounds = _outline(row, shapes), shapes[2]
        if at < 0:
            return 0.0, 0.0, 0.0, 0.0
        return bounds[at, 0], bounds[at, 1], bounds[at, 2], bounds[at, 3]
    return float_of(row[6]), float_of(row[7]), float_of(row[8]), float_of(row[9])


@compiled
def _put(row: Words, i: int, shapes: Shapes) -> None:
    """Writes a zone as one of the areas that are compared."""
    kind, numbers, first, last = shapes[5], shapes[6], shapes[7], shapes[8]
    a, b, c, d = numbers_of(row, shapes)
    kind[i], first[i], last[i] = 2 + (row[WORD] & 255), 0, 0
    if kind[i] == 3:
        if d - b >= 360.0:
            b, d = -180.0, 180.0
        elif d > 180.0:
            d -= 360.0
    elif kind[i] == 4:
        at, starts = _outline(row, shapes), shapes[1]
        if at >= 0:
            first[i], last[i] = starts[at], starts[at + 1]
    numbers[i, 0], numbers[i, 1], numbers[i, 2], numbers[i, 3] = a, b, c, d


@compiled
def _meet(i: int, j: int, shapes: Shapes) -> bool:
    areas = (shapes[5], shapes[6], shapes[7], shapes[8], shapes[3], shapes[4])
    return meet(1, areas, i, areas, j, shapes[9])


@compiled
def zones_meet(one: Words, other: Words, shapes: Shapes) -> bool:
    """Whether two zones overlap."""
    _put(one, 0, shapes)
    _put(other, 1, shapes)
    return _meet(0, 1, shapes)


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
def _slack(radius: float) -> float:
    """Metres by which a circle is larger for its tiles, so that rounding never parts two that touch."""
    # Chords hardly tell apart what is nearly on the other side of the globe.
    return 1e-6 if radius < 6e6 else 0.5


@compiled
def span(
    kind: int, a: float, b: float, c: float, d: float, borders: Floats, guess: NDArray[np.int32]
) -> tuple[int, int, int, int]:
    """First and last row, first and last column (not wrapped) of the tiles that a zone may touch."""
    n = len(borders) - 1
    if kind:
        more = _MORE if kind == 2 else 0.0
        west, east = column_of(b - more, n), column_of(d + more, n)
        # What reaches a pole meets all that does, whatever the longitudes.
        if east - west >= n or c == 90.0 or a == -90.0:
            west, east = 0, n - 1
        return row_of(c, borders, guess), row_of(a, borders, guess), west, east
    reach = (c + 2.0 * _slack(c)) * _DEGREES
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
def in_tile(row: Words, y: int, x: int, borders: Floats, shapes: Shapes) -> bool:
    """Whether a zone touches a tile of its span, if this has more than one."""
    kind = row[WORD] & 255
    side = 360.0 / (len(borders) - 1)
    south, north, west = borders[y + 1], borders[y], (x & (len(borders) - 2)) * side - 180.0
    if kind == 0:
        a, b, c = float_of(row[6]), float_of(row[7]), float_of(row[8])
        if south <= a <= north and west <= b <= west + side:
            return True
        centre, reach = place_vector(a, b), reach_of(c + _slack(c))
        return circle_range(a, b, reach, centre, south, west, north, west + side)
    if kind == 1 and float_of(row[8]) < 90.0 and float_of(row[6]) > -90.0:
        return True
    more = _MORE if kind == 2 else 0.0
    kinds, numbers = shapes[5], shapes[6]
    kinds[_TILE] = 3
    numbers[_TILE, 0], numbers[_TILE, 2] = south, north
    numbers[_TILE, 1], numbers[_TILE, 3] = west - more, west + side + more
    _put(row, 0, shapes)
    return _meet(_TILE, 0, shapes)


@compiled
def tile_id(row: int, column: int, n: int) -> int:
    """The number of a tile: a one, the bits of its row, those of its column (wrapped)."""
    return n * n + row * n + (column & (n - 1))


@compiled
def span_of(
    row: Words, borders: Floats, guess: NDArray[np.int32], shapes: Shapes
) -> tuple[int, int, int, int]:
    """The span of a move's zone."""
    a, b, c, d = numbers_of(row, shapes)
    return span(row[WORD] & 255, a, b, c, d, borders, guess)


@compiled
def in_zone(
    tile: int, row: Words, spanned: tuple[int, int, int, int], borders: Floats, shapes: Shapes
) -> bool:
    """Whether a move's zone, of which the span is known, touches a tile."""
    n = len(borders) - 1
    top, bottom, west, east = spanned
    y, x = (tile - n * n) // n, tile & (n - 1)
    x = (x - west) & (n - 1)
    if y < top or y > bottom or x > east - west:
        return False
    if top == bottom and west == east:
        return True
    return in_tile(row, y, west + x, borders, shapes)


@compiled
def fill(row: Words, borders: Floats, guess: NDArray[np.int32], out: Words, at: int, shapes: Shapes) -> int:
    """Writes the tiles of a move's zone to ``out`` from ``at`` on; returns how far. Its span has to fit."""
    n = len(borders) - 1
    top, bottom, west, east = span_of(row, borders, guess, shapes)
    alone = top == bottom and west == east
    for y in range(top, bottom + 1):
        for x in range(west, east + 1):
            if alone or in_tile(row, y, x, borders, shapes):
                out[at] = tile_id(y, x, n)
                at += 1
    return at


@array_kernel
def spans(
    rows: ReadRows[np.int64],
    borders: Read[np.float64],
    guess: Read[np.int32],
    sizes: Write[np.int64],
    contents: ReadRows[np.int64],
    starts: Read[np.int64],
    bounds: ReadRows[np.float64],
    rings: Read[np.int64],
    corners: ReadRows[np.float64],
    kind: Write[np.uint8],
    measures: WriteRows[np.float64],
    first: Write[np.int64],
    last: Write[np.int64],
    work: Write[np.float64],
) -> None:
    """How many tiles each zone may touch at most."""
    shapes = (contents, starts, bounds, rings, corners, kind, measures, first, last, work)
    for i in range(len(rows)):
        top, bottom, west, east = span_of(rows[i], borders, guess, shapes)
        sizes[i] = (bottom - top + 1) * (east - west + 1)


@array_kernel
def tiles_of(
    rows: ReadRows[np.int64],
    borders: Read[np.float64],
    guess: Read[np.int32],
    ends: Write[np.int64],
    tiles: Write[np.int64],
    contents: ReadRows[np.int64],
    starts: Read[np.int64],
    bounds: ReadRows[np.float64],
    rings: Read[np.int64],
    corners: ReadRows[np.float64],
    kind: Write[np.uint8],
    measures: WriteRows[np.float64],
    first: Write[np.int64],
    last: Write[np.int64],
    work: Write[np.float64],
) -> None:
    """Writes the tiles of each zone, one zone after the other, and where those of each end."""
    shapes = (contents, starts, bounds, rings, corners, kind, measures, first, last, work)
    at = 0
    for i in range(len(rows)):
        at = fill(rows[i], borders, guess, tiles, at, shapes)
        ends[i] = at
