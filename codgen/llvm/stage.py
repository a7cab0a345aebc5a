"""A tree of compiled stones, as the kernel takes it, and what can be said of it before any code is written.

``Stage`` and ``Port`` are the description. ``Routes`` is its flat form: a ``Node`` for each stage at its
place, the buffers that events come from, and for each exit what can reach it. Buffer 0 is the input batch;
each output of a function at its place has a buffer of its own.
"""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

from msgspec import Struct

from evflow.codgen.costs import is_quiet
from evflow.codgen.tree import Function
from evflow.errors import GraphError
from evflow.schema import Schema


class Port(Struct, frozen=True):
    """Where an output port leads: the same event goes to every stage, in order, and then to the exit.

    A port with neither is not linked: what is sent there is dropped and counted.
    """

    stages: tuple[Stage, ...] = ()
    exit: int | None = None

    @property
    def linked(self) -> bool:
        """Whether it leads anywhere."""
        return bool(self.stages) or self.exit is not None


class Stage(Struct, frozen=True):
    """One compiled stone in a chain.

    Attributes:
        function: what it runs, of kind "filter", "transform" or "router".
        stone: index of its counts and its state.
        ports: where its output ports lead, by number; what is sent to a port beyond them is dropped and
            counted.
    """

    function: Function
    stone: int
    ports: tuple[Port, ...] = ()


class Buffer(Struct, frozen=True):
    """Where records are while the kernel runs.

    Attributes:
        schema: of its records; None only for an input batch whose stages look at attributes alone.
        single: whether at most one record comes of each input event.
        every: whether exactly the records of this buffer, all of them, go out of the one port they are sent
            to.
    """

    schema: Schema | None
    single: bool = True
    every: bool = False


class Link(NamedTuple):
    """Where records of one buffer go that are sent to one port."""

    nodes: tuple[Node, ...]
    exit: int | None


class Node:
    """A stage at its place in the tree.

    Attributes:
        number: counts the nodes, parents first.
        stage: the description.
        function: that of the stage.
        buffer: where the events are that it sees.
        entry: whether it sees the input events.
        sends_once: whether it sends an event at most once to a port for each input event.
        quiet: whether its function runs without harm for an event that did not get here (``costs.is_quiet``).
        follows: the number of the filter before it, which sends here what passes and nothing else.
        inherited: attributes that may have been set on the way here, with the number of the node last to.
        changed: ``inherited`` as it is for what leaves the node.
        outputs: the buffer of each of its function's outputs.
        links: (port, buffer) → where that goes; ports that are not linked are absent.
    """

    def __init__(self, number: int, stage: Stage, buffer: int, before: Node | None) -> None:
        self.number = number
        self.stage = stage
        self.function = stage.function
        self.buffer = buffer
        self.entry = before is None
        self.sends_once: bool = (before is None or before.sends_once) and not self.function.sent
        filtered = before is not None and before.function.kind == "filter" and not before.function.sent
        self.follows = before.number if before is not None and filtered else None
        self.inherited: dict[str, int] = {} if before is None else before.changed
        self.changed: dict[str, int] = {**self.inherited, **dict.fromkeys(self.function.sets, number)}
        self.outputs: tuple[int, ...] = ()
        self.links: dict[tuple[int, int], Link] = {}

    @cached_property
    def quiet(self) -> bool:
        """See above; a filter that is alone is never asked."""
        return is_quiet(self.function)

    @property
    def passed_on(self) -> int:
        """The buffer of what the function's result sends on."""
        return self.outputs[0] if self.function.kind == "transform" else self.buffer

    def sources(self, port: int) -> list[int]:
        """The buffers whose records the function may send to a port."""
        found = [self.passed_on] if self.function.kind == "router" or port == 0 else []
        for slot, ports in self.function.sent.items():
            if port in ports or None in ports:
                found.append(self.buffer if slot is None else self.outputs[slot])
        return list(dict.fromkeys(found))


class Routes:
    """The flat form of a tree.

    Args:
        stages: the stages that see the input events, each of them all events, in order.
        schema: the schema of the input events, or None if they are looked at by their attributes alone.

    Raises:
        GraphError: a stage was compiled for another schema than that of the events it would see.
    """

    def __init__(self, stages: tuple[Stage, ...], schema: Schema | None) -> None:
        self.nodes: list[Node] = []
        self.buffers: list[Buffer] = [Buffer(schema)]
        every = _all(stages)
        exits = [port.exit for stage in every for port in stage.ports if port.exit is not None]
        # For each exit the nodes that send there, and the buffers of what they send.
        self.exits: list[list[tuple[Node, int]]] = [[] for _ in range(1 + max(exits, default=-1))]
        self._forms: dict[int, str] = {}
        self.entry = tuple(self._node(stage, 0, None) for stage in stages)
        self.stones = 1 + max([stage.stone for stage in every], default=-1)

    @property
    def lone_filter(self) -> bool:
        """Whether all is one filter that sets and submits nothing, and what passes leaves by the one exit."""
        if len(self.nodes) != 1 or self.stones != 1:
            return False
        function = self.nodes[0].function
        simple = function.kind == "filter" and not function.sent and not function.sets
        return simple and (not self.exits or (len(self.exits) == 1 and bool(self.exits[0])))

    def form(self, exit: int) -> str:
        """How an exit's arrivals are noted.

        "whole": not at all, they are all records of one buffer; "rows": row numbers (of buffer 0 positions),
        at most one for each input event and way; "mixed": row numbers with the buffer in the high half.
        """
        known = self._forms.get(exit)
        if known is None:
            known = self._forms[exit] = self._form(exit)
        return known

    def _form(self, exit: int) -> str:
        (node, buffer), *others = self.exits[exit]
        if not others and self.buffers[buffer].every and buffer in node.outputs:
            return "whole"
        return "rows" if all(n.sends_once and b == buffer for n, b in self.exits[exit]) else "mixed"

    def attributes(self, exit: int) -> tuple[str, ...]:
        """Attributes that may have been set on a way to an exit."""
        return tuple(dict.fromkeys(name for node, _ in self.exits[exit] for name in node.changed))

    def notes_rows(self, exit: int) -> bool:
        """Whether row numbers are all that is noted at an exit."""
        return self.form(exit) == "rows" and not self.attributes(exit)

    def _node(self, stage: Stage, buffer: int, before: Node | None) -> Node:
        _check(stage, self.buffers[buffer].schema)
        node = Node(len(self.nodes), stage, buffer, before)
        self.nodes.append(node)
        node.outputs = tuple(self._output(node, slot) for slot in range(len(stage.function.outputs)))
        for number, port in enumerate(stage.ports):
            for source in node.sources(number) if port.linked else ():
                if port.exit is not None:
                    self.exits[port.exit].append((node, source))
                nodes = tuple(self._node(follower, source, node) for follower in port.stages)
                node.links[number, source] = Link(nodes, port.exit)
        return node

    def _output(self, node: Node, slot: int) -> int:
        ports = set(node.function.sent.get(slot, ()))
        if slot == 0 and node.function.kind == "transform":
            ports.add(0)
        every = len(ports) == 1 and None not in ports
        self.buffers.append(Buffer(node.function.outputs[slot][1], node.sends_once, every))
        return len(self.buffers) - 1


def _all(stages: tuple[Stage, ...]) -> list[Stage]:
    """Every stage of a tree, also those behind ports that nothing is sent to."""
    found = list(stages)
    for stage in found:
        for port in stage.ports:
            found += port.stages
    return found


def _check(stage: Stage, schema: Schema | None) -> None:
    function = stage.function
    if function.kind not in ("filter", "transform", "router"):
        raise GraphError(
            f"a kernel runs filters, transforms and routers, found a function of kind {function.kind!r}"
        )
    expected = function.inputs[0][1] if function.inputs else None
    if expected is not None and expected != schema:
        raise GraphError(
            f"stone {stage.stone}: its function was compiled for {expected!r}, but would see {schema!r}; "
            "compile it for the schema of the events that reach it"
        )
