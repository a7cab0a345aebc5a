"""Which grid and which rings a system has: what every role has to agree on."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from evflow.tiles.grid import Grid
from evflow.tiles.kernels import zones
from evflow.tiles.messages import Place, Rows
from evflow.tiles.ring import Ring

__all__ = ["Layout"]


@dataclass(frozen=True, eq=False)
class Layout:
    """The grid, and the rings of State Managers and of Tile Managers.

    While they change, a layout has the one that comes ``next``: State Managers tell the Tile Managers of
    both of the tiles of both, and those that get keys or tiles catch up. Then the next one alone is left. See
    docs/tiles.md.

    Attributes:
        grid: the tiles.
        states: F_S: ids of entities to groups of State Managers.
        tiles: F_T: tiles to groups of Tile Managers.
        version: rises by one with each change.
        next: what takes its place.
    """

    grid: Grid
    states: Ring
    tiles: Ring
    version: int = 0
    next: Layout | None = None

    @property
    def stage(self) -> int:
        """Rises with each step of a change: even between changes, odd while there are two layouts."""
        return 2 * self.version + (self.next is not None)

    @property
    def mark(self) -> int:
        """The stage as moves have it."""
        return self.stage & 0xFFFF

    @property
    def last(self) -> Layout:
        """The next one, or this one if there is none."""
        return self.next or self

    @cached_property
    def grids(self) -> Grid:
        """This layout's grid and the next one's."""
        return self.grid.beside(self.last.grid) if self.next else self.grid

    def owners(self, tiles: NDArray[np.int64]) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """The groups that have tiles in this layout, and in the next one; -1 where its grid has no such tile.

        Args:
            tiles: their numbers.
        """
        bits = np.empty(len(tiles), np.int64)
        zones.cells_of(np.ascontiguousarray(tiles), self.grids.tiling, bits)
        is_single = self.grids.tiling.counts[zones.ELSE] == 4
        now = np.where(bits & 4, self.tiles.owners(tiles), -1).astype(np.int32)
        after = np.where(bits & (4 if is_single else 8), self.last.tiles.owners(tiles), -1).astype(np.int32)
        return now, after

    def groups(self, role: str) -> list[int]:
        """The groups of this layout and the next one.

        Args:
            role: ``state`` or ``tile``.
        """
        return sorted({*self._ring(role).groups, *self.last._ring(role).groups})

    def replicas(self, role: str, group: int) -> list[Place]:
        """The places of a group of this layout or the next one.

        Args:
            role: ``state`` or ``tile``.
            group: its number.
        """
        members = self._ring(role).groups.get(group) or self.last._ring(role).groups.get(group, ())
        return [Place(role, group, replica) for replica in range(len(members))]

    def gains(self, role: str, group: int) -> list[int]:
        """The groups from which a group gets keys or tiles when the next layout comes.

        Args:
            role: ``state`` or ``tile``.
            group: its number.
        """
        before, after = self._ring(role).slots, self.last._ring(role).slots
        return [int(g) for g in np.unique(before[after == group]) if g != group]

    def comes_to(self, group: int) -> bool:
        """Whether a group of Tile Managers gets tiles when the next layout comes.

        Args:
            group: its number.
        """
        cells = self.grids.tiling.cells
        coming = cells[(cells[:, 1] != -1) & (cells[:, 1] & 12 == 8), 0]
        return bool(self.gains("tile", group)) or group in self.last.tiles.owners(coming)

    def _ring(self, role: str) -> Ring:
        return self.states if role == "state" else self.tiles


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
    return list(zip(found.tolist(), np.split(rows.take(order), starts[1:]), strict=True))
