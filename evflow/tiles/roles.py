"""The roles of one host, and what it knows of the other hosts; without sockets.

The roles rely on this: who hears of a host's death hears of it before anything of its next life, and a host
that others have taken for dead begins anew. Each beginning is an *incarnation* with a random number. It asks
all other hosts (``join``) which life it has; they take its last incarnation for dead before they answer. It
begins once all have answered, or have been silent for so long that they count as dead. A host that is told
``dead``, or finds that a message on its way to it was lost, begins anew as well.

A host that takes a step of a change of the plan tells the others of it before it tells them anything else, so
nobody hears of what it does not know yet. One that begins learns of the plan from those that it joins.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from evflow.errors import EvflowError
from evflow.events.event import Event
from evflow.tiles.frontend import Frontend
from evflow.tiles.manager import TileManager
from evflow.tiles.messages import Message, Outbox, Place
from evflow.tiles.plan import Plan
from evflow.tiles.state import StateManager
from evflow.tiles.wire import envelope, message_of

__all__ = ["Roles"]

_log = logging.getLogger("evflow.tiles")

_BEATS = 8
"""Signs of life in the time after which one without any counts as dead."""

_GREETINGS = ("join", "joined")

Role = Frontend | StateManager | TileManager


@dataclass(slots=True)
class _Peer:
    """What is known of another host.

    Attributes:
        origin: its incarnation; 0 if none is known.
        life: that one's life.
        up: whether it counts as alive.
        spent: the life that its next incarnation has at least.
        dead: its last incarnation that was taken for dead.
        heard: when something came from it.
        sent: messages to this incarnation.
        told: how many of them there were at the last beat.
        got: messages from it.
        joined: whether it has answered this host.
        contact: where its node can be reached.
    """

    heard: float
    origin: int = 0
    life: int = 0
    up: bool = False
    spent: int = 0
    dead: int = 0
    sent: int = 0
    told: int = 0
    got: int = 0
    joined: bool = False
    contact: str = ""


@dataclass(slots=True)
class _Session:
    """A client that is connected.

    Attributes:
        outbox: what it has not taken yet.
        heard: when it asked last.
    """

    heard: float
    outbox: deque[Message] = field(default_factory=deque)


class Roles:
    """What one host plays.

    Args:
        plan: all hosts.
        host: the position of this one.
        draw: gives a random number for an incarnation, not 0.
        now: seconds on a clock that only goes forward.
        silence: seconds without a sign of life after which a host counts as dead.
        contact: where this host's node can be reached.

    Attributes:
        roles: what it plays, by place; empty until it has joined.
        outbox: envelopes to be sent: positions of hosts, and what goes there.
        sessions: the clients that are connected here.
        gaps: how often it began anew because a message on its way was lost.
    """

    def __init__(
        self,
        plan: Plan,
        host: int,
        draw: Callable[[], int],
        now: float,
        *,
        silence: float = 3.0,
        contact: str = "",
    ) -> None:
        self.plan, self.host, self.contact = plan, host, contact
        self.roles: dict[Place, Role] = {}
        self.outbox: list[tuple[int, Event]] = []
        self.sessions: dict[int, _Session] = {}
        self.gaps = 0
        self._draw, self._silence, self._ticked = draw, silence, now
        self._life, self._spent = 0, 0
        self._peers = {at: _Peer(now) for at in plan.numbers if at != host}
        self._begin(now)

    @property
    def life(self) -> int:
        """How often it began anew."""
        return self._life

    @property
    def is_ready(self) -> bool:
        """Whether it has joined and caught up."""
        return self._is_active and all(
            role.ready for role in self.roles.values() if not isinstance(role, Frontend)
        )

    @property
    def told(self) -> dict[str, int | str]:
        """What is told of this host: see docs/tiles.md."""
        found: dict[str, int | str] = {
            "ready": int(self.is_ready),
            "life": self._life,
            "gaps": self.gaps,
            "clients": len(self.sessions),
            "plan": self.plan.text(),
        }
        lacks = [role.lacks for role in self.roles.values() if not isinstance(role, Frontend)]
        found["lacks"] = ", ".join(map(str, sorted(set[int]().union(*lacks))))
        for place, role in self.roles.items():
            if not isinstance(role, Frontend):
                found |= {f"{place.role}_{name}": count for name, count in role.counts.items()}
        return found

    @property
    def contacts(self) -> dict[str, str]:
        """The contacts of the hosts with Frontends, by name, as far as they are known."""
        known = {self.host: self.contact, **{at: peer.contact for at, peer in self._peers.items()}}
        names = self.plan.hosts
        return {names[at]: text for at, text in known.items() if text and names[at] in self.plan.frontends}

    def _begin(self, now: float) -> None:
        """A new incarnation."""
        self._origin, self._since = self._draw(), now
        self.roles, self._is_active = {}, False
        self._backlog = list[tuple[int, Place, Place, Message]]()
        self._questions = deque[tuple[Place, Place, Message]]()
        self.sessions.clear()
        # It holds nothing any more, so it may believe whoever says to be alive.
        numbers = [at for at in self.plan.numbers if at != self.host]
        known = {at: peer.contact for at, peer in self._peers.items()}
        self._peers = {at: _Peer(now, contact=known.get(at, "")) for at in numbers}
        self._beat_at = 0.0
        if not self._peers:
            self._activate(now)

    def _anew(self, now: float, spent: int) -> None:
        self._spent = max(self._spent, self._life + 1, spent)
        self._begin(now)

    def _activate(self, now: float) -> None:
        self._life, self._is_active = self._spent, True
        for place in self.plan.roles(self.host):
            self._make(place, self._life)
        for at, peer in self._peers.items():
            if not peer.joined:
                self._take_for_dead(at, always=True)
        self._signs(now)
        if self._life:
            self._start(list(self.roles))
        backlog, self._backlog = self._backlog, []
        for at, sender, target, message in backlog:
            self._deliver(at, sender, target, message)

    def _make(self, place: Place, life: int) -> None:
        layout = self.plan.layout
        if place.role == "frontend":
            self.roles[place] = Frontend(place, layout, life=life)
        elif place.role == "state":
            self.roles[place] = StateManager(place, layout, ready=not life)
        else:
            self.roles[place] = TileManager(place, layout, life=life)

    def _start(self, places: list[Place]) -> None:
        """Roles that begin catch up."""
        for place in places:
            role = self.roles[place]
            if isinstance(role, StateManager):
                self._send(place, role.start(self._running))
            elif isinstance(role, TileManager):
                self._send(place, role.start())

    @property
    def _running(self) -> set[Place]:
        """The Frontends that run."""
        up = {self.host, *(at for at, peer in self._peers.items() if peer.up)}
        return {place for place, at in self.plan.where.items() if place.role == "frontend" and at in up}

    def adopt(self, plan: Plan, now: float) -> None:
        """Takes the next step of a change of the plan, if this is one, and tells the others.

        Args:
            plan: that of this step.
            now: seconds.
        """
        if plan.stage <= self.plan.stage:
            return
        before, self.plan = self.plan, plan
        # What comes takes numbers of messages that nobody has taken before.
        spent = 1 + max([self._life, *(max(peer.life, peer.spent) for peer in self._peers.values())])
        for at in plan.numbers:
            if at not in self._peers and at != self.host:
                self._peers[at] = _Peer(now, spent=spent)
        if not self._is_active:
            self._peers = {at: peer for at, peer in self._peers.items() if at in plan.numbers}
            return
        for at, peer in self._peers.items():
            if peer.up:
                self._carry(at, "plan", text=plan.text())
        moved = [place for place, at in before.where.items() if plan.where.get(place) != at]
        adopted = []
        for place, role in self.roles.items():
            if isinstance(role, StateManager):
                adopted.append((place, role.adopt(plan.layout, self._running)))
            else:
                adopted.append((place, role.adopt(plan.layout)))
            # Somebody else plays these roles, which the others take as if they had died.
            gone = [other for other in moved if other.role == "frontend" or other in plan.where]
            adopted += [(place, role.down(other)) for other in gone]
        for place, outbox in adopted:
            self._send(place, outbox)
        mine = plan.roles(self.host)
        self.roles = {place: role for place, role in self.roles.items() if place in mine}
        if not any(place.role == "frontend" for place in mine):
            self.sessions.clear()
        new = [place for place in mine if place not in self.roles]
        for place in new:
            self._make(place, max(self._life, 1))
        self._start(new)

    # --- other hosts

    def receive(self, view: Any, now: float) -> None:
        """Takes an envelope.

        Args:
            view: the event.
            now: seconds.

        Raises:
            EvflowError: it is not one of a host of this system.
        """
        at, origin, kind = int(view.host), int(view.origin), str(view.kind)
        peer = self._peers.get(at)
        if peer is None:
            raise EvflowError(f"message {kind!r} of host {at}: expected another host of {self.plan.running}")
        is_dead = origin == peer.dead or (kind not in _GREETINGS and int(view.life) < peer.spent)
        if kind == "dead":
            # Of two that took each other for dead one goes on.
            if int(view.to) == self._origin and not (is_dead and self.host < at):
                _log.warning("host %s was taken for dead, and begins anew", self.plan.hosts[self.host])
                self._anew(now, int(view.number))
            return
        if is_dead:
            self._post(at, "dead", peer.spent, to=origin)
            return
        peer.heard = now
        if origin != peer.origin:
            self._take_for_dead(at)
            peer.origin, peer.up, peer.sent, peer.told, peer.got = origin, True, 0, 0, 0
        if kind == "join":
            peer.contact = bytes(view.contents).decode()
            self._post(at, "joined", peer.spent, to=origin)
        elif kind == "joined":
            peer.contact, _, text = bytes(view.contents).decode().partition("\n")
            if int(view.to) == self._origin and not self._is_active:
                peer.joined = True
                self._spent = max(self._spent, int(view.number))
                self.adopt(Plan.read(text), now)
                if all(other.joined for other in self._peers.values()):
                    self._activate(now)
        else:
            peer.life = int(view.life)
            self._take(at, peer, view, now)

    def _take(self, at: int, peer: _Peer, view: Any, now: float) -> None:
        """A sign of life or a message, of an incarnation that is alive."""
        if int(view.to) != self._origin:
            return
        is_message = str(view.kind) != "alive"
        peer.got += is_message
        if int(view.sequence) != peer.got:
            self.gaps += 1
            _log.warning(
                "host %s: messages of %s were lost on their way; it begins anew",
                self.plan.hosts[self.host],
                self.plan.hosts[at],
            )
            self._anew(now, 0)
        elif str(view.kind) == "plan":
            self.adopt(Plan.read(bytes(view.contents).decode()), now)
        elif is_message:
            sender, target, message = message_of(view)
            if self._is_active:
                self._deliver(at, sender, target, message)
            else:
                self._backlog.append((at, sender, target, message))

    def _take_for_dead(self, at: int, always: bool = False) -> None:
        peer = self._peers[at]
        if not (peer.up or always):
            return
        peer.up, peer.dead, peer.spent = False, peer.origin, max(peer.spent, peer.life) + 1
        peer.origin = 0
        self._backlog = [held for held in self._backlog if held[0] != at]
        for place, host in self.plan.where.items():
            if host == at:
                for mine, role in list(self.roles.items()):
                    self._send(mine, role.down(place))

    def tick(self, now: float) -> float:
        """Does what is due; to be called again at the time that it returns.

        Args:
            now: seconds.
        """
        if now - self._ticked > self._silence / 2:
            # This process stood still: what the others sent meanwhile has not been read yet.
            for peer in self._peers.values():
                peer.heard = now
            self._since = now
        self._ticked = now
        if not self._is_active and now - self._since > self._silence:
            self._activate(now)
        if self._questions:
            self._deliver(self.host, *self._questions.popleft())
        if now >= self._beat_at:
            self._signs(now)
        for at, peer in list(self._peers.items()) if self._is_active else ():
            if peer.up and now - peer.heard > self._silence:
                if at in self.plan.numbers:
                    _log.warning("host %s is silent, and is taken for dead", self.plan.hosts[at])
                self._take_for_dead(at)
            if not peer.up and at not in self.plan.numbers:
                del self._peers[at]
        return now if self._questions else self._beat_at

    def _signs(self, now: float) -> None:
        self._beat_at = now + self._silence / _BEATS
        for at, peer in self._peers.items():
            # A message since the last beat is a sign of life. One that was lost is missed at the next beat.
            if self._is_active and peer.sent == peer.told:
                self._post(at, "alive", to=peer.origin, sequence=peer.sent)
            elif self._is_active:
                peer.told = peer.sent
            elif not peer.joined:
                self._post(at, "join", to=peer.origin)

    def _post(self, at: int, kind: str, number: int = 0, *, to: int = 0, sequence: int = 0) -> None:
        about = {"origin": self._origin, "host": self.host, "life": self._life}
        text = f"{self.contact}\n{self.plan.text()}" if kind == "joined" else self.contact
        sent = envelope(kind, number, to=to, sequence=sequence, text=text, **about)  # type: ignore[arg-type]
        self.outbox.append((at, sent))

    # --- messages

    def _send(self, sender: Place, outbox: Outbox) -> None:
        """Sends what a role wants to be sent; what goes to a role here is given to it at once.

        Only what a Tile Manager asks a State Manager waits for ``tick``: the answer is long, and the next
        question follows from it.
        """
        waiting = deque((sender, target, message) for target, message in outbox)
        while waiting:
            sender, target, message = waiting.popleft()
            if (sender.role, target.role) == ("tile", "state") and target in self.roles:
                self._questions.append((sender, target, message))
            elif target in self.roles:
                answered = self.roles[target].receive(sender, message)
                waiting += [(target, onward, reply) for onward, reply in answered]
            elif target.role == "client":
                if target.group in self.sessions:
                    self.sessions[target.group].outbox.append(message)
            elif target in self.plan.where:
                number = message.number
                about = {"sender": sender, "target": target, "message": message}
                self._carry(self.plan.where[target], message.kind, number, **about)

    def _carry(self, at: int, kind: str, number: int = 0, **about: Any) -> None:
        """Sends a message to another host."""
        peer = self._peers.get(at)
        # What goes to a host that is dead is told to its next life, once that asks.
        if peer is None or not peer.origin or peer.origin == peer.dead:
            return
        peer.sent += 1
        about |= {"origin": self._origin, "host": self.host, "life": self._life, "to": peer.origin}
        self.outbox.append((at, envelope(kind, number, sequence=peer.sent, **about)))

    def _deliver(self, at: int, sender: Place, target: Place, message: Message) -> None:
        # Who has left a role to another host has not heard of that yet.
        if target in self.roles and self.plan.where.get(sender, at) == at:
            self._send(target, self.roles[target].receive(sender, message))

    # --- clients

    @property
    def frontend(self) -> Place:
        """Its Frontend.

        Raises:
            EvflowError: it has none, or has not joined yet.
        """
        for place in self.roles:
            if place.role == "frontend":
                return place
        raise EvflowError(f"host {self.plan.hosts[self.host]}: no Frontend is ready here")

    def connect(self, client: int, now: float) -> Place:
        """A client connects, or does so again.

        Args:
            client: its number.
            now: seconds.

        Returns:
            The Frontend.

        Raises:
            EvflowError: see ``frontend``.
        """
        place = self.frontend
        self.disconnect(client)
        self.sessions[client] = _Session(now)
        return place

    def disconnect(self, client: int) -> None:
        """A client has gone.

        Args:
            client: its number.
        """
        if self.sessions.pop(client, None) is not None:
            role = self.roles[self.frontend]
            assert isinstance(role, Frontend)
            self._send(self.frontend, role.disconnect(Place("client", client)))

    def unacknowledged(self, client: int) -> int:
        """How many matches a client was told of that it has not acknowledged.

        Args:
            client: its number.
        """
        role = self.roles[self.frontend]
        assert isinstance(role, Frontend)
        return role.unacknowledged(client)

    def session(self, client: int, now: float) -> _Session:
        """A client that is connected, and has been heard.

        Args:
            client: its number.
            now: seconds.

        Raises:
            EvflowError: it is not.
        """
        session = self.sessions.get(client)
        if session is None:
            raise EvflowError(
                f"client {client}: not connected to host {self.plan.hosts[self.host]}; connect again"
            )
        session.heard = now
        return session

    def say(self, client: int, message: Message) -> None:
        """A message of a client that is connected.

        Args:
            client: its number.
            message: ``moves``, ``moved`` or ``ack``.

        Raises:
            EvflowError: clients send no such messages.
        """
        if message.kind not in ("moves", "moved", "ack"):
            raise EvflowError(f"message {message.kind!r} of a client: expected moves, moved or ack")
        self._deliver(self.host, Place("client", client), self.frontend, message)
