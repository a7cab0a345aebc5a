"""Nodes without sockets, threads or clocks: hubs around real engines, and a network that is a queue."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from random import Random
from typing import Any

import evflow as ev
from evflow.engine.check import check_graph
from evflow.engine.engine import Engine
from evflow.engine.letters import LetterBox
from evflow.engine.placement import bridged, placed_on
from evflow.engine.topology import Slot
from evflow.errors import LinkError
from evflow.net.link import messages as m
from evflow.net.link.hub import Hub, Journal
from evflow.net.link.inlet import BUDGET
from evflow.net.link.link import Link
from tests.link.remote import Remote

__all__ = [
    "DESCRIPTION", "End", "Network", "Pair", "Peer", "Ping", "Port", "Raw", "chain", "frame", "pings",
    "receiver", "sender",
]  # fmt: skip


class End:
    """One end of a connection; a ``Connection``."""

    def __init__(self, port: Port, dialled: bool) -> None:
        self.port = port
        self.dialled = dialled
        self.other: End | None = None
        self.closed = False


class Port(Remote):
    """A node's transport. Only who has dialled can close a connection."""

    def __init__(self, network: Network) -> None:
        self.network = network
        self.names: dict[End, str] = {}
        self.take: Callable[[End, Any, Any, float], None] = lambda *message: None

    def dial(self, peer: str, contact: str) -> End:
        if contact not in self.network.ports:
            raise LinkError(f"contact {contact!r}: nobody is there")
        return self.connect(self.network.ports[contact])

    def connect(self, there: Port) -> End:
        """A connection to another port."""
        here, end = End(self, True), End(there, False)
        here.other, end.other = end, here
        return here

    def send(self, connection: Any, header: bytes, body: Any = None) -> bool:
        if connection.closed:
            return False
        whole = None if body is None else bytes(memoryview(body))
        self.network.queue.append((connection.other, bytes(header), whole))
        return True

    def hang_up(self, connection: Any) -> None:
        if connection.dialled:
            connection.closed = connection.other.closed = True

    def proven_name(self, connection: Any) -> str | None:
        return self.names.get(connection)


class Network:
    """What is on its way, and what was; messages are delivered in order, when told to.

    Attributes:
        ports: contact → who listens there.
        logs: whether ``log`` and ``lose`` are used, which costs time.
        queue: (receiving end, header, body) of what is on its way.
        lose: whether a message is lost, with its connection from then on.
        log: (receiver, message, body) of what was delivered.
    """

    def __init__(self) -> None:
        self.ports: dict[str, Port] = {}
        self.queue: deque[tuple[End, bytes, bytes | None]] = deque()
        self.peers: list[Peer] = []
        self.now = 0.0
        self.logs = True
        self.lose: Callable[[m.Message], bool] = lambda message: False
        self.log: list[tuple[Port, m.Message, bytes | None]] = []

    def deliver(self) -> bool:
        """Delivers all that is on its way; gives whether there was something."""
        some = bool(self.queue)
        while self.queue:
            end, header, body = self.queue.popleft()
            if end.closed:
                continue
            if not self.logs:
                end.port.take(end, header, body, self.now)
                continue
            message = m.unpack(header)
            if self.lose(message):
                assert end.other is not None
                end.closed = end.other.closed = True
                continue
            self.log.append((end.port, message, body))
            end.port.take(end, header, body, self.now)
        return some

    def settle(self) -> None:
        """Lets the nodes talk until they have nothing more to say at this moment."""
        while True:
            for peer in self.peers:
                peer.hub.finish(self.now)
            if not self.deliver():
                return

    def run(self, seconds: float = 0.1, step: float = 0.01) -> None:
        """Lets time pass."""
        for _ in range(round(seconds / step)):
            self.now += step
            self.settle()

    def said(self, kind: type[Any], to: Port | None = None) -> list[Any]:
        """What was delivered of one kind."""
        return [said for port, said, _ in self.log if isinstance(said, kind) and port is (to or port)]


class Peer:
    """A node: its hub, and an engine with the stones of a graph that are placed on it."""

    def __init__(
        self,
        network: Network,
        name: str,
        graph: ev.Graph,
        contacts: dict[str, str] | None = None,
        *,
        listens: bool = True,
        window: int = 8 << 20,
        memory: int = BUDGET,
        journal: Journal | None = None,
        seed: int = 0,
    ) -> None:
        self.network = network
        self.port = Port(network)
        self.port.take = self._take
        random = Random(f"{name} {seed}")
        contact = name if listens else ""
        self.hub = Hub(
            name, self.port, random.randbytes, contact=contact, window=window, memory=memory, journal=journal
        )  # fmt: skip
        topology = placed_on(check_graph(bridged(graph)), name)
        self.letters = LetterBox(1000, lambda stone, batch, timeout: None)

        def sender(slot: Slot) -> Callable[[ev.EventBatch], None] | None:
            crossing = topology.crossings.get(slot.name)
            return None if crossing is None else self.hub.sender(slot, crossing)

        self.engine = Engine(topology, self.letters, sender)
        self.slots = topology.slots
        self.hub.attach(self.engine, {n: topology.slots[n] for n in topology.entrances}, self._settle)
        for peer, text in (contacts or {}).items():
            self.hub.peer(peer, text)
        if listens:
            network.ports[name] = self.port
        network.peers.append(self)

    def _take(self, end: End, header: Any, body: Any, now: float) -> None:
        self.hub.receive(end, header, body, now)

    def _settle(self) -> None:
        self.hub.delivery.settle_actors(self.engine.emitted())

    def submit(self, stone: str, batch: ev.EventBatch) -> None:
        """Puts events into a stone, and lets them go as far as they go."""
        self.engine.submit(self.slots[stone], batch)
        self.engine.run()
        self._settle()

    def kill(self) -> None:
        """Ends it as ``kill -9`` does: its connections break, nothing more is said."""
        self.network.peers.remove(self)
        for end in list(self.hub.connections):
            assert isinstance(end, End)
            end.closed = True
            if end.other is not None:
                end.other.closed = True
        self.port.take = lambda *message: None

    def link(self, peer: str) -> Link:
        return self.hub.links[peer]


class Raw:
    """A peer made by hand: says what it is told to, and notes what it hears."""

    def __init__(self, network: Network, name: str = "raw", contact: str = "") -> None:
        self.network = network
        self.name = name
        self.port = Port(network)
        self.port.take = self._take
        self.contact = contact
        self.heard: list[m.Message] = []
        self.bodies: list[bytes | None] = []
        self.end: End | None = None
        if contact:
            network.ports[contact] = self.port

    def _take(self, end: End, header: bytes, body: bytes | None, now: float) -> None:
        self.end = end
        self.heard.append(m.unpack(header))
        self.bodies.append(body)

    def dial(self, contact: str) -> None:
        """Opens a connection, without a word."""
        self.end = self.port.dial("", contact)

    def hello(
        self, contact: str, incarnation: bytes = b"i" * 16, version: int = m.VERSION
    ) -> list[m.Message]:
        """Opens a connection and asks for a session; gives what is answered."""
        self.dial(contact)
        return self.say(m.Hello(version, self.name, incarnation, self.contact))

    def say(self, *messages: m.Message, body: bytes | None = None) -> list[m.Message]:
        """Sends messages, and gives what is answered."""
        for message in messages:
            self.port.send(self.end, m.pack(message), body)
        self.heard.clear()
        self.bodies.clear()
        self.network.settle()
        return list(self.heard)

    def last(self, kind: type[Any]) -> Any:
        """The last message of a kind that it heard."""
        return next(message for message in reversed(self.heard) if isinstance(message, kind))


class Ping(ev.Event):
    number: int


DESCRIPTION = '{"name":"Ping","fields":[["number","i64"]]}'


def pings(*numbers: int) -> ev.EventBatch:
    return ev.EventBatch.from_columns(Ping, {"number": list(numbers)})


def chain(arrived: list[int], between: ev.Stone | None = None, **bridge: Any) -> ev.Graph:
    """pings on a → bridge → (a stone on b →) end on b."""
    graph = ev.Graph()
    port: Any = graph.source("pings", Ping, on="a") >> ev.Bridge(**bridge, name="bridge", on="a")
    if between is not None:
        port = port >> between
    port >> ev.Terminal(lambda event: arrived.append(event.number), name="end", on="b")
    return graph


class Pair:
    """Node a sends to node b."""

    def __init__(self, between: ev.Stone | None = None, window: int = 8 << 20, **bridge: Any) -> None:
        self.arrived: list[int] = []
        self.network = Network()
        self.graph = chain(self.arrived, between, **bridge)
        self.b = Peer(self.network, "b", self.graph, window=window)
        self.a = Peer(self.network, "a", self.graph, {"b": "b"})
        self.outlet = self.a.hub.outlets["bridge"]

    def submit(self, *numbers: int) -> None:
        self.a.submit("pings", pings(*numbers))

    def run(self, seconds: float = 0.1) -> None:
        self.network.run(seconds)

    def break_(self) -> None:
        """The connection breaks; only the sender hears of it."""
        for end in [*self.a.hub.connections]:
            end.closed = end.other.closed = True  # type: ignore[attr-defined]
        self.a.link("b").down("broken", self.network.now)


def receiver(**options: Any) -> tuple[Network, Peer, Raw, list[int]]:
    """Node b, and a peer by hand that has a session with it and an open channel 0."""
    arrived: list[int] = []
    network = Network()
    b = Peer(network, "b", chain(arrived), **options)
    raw = Raw(network, "a")
    raw.hello("b")
    raw.say(m.Open(0, "bridge", "end", "", b"s" * 16, 1, 0), m.SchemaText(0, DESCRIPTION))
    return network, b, raw, arrived


def frame(sequence: int, *numbers: int, channel: int = 0, events: int | None = None) -> m.Data:
    batch = pings(*numbers)
    count = len(batch) if events is None else events
    return m.Data(channel, sequence, 0, count, b"", [], m.NIL, batch.to_bytes())


def sender() -> tuple[Network, Peer, Raw]:
    """Node a, and a peer by hand that it has dialled."""
    network = Network()
    raw = Raw(network, "b", "b")
    a = Peer(network, "a", chain([]), {"b": "b"})
    network.settle()
    assert raw.heard == [m.Hello(*a.hub.greeting)]
    return network, a, raw
