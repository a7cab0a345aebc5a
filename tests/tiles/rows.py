"""Rows of messages from what tests speak of."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from evflow.tiles.messages import GONE, MOVE, POLYGON, SUBSCRIPTION, Rows
from evflow.tiles.store import outline_of
from tests.tiles.world import Box, Polygon, Zone


def moves(
    zones: Sequence[Zone | None],
    ids: Sequence[int] | None = None,
    versions: Sequence[int] | int = 0,
    *,
    subscriptions: Sequence[bool] | bool = False,
    contents: Sequence[int] | int = 0,
    asked: Sequence[int] | int = 0,
) -> Rows:
    """Moves to these zones; None for a deletion."""
    rows = np.zeros(len(zones), MOVE)
    rows["id"] = np.arange(len(zones)) if ids is None else ids
    rows["version"], rows["content"] = versions, contents
    rows["flags"] = np.where(subscriptions, SUBSCRIPTION | np.array(asked), 0)
    for row, zone in zip(rows, zones, strict=True):
        if zone is None:
            row["flags"] |= GONE
        elif isinstance(zone, Polygon):
            row["kind"] = POLYGON
            row["zone"].view(np.int64)[0] = outline(zone)[0]
        else:
            row["kind"] = isinstance(zone, Box)
            row["zone"][: len(zone)] = zone
    return rows


def outline(zone: Polygon) -> tuple[int, tuple[bytes, ...]]:
    """The outline of a polygon, by number."""
    return outline_of([*zone.corners, zone.corners[0]], [0, len(zone.corners) + 1])


def outlines(zones: Iterable[Zone | None]) -> dict[int, tuple[bytes, ...]]:
    """Those of the polygons among zones."""
    return dict(outline(zone) for zone in zones if isinstance(zone, Polygon))
