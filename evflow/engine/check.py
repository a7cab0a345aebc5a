"""Checking a graph: every rule about names, links, cycles, types and functions, in one place.

A check reports everything that is wrong at once. On the way it finds, for each stone, which schemas
are expected to arrive, and that is what a stone without a declared input is compiled for.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import TYPE_CHECKING

from evflow.engine.topology import Slot, Topology, crossing_of
from evflow.errors import CodeError, EvflowError, GraphError
from evflow.graph.kinds import own_kind
from evflow.mishaps import CONTAINED, named
from evflow.schema import Schema
from evflow.stone import Acting, Compiled, Stone

if TYPE_CHECKING:
    from evflow.graph.graph import Graph

_MOST_PORT = 10_000


def check_graph(
    graph: Graph,
    checked: Callable[[Stone], bool] = lambda stone: True,
    *,
    running: bool = False,
    known: Topology | None = None,
) -> Topology:
    """Checks a graph; see ``Graph.check``.

    Args:
        graph: the graph.
        checked: whether a stone's own function and handlers are checked too; those that run elsewhere
            may need what only that host has.
        running: whether it runs already; then it may have no stone left, and a split no target: that drops
            what comes; and nothing need lead to a stone that takes what is linked to it.
        known: stones that were checked before. The function and the handlers of a stone that is the same, and
            gets the same schemas, are not checked again.

    Returns:
        Its stones and links, ready to be planned.
    """
    problems: list[EvflowError] = []
    problems.extend(_check_links(graph, running))
    problems.extend(_check_files(graph))
    topology = build_topology(graph)
    try:
        order = _order(topology)
    except GraphError as error:
        raise GraphError(*(str(p) for p in problems), str(error)) from None
    _propagate(order)
    before = known.slots if known is not None and known.morphs == topology.morphs else {}
    for slot in order:
        same = before.get(slot.name)
        if same is not None and same.stone is slot.stone and same.arrivals == slot.arrivals:
            continue
        # What nothing leads to any more waits to be linked again.
        if checked(slot.stone) and not (running and _is_idle(slot)):
            problems.extend(_check_stone(slot, topology))
    problems.extend(_check_rules(graph, topology, checked))
    if len(problems) == 1:
        raise problems[0]
    if problems:
        raise GraphError(*(str(p) for p in problems))
    return topology


def build_topology(graph: Graph) -> Topology:
    """The graph's stones as slots, linked; links to stones that are not there are left out."""
    slots = {name: Slot(name, stone) for name, stone in graph.stones.items()}
    for link in graph.links:
        if link.source in slots and link.target in slots:
            slots[link.source].ports.setdefault(link.port, []).append(link)
    crossings = {
        name: crossing for name, stone in graph.stones.items() if (crossing := crossing_of(stone)) is not None
    }
    entrances = frozenset(name for name, stone in graph.stones.items() if stone.entrance)
    return Topology(slots, tuple(graph.morphs), entrances, crossings)


def _check_links(graph: Graph, running: bool) -> list[EvflowError]:
    problems: list[EvflowError] = []
    if not graph.stones and not running:
        problems.append(GraphError(f"graph {graph.name} has no stones; begin with graph.source(…)"))
    for link in graph.links:
        for name in (link.source, link.target):
            if name not in graph.stones:
                problems.append(
                    GraphError(f"link {link.source!r} → {link.target!r}: there is no stone {name!r}")
                )
        if link.target in graph.stones and link.input and link.input not in graph.stones[link.target].inputs:
            problems.append(
                GraphError(f"link {link.source!r} → {link.target!r}: no input {link.input!r} there")
            )
        target = graph.stones.get(link.target)
        if target is not None and own_kind(target) in ("source", "generator"):
            problems.append(GraphError(f"link {link.source!r} → {link.target!r}: a source takes no links"))
    linked: dict[str, set[int]] = {}
    for link in graph.links:
        linked.setdefault(link.source, set()).add(link.port)
    for name, stone in graph.stones.items():
        ports = linked.get(name, set())
        if ports or not (running and own_kind(stone) == "split"):
            problems.extend(_check_ports(name, stone.kind, stone.linked_ports, ports))
    return problems


def _check_files(graph: Graph) -> list[EvflowError]:
    """Each file of its own: what one stone writes another would take for what it wrote itself."""
    problems: list[EvflowError] = []
    owners: dict[tuple[str | None, Path], str] = {}
    for name, stone in graph.stones.items():
        for file in stone.files:
            owner = owners.setdefault((stone.on, file.absolute()), name)
            if owner != name:
                problems.append(
                    GraphError(
                        f"stone {name!r}: file {file}: stone {owner!r} has it already; give it another one"
                    )
                )
    return problems


def _check_ports(name: str, kind: str, rule: str, ports: set[int]) -> list[EvflowError]:
    if rule == "none" and ports:
        return [GraphError(f"stone {name!r} ({kind}) has no output, but is linked to another stone")]
    if rule == "one" and ports != {0} and ports:
        extra = ", ".join(str(p) for p in sorted(ports - {0}))
        return [GraphError(f"stone {name!r} ({kind}) has output port 0 only; port {extra} is linked")]
    if rule not in ("none", "free") and not ports:
        return [
            GraphError(
                f"stone {name!r} ({kind}): its output leads nowhere; link it with '>>', if only to a Terminal"
            )
        ]
    if any(port < 0 for port in ports):
        return [GraphError(f"stone {name!r} ({kind}): port {min(ports)} is linked; ports count from 0")]
    if any(port > _MOST_PORT for port in ports):
        return [
            GraphError(f"stone {name!r} ({kind}): port {max(ports)} is linked; ports count to {_MOST_PORT}")
        ]
    return []


def _order(topology: Topology) -> list[Slot]:
    upstream: dict[str, set[str]] = {name: set() for name in topology.slots}
    for slot in topology.slots.values():
        for links in slot.ports.values():
            for link in links:
                upstream[link.target].add(slot.name)
    try:
        return [topology.slots[name] for name in TopologicalSorter(upstream).static_order()]
    except CycleError as error:
        cycle = " → ".join(error.args[1][::-1])
        raise GraphError(f"the links form a cycle: {cycle}; an event would never end") from None


def _propagate(order: list[Slot]) -> None:
    arriving: dict[str, dict[str, Schema | None]] = {slot.name: {} for slot in order}
    for slot in order:
        slot.arrivals = tuple(arriving[slot.name].values())
        leaving = [s for arrival in slot.arrivals or (None,) for s in slot.stone.emits(arrival)]
        for links in slot.ports.values():
            for link in links:
                for schema in leaving:
                    key = "" if schema is None else schema.fingerprint
                    arriving[link.target].setdefault(key, schema)


def _is_idle(slot: Slot) -> bool:
    declares_nothing = all(schema is None for schema in slot.stone.inputs.values())
    return isinstance(slot.stone, Compiled) and declares_nothing and not slot.arrivals


def _check_stone(slot: Slot, topology: Topology) -> list[EvflowError]:
    """What is wrong with a stone's function, or with what is linked to it."""
    where = f"stone {slot.name!r} ({slot.stone.kind})"
    problems: list[EvflowError] = []
    for work in _checks(slot, topology):
        try:
            work()
        except CodeError as error:
            problems.append(error.within(where))
        except EvflowError as error:
            problems.append(type(error)(f"{where}: {error}"))
        except CONTAINED as error:
            # A class of somebody else may raise anything.
            problem = GraphError(f"{where}: {named(error)}")
            problem.__cause__ = error
            problems.append(problem)
    return problems


def _check_rules(graph: Graph, topology: Topology, checked: Callable[[Stone], bool]) -> list[EvflowError]:
    """What is wrong with what is to be done when stones ask for reconfiguration."""
    problems: list[EvflowError] = []
    for rule in graph.rules.values():
        named = dict.fromkeys([rule.stone, *rule.targets])
        wrong = [f"there is no stone {name!r}" for name in named if name not in graph.stones]
        slot = topology.slots.get(rule.stone)
        if slot is not None and checked(slot.stone) and not _asks(slot):
            wrong.append(f"{rule.stone!r} never asks: its function has no reconfigure({rule.request})")
        for name in rule.move:
            if name in graph.stones and graph.stones[name].on is None:
                wrong.append(f"stone {name!r} is on no node, so it cannot move; place it with on=")
        problems.extend(GraphError(f"{rule.text}: {what}") for what in wrong)
    return problems


def _asks(slot: Slot) -> bool:
    try:
        return any(slot.stone.asks(schema) for schema in slot.arrivals or (None,))
    except EvflowError:
        return True  # what is wrong with the function is told where it is checked


def _checks(slot: Slot, topology: Topology) -> list[Callable[[], object]]:
    stone = slot.stone
    known = [schema for schema in slot.arrivals if schema is not None]
    fits = [partial(slot.fit, schema, topology.morphs) for schema in known]
    if isinstance(stone, Acting):
        return [stone.check, *fits, *(partial(stone.check_arrival, schema) for schema in known)]
    if not isinstance(stone, Compiled):
        return []
    declared = next(iter(stone.inputs.values()))
    if declared is not None:
        return [partial(stone.function, declared, declared), *fits]
    # Without a declared input the function is compiled for each schema that arrives.
    arriving: list[Schema | None] = [*known] or [None]
    return [partial(stone.function, schema, schema) for schema in arriving]
