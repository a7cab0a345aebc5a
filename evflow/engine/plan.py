"""The plan: for events of one schema at one stone, the native pass that takes them as far as it can.

Neighbouring compiled stones become one kernel, a tree of stages. It ends at exits, each of which leads to
the stones that come next: those that are Python, that are frozen, or that take these events only
after a conversion in Python. Passing stones (source, split) vanish into the exits and are only counted.

A stone that comes while the graph runs is a pass of its own at first, so that only its function is compiled
while somebody waits for the change; see ``Slot.separate``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from msgspec import Struct, field

from evflow.codgen.kernel import Kernel, Port, Stage, kernel
from evflow.codgen.runtime import kept_state, layout_of, new_state
from evflow.codgen.tree import Function
from evflow.engine.topology import DROPPED, IN, OUT, Slot, Topology
from evflow.errors import CodeError, SchemaError
from evflow.graph.placed import Link
from evflow.schema import Schema
from evflow.stone import Acting, Compiled, Passing

if TYPE_CHECKING:
    from evflow.codgen.kernel import Result

_MOST_KNOWN = 8
"""Schemas of events for which a stone's function is known; peers may bring any number."""

_MAX_STAGES = 64
_MAX_DEPTH = 32
_MAX_NODES = 50_000
"""Nodes of the functions of one pass: many small functions are one pass, large ones have one each."""


class Hop(NamedTuple):
    """Where events go on: a stone, and the input that takes them ("" for the best fit)."""

    slot: Slot
    input: str


class Meter(Struct, frozen=True):
    """A passing stone, and what tells how many events went through it: a stage, an exit, or else all."""

    slot: Slot
    stage: int | None
    exit: int | None


class Route(Struct):
    """What happens to events of one schema at one stone.

    Attributes:
        kernel: the native pass, or None where the events go straight to the exits.
        stages: for each stage of the kernel its stone, and whether it is the stone itself and not a step
            before.
        exits: for each exit the stones that come next.
        direct: the stones that get the arriving events as they are.
        meters: the passing stones on the way.
        system: names of the system values that the functions read.
        parted: whether stones that are ``separate`` have a pass of their own.
        spent: what was spent by that, in events.
        names: the stones on which it depends.
    """

    kernel: Kernel | None = None
    stages: list[tuple[Slot, bool]] = field(default_factory=list)
    exits: list[list[Hop]] = field(default_factory=list)
    direct: list[Hop] = field(default_factory=list)
    meters: list[Meter] = field(default_factory=list)
    system: frozenset[str] = frozenset()
    parted: bool = False
    spent: int = 0
    names: frozenset[str] = frozenset()

    @property
    def states(self) -> list[np.ndarray[Any, np.dtype[np.uint8]]]:
        """The statics of each stage, as the kernel takes them."""
        return [_EMPTY if not own or slot.state is None else slot.state for slot, own in self.stages]

    @property
    def stone_attributes(self) -> list[Mapping[str, int | float | str]]:
        """The stone attributes of each stage."""
        return [slot.attributes for slot, _ in self.stages]


_EMPTY = np.zeros(0, np.uint8)


def plan_route(
    entry: Slot, schema: Schema, topology: Topology, only: str = "", *, whole: bool = False
) -> Route:
    """The route of events that arrive at a passing or compiled stone.

    Args:
        entry: the stone.
        schema: the schema of the events.
        topology: the stones behind it.
        only: the input of ``entry`` that takes them; "" for the best fit.
        whole: whether stones that are ``separate`` become a part of the pass.

    Raises:
        SchemaError: the stone takes no such events.
        CodeError: its function cannot be compiled for them.
    """
    builder = _Builder(topology, whole)
    if isinstance(entry.stone, Passing):
        reach = builder.reach([Link("", 0, entry.name)], schema, 0)
        builder.meter(reach, None)
        return builder.route(reach.stages, schema, reach.ends)
    return builder.route([builder.stage(entry, schema, only, 0)], schema, [])


class _Reach(Struct):
    """What events get to from a port: stages, the stones that end the pass, and passing stones crossed."""

    stages: list[Stage] = field(default_factory=list)
    ends: list[Hop] = field(default_factory=list)
    crossed: list[Slot] = field(default_factory=list)


class _Builder:
    def __init__(self, topology: Topology, whole: bool) -> None:
        self._slots, self._morphs = topology.slots, topology.morphs
        self._whole, self._parted = whole, False
        self._stages: list[tuple[Slot, bool]] = []
        self._functions: list[Function] = []
        self._nodes = 0
        self._exits: list[list[Hop]] = []
        self._meters: list[Meter] = []
        self._names: set[str] = set()

    def route(self, stages: list[Stage], schema: Schema, direct: list[Hop]) -> Route:
        system = frozenset(name for function in self._functions for name in function.system)
        compiled = kernel(tuple(stages), schema) if stages else None
        return Route(
            compiled,
            self._stages,
            self._exits,
            direct,
            self._meters,
            system,
            self._parted,
            names=frozenset(self._names),
        )

    def reach(self, links: Sequence[Link], schema: Schema, depth: int, fuse: bool = True) -> _Reach:
        """What events of ``schema`` get to over these links; with ``fuse`` as far as compiled stones go."""
        reach = _Reach()
        todo = list(links)[::-1]
        while todo:
            link = todo.pop()
            self._names.add(link.target)
            hop = Hop(self._slots[link.target], link.input)
            if hop.slot.frozen or isinstance(hop.slot.stone, Acting):
                reach.ends.append(hop)
            elif isinstance(hop.slot.stone, Passing):
                reach.crossed.append(hop.slot)
                todo.extend(hop.slot.ports.get(0, [])[::-1])
            else:
                stage = self._try_stage(hop, schema, depth) if fuse and not self._apart(hop.slot) else None
                if stage is None:
                    reach.ends.append(hop)
                else:
                    reach.stages.append(stage)
        return reach

    def _apart(self, slot: Slot) -> bool:
        """Whether a stone has a pass of its own."""
        apart = slot.separate and not self._whole
        self._parted = self._parted or apart
        return apart

    def meter(self, reach: _Reach, exit_: int | None) -> None:
        """Notes what will tell the counts of the passing stones crossed."""
        stage = reach.stages[0].stone if reach.stages else None
        self._meters.extend(Meter(slot, stage, exit_) for slot in reach.crossed)

    def _port(self, links: Sequence[Link], schema: Schema, depth: int, fuse: bool) -> Port:
        reach = self.reach(links, schema, depth, fuse)
        exit_ = None
        if reach.ends or (reach.crossed and not reach.stages):
            exit_ = len(self._exits)
            self._exits.append(reach.ends)
        self.meter(reach, exit_)
        return Port(tuple(reach.stages), exit_)

    def _try_stage(self, hop: Hop, schema: Schema, depth: int) -> Stage | None:
        if depth >= _MAX_DEPTH or len(self._stages) >= _MAX_STAGES or self._nodes > _MAX_NODES:
            return None
        try:
            return self.stage(hop.slot, schema, hop.input, depth)
        except (SchemaError, CodeError):
            # The stone's own entry reports why, and the events become dead letters there.
            return None

    def stage(self, slot: Slot, schema: Schema, only: str, depth: int) -> Stage:
        """A compiled stone as a stage, after whatever its input needs first."""
        assert isinstance(slot.stone, Compiled)
        self._names.add(slot.name)
        key = schema.fingerprint, only
        known = slot.functions.get(key)
        if known is None:
            if len(slot.functions) >= _MOST_KNOWN:
                slot.functions.clear()
            known = slot.functions[key] = self._functions_of(slot, slot.stone, schema, only)
        own, before = known
        if before is None:
            return self._own(slot, own, schema, depth)
        index = self._add(slot, before, False)
        return Stage(before, index, (Port((self._own(slot, own, before.outputs[0][1], depth),)),))

    def _functions_of(
        self, slot: Slot, stone: Compiled, schema: Schema, only: str
    ) -> tuple[Function, Function | None]:
        """A stone's function for events of a schema, and that of the morph that they need first."""
        fit = slot.fit(schema, self._morphs, only)
        if fit.morph is None:
            return stone.function(fit.declared, schema), None
        return stone.function(fit.declared, fit.morph.old), fit.morph.function(schema)

    def _add(self, slot: Slot, function: Function, own: bool) -> int:
        self._stages.append((slot, own))
        self._functions.append(function)
        self._nodes += len(function.nodes)
        return len(self._stages) - 1

    def _own(self, slot: Slot, function: Function, schema: Schema, depth: int) -> Stage:
        index = self._add(slot, function, True)
        layout = layout_of(function)
        if slot.state is None or slot.restored or slot.layout != layout:
            kept = None if slot.state is None else kept_state(function, slot.state, slot.layout)
            slot.state, slot.layout, slot.restored = (
                new_state(function) if kept is None else kept,
                layout,
                False,
            )
        leaving = function.outputs[0][1] if function.outputs else schema
        # Events of two schemas may leave such a stone by one port, so what follows is planned on its own.
        fuse = not (function.outputs and None in function.sent) and not self._apart(slot)
        ports = [
            self._port(slot.ports[n], leaving, depth + 1, fuse) if n in slot.ports else Port()
            for n in range(max(slot.ports, default=-1) + 1)
        ]
        return Stage(function, index, tuple(ports))


def count_passing(meter: Meter, result: Result | None, arrived: int) -> None:
    """Counts the events that have gone through a passing stone.

    Args:
        meter: says how many these are.
        result: of the route's kernel, if it has one.
        arrived: events that arrived at the route.
    """
    if result is not None and meter.stage is not None:
        arrived = int(result.counts[meter.stage, IN])
    elif result is not None and meter.exit is not None:
        arrived = sum(len(segment) for segment in result.exits[meter.exit])
    meter.slot.counts[IN] += arrived
    targets = len(meter.slot.ports.get(0, ()))
    meter.slot.counts[OUT] += arrived * targets
    if not targets:
        meter.slot.counts[DROPPED] += arrived
