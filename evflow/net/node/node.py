"""Node: what a program says about its end of the overlay, and the links that a flow runs with."""

from __future__ import annotations

import os
import socket as network
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evflow.closing import Closing
from evflow.engine.host import use_network
from evflow.engine.topology import Crossing, Slot
from evflow.errors import LinkError
from evflow.events.batch import EventBatch
from evflow.net.link.hub import Hub
from evflow.net.link.inlet import BUDGET
from evflow.net.link.link import State
from evflow.net.link.provenance import pack_seen, unpack_seen
from evflow.net.node.contact import Contact
from evflow.net.node.journal import FileJournal
from evflow.net.node.keys import KeyRing
from evflow.net.node.memory import keep_freed_memory
from evflow.net.node.sockets import Sockets
from evflow.outside import shown

if TYPE_CHECKING:
    from evflow.engine.engine import Engine

Contacts = str | Iterable[str] | None

_MOST_MEMORY = 1 << 46


class Node(Closing):
    """One process's end of the overlay; ``graph.run(node=node)`` runs the stones that are placed on it.

    A node that listens can be sent to; one that does not can only send, and get the answers of those it sends
    to. All that goes between two nodes shares one connection. A node serves one flow, and ends with it.

    Args:
        name: as the graph's ``on=`` has it; by default one that nobody else has.
        listen: contacts to listen at: ``tcp://127.0.0.1:7000``, ``ipc:///run/edge``; port 0 picks a free one.
        advertise: the contact that peers are told, where it is another than that listened at (behind a router
            that translates addresses, or in a container).
        peers: peer name → contact. A peer that dials this node need not be here.
        keys: the folder of keys that ``evflow keygen`` fills; then tcp connections are encrypted, and only
            peers whose public key is there may connect.
        allow: names of peers that may connect; by default all whose public key is in the folder.
        plain: allow tcp beyond this host without keys: anybody who reaches the port may send events.
        journal: a file that keeps, over restarts, which events were handled, so that none is handled twice.
        heartbeat: seconds between two signs of life; a peer that is silent for five is given up, and dialled
            again.
        window: bytes of events that may be on their way over one bridge and waiting here, at most.
        memory: bytes of events that may be on their way and waiting here, from all peers together; one peer
            gets at most half of what the others leave.
        shared_memory: where the peer is on the same host, let large events go through shared memory, and
            small ones over a socket of the system's own; otherwise all goes over the contact.

    Raises:
        LinkError: a contact, key or name is wrong, or the address is taken; or this is not Linux.

    Attributes:
        name: the node's name.
        contact: where peers dial it; "" if it does not listen.
        contacts: everything it listens at.

    Example:
        >>> import evflow as ev
        >>> class Ping(ev.Event):
        ...     number: int
        >>> seen = []
        >>> g = ev.Graph()
        >>> pings = g.source("pings", Ping, on="here")
        >>> end = pings >> ev.Terminal(lambda event: seen.append(event.number), on="there")
        >>> there = ev.Node("there", listen="tcp://127.0.0.1:0")
        >>> here = ev.Node("here", peers={"there": there.contact})
        >>> with g.run(node=there), g.run(node=here) as flow:
        ...     flow["pings"].submit(Ping(7))
        ...     flow.drain(timeout=10)
        >>> seen
        [7]
    """

    def __init__(
        self,
        name: str | None = None,
        listen: Contacts = None,
        *,
        advertise: str | None = None,
        peers: Mapping[str, str] | None = None,
        keys: str | os.PathLike[str] | None = None,
        allow: Iterable[str] | None = None,
        plain: bool = False,
        journal: str | os.PathLike[str] | None = None,
        heartbeat: float = 1.0,
        window: int = 32 << 20,
        memory: int = BUDGET,
        shared_memory: bool = True,
    ) -> None:
        if not hasattr(os, "eventfd"):
            raise LinkError("a node needs Linux; elsewhere a graph runs within one process, without node=")
        self.name = _checked_name(name)
        if not isinstance(heartbeat, int | float) or not 0.01 <= heartbeat <= 3600:
            raise LinkError(f"node {self.name}: heartbeat {heartbeat!r}: expected seconds from 0.01 to 3600")
        for what, size, least in (("window", window, 1 << 16), ("memory", memory, 1 << 20)):
            if not isinstance(size, int) or isinstance(size, bool) or not least <= size <= _MOST_MEMORY:
                raise LinkError(
                    f"node {self.name}: {what} {shown(size, 300)}: expected {least} to {_MOST_MEMORY} bytes"
                )
        if allow is not None and keys is None:
            raise LinkError(f"node {self.name}: allow= names keys, and there are none; give keys=FOLDER")
        self._plain = plain
        ring = None if keys is None else KeyRing(keys, name, allow)
        self._secured = ring is not None
        contacts = [self.permitted(Contact.parse(text, listening=True)) for text in _listed(listen)]
        if not isinstance(peers or {}, Mapping):
            raise LinkError(
                f"node {self.name}: peers {shown(peers, 300)}: expected a mapping, name → contact"
            )
        peer_contacts = {
            _checked_name(peer): str(self.permitted(Contact.parse(text)))
            for peer, text in (peers or {}).items()
        }
        if self.name in peer_contacts:
            raise LinkError(
                f"node {self.name}: a node cannot be a peer of itself; give the peer its own name"
            )
        if not isinstance(journal, str | os.PathLike | None):
            raise LinkError(f"node {self.name}: journal {shown(journal, 300)}: expected the path of a file")
        told = None if advertise is None else Contact.parse(advertise)
        self._journal = None if journal is None else FileJournal(Path(journal))
        keep_freed_memory()
        self._sockets = Sockets(ring, float(heartbeat), shared_memory)
        try:
            bound = [self._sockets.listen(c, self._secured and c.scheme == "tcp") for c in contacts]
        except BaseException:
            self.close()
            raise
        self.contacts = tuple(str(contact) for contact in bound)
        dialable = [str(contact) for contact in bound if not contact.is_wildcard]
        self.contact = str(told) if told is not None else dialable[0] if dialable else ""
        self._hub = Hub(
            self.name, self._sockets, os.urandom, contact=self.contact, heartbeat=float(heartbeat),
            window=window, memory=memory, journal=self._journal, permits=self._permits,
        )  # fmt: skip
        for peer, text in peer_contacts.items():
            self._hub.peer(peer, text)
        self._used = False

    def permitted(self, contact: Contact) -> Contact:
        """The same contact, if the node may use it.

        Args:
            contact: where the node is to listen, or whom it is to dial.

        Raises:
            LinkError: it is beyond this host, and there are no keys.
        """
        if contact.scheme == "tcp" and not contact.is_local and not self._secured and not self._plain:
            raise LinkError(
                f"node {self.name}: contact {contact} is beyond this host, and there are no keys; make some "
                "with 'evflow keygen' and give keys=FOLDER, or say plain=True if anybody who reaches it may "
                "send"
            )
        return contact

    def _permits(self, contact: str) -> bool:
        try:
            self.permitted(Contact.parse(contact))
        except LinkError:
            return False
        return True

    @property
    def refused(self) -> dict[str, int]:
        """What came and was refused so far: "malformed", "unauthorised", "other version", "too many peers",
        "unknown stone", "unknown topic", "protocol"."""
        counts = dict(self._hub.refused)
        if self._sockets.turned_away:
            counts["unauthorised"] = counts.get("unauthorised", 0) + self._sockets.turned_away
        return counts

    @property
    def memory(self) -> dict[str, int]:
        """The bytes of memory that peers may fill with events: ``used`` by what waits and by what they may
        still send, and the ``most``, as ``memory=`` has set it. Any thread may ask."""
        budget = self._hub.budget
        return {"used": budget.used, "most": budget.total}

    def links(self) -> dict[str, dict[str, Any]]:
        """The links, by peer: ``state``, ``trouble``, ``contact``, ``round_trip`` (seconds), ``bandwidth``
        (bytes a second), ``waiting`` events and ``sessions`` so far. Those that the peer holds in memory wait
        too, also those that came over bridges that have ended since."""
        return {peer: link.report() for peer, link in list(self._hub.links.items())}

    def attach(self, graph: str) -> Links:
        """The links as a flow drives them; a node serves one flow.

        Args:
            graph: the name of the graph that the flow runs, for messages.

        Raises:
            LinkError: the node has served a flow already.
        """
        if self._used:
            raise LinkError(f"node {self.name} serves a flow already; make another node for graph {graph}")
        self._used = True
        return Links(self, self._hub, self._sockets)

    def close(self) -> None:
        """Ends the node; a flow does that when it is closed. Closing twice does nothing."""
        self._used = True
        self._sockets.close()
        if self._journal is not None:
            self._journal.close()

    def __repr__(self) -> str:
        return f"<Node {self.name}{' at ' + ', '.join(self.contacts) if self.contacts else ''}>"


class Links:
    """The links of a node, driven by the thread of a flow; a ``Net``.

    Most of what it can do are methods of the node's hub and sockets, under the names that a flow knows.

    Attributes:
        patience: seconds that the links may be left alone while a handler runs.
    """

    def __init__(self, node: Node, hub: Hub, sockets: Sockets) -> None:
        self._node = node
        self._hub = hub
        self._sockets = sockets
        self._give_up: Callable[[str, EventBatch, str], None] = lambda bridge, batch, reason: None
        self.patience = hub.heartbeat / 8
        # Sockets and shared memory; see ``Sockets`` and ``Arena``.
        self.bell = sockets.bell
        self.pace, self.reserve, self.spare = sockets.pace, sockets.reserve, sockets.spare
        # The stones that others may send to; see ``RemoteInputs`` and ``Downstream``.
        self.enter, self.leave = hub.remote_inputs.enter, hub.remote_inputs.leave
        self.close_entries, self.open_entries = hub.downstream.close, hub.downstream.open
        self.leads = hub.downstream.leads
        # What was given and what is owed; see ``Hub``, ``Delivery`` and ``Retired``.
        self.waiting_for, self.troubles = hub.waiting_for, hub.troubles
        self.aside, self.run_numbered = hub.delivery.aside, hub.delivery.run_numbered
        self.settle_actors = hub.delivery.settle_actors
        self.when_handled, self.when_safe = hub.delivery.when_handled, hub.delivery.when_safe
        self.follow = hub.retired.follow
        # Peers, notes and time; see ``Hub``.
        self.forget, self.tell, self.listen = hub.forget, hub.tell, hub.listen
        self.finish = hub.finish
        self.blocked = hub.downstream.blocked
        self.express, self.went = hub.express, hub.went

    def sender(self, slot: Slot, address: Crossing) -> Callable[[EventBatch], None]:
        """What a bridge gives its events to.

        Raises:
            LinkError: what it leads to is not a contact, or needs keys.
        """
        self._permit(address)
        return self._hub.sender(slot, address)

    def _permit(self, address: Crossing) -> None:
        if "://" in address.peer:
            self._hub.peer(address.peer, str(self._node.permitted(Contact.parse(address.peer))))

    def readdress(self, bridge: str, crossing: Crossing) -> None:
        """A bridge leads elsewhere from now on; see ``Hub.readdress``.

        Raises:
            LinkError: there is no such bridge; or where it shall lead to is not a contact, or needs keys.
        """
        self._permit(crossing)
        self._hub.readdress(bridge, crossing)

    def drop(self, bridge: str, give_up: Callable[[str, EventBatch, str], None] | None = None) -> None:
        """Ends a bridge; what it still owes is given up, but what the peer holds is kept; see ``Hub.drop``.

        Args:
            bridge: its name.
            give_up: called with its name, events and a reason; by default as ``attach`` has set it.

        Raises:
            LinkError: there is no such bridge.
        """
        self._hub.drop(bridge, give_up or self._give_up)

    def bear(self, tries: int) -> None:
        """How often a bridge may ask for a stone that is not there before that counts as refused."""
        self._hub.remote_inputs.patience = tries

    def caught_up(self, peer: str, bridge: str) -> bool:
        """True if a bridge of a peer has had a channel to this node since its process began, and what had
        been sent over it before has come again."""
        inlets = self._hub.remote_inputs.over(peer, bridge)
        return bool(inlets) and not inlets[-1].repeats

    def seen(self, stone: str) -> bytes:
        """Which frames came for a stone, to be told to the node that it goes to; to be asked before
        ``leave``."""
        return pack_seen(stone, self._hub.delivery.seen(stone))

    def learn(self, data: bytes) -> None:
        """Adds what ``seen`` has given on another node, in the journal too; to be done before ``enter``.

        Raises:
            LinkError: it is malformed, or the journal cannot be written; nothing was added.
        """
        self._hub.delivery.learn(*unpack_seen(data))

    def owed(self, bridge: str) -> int:
        """Events of a bridge that wait, or are kept until they are safe; 0 if there is no such bridge."""
        outlet = self._hub.outlets.get(bridge)
        return 0 if outlet is None else outlet.owed_events

    def refusal(self, bridge: str) -> str | None:
        """Why what a bridge leads to takes no events, as far as that is known; None if it takes some."""
        outlet = self._hub.outlets.get(bridge)
        if outlet is None:
            return ""
        return None if outlet.state == "open" else outlet.reason

    # --- peers

    def peer(self, name: str, contact: str = "") -> None:
        """Keeps a link to a peer, also while no bridge needs it; it is dialled if its contact is known.

        Raises:
            LinkError: it is not a name, or this node's own; or it is not a contact, or needs keys.
        """
        # A peer whose name nobody knows goes by its contact.
        if "://" in name:
            Contact.parse(name)
        elif _checked_name(name) == self._node.name:
            raise LinkError(f"node {name}: a node cannot be a peer of itself; give the peer its own name")
        self._hub.keep(name, contact and str(self._node.permitted(Contact.parse(contact))))

    def connected(self, name: str) -> bool:
        """True if there is a session with a peer now."""
        link = self._hub.links.get(name)
        return link is not None and link.state is State.UP

    def barred(self, name: str) -> str:
        """Why trying again by itself cannot give a session with a peer; "" if it may."""
        link = self._hub.links.get(name)
        if link is None or link.state is State.UP:
            return ""
        unreachable = not link.contact and not self._node.contacts
        return link.why if link.barred or unreachable else ""

    def heard(self, name: str) -> float | None:
        """When a peer was heard last in its session, in seconds of ``time.monotonic``; None without one."""
        link = self._hub.links.get(name)
        return None if link is None else link.heard

    # --- the thread

    def attach(
        self,
        engine: Engine,
        entrances: dict[str, Slot],
        after: Callable[[], None],
        give_up: Callable[[str, EventBatch, str], None],
    ) -> None:
        """Sets what the links lead to; see ``Hub.attach``."""
        self._hub.attach(engine, entrances, after)
        self._give_up = give_up

    def begin(self) -> None:
        """The thread begins: its stone functions see this node's network."""
        use_network(self._hub.measure)

    def receive(self, now: float) -> None:
        """Takes what had come over the sockets when the bell slept last, and runs it."""
        # Frames that have waited are handled at the end of the turn.
        if self.bell.ready:
            # Handlers run when the sockets have been read: while one runs, another thread reads them.
            with self._hub.serving:
                self._sockets.receive(self._hub.receive, now)
            if self._sockets.refused:
                self._bar(now)
            self._hub.handle(now)

    def serve(self, now: float) -> None:
        """Takes what has come and sends what is to go, but runs nothing; see ``Hub.serving``."""
        with self._hub.serving:
            self.bell.look()
            self._sockets.receive(self._hub.receive, now)
            self._bar(now)
            self._hub.finish(now)

    def _bar(self, now: float) -> None:
        """Tells the links whose peers have refused to shake hands."""
        for connection, reason in self._sockets.refusals():
            link = self._hub.connections.get(connection)
            if link is not None:
                link.barred_by(reason, now)

    @property
    def owes(self) -> bool:
        """True if other nodes have not handled all yet."""
        return self._hub.owes

    def unwritten(self) -> str:
        """Why the journal cannot be written now; "" if it can."""
        return self._hub.delivery.trouble.why

    def stop(self) -> None:
        """From now on nothing that comes is taken in."""
        self._hub.stopped = True

    def close(self) -> None:
        """Ends the links and the node."""
        try:
            self._hub.finish(time.monotonic())
            self._hub.close(f"node {self._node.name} has ended", self._give_up)
        finally:
            self._node.close()


def _listed(contacts: Contacts) -> list[str]:
    if contacts is None:
        return []
    # What is neither a text nor several is refused as a contact.
    return list(contacts) if isinstance(contacts, Iterable) and not isinstance(contacts, str) else [contacts]


def _checked_name(name: str | None) -> str:
    if name is None:
        return f"{network.gethostname()[:64]}-{os.getpid()}-{os.urandom(4).hex()}"
    if not isinstance(name, str) or not 0 < len(name) <= 255 or "://" in name or not name.isprintable():
        raise LinkError(
            f"node {shown(name, 300)}: expected a name, a text of 1 to 255 characters that can be printed, "
            "without '://'"
        )
    return name
