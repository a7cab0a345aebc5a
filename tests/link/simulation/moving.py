"""The stones of one node go to another while events flow: orderly, or because their node is given up."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from evflow.engine.change import Difference, adopt
from evflow.engine.check import check_graph
from evflow.engine.placement import placed_on
from evflow.engine.topology import DROPPED, Topology
from evflow.errors import GraphError
from evflow.events.batch import EventBatch
from evflow.net.link.provenance import pack_seen, unpack_seen

if TYPE_CHECKING:
    from evflow.graph.graph import Graph
    from tests.link.simulation.process import Process
    from tests.link.simulation.world import World

__all__ = ["Move", "placed"]

_LOOK = 0.005

_LEGS = {"back": [("B", "C"), ("C", "B")], "to D": [("B", "D")]}
"""Where the stones of B go, if not to C once."""


def placed(graph: Graph, node: str) -> Topology:
    """The stones of a node, which may be none."""
    try:
        return placed_on(check_graph(graph), node)
    except GraphError:
        return Topology({})


class Move:
    """Moves of the stones of B, made by hand in the order in which a deployment does it.

    Args:
        world: everything else.
        kind: "orderly" to C, "back" to C and back, "to D"; "given up" to C without B, which is killed for
            good, or cut off and told much later.

    Attributes:
        under_way: whether nobody may be killed now.
        done: whether everybody has done its part.
        dropped: events that bridges had dropped that are gone.
    """

    def __init__(self, world: World, kind: str) -> None:
        self.world = world
        self.under_way = False
        self.done = False
        self.dropped = 0
        self._orderly = kind != "given up"
        self._legs = deque(_LEGS.get(kind, [("B", "C")]))
        self._start, self._target = self._legs.popleft()
        self._left: set[str] = set()
        part = placed(world.graph, "B")
        self._stones, self._entries, self._bridges = set(part.slots), set(part.entrances), set(part.crossings)
        self._seen: list[bytes] = []
        self._held: list[tuple[str, EventBatch]] = []

    def begin(self) -> None:
        """The move begins, once everybody lives; if B is given up, at once."""
        world = self.world
        if not self._orderly:
            self._give_up()
        elif len(world.alive) < len(world.nodes):
            world.network.later((0.0, 0.5), self.begin)
        else:
            self.under_way = True
            world.disarm()
            self._on(self._start, self._close)

    # --- orderly

    def _close(self, b: Process) -> None:
        b.hub.downstream.close(self._entries)
        self._look(b)

    def _look(self, b: Process) -> None:
        if b.hub.waiting_for(self._entries, self._bridges):
            self.world.clock.at(self.world.clock.now + _LOOK, lambda: self._on(self._start, self._look))
            return
        self._seen = [pack_seen(name, b.hub.delivery.seen(name)) for name in sorted(self._entries)]
        slots = b.engine.topology.slots
        self._held = [
            (name, batch) for name in sorted(self._stones) for batch in b.engine.extract(slots[name])
        ]
        self._decide()
        self._leave(b)
        b.hub.downstream.open(self._entries)

    def _leave(self, b: Process) -> None:
        slots = dict(b.engine.topology.slots)
        made = self._adopt(b)
        self.dropped += sum(int(slots[name].counts[DROPPED]) for name in made.vanishing)
        self._did(self._start)

    # --- by the others

    def _decide(self) -> None:
        """From now on everybody knows where the stones belong, also who starts anew."""
        world = self.world
        for name in self._stones:
            world.graph.stones[name].on = self._target
        self._left = {"A", self._start, self._target}
        for node, part in (("A", self._readdress), (self._target, self._arrive)):
            world.network.later((0.0, world.random.choice((0.001, 0.5))), self._task(node, part))

    def _task(self, node: str, part: Callable[[Process], None]) -> Callable[[], None]:
        return lambda: self._on(node, part)

    def _on(self, node: str, part: Callable[[Process], None]) -> None:
        process = self.world.alive.get(node)
        if process is None:
            # It has found its new part when it started again, or will.
            self._did(node)
        else:
            process.tasks.append(part)
            process.dies = lambda: self._did(node)
            process.wake()

    def _did(self, node: str) -> None:
        self._left.discard(node)
        if self._left:
            return
        self.under_way = False
        if self._legs:
            self._left = {"nobody"}
            self._start, self._target = self._legs.popleft()
            self.world.network.later((0.0, 3.0), self.begin)
        else:
            self.done = True

    def _adopt(self, process: Process) -> Difference:
        """Has a node run what is its part now."""

        def give_up(bridge: str, batch: EventBatch, reason: str) -> None:
            if self._orderly:
                self.world.wrong = f"{len(batch)} events were given up: {reason}"

        hub, slots = process.hub, process.engine.topology.slots
        made = adopt(
            process.engine, placed(self.world.graph, process.name), self._stones,
            lambda bridge: hub.drop(bridge, give_up), {},
        )  # fmt: skip
        slots = process.engine.topology.slots
        if process.name == self._target and self._stones & made.new:
            for name, batch in self._held:
                process.engine.submit(slots[name], batch)
            process.run()
        for name in sorted(made.left):
            hub.remote_inputs.leave(name, "it has moved")
        for name in sorted(made.entered):
            hub.remote_inputs.enter(name, slots[name])
        for bridge, crossing in made.readdressed.items():
            hub.readdress(bridge, crossing)
        return made

    def _readdress(self, a: Process) -> None:
        self._adopt(a)
        self._did("A")

    def _arrive(self, c: Process) -> None:
        if not self._stones <= c.engine.topology.slots.keys():
            for seen in self._seen:
                c.hub.delivery.learn(*unpack_seen(seen))
            self._adopt(c)
        self._did(self._target)

    # --- not orderly

    def _give_up(self) -> None:
        world, b = self.world, self.world.alive.get("B")
        if b is None or world.random.random() < 0.5:
            world.gone.add("B")
            if b is not None:
                world.kill(b)
            self._decide()
            self._did("B")
        else:
            self._decide()
            world.network.later((0.0, 3.0), self._task("B", self._leave))
