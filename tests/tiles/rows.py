"""Rows of messages from what tests speak of."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from evflow.tiles.messages import GONE, MOVE, SUBSCRIPTION, Rows
from tests.tiles.world import Box, Zone


def moves(
    zones: Sequence[Zone | None],
    ids: Sequence[int] | None = None,
    versions: Sequence[int] | int = 0,
    *,
    subscriptions: Sequence[bool] | bool = False,
    contents: Sequence[int] | int = 0,
) -> Rows:
    """Moves to these zones; None for a deletion."""
    rows = np.zeros(len(zones), MOVE)
    rows["id"] = np.arange(len(zones)) if ids is None else ids
    rows["version"], rows["content"] = versions, contents
    rows["flags"] = np.where(subscriptions, SUBSCRIPTION, 0)
    for row, zone in zip(rows, zones, strict=True):
        if zone is None:
            row["flags"] |= GONE
        else:
            row["kind"] = isinstance(zone, Box)
            row["zone"][: len(zone)] = zone
    return rows
