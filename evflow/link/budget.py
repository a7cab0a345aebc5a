"""The budget: how many bytes of events all peers together may have at a node, waiting or allowed to be sent.

Credit comes from the budget, and is never taken back within a session. So a channel begins with a small part,
and gets more once it has used that. The credit of a peer is at most half of what the other peers leave, and
that of a channel at most half of what the other channels of its peer leave: there is always room for one
more. Where nothing is left a channel gets one byte, which lets one frame through.

A frame may be larger than the credit for it. Such frames have a bound for each peer, beyond which they are
refused, and their senders keep them. A frame for a stone that takes events is let in all the same while no
other frame of its peer waits that could be handled: no channel stands still because of others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from evflow.link.inlet import Inlet

__all__ = ["BUDGET", "Budget"]

BUDGET = 256 << 20
"""Bytes that a node has for all peers, unless it is told otherwise."""

_PARTS = 16
"""A channel that has not been used yet gets one of so many parts of what it may have later."""

_LEAST = 32
"""A peer may have one of so many parts of the budget in frames beyond its credit, whatever others have."""


class Budget:
    """The bytes that a node has for what its peers send.

    Args:
        total: bytes for all peers together.
        window: bytes for one channel, at most.
        inlets: gives the inlets over which frames may come, and those with frames that wait.
        blocked: whether frames of an inlet would wait although no handler runs.

    Attributes:
        total, window: see above.
    """

    def __init__(
        self,
        total: int,
        window: int,
        inlets: Callable[[], Iterable[Inlet]],
        blocked: Callable[[Inlet], bool],
    ) -> None:
        self.total = total
        self.window = window
        self._inlets = inlets
        self._blocked = blocked
        self._counted: dict[Inlet, int] = {}
        self._of: Counter[str] = Counter()
        self._all = 0
        self._channels: Counter[str] = Counter()
        self._stale = True

    def inlets(self) -> set[Inlet]:
        """The inlets that are counted."""
        return set(self._inlets())

    @property
    def used(self) -> int:
        """Bytes that all peers have, waiting and allowed to be sent."""
        return sum(inlet.charged for inlet in self.inlets())

    def recount(self) -> None:
        """Inlets may have gone, and frames were taken in: the budget is counted anew when next asked."""
        self._stale = True

    def note(self, inlet: Inlet) -> None:
        """Counts what an inlet has; to be called when that has become more."""
        before = self._counted.get(inlet)
        if before is None:
            self._channels[inlet.peer] += 1
        charged = self._counted[inlet] = inlet.charged
        more = charged - (before or 0)
        self._of[inlet.peer] += more
        self._all += more

    def _count(self) -> None:
        if not self._stale:
            return
        self._stale = False
        self._counted, self._of, self._channels, self._all = {}, Counter(), Counter(), 0
        for inlet in self.inlets():
            self.note(inlet)

    def _share(self, peer: str) -> int:
        return max(self.total - (self._all - self._of[peer]), 0) // 2

    def allows(self, inlet: Inlet, used: bool) -> int:
        """How many bytes an inlet may have, those that wait included; at least 1.

        Args:
            inlet: the inlet.
            used: whether frames have come over its channel since that was opened.
        """
        self._count()
        peer, own = inlet.peer, self._counted.get(inlet, 0)
        share = self._share(peer)
        most = min(self.window, (share - self._of[peer] + own) // 2)
        if not used:
            # Harmonic parts: channels that are never used leave more than a third of the share.
            channels = self._channels[peer] + (inlet not in self._counted)
            most = min(most, share // (_PARTS * channels))
        return max(most, 1)

    def admits(self, inlet: Inlet, beyond: int) -> bool:
        """Whether so many more bytes may come over an inlet than there is credit for."""
        self._count()
        peer = inlet.peer
        if self._of[peer] + beyond <= max(2 * self._share(peer), self.total // _LEAST):
            return True
        if self._blocked(inlet):
            return False
        waiting = (other for other in self.inlets() if other.peer == peer and other.queue)
        return all(self._blocked(other) for other in waiting)
