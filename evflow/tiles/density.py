"""Which tiles of a grid to split, and which to join: by how many zones each has."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np

from evflow.matching.space import EARTH_RADIUS
from evflow.tiles.grid import MOST_SPLITS, Grid, zoom_of
from evflow.tiles.kernels import fields
from evflow.tiles.manager import TileManager

__all__ = ["Crowd", "balanced", "crowds"]

_MOST_CROWDS = 256


class Crowd(NamedTuple):
    """What is in a tile.

    Attributes:
        pubs: publications.
        subs: subscriptions.
        reach: metres from the middle of a zone to its furthest place, the median of some zones.
    """

    pubs: int
    subs: int
    reach: float = 0.0

    @property
    def weight(self) -> float:
        """How many zones a move in the tile is compared with, on average, if all move equally often."""
        return 2 * self.pubs * self.subs / max(self.pubs + self.subs, 1)


def crowds(manager: TileManager, most: float) -> dict[int, Crowd]:
    """The crowds of tiles that weigh more than ``most``, the 256 heaviest, and of all parts of others.

    Args:
        manager: the Tile Manager.
        most: the weight.
    """
    grid, found = manager.layout.grid, dict[int, Crowd]()
    tiles = manager.tiles
    pubs, subs, numbers = tiles[:, 1].astype(np.float64), tiles[:, 3], tiles[:, fields.NUMBER]
    weights = 2 * pubs * subs / np.maximum(pubs + subs, 1)
    heavy = np.flatnonzero(weights > most)
    heavy = heavy[np.argsort(-weights[heavy], kind="stable")][:_MOST_CROWDS]
    parts = np.flatnonzero(numbers >> 2 * grid.zoom > 1)
    for at in {*heavy.tolist(), *parts.tolist()}:
        tile = int(numbers[at])
        if grid.has(tile):
            found[tile] = Crowd(int(pubs[at]), int(subs[at]), manager.reach(at))
    return found


def balanced(grid: Grid, told: Mapping[int, Crowd], most: float) -> set[int]:
    """The tiles that are to be split, by the crowds of those of a grid.

    A tile that weighs more than ``most`` is split, the heaviest first, unless its zones are more than half as
    wide as its parts. Four parts of a tile are joined if together they weigh no more than half of ``most``;
    so what was split at one look is not joined at the next.

    Args:
        grid: the grid.
        told: the crowds of tiles; others have none, or weigh no more than ``most``.
        most: the weight.
    """
    splits = set(grid.splits)
    for tile in grid.splits:
        parts = grid.parts(tile)
        if all(grid.has(part) for part in parts):
            there = [told.get(part, Crowd(0, 0)) for part in parts]
            if Crowd(sum(c.pubs for c in there), sum(c.subs for c in there)).weight <= most / 2:
                splits.discard(tile)
    for tile in _heaviest(told):
        crowd = told[tile]
        is_wide = 4 * crowd.reach > _width(tile) / 2
        if crowd.weight > most and grid.can_split(tile) and not is_wide and len(splits) < MOST_SPLITS:
            splits.add(tile)
    return splits


def _heaviest(told: Mapping[int, Crowd]) -> Iterable[int]:
    return sorted(told, key=lambda tile: (-told[tile].weight, tile))


def _width(tile: int) -> float:
    """Metres from the west of a tile to its east, in the middle of it."""
    n = 1 << zoom_of(tile)
    row = (tile - n * n) // n
    return 2 * math.pi * EARTH_RADIUS / n / math.cosh(math.pi * (1 - (2 * row + 1) / n))
