"""Faults to plant in the roles, which the simulation has to find."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from evflow.tiles.grid import Grid
from evflow.tiles.manager import TileManager
from evflow.tiles.messages import ELSEWHERE, GONE, Outbox, Rows
from evflow.tiles.state import StateManager
from evflow.tiles.store import Entities, Pairs


def _credulous(pairs: Pairs, rows: Rows, subscriptions: Entities, follow: Any = Pairs.follow) -> Any:
    """As ``Pairs.follow``, for whom nothing is old."""
    pairs._table[pairs._table[:, 0] != -1, 2:4] = -1
    return follow(pairs, rows, subscriptions)


def _astray(manager: TileManager, rows: Rows, match: Any = TileManager._match) -> Outbox:
    """As ``TileManager._match``, for which tiles that are split have a say in who tells."""
    grids = manager.layout.grids
    tiling, cells = grids.tiling, grids.tiling.cells.copy()
    cells[cells[:, 1] != -1, 1] |= 4
    grids.tiling = tiling._replace(cells=cells)
    try:
        outbox: Outbox = match(manager, rows)
        return outbox
    finally:
        grids.tiling = tiling


def _without(rows: Rows, flag: int) -> Rows:
    rows["flags"] &= 255 - flag
    return rows


FAULTS: dict[str, tuple[str, Any]] = {
    "old news counts": ("evflow.tiles.client.Pairs.follow", _credulous),
    "what has come apart is not told": (
        "evflow.tiles.manager.TileManager._send",
        lambda self, rows, send=TileManager._send: send(self, rows[rows["event"] & 8 == 0]),
    ),
    "who leaves a tile counts as deleted": (
        "evflow.tiles.state.StateManager._told",
        lambda self, rows, told=StateManager._told: told(self, _without(rows, ELSEWHERE)),
    ),
    "clients keep copies": ("evflow.tiles.client.Seen.fresh", lambda self, rows: np.ones(len(rows), bool)),
    "matches are not kept": ("evflow.tiles.manager.TileManager._keep", lambda self, number, rows: None),
    "dead State Managers are not forgotten": (
        "evflow.tiles.manager.TileManager.down",
        lambda self, place: [],
    ),
    "snapshots are ignored": ("evflow.tiles.state.StateManager._caught_up", lambda self, peer, message: []),
    "only the first part of a snapshot is told": (
        "evflow.tiles.state.StateManager._from",
        lambda self, at, part=StateManager._from: (part(self, at)[0], 0),
    ),
    "nothing is sent again": ("evflow.tiles.frontend.Frontend._greeted", lambda self, state: []),
    "nothing is told of what was left": (
        "evflow.tiles.state.StateManager._told",
        lambda self, rows, told=StateManager._told: told(self, rows[rows["flags"] & GONE == 0]),
    ),
    "tiles that a group gets are not told": (
        "evflow.tiles.state.StateManager._gained",
        lambda self, at, group, gained=StateManager._gained: [
            (place, replace(message, rows=message.rows[:0])) for place, message in gained(self, at, group)
        ],
    ),
    "what a State Manager got is not told": (
        "evflow.tiles.state.StateManager._spread",
        lambda self, kind, rows, groups, spread=StateManager._spread: spread(
            self, kind, rows[: 0 if kind == "handed" else len(rows)], groups
        ),
    ),
    "tiles of the grid before are kept": (
        "evflow.tiles.manager.TileManager._drop",
        lambda self, which, whole=None, drop=TileManager._drop: drop(self, which),
    ),
    "tiles of the next grid are not told": (
        "evflow.tiles.grid.Grid.beside",
        lambda self, other, beside=Grid.beside: beside(self, self),
    ),
    "tiles agree with those that are split": ("evflow.tiles.manager.TileManager._match", _astray),
    "a change ends before all have caught up": (
        "tests.tiles.simulation.Simulation._ready",
        lambda self: True,
    ),
}
"""Faults to plant: what each replaces, and by what."""
