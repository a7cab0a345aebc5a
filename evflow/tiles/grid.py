"""The grid: web-map tiles, and which of them a zone touches."""

from __future__ import annotations

import math
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from evflow.errors import GraphError
from evflow.matching.space import EARTH_RADIUS
from evflow.tiles.kernels import zones
from evflow.tiles.messages import Rows, words
from evflow.tiles.store import Contents

__all__ = ["Grid"]

_DEEPEST = 20
_GUESSES = 1 << 17


class Grid:
    """The tiles of a web map at one zoom: 2^zoom columns of longitude, as many rows of Mercator's projection.

    Columns meet at the antimeridian; the first and the last row reach to the poles. A tile is known by
    ``4**zoom + row * 2**zoom + column``, rows from the north and columns from 180 degrees west, as in the
    addresses of web maps.

    Args:
        zoom: 0 (one tile) to 20 (38 m at the equator).

    Raises:
        GraphError: there is no such zoom.

    Example:
        >>> round(Grid(15).side, 1)
        1221.6
    """

    def __init__(self, zoom: int) -> None:
        if not isinstance(zoom, int) or not 0 <= zoom <= _DEEPEST:
            raise GraphError(f"zoom {zoom!r}: expected an integer from 0 to {_DEEPEST}")
        self.zoom = zoom

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
        return cls(min(max(zoom, 0), _DEEPEST))

    @property
    def side(self) -> float:
        """The width of a tile at the equator in metres."""
        return 2 * math.pi * EARTH_RADIUS / (1 << self.zoom)

    @cached_property
    def borders(self) -> NDArray[np.float64]:
        """float64, 2^zoom + 1: the latitudes between rows in degrees, from 90 to -90."""
        rows = 1 << self.zoom
        north = math.pi * (1 - 2 * np.arange(1, rows // 2) / rows)
        half = np.concatenate([[90.0], _latitudes(north)])
        # The equator is a border from zoom 1 on.
        return np.concatenate([half, [0.0], -half[::-1]]) if rows > 1 else np.array([90.0, -90.0])

    @cached_property
    def guess(self) -> NDArray[np.int32]:
        """int32: a row not south of each of many latitudes, from which a kernel looks on."""
        top = 90.0 - (np.arange(_GUESSES) - 1) * (180.0 / _GUESSES)
        inner = -self.borders[1:-1]
        return np.searchsorted(inner, -top, "left").astype(np.int32)

    def counts(self, rows: Rows, contents: Contents | None = None) -> NDArray[np.int64]:
        """How many tiles zones touch at most: those of a box around each; int64, (N,).

        Args:
            rows: moves, of which the zones count.
            contents: has the outlines of polygons.
        """
        sizes, shapes = np.empty(len(rows), np.int64), (contents or Contents()).shapes
        zones.spans(words(rows), self.borders, self.guess, sizes, *shapes)
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
        contents = contents or Contents()
        ends = np.empty(len(rows), np.int64)
        tiles = np.empty(int(self.counts(rows, contents).sum()), np.int64)
        zones.tiles_of(words(rows), self.borders, self.guess, ends, tiles, *contents.shapes)
        zone = np.repeat(np.arange(len(rows)), np.diff(ends, prepend=0))
        return zone, tiles[: len(zone)]


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
