"""Which stones the channels of a process need (EVPath paper, figures 9 and 10), and how they come to be
there: of each channel two splits, an upper one, to which events are submitted, and a lower one, which leads
to the process's own subscribers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from evflow.echo.record import Record
from evflow.echo.roster import Roster
from evflow.engine.check import check_graph
from evflow.engine.topology import Topology
from evflow.events.batch import EventBatch
from evflow.flow.changing import compile_ahead
from evflow.graph.graph import Graph, Link, Links
from evflow.graph.morph import Morph
from evflow.schema import Schema
from evflow.stone import Stone
from evflow.stones.bridge import Bridge
from evflow.stones.split import Split

if TYPE_CHECKING:
    from evflow.flow.flow import Flow


def upper_name(key: str) -> str:
    """The stone to which a channel's events are submitted."""
    return f"{key} upper"


def lower_name(key: str) -> str:
    """The stone to which the bridges of others lead."""
    return f"{key} lower"


def bridge_name(key: str, process: str) -> str:
    """The bridge to a subscribed process."""
    return f"{key} → {process}"


def function_name(key: str) -> str:
    """The filter or transform that makes a derived channel's events."""
    return f"{key} function"


class UpperSplit(Split):
    """Where a channel's events are submitted; leads to the bridges to other processes, to the lower split,
    and to the functions of derived channels.

    Args:
        schemas: what the channel carries; none for anything.
    """

    linked_ports = "free"

    def __init__(self, schemas: tuple[Schema, ...] = ()) -> None:
        super().__init__()
        self.schemas = schemas

    def emits(self, schema: Schema | None) -> tuple[Schema | None, ...]:
        return self.schemas or (None,)


class LowerSplit(UpperSplit):
    """Where a channel's events arrive from this process and from the bridges of others; leads to the
    terminals of its subscribers, of which there may be none."""

    entrance = True


@dataclass
class Plan:
    """The stones and links of a process's channels.

    Attributes:
        stones: name → how to make it.
        links: from port 0 of one to another.
        morphs: of all channels.
        bridges: bridge → the channel that it is of.
    """

    stones: dict[str, Callable[[], Stone]] = field(default_factory=dict)
    links: list[Link] = field(default_factory=list)
    morphs: list[Morph] = field(default_factory=list)
    bridges: dict[str, str] = field(default_factory=dict)

    def same_as(self, other: Plan) -> bool:
        """True if it has the stones and links of another plan: a member that does not subscribe has none."""
        return (
            self.stones.keys() == other.stones.keys()
            and self.links == other.links
            and self.morphs == other.morphs
        )

    def graph(self, before: Graph) -> Graph:
        """A graph of this; stones that were there before are the same ones."""
        graph = Graph(before.name)
        for name, make in self.stones.items():
            stone = graph.stones[name] = before.stones[name] if name in before.stones else make()
            stone.name = name
        graph.links = Links(self.links)
        graph.morphs = self.morphs
        return graph


def plan(rosters: Mapping[str, Roster], terminals: Mapping[str, Mapping[str, Stone]]) -> Plan:
    """What the channels of a process need.

    Args:
        rosters: its channels, by key.
        terminals: key → the stones of its own subscribers, by name.
    """
    made = Plan()
    for key, roster in rosters.items():
        _add(made, roster, terminals.get(key, {}))
    for key, roster in rosters.items():
        if roster.record.parent in rosters:
            _derive(made, key, roster.record)
    made.morphs = _unlike(morph for roster in rosters.values() for morph in roster.morphs.values())
    return made


def _add(made: Plan, roster: Roster, terminals: Mapping[str, Stone]) -> None:
    key, record = roster.key, roster.record
    upper, lower = upper_name(key), lower_name(key)
    made.stones[upper] = lambda: UpperSplit(record.schemas)
    # What waits for one that was started again must not come before its subscribers are there.
    if not roster.claimed or terminals:
        made.stones[lower] = lambda: LowerSplit(record.schemas)
        made.links.append(Link(upper, 0, lower))
    for name, terminal in terminals.items():
        made.stones[name] = partial(_same, terminal)
        made.links.append(Link(lower, 0, name))
    for process in roster.subscribers():
        name = bridge_name(key, process)
        made.stones[name] = partial(_bridge, record, process)
        made.bridges[name] = key
        made.links.append(Link(upper, 0, name))


def _same(stone: Stone) -> Stone:
    return stone


def _bridge(record: Record, process: str) -> Bridge:
    lower = lower_name(record.key)
    return Bridge(process, lower, policy=record.policy, delivery=record.delivery, limit=record.limit)


def _derive(made: Plan, key: str, record: Record) -> None:
    derivation, name = record.derivation, function_name(key)
    assert derivation is not None
    made.stones[name] = lambda: derivation.stone(name)
    made.links += [Link(upper_name(record.parent), 0, name), Link(name, 0, upper_name(key))]


class Wires:
    """The stones of a process's channels, as they run in its flow.

    Args:
        flow: the flow; nobody else changes it.

    Attributes:
        graph: what runs.
        dropped: channel → events that bridges had not delivered when they were taken away.
    """

    def __init__(self, flow: Flow) -> None:
        self.graph = Graph(flow.graph.name)
        self.dropped: Counter[str] = Counter()
        assert flow.links is not None
        self._flow = flow
        self._links = flow.links
        self._planned = Plan()

    def follow(self, planned: Plan) -> None:
        """Has what is planned run, at once: events on their way are let go where a bridge ends.

        Args:
            planned: the stones and links.

        Raises:
            EvflowError: it cannot; nothing has changed.
        """
        if planned.same_as(self._planned):
            return
        graph = planned.graph(self.graph)
        topology = check_graph(graph, running=True) if graph.stones else Topology({})
        compile_ahead(self._flow.engine.topology, topology)
        self._flow.call(lambda: self._flow.alteration(topology, drop=self._drop).commit())
        self.graph, self._planned = graph, planned

    def _drop(self, bridge: str) -> None:
        key = self._planned.bridges.get(bridge, "")

        def count(name: str, batch: EventBatch, reason: str) -> None:
            self.dropped[key] += len(batch)

        self._links.drop(bridge, count)


def _unlike(morphs: Iterable[Morph]) -> list[Morph]:
    found: list[Morph] = []
    for morph in morphs:
        if morph not in found:
            found.append(morph)
    return found
