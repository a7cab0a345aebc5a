"""Which grid and which rings a system has: what every role has to agree on."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from evflow.tiles.grid import Grid
from evflow.tiles.messages import Place, Rows
from evflow.tiles.ring import Ring

__all__ = ["Layout"]


@dataclass(frozen=True, eq=False)
class Layout:
    """The grid, and the rings of State Managers and of Tile Managers.

    Attributes:
        grid: the tiles.
        states: F_S: ids of entities to groups of State Managers.
        tiles: F_T: tiles to groups of Tile Managers.
    """

    grid: Grid
    states: Ring
    tiles: Ring

    def replicas(self, role: str, group: int) -> list[Place]:
        """The places of a group.

        Args:
            role: ``state`` or ``tile``.
            group: its number.
        """
        ring = self.states if role == "state" else self.tiles
        return [Place(role, group, replica) for replica in range(len(ring.groups[group]))]


def split(rows: Rows, keys: NDArray[np.integer]) -> list[tuple[int, Rows]]:
    """Rows by their keys, in order within each.

    Args:
        rows: the rows.
        keys: integers, one a row.
    """
    if not len(rows):
        return []
    first = keys[0]
    if (keys == first).all():
        return [(int(first), rows)]
    order = np.argsort(keys, kind="stable")
    found, starts = np.unique(keys[order], return_index=True)
    return list(zip(found.tolist(), np.split(rows[order], starts[1:]), strict=True))
