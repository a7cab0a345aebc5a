"""Which stones of a graph run on which node, and the bridges between them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evflow.engine.topology import Crossing, Slot, Topology
from evflow.errors import GraphError
from evflow.graph.kinds import own_kind, stone_class
from evflow.graph.placed import Link

if TYPE_CHECKING:
    from evflow.graph.graph import Graph


def bridged(graph: Graph) -> Graph:
    """The graph with a bridge on each link that crosses from node to node and does not start at one.

    Raises:
        GraphError: a stone is placed on no node.
    """
    homeless = [name for name, stone in graph.stones.items() if stone.on is None]
    if homeless:
        raise GraphError(
            f"graph {graph.name}: to run on nodes every stone needs one, and {', '.join(homeless)} "
            f"{'has' if len(homeless) == 1 else 'have'} none; place with on= or 'with graph.on(…):'"
        )
    made = graph.copy()
    for link in graph.links:
        start, end = graph.stones.get(link.source), graph.stones.get(link.target)
        if start is None or end is None or start.on == end.on or own_kind(start) == "bridge":
            continue
        port = f"[{link.port}]" if link.port else ""
        input = f"[{link.input}]" if link.input else ""
        name = f"{link.source}{port}→{link.target}{input}"
        bridge = made.add(stone_class("bridge")(name=name, on=start.on))
        made.put_between(link, bridge.name)
    return made


def placed_on(topology: Topology, node: str) -> Topology:
    """What of the checked stones runs on a node.

    Raises:
        GraphError: no stone is placed there.
    """
    slots = {name: slot for name, slot in topology.slots.items() if slot.stone.on == node}
    if not slots:
        nodes = sorted({str(slot.stone.on) for slot in topology.slots.values()})
        raise GraphError(f"no stone is placed on node {node!r}; there are stones on {', '.join(nodes)}")
    entrances = set(topology.entrances & slots.keys())
    crossings = {name: crossing for name, crossing in topology.crossings.items() if name in slots}
    for slot in topology.slots.values():
        for link in _crossing(slot, topology):
            if slot.name in slots:
                peer = topology.slots[link.target].stone.on
                crossings[slot.name] = Crossing(str(peer), link.target, link.input)
                slot.ports.clear()
            elif link.target in slots:
                entrances.add(link.target)
    return Topology(slots, topology.morphs, frozenset(entrances), crossings)


def _crossing(slot: Slot, topology: Topology) -> list[Link]:
    """The links of a bridge that lead to another node."""
    if own_kind(slot.stone) != "bridge":
        return []
    links = [link for links in slot.ports.values() for link in links]
    return [link for link in links if topology.slots[link.target].stone.on != slot.stone.on]
