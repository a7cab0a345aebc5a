"""Which hosts there are and which roles each plays: the plain data that every host of a system has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from evflow.errors import GraphError
from evflow.stone import checked_integer
from evflow.tiles.grid import Grid
from evflow.tiles.layout import Layout
from evflow.tiles.messages import Place
from evflow.tiles.ring import Ring

__all__ = ["Plan"]


@dataclass(frozen=True)
class Plan:
    """The roles of each host.

    Attributes:
        frontends: the hosts that clients may connect to.
        states: the hosts with State Managers, in groups of ``replicas``.
        tiles: the hosts with Tile Managers, in groups of ``replicas``.
        replicas: r, how many hosts have each entity and each tile.
        zoom: of the grid.

    Raises:
        GraphError: hosts cannot be grouped so.
    """

    frontends: tuple[str, ...]
    states: tuple[str, ...]
    tiles: tuple[str, ...]
    replicas: int
    zoom: int

    def __post_init__(self) -> None:
        checked_integer("replicas", self.replicas)
        for what, hosts in (("frontends", self.frontends), ("states", self.states), ("tiles", self.tiles)):
            if not hosts or len(set(hosts)) != len(hosts):
                raise GraphError(f"{what} {hosts!r}: expected hosts, each once")
            if what != "frontends" and len(hosts) % self.replicas:
                raise GraphError(
                    f"{what} {hosts!r}: expected a multiple of replicas={self.replicas} hosts, "
                    f"found {len(hosts)}"
                )

    @cached_property
    def hosts(self) -> tuple[str, ...]:
        """All hosts, by name."""
        return tuple(sorted({*self.frontends, *self.states, *self.tiles}))

    @cached_property
    def layout(self) -> Layout:
        """The grid and the rings."""
        return Layout(Grid(self.zoom), self._ring(self.states), self._ring(self.tiles))

    def _ring(self, hosts: Sequence[str]) -> Ring:
        r = self.replicas
        return Ring({at // r: tuple(hosts[at : at + r]) for at in range(0, len(hosts), r)})

    @cached_property
    def where(self) -> Mapping[Place, int]:
        """The position of the host of each role."""
        found = {Place("frontend", number): host for number, host in enumerate(self.frontends)}
        for role, ring in (("state", self.layout.states), ("tile", self.layout.tiles)):
            for group, members in ring.groups.items():
                found.update({Place(role, group, replica): host for replica, host in enumerate(members)})
        return {place: self.hosts.index(host) for place, host in found.items()}

    def roles(self, host: int) -> list[Place]:
        """What a host plays.

        Args:
            host: its position.
        """
        return [place for place, at in self.where.items() if at == host]
