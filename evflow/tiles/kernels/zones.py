"""Zones and the tiles that they touch.

Places and borders go through additions, multiplications, divisions and roots only, which every machine rounds
alike: the tiles of a zone are the same wherever they are computed. Which zones and tiles overlap is told by
``evflow.matching.areas``. A tile is one of a zone exactly if it would be in a grid of the tile's zoom alone.
"""

from __future__ import annotations

import math
from typing import NamedTuple

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

Span = tuple[int, int, int, int]
"""First and last row, first and last column (not wrapped) that a zone may touch."""

BASE, DEEPEST, ELSE, NODES = range(4)
"""What the numbers of a ``Tiling`` are."""


class Shapes(NamedTuple):
    """The outlines of polygons, and room to compare three areas in.

    Attributes:
        table: of the numbers of contents.
        starts: of each content where its rings start.
        bounds: of each content the box around its outline.
        rings: where the corners of each ring start.
        corners: latitudes and longitudes.
        kinds, numbers, first, last: three areas; see ``AreaColumns``.
        work: see ``evflow.matching.areas.flat``.
    """

    table: WriteRows[np.int64]
    starts: Write[np.int64]
    bounds: WriteRows[np.float64]
    rings: Write[np.int64]
    corners: WriteRows[np.float64]
    kinds: Write[np.uint8]
    numbers: WriteRows[np.float64]
    first: Write[np.int64]
    last: Write[np.int64]
    work: Write[np.float64]


class Tiling(NamedTuple):
    """The tiles of a grid, or of two grids while one takes the place of the other.

    Attributes:
        borders: the latitudes between the rows of the deepest zoom.
        guess: a row of these not south of each of many latitudes, from which one looks on.
        cells: a table of the tiles that are split, and of those in them: in which grids each is split (1, 2),
            and in which it is a tile (4, 8).
        counts: the base zoom, the deepest one, what ``cells`` says of all others, how many it has.
    """

    borders: Write[np.float64]
    guess: Write[np.int32]
    cells: WriteRows[np.int64]
    counts: Write[np.int64]


@compiled
def _outline(row: Words, shapes: Shapes) -> int:
    """The position of a polygon's outline; -1 if it is not known."""
    at: int = shapes.table[find(shapes.table, row[ZONE]), 1]
    return at


@compiled
def numbers_of(row: Words, shapes: Shapes) -> tuple[float, float, float, float]:
    """The numbers of a zone: those of a circle or box, or the box around a polygon."""
    if row[WORD] & 255 == 2:
        at, bounds = _outline(row, shapes), shapes.bounds
        if at < 0:
            return 0.0, 0.0, 0.0, 0.0
        return bounds[at, 0], bounds[at, 1], bounds[at, 2], bounds[at, 3]
    return float_of(row[6]), float_of(row[7]), float_of(row[8]), float_of(row[9])


@compiled
def _put(row: Words, i: int, shapes: Shapes) -> None:
    """Writes a zone as one of the areas that are compared."""
    kind, numbers, first, last = shapes.kinds, shapes.numbers, shapes.first, shapes.last
    a, b, c, d = numbers_of(row, shapes)
    kind[i], first[i], last[i] = 2 + (row[WORD] & 255), 0, 0
    if kind[i] == 3:
        if d - b >= 360.0:
            b, d = -180.0, 180.0
        elif d > 180.0:
            d -= 360.0
    elif kind[i] == 4:
        at, starts = _outline(row, shapes), shapes.starts
        if at >= 0:
            first[i], last[i] = starts[at], starts[at + 1]
    numbers[i, 0], numbers[i, 1], numbers[i, 2], numbers[i, 3] = a, b, c, d


@compiled
def _meet(i: int, j: int, shapes: Shapes) -> bool:
    areas = (shapes.kinds, shapes.numbers, shapes.first, shapes.last, shapes.rings, shapes.corners)
    return meet(1, areas, i, areas, j, shapes.work)


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
) -> Span:
    """The span of a zone, by its kind and its numbers, among the tiles of the deepest zoom."""
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
def in_tile(row: Words, y: int, x: int, zoom: int, tiling: Tiling, shapes: Shapes) -> bool:
    """Whether a zone touches a tile of its span, if this has more than one."""
    kind, borders, down = row[WORD] & 255, tiling.borders, tiling.counts[DEEPEST] - zoom
    side = 360.0 / (1 << zoom)
    south, north, west = borders[(y + 1) << down], borders[y << down], (x & ((1 << zoom) - 1)) * side - 180.0
    if kind == 0:
        a, b, c = float_of(row[6]), float_of(row[7]), float_of(row[8])
        if south <= a <= north and west <= b <= west + side:
            return True
        centre, reach = place_vector(a, b), reach_of(c + _slack(c))
        return circle_range(a, b, reach, centre, south, west, north, west + side)
    if kind == 1 and float_of(row[8]) < 90.0 and float_of(row[6]) > -90.0:
        return True
    more = _MORE if kind == 2 else 0.0
    kinds, numbers = shapes.kinds, shapes.numbers
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
def span_of(row: Words, tiling: Tiling, shapes: Shapes) -> Span:
    """The span of a move's zone among the tiles of the deepest zoom."""
    a, b, c, d = numbers_of(row, shapes)
    return span(row[WORD] & 255, a, b, c, d, tiling.borders, tiling.guess)


@compiled
def at_zoom(spanned: Span, zoom: int, tiling: Tiling) -> Span:
    """A span of the deepest zoom among the tiles of another."""
    up = tiling.counts[DEEPEST] - zoom
    west, east = spanned[2] >> up, spanned[3] >> up
    if east - west >= 1 << zoom:
        west, east = 0, (1 << zoom) - 1
    return spanned[0] >> up, spanned[1] >> up, west, east


@compiled
def zoom_of(tile: int, tiling: Tiling) -> int:
    """The zoom of a tile: the base zoom, or one that is deeper."""
    zoom: int = tiling.counts[BASE]
    while tile >> 2 * zoom > 1:
        zoom += 1
    return zoom


@compiled
def cell_of(tile: int, tiling: Tiling) -> int:
    """What ``cells`` says of a tile that is of the base zoom, or in one that is split."""
    other: int = tiling.counts[ELSE]
    if tiling.counts[NODES] == 0:
        return other
    held: int = tiling.cells[find(tiling.cells, tile), 1]
    return other if held == -1 else held


@compiled
def after(y: int, x: int, zoom: int, base: int) -> tuple[int, int, int]:
    """Row, column and zoom of the tile after one and all in it; the zoom is ``base`` after the last one."""
    while zoom > base and y & x & 1:
        y, x, zoom = y >> 1, x >> 1, zoom - 1
    if zoom > base:
        y, x = y + (x & 1), x ^ 1
    return y, x, zoom


@compiled
def in_span(y: int, x: int, zoom: int, spanned: Span, tiling: Tiling) -> bool:
    """Whether a tile (its column is wrapped) is in the span of a zone."""
    top, bottom, west, east = at_zoom(spanned, zoom, tiling)
    return top <= y <= bottom and (x - west) & ((1 << zoom) - 1) <= east - west


@compiled
def touches(y: int, x: int, zoom: int, row: Words, spanned: Span, tiling: Tiling, shapes: Shapes) -> bool:
    """Whether a move's zone, of which the span is known, touches a tile (its column is wrapped)."""
    if not in_span(y, x, zoom, spanned, tiling):
        return False
    top, bottom, west, east = at_zoom(spanned, zoom, tiling)
    return (top == bottom and west == east) or in_tile(row, y, x, zoom, tiling, shapes)


@compiled
def in_zone(tile: int, row: Words, spanned: Span, tiling: Tiling, shapes: Shapes) -> bool:
    """Whether a move's zone, of which the span is known, touches a tile."""
    zoom = zoom_of(tile, tiling)
    n = 1 << zoom
    return touches((tile - n * n) >> zoom, tile & (n - 1), zoom, row, spanned, tiling, shapes)


@compiled
def _fill_parts(
    y: int, x: int, row: Words, spanned: Span, tiling: Tiling, out: Words, at: int, shapes: Shapes
) -> int:
    """As ``fill``, with the tiles in one of the base zoom that is split."""
    base: int = tiling.counts[BASE]
    y, x, zoom = 2 * y, 2 * x, base + 1
    while zoom > base:
        tile = tile_id(y, x, 1 << zoom)
        cell = cell_of(tile, tiling)
        if cell >> 2 and touches(y, x, zoom, row, spanned, tiling, shapes):
            out[at] = tile
            at += 1
        if cell & 3 and in_span(y, x, zoom, spanned, tiling):
            y, x, zoom = 2 * y, 2 * x, zoom + 1
        else:
            y, x, zoom = after(y, x, zoom, base)
    return at


@compiled
def most_of(spanned: Span, tiling: Tiling) -> int:
    """How many tiles of the base zoom a zone may touch at most."""
    top, bottom, west, east = at_zoom(spanned, tiling.counts[BASE], tiling)
    return (bottom - top + 1) * (east - west + 1)


@compiled
def fill(row: Words, spanned: Span, tiling: Tiling, out: Words, at: int, shapes: Shapes) -> int:
    """Writes the tiles of a move's zone, of which the span is known, to ``out`` from ``at`` on.

    Returns how far. All have to fit: ``most_of`` them and those that are split.
    """
    base: int = tiling.counts[BASE]
    n = 1 << base
    top, bottom, west, east = at_zoom(spanned, base, tiling)
    alone = top == bottom and west == east
    for y in range(top, bottom + 1):
        for x in range(west, east + 1):
            tile = tile_id(y, x, n)
            cell = cell_of(tile, tiling)
            if cell >> 2 and (alone or in_tile(row, y, x, base, tiling, shapes)):
                out[at] = tile
                at += 1
            if cell & 3:
                at = _fill_parts(y, x & (n - 1), row, spanned, tiling, out, at, shapes)
    return at


@array_kernel
def are_zones(rows: ReadRows[np.int64], found: Write[np.uint8], shapes: Shapes) -> None:
    """Marks moves that have the numbers of a circle or a box, or a polygon whose outline is known."""
    for i in range(len(rows)):
        kind = rows[i, WORD] & 255
        a, b, c, d = numbers_of(rows[i], shapes)
        if kind == 0:
            found[i] = abs(a) <= 90.0 and abs(b) <= 180.0 and 0.0 <= c < math.inf
        elif kind == 1:
            found[i] = -90.0 <= a <= c <= 90.0 and abs(b) <= 180.0 and b <= d and d - b <= 360.0
        elif kind == 2:
            at = _outline(rows[i], shapes)
            found[i] = at >= 0 and shapes.starts[at + 1] > shapes.starts[at]
        else:
            found[i] = False


@array_kernel
def spans(rows: ReadRows[np.int64], tiling: Tiling, sizes: Write[np.int64], shapes: Shapes) -> None:
    """How many tiles of the base zoom each zone may touch at most."""
    for i in range(len(rows)):
        sizes[i] = most_of(span_of(rows[i], tiling, shapes), tiling)


@array_kernel
def tiles_of(
    rows: ReadRows[np.int64],
    start: int,
    most: Read[np.int64],
    tiling: Tiling,
    ends: Write[np.int64],
    tiles: Write[np.int64],
    shapes: Shapes,
) -> int:
    """Writes the tiles of each zone, one zone after the other, and where those of each end.

    ``most`` says how many each may have. Returns the row at which it stopped.
    """
    at = ends[start - 1] if start else 0
    for i in range(start, len(rows)):
        if at + most[i] > len(tiles):
            return i
        at = fill(rows[i], span_of(rows[i], tiling, shapes), tiling, tiles, at, shapes)
        ends[i] = at
    return len(rows)


@array_kernel
def cells_of(tiles: Read[np.int64], tiling: Tiling, found: Write[np.int64]) -> None:
    """What ``cells`` says of tiles; 0 of those that are not among the tiles of its grids, nor split there."""
    for i in range(len(tiles)):
        held = tiling.cells[find(tiling.cells, tiles[i]), 1]
        is_base = zoom_of(tiles[i], tiling) == tiling.counts[BASE]
        found[i] = held if held != -1 else tiling.counts[ELSE] * is_base
