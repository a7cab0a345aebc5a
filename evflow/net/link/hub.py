"""The hub: all links of one node, around its engine. Sans-I/O: it is told messages and the time."""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from functools import partial
from operator import attrgetter
from threading import Lock
from typing import TYPE_CHECKING, Any

from evflow import mishaps
from evflow.codgen.express import Express
from evflow.engine.topology import DROPPED, OUT, Crossing, Slot
from evflow.errors import LinkError
from evflow.mishaps import CONTAINED, Broken, named
from evflow.net.link import messages as m
from evflow.net.link.control import Listener, Notes, checked
from evflow.net.link.delivery import Delivery, Journal, Retired
from evflow.net.link.downstream import Downstream
from evflow.net.link.inlet import BUDGET, Budget, Inlet
from evflow.net.link.link import Link, State
from evflow.net.link.outlet import Outlet
from evflow.net.link.remote_inputs import RemoteInputs
from evflow.outside import from_json
from evflow.schema import Schema

if TYPE_CHECKING:
    from evflow.engine.engine import Engine
    from evflow.events.batch import EventBatch
    from evflow.net.link.transport import Connection, Transport

_log = logging.getLogger("evflow.link")

_MOST_TOLD = 1000
_MAX_LINKS = 10_000
_MANY_LINKS = 100
_MAX_PENDING = 100_000
_MAX_TEXTS = 16 << 20
_RECEIVED = attrgetter("received")


class Hub:
    """All links of one node.

    Args:
        name: the node's name.
        transport: what carries messages.
        entropy: gives so many random bytes.
        contact: where the node can be dialled, as told to others; "" if it cannot.
        heartbeat: seconds between two pings; after five in silence a session is given up.
        window: bytes that one channel may have on their way to this node and waiting here, at most.
        memory: the same for all channels together.
        journal: keeps over restarts what was safe; None where that need not be.
        permits: whether a contact that a peer says it has may be dialled.

    Attributes:
        links: peer → link.
        connections: connection → the link that uses it.
        outlets: bridge → outlet.
        retired: outlets of bridges that have ended, but are the backup of what their receivers hold.
        budget: the bytes of events that peers may have here.
        remote_inputs: the stones that others may send to, and the inlets that lead to them.
        notes: who listens to which notes.
        delivery: what the node was given and what it owes.
        downstream: which bridges events can get to.
        refused: what came and was refused, by kind: "malformed", "unauthorised", "other version",
            "too many peers", "unknown stone", "unknown topic", "protocol".
        waiting: the inlets with frames that wait, in the order in which these came.
        restless: whether ``finish`` has to be done in each turn, and not only when it is due.
        stopped: whether nothing that comes is taken in any more.
        serving: within it ``receive`` and ``finish`` keep the links alive and run nothing: frames that come
            are queued, and notes wait, but for those of prompt listeners. So a pass may be under way
            meanwhile, and ``handle`` runs what has come.
    """

    def __init__(
        self,
        name: str,
        transport: Transport,
        entropy: Callable[[int], bytes],
        *,
        contact: str = "",
        heartbeat: float = 1.0,
        window: int = 8 << 20,
        memory: int = BUDGET,
        journal: Journal | None = None,
        permits: Callable[[str], bool] = lambda contact: True,
    ) -> None:
        self.name = name
        self.permits = permits
        self.transport = transport
        self.heartbeat = heartbeat
        self.links: dict[str, Link] = {}
        self.connections: dict[Connection, Link] = {}
        self.outlets: dict[str, Outlet] = {}
        self.refused: Counter[str] = Counter()
        self.greeting = (m.VERSION, name, entropy(16), contact)
        self._after: Callable[[], None] = lambda: None
        self.stopped = False
        self.waiting: dict[Inlet, None] = {}
        self.restless = True
        self._left = False  # whether frames have come that can be handled at once
        self._due = 0.0  # when ``finish`` is needed next, if nothing comes before
        self.downstream = Downstream(self.outlets)
        self.retired = Retired(self)
        self.delivery = Delivery(self.outlets, self.downstream, journal, self.retired)
        self.budget = Budget(memory, window, self._charged, self._blocked)
        self.remote_inputs = RemoteInputs(self)
        self.serving = Lock()
        self.notes = Notes(self.refuse, self.serving)
        self._entropy = entropy
        self._engine: Engine | None = None
        self._texts: dict[str, Schema] = {}
        self._texts_size = 0

    # --- what the node has

    def attach(
        self,
        engine: Engine,
        entrances: dict[str, Slot],
        after: Callable[[], None] = lambda: None,
    ) -> None:
        """Sets what the links lead to.

        Args:
            engine: the engine.
            entrances: the stones that others may send to, by name.
            after: does what handlers have asked for while a frame was handled; it is not a part of that.
        """
        self._engine = self.downstream.engine = engine
        engine.frame = self.delivery.frame
        self.remote_inputs.begin(entrances)
        self._after = after

    def peer(self, name: str, contact: str = "") -> Link:
        """The link to a peer; made if it is not there."""
        self.restless = True
        link = self.links.get(name)
        if link is None:
            link = self.links[name] = Link(name, contact, self)
        elif contact:
            link.contact = contact
        link.lasting = link.lasting or bool(contact)
        return link

    def keep(self, name: str, contact: str = "") -> None:
        """Keeps a link to a peer, also while no bridge needs it."""
        link = self.peer(name)
        link.lasting = True
        if contact and contact != link.contact:
            link.contact, link.retry_at = contact, 0.0

    def forget(self, name: str) -> None:
        """No longer keeps the link to a peer, unless a bridge needs it."""
        self.restless = True
        link = self.links.get(name)
        if link is not None:
            link.lasting = False
            link.end_if_idle()

    def tell(self, peer: str, topic: str, body: bytes) -> bool:
        """Sends a note to a peer; False if there is no session now, or it could not be sent.

        Raises:
            LinkError: the topic or the body is too long.
        """
        checked(topic, body)
        link = self.links.get(peer)
        return link is not None and link.tell(topic, body)

    def listen(self, topic: str, call: Listener, prompt: bool = False) -> None:
        """From now on ``call`` is given the notes of a topic; see ``Notes.listen``."""
        self.notes.listen(topic, call, prompt)

    # --- bridges

    def sender(self, slot: Slot, address: Crossing) -> Callable[[EventBatch], None]:
        """What a bridge stone gives its events to.

        Raises:
            LinkError: there is a bridge of that name already.
        """
        if slot.name in self.outlets:
            raise LinkError(f"bridge {slot.name!r}: node {self.name} has it already; drop it first")
        outlet = Outlet(slot.name, address, slot.stone.terms(), self._entropy(16))  # type: ignore[attr-defined]
        self.outlets[slot.name] = outlet

        def dropped(count: int) -> None:
            slot.counts[DROPPED] += count
            _log.debug("bridge %s: %d events dropped (%s)", slot.name, count, outlet.terms.policy)

        def left(count: int) -> None:
            slot.counts[OUT] += count

        def failed(error: BaseException) -> None:
            assert self._engine is not None
            self._engine.failed(slot, "its congestion handler", error)

        outlet.dropped, outlet.left, outlet.failed = dropped, left, failed
        self.peer(address.peer).add(outlet)
        self.downstream.changed()
        return partial(self.delivery.emit, outlet)

    def express(self, bridge: str, schema: Schema) -> Express | None:
        """What may send events of a schema over a bridge by itself until the next turn; None if nobody may.

        What it has sent is to be told by ``went``, before anything else is done.
        """
        outlet = self.outlets.get(bridge)
        session = None if outlet is None else self.links[outlet.address.peer].session
        return None if outlet is None or session is None else session.express(outlet, schema)

    def went(self, bridge: str, batch: EventBatch, counts: list[int]) -> None:
        """Events were sent over a bridge by what ``express`` has given, as frames of so many events each."""
        self.outlets[bridge].went(batch, counts)

    def _outlet(self, bridge: str) -> Outlet:
        outlet = self.outlets.get(bridge)
        if outlet is None:
            raise LinkError(f"bridge {bridge!r}: node {self.name} has none of that name that leads to a peer")
        return outlet

    def readdress(self, bridge: str, address: Crossing) -> None:
        """A bridge leads elsewhere from now on. What was sent and is not known to be safe is sent again
        there, with the same numbers and tags; a bridge that keeps nothing counts it as lost.

        Raises:
            LinkError: there is no such bridge.
        """
        outlet = self._outlet(bridge)
        before = self.links[outlet.address.peer]
        before.remove(outlet)
        outlet.readdressed(address)
        self.peer(address.peer).add(outlet)
        before.end_if_idle()

    def drop(self, bridge: str, give_up: Callable[[str, EventBatch, str], Any]) -> None:
        """Ends a bridge. What it still owes is given up; but what the receiver holds in the memory of its
        stones is kept until it is safe, see ``evflow.net.link.delivery``. The name may be used again at once.

        Args:
            bridge: its name.
            give_up: called with its name, events and a reason.

        Raises:
            LinkError: there is no such bridge.
        """
        self.restless = True
        outlet = self._outlet(bridge)
        trouble = self._trouble(outlet, outlet.owed_events)
        del self.outlets[bridge]
        self.downstream.changed()
        for batch in outlet.retire():
            give_up(bridge, batch, f"the bridge was taken away; {trouble}")
        full = self.retired.full(outlet) if outlet.keeps else ""
        if outlet.keeps and not full:
            self.retired.add(outlet, give_up)
            return
        if full:
            _log.warning("bridge %s has ended, and what its receiver holds has no backup: %s", bridge, full)
            outlet.lost()
        link = self.links[outlet.address.peer]
        link.remove(outlet)
        link.end_if_idle()

    def waiting_for(self, entries: Collection[str], bridges: Collection[str]) -> str:
        """What has to happen before stones can go.

        Args:
            entries: closed stones: what came for them must be safe, or be in the memory of stones here only.
            bridges: bridges that must owe nothing.

        Returns:
            One reason, or "" if there is none.
        """
        inlets = self.remote_inputs.all()
        # So that whatever is safe is in the journal.
        self.delivery.settle(inlets)
        for inlet in inlets:
            owed = self.delivery.in_hand(inlet) if inlet.slot.name in entries else None
            if owed is not None:
                where = f"stone {inlet.slot.name!r}: what came from {inlet.peer} has not been handled yet"
                return f"{where}; {self._trouble(owed, owed.owed_events)}"
            if inlet.slot.name in entries and self._repeats(inlet):
                return f"stone {inlet.slot.name!r}: what {inlet.peer} had sent before has not come again yet"
        for bridge in bridges:
            outlet = self.outlets.get(bridge)
            if outlet is not None and not outlet.drained:
                return self._trouble(outlet, outlet.owed_events)
            if outlet is not None and outlet.keeps and (full := self.retired.full(outlet)):
                return f"bridge {bridge!r} to {outlet.address.peer}: {full}"
        return ""

    def _repeats(self, inlet: Inlet) -> bool:
        """Whether frames are still to come to a closed stone that had been sent before."""
        link = self.links.get(inlet.peer)
        return (
            inlet.repeats
            and self.downstream.repeating(inlet.slot.name)
            and link is not None
            and inlet in link.inlets.values()
        )

    # --- messages

    def receive(self, connection: Connection, header: Any, body: Any, now: float) -> None:
        """Takes a message that came over a connection; whatever is wrong with it costs that peer only."""
        link = self.connections.get(connection)
        session = None if link is None else link.session
        if session is None and len(header) > m.MOST_GREETING:
            self._leave_unread(header, connection, link)
            return
        try:
            message, take = m.unpack(header), None
            if session is not None:
                session.heard = now
                take = session.takes.get(message.__class__)
            if take is None:
                self.restless = True
                self._take(link, connection, message, now)
                return
            take(message, body, now)
            if self.waiting and not self.serving.locked():
                self.handle(now)
        except LinkError as error:
            self.refuse("protocol" if link is not None else "malformed", str(error))
            self._fail(link, connection, str(error), now)
        except CONTAINED as error:
            who = "a stranger" if link is None else f"link to {link.peer}"
            mishaps.tell(_log, who, "a message could not be taken: the session begins anew", error)
            self._fail(link, connection, f"a message could not be taken: {named(error)}", now)

    def _fail(self, link: Link | None, connection: Connection, reason: str, now: float) -> None:
        """What came over a connection costs its link the session."""
        self.restless = True
        if link is not None and link.connection == connection:
            try:
                link.fail(reason, now)
            except CONTAINED as error:
                self._give_up(link, error, now)

    def _give_up(self, link: Link, error: BaseException, now: float) -> None:
        """What was to be done for a link has failed: its session ends, and it is dialled again later."""
        mishaps.tell(_log, f"link to {link.peer}", "it failed: its session ends", error)
        link.down(named(error), now)

    def _take(self, link: Link | None, connection: Connection, message: m.Message, now: float) -> None:
        """Takes a message that is none of a session."""
        if isinstance(message, m.Hello):
            self._greet(message, connection, now)
        elif link is not None:
            link.receive(message, now)
        elif not isinstance(message, m.Bye | m.Reset):
            self._answer(connection, m.Reset("no session on this connection"))

    def _leave_unread(self, header: Any, connection: Connection, link: Link | None) -> None:
        """Refuses what is too large for a connection without a session, where anybody may send it."""
        # A frame may be on its way still when its session ends.
        if m.kind_of(header) is not m.Data:
            self.refuse(
                "malformed",
                f"a message without a session: expected at most {m.MOST_GREETING} bytes, found {len(header)}",
            )
        if link is None:
            self._answer(connection, m.Reset("no session on this connection"))

    def _answer(self, connection: Connection, message: m.Message) -> None:
        self.transport.send(connection, m.pack(message))

    def _greet(self, hello: m.Hello, connection: Connection, now: float) -> None:
        holder = self.connections.get(connection)
        if holder is not None and holder.peer != hello.node:
            raise LinkError(
                f"peer {holder.peer}: it now calls itself {hello.node[:255]!r}; a connection has one peer"
            )
        reason, kind = self.refused_name(hello.node, connection, None), "unauthorised"
        if hello.version != m.VERSION:
            reason = f"node {self.name} speaks version {m.VERSION} of the protocol, not {hello.version}"
            kind = "other version"
        elif not reason and hello.node not in self.links and not self._has_room():
            reason = f"node {self.name} has {_MAX_LINKS} peers already"
            kind = "too many peers"
        if reason:
            self.refuse(kind, reason)
            self._answer(connection, m.Refuse(reason))
            return
        link = self.peer(hello.node)
        if link.yields_to(hello):
            link.answer(hello, connection, now)

    def _has_room(self) -> bool:
        """Whether there may be another link; of many, one that a peer has made and is down is forgotten."""
        if len(self.links) >= _MANY_LINKS:
            for name, link in self.links.items():
                if link.state is State.DOWN and not link.lasting and not link.outlets:
                    del self.links[name]
                    break
        return len(self.links) < _MAX_LINKS

    def refused_name(self, name: str, connection: Connection, expected: str | None) -> str:
        """Why a node of that name may not speak over a connection; "" if it may."""
        # A link to a contact goes by the contact, so nobody may be called like one.
        if not 0 < len(name) <= 255 or name == self.name or "://" in name or not name.isprintable():
            return f"{name[:255]!r} is not a name that a peer of node {self.name} can have"
        if expected is not None and name != expected:
            return f"the contact answered as {name!r}, expected {expected!r}"
        proven = self.transport.proven_name(connection)
        if proven is not None and proven != name:
            return f"it calls itself {name!r}, but has the key of {proven!r}"
        return ""

    def refuse(self, kind: str, reason: str) -> None:
        """Counts what is refused, and logs it more and more seldom."""
        self.refused[kind] += 1
        count = self.refused[kind]
        if mishaps.is_due(count - 1, count):
            told = reason[:_MOST_TOLD]
            _log.warning("node %s refused what came (%s, %d so far): %s", self.name, kind, count, told)

    def report(self, peer: str, reason: str, expected: bool = False) -> None:
        """Writes a trouble of a link to the log."""
        level = logging.INFO if expected else logging.WARNING
        _log.log(level, "node %s: link to %s: %s", self.name, peer, reason[:_MOST_TOLD])

    def schema(self, description: str) -> Schema:
        """The schema that a text of JSON describes."""
        schema = self._texts.get(description)
        if schema is None:
            self._texts_size += len(description)
            if self._texts_size > _MAX_TEXTS:
                self._texts.clear()
                self._texts_size = len(description)
            schema = self._texts[description] = Schema.from_description(from_json(description))
        return schema

    def handle(self, now: float) -> None:
        """Runs the notes and the frames that have come by now, one of each inlet in turn: a frame waits for
        one frame of every other bridge, not for all that they have sent."""
        if self.notes.waiting:
            self.notes.deliver(now)
        self._left, engine = False, self._engine
        # More come while handlers run; those have the next turn, or the thread would do nothing else.
        came = due = list(zip(self.waiting, map(_RECEIVED, self.waiting), strict=True))
        while due:
            further = []
            for inlet, last in due:
                if inlet.queue and not self._blocked(inlet):
                    try:
                        self.delivery.handle(inlet, inlet.take())
                    except Exception as error:
                        # Taken, but what it led to is not known: it would count as safe.
                        raise Broken(
                            f"bridge {inlet.bridge!r} of {inlet.peer}: a frame was handled only in part"
                        ) from error
                    if engine is not None and engine.loose:
                        engine.loose = False
                        self._after()
                    if inlet.queue and inlet.consumed < last:
                        further.append((inlet, last))
                    elif inlet.queue:
                        # Those behind it have another turn.
                        self._left = True
                if not inlet.queue:
                    self.waiting.pop(inlet, None)
            due = further
        for inlet, _ in came:
            told = inlet.tell_by(now)
            if told is not None and told < self._due:
                self._due = told
        if came and self.delivery.journals:
            self.restless = True

    def _blocked(self, inlet: Inlet) -> bool:
        """Whether the frames of an inlet have to wait, although no handler runs."""
        return (
            self.stopped
            or len(inlet.pending) >= _MAX_PENDING
            or bool(self.delivery.trouble.why)
            or self.downstream.blocked(inlet.slot, inlet=inlet)
        )

    def _charged(self) -> set[Inlet]:
        """The inlets over which frames may come, and those with frames that wait."""
        found = set()
        # Lists: another thread may ask.
        for inlet in list(self.waiting):
            if inlet.queue:
                found.add(inlet)
        for link in list(self.links.values()):
            session = link.session
            if session is not None:
                found.update(list(session.inlets.values()))
        return found

    # --- time

    def finish(self, now: float) -> float:
        """Does what is due at the end of a turn: frames that waited, acknowledgements, what can be sent.

        Returns:
            When that is needed next, if nothing comes before; infinity if never.
        """
        delivery = self.delivery
        busy = self.restless or self.waiting or self.downstream.closes
        if now < self._due and not (busy or delivery.waits or delivery.trouble.why):
            return self._due
        self.restless = False
        inlets = self.remote_inputs.all()
        if self.serving.locked():
            delivery.settle_links(inlets, now)
        else:
            if self.waiting or self.notes.waiting:
                self.handle(now)
            delivery.settle(inlets, now)
            self.remote_inputs.tidy()
            if self.retired.outlets:
                self.retired.tidy(now)
        self.budget.stale = True
        for link in [*self.links.values()]:
            # Of many links a turn concerns few.
            if link.session is None or link.session.is_due(now):
                try:
                    link.tick(now)
                except CONTAINED as error:
                    self._give_up(link, error, now)
        self._find_due(inlets)
        return now if self._left else self._due

    def _find_due(self, inlets: Iterable[Inlet]) -> None:
        """Finds when ``finish`` is needed next."""
        why = self.delivery.trouble.why
        due = self.delivery.trouble.due if why else math.inf
        restless = bool(why or self.remote_inputs.changing or self.retired.outlets or self.notes.waiting)
        for link in self.links.values():
            session = link.session
            at = link.next_due if session is None else session.next_due
            restless = restless or session is None or session.borrows or session.broken
            if at is not None and at < due:
                due = at
        for inlet in inlets:
            # Stones may let go of what frames have led to at any time.
            restless = restless or bool(inlet.pending)
        self._due, self.restless = due, self.restless or restless

    def measure(self, name: str) -> float:
        """What stone functions may know of the network, by name (``evflow.codgen.library.SYSTEM``)."""
        outlets = self.outlets.values()
        if name == "bandwidth":
            return sum(outlet.meter.rate for outlet in outlets)
        if name == "round_trip":
            return max((link.round_trip for link in self.links.values()), default=0.0)
        if name == "queued_bytes":
            return float(sum(outlet.waiting.bytes for outlet in outlets))
        return float(sum(outlet.waiting.events for outlet in outlets))

    @property
    def owes(self) -> bool:
        """Whether anything that was emitted has not been handled yet."""
        return any(outlet.handled < outlet.head for outlet in self._all_outlets())

    def _all_outlets(self) -> list[Outlet]:
        return [*self.outlets.values(), *self.retired]

    def troubles(self) -> list[str]:
        """Why what is owed has not gone, one text a bridge; any thread may ask."""
        told = [self._trouble(o, events) for o in self._all_outlets() if (events := o.owed_events)]
        return [*told, self.delivery.trouble.why] if self.delivery.trouble.why else told

    def _trouble(self, o: Outlet, events: int) -> str:
        # What was sent at most once is not kept, so not counted either.
        told = {0: "frames are on their way", 1: "1 event waits"}.get(events, f"{events} events wait")
        why = o.reason or self.links[o.address.peer].why or "the peer has not handled them yet"
        return f"bridge {o.bridge!r} to {o.address.peer}: {told}; {why}"

    def close(self, reason: str, give_up: Callable[[str, EventBatch, str], Any]) -> None:
        """Ends every session; what is still owed is given up.

        Args:
            reason: why, for the peers.
            give_up: called with the bridge's name, events and a reason.
        """
        self.delivery.settle(self.remote_inputs.all())
        for outlet in self._all_outlets():
            trouble = self._trouble(outlet, outlet.owed_events)
            if outlet.sent_before:
                trouble += (
                    "; what was sent may be handled there all the same, so submitting it again may double it"
                )
            for batch in outlet.remains():
                give_up(outlet.bridge, batch, trouble)
        for link in self.links.values():
            try:
                link.bye(reason)
            except CONTAINED as error:
                mishaps.tell(_log, f"link to {link.peer}", "the peer was not told of the end", error)
