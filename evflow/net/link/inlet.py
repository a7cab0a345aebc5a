"""The receiving half of a channel: which frames came, which are taken in, and which may be forgotten.

Credit comes from the node's budget, and is never taken back within a session. So a channel begins with a
small part, and gets more once it has used that. The credit of a peer is at most half of what the other peers
leave, and that of a channel at most half of what the other channels of its peer leave: there is always room
for one more. Where nothing is left a channel gets one byte, which lets one frame through.

A frame may be larger than the credit for it. Such frames have a bound for each peer, beyond which they are
refused, and their senders keep them. A frame for a stone that takes events is let in all the same while no
other frame of its peer waits that could be handled: no channel stands still because of others.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable
from typing import Any, NamedTuple

from msgspec import Struct, field

from evflow.engine.topology import Slot
from evflow.errors import LinkError
from evflow.events.batch import EventBatch
from evflow.net.link.provenance import Provenance, next_route

ACK_FRAMES = 8
"""Frames after which a receiver says at once what it has taken in."""

DEPTH = 128
"""Frames that may be on their way."""

FRAME = 1 << 10
"""Bytes of memory that a frame takes beside its events and their attributes."""

ACK_BYTES = 8 << 20
"""Bytes after which it does, at the latest: a sender reuses the memory of what was taken in."""

ACK_DELAY = 0.005
"""Seconds that it waits otherwise for more to say."""


class Arrived(Struct):
    """A frame that came.

    Attributes:
        sequence: its number.
        batch: its events; None if they were malformed and are refused.
        size: bytes of its events, for which its sender needs credit.
        tag: its provenance.
        weight: bytes of memory that it takes, with its attributes and ``FRAME``.
    """

    sequence: int
    batch: EventBatch | None
    size: int
    tag: Provenance
    weight: int


class Hold(NamedTuple):
    """A stone that keeps events in memory: those up to ``parked`` and ``taken`` must have left it."""

    slot: Slot
    parked: int
    taken: int


class Pending(Struct):
    """A frame that was taken in, and what has to happen before it may be forgotten.

    Attributes:
        sequence: its number.
        tag: its provenance.
        owed: outlets, each with the ticket up to which it must have resolved its emissions.
        holds: stones that keep events of it in memory.
        again: whether it had come before.
    """

    sequence: int
    tag: Provenance
    owed: list[tuple[Any, int]]
    holds: list[Hold]
    again: bool = False


class Inlet(Struct, eq=False):
    """The receiving half of a channel.

    Attributes:
        peer: the node that sends.
        bridge: the name of its bridge.
        slot: the stone that gets the events, at ``input``.
        stream: the identity of the outlet at the other end.
        ended: whether its bridge has ended, and only keeps what is held here.
        sent_before: the number of the last frame that was sent before the channel was opened.
        exact: whether frames are acknowledged only once they are safe, and recognised if they come twice.
        budget: the node's, from which credit is given.
        received: the number of the last frame that came.
        consumed: of the last one taken in.
        safe: of the last one that may be forgotten.
        held: of the last one of which nothing is left to do, but what stones here hold in memory.
        ack_due: when ``acknowledgement`` has something to tell at the latest.
        handling: how many frames are being handled: the last one that was taken in, or none.
        queue: frames that came while their way was blocked.
        queued_bytes: the memory that these take.
        wanted: bytes of a frame that there was no room for; 0 if the last one was let in.
        duplicates, refused: frames that were seen before, and that were malformed.
        routes: the routes of what is sent on because of frames, by theirs.
    """

    peer: str
    bridge: str
    slot: Slot
    input: str
    stream: bytes
    exact: bool
    budget: Budget
    received: int = 0
    consumed: int = 0
    safe: int = 0
    held: int = 0
    handling: int = 0
    queue: deque[Arrived] = field(default_factory=deque)
    pending: deque[Pending] = field(default_factory=deque)
    queued_bytes: int = 0
    wanted: int = 0
    duplicates: int = 0
    refused: int = 0
    ended: bool = False
    sent_before: int = 0
    ack_due: float | None = None
    _gone: int = 0
    _first: int = 0  # frames up to this number were no longer on their way when the channel was opened
    _credit: int = 0  # bytes that may come in all since the channel was opened
    _came: int = 0  # bytes that have
    _given: int = 0  # what could be sent when credit was given last
    _returned: int = 0  # bytes of memory of what was taken in since
    _told: tuple[int, int, int, int] = (0, 0, 0, 0)
    routes: dict[bytes, bytes] = field(default_factory=dict)

    @property
    def unsettled(self) -> bool:
        """Whether there are frames that are not safe."""
        return bool(self.queue or self.pending)

    @property
    def repeats(self) -> bool:
        """Whether the next frame to be taken in was sent before, so what it leads to may have been done."""
        return self.consumed < self.sent_before

    def begin(self, gone: int) -> int:
        """A session begins, in which no frame up to ``gone`` comes; returns the bytes that may be sent at
        first."""
        # What is gone counts as received only with the frame behind it, or the sender would not count it
        # lost.
        self._gone = max(gone, self._gone)
        if not self.queue:
            self.consumed = max(gone, self.consumed)
        self._first = max(self.received, self._gone)
        self._credit = self._came = self._returned = 0
        self._give()
        # What was acknowledged in the session before may not have arrived.
        self._told = (-1, self.received, self._credit, 0)
        self.ack_due = None
        return self._credit

    @property
    def room(self) -> int:
        """Bytes of credit that the sender has left."""
        return max(self._credit - self._came, 0)

    @property
    def charged(self) -> int:
        """Bytes of memory of what waits, and bytes that the sender may still send."""
        return self.queued_bytes + self.room

    def _give(self) -> None:
        """Gives as much credit as the budget has for it."""
        allowed = self.budget.allows(self, self._came > 0)
        self._credit = max(self._came + allowed - self.queued_bytes, self._credit)
        if not self.queue:
            self._credit = max(self._came + 1, self._credit)
        self._given, self._returned = max(self._credit - self._came, 0), 0
        self.budget.note(self)

    def arrive(self, arrived: Arrived) -> bool:
        """Notes a frame that came; it is queued.

        Returns:
            Whether there is room for it; if not, its channel has to be closed.

        Raises:
            LinkError: it is not the next one, or more came than was allowed.
        """
        beyond = arrived.weight - max(self._credit - self._came, 0)
        if beyond > 0 and not self.budget.admits(self, beyond):
            self.wanted = arrived.weight
            return False
        expected = max(self.received, self._gone) + 1
        if arrived.sequence != expected:
            raise LinkError(
                f"bridge {self.bridge!r} of {self.peer}: expected frame {expected}, found {arrived.sequence}"
            )
        on_their_way = expected - max(self.consumed, self._first)
        if self._came >= self._credit or on_their_way > DEPTH:
            raise LinkError(f"bridge {self.bridge!r} of {self.peer}: it sends more than it has credit for")
        self.received = expected
        self.queue.append(arrived)
        self.queued_bytes += arrived.weight
        self._came += arrived.size
        self.wanted = 0
        if not self.budget.stale:
            self.budget.note(self)
        return True

    def let_go(self) -> None:
        """Forgets the frames that wait; their sender has them."""
        self.queue.clear()
        self.queued_bytes = 0

    def take(self) -> Arrived:
        """The next frame to be taken in."""
        arrived = self.queue.popleft()
        self.queued_bytes -= arrived.weight
        self._returned += arrived.weight
        self.consumed = arrived.sequence
        if not self.exact:
            self.safe = self.consumed
        self.budget.stale = True
        return arrived

    def route_onward(self, tag: Provenance) -> bytes:
        """The route of what is sent on because of a frame, where ``routes`` has none yet."""
        # Nothing that a move of the stones changes: see ``evflow.net.link.provenance``.
        crossed = f"{self.bridge}\0{self.slot.name}\0{self.input}"
        if len(self.routes) > 10_000:
            self.routes.clear()
        route = self.routes[tag.route] = next_route(tag.route, crossed)
        return route

    @property
    def has_news(self) -> bool:
        """True if there is something to tell the sender, now or soon."""
        told = self._told
        return bool(self._returned) or (*self._taken, self.held) != (told[0], told[1], told[3])

    @property
    def _taken(self) -> tuple[int, int]:
        """Up to which frame all are safe, and up to which they are taken in."""
        # Where nothing is kept, what is being handled could still be lost, and would not be counted.
        consumed = self.consumed if self.exact else self.consumed - self.handling
        return min(self.safe, consumed), consumed

    def tell_by(self, now: float) -> float | None:
        """When the sender is to hear of what there is to tell: ``now``, if that is much; None if there is
        nothing."""
        if not (self._returned or self.has_news):
            return None
        if self.consumed - self._told[1] >= ACK_FRAMES or self._returned >= min(self._given // 2, ACK_BYTES):
            return now
        if self.ack_due is None:
            self.ack_due = now + ACK_DELAY
        return self.ack_due

    def acknowledgement(self, now: float, at_once: bool = False) -> tuple[int, int, int, int] | None:
        """What to tell the sender (safe, consumed, credit, held), if it is time to."""
        due = self.tell_by(now)
        if due is None or (now < due and not at_once):
            return None
        safe, consumed = self._taken
        if self._returned:
            self._give()
        self._told, self.ack_due = (safe, consumed, self._credit, self.held), None
        return self._told


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
        inlets: gives the inlets that are counted: those over which frames may come, and those with frames
            that wait.
        blocked: whether frames of an inlet would wait although no handler runs.

    Attributes:
        total, window, inlets: see above.
        stale: whether inlets may have gone, or frames were taken in: the budget is counted anew when next
            asked.
    """

    def __init__(
        self,
        total: int,
        window: int,
        inlets: Callable[[], set[Inlet]],
        blocked: Callable[[Inlet], bool],
    ) -> None:
        self.total = total
        self.window = window
        self.inlets = inlets
        self._blocked = blocked
        self._counted: dict[Inlet, int] = {}
        self._of: defaultdict[str, int] = defaultdict(int)
        self._all = 0
        self._channels: defaultdict[str, int] = defaultdict(int)
        self.stale = True

    @property
    def used(self) -> int:
        """Bytes that all peers have, waiting and allowed to be sent."""
        return sum(inlet.charged for inlet in self.inlets())

    def note(self, inlet: Inlet) -> None:
        """Counts what an inlet has; to be called when that has become more."""
        before = self._counted.get(inlet)
        if before is None:
            self._channels[inlet.peer] += 1
        charged = self._counted[inlet] = inlet.queued_bytes + max(inlet._credit - inlet._came, 0)
        more = charged - (before or 0)
        self._of[inlet.peer] += more
        self._all += more

    def _count(self) -> None:
        if not self.stale:
            return
        self.stale = False
        self._counted, self._all = {}, 0
        self._of, self._channels = defaultdict(int), defaultdict(int)
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
