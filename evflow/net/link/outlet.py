"""The sending half of a channel: what waits, what was sent and may not be forgotten yet.

An emission into a bridge gets a ticket, 1, 2, 3, …, and waits as an entry. Entries become frames when the
receiver has room: small ones together, so batches form while it is busy. Frames are numbered from 1, and kept
until the receiver says that they are safe; after a new session the ones it has not got are sent again.
A frame or entry knows the lowest ticket it stands for, so ``resolved`` tells up to which emission nothing is
owed any more.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from itertools import islice

from msgspec import Raw, Struct

from evflow.codgen.express import MOST, Express
from evflow.codgen.native import is_busy
from evflow.engine.topology import Crossing
from evflow.errors import LinkError
from evflow.events.batch import EventBatch
from evflow.events.gather import Room, address_of, no_room
from evflow.mishaps import CONTAINED
from evflow.net.link.attributes import MOST_EXTENT, extent
from evflow.net.link.attributes import pack as pack_attributes
from evflow.net.link.congestion import Congestion, CongestionHandler, relieve
from evflow.net.link.inlet import DEPTH
from evflow.net.link.messages import MOST_TEXTS, NIL
from evflow.net.link.provenance import Provenance
from evflow.net.link.waiting import POLICIES, Entry, Waiting

_FRAME, _LEAST_FRAME = 4 << 20, 32 << 10
"""Bytes at which a frame of many events is cut, and up to which small ones are put together: the most, and
the least where the receiver is slow or its speed is not known yet."""

IN_FLIGHT = 32
"""Frames that the flow's thread has on their way; more wait and become larger ones. What sends by itself may
have more: it sees whether the receiver reads, but hears of acknowledgements later."""

_COPIED = 1 << 20
"""Bytes up to which they are put together where that takes a copy."""

_MOST_WITH_ATTRIBUTES, _MOST_WITH_FEW = 8192, 65_536
"""Events of a frame with attributes, which travel in its header; and with no more than a few numbers."""

_FEW = 4

_MOMENT = 0.02
"""Seconds that a receiver should need for a frame."""

_FIRST_AGAIN, _LAST_AGAIN = 0.02, 1.0
"""Seconds until a channel that was rejected is asked for again: at first, and at most."""

_NOTED = 4
"""Rejections in a row after which a channel is in trouble."""


class Terms(Struct, frozen=True):
    """How a bridge treats its events.

    Attributes:
        exact: whether frames are kept until they are safe (at least once, and recognised if twice).
        policy: what happens when ``limit`` is reached, a key of ``POLICIES``.
        limit: bytes that may wait, and bytes that may be kept; with the policy "block", of both together.
        handler: the congestion handler, or None.
        least: bytes at which a frame of many events is cut where the receiver is slow, or its speed is not
            known yet.
    """

    exact: bool = True
    policy: str = "block"
    limit: int = 64 << 20
    handler: CongestionHandler | None = None
    least: int = _LEAST_FRAME


class Frame(Struct):
    """A numbered batch.

    Attributes:
        sequence: its number, from 1.
        low: the lowest ticket it stands for.
        batch: the events, compact; None once they are gone (at most once).
        count: how many events.
        size: their bytes.
        tag: its provenance; None where that is its own stream and number.
        attributes: as ``Data`` carries them.
    """

    sequence: int
    low: int
    batch: EventBatch | None
    count: int
    size: int
    tag: Provenance | None
    attributes: Raw


class Outlet:
    """The sending half of a channel.

    Args:
        bridge: the bridge's name; with the node's name it is the channel's identity over restarts.
        address: where to.
        terms: how.
        stream: 16 bytes, unlike those of any other outlet there ever was.

    Attributes:
        head: the ticket of the latest emission.
        dropped: called with the number of events that a policy, a handler or a broken link made away with.
        failed: called with what a congestion handler raised.
        left: called with the number of events of each new frame.
        room: gives memory for what is copied together, from which it can be sent; set by the link.
        pump: sends what can be sent; set by the session, while there is one.
        channel: its number, set by the link.
        state: "closed", "opening", "open" or "rejected".
        reason: why it is rejected.
        again: when it is to be opened again, once rejected.
        refused_since: since when it has been rejected within the session; None if it is not.
        retired: whether its bridge has ended, and it only keeps what the receiver holds in memory.
        express: sends events where they are submitted, while nobody else does; None until there is one.
    """

    # Python finds attributes of an object with more than thirty of them slowly without this.
    __slots__ = (
        "_consumed", "_credit", "_held", "_kept_bytes", "_last", "_last_sent", "_most", "_rejections",
        "_sent", "_sent_ever", "_spent", "_unsent", "address", "again", "bridge", "channel", "dropped",
        "express", "failed", "head", "left", "meter", "pump", "reason", "refused_since", "retired", "room",
        "round_trip", "state", "stream", "terms", "waiting",
    )  # fmt: skip

    def __init__(self, bridge: str, address: Crossing, terms: Terms, stream: bytes) -> None:
        self.bridge = bridge
        self.address = address
        self.terms = terms
        self.stream = stream
        self.head = 0
        self.state = "closed"
        self.reason = ""
        self.again = 0.0
        self.refused_since: float | None = None
        self.retired = False
        self.express: Express | None = None
        self.waiting = Waiting(whole=terms.policy == "block" and terms.handler is None)
        self.meter = Meter()
        self.round_trip = 0.0
        self.dropped: Callable[[int], None] = lambda count: None
        self.failed: Callable[[BaseException], None] = lambda error: None
        self.left: Callable[[int], None] = lambda count: None
        self.room: Room = no_room
        self.channel = 0
        self.pump: Callable[[Outlet], None] = lambda outlet: None
        self._unsent: deque[Frame] = deque()
        self._sent: deque[Frame] = deque()
        self._kept_bytes = 0
        self._last = 0  # the number of the newest frame
        self._last_sent = 0
        self._sent_ever = 0
        self._consumed = 0
        self._held = 0
        self._rejections = 0
        self._spent, self._credit = 0, 0
        self._most = terms.least  # bytes of a frame of many events, if that is less than ``_FRAME``

    @property
    def resolved(self) -> int:
        """Highest ticket up to which nothing is unacknowledged."""
        for frames in (self._sent, self._unsent):
            if frames and (self.terms.exact or frames is self._unsent):
                return frames[0].low - 1
        first = self.waiting.first
        return self.head if first is None else first.low - 1

    @property
    def handled(self) -> int:
        """Like ``resolved``, but what the receiver holds in the memory of its stones counts as handled."""
        frames = self._sent
        ahead = 0 if not frames else self._held + 1 - frames[0].sequence
        if not self.terms.exact or ahead <= 0:
            return self.resolved
        if ahead < len(frames):
            return frames[ahead].low - 1
        first = self._unsent[0] if self._unsent else self.waiting.first
        return self.head if first is None else first.low - 1

    @property
    def drained(self) -> bool:
        """Whether all that was emitted has been handled, or is held by the receiver; where nothing is kept,
        whether it is known what became of it."""
        return self.handled >= self.head and (self.terms.exact or not self._sent)

    @property
    def keeps(self) -> bool:
        """Whether there are frames that are not safe."""
        return self.terms.exact and bool(self._sent or self._unsent)

    @property
    def delivery(self) -> int:
        """As ``Open`` has it."""
        return int(self.terms.exact) + self.retired

    @property
    def owed_bytes(self) -> int:
        """Bytes that wait or are kept."""
        return self._kept_bytes + self.waiting.bytes

    @property
    def owed_events(self) -> int:
        """Events that wait or are kept."""
        return self.waiting.events + sum(f.count for f in (*self._sent, *self._unsent) if f.batch is not None)

    @property
    def blocked(self) -> bool:
        """Whether no more may be emitted, by the policy."""
        owed = self._kept_bytes + self.waiting.bytes
        return owed >= self.terms.limit and self.terms.policy == "block"

    def put(self, batch: EventBatch, tag: Provenance | None) -> None:
        """Takes an emission, with no more attributes than one frame may have; sends it if the receiver has
        room."""
        self.head += 1
        self.waiting.append(Entry(batch, self.head, tag))
        self.pump(self)
        if self.waiting.entries:
            self._relieve()

    def _relieve(self) -> None:
        terms, waiting = self.terms, self.waiting
        if terms.handler is not None:
            congestion = Congestion(
                bandwidth=self.meter.rate, round_trip=self.round_trip,
                in_flight_bytes=self._kept_bytes, link=self.bridge,
            )  # fmt: skip
            fewer, error = relieve(waiting, terms.handler, congestion)
            if fewer > 0:
                self.dropped(fewer)
            if error is not None:
                self.failed(error)
        lost = POLICIES[terms.policy](waiting, terms.limit)
        if lost:
            self.dropped(lost)

    # --- the session

    def disconnected(self) -> None:
        """The session ended; what was sent may not have arrived."""
        self.pump = lambda outlet: None
        self.state, self.refused_since = "closed", None
        if self.terms.exact:
            self._unsent.extendleft(reversed(self._sent))
            self._sent.clear()

    @property
    def gone(self) -> int:
        """Frames up to this number will not be sent (again): they are safe, or were let go."""
        kept = (*islice(self._sent, 1), *islice(self._unsent, 1)) if self.terms.exact else self._unsent
        return kept[0].sequence - 1 if kept else self._last

    @property
    def sent_before(self) -> int:
        """Frames up to this number were sent at some time, of those that will be sent again; 0 if none is."""
        return self._sent_ever if self.terms.exact and self._sent_ever > self.gone else 0

    def accepted(self, received: int, credit: int) -> None:
        """The receiver has opened the channel, and has got the frames up to ``received``.

        Raises:
            LinkError: it cannot have got so many.
        """
        if received > self._last:
            raise LinkError(f"bridge {self.bridge!r}: the peer has {received} frames of {self._last}")
        self.state, self.reason, self._rejections, self.refused_since = "open", "", 0, None
        self._consumed = self._last_sent = max(received, self.gone)
        self._held = min(self._held, received)
        self._spent, self._credit = 0, credit
        self.meter.restart()
        while self._unsent and self._unsent[0].sequence <= received:
            self._sent.append(self._unsent.popleft())
        if not self.terms.exact:
            self._count_lost(received)

    @property
    def was_refused(self) -> bool:
        """Whether it was rejected again and again, so not only while a stone is on its way."""
        return self._rejections == _NOTED

    def rejected(self, reason: str, now: float) -> None:
        """The receiver has no such stone (any more), or refuses; to be asked again, more and more seldom."""
        since = self.refused_since
        self.disconnected()
        self.state, self.reason, self.refused_since = "rejected", reason, now if since is None else since
        self.again = now + min(_FIRST_AGAIN * 2**self._rejections, _LAST_AGAIN)
        self._rejections = min(self._rejections + 1, 8)

    def readdressed(self, address: Crossing) -> None:
        """From now on it leads elsewhere; what was sent and is not known to be safe will be sent again there,
        or is lost where nothing is kept."""
        self.disconnected()
        self.address = address
        self.reason = ""
        self._held = self._rejections = 0
        if not self.terms.exact:
            self._count_lost(0)

    def acknowledged(self, safe: int, consumed: int, credit: int, now: float) -> None:
        """The receiver has taken in frames up to ``consumed``; those up to ``safe`` may be forgotten.

        Raises:
            LinkError: these frames were never sent.
        """
        if not safe <= consumed <= self._last_sent:
            raise LinkError(
                f"bridge {self.bridge!r}: of {self._last_sent} frames the peer acknowledges {safe} and "
                f"{consumed}"
            )
        self._consumed = max(consumed, self._consumed)
        self._credit = max(credit, self._credit)
        self.meter.note(now, self._credit, self._last_sent > self._consumed)
        # A slow receiver has no more in hand than the work of a moment.
        self._most = max(self.terms.least, int(self.meter.rate * _MOMENT))
        through = safe if self.terms.exact else consumed
        while self._sent and self._sent[0].sequence <= through:
            frame = self._sent.popleft()
            if frame.batch is not None:
                self._kept_bytes -= frame.size

    def held(self, sequence: int) -> None:
        """The receiver holds in memory what is left of the frames up to ``sequence``.

        Raises:
            LinkError: these frames were never sent.
        """
        if sequence > self._last_sent:
            raise LinkError(f"bridge {self.bridge!r}: of {self._last_sent} frames the peer holds {sequence}")
        self._held = max(sequence, self._held)

    def _count_lost(self, received: int) -> None:
        lost = 0
        # What the receiver has but has not taken in yet may still be lost, if its stone goes elsewhere.
        while self._sent and self._sent[-1].sequence > received:
            lost += self._sent.pop().count
        if lost:
            self.dropped(lost)

    # --- frames

    def load(self) -> Express | None:
        """What may send the next frames by itself, each of at most ``MOST`` bytes; None if nobody may now."""
        express = self.express
        if self.state != "open" or self._unsent or self.waiting.entries:
            return None
        if express is None:
            # To wait for another thread that compiles would take longer than to send without it.
            if is_busy():
                return None
            express = self.express = Express()
        room = min(self._credit - self._spent, self.terms.limit - self._kept_bytes) // MOST
        frames = min(room, DEPTH - (self._last_sent - self._consumed))
        if frames <= 0 or express.lent:
            return None
        express.load(self._last + 1, frames)
        return express

    def went(self, batch: EventBatch, counts: list[int]) -> None:
        """Takes an emission that was sent already, as frames of so many events each."""
        self.head += 1
        start, exact = 0, self.terms.exact
        for count in counts:
            part = batch if count == batch.rows else batch.slice(start, start + count)
            start += count
            self._last += 1
            self._spent += part.size
            if exact:
                self._kept_bytes += part.size
            kept = part if exact else None
            self._sent.append(Frame(self._last, self.head, kept, count, part.size, None, NIL))
        self._last_sent = self._sent_ever = self._last
        self.left(start)

    @property
    def ready(self) -> bool:
        """Whether a frame is there and may be sent."""
        return (
            # Frames that are sent again are kept already.
            bool(self._unsent or (self.waiting.entries and self._kept_bytes < self.terms.limit))
            and self.state == "open"
            and self._spent < self._credit
            and self._last_sent - self._consumed < IN_FLIGHT
        )

    def next(self) -> Frame:
        """The next frame, which counts as sent; only when ``ready``."""
        frame = self._unsent.popleft() if self._unsent else self._build()
        self._last_sent = max(self._last_sent, frame.sequence)
        self._sent_ever = max(self._sent_ever, frame.sequence)
        self._spent += frame.size
        self._sent.append(frame)
        return frame

    def sent(self, frame: Frame) -> None:
        """The frame has left; to be called where nothing is to be kept, so its events are let go."""
        self._kept_bytes -= frame.size
        frame.batch = None

    def _build(self) -> Frame:
        first = self.waiting.popleft()
        batch = first.batch
        small = batch.attributes is None and batch.size <= min(self._most, _FRAME)
        alone = first.tag is not None or (small and not self.waiting.entries)
        batches = [batch] if alone else self._gather(first)
        batch = batches[0]
        try:
            if len(batches) > 1 or batch.selection is not None:
                batch = EventBatch.concat(batches, self.room)
            attributes = NIL if batch.attributes is None else pack_attributes(batch.attributes)
        except CONTAINED:
            for each in reversed(batches):
                self.waiting.appendleft(Entry(each, first.low, first.tag))
            raise
        self._last += 1
        size, count = batch.size, len(batch)
        self._kept_bytes += size
        self.left(count)
        return Frame(self._last, first.low, batch, count, size, first.tag, attributes)

    def _gather(self, first: Entry) -> list[EventBatch]:
        """What of the untagged entries becomes one frame: a part of a large one, or several small ones."""
        size, most = first.batch.nbytes, min(self._most, _FRAME)
        if size > most or first.batch.attributes is not None:
            rows = len(first.batch)
            count = min(max(1, rows * most // max(size, 1)), _most_events(first.batch))
            if count < rows:
                self.waiting.appendleft(Entry(first.batch.slice(count, rows), first.low, None))
                return [first.batch.slice(0, count)]
        batches = [first.batch]
        if not self.waiting.entries:
            return batches
        texts, header = _extent(first.batch)
        while self.waiting.entries and size < most // 2:
            entry = self.waiting.entries[0]
            if not _follows(batches[-1], entry.batch):
                most = min(most, _COPIED)
            size += entry.batch.nbytes
            if entry.tag is not None or entry.batch.schema != first.batch.schema or size > most:
                break
            if not _joinable(batches[-1], entry.batch):
                break
            more_texts, more_header = _extent(entry.batch)
            texts, header = texts + more_texts, header + more_header
            if texts > MOST_TEXTS or header > MOST_EXTENT:
                break
            batches.append(self.waiting.popleft().batch)
        return batches

    def remains(self) -> list[EventBatch]:
        """Gives up all that is owed and not held by the receiver, in order."""
        kept = [f for f in (*self._sent, *self._unsent) if f.sequence > self._held]
        owed = [frame.batch for frame in kept if frame.batch is not None]
        self._sent.clear()
        self._unsent.clear()
        self._kept_bytes = 0
        while self.waiting.first is not None:
            owed.append(self.waiting.popleft().batch)
        return owed

    def retire(self) -> list[EventBatch]:
        """The bridge has ended: keeps only what the receiver holds, and gives up the rest, in order.

        Should the receiver lose what it holds, that is sent again without tags, as what has its own stream:
        newer frames along the same routes may have come over another bridge before.
        """
        frames = (*self._sent, *self._unsent) if self.terms.exact else ()
        held = [frame for frame in frames if frame.sequence <= self._held]
        owed = self.remains()
        for frame in held:
            frame.tag = None
        self._unsent.extend(held)
        self._kept_bytes = sum(frame.size for frame in held)
        self.retired = True
        return owed

    def lost(self) -> list[EventBatch]:
        """Gives up all that is owed, also what the receiver was said to hold."""
        self._held = 0
        return self.remains()


def _extent(batch: EventBatch) -> tuple[int, int]:
    return (0, 0) if batch.attributes is None else extent(batch.attributes)


def _most_events(batch: EventBatch) -> int:
    """The events of a batch that one frame may have, for their attributes."""
    columns = () if batch.attributes is None else batch.attributes.columns.values()
    if not columns:
        return len(batch)
    few = len(columns) <= _FEW and all(column.kind != "s" for column in columns)
    return _MOST_WITH_FEW if few else _MOST_WITH_ATTRIBUTES


def _follows(one: EventBatch, other: EventBatch) -> bool:
    """Whether a batch begins in memory where another ends."""
    plain = one.selection is None and other.selection is None
    return plain and address_of(one.data) + one.size == address_of(other.data)


def _joinable(one: EventBatch, other: EventBatch) -> bool:
    """Whether the attributes of two batches go into one frame without a change of kind."""
    if one.attributes is None or other.attributes is None:
        return one.attributes is other.attributes
    kinds = [
        {n: c.kind for n, c in batch.attributes.columns.items()} for batch in (one, other) if batch.attributes
    ]
    return kinds[0] == kinds[1]


_SPAN = 0.02
_WEIGHT = 0.3


def smoothed(before: float, measured: float) -> float:
    """A measurement with those before it, of which 0.0 says that there was none."""
    return measured if before == 0.0 else before + _WEIGHT * (measured - before)


class Meter:
    """A smoothed rate over the times in which something was on its way.

    Attributes:
        rate: bytes a second; 0.0 until measured.
    """

    def __init__(self) -> None:
        self.rate = 0.0
        self._since: float | None = None
        self._bytes = 0

    def restart(self) -> None:
        """Begins a new measurement, keeping the rate."""
        self._since = None

    def note(self, now: float, total: int, busy: bool) -> None:
        """Hears that ``total`` bytes were taken in at ``now``; ``busy`` if more is on its way."""
        if self._since is None:
            if busy:
                self._since, self._bytes = now, total
            return
        span = now - self._since
        if span < _SPAN:
            return
        self.rate = smoothed(self.rate, (total - self._bytes) / span)
        self._since, self._bytes = (now, total) if busy else (None, 0)
