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
