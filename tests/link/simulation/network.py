"""A simulated network, as nasty as ZeroMQ over TCP can be.

A wire is what a node has dialled. It outlives breaks, as a DEALER socket does: after each it connects again
by itself, to whatever process has the name then, and that process sees a new guest. What was sent while it
was broken goes over the new connection, what was under way is lost from some message on. A stalled direction
(a pulled cable) holds everything up until it is healed or broken.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from random import Random
from typing import Any

from evflow.errors import LinkError
from evflow.net.link.transport import Connection
from tests.link.remote import Remote
from tests.link.simulation.clock import Clock
from tests.link.simulation.sharing import Sharing

__all__ = ["Killed", "Manner", "Network", "SimTransport"]


class Killed(BaseException):
    """The process ends here, at once."""


@dataclass
class Manner:
    """How a network behaves.

    Attributes:
        delay: seconds that a message takes at least, and at most.
        reconnect: seconds until a broken wire tries again, at least and at most.
        knows: how often a node notices that a guest is gone when it sends to it.
        shared_memory: bytes of the shared memory of each connection; 0 for none.
        opens: how often the other side can open it.
    """

    delay: tuple[float, float] = (0.0, 0.001)
    reconnect: tuple[float, float] = (0.01, 0.1)
    knows: float = 1.0
    shared_memory: int = 0
    opens: float = 1.0


Message = tuple[bytes, bytes | None]


@dataclass
class Lane:
    """One direction of a wire.

    Attributes:
        flight: what is under way, each with when it arrives.
        stalled: whether nothing arrives.
        last: when the last message arrives.
    """

    flight: deque[tuple[float, Message]] = field(default_factory=deque)
    stalled: bool = False
    last: float = 0.0


class Wire:
    """What one node has dialled.

    Attributes:
        connection: as the dialler calls it.
        guest: as the other end calls it now; None while it is not connected.
        target: the name of the other end.
        there: the process at the other end; None while it is not connected.
        waiting: what was sent while it was not connected.
    """

    def __init__(self, network: Network, dialler: SimTransport, target: str, connection: Connection) -> None:
        self.network = network
        self.dialler: SimTransport | None = dialler
        self.target = target
        self.connection = connection
        self.guest: Connection | None = None
        self.there: SimTransport | None = None
        self.waiting: deque[Message] = deque()
        self.dead = False  # nothing will arrive any more, and nobody is told
        self.lanes = (Lane(), Lane())  # to the other end, and back

    def connect(self) -> None:
        """Connects if it can, else tries again later."""
        if self.dialler is None or self.there is not None:
            return
        process = self.network.processes.get(self.target)
        if process is None:
            self.network.later(self.network.manner.reconnect, self.connect)
            return
        self.there = process
        self.guest = ("guest", self.network.number())
        process.guests[self.guest] = self
        while self.waiting:
            self.put(0, self.waiting.popleft())

    def put(self, way: int, message: Message) -> None:
        """Sends a message one way."""
        lane, clock = self.lanes[way], self.network.clock
        if lane.flight and self.network.random.random() < 0.2:
            lane.last += 1e-6  # in the wake of the one before
        else:
            lane.last = max(lane.last, clock.now + self.network.drawn(self.network.manner.delay))
        if self.dead:
            return
        lane.flight.append((lane.last, message))
        clock.at(lane.last, lambda: self.deliver(way))

    def deliver(self, way: int) -> None:
        """Lets arrive what is due."""
        lane = self.lanes[way]
        end, connection = (self.there, self.guest) if way == 0 else (self.dialler, self.connection)
        while lane.flight and lane.flight[0][0] <= self.network.clock.now and not lane.stalled:
            _, message = lane.flight.popleft()
            if end is not None:
                end.take(connection, message)

    def stall(self, ways: tuple[int, ...]) -> None:
        """From now on nothing arrives, either way or both."""
        for way in ways:
            self.lanes[way].stalled = True

    def heal(self) -> None:
        """What was held up arrives."""
        if self.dead:
            return
        for way, lane in enumerate(self.lanes):
            if lane.stalled:
                lane.stalled = False
                self.deliver(way)

    def dies(self) -> None:
        """From now on all is lost, as behind a router that has forgotten the connection."""
        self.dead = True
        for lane in self.lanes:
            lane.flight.clear()

    def cut(self) -> None:
        """Loses what is under way from some message on, and the guest with it."""
        for way, lane in enumerate(self.lanes):
            lost = self.network.random.randint(0, len(lane.flight))
            for _ in range(lost):
                lane.flight.pop()
            lane.stalled = False
            due, lane.flight = lane.flight, deque((0.0, message) for _, message in lane.flight)
            if due:
                self.deliver(way)
            lane.last = 0.0
        if self.there is not None and self.guest is not None:
            self.there.guests.pop(self.guest, None)
        self.there = self.guest = None

    def breaks(self) -> None:
        """The connection breaks, and comes again later."""
        if not self.dead and self.there is not None:
            self.cut()
            self.network.later(self.network.manner.reconnect, self.connect)

    def ends(self) -> None:
        """The dialler has hung up, or is dead."""
        self.dialler = None
        self.waiting.clear()
        self.cut()
        self.network.wires.discard(self.connection)


class Network:
    """All wires between the nodes.

    Args:
        clock: the time.
        random: where all chance comes from.
        manner: how it behaves.

    Attributes:
        processes: node → its process's end; not there while the node is dead.
        wires: what is dialled now.
        arenas: shared memory, by name.
    """

    def __init__(self, clock: Clock, random: Random, manner: Manner) -> None:
        self.clock = clock
        self.random = random
        self.manner = manner
        self.processes: dict[str, SimTransport] = {}
        self.wires: _Wires = _Wires()
        self.arenas: dict[str, Any] = {}
        self._numbers = count()

    def number(self) -> int:
        """One that nothing else has."""
        return next(self._numbers)

    def drawn(self, span: tuple[float, float]) -> float:
        """A number of a span."""
        return self.random.uniform(*span)

    def later(self, span: tuple[float, float], call: Callable[[], None]) -> None:
        """Calls within a span of time from now."""
        self.clock.at(self.clock.now + self.drawn(span), call)

    def heal(self) -> None:
        """Nothing is held up any more."""
        for wire in self.wires.listed():
            wire.heal()


class _Wires:
    """Wires in the order dialled."""

    def __init__(self) -> None:
        self._wires: dict[Connection, Wire] = {}

    def add(self, wire: Wire) -> None:
        self._wires[wire.connection] = wire

    def discard(self, connection: Connection) -> None:
        self._wires.pop(connection, None)

    def get(self, connection: Connection) -> Wire | None:
        return self._wires.get(connection)

    def listed(self) -> list[Wire]:
        return list(self._wires.values())


class SimTransport(Remote):
    """A process's end of the network; a ``Transport``.

    Args:
        name: the node's name.
        network: the network.
        wake: called when something has come.

    Attributes:
        inbox: what has come, each with its connection.
        guests: what others have dialled, by the name it has here.
        sends_left: messages that are still sent before the process dies; None for any number.
    """

    def __init__(self, name: str, network: Network, wake: Callable[[], None]) -> None:
        self.name = name
        self.network = network
        self.inbox: deque[tuple[Connection, bytes, bytes | None]] = deque()
        self.guests: dict[Connection, Wire] = {}
        self.sends_left: int | None = None
        self._wake = wake
        self._sharing: dict[Connection, Sharing] = {}
        network.processes[name] = self

    def take(self, connection: Connection, message: Message) -> None:
        """A message has come."""
        self.inbox.append((connection, *message))
        self._wake()

    def die(self) -> None:
        """The process ends: its wires too, and those of others to it break."""
        self._wake = lambda: None
        if self.network.processes.get(self.name) is self:
            del self.network.processes[self.name]
        for wire in self.network.wires.listed():
            if wire.dialler is self:
                wire.ends()
            elif wire.there is self:
                wire.breaks()
        self.inbox.clear()

    # --- the transport of the links

    def dial(self, peer: str, contact: str) -> Connection:
        if not contact.startswith("sim://"):
            raise LinkError(f"contact {contact!r}: expected sim://NAME")
        connection = ("dialled", self.network.number())
        wire = Wire(self.network, self, contact.removeprefix("sim://"), connection)
        self.network.wires.add(wire)
        self.network.later(self.network.manner.delay, wire.connect)
        return connection

    def send(self, connection: Connection, header: bytes, body: memoryview | None = None) -> bool:
        if self.sends_left is not None:
            self.sends_left -= 1
            if self.sends_left < 0:
                raise Killed
        message = (header, None if body is None else bytes(body))
        wire = self.network.wires.get(connection)
        if wire is not None and wire.dialler is self:
            if wire.there is None:
                wire.waiting.append(message)
            else:
                wire.put(0, message)
            return True
        guest = self.guests.get(connection)
        if guest is None:
            return self.network.random.random() >= self.network.manner.knows
        guest.put(1, message)
        return True

    def hang_up(self, connection: Connection) -> None:
        sharing = self._sharing.pop(connection, None)
        if sharing is not None:
            sharing.close()
        wire = self.network.wires.get(connection)
        if wire is not None and wire.dialler is self:
            wire.ends()
            self.inbox = deque(entry for entry in self.inbox if entry[0] != connection)

    def proven_name(self, connection: Connection) -> str | None:
        return None

    # --- shared memory

    def _shares(self, connection: Connection) -> Sharing:
        sharing = self._sharing.get(connection)
        if sharing is None:
            sharing = self._sharing[connection] = Sharing(self.network)
        return sharing

    def share(self, connection: Connection) -> tuple[str, int, bytes] | None:
        return self._shares(connection).offer()

    def shared(self, connection: Connection, opened: bool) -> None:
        self._shares(connection).opened(opened)

    def place(self, connection: Connection, body: memoryview) -> list[int] | None:
        return self._shares(connection).place(body)

    def release(self, connection: Connection, blocks: list[int]) -> None:
        self._shares(connection).release(blocks)

    def open_share(self, connection: Connection, name: str, size: int, nonce: bytes) -> bool:
        return self._shares(connection).open(name)

    def view(self, connection: Connection, place: list[int]) -> Any:
        return self._shares(connection).view(place)

    def keep(self, connection: Connection, block: int, start: int, stop: int) -> None:
        """Nobody here writes to what is in use."""

    def released(self, connection: Connection) -> list[int]:
        sharing = self._sharing.get(connection)
        return [] if sharing is None else sharing.released()
