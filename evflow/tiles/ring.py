"""Consistent hashing over replica groups (section III.E): which group has a key, and which hosts a group."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from evflow.errors import GraphError
from evflow.tiles.kernels import tables

__all__ = ["Ring"]

_SLOTS = 1 << 14
_U = np.uint64


class Ring:
    """Replica groups of hosts, and the keys of each.

    A key belongs to one of 16,384 slots by its hash, and a slot to the group with the highest hash of both
    (rendezvous hashing, Thaler and Ravishankar 1998). So only keys of a group that comes or goes move, and
    looking up a key is one read. Two groups share either no host or all: a host that dies breaks at most one
    of the r replicas of any match triggering graph.

    Args:
        groups: the hosts of each group by its number, r of them; the first is replica 0, and so on.
        spare: hosts that belong to no group yet.

    Raises:
        GraphError: there is no group, or a host is in two.

    Example:
        >>> ring = Ring({0: ("a", "b")}).grown("c", 2).grown("d", 2)
        >>> ring.groups
        {0: ('a', 'b'), 1: ('c', 'd')}
    """

    def __init__(self, groups: Mapping[int, tuple[str, ...]], spare: tuple[str, ...] = ()) -> None:
        self.groups = {number: tuple(groups[number]) for number in sorted(groups)}
        self.spare = spare
        hosts = [host for members in self.groups.values() for host in members] + list(spare)
        if not self.groups or len(set(hosts)) != len(hosts):
            raise GraphError(f"ring of {dict(groups)!r}: expected groups, and each host in one of them only")

    @cached_property
    def slots(self) -> NDArray[np.int32]:
        """int32: the group of each slot."""
        numbers = np.array(list(self.groups), np.int32)
        seeds = [int.from_bytes(hashlib.blake2b(b"%d" % n, digest_size=8).digest(), "big") for n in numbers]
        weight = _mixed(np.arange(_SLOTS, dtype=_U)[:, None] ^ np.array(seeds, _U)[None, :])
        found: NDArray[np.int32] = numbers[np.argmax(weight, axis=1)]
        return found

    def owners(self, keys: NDArray[np.int64]) -> NDArray[np.int32]:
        """The groups of keys.

        Args:
            keys: ids of entities, or tiles: int64, (N,).
        """
        found = np.empty(len(keys), np.int32)
        tables.owners(np.ascontiguousarray(keys), self.slots, found)
        return found

    def grown(self, host: str, r: int, number: int | None = None) -> Ring:
        """The ring with one more host: it is spare until ``r`` spare hosts make a group.

        Args:
            host: its name.
            r: hosts a group.
            number: that of the group, if there is one; by default the one after the highest.
        """
        spare = (*self.spare, host)
        if len(spare) < r:
            return Ring(self.groups, spare)
        if number is None:
            number = max(self.groups) + 1
        return Ring({**self.groups, number: spare[:r]}, spare[r:])

    def without(self, host: str) -> Ring:
        """The ring without a host.

        A spare one takes its place, and no key moves. If there is none, its group ends: keys of this group
        move to the others, and its other hosts become spare.

        Args:
            host: its name.

        Raises:
            GraphError: the host is not in the ring, or its group is the only one and no host is spare.
        """
        if host in self.spare:
            return Ring(self.groups, tuple(other for other in self.spare if other != host))
        for number, members in self.groups.items():
            if host in members and self.spare:
                stands_in = tuple(self.spare[0] if other == host else other for other in members)
                return Ring({**self.groups, number: stands_in}, self.spare[1:])
            if host in members and len(self.groups) > 1:
                rest = {other: self.groups[other] for other in self.groups if other != number}
                return Ring(rest, tuple(other for other in members if other != host))
        raise GraphError(
            f"host {host!r}: expected one of the ring that can leave, found {self.groups!r}; the last group "
            "needs a spare host to take its place"
        )


def _mixed(keys: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """What ``kernels.tables.mixed`` computes."""
    h = keys + _U(0x9E3779B97F4A7C15)
    h = (h ^ (h >> _U(30))) * _U(0xBF58476D1CE4E5B9)
    h = (h ^ (h >> _U(27))) * _U(0x94D049BB133111EB)
    mixed: NDArray[np.uint64] = h ^ (h >> _U(31))
    return mixed
