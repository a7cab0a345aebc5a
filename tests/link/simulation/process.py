"""A simulated process: one node's engine and hub, and the loop that drives them as a flow's thread does."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from random import Random
from typing import TYPE_CHECKING

from evflow.engine.engine import Engine
from evflow.engine.letters import LetterBox
from evflow.engine.topology import Slot
from evflow.events.batch import EventBatch
from evflow.net.link.hub import Hub
from evflow.net.link.provenance import Provenance
from tests.link.simulation.moving import placed
from tests.link.simulation.network import Killed, SimTransport

if TYPE_CHECKING:
    from tests.link.simulation.world import World

__all__ = ["Failure", "MemoryJournal", "Process"]

_AT_ONCE = 64
_MOST_SPINS = 50
_MOST_DAWDLES = 8


class Failure(BaseException):
    """Something is not as it must be; nothing contains it."""


class MemoryJournal:
    """A ``Journal`` that outlives a process that is killed.

    Attributes:
        dies: called before and after what is saved is there; may raise ``Killed``.
    """

    def __init__(self) -> None:
        self._safe: dict[tuple[str, str, bytes], tuple[int, ...]] = {}
        self.dies: Callable[[], None] = lambda: None

    def load(self) -> dict[tuple[str, str], list[Provenance]]:
        found: dict[tuple[str, str], list[Provenance]] = {}
        for (bridge, stone, route), path in self._safe.items():
            found.setdefault((bridge, stone), []).append(Provenance(route, path))
        return found

    def save(
        self, safe: dict[tuple[str, str, bytes], tuple[int, ...]], gone: Sequence[tuple[str, bytes]]
    ) -> None:
        self.dies()
        left = {key: path for key, path in self._safe.items() if (key[0], key[2]) not in gone}
        self._safe = left | safe
        self.dies()

    def forget(self, stone: str) -> None:
        self.dies()
        self._safe = {key: path for key, path in self._safe.items() if key[1] != stone}
        self.dies()


class Away:
    """Stands for a stone's own code, which may take long: the links are served meanwhile.

    Args:
        process: whose stones these are.
    """

    def __init__(self, process: Process) -> None:
        self._process = process
        self._left = _MOST_DAWDLES

    def __enter__(self) -> None:
        self._maybe()

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if error is None:
            self._maybe()

    def _maybe(self) -> None:
        process = self._process
        pace = process.world.pace
        if self._left and pace.random() < process.world.dawdles:
            self._left -= 1
            process.dawdle(pace.random() ** 4 * 6 * process.world.setting.heartbeat)


class Process:
    """One life of a node.

    Args:
        name: the node's name.
        world: everything else.
        journal: what outlives it, or None.

    Attributes:
        backlog: what was submitted at its sources and not taken yet, in order, by source.
        tasks: what is to be done between two runs.
        at_risk: what its terminals have handled since the last turn that came to its end.
        doomed: whether it dies within the next turn.
        dies: called when it is killed.
    """

    def __init__(self, name: str, world: World, journal: MemoryJournal | None) -> None:
        self.name = name
        self.world = world
        self.random: Random = world.random
        self.alive = True
        self.doomed = False
        self.dies: Callable[[], None] = lambda: None
        self.backlog: dict[str, deque[EventBatch]] = {}
        self.tasks: deque[Callable[[Process], object]] = deque()
        self.at_risk: list[tuple[str, int, int, int]] = []
        self._woken = self._away = False
        self._timer = float("inf")
        self._spins, self._due = 0, 0.0
        setting = world.setting
        self.transport = SimTransport(name, world.network, self.wake)
        self.hub = Hub(
            name,
            self.transport,
            self.random.randbytes,
            contact=f"sim://{name}" if setting.told else "",
            heartbeat=setting.heartbeat,
            window=setting.window,
            memory=setting.memory,
            journal=journal,
        )
        self.hub.report = self._report  # type: ignore[method-assign]
        for peer in world.nodes:
            if peer != name:
                self.hub.peer(peer, f"sim://{peer}")
        topology = placed(world.graph, name)
        self.letters = LetterBox(100, lambda stone, batch, timeout: None)

        def sender(slot: Slot) -> Callable[[EventBatch], None] | None:
            crossing = topology.crossings.get(slot.name)
            return None if crossing is None else self.hub.sender(slot, crossing)

        self.engine = Engine(topology, self.letters, sender)
        if world.dawdles:
            self.engine.away = Away(self)
        self.hub.attach(self.engine, {n: topology.slots[n] for n in topology.entrances}, self.run)

    def wake(self) -> None:
        """Has a turn soon."""
        if not self._woken and self.alive:
            self._woken = True
            clock = self.world.clock
            clock.at(clock.now + self.random.random() * self.world.setting.latency, self._turn)

    def dawdle(self, seconds: float) -> None:
        """Lets time pass within a turn; the links are served all the while.

        Raises:
            Killed: the process was killed meanwhile.
        """
        clock = self.world.clock
        end = clock.now + seconds
        self._away = True
        self._serve_on()
        while self.alive and clock.now < end:
            clock.at(end, lambda: None)
            clock.step()
        self._away = False
        if not self.alive:
            raise Killed

    def _serve_on(self) -> None:
        """Serves the links from time to time as long as it is away; others may be so within this time."""
        if self._away and self.alive:
            try:
                self._serve()
            except Killed:
                self.world.kill(self)
                return
            self.world.clock.at(self.world.clock.now + self.hub.heartbeat / 8, self._serve_on)

    def _report(self, peer: str, reason: str, expected: bool = False) -> None:
        # On a slow network a link may be given up for no other reason than that both have dialled.
        calm = not self.world.setting.faults and not self.world.move
        quick = self.world.network.manner.delay[1] < min(0.1, self.hub.heartbeat / 2)
        if calm and quick and "silent" in reason:
            raise Failure(f"node {self.name}: link to {peer}: {reason}, and nothing has gone wrong")

    def _serve(self) -> None:
        with self.hub.serving:
            for _ in range(min(len(self.transport.inbox), _AT_ONCE)):
                if self.transport.inbox:
                    self.hub.receive(*self.transport.inbox.popleft(), self.world.clock.now)
            self.hub.finish(self.world.clock.now)

    def _turn(self) -> None:
        self._woken = False
        # One that is away looks for itself what is to be done once it is back.
        if not self.alive or self._away:
            return
        try:
            self._work()
        except Killed:
            if self.alive:
                self.world.kill(self)
            return
        self.at_risk.clear()
        self.world.check_turn(self)
        self._sleep()

    def _work(self) -> None:
        inbox = self.transport.inbox
        task = self.tasks.popleft() if self.tasks else None
        for _ in range(min(len(inbox), _AT_ONCE)):
            if self.transport.inbox:
                connection, header, body = self.transport.inbox.popleft()
                # A stone may have taken long since the last one.
                self.hub.receive(connection, header, body, self.world.clock.now)
        self.run()
        self._take()
        if task is not None:
            task(self)
            self.run()
        if self.doomed:
            raise Killed
        self._due = self.hub.finish(self.world.clock.now)

    def run(self) -> None:
        """Moves events until none moves any more."""
        self.engine.run()
        self.hub.delivery.settle_actors(self.engine.emitted())

    def _take(self) -> None:
        for name, batches in self.backlog.items():
            slot = self.engine.topology.slots[name]
            while batches and not self.hub.downstream.blocked(slot):
                self.engine.submit(slot, batches.popleft())
                self.run()

    def _sleep(self) -> None:
        clock, slots, blocked = self.world.clock, self.engine.topology.slots, self.hub.downstream.blocked
        ready = (batches and not blocked(slots[name]) for name, batches in self.backlog.items())
        if self.transport.inbox or self.tasks or any(ready):
            self.wake()
        due = self._due
        if due <= clock.now:
            self._spins += 1
            if self._spins > _MOST_SPINS:
                raise Failure(f"node {self.name} does not sleep: it is due at {due}, and that is past")
            due = clock.now + 0.001
        if due < self._timer:
            self._timer = due
            clock.at(due, lambda: self._timed(due))

    def _timed(self, due: float) -> None:
        if self._timer == due:
            self._timer = float("inf")
        self.wake()

    @property
    def quiet(self) -> bool:
        """Whether nothing is to be done for any event."""
        hub = self.hub
        inlets = [*hub.remote_inputs.inlets.values(), *hub.remote_inputs.former]
        return (
            not any(self.backlog.values())
            and not hub.owes
            and not hub.retired
            # What is delivered at most once may be lost until the other side has told what came.
            and not any(outlet._sent for outlet in hub.outlets.values())
            and not any(inlet.queue or inlet.pending for inlet in inlets)
            and not any(slot.keeps_events for slot in self.engine.topology.slots.values())
        )

    def describe(self) -> str:
        """What it still has to do, for a failure."""
        hub = self.hub
        links = {peer: (link.state.value, link.trouble) for peer, link in hub.links.items()}
        inlets = [
            (i.bridge, i.received, i.consumed, i.safe, len(i.queue), len(i.pending))
            for i in hub.remote_inputs.inlets.values()
        ]
        waiting = {name: len(batches) for name, batches in self.backlog.items() if batches}
        refused = dict(hub.refused)
        return f"{self.name}: {waiting} {hub.troubles()} links {links} inlets {inlets} refused {refused}"
