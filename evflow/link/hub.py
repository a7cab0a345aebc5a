"""The hub: all links of one node, around its engine. Sans-I/O: it is told messages and the time."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from evflow.engine.topology import DROPPED, OUT, Crossing, Slot
from evflow.errors import LinkError
from evflow.link import messages as m
from evflow.link.custody import Custody, Journal
from evflow.link.inlet import Inlet
from evflow.link.link import Link, State
from evflow.link.outlet import Outlet
from evflow.link.reach import Reach
from evflow.schema import Schema

if TYPE_CHECKING:
    from evflow.engine.engine import Engine
    from evflow.events.batch import EventBatch
    from evflow.link.transport import Conduit, Transport

__all__ = ["Hub"]

_log = logging.getLogger("evflow.link")

_MAX_LINKS = 10_000
_MANY_LINKS = 100
_MAX_INLETS = 10_000
_MAX_STREAMS = 8
_MAX_PENDING = 100_000
_MAX_TEXTS = 64 << 20


class Hub:
    """All links of one node.

    Args:
        name: the node's name.
        transport: what carries messages.
        entropy: gives so many random bytes.
        contact: where the node can be dialled, as told to others; "" if it cannot.
        heartbeat: seconds between two pings; after five in silence a session is given up.
        window: bytes that may be on their way to one stone of this node.
        journal: keeps over restarts what was safe; None where that need not be.
        permits: whether a contact that a peer says it has may be dialled.

    Attributes:
        links: peer → link.
        conduits: connection → the link that uses it.
        outlets: bridge → outlet.
        custody: what the node was given and what it owes.
        reach: which bridges events can get to.
        refused: what came and was refused, by kind: "malformed", "unauthorised", "unknown stone", "protocol".
        run: moves the events that came for a stone until none moves any more.
        stopped: whether nothing that comes is taken in any more.
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
        journal: Journal | None = None,
        permits: Callable[[str], bool] = lambda contact: True,
    ) -> None:
        self.name = name
        self.permits = permits
        self.transport = transport
        self.heartbeat = heartbeat
        self.window = window
        self.links: dict[str, Link] = {}
        self.conduits: dict[Conduit, Link] = {}
        self.outlets: dict[str, Outlet] = {}
        self.refused: Counter[str] = Counter()
        self.greeting = (m.VERSION, name, entropy(16), contact)
        self.run: Callable[[Slot], None] = lambda slot: None
        self._after: Callable[[Slot], None] = lambda slot: None
        self.stopped = False
        self.reach = Reach(self.outlets)
        self.custody = Custody(self.outlets, self.reach, journal)
        self._entropy = entropy
        self._engine: Engine | None = None
        self._entrances: dict[str, Slot] = {}
        self._inlets: dict[tuple[str, str], Inlet] = {}
        self._former: list[Inlet] = []
        self._texts: dict[str, Schema] = {}
        self._texts_size = 0

    # --- what the node has

    def attach(
        self,
        engine: Engine,
        entrances: dict[str, Slot],
        run: Callable[[Slot], None],
        after: Callable[[Slot], None] = lambda slot: None,
    ) -> None:
        """Sets what the links lead to.

        Args:
            engine: the engine.
            entrances: the stones that others may send to, by name.
            run: moves the events that came for a stone until none moves any more.
            after: does what handlers have asked for meanwhile; it is not a part of what came.
        """
        self._engine = self.reach.engine = engine
        self._entrances = entrances
        self.run = run
        self._after = after

    def peer(self, name: str, contact: str = "") -> Link:
        """The link to a peer; made if it is not there."""
        link = self.links.get(name)
        if link is None:
            link = self.links[name] = Link(name, contact, self)
        elif contact:
            link.contact = contact
        link.lasting = link.lasting or bool(contact)
        return link

    def sender(self, slot: Slot, address: Crossing) -> Callable[[EventBatch], None]:
        """What a bridge stone gives its events to."""
        outlet = Outlet(slot.name, address, slot.stone.terms(), self._entropy(16))  # type: ignore[attr-defined]
        self.outlets[slot.name] = outlet

        def dropped(count: int) -> None:
            slot.counts[DROPPED] += count
            _log.debug("bridge %s: %d events dropped (%s)", slot.name, count, outlet.terms.policy)

        def left(count: int) -> None:
            slot.counts[OUT] += count

        def failed(error: BaseException) -> None:
            _log.error("bridge %s: its congestion handler failed: %r", slot.name, error)

        outlet.dropped, outlet.left, outlet.failed = dropped, left, failed
        self.peer(address.peer).add(outlet)
        return lambda batch: self.custody.emit(outlet, batch)

    # --- messages

    def receive(self, conduit: Conduit, header: Any, body: Any, now: float) -> None:
        """Takes a message that came over a connection; whatever is wrong with it costs that peer only."""
        link = self.conduits.get(conduit)
        try:
            message = m.unpack(header)
            if isinstance(message, m.Hello):
                self._greet(message, conduit, now)
            elif link is not None:
                link.receive(message, body, now)
            elif not isinstance(message, m.Bye | m.Reset):
                self._answer(conduit, m.Reset("no session on this connection"))
        except LinkError as error:
            self.refuse("protocol" if link is not None else "malformed", str(error))
            if link is not None and link.conduit == conduit:
                link.fail(str(error), now)

    def _answer(self, conduit: Conduit, message: m.Message) -> None:
        self.transport.send(conduit, m.pack(message))

    def _greet(self, hello: m.Hello, conduit: Conduit, now: float) -> None:
        holder = self.conduits.get(conduit)
        if holder is not None and holder.peer != hello.node:
            raise LinkError(
                f"peer {holder.peer}: it now calls itself {hello.node[:255]!r}; a connection has one peer"
            )
        reason = self.refused_name(hello.node, conduit, None)
        if hello.version != m.VERSION:
            reason = f"node {self.name} speaks version {m.VERSION} of the protocol, not {hello.version}"
        elif not reason and hello.node not in self.links and not self._has_room():
            reason = f"node {self.name} has {_MAX_LINKS} peers already"
        if reason:
            self.refuse("unauthorised", reason)
            self._answer(conduit, m.Refuse(reason))
            return
        link = self.peer(hello.node)
        if link.yields_to(hello):
            link.answer(hello, conduit, now)

    def _has_room(self) -> bool:
        """Whether there may be another link; of many, one that a peer has made and is down is forgotten."""
        if len(self.links) >= _MANY_LINKS:
            for name, link in self.links.items():
                if link.state is State.DOWN and not link.lasting and not link.outlets:
                    del self.links[name]
                    break
        return len(self.links) < _MAX_LINKS

    def refused_name(self, name: str, conduit: Conduit, expected: str | None) -> str:
        """Why a node of that name may not speak over a connection; "" if it may."""
        # A link to a contact goes by the contact, so nobody may be called like one.
        if not 0 < len(name) <= 255 or name == self.name or "://" in name:
            return f"{name[:255]!r} is no name that a peer of node {self.name} can have"
        if expected is not None and name != expected:
            return f"the contact answered as {name!r}, expected {expected!r}"
        proven = self.transport.proven_name(conduit)
        if proven is not None and proven != name:
            return f"it calls itself {name!r}, but has the key of {proven!r}"
        return ""

    def refuse(self, kind: str, reason: str) -> None:
        """Counts what is refused, and logs it more and more seldom."""
        self.refused[kind] += 1
        count = self.refused[kind]
        if count & (count - 1) == 0:
            _log.warning("node %s refused what came (%s, %d so far): %s", self.name, kind, count, reason)

    def report(self, peer: str, reason: str, expected: bool = False) -> None:
        """Writes a trouble of a link to the log."""
        _log.log(
            logging.INFO if expected else logging.WARNING, "node %s: link to %s: %s", self.name, peer, reason
        )

    def schema(self, description: str) -> Schema:
        """The schema that a text of JSON describes."""
        schema = self._texts.get(description)
        if schema is None:
            self._texts_size += len(description)
            if self._texts_size > _MAX_TEXTS:
                self._texts.clear()
                self._texts_size = len(description)
            schema = self._texts[description] = Schema.from_description(json.loads(description))
        return schema

    def inlet(self, peer: str, wanted: m.Open) -> Inlet | str:
        """The inlet of a channel that a peer wants to open, or why there is none."""
        slot = self._entrances.get(wanted.stone)
        if slot is None or (wanted.input and wanted.input not in slot.stone.inputs):
            self.refuse("unknown stone", f"bridge {wanted.bridge!r} of {peer}: {wanted.stone!r}")
            where = f"{wanted.stone}[{wanted.input}]" if wanted.input else wanted.stone
            return f"node {self.name} has no stone {where!r} that others may send to"
        key = (peer, wanted.bridge)
        inlet = self._inlets.get(key)
        if inlet is None or inlet.stream != wanted.stream or inlet.slot is not slot:
            if sum((i.peer, i.bridge) == key for i in self._former) >= _MAX_STREAMS:
                return f"node {self.name} holds frames of {_MAX_STREAMS} former streams of the bridge"
            if inlet is not None:
                self._former.append(inlet)
            elif len(self._inlets) >= _MAX_INLETS and not self._forget_inlet(peer):
                return f"node {self.name} has {_MAX_INLETS} channels already"
            inlet = Inlet(
                peer, wanted.bridge, slot, wanted.input, wanted.stream, bool(wanted.delivery), self.window
            )
            self._inlets[key] = inlet
        return inlet

    def _forget_inlet(self, peer: str) -> bool:
        """Forgets a channel that nobody uses, rather one of the peer's; gives whether there was one."""
        used = {id(inlet) for link in self.links.values() for inlet in link.inlets.values()}
        idle = [key for key, i in self._inlets.items() if id(i) not in used and not i.queue and not i.pending]
        key = next((key for key in idle if key[0] == peer), next(iter(idle), None))
        if key is not None:
            del self._inlets[key]
        return key is not None

    def closed(self, inlet: Inlet) -> None:
        """No more will come for an inlet."""
        key = (inlet.peer, inlet.bridge)
        if self._inlets.get(key) is inlet:
            self._former.append(self._inlets.pop(key))

    def arrived(self, inlet: Inlet) -> None:
        """Takes in the frames that came for an inlet, unless their way is blocked."""
        while inlet.queue and not self.stopped and not self.reach.blocked(inlet.slot):
            if len(inlet.pending) >= _MAX_PENDING:
                return
            self.custody.handle(inlet, inlet.take(), lambda batch: self._move(inlet, batch))
            self._after(inlet.slot)

    def _move(self, inlet: Inlet, batch: EventBatch) -> None:
        assert self._engine is not None
        self._engine.submit(inlet.slot, batch, inlet.input)
        self.run(inlet.slot)

    # --- time

    def finish(self, now: float) -> None:
        """Does what is due at the end of a turn: frames that waited, acknowledgements, what can be sent."""
        inlets = (*self._former, *self._inlets.values())
        for inlet in inlets:
            if inlet.queue:
                self.arrived(inlet)
        self.custody.settle(inlets)
        self._former = [inlet for inlet in self._former if inlet.queue or inlet.pending]
        for link in list(self.links.values()):
            link.tick(now)
            link.flush(now)

    def next_due(self, now: float) -> float | None:
        """When ``finish`` is needed next, if nothing comes before; None if never."""
        due = [link.next_due for link in self.links.values()]
        return min((at for at in due if at is not None), default=None)

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
        return any(outlet.handled < outlet.head for outlet in self.outlets.values())

    def troubles(self) -> list[str]:
        """Why what is owed has not gone, one text a bridge; any thread may ask."""
        return [self._trouble(o, events) for o in self.outlets.values() if (events := o.owed_events)]

    def _trouble(self, o: Outlet, events: int) -> str:
        why = o.reason or self.links[o.address.peer].trouble or "the peer has not handled them yet"
        return f"bridge {o.bridge!r} to {o.address.peer}: {events} events wait; {why}"

    def close(self, reason: str, give_up: Callable[[str, EventBatch, str], Any]) -> None:
        """Ends every session; what is still owed is given up.

        Args:
            reason: why, for the peers.
            give_up: called with the bridge's name, events and a reason.
        """
        for outlet in self.outlets.values():
            trouble = self._trouble(outlet, outlet.owed_events)
            for batch in outlet.remains():
                give_up(outlet.bridge, batch, trouble)
        for link in self.links.values():
            link.bye(reason)
