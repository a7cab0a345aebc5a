"""Where a change closes the way of events: as far up as it must, and no further down than it may.

A node closes the entries from which events reach what changes on it. Where such an entry is fed by a stone of
another node that comes to rest by this very change, closing it as well would keep that stone from coming to
rest: what it has sent on would never be handled. So those bridges stay open until all nodes are quiet.
"""

from __future__ import annotations

from graphlib import TopologicalSorter
from typing import NamedTuple

from evflow.deploy.part import EMPTY, checked_graph
from evflow.deploy.record import Record
from evflow.engine.change import difference
from evflow.engine.check import build_topology
from evflow.engine.placement import bridged, placed_on
from evflow.engine.topology import Topology
from evflow.graph.graph import Graph


class Frontier(NamedTuple):
    """What a node leaves open while a change is prepared.

    Attributes:
        passing: bridges of other nodes whose events it still takes at entries that it closes.
        draining: its own bridges to such entries of other nodes.
        feeders: nodes, each with a bridge of it that leads to an entry that this node closes.
    """

    passing: frozenset[str] = frozenset()
    draining: frozenset[str] = frozenset()
    feeders: frozenset[tuple[str, str]] = frozenset()


def frontier(old: Record | None, new: Record, node: str) -> Frontier:
    """What a node leaves open for a change.

    Args:
        old: the version before; None if there is none.
        new: the version after.
        node: the node.
    """
    if old is None or old.graph is None:
        return Frontier()
    before, after = _bridged(old), _bridged(new)
    closing = _closing(before, after)
    resting = _resting(before, closing)
    placed = {name: stone.on for name, stone in before.stones.items()}
    crossing = [
        link for link in before.links if link.target in closing and placed[link.target] != placed[link.source]
    ]
    opened = [link for link in crossing if resting[link.source]]
    return Frontier(
        frozenset(link.source for link in opened if placed[link.target] == node),
        frozenset(link.source for link in opened if placed[link.source] == node),
        frozenset(
            (str(placed[link.source]), link.source) for link in crossing if placed[link.target] == node
        ),
    )


def _bridged(record: Record) -> Graph:
    return bridged(checked_graph(record))


def _closing(before: Graph, after: Graph) -> set[str]:
    """The entries that are closed, on all nodes."""
    nodes = {str(stone.on) for graph in (before, after) for stone in graph.stones.values()}
    return {
        entry for node in nodes for entry in difference(_placed(before, node), _placed(after, node)).entries
    }


def _placed(graph: Graph, node: str) -> Topology:
    here = any(stone.on == node for stone in graph.stones.values())
    return placed_on(build_topology(graph), node) if here else EMPTY


def _resting(graph: Graph, closing: set[str]) -> dict[str, bool]:
    """For each stone whether all that comes to it comes to rest."""
    placed = {name: stone.on for name, stone in graph.stones.items()}
    upstream: dict[str, list[str]] = {name: [] for name in graph.stones}
    for link in graph.links:
        upstream[link.target].append(link.source)
    resting: dict[str, bool] = {}
    for name in TopologicalSorter(upstream).static_order():
        closed = name in closing
        fed = [resting[source] or (closed and placed[source] != placed[name]) for source in upstream[name]]
        resting[name] = all(fed) if fed else closed
    return resting
