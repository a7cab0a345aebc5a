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
        groups: the hosts of each group by its number, r of them, in any order; they are ordered by name.
        spare: hosts that belong to no group yet.

    Raises:
        GraphError: there is no group, or a host is in two.

    Example:
        >>> ring = Ring({0: ("a", "b")}).grown("c", 2).grown("d", 2)
        >>> ring.groups
        {0: ('a', 'b'), 1: ('c', 'd')}
    """

    def __init__(self, groups: Mapping[int, tuple[str, ...]], spare: tuple[str, ...] = ()) -> None:
        self.groups = {number: tuple(sorted(groups[number])) for number in sorted(groups)}
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

    def grown(self, host: str, r: int) -> Ring:
        """The ring with one more host: it is spare until ``r`` spare hosts make a group.

        Args:
            host: its name.
            r: hosts a group.
        """
        spare = (*self.spare, host)
        if len(spare) < r:
            return Ring(self.groups, spare)
        return Ring({**self.groups, max(self.groups) + 1: spare[:r]}, spare[r:])

    def without(self, host: str) -> Ring:
        """The ring without a host: a spare one takes its place, and no key moves.

        Args:
            host: its name.

        Raises:
            GraphError: the host is not in the ring, or is the only one of its group and none is spare.
        """
        if host in self.spare:
            return Ring(self.groups, tuple(other for other in self.spare if other != host))
        groups = dict(self.groups)
        for number, members in groups.items():
            if host in members:
                groups[number] = tuple(other for other in members if other != host) + self.spare[:1]
                if groups[number]:
                    return Ring(groups, self.spare[1:])
        raise GraphError(f"host {host!r}: expected one of the ring that another can stand in for: {groups!r}")


def _mixed(keys: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """What ``kernels.tables.mixed`` computes."""
    h = keys + _U(0x9E3779B97F4A7C15)
    h = (h ^ (h >> _U(30))) * _U(0xBF58476D1CE4E5B9)
    h = (h ^ (h >> _U(27))) * _U(0x94D049BB133111EB)
    mixed: NDArray[np.uint64] = h ^ (h >> _U(31))
    return mixed
