"""The options of ``evflow run`` that make a node, and what cannot be meant by them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from evflow.engine.topology import crossing_of
from evflow.errors import LinkError
from evflow.graph import Graph
from evflow.link.budget import BUDGET
from evflow.node.node import Node
from evflow.placement import bridged

__all__ = ["NodeOptions", "make_node"]


@dataclass(frozen=True)
class NodeOptions:
    """What the user said of the node; see ``evflow.Node``.

    Attributes:
        name: its name.
        listen: contacts to listen at.
        peers: texts NAME=CONTACT.
        keys: the folder of keys, or None.
        plain: whether tcp beyond this host may go without keys.
        journal: a file, or None.
        memory: MiB for events of peers.
    """

    name: str
    listen: tuple[str, ...] = ()
    peers: tuple[str, ...] = ()
    keys: Path | None = None
    plain: bool = False
    journal: Path | None = None
    memory: int = BUDGET >> 20


def make_node(graph: Graph, options: NodeOptions) -> Node:
    """The node that runs its part of a graph.

    Raises:
        EvflowError: the graph has no such node, an option is wrong, or a peer could not be reached.
    """
    peers = dict(_peer(text) for text in options.peers)
    known = _nodes(graph)
    if options.name not in known:
        raise LinkError(f"graph {graph.name} has no stone on node {options.name!r}; {_listed(known)}")
    for peer in peers:
        if peer not in known:
            raise LinkError(f"--peer {peer}: graph {graph.name} has no node {peer!r}; {_listed(known)}")
    _check_ways(graph, options, peers)
    return Node(
        options.name, options.listen, peers=peers, keys=options.keys, plain=options.plain,
        journal=options.journal, memory=options.memory << 20,
    )  # fmt: skip


def _peer(text: str) -> tuple[str, str]:
    name, equals, contact = text.partition("=")
    if not equals or not name or "://" in name:
        raise LinkError(f"--peer {text}: expected NAME=CONTACT, such as office=tcp://10.0.0.1:7000")
    return name, contact


def _nodes(graph: Graph) -> set[str]:
    """The nodes of a graph, and those that its bridges lead out to by name."""
    out = {crossing.peer for crossing in map(crossing_of, graph.stones.values()) if crossing is not None}
    return out | {stone.on for stone in graph.stones.values() if stone.on is not None}


def _check_ways(graph: Graph, options: NodeOptions, peers: dict[str, str]) -> None:
    """Refuses a node that could not reach a peer, or not be reached: it would wait forever."""
    sent_to, sent_by = _neighbours(graph, options.name)
    if options.listen:
        # Then the others may dial it.
        return
    for peer in sorted(sent_to - peers.keys()):
        raise LinkError(
            f"node {options.name} sends to {peer}: give --peer {peer}=CONTACT, where {peer} listens"
        )
    for peer in sorted(sent_by - peers.keys()):
        raise LinkError(
            f"node {options.name} gets events of {peer}: give --listen CONTACT, "
            f"and --peer {options.name}=CONTACT there"
        )


def _neighbours(graph: Graph, node: str) -> tuple[set[str], set[str]]:
    """The nodes that a node sends to, and those that send to it, by name."""
    stones = bridged(graph).stones
    sent_to: set[str] = set()
    sent_by: set[str] = set()
    for link in bridged(graph).links:
        start, end = stones[link.source].on, stones[link.target].on
        if start == node != end and end is not None:
            sent_to.add(end)
        if end == node != start and start is not None:
            sent_by.add(start)
    for stone in stones.values():
        crossing = crossing_of(stone)
        if crossing is not None and stone.on == node and "://" not in crossing.peer:
            sent_to.add(crossing.peer)
    return sent_to, sent_by


def _listed(nodes: set[str]) -> str:
    names = ", ".join(sorted(name for name in nodes if "://" not in name))
    return f"its nodes are {names}" if names else "it places no stone; do it with 'with g.on(NAME):'"
