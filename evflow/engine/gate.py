"""The filter that comes first behind a source, asked where events are taken in one by one.

An event that it rejects is not taken in at all: its numbers are at hand then, and neither its arrays were
copied nor anything else spent on it yet. What it passes goes the usual way, and meets the filter again.
"""

from __future__ import annotations

from msgspec import Struct

from evflow.codgen.gate import gate
from evflow.codgen.native import Native
from evflow.engine.topology import DROPPED, IN, OUT, Slot, Topology
from evflow.errors import CodeError, SchemaError
from evflow.schema import Schema
from evflow.stone import Compiled, Passing


class Gate(Struct, frozen=True):
    """A filter, and how events get to it.

    Attributes:
        code: see ``evflow.codgen.gate``.
        crossed: the passing stones before it.
        filter: the filter.
    """

    code: Native
    crossed: tuple[Slot, ...]
    filter: Slot

    def rejected(self, count: int) -> None:
        """Counts events that were not taken in."""
        for slot in self.crossed:
            slot.counts[IN] += count
            slot.counts[OUT] += count
        self.filter.counts[IN] += count
        self.filter.counts[DROPPED] += count


class Way(Struct, frozen=True):
    """The way that events take from a source to a bridge, where they arrive as they came.

    Attributes:
        crossed: the stones before the bridge.
        bridge: the bridge.
    """

    crossed: tuple[Slot, ...]
    bridge: Slot

    def passed(self, count: int) -> None:
        """Counts events that were sent over the bridge at once."""
        for slot in self.crossed:
            slot.counts[IN] += count
            slot.counts[OUT] += count
        self.bridge.counts[IN] += count


def way_of(slot: Slot, schema: Schema, topology: Topology, gate: Gate | None) -> Way | None:
    """The way of events of a schema that come in at a stone, and that a gate has passed.

    Returns:
        None if they get elsewhere than to one bridge, or not as they are.
    """
    crossed: list[Slot] = []
    input = ""
    while isinstance(slot.stone, Passing) or (gate is not None and slot is gate.filter):
        links = slot.ports.get(0, ())
        if slot.frozen or len(links) != 1 or slot in crossed:
            return None
        crossed.append(slot)
        slot, input = topology.slots[links[0].target], links[0].input
    if slot.frozen or slot.stalled or not slot.sends:
        return None
    try:
        fit = slot.fit(schema, topology.morphs, input)
    except (SchemaError, CodeError):
        return None
    return Way(tuple(crossed), slot) if fit.morph is None else None


def gate_of(slot: Slot, schema: Schema, topology: Topology) -> Gate | None:
    """The gate for events of a schema at a stone.

    Returns:
        None if they get elsewhere than to one filter, or it is not of the kind that can be asked before.
    """
    crossed: list[Slot] = []
    input = ""
    while isinstance(slot.stone, Passing):
        links = slot.ports.get(0, ())
        if slot.frozen or len(links) != 1 or slot in crossed:
            return None
        crossed.append(slot)
        slot, input = topology.slots[links[0].target], links[0].input
    stone = slot.stone
    if slot.frozen or not isinstance(stone, Compiled):
        return None
    try:
        fit = slot.fit(schema, topology.morphs, input)
        code = None if fit.morph else gate(stone.function(fit.declared, schema))
    except (SchemaError, CodeError):
        return None
    return None if code is None else Gate(code, tuple(crossed), slot)
