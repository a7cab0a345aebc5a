"""Taps: copies of the events that pass at a stone, for somebody who watches.

A tap is a bridge beside the way of the events: it sends at most once and drops the oldest of what waits, so
it disturbs nothing. It is not a part of a deployment, and goes when the watcher does.
"""

from __future__ import annotations

from dataclasses import dataclass

from evflow.engine.topology import Crossing, Slot, Topology
from evflow.errors import DeployError
from evflow.graph.placed import Link
from evflow.stones.bridge import Bridge

MOST_TAPS = 100
"""Taps that a node may have at a time."""

_LIMIT = 4 << 20


@dataclass(frozen=True)
class Tapped:
    """Who watches which stone.

    Attributes:
        stone: the stone's name on the node.
        peer: who watches.
        to: the stone there that gets the events.
        bridge: the stone that sends them.
    """

    stone: str
    peer: str
    to: str
    bridge: Bridge

    @classmethod
    def of(cls, number: int, stone: str, peer: str, to: str) -> Tapped:
        """A tap with a bridge of its own."""
        bridge = Bridge(
            peer, to, name=f"tap {number}", delivery="at_most_once", policy="drop oldest", limit=_LIMIT
        )
        return cls(stone, peer, to, bridge)


def with_taps(whole: Topology, taps: list[Tapped]) -> Topology:
    """Leads copies of events to the taps whose stones are there.

    Raises:
        DeployError: two taps have one bridge.
    """
    for tap in taps:
        slot = whole.slots.get(tap.stone)
        if slot is None:
            continue
        name = str(tap.bridge.name)
        if name in whole.slots:
            raise DeployError(f"there are two stones {name!r}")
        whole.slots[name] = Slot(name, tap.bridge)
        whole.crossings[name] = Crossing(tap.peer, tap.to, "")
        if slot.ports:
            for port, links in slot.ports.items():
                links.append(Link(tap.stone, port, name))
        else:
            _beside(whole, tap.stone, name)
    return whole


def _beside(whole: Topology, stone: str, end: str) -> None:
    """What leads to a stone leads to another one too."""
    for other in whole.slots.values():
        for port, links in other.ports.items():
            if any(link.target == stone for link in links):
                links.append(Link(other.name, port, end))
