"""The grid: web-map tiles, some of them split, and which of them a zone touches."""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from evflow.errors import GraphError
from evflow.matching.space import EARTH_RADIUS
from evflow.tiles.kernels import tables, zones
from evflow.tiles.kernels.zones import Tiling
from evflow.tiles.messages import Rows, words
from evflow.tiles.store import Contents, grown, table_of

__all__ = ["DEEPEST", "MOST_SPLITS", "Grid", "parent", "zoom_of"]

DEEPEST = 20
"""The deepest zoom."""

MOST_SPLITS = 1024
"""Tiles that may be split."""

_LEVELS = 5
_GUESSES = 1 << 17


class Grid:
    """The tiles of a web map at one zoom, and deeper ones where some are split.

    There are 2^zoom columns of longitude, and as many rows of Mercator's projection. Columns meet at the
    antimeridian; the first and the last row reach to the poles. A tile is known by
    ``4**zoom + row * 2**zoom + column``, rows from the north and columns from 180 degrees west, as in the
    addresses of web maps. One that is split is not a tile of the grid: its four parts of the next zoom are.

    Args:
        zoom: 0 (one tile) to 20 (38 m at the equator).
        splits: the tiles that are split, at most 1,024, each of this zoom or a part of another one; at most
            5 zooms deeper, and 20.

    Raises:
        GraphError: there is no such zoom, or a tile cannot be split.

    Example:
        >>> round(Grid(15).side, 1)
        1221.6
        >>> Grid(1, splits=[5]).parts(5)
        [18, 19, 22, 23]
    """

    def __init__(self, zoom: int, splits: Iterable[int] = ()) -> None:
        if not isinstance(zoom, int) or not 0 <= zoom <= DEEPEST:
            raise GraphError(f"zoom {zoom!r}: expected an integer from 0 to {DEEPEST}")
        self.zoom, self.splits = zoom, frozenset(splits)
        if len(self.splits) > MOST_SPLITS:
            raise GraphError(f"{len(self.splits)} tiles are split: expected at most {MOST_SPLITS:,}")
        for tile in self.splits:
            if not isinstance(tile, int) or not self.can_split(tile):
                raise GraphError(
                    f"split tile {tile!r}: expected one of zoom {zoom}, or a part of another that is split"
                )

    @classmethod
    def of_metres(cls, metres: float) -> Grid:
        """The grid whose tiles at the equator are nearest to ``metres`` wide, by the ratio.

        Args:
            metres: the width.

        Raises:
            GraphError: it is not a positive number.
        """
        if not 0 < metres < math.inf:
            raise GraphError(f"tiles of {metres!r} metres: expected a positive number")
        zoom = round(math.log2(2 * math.pi * EARTH_RADIUS / metres))
        return cls(min(max(zoom, 0), DEEPEST))

    @property
    def side(self) -> float:
        """The width of a tile at the equator in metres, unless it is split."""
        return 2 * math.pi * EARTH_RADIUS / (1 << self.zoom)

    @cached_property
    def tiling(self) -> Tiling:
        """What kernels need of it."""
        return _tiling(self)

    def can_split(self, tile: int) -> bool:
        """Whether a tile is of the grid's zoom or a part of one that is split, and not too deep.

        Args:
            tile: its number.
        """
        zoom = zoom_of(tile)
        is_there = zoom == self.zoom or (zoom > self.zoom and parent(tile) in self.splits)
        return is_there and zoom < min(self.zoom + _LEVELS, DEEPEST)

    def has(self, tile: int) -> bool:
        """Whether it has a tile, which is not split.

        Args:
            tile: its number.
        """
        is_there = zoom_of(tile) == self.zoom or parent(tile) in self.splits
        return is_there and tile not in self.splits

    @staticmethod
    def parts(tile: int) -> list[int]:
        """The four tiles that a tile is split into.

        Args:
            tile: its number.
        """
        n = 1 << zoom_of(tile)
        row, column = divmod(tile - n * n, n)
        return [
            4 * n * n + y * 2 * n + x for y in (2 * row, 2 * row + 1) for x in (2 * column, 2 * column + 1)
        ]

    def beside(self, other: Grid) -> Grid:
        """This grid, of which ``tiles`` gives those of another one of the same zoom, too.

        Args:
            other: the other grid.
        """
        both = Grid(self.zoom, self.splits)
        if other.splits != self.splits:
            both.tiling = _tiling(self, other)
        return both

    def counts(self, rows: Rows, contents: Contents | None = None) -> NDArray[np.int64]:
        """How many tiles of the grid's zoom zones touch at most: those of a box around each; int64, (N,).

        Args:
            rows: moves, of which the zones count.
            contents: has the outlines of polygons.
        """
        sizes = np.empty(len(rows), np.int64)
        zones.spans(words(rows), self.tiling, sizes, (contents or Contents()).shapes)
        return sizes

    def tiles(
        self, rows: Rows, contents: Contents | None = None
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The tiles that zones touch, exactly: rounding may only add one that a zone misses by micrometres.

        Circles of 6,000 km and more count as half a metre larger.

        Args:
            rows: moves, of which the zones count.
            contents: has the outlines of polygons.

        Returns:
            Two arrays of int64: positions of zones, rising, and tiles.
        """
        contents, done, ends = contents or Contents(), 0, np.zeros(len(rows), np.int64)
        most = self.counts(rows, contents) + self.tiling.counts[zones.NODES]
        tiles = np.empty(2 * len(rows), np.int64)
        while done < len(rows):
            tiles = grown(tiles, int(ends[done - 1] + most[done]))
            done = zones.tiles_of(words(rows), done, most, self.tiling, ends, tiles, contents.shapes)
        zone = np.repeat(np.arange(len(rows)), np.diff(ends, prepend=0))
        return zone, tiles[: len(zone)]


def zoom_of(tile: int) -> int:
    """The zoom of a tile, by its number; -1 of what is none."""
    return (tile.bit_length() - 1) // 2 if tile > 0 and tile.bit_length() & 1 else -1


def parent(tile: int) -> int:
    """The tile that a tile is a part of, or would be."""
    n = 1 << zoom_of(tile)
    row, column = divmod(tile - n * n, n)
    return (n * n >> 2) + (row >> 1) * (n >> 1) + (column >> 1)


def _tiling(*grids: Grid) -> Tiling:
    """What kernels need of a grid, or of two of the same zoom at once."""
    zoom, cells = grids[0].zoom, dict[int, int]()
    for split in set[int]().union(*(grid.splits for grid in grids)):
        for tile in (split, *Grid.parts(split)):
            bits = [(tile in grid.splits) | grid.has(tile) << 2 for grid in grids]
            cells[tile] = sum(bit << which for which, bit in enumerate(bits))
    deepest = max([zoom, *map(zoom_of, cells)])
    table = table_of(len(cells))
    for tile, held in cells.items():
        tables.enter(np.array([tile]), held, table)
    counts = np.array([zoom, deepest, (4 << len(grids)) - 4, len(cells)])
    return Tiling(_borders(deepest), _guess(deepest), table, counts)


@lru_cache(4)
def _borders(zoom: int) -> NDArray[np.float64]:
    rows = 1 << zoom
    north = math.pi * (1 - 2 * np.arange(1, rows // 2) / rows)
    half = np.concatenate([[90.0], _latitudes(north)])
    # The equator is a border from zoom 1 on.
    return np.concatenate([half, [0.0], -half[::-1]]) if rows > 1 else np.array([90.0, -90.0])


@lru_cache(4)
def _guess(zoom: int) -> NDArray[np.int32]:
    top = 90.0 - (np.arange(_GUESSES) - 1) * (180.0 / _GUESSES)
    inner = -_borders(zoom)[1:-1]
    return np.searchsorted(inner, -top, "left").astype(np.int32)


def _latitudes(north: NDArray[np.float64]) -> NDArray[np.float64]:
    """Latitudes in degrees of Mercator's ordinates 0 to pi, by arithmetic that all machines round alike."""
    # exp by its series on an eighth, then squared; the Gudermannian is 2 atan(tanh(y / 2)).
    small, term = np.ones_like(north), np.ones_like(north)
    for k in range(1, 24):
        term = term * (north / 8) / k
        small = small + term
    power = ((small * small) * (small * small)) * ((small * small) * (small * small))
    at = (power - 1) / (power + 1)
    for _ in range(3):
        at = at / (1 + np.sqrt(1 + at * at))
    square, total = at * at, np.zeros_like(at)
    for k in range(18, -1, -1):
        total = total * square + (-1.0) ** k / (2 * k + 1)
    return total * at * 16 * (180 / math.pi)
