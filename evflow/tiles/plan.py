"""Which hosts there are and which roles each plays: the plain data that every host of a system has."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from evflow.errors import GraphError
from evflow.outside import Malformed, from_json
from evflow.stone import checked_integer
from evflow.tiles.grid import Grid
from evflow.tiles.layout import Layout
from evflow.tiles.messages import Place
from evflow.tiles.ring import Ring

__all__ = ["Plan"]

_RINGS = ("states", "tiles")


@dataclass(frozen=True)
class Plan:
    """The roles of each host, and how these change.

    Hosts and groups keep their numbers, and none gets that of another. ``made`` makes the first plan, and
    ``grown``, ``without`` and ``divided`` one that changes it. If keys or tiles move, this has the layout
    that comes ``next``, too, and ``settled`` is the last step.

    Attributes:
        hosts: all hosts, also those that have left, each at its number.
        replicas: r, how many hosts have each entity and each tile.
        zoom: of the grid.
        frontends: the hosts that clients may connect to.
        states: the hosts with State Managers.
        tiles: the hosts with Tile Managers.
        groups: how many groups there have been.
        splits: the tiles of the grid that are split.
        version: of the layout.
        next: the plan that takes its place.
    """

    hosts: tuple[str, ...]
    replicas: int
    zoom: int
    frontends: tuple[str, ...]
    states: Ring
    tiles: Ring
    groups: int
    splits: tuple[int, ...] = ()
    version: int = 0
    next: Plan | None = None

    @classmethod
    def made(
        cls, frontends: Sequence[str], states: Sequence[str], tiles: Sequence[str], replicas: int, zoom: int
    ) -> Plan:
        """The first plan.

        Args:
            frontends: the hosts that clients may connect to.
            states: the hosts with State Managers, in groups of ``replicas``.
            tiles: the hosts with Tile Managers, in groups of ``replicas``.
            replicas: r.
            zoom: of the grid.

        Raises:
            GraphError: hosts cannot be grouped so.
        """
        checked_integer("replicas", replicas)
        listed = {"frontends": tuple(frontends), "states": tuple(states), "tiles": tuple(tiles)}
        for what, hosts in listed.items():
            if not hosts or len(set(hosts)) != len(hosts):
                raise GraphError(f"{what} {hosts!r}: expected hosts, each once")
            if what != "frontends" and len(hosts) % replicas:
                raise GraphError(
                    f"{what} {hosts!r}: expected a multiple of replicas={replicas} hosts, found {len(hosts)}"
                )
        # By name within a group: those of both rings are in the same order.
        r, rings = replicas, dict[str, Ring]()
        for what in _RINGS:
            starts = range(0, len(listed[what]), r)
            rings[what] = Ring({at // r: tuple(sorted(listed[what][at : at + r])) for at in starts})
        names = tuple(sorted({host for hosts in listed.values() for host in hosts}))
        groups = max(len(ring.groups) for ring in rings.values())
        return cls(names, replicas, zoom, listed["frontends"], rings["states"], rings["tiles"], groups)

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> Plan:
        """The plan that this plain data describes.

        Args:
            plain: see ``plain``.

        Raises:
            GraphError: it is none.
        """
        try:
            states, tiles = (
                Ring(
                    {int(number): tuple(hosts) for number, hosts in plain[what]["groups"].items()},
                    tuple(plain[what]["spare"]),
                )
                for what in _RINGS
            )
            return cls(
                hosts=tuple(plain["hosts"]),
                replicas=int(plain["replicas"]),
                zoom=int(plain["zoom"]),
                frontends=tuple(plain["frontends"]),
                states=states,
                tiles=tiles,
                groups=int(plain["groups"]),
                splits=tuple(sorted(Grid(int(plain["zoom"]), plain["splits"]).splits)),
                version=int(plain["version"]),
                next=cls.of(plain["next"]) if plain["next"] else None,
            )
        except (TypeError, ValueError, KeyError, AttributeError) as error:
            raise GraphError(f"plan of tiles: expected what Plan.plain gives, found {plain!r}") from error

    def plain(self) -> dict[str, Any]:
        """As plain data."""
        rings = {
            what: {
                "groups": {str(number): list(hosts) for number, hosts in ring.groups.items()},
                "spare": list(ring.spare),
            }
            for what, ring in zip(_RINGS, (self.states, self.tiles), strict=True)
        }
        numbers = {what: getattr(self, what) for what in ("replicas", "zoom", "groups", "version")}
        names = ("hosts", "frontends", "splits")
        hosts: dict[str, Any] = {what: list(getattr(self, what)) for what in names}
        return hosts | rings | numbers | {"next": self.next.plain() if self.next else None}

    @classmethod
    def read(cls, text: str) -> Plan:
        """The plan of a text.

        Args:
            text: see ``text``.

        Raises:
            GraphError: it is none.
        """
        try:
            return cls.of(from_json(text))
        except Malformed as error:
            raise GraphError(f"plan of tiles: {error}") from None

    def text(self) -> str:
        """As JSON."""
        return self._text

    @cached_property
    def _text(self) -> str:
        return json.dumps(self.plain())

    # --- changes

    def grown(self, host: str, roles: Sequence[str] = ("frontends", *_RINGS)) -> Plan:
        """The plan by which a host joins.

        Args:
            host: its name.
            roles: what it plays: ``frontends``, ``states``, ``tiles``.

        Raises:
            GraphError: there is such a host, or no such role, or a change is under way.
        """
        self._check_settled()
        if host in self.running:
            raise GraphError(f"host {host!r}: expected one that does not play a role yet: {self.running!r}")
        if not roles or not set(roles) <= {"frontends", *_RINGS}:
            raise GraphError(f"roles {roles!r}: expected some of frontends, states, tiles")
        rings = {
            what: getattr(self, what).grown(host, self.replicas, self.groups)
            for what in _RINGS
            if what in roles
        }
        frontends = (*self.frontends, host) if "frontends" in roles else self.frontends
        # A host that has left and comes back has another number: it is another one to those that knew it.
        return self._changed(replace(self, hosts=(*self.hosts, host), frontends=frontends, **rings))

    def without(self, host: str) -> Plan:
        """The plan by which a host leaves.

        Args:
            host: its name.

        Raises:
            GraphError: it cannot leave, or a change is under way.
        """
        self._check_settled()
        if host not in self.running:
            raise GraphError(f"host {host!r}: expected one of {self.running!r}")
        frontends = tuple(other for other in self.frontends if other != host)
        if not frontends:
            raise GraphError(f"host {host!r}: expected another one with a Frontend, found none")
        rings = {
            what: getattr(self, what).without(host) for what in _RINGS if host in members(getattr(self, what))
        }
        return self._changed(replace(self, frontends=frontends, **rings))

    def divided(self, splits: Iterable[int]) -> Plan:
        """The plan by which other tiles of the grid are split.

        Args:
            splits: all tiles that are split then; see ``Grid``.

        Raises:
            GraphError: such tiles cannot be split, or a change is under way.
        """
        self._check_settled()
        return self._changed(replace(self, splits=tuple(sorted(Grid(self.zoom, splits).splits))))

    def settled(self) -> Plan:
        """The plan after the change that is under way; this one if there is none."""
        return self.next or self

    def _check_settled(self) -> None:
        if self.next:
            raise GraphError("tiles: a change is under way; let it end first")

    def _changed(self, after: Plan) -> Plan:
        rings = [getattr(after, what) for what in _RINGS]
        groups = max(self.groups, *(max(ring.groups) + 1 for ring in rings))
        after = replace(after, groups=groups, version=self.version + 1)
        before = [getattr(self, what) for what in _RINGS]
        if after.splits == self.splits and [r.groups.keys() for r in rings] == [
            r.groups.keys() for r in before
        ]:
            # No key moves.
            return after
        return replace(self, hosts=after.hosts, next=after)

    # --- what it says

    @property
    def stage(self) -> int:
        """Rises with each step of a change; see ``Layout.stage``."""
        return self.layout.stage

    @cached_property
    def running(self) -> tuple[str, ...]:
        """The hosts that play roles, or will, or stand by; by number."""
        named = {*self.frontends, *members(self.states), *members(self.tiles)}
        if self.next:
            named |= set(self.next.running)
        found = dict.fromkeys(reversed([host for host in self.hosts if host in named]))
        return tuple(reversed(found))

    @cached_property
    def numbers(self) -> Mapping[int, str]:
        """These by their numbers."""
        return {self.number(host): host for host in self.running}

    @cached_property
    def layout(self) -> Layout:
        """The grid and the rings."""
        following = self.next.layout if self.next else None
        return Layout(Grid(self.zoom, self.splits), self.states, self.tiles, self.version, following)

    def number(self, host: str) -> int:
        """The number of a host: the latest, if it has left and come back.

        Args:
            host: its name.
        """
        return len(self.hosts) - 1 - self.hosts[::-1].index(host)

    @cached_property
    def where(self) -> Mapping[Place, int]:
        """The number of the host of each role."""
        found = dict(self.next.where) if self.next else {}
        found.update({Place("frontend", self.number(host)): self.number(host) for host in self.frontends})
        for role, ring in (("state", self.states), ("tile", self.tiles)):
            for group, hosts in ring.groups.items():
                found.update({Place(role, group, i): self.number(host) for i, host in enumerate(hosts)})
        return found

    def roles(self, host: int) -> list[Place]:
        """What a host plays.

        Args:
            host: its number.
        """
        return [place for place, at in self.where.items() if at == host]


def members(ring: Ring) -> tuple[str, ...]:
    """The hosts of a ring, spare ones too."""
    return (*(host for hosts in ring.groups.values() for host in hosts), *ring.spare)
