"""The part of a deployment that runs on one node, from the record's data to stones that are checked."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from contextvars import copy_context
from typing import Any, TypeVar

from evflow.deploy.admission import Admission
from evflow.deploy.record import Record, stones_on
from evflow.engine.check import check_graph
from evflow.engine.placement import bridged, placed_on
from evflow.engine.topology import Slot, Topology
from evflow.errors import DeployError, GraphError
from evflow.graph.graph import Graph
from evflow.graph.handlers import own_handlers
from evflow.graph.kinds import KINDS, absent, check_declared, is_own, made
from evflow.graph.rules import rules_of
from evflow.mishaps import CONTAINED, named
from evflow.stone import Acting, Stone

EMPTY = Topology({})

_PATIENCE = 5.0
"""Seconds that importing, constructing and checking stones of somebody else's classes may take."""

T = TypeVar("T")


def qualified(deployment: str, stone: str) -> str:
    """The name of a deployment's stone on a node."""
    return f"{deployment}/{stone}"


def checked_graph(record: Record, make: Callable[[Mapping[str, Any]], Stone] | None = None) -> Graph:
    """The record's graph, its stones named as on nodes.

    Args:
        record: the record.
        make: see ``Graph.from_dict``; by default nothing is imported, and each node sees the same.

    Raises:
        EvflowError: it is malformed.
    """
    data = record.graph
    if data is None:
        return Graph(record.deployment)
    return Graph.from_dict(_renamed(record.deployment, data), make or (lambda entry: made(entry, absent)))


def _renamed(deployment: str, data: Mapping[str, Any]) -> dict[str, Any]:
    try:
        return {
            **data,
            "name": deployment,
            "stones": [
                {**entry, "name": qualified(deployment, str(entry["name"]))} for entry in data["stones"]
            ],
            "links": [
                [qualified(deployment, str(source)), port, qualified(deployment, str(target)), input]
                for source, port, target, input in data["links"]
            ],
            "rules": [
                rule.renamed(lambda stone: qualified(deployment, stone)).data()
                for rule in rules_of(data).values()
            ],
        }
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise GraphError(
            f"graph data of {deployment} is malformed: {type(error).__name__}: {error}"
        ) from error


def part_of(record: Record, node: str, admission: Admission) -> Topology:
    """What of a deployment runs on a node.

    Raises:
        EvflowError: the graph is wrong, or the node does not admit one of its stones here.
    """
    graph = checked_graph(record, lambda entry: _made_at(node, entry, admission))
    here = [(name, stone) for name, stone in graph.stones.items() if stone.on == node]
    _admit(here, record.deployment, admission)
    if not here:
        return EMPTY
    with own_handlers(admission.own):
        part = placed_on(check_graph(bridged(graph), lambda stone: stone.on == node), node)
    for name in record.frozen:
        slot = part.slots.get(qualified(record.deployment, name))
        if slot is not None:
            slot.frozen = True
    return part


def _made_at(node: str, entry: Mapping[str, Any], admission: Admission) -> Stone:
    """A stone as a node sees it: of a class that is not evflow's own where it runs there, and is admitted."""
    here = entry["on"] == node
    try:
        stone = made(entry, admission.stone_class if here else absent)
    except DeployError as error:
        raise DeployError(f"stone {entry['name']!r}: {error}") from error
    if here and not is_own(stone):
        check_declared(entry["name"], entry, stone)
    return stone


def _admit(stones: Iterable[tuple[str, Stone]], deployment: str, admission: Admission) -> None:
    """Refuses what the node does not admit, and leads files to where they may be."""
    for name, stone in stones:
        try:
            refusal = admission.refusal(stone)
            if not refusal:
                admission.keep_files(stone, deployment)
        except CONTAINED as error:
            raise DeployError(f"stone {name!r}: {named(error, DeployError)}") from error
        if refusal:
            raise DeployError(f"stone {name!r}: {refusal}")


def read_part(record: Record, node: str, admission: Admission) -> Topology:
    """What ``part_of`` gives; stones of somebody else's classes may not hold it up for ever.

    Raises:
        EvflowError: as ``part_of``; or making such a stone takes too long.
    """
    kinds = {entry["kind"]: None for entry in stones_on(record, node).values()}
    strange = [str(kind) for kind in kinds if kind not in KINDS]
    if not strange:
        return part_of(record, node, admission)
    what = f"making stones of {', '.join(strange)}"
    return within(_PATIENCE, what, lambda: _prepared(part_of(record, node, admission)))


def _prepared(part: Topology) -> Topology:
    """A part whose stones of somebody else's classes have done what takes them long."""
    for slot in part.slots.values():
        if isinstance(slot.stone, Acting) and not is_own(slot.stone):
            try:
                slot.stone.prepare()
            except CONTAINED as error:
                raise DeployError(f"stone {slot.name!r}: prepare(): {named(error)}") from error
    return part


def within(seconds: float, what: str, call: Callable[[], T]) -> T:
    """What a call gives; it is made in a thread of its own, which is left alone if it takes too long.

    Args:
        seconds: how long it may take.
        what: what is called, for the error.
        call: called without arguments.

    Raises:
        DeployError: it took longer.
        BaseException: what the call raised.
    """
    given: list[T] = []
    raised: list[BaseException] = []

    def work() -> None:
        try:
            given.append(call())
        except BaseException as error:  # noqa: BLE001  it is whoever waits for this that must hear of it
            raised.append(error)

    thread = threading.Thread(target=copy_context().run, args=(work,), name=f"evflow {what}", daemon=True)
    thread.start()
    thread.join(seconds)
    if raised:
        raise raised[0]
    if not given:
        raise DeployError(
            f"{what} did not return within {seconds:g} s; what is imported and constructed for a stone must "
            "not wait"
        )
    return given[0]


def union(parts: Iterable[Topology]) -> Topology:
    """All that runs on a node, of several deployments; the parts stay as they are."""
    slots: dict[str, Slot] = {}
    whole = Topology(slots)
    for part in parts:
        for name, slot in part.slots.items():
            ports = {port: list(links) for port, links in slot.ports.items()}
            slots[name] = Slot(name, slot.stone, ports, slot.arrivals, frozen=slot.frozen)
        whole.morphs += part.morphs
        whole.entrances |= part.entrances
        whole.crossings.update(part.crossings)
    return whole
