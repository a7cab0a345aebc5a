"""Edits of a graph that is there: what each does to its stones and links, as plain data.

An edit is checked before it does anything. Whether the graph can still run is another matter; see
``Graph.check``.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from evflow.errors import GraphError
from evflow.kinds import own_kind
from evflow.stone import Stone

if TYPE_CHECKING:
    from evflow.editable import Editable
    from evflow.placed import Link

__all__ = ["found_link", "moved", "removed", "replaced", "split_name"]


def split_name(stone: str, port: int) -> str:
    """The name of the split that a graph adds where a port is linked to several stones."""
    # With the port's number, since several ports of one stone may fan out.
    return f"{stone}.split{port or ''}"


def own_splits(graph: Editable, name: str) -> Iterator[str]:
    """The splits that the graph has added behind a stone, and that nothing else leads to."""
    for link in graph.links:
        if link.source == name and link.target == split_name(name, link.port):
            stone = graph.stones.get(link.target)
            alone = sum(other.target == link.target for other in graph.links) == 1
            if stone is not None and own_kind(stone) == "split" and alone:
                yield link.target


def found_link(graph: Editable, source: str, port: int, target: str, input: str | None) -> Link:
    """The link from a port to a stone, or from the split that the graph has added there.

    Args:
        graph: the graph.
        source: a stone's name.
        port: its port.
        target: another stone's name.
        input: its input; None for whichever is linked.

    Raises:
        GraphError: there is none, or there are several.
    """
    split = split_name(source, port)
    starts = [(source, port)]
    if split in own_splits(graph, source):
        starts.append((split, 0))
    found = [
        link
        for link in graph.links
        if (link.source, link.port) in starts and link.target == target and input in (None, link.input)
    ]
    if len(found) > 1:
        inputs = ", ".join(repr(link.input) for link in found)
        raise GraphError(
            f"graph {graph.name}: {source!r} port {port} is linked to {target!r} at the inputs {inputs}; "
            "say which one is meant"
        )
    if not found:
        there = [link.target for link in graph.links if (link.source, link.port) in starts]
        where = f"{source!r} port {port}" if port else repr(source)
        raise GraphError(
            f"graph {graph.name}: {target!r} is not a target of {where}; its targets are "
            f"{', '.join(name for name in there if name != split) or 'none'}"
        )
    return found[0]


def removed(graph: Editable, name: str) -> tuple[dict[str, Stone], list[Link]]:
    """The stones and links without a stone; its upstream is linked to what it led to.

    Raises:
        GraphError: it is not clear what its upstream would be linked to.
    """
    into = [link for link in graph.links if link.target == name]
    out = [link for link in graph.links if link.source == name]
    gone = {name}
    healed: dict[Link, Link] = {}
    if not into:
        gone.update(own_splits(graph, name))
    elif len(out) == 1:
        healed = {link: replace(link, target=out[0].target, input=out[0].input) for link in into}
        for link in healed.values():
            if link in graph.links:
                raise GraphError(
                    f"graph {graph.name}: without {name!r} {link.source!r} would be linked to "
                    f"{link.target!r} twice; unlink one of the two first"
                )
    elif out:
        ways = ", ".join(f"port {link.port} to {link.target!r}" for link in out)
        raise GraphError(
            f"graph {graph.name}: {name!r} cannot be removed, since it leads to several stones ({ways}), and "
            "its upstream could be linked to any; unlink all but one first"
        )
    links = [healed.get(link, link) for link in graph.links]
    kept = [link for link in links if link.source not in gone and link.target not in gone]
    return {key: stone for key, stone in graph.stones.items() if key not in gone}, kept


def replaced(graph: Editable, name: str, stone: object) -> Stone:
    """A stone as it takes the place of another.

    Raises:
        GraphError: it is no stone, or has another name.
    """
    if not isinstance(stone, Stone):
        raise GraphError(
            f"graph {graph.name}: expected a stone such as ev.Filter(…) in place of {name!r}, found {stone!r}"
        )
    if stone.name not in (None, name):
        raise GraphError(
            f"graph {graph.name}: a stone that replaces {name!r} keeps that name, and has none of its own; "
            f"found {stone.name!r}"
        )
    made = copy.copy(stone)
    made.name, made.on = name, graph.stones[name].on if stone.on is None else stone.on
    return made


def moved(graph: Editable, name: str, node: object) -> dict[str, Stone]:
    """The stones with one of them, and the splits that the graph has added behind it, on another node.

    Raises:
        GraphError: the node is no name.
    """
    if not isinstance(node, str) or not node:
        raise GraphError(f"graph {graph.name}: node {node!r}: expected the name of a node")
    stones = dict(graph.stones)
    before = stones[name].on
    for key in (name, *own_splits(graph, name)):
        if key == name or stones[key].on == before:
            stones[key] = copy.copy(stones[key])
            stones[key].on = node
    return stones
