"""Tiles: squares that cover everything, smaller where there is more, so that none has too much.

They are the leaves of a quadtree. A place is in exactly one of them; a box is given every tile that it
touches. Both are put on one grid of cells first, by a function that only rises, so that no rounding can part
them; what lies outside the grid is in the cells at its border.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from itertools import count

import numpy as np
from numpy.typing import NDArray

from evflow.spark.matching.bounds import Boxes

Int64s = NDArray[np.int64]
Floats = NDArray[np.float64]

_LEVELS = 20
"""Sides can be halved so often."""

_CELLS = 1 << _LEVELS

_SPREAD = (
    (16, 0x0000FFFF0000FFFF),
    (8, 0x00FF00FF00FF00FF),
    (4, 0x0F0F0F0F0F0F0F0F),
    (2, 0x3333333333333333),
    (1, 0x5555555555555555),
)

_GROWTH = 3
"""A square is not divided if its parts would have more than so many times its boxes."""

_MOST = 4096
"""Tiles there are at most."""


@dataclass(frozen=True, slots=True)
class Grid:
    """Cells of two dimensions over a rectangle."""

    low: tuple[float, float]
    high: tuple[float, float]

    def cells(self, places: Floats) -> Int64s:
        """(N, 2): the cells that places are in, from 0; NaN is in some cell."""
        low, size = np.array(self.low), np.array(self.high) - np.array(self.low)
        with np.errstate(over="ignore", invalid="ignore"):
            at = np.floor((places - low) / np.where(size > 0, size, 1.0) * _CELLS)
        found: Int64s = np.nan_to_num(np.clip(at, 0, _CELLS - 1)).astype(np.int64)
        return found


@dataclass(frozen=True, slots=True, eq=False)
class Tiles:
    """The leaves of a quadtree; ``tiles_for`` makes them.

    Attributes:
        grid: what its squares consist of.
        child: int64, one a node, the root first: the first of its four children, or -1 less the number of its
            tile.
        corner: int64, (nodes, 2): the lowest cell.
        side: int64, one a node: cells a side.
        first: int64, one a tile, rising: the code of its lowest cell.
    """

    grid: Grid
    child: Int64s
    corner: Int64s
    side: Int64s
    first: Int64s

    def __len__(self) -> int:
        return len(self.first)

    def holding(self, places: Floats) -> Int64s:
        """The tile of each place, (N, 2); -1 for one that is twice NaN."""
        tile: Int64s = np.searchsorted(self.first, _codes(self.grid.cells(places)), "right") - 1
        tile[np.isnan(places[:, 0])] = -1
        return tile

    def touching(self, boxes: Boxes) -> tuple[Int64s, Int64s]:
        """Which areas touch which tiles: each pair once, rising."""
        low, high = self.grid.cells(boxes.low), self.grid.cells(boxes.high)
        box, node = np.arange(len(boxes)), np.zeros(len(boxes), np.int64)
        pairs = [np.zeros((0, 2), np.int64)]
        while len(box):
            leaf = self.child[node] < 0
            pairs.append(np.column_stack([boxes.of[box[leaf]], -1 - self.child[node[leaf]]]))
            box, node = box[~leaf], node[~leaf]
            node = (self.child[node][:, None] + np.arange(4)).reshape(-1)
            box = np.repeat(box, 4)
            meets = _meets(low[box], high[box], self.corner[node], self.side[node])
            box, node = box[meets], node[meets]
        found = np.concatenate(pairs)
        unique = np.unique(found[:, 0] * len(self) + found[:, 1])
        return unique // len(self), unique % len(self)


def _codes(cells: Int64s) -> Int64s:
    """The bits of two numbers in turn: so the cells of a square of the tree follow one another."""
    first, second = (_spread(cells[:, axis]) for axis in (0, 1))
    return first | second << 1


def _spread(bits: Int64s) -> Int64s:
    """A zero between every two of 20 bits."""
    for shift, mask in _SPREAD:
        bits = (bits | bits << shift) & mask
    return bits


def _meets(low: Int64s, high: Int64s, corner: Int64s, side: Int64s) -> NDArray[np.bool_]:
    """Which boxes of cells touch which squares."""
    end = corner + side[:, None]
    return np.asarray(((low < end) & (high >= corner)).all(axis=1))


@dataclass(slots=True)
class _Square:
    """A node while the tree grows, and what of the samples is in it."""

    number: int
    corner: Int64s
    side: int
    places: Int64s
    boxes: Int64s


def tiles_for(
    space: str, places: Floats, boxes: Boxes, *, most_places: float, most_boxes: float, most: int = _MOST
) -> Tiles:
    """Tiles that hold so much of two samples at most, where dividing them helps.

    Args:
        space: ``plane`` or ``globe``; the grid of the globe is all of it, that of the plane what the samples
            cover.
        places: (N, 2): where events are; NaN is left out.
        boxes: a sample of areas.
        most_places: of the sample, in a tile.
        most_boxes: of the sample, in a tile.
        most: tiles.

    Example:
        >>> places = np.repeat([[0.0, 0.0], [8.0, 8.0]], [90, 10], axis=0)
        >>> none = Boxes(np.zeros((0, 2)), np.zeros((0, 2)), np.zeros(0, np.int64))
        >>> len(tiles_for("plane", places, none, most_places=90, most_boxes=1))
        4
    """
    places = places[~np.isnan(places).any(axis=1)]
    grid = _grid(space, places, boxes)
    tree = _Tree(grid.cells(places), grid.cells(boxes.low), grid.cells(boxes.high), (most_places, most_boxes))
    while tree.waiting and len(tree.child) + 4 <= 4 * most // 3:
        tree.divide(heapq.heappop(tree.waiting)[2])
    child, leaf = np.array(tree.child), np.flatnonzero(np.array(tree.child) < 0)
    corner = np.array(tree.corner)
    first = _codes(corner[leaf])
    order = np.argsort(first)
    child[leaf[order]] = -1 - np.arange(len(leaf))
    return Tiles(grid, child, corner, np.array(tree.side), first[order])


def _grid(space: str, places: Floats, boxes: Boxes) -> Grid:
    if space == "globe":
        return Grid((-90.0, -180.0), (90.0, 180.0))
    middle = boxes.low / 2 + boxes.high / 2
    known = np.concatenate([places, middle[np.isfinite(middle).all(axis=1)]])
    if not len(known):
        return Grid((0.0, 0.0), (1.0, 1.0))
    (x, y), (right, top) = known.min(axis=0).tolist(), known.max(axis=0).tolist()
    return Grid((x, y), (right, top))


class _Tree:
    """A quadtree that grows; ``waiting`` are squares with too much, the fullest first."""

    def __init__(self, places: Int64s, low: Int64s, high: Int64s, most: tuple[float, float]) -> None:
        self._places, self._low, self._high, self._most = places, low, high, most
        self.child: list[int] = []
        self.corner: list[Int64s] = []
        self.side: list[int] = []
        self.waiting: list[tuple[float, int, _Square]] = []
        self._serial = count()
        self._add(np.zeros(2, np.int64), _CELLS, np.arange(len(places)), np.arange(len(low)))

    def _add(self, corner: Int64s, side: int, places: Int64s, boxes: Int64s) -> None:
        square = _Square(len(self.child), corner, side, places, boxes)
        self.child.append(-1)
        self.corner.append(corner)
        self.side.append(side)
        excess = max(len(places) / self._most[0], len(boxes) / self._most[1])
        if excess > 1 and side > 1:
            heapq.heappush(self.waiting, (-excess, next(self._serial), square))

    def divide(self, square: _Square) -> None:
        """Gives a square four children, unless that would only copy its boxes."""
        half = square.side >> 1
        right = self._places[square.places] - square.corner >= half
        parts = []
        for i in range(4):
            which = np.array([i & 1, i >> 1])
            corner = square.corner + which * half
            side = np.full(len(square.boxes), half)
            meets = _meets(self._low[square.boxes], self._high[square.boxes], corner[None, :], side)
            parts.append((corner, half, square.places[(right == which).all(axis=1)], square.boxes[meets]))
        if sum(len(boxes) for *_, boxes in parts) > _GROWTH * len(square.boxes):
            return
        self.child[square.number] = len(self.child)
        for part in parts:
            self._add(*part)
