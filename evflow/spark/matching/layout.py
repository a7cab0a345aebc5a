"""Which task gets which events and subscriptions, where these are divided by tiles.

A tile's events are a group, or several that share them by chance where dividing the tile did not help; each
of these gets all subscriptions of the tile. Events that are nowhere are a group of their own. Groups are put
into partitions so that each has about the same to do.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evflow.spark.matching.bounds import Boxes, places_of
from evflow.spark.matching.tiles import Tiles, tiles_for

Int64s = NDArray[np.int64]
Floats = NDArray[np.float64]

_WIDE = 8
"""Areas may always touch so many tiles."""

_GROUPS = 64
"""Groups that share the events of a tile at most."""


@dataclass(frozen=True, eq=False)
class Layout:
    """Tiles, groups and partitions.

    Attributes:
        tiles: the tiles.
        wide: a subscription that touches more tiles than this belongs to none.
        shares: int64, one a tile and one for nowhere: groups that share its events.
        first: int64, likewise: the first of these.
        partition: int64, one a group.
        partitions: how many there are.
        copies: estimated: tiles' groups that a subscription is sent to.
    """

    tiles: Tiles
    wide: int
    shares: Int64s
    first: Int64s
    partition: Int64s
    partitions: int
    copies: float

    @property
    def divided(self) -> int:
        """How many tiles, nowhere among them, have more than one group."""
        return int((self.shares > 1).sum())

    def of_events(self, space: str, first: Floats, second: Floats, spread: Int64s | None) -> Int64s:
        """The keys of events.

        Args:
            space: ``plane`` or ``globe``.
            first: float64, N: x or latitude; NaN where there is none.
            second: float64, N: y or longitude.
            spread: int64, N: numbers by which groups share events; None if no tile has several.
        """
        # -1, which is nowhere, is the last of these arrays.
        tile = self.tiles.holding(places_of(space, first, second))
        group = self.first[tile]
        if spread is not None:
            group = group + spread % self.shares[tile]
        return self._keys(group) + 1

    def of_subscriptions(self, tile: Int64s) -> tuple[Int64s, Int64s]:
        """The keys of subscriptions that go to a tile, and which tile of those given each is for."""
        which = np.repeat(np.arange(len(tile)), self.shares[tile])
        ends = np.cumsum(self.shares[tile])
        serial = np.arange(len(which)) - np.repeat(ends - self.shares[tile], self.shares[tile])
        return self._keys(self.first[tile][which] + serial), which

    def _keys(self, group: Int64s) -> Int64s:
        """Partition, group and side: 0 for subscriptions, which so come before the events, which are 1."""
        found: Int64s = self.partition[group] << 32 | group << 1
        return found


def layout_for(
    space: str,
    places: Floats,
    boxes: Boxes,
    *,
    partitions: int,
    most_boxes: float,
    most_wide: float,
) -> Layout:
    """A layout for what two samples stand for.

    Args:
        space: ``plane`` or ``globe``.
        places: (N, 2): where events are, with NaN for those that are nowhere.
        boxes: of areas.
        partitions: tasks at most.
        most_boxes: of the sample, in a tile.
        most_wide: of the sample, that may belong to no tile, the widest.
    """
    most = max(1.0, len(places) / (2 * partitions))
    tiles = tiles_for(space, places, boxes, most_places=most, most_boxes=max(1.0, most_boxes))
    which, tile = tiles.touching(boxes)
    touches = np.bincount(which, minlength=len(boxes))
    widest = -np.sort(-touches)
    wide = max(_WIDE, int(widest[int(most_wide)]) if most_wide < len(widest) else 0)
    held = _counts(tiles, places)
    shares = np.clip(np.round(held / most / 2), 1, _GROUPS).astype(np.int64)
    first = np.concatenate([[0], np.cumsum(shares)[:-1]])
    kept = touches[which] <= wide
    areas = np.append(np.bincount(tile[kept], minlength=len(tiles)), 0)
    load = held / shares / max(len(places), 1) + areas / max(len(boxes), 1)
    partition, count = _packed(np.repeat(load, shares), partitions)
    copies = float(shares[tile[kept]].sum() / max((touches <= wide).sum(), 1))
    return Layout(tiles, wide, shares, first, partition, count, copies)


def _counts(tiles: Tiles, places: Floats) -> Int64s:
    """How many places each tile holds, and how many are nowhere."""
    found: Int64s = np.bincount(tiles.holding(places) % (len(tiles) + 1), minlength=len(tiles) + 1)
    return found


def _packed(load: Floats, partitions: int) -> tuple[Int64s, int]:
    """Puts groups into partitions, the heaviest first, each where there is least."""
    count = max(1, min(partitions, len(load)))
    heap: list[Any] = [(0.0, number) for number in range(count)]
    found = np.zeros(len(load), np.int64)
    for group in np.argsort(-load, kind="stable").tolist():
        least, number = heap[0]
        found[group] = number
        # Something for its own sake, so that groups of which nothing is known are spread as well.
        heapq.heapreplace(heap, (least + float(load[group]) + 1e-9, number))
    return found, count
