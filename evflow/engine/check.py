"""Checking a graph: every rule about names, links, cycles, types and functions, in one place.

A check reports everything that is wrong at once. On the way it finds, for each stone, which schemas
are expected to arrive, and that is what a stone without a declared input is compiled for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
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
    from evflow.graph.placed import Link

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
        known: what runs, which was checked before; what is the same there is not checked again.

    Returns:
        Its stones and links, ready to be planned; of stones that are the same the slots of ``known``.
    """
    if known is not None and known.morphs != tuple(graph.morphs):
        known = None
    before = {} if known is None else known.slots
    topology = build_topology(graph, known)
    changed = {name for name, slot in topology.slots.items() if before.get(name) is not slot}
    problems = [*_check_links(graph, running, changed), *_check_files(graph, changed)]
    try:
        sources = _sources(topology)
    except GraphError as error:
        raise GraphError(*(str(p) for p in problems), str(error)) from None
    _propagate(sources, topology.slots, before, changed)
    for name in sources:
        slot, same = topology.slots[name], before.get(name)
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


def build_topology(graph: Graph, known: Topology | None = None) -> Topology:
    """The graph's stones as slots, linked; links to stones that are not there are left out.

    Args:
        graph: the graph.
        known: what runs; a stone that is the same and linked in the same way has the slot that it has there.
    """
    stones = graph.stones
    ports: dict[str, dict[int, list[Link]]] = {}
    for link in graph.links:
        if link.source in stones and link.target in stones:
            ports.setdefault(link.source, {}).setdefault(link.port, []).append(link)
    slots: dict[str, Slot] = {}
    for name, stone in stones.items():
        slot, links = None if known is None else known.slots.get(name), ports.get(name, {})
        if slot is None or slot.stone is not stone:
            slot = Slot(name, stone, links, separate=known is not None and isinstance(stone, Compiled))
        elif slot.ports != links:
            slot = Slot(name, stone, links, separate=slot.separate)
        slots[name] = slot
    # A protocol is slow to ask for, and most stones have no peer.
    peers = [(name, stone) for name, stone in stones.items() if getattr(stone, "peer", None) is not None]
    crossings = {name: crossing for name, stone in peers if (crossing := crossing_of(stone)) is not None}
    entrances = frozenset([name for name, stone in stones.items() if stone.entrance])
    return Topology(slots, tuple(graph.morphs), entrances, crossings)


def _check_links(graph: Graph, running: bool, changed: set[str]) -> list[EvflowError]:
    problems: list[EvflowError] = []
    if not graph.stones and not running:
        problems.append(GraphError(f"graph {graph.name} has no stones; begin with graph.source(…)"))
    linked: dict[str, set[int]] = {}
    for link in graph.links:
        if link.source in changed:
            linked.setdefault(link.source, set()).add(link.port)
        elif link.target not in changed and link.source in graph.stones and link.target in graph.stones:
            continue
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
    for name in [name for name in graph.stones if name in changed]:
        stone, ports = graph.stones[name], linked.get(name, set())
        if ports or not (running and own_kind(stone) == "split"):
            problems.extend(_check_ports(name, stone.kind, stone.linked_ports, ports))
        if stone.emits_by_port and ports and max(ports) >= (count := len(stone.emits(None))):
            what = f"stone {name!r} ({stone.kind}): port {max(ports)} is linked"
            problems.append(GraphError(f"{what}; it emits by ports 0 to {count - 1}"))
    return problems


def _check_files(graph: Graph, changed: set[str]) -> list[EvflowError]:
    """Each file of its own: what one stone writes another would take for what it wrote itself."""
    problems: list[EvflowError] = []
    if not [name for name in changed if graph.stones[name].files]:
        return problems
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
    if ports and min(ports) < 0:
        return [GraphError(f"stone {name!r} ({kind}): port {min(ports)} is linked; ports count from 0")]
    if ports and max(ports) > _MOST_PORT:
        return [
            GraphError(f"stone {name!r} ({kind}): port {max(ports)} is linked; ports count to {_MOST_PORT}")
        ]
    return []


def _sources(topology: Topology) -> dict[str, list[str]]:
    """The names of the stones, each after all that lead to it, and of those that do."""
    sources: dict[str, list[str]] = {name: [] for name in topology.slots}
    for name, slot in topology.slots.items():
        for links in slot.ports.values():
            for link in links:
                sources[link.target].append(name)
    waits = {name: len(before) for name, before in sources.items()}
    order = [name for name, count in waits.items() if not count]
    for name in order:
        for links in topology.slots[name].ports.values():
            for link in links:
                waits[link.target] -= 1
                if not waits[link.target]:
                    order.append(link.target)
    if len(order) == len(waits):
        return {name: sources[name] for name in order}
    path = [next(name for name, count in waits.items() if count)]
    while path[-1] not in path[:-1]:
        path.append(next(name for name in sources[path[-1]] if waits[name]))
    cycle = " → ".join(path[path.index(path[-1]) :][::-1])
    raise GraphError(f"the links form a cycle: {cycle}; an event would never leave it")


def _propagate(
    sources: Mapping[str, list[str]], slots: dict[str, Slot], before: Mapping[str, Slot], changed: set[str]
) -> None:
    """Finds which schemas are expected at each stone where these may be others than before."""
    # What led to a stone may lead there no longer.
    left = [slot for name, slot in before.items() if slots.get(name) is not slot]
    stale = changed.copy()
    _add_targets(stale, left)
    for name, leading in sources.items():
        if name not in stale:
            continue
        found: dict[str, Schema | None] = {}
        for source in dict.fromkeys(leading):
            for arrival in slots[source].arrivals or (None,):
                for schema in _leaving(slots[source], arrival, name):
                    found.setdefault("" if schema is None else schema.fingerprint, schema)
        arrivals, slot = tuple(found.values()), slots[name]
        if name not in changed:
            if arrivals == slot.arrivals:
                continue
            slot = slots[name] = Slot(name, slot.stone, slot.ports, separate=slot.separate)
        slot.arrivals = arrivals
        _add_targets(stale, [slot])


def _add_targets(names: set[str], slots: Sequence[Slot]) -> None:
    for slot in slots:
        for links in slot.ports.values():
            for link in links:
                names.add(link.target)


def _leaving(slot: Slot, arrival: Schema | None, target: str) -> Sequence[Schema | None]:
    """Which schemas may leave a stone for ``target`` when events of one arrive."""
    emitted = slot.stone.emits(arrival)
    if not slot.stone.emits_by_port:
        return emitted
    ports = [port for port, links in slot.ports.items() if any(link.target == target for link in links)]
    return [emitted[port] if port < len(emitted) else None for port in ports]


def _is_idle(slot: Slot) -> bool:
    if slot.arrivals or not isinstance(slot.stone, Compiled):
        return False
    return all(schema is None for schema in slot.stone.inputs.values())


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
        return [stone.check, *fits, partial(stone.check_arrivals, slot.arrivals)]
    if not isinstance(stone, Compiled):
        return []
    declared = next(iter(stone.inputs.values()))
    if declared is not None:
        return [partial(stone.function, declared, declared), *fits]
    # Without a declared input the function is compiled for each schema that arrives.
    arriving: list[Schema | None] = [*known] or [None]
    return [partial(stone.function, schema, schema) for schema in arriving]
