"""Outlets of bridges that have ended, while their receiver holds events in memory that came over them.

Such an outlet is no part of the graph any more, but it is the backup of what the receiver holds: its frames
are kept, and sent again to a receiver that has lost them, until all are safe. They are sent without a tag
then: newer frames along the same route, which take another way now, may have come before them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from evflow.link.outlet import Outlet

if TYPE_CHECKING:
    from evflow.events.batch import EventBatch
    from evflow.link.hub import Hub

__all__ = ["MOST_RETIRED", "Retired"]

_log = logging.getLogger("evflow.link")

MOST_RETIRED = 100
"""Retired outlets of a node; a bridge that would be one more has to wait."""

_MOST_ALIKE = 16
"""Those among them that were one bridge to one peer, which keeps apart so many."""

_PATIENCE = 3600.0
"""Seconds for which a peer may say that it has no such stone, until what it has held is given up."""

GiveUp = Callable[[str, "EventBatch", str], Any]
"""(bridge, events, reason)."""


class Retired:
    """The retired outlets of a node.

    Args:
        hub: the node's other parts.
    """

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._outlets: dict[Outlet, GiveUp] = {}

    def __len__(self) -> int:
        return len(self._outlets)

    def __iter__(self) -> Iterator[Outlet]:
        return iter(self._outlets)

    def full(self, outlet: Outlet) -> str:
        """Why there is no room for an outlet now; "" if there is."""
        bridge, peer = outlet.bridge, outlet.address.peer
        if len(self) >= MOST_RETIRED:
            return f"{len(self)} bridges have ended while their receivers hold events; so many may be kept"
        alike = sum(other.bridge == bridge and other.address.peer == peer for other in self)
        if alike >= _MOST_ALIKE:
            return f"it has ended {alike} times while {peer} holds events; so many may be kept"
        return ""

    def add(self, outlet: Outlet, give_up: GiveUp) -> None:
        """Keeps an outlet until its frames are safe; its channel is opened anew, as one that has ended."""
        self._outlets[outlet] = give_up
        self._hub.custody.retire(outlet, self._hub.entrances.all())
        self._hub.links[outlet.address.peer].reopen(outlet)

    def follow(self, stone: str, peer: str) -> None:
        """A stone is on a peer now: what is kept for it on others is led there."""
        for outlet in self:
            if outlet.address.stone == stone and outlet.address.peer != peer:
                before = self._hub.links[outlet.address.peer]
                before.remove(outlet)
                outlet.readdressed(outlet.address._replace(peer=peer))
                self._hub.peer(peer).add(outlet)
                before.end_if_idle()

    def tidy(self, now: float) -> None:
        """Ends those that keep nothing any more, and those that are refused for too long."""
        for outlet, give_up in list(self._outlets.items()):
            if outlet.refused_since is not None and now >= outlet.refused_since + _PATIENCE:
                reason = f"the bridge was taken away, and node {outlet.address.peer} has not got what it held"
                _log.warning("bridge %s: %s: %s", outlet.bridge, reason, outlet.reason)
                for batch in outlet.lost():
                    give_up(outlet.bridge, batch, f"{reason}; {outlet.reason}")
            if not outlet.keeps:
                del self._outlets[outlet]
                link = self._hub.links[outlet.address.peer]
                link.remove(outlet)
                link.end_if_idle()
