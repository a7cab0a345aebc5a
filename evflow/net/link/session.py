"""A session: what two nodes agree on for one connection, and what they say to each other in it.

Numbers of channels and schemas, credit, shared memory: all this begins with ``Hello`` and ``Welcome`` and
ends with the session. What channels owe does not: an outlet keeps its frames, an inlet knows what it has got,
and the next session goes on from there.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Collection
from functools import partial
from typing import TYPE_CHECKING, Any

from evflow import mishaps
from evflow.codgen.express import Express
from evflow.errors import LinkError, SchemaError
from evflow.events.batch import EventBatch
from evflow.events.steady import steadied
from evflow.mishaps import CONTAINED
from evflow.net.link import messages as m
from evflow.net.link.attributes import kept
from evflow.net.link.attributes import unpack as unpack_attributes
from evflow.net.link.inlet import FRAME, Arrived, Inlet
from evflow.net.link.outlet import Frame, Outlet, smoothed
from evflow.net.link.provenance import Provenance
from evflow.schema import Schema

if TYPE_CHECKING:
    from evflow.net.link.hub import Hub
    from evflow.net.link.transport import Connection

_log = logging.getLogger("evflow.link")

SMALL = 4 << 10
"""Bytes up to which a frame's events travel within its header."""

LARGE = 64 << 10
"""Bytes from which a frame goes through shared memory, where there is some."""

_MAX_CHANNELS = 5_000
_MAX_REJECTED = _MAX_CHANNELS
_MAX_SCHEMAS = 10_000
_MAX_TEXTS = 4 << 20
MOST_REASON = 1000
"""Characters of a reason that is told to a peer."""

_MOST_UNHEARD = 4 * m.MOST_NOTE
"""Bytes of notes that are sent to a peer from which nothing comes."""

_MOST_SPARED, _SPARED_FOR = 4, 1.25
"""Pings in a row in whose place a note is a sign of life, and for how many heartbeats it is."""

Take = Callable[[Any, Any, float], None]
"""(message, body, now); raises a ``LinkError`` if the message is wrong."""


class Session:
    """One session with a peer.

    Args:
        peer: the peer's name.
        connection: the connection.
        hub: the node's other parts.
        outlets: channel number → outlet; it may grow.
        now: when it begins.

    Attributes:
        heard: when the peer was heard last.
        broken: whether something could not be sent.
        round_trip: seconds, smoothed; 0.0 until measured.
        next_due: when ``tick`` is needed next, as it has found.
        inlets: the peer's channel number → inlet.
        borrows: whether it has blocks of the peer's that may be given back at any time.
        takes: kind of message → what takes one, with its body and the time; those of no other kind come
            within a session.
    """

    def __init__(
        self, peer: str, connection: Connection, hub: Hub, outlets: dict[int, Outlet], now: float
    ) -> None:
        self.peer = peer
        self.heard = now
        self.broken = False
        self.round_trip = 0.0
        self.inlets: dict[int, Inlet] = {}
        self._conduit = connection
        self._hub = hub
        self._outlets = outlets
        self.next_due = self._ping_at = now
        self._pings: dict[int, float] = {}
        self._ping = 0
        self._unheard = 0  # bytes of notes that were sent since the peer was heard last
        self._opened = -1  # the highest number of a channel
        self._rejected: dict[int, str] = {}
        self._told: dict[str, int] = {}
        self._schemas: dict[int, Schema] = {}
        self._texts_size = 0
        self._sharing = False
        self.borrows = False
        self._touched = True
        self._noted = self._busy = False  # whether a note was sent since the last tick; events since a ping
        self._spared = 0
        self._alive_until = now  # to when the last note stands for a ping
        seldom: dict[type, Take] = {
            m.Ping: self._on_ping,
            m.Pong: self._on_pong,
            m.Open: self._on_open,
            m.Accept: self._on_accept,
            m.Reject: self._on_reject,
            m.SchemaText: self._on_schema,
            m.Held: self._on_held,
            m.Share: self._on_share,
            m.Shared: self._on_shared,
            m.Released: self._on_released,
            m.Close: self._on_close,
            m.Note: self._on_note,
            m.Retry: self._on_retry,
            m.Sent: self._on_sent,
            m.Shortcut: self._on_shortcut,
            m.Joined: self._on_joined,
        }
        self.takes: dict[type, Take] = {kind: partial(self._take, take) for kind, take in seldom.items()}
        self.takes |= {m.Data: self._on_data, m.Ack: self._on_ack}
        for channel, outlet in outlets.items():
            self.open(channel, outlet)

    def _take(self, take: Take, message: m.Message, body: Any, now: float) -> None:
        """Takes a message that may lead to anything."""
        self._unheard = 0
        self._touch()
        take(message, body, now)

    def _touch(self) -> None:
        """Has ``tick`` called at the end of the turn."""
        self._touched = self._hub.restless = True

    # --- time

    def open(self, channel: int, outlet: Outlet) -> None:
        """Asks the peer to open an outlet's channel."""
        outlet.state, outlet.pump = "opening", self.pump
        self._opened = max(self._opened, channel)
        address = outlet.address
        self._send(
            m.Open(
                channel,
                outlet.bridge,
                address.stone,
                address.input,
                outlet.stream,
                outlet.delivery,
                outlet.gone,
            )
        )
        if outlet.sent_before:
            self._send(m.Sent(channel, outlet.sent_before))

    def offer_shortcut(self) -> None:
        """Tells the peer of a shorter way than the connection, if there is one."""
        offer = self._hub.transport.offer_shortcut(self._conduit)
        if offer is not None:
            self._send(m.Shortcut(*offer))

    @property
    def wanted_by_peer(self) -> bool:
        """Whether the peer has channels, or wants some."""
        return bool(self.inlets or self._rejected)

    def close(self, channel: int) -> None:
        """Tells the peer that nothing will come in a channel any more."""
        self._send(m.Close(channel))

    def tell(self, topic: str, body: bytes) -> bool:
        """Sends a note; False if that cannot be done now."""
        if self._unheard + len(body) > _MOST_UNHEARD:
            return False
        self._unheard += len(body)
        self._noted = True
        self._touch()
        return self._hub.transport.send(self._conduit, m.pack(m.Note(topic)), memoryview(body))

    def reject(self, inlets: Collection[Inlet], reason: str) -> None:
        """Closes the channels of these inlets, after a last word on what became of their frames."""
        for channel, inlet in list(self.inlets.items()):
            if inlet in inlets:
                self._last_word(channel, inlet)
                del self.inlets[channel]
                self._reject(channel, inlet.slot.name, reason)

    def _last_word(self, channel: int, inlet: Inlet) -> None:
        told = inlet.acknowledgement(0.0, at_once=True)
        if told is not None:
            self._tell(channel, *told)

    def _reject(self, channel: int, stone: str, reason: str) -> None:
        self._rejected[channel] = stone
        if len(self._rejected) > _MAX_REJECTED:
            del self._rejected[next(iter(self._rejected))]
        self._send(m.Reject(channel, reason[:MOST_REASON]))

    def invite(self, stone: str) -> None:
        """A stone is there now: the peer need not wait before it asks for it again."""
        for channel, wanted in self._rejected.items():
            if wanted == stone:
                self._send(m.Retry(channel))

    def is_due(self, now: float) -> bool:
        """True if ``tick`` may have something to do."""
        if (
            self._touched
            or self.borrows
            or self.broken
            or now >= self.next_due
            or self._hub.downstream.closes
        ):
            return True
        for inlet in self.inlets.values():
            if inlet.ack_due is not None or inlet.has_news:
                return True
        for outlet in self._outlets.values():  # noqa: SIM110  asked in each turn: any() takes longer
            if outlet.ready:
                return True
        return False

    def tick(self, now: float) -> None:
        """Does what is due, sends what is ready, says what was taken in, and finds when it is needed next."""
        if self._noted:
            self._noted, self._alive_until = False, now + _SPARED_FOR * self._hub.heartbeat
        if now >= self._ping_at:
            self._ping_or_spare(now)
        self._touched = False
        due = self._ping_at
        for channel, outlet in self._outlets.items():
            if outlet.state == "rejected":
                if now >= outlet.again:
                    self.open(channel, outlet)
                else:
                    due = min(due, outlet.again)
            elif outlet.ready:
                self.pump(outlet)
        # While a change is made the peer may wait for it, to be quiet.
        at_once = self._hub.downstream.closes
        more = False
        for channel, inlet in self.inlets.items():
            told = inlet.acknowledgement(now, at_once)
            if told is not None:
                self._tell(channel, *told)
            elif inlet.ack_due is not None:
                more, due = True, min(due, inlet.ack_due)
        # Along with an acknowledgement, if one is to follow soon: each message costs the peer a turn.
        if not more:
            blocks = self._hub.transport.released(self._conduit)
            for at in range(0, len(blocks), m.MOST_BLOCKS):
                self._send(m.Released(blocks[at : at + m.MOST_BLOCKS]))
        self.next_due = due

    def _ping_or_spare(self, now: float) -> None:
        """Sends a ping, unless a note stands for it: that is a sign of life too, and each message costs the
        peer a turn. With events all pings are sent."""
        if self._busy or self._spared >= _MOST_SPARED or now >= self._alive_until:
            self._say_ping(now)
        else:
            self._spared += 1
            self._ping_at = self._alive_until

    def _say_ping(self, now: float) -> None:
        self._spared, self._busy = 0, False
        self._ping += 1
        self._pings = {n: at for n, at in self._pings.items() if n > self._ping - 16}
        self._pings[self._ping] = now
        self._ping_at = now + self._hub.heartbeat
        self._send(m.Ping(self._ping))

    # --- what comes

    def _on_ping(self, message: m.Ping, body: Any, now: float) -> None:
        self._send(m.Pong(message.number))

    def _on_pong(self, message: m.Pong, body: Any, now: float) -> None:
        at = self._pings.pop(message.number, None)
        if at is not None:
            self.round_trip = smoothed(self.round_trip, now - at)
            for outlet in self._outlets.values():
                outlet.round_trip = self.round_trip

    def _on_open(self, message: m.Open, body: Any, now: float) -> None:
        if len(self.inlets) >= _MAX_CHANNELS and message.channel not in self.inlets:
            # The channels that there are go on.
            self._reject(message.channel, message.stone, f"{_MAX_CHANNELS} channels are open already")
            return
        self._rejected.pop(message.channel, None)
        inlet = self._hub.remote_inputs.inlet(self.peer, message)
        if isinstance(inlet, str):
            self.inlets.pop(message.channel, None)
            consumed = self._hub.remote_inputs.taken_along(self.peer, message)
            if consumed:
                self._send(m.Accept(message.channel, consumed, 0))
                self._tell(message.channel, consumed, consumed, 0, 0)
            self._reject(message.channel, message.stone, inlet)
        elif not self._hub.budget.admits(inlet, inlet.wanted):
            self._reject(message.channel, message.stone, self._no_room())
        else:
            self.inlets[message.channel] = inlet
            received = inlet.received
            credit = inlet.begin(message.gone)
            self._send(m.Accept(message.channel, received, credit))

    def _outlet(self, channel: int, *states: str) -> Outlet | None:
        """The outlet of a channel; None if it is in another state, or closed and the peer did not know."""
        outlet = self._outlets.get(channel)
        if outlet is None and channel > self._opened:
            raise LinkError(f"peer {self.peer}: this node has no channel {channel}")
        return outlet if outlet is not None and outlet.state in states else None

    def _on_accept(self, message: m.Accept, body: Any, now: float) -> None:
        outlet = self._outlet(message.channel, "opening")
        if outlet is not None:
            outlet.accepted(message.received, message.credit)
            self.pump(outlet)

    def _on_reject(self, message: m.Reject, body: Any, now: float) -> None:
        outlet = self._outlet(message.channel, "opening", "open")
        if outlet is not None:
            outlet.rejected(message.reason, now)
            if outlet.was_refused:
                self._hub.report(self.peer, f"bridge {outlet.bridge!r}: {message.reason}")

    def _on_retry(self, message: m.Retry, body: Any, now: float) -> None:
        outlet = self._outlet(message.channel, "rejected")
        if outlet is not None:
            self.open(message.channel, outlet)

    def _on_sent(self, message: m.Sent, body: Any, now: float) -> None:
        inlet = self.inlets.get(message.channel)
        if inlet is not None:
            inlet.sent_before = max(message.sequence, inlet.sent_before)

    def _on_note(self, message: m.Note, body: Any, now: float) -> None:
        self._hub.notes.take(self.peer, message.topic, body, now)

    def _on_schema(self, message: m.SchemaText, body: Any, now: float) -> None:
        self._texts_size += len(message.description)
        if len(self._schemas) >= _MAX_SCHEMAS or self._texts_size > _MAX_TEXTS:
            raise LinkError(
                f"peer {self.peer}: more than {_MAX_SCHEMAS} schemas in a session, or {_MAX_TEXTS} characters"
            )
        try:
            self._schemas[message.number] = self._hub.schema(message.description)
        except (SchemaError, ValueError, RecursionError) as error:
            raise LinkError(f"peer {self.peer}: schema {message.number}: {error}") from error

    def _on_data(self, message: m.Data, body: Any, now: float) -> None:
        channel, place = message.channel, message.place
        self._busy, self._unheard = True, 0
        inlet = self.inlets.get(channel)
        if inlet is None:
            if channel in self._rejected:
                self._let_go(message)
                return
            raise LinkError(f"peer {self.peer}: a frame in channel {channel}, which is not open")
        if isinstance(place, bytes):
            body = place
        elif place is not None:
            body = self._hub.transport.view(self._conduit, place)
        if body is None:
            raise LinkError(f"peer {self.peer}: a frame in channel {channel} without its events")
        batch: EventBatch | None = None
        extra = 0
        try:
            schema = self._schemas.get(message.schema)
            if schema is None:
                raise LinkError(f"peer {self.peer}: schema {message.schema} was never described")
            data = body
            if isinstance(place, list):
                keep = partial(self._hub.transport.keep, self._conduit, place[0])
                data = steadied(schema, body, message.events, keep).data
            came = EventBatch.from_bytes(schema, data, message.events)
            if message.attributes != m.NIL:
                attributes = unpack_attributes(message.attributes, message.events)
                if attributes is not None:
                    came, extra = came.with_attributes(attributes), kept(attributes)
            batch = came
        except (SchemaError, LinkError) as error:
            inlet.refused += 1
            self._hub.refuse("malformed", f"bridge {inlet.bridge!r} of {self.peer}: {error}")
        route, sequence, size = message.route, message.sequence, len(memoryview(body))
        tag = Provenance(route, tuple(message.path)) if route else Provenance(inlet.stream, (sequence,))
        if inlet.arrive(Arrived(sequence, batch, size, tag, size + extra + FRAME)):
            self._hub.waiting[inlet] = None
        else:
            self.reject([inlet], self._no_room())

    def _no_room(self) -> str:
        most = self._hub.budget.total
        return f"node {self._hub.name}: what {self.peer} has sent waits, and fills its part of {most} bytes"

    def _let_go(self, message: m.Data) -> None:
        """Drops a frame that was sent before the peer knew that its channel is closed; it has it still."""
        if isinstance(message.place, list):
            # Seen once, its memory is given back.
            self._hub.transport.view(self._conduit, message.place)

    def _on_ack(self, message: m.Ack, body: Any, now: float) -> None:
        self._unheard = 0
        outlet = self._outlet(message.channel, "open")
        if outlet is not None:
            outlet.acknowledged(message.safe, message.consumed, message.credit, now)
            if outlet.ready:
                self.pump(outlet)

    def _on_held(self, message: m.Held, body: Any, now: float) -> None:
        outlet = self._outlet(message.channel, "open")
        if outlet is not None:
            outlet.held(message.sequence)

    def _on_share(self, message: m.Share, body: Any, now: float) -> None:
        opened = self._hub.transport.open_share(self._conduit, message.name, message.size, message.nonce)
        self.borrows = self.borrows or opened
        self._send(m.Shared(opened))

    def _on_shared(self, message: m.Shared, body: Any, now: float) -> None:
        self._hub.transport.shared(self._conduit, message.opened)

    def _on_released(self, message: m.Released, body: Any, now: float) -> None:
        self._hub.transport.release(self._conduit, message.blocks)

    def _on_shortcut(self, message: m.Shortcut, body: Any, now: float) -> None:
        opened = self._hub.transport.open_shortcut(self._conduit, message.name, message.token)
        self._send(m.Joined(opened))

    def _on_joined(self, message: m.Joined, body: Any, now: float) -> None:
        self._hub.transport.joined(self._conduit, message.opened)

    def _on_close(self, message: m.Close, body: Any, now: float) -> None:
        self._rejected.pop(message.channel, None)
        inlet = self.inlets.pop(message.channel, None)
        if inlet is not None:
            self._hub.remote_inputs.closed(inlet)

    # --- what goes

    def _send(self, message: m.Message, body: memoryview | None = None) -> None:
        if not self._hub.transport.send(self._conduit, m.pack(message), body):
            self._break()

    def _break(self) -> None:
        """Has the session ended at the end of the turn."""
        self.broken = self._hub.restless = True

    def pump(self, outlet: Outlet) -> None:
        """Sends what an outlet has and the peer has room for."""
        while outlet.ready and not self.broken:
            try:
                frame = outlet.next()
                self._send_frame(outlet, frame)
                if not outlet.terms.exact:
                    outlet.sent(frame)
            except CONTAINED as error:
                # It stays the outlet's, and goes over the next session.
                self._break()
                mishaps.tell(
                    _log, f"link to {self.peer}", "a frame could not be sent: the session ends", error
                )

    def _send_frame(self, outlet: Outlet, frame: Frame) -> None:
        assert frame.batch is not None
        batch = frame.batch
        self._busy = True
        schema = self._told.get(batch.schema.fingerprint)
        if schema is None:
            schema = self._told[batch.schema.fingerprint] = len(self._told)
            description = json.dumps(batch.schema.description, separators=(",", ":"), ensure_ascii=False)
            self._send(m.SchemaText(schema, description))
        place: bytes | list[int] | None = None
        if frame.size >= LARGE:
            place = self._place(batch.data.data)
        elif frame.size <= SMALL:
            place = bytes(batch.buffer)
        body = batch.data.data if place is None else None
        route, path = (b"", []) if frame.tag is None else (frame.tag.route, list(frame.tag.path))
        self._send(
            m.Data(outlet.channel, frame.sequence, schema, frame.count, route, path, frame.attributes, place),
            body,
        )

    def express(self, outlet: Outlet, schema: Schema) -> Express | None:
        """What may send events of a schema for an outlet until the next turn; None if nothing may."""
        told = self._told.get(schema.fingerprint)
        express = None if told is None or self.broken else outlet.load()
        before = None if express is None else self._hub.transport.lend(self._conduit, express)
        if express is None or before is None or told is None:
            return None
        head = m.data_head(before, outlet.channel, told)
        if express.head is not head:
            express.begin_with(head)
        self._busy = True
        return express

    def _place(self, body: memoryview) -> list[int] | None:
        if not self._sharing:
            self._sharing = True
            offer = self._hub.transport.share(self._conduit)
            if offer is not None:
                self._send(m.Share(*offer))
        return self._hub.transport.place(self._conduit, body)

    def _tell(self, channel: int, safe: int, consumed: int, credit: int, held: int) -> None:
        if held > safe:
            self._send(m.Held(channel, held))
        self._send(m.Ack(channel, safe, consumed, credit))

    def bye(self, reason: str) -> None:
        """Ends the session orderly, with the last acknowledgements."""
        for channel, inlet in self.inlets.items():
            self._last_word(channel, inlet)
        self._send(m.Bye(reason[:MOST_REASON]))
