"""A link: one session after the other with one peer, on one connection that carries all channels.

    state     what happens                                                     next
    DOWN      ``retry_at`` is reached, the contact is known, there are outlets  DIALING, ``Hello`` is sent
              the peer's ``Hello``                                              UP, ``Welcome`` is sent
    DIALING   ``Welcome`` from the peer that was expected                       UP
              ``Refuse``; another's ``Welcome``; no answer in time              DOWN
              the peer's ``Hello``, if this node's name is the greater          UP, ``Welcome`` is sent
    UP        a message of the session                                          UP
              ``Reset``, on the connection that this side dialled               DIALING, ``Hello`` is sent
              ``Reset`` otherwise; ``Bye``; silence                             DOWN
              a message that is wrong or cannot come now                        DOWN, ``Reset`` is sent
              the peer's ``Hello``                                              UP anew, ``Welcome`` is sent

While it is UP there is a ``Session``.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import Enum
from typing import TYPE_CHECKING, Any

from evflow.errors import LinkError
from evflow.net.link import messages as m
from evflow.net.link.inlet import Inlet
from evflow.net.link.outlet import Outlet
from evflow.net.link.session import MOST_REASON, Session

if TYPE_CHECKING:
    from evflow.net.link.hub import Hub
    from evflow.net.link.transport import Connection

UNNEEDED = "this node needs the connection no more"
"""Why a node ends a session that neither side uses; the wire has the text."""

_UNTRIED = "not connected yet"
_FIRST_RETRY, _LAST_RETRY = 0.5, 4.0
_SILENCES = 5


class State(Enum):
    """What a link is doing; see the module."""

    DOWN = "down"
    DIALING = "dialing"
    UP = "up"


class Link:
    """A link to one peer.

    Args:
        peer: the peer's name.
        contact: where it can be dialled; "" if nobody knows.
        hub: the node's other parts.

    Attributes:
        state: see the module.
        trouble: why it is not UP, or was not the last time.
        outlets: channel number → outlet.
        sessions: how many there were.
        session: what is agreed with the peer while it is UP; None otherwise.
        lasting: whether it was asked for here, so is not forgotten when the peer is gone.
        barred: whether the last try has failed for something that somebody has to mend, such as a key.
    """

    def __init__(self, peer: str, contact: str, hub: Hub) -> None:
        self.peer = peer
        self.contact = contact
        self.state = State.DOWN
        self.trouble = _UNTRIED
        self.outlets: dict[int, Outlet] = {}
        self.sessions = 0
        self.lasting = False
        self.barred = False
        self.retry_at = 0.0
        self.connection: Connection | None = None
        self.dialled = False
        self._hub = hub
        self._attempts = 0
        self._deadline = 0.0
        self._began = 0.0
        self._incarnation = b""
        self._node = ""
        self._channels = 0
        self._idle_since: float | None = None
        self.session: Session | None = None

    @property
    def round_trip(self) -> float:
        """Seconds, smoothed; 0.0 until measured in this session."""
        return 0.0 if self.session is None else self.session.round_trip

    @property
    def inlets(self) -> dict[int, Inlet]:
        """The peer's channel number → inlet, in this session."""
        return {} if self.session is None else self.session.inlets

    @property
    def why(self) -> str:
        """``trouble``; of one that cannot be dialled also what to do."""
        if self.trouble == _UNTRIED and not self.contact:
            way = "give it with peers=, or let it dial this node"
            return f"{_UNTRIED}; no contact of {self.peer} is known: {way}"
        return self.trouble

    @property
    def heard(self) -> float | None:
        """When the peer was heard last in this session; None without one."""
        return None if self.session is None else self.session.heard

    def report(self) -> dict[str, Any]:
        """What there is to know about it; see ``Node.links``."""
        outlets = list(self.outlets.values())
        return {
            "state": self.state.value,
            "trouble": self.why or "; ".join(o.reason for o in outlets if o.reason),
            "contact": self.contact,
            "round_trip": self.round_trip,
            "bandwidth": sum(outlet.meter.rate for outlet in outlets),
            "waiting": sum(outlet.owed_events for outlet in outlets),
            "sessions": self.sessions,
        }

    # --- the session's begin and end

    def dial(self, now: float) -> None:
        """Opens a connection and says ``Hello``."""
        self.state = State.DIALING
        try:
            self.connection = self._hub.transport.dial(self.peer, self.contact)
        except LinkError as error:
            self.barred_by(str(error), now)
            return
        self.dialled = True
        self._hub.connections[self.connection] = self
        self._hello(now)

    def _hello(self, now: float) -> None:
        self.state = State.DIALING
        self._deadline = now + min(_FIRST_RETRY * 2**self._attempts, _LAST_RETRY)
        self._send(m.Hello(*self._hub.greeting))

    def answer(self, hello: m.Hello, connection: Connection, now: float) -> None:
        """Accepts the peer's ``Hello``; a session there was before ends."""
        if self.state is not State.DOWN and self.connection != connection:
            self._hang_up()
        self._end_session()
        self.connection, self.dialled, self._node = connection, False, hello.node
        self._hub.connections[connection] = self
        self._send(m.Welcome(*self._hub.greeting))
        self._begin(hello.incarnation, hello.contact, now).offer_shortcut()

    def yields_to(self, hello: m.Hello) -> bool:
        """Whether the connection that the peer has opened is taken, although there may be one already."""
        if not self.dialled or self._hub.name > self.peer:
            return True
        # Both have dialled: the connection of the lesser name stays, if it comes about.
        if self.state is State.DIALING:
            return self._attempts > 1
        return self.state is State.DOWN or hello.incarnation != self._incarnation

    def fail(self, reason: str, now: float) -> None:
        """The peer has broken the protocol: the session begins anew, later."""
        told = reason[:MOST_REASON]
        self._send(m.Reset(told))
        self.down(told, now)

    def _begin(self, incarnation: bytes, contact: str, now: float) -> Session:
        self.state, self.trouble, self.barred = State.UP, "", False
        self.sessions += 1
        self._began = now
        self._incarnation = incarnation
        if contact and not self.contact and self._hub.permits(contact):
            self.contact = contact
        assert self.connection is not None
        self.session = Session(self.peer, self.connection, self._hub, self.outlets, now)
        return self.session

    def add(self, outlet: Outlet) -> None:
        """From now on the outlet's frames go over this link."""
        channel = outlet.channel = self._channels
        self._channels += 1
        self.outlets[channel] = outlet
        outlet.room = self._hub.transport.room
        if self.session is not None:
            self.session.open(channel, outlet)

    def reopen(self, outlet: Outlet) -> None:
        """Tells the peer that an outlet is another than when its channel was opened."""
        if self.session is not None:
            self.session.open(outlet.channel, outlet)

    def remove(self, outlet: Outlet) -> None:
        """From now on the outlet's frames do not go over this link; its channel is closed for good."""
        del self.outlets[outlet.channel]
        outlet.pump = lambda outlet: None
        if self.session is not None:
            self.session.close(outlet.channel)

    def _brief(self, now: float) -> bool:
        """Whether the session has lasted so short that the next one should wait."""
        return now < self._began + self._hub.heartbeat / 4

    def down(self, reason: str, now: float, expected: bool = False) -> None:
        """Ends the session, if any; it will be dialled again, after a while that grows while that fails."""
        self._hub.restless = True
        if self.state is State.UP and not self._brief(now):
            self._attempts = 0
        self.barred = False
        self._hang_up()
        self._end_session()
        if reason != self.trouble:
            self.trouble = reason
            self._hub.report(self.peer, reason, expected)
        self.state = State.DOWN
        self.retry_at = now + min(_FIRST_RETRY * 2**self._attempts, _LAST_RETRY) / 2
        self._attempts = min(self._attempts + 1, 8)

    def barred_by(self, reason: str, now: float) -> None:
        """It did not come about, for something that somebody has to mend; it is tried again all the same."""
        self.down(reason, now)
        self.barred = True

    def _hang_up(self) -> None:
        if self.connection is not None:
            if self._hub.connections.get(self.connection) is self:
                del self._hub.connections[self.connection]
            self._hub.transport.hang_up(self.connection)
            self.connection = None

    def _end_session(self) -> None:
        if self.session is not None:
            for outlet in self.outlets.values():
                outlet.disconnected()
        if self.connection is not None:
            self._hub.transport.leave_shortcut(self.connection)
        self.session = None
        self.state = State.DOWN

    # --- time

    @property
    def _wanted(self) -> bool:
        """Whether to dial. A peer that was given with its contact may be unable to dial this node."""
        return bool(self.contact and (self.outlets or self.lasting))

    def tick(self, now: float) -> None:
        """Does what is due, sends what is ready, and says what was taken in."""
        if self.state is State.DOWN:
            if self._wanted and now >= self.retry_at:
                self.dial(now)
            elif self._idle_since is not None and now >= self._idle_since + 2 * self._hub.heartbeat:
                self._idle_since = None
                self.end_if_idle()
        elif self.state is State.DIALING:
            if now >= self._deadline:
                self.down(f"no answer from {self.contact or 'the peer'}", now)
        elif self.session is not None:
            limit = _SILENCES * self._hub.heartbeat
            if self.session.broken:
                self.down("the connection is gone, or the peer reads nothing", now)
            elif now > self.session.heard + limit:
                self.down(f"silent for more than {limit:g} s", now)
            elif self.dialled and not self.lasting and not self.outlets:
                self._watch_idleness(self.session, now)
            else:
                self._idle_since = None
        if self.session is not None:
            self.session.tick(now)

    def _watch_idleness(self, session: Session, now: float) -> None:
        """Ends a session that neither side has used for a heartbeat."""
        if session.wanted_by_peer:
            self._idle_since = None
        elif self._idle_since is None:
            self._idle_since = now
        elif now >= self._idle_since + self._hub.heartbeat:
            self.bye(UNNEEDED)

    def end_if_idle(self) -> None:
        """Forgets the link at once, if there is no session and nothing needs one."""
        if self.state is not State.UP and not self.lasting and not self.outlets:
            self._hang_up()
            self.state = State.DOWN
            if self._hub.links.get(self.peer) is self:
                del self._hub.links[self.peer]

    @property
    def next_due(self) -> float | None:
        """When ``tick`` is needed next without a session; None if never."""
        if self.state is State.DOWN:
            if self._wanted:
                return self.retry_at
            return None if self._idle_since is None else self._idle_since + 2 * self._hub.heartbeat
        return self._deadline if self.state is State.DIALING else None

    # --- what comes

    def receive(self, message: m.Message, now: float) -> None:
        """Takes a message of this link's connection that is none of a session's.

        Raises:
            LinkError: it cannot come now, or is wrong.
        """
        if isinstance(message, m.Reset):
            self._on_reset(message, now)
        elif self.session is not None:
            if not isinstance(message, m.Bye):
                raise LinkError(f"peer {self.peer}: a {type(message).__name__} cannot come within a session")
            self.down(f"the peer has ended: {message.reason}", now, expected=True)
            if message.reason == UNNEEDED:
                self.end_if_idle()
        elif self.state is State.DIALING and isinstance(message, m.Welcome):
            self._on_welcome(message, now)
        elif self.state is State.DIALING and isinstance(message, m.Refuse):
            self.barred_by(f"refused: {message.reason}", now)

    def _on_welcome(self, message: m.Welcome, now: float) -> None:
        # A bridge that was given a contact takes whoever answers there.
        expected = None if "://" in self.peer else self.peer
        name = self._hub.refused_name(message.node, self.connection, expected)
        if message.version != m.VERSION:
            name = f"it speaks version {message.version} of the protocol, this node {m.VERSION}"
        if name:
            self.barred_by(name, now)
        else:
            self._node = message.node
            # The name too: an incarnation is not a secret, and nobody may draw what is meant for others.
            same = (message.node, message.incarnation)
            others = [
                link
                for link in self._hub.links.values()
                if link is not self and (link._node, link._incarnation) == same
            ]
            named = [link for link in others if link.peer == message.node and link.state is State.UP]
            if named:
                # That one is asked for by the peer's name, for whatever else is said to it.
                named[0].contact = named[0].contact or self.contact
                self._hand_over(named[0])
                return
            for other in others:
                if other.outlets:
                    other._hand_over(self)
            self._begin(message.incarnation, "", now)

    def _hand_over(self, link: Link) -> None:
        """Another link leads to the same node, under another contact: it carries the frames from now on."""
        self._hang_up()
        self._end_session()
        self.trouble = f"it is the node of {link.peer}, whose link carries the events"
        for outlet in self.outlets.values():
            outlet.address = outlet.address._replace(peer=link.peer)
            link.add(outlet)
        self.outlets.clear()
        # What is kept by its name is dialled again, and carries them then.
        self.lasting = self.lasting and "://" not in self.peer

    def _on_reset(self, message: m.Reset, now: float) -> None:
        if self.state is not State.UP:
            return
        if self.dialled and not self._brief(now):
            self._end_session()
            self.trouble = f"the peer began anew: {message.reason}"
            self._hello(now)
        else:
            self.down(f"the peer has no session: {message.reason}", now)

    def _send(self, message: m.Message) -> None:
        if self.connection is not None:
            self._hub.transport.send(self.connection, m.pack(message))

    def tell(self, topic: str, body: bytes) -> bool:
        """Sends a note; False if that cannot be done now."""
        return self.session is not None and self.session.tell(topic, body)

    def reject(self, inlets: Collection[Inlet], reason: str) -> None:
        """Closes the channels of these inlets."""
        if self.session is not None:
            self.session.reject(inlets, reason)

    def invite(self, stone: str) -> None:
        """A stone is there now, so the peer may send to it."""
        if self.session is not None:
            self.session.invite(stone)

    def bye(self, reason: str) -> None:
        """Ends the session orderly."""
        if self.session is not None:
            self.session.bye(reason)
            self._end_session()
        else:
            # What was said to a peer that never answered need not be sent still.
            self._hang_up()
        self.state = State.DOWN
