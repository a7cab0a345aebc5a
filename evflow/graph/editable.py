"""The edits of a graph that is there: each is checked before it does anything, and refused as a whole.

Whether the graph can still run is another matter; see ``Graph.check``.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from dataclasses import dataclass

from evflow.errors import GraphError
from evflow.graph.kinds import own_kind
from evflow.graph.placed import End, Link, Links, Placed, PlacedInput, PlacedPort, Start
from evflow.graph.rules import Rules
from evflow.stone import Stone


@dataclass(frozen=True)
class Fallback:
    """Where the stones of a dead node go, and after how many seconds."""

    to: str
    after: float


class Editable:
    """The edits of a ``Graph``: each is checked before it does anything, and refused as a whole."""

    name: str
    stones: dict[str, Stone]
    links: Links
    fallbacks: dict[str, Fallback]
    rules: Rules

    def __getitem__(self, name: str) -> Placed:
        raise NotImplementedError

    def add(self, stone: Stone) -> Placed:
        """Adds a stone; see ``Graph.add``.

        Args:
            stone: the stone.

        Returns:
            The stone in the graph.
        """
        raise NotImplementedError

    def unlink(self, source: Start, target: End) -> None:
        """Takes away the link from an output port to a stone, also one that the graph has led over a split.

        Args:
            source: a stone (its port 0), one of its ports, or its name.
            target: a stone, one of its inputs, or its name.

        Raises:
            GraphError: there is no such stone or link.

        Example:
            >>> import evflow as ev
            >>> g = ev.Graph()
            >>> pings = g.source("pings")
            >>> one, two = pings >> ev.Terminal(print, name="one"), pings >> ev.Terminal(print, name="two")
            >>> g.unlink("pings", "two")
            >>> [(link.source, link.target) for link in g.links]
            [('pings', 'pings.split'), ('pings.split', 'one')]
        """
        start = self._start(source)
        end = self._end(target, start)
        input = end.input if isinstance(target, PlacedInput) else None
        link = _found_link(self, start.placed.name, start.port, end.placed.name, input)
        self.links = Links([known for known in self.links if known != link])

    def insert(self, stone: Stone, *, after: Start, before: End, port: int = 0) -> Placed:
        """Puts a new stone between two that are linked.

        It is placed on the node of ``after``, unless it is placed already or within ``Graph.on``.

        Args:
            stone: the new stone; its port 0 leads on.
            after: the stone before it, or one of its ports, or its name.
            before: the stone behind it, or one of its inputs, or its name.
            port: which port of ``after``, where that is a name.

        Returns:
            The new stone.

        Raises:
            GraphError: the two are not linked, or the new stone leads nowhere, or its name is taken.

        Example:
            >>> import evflow as ev
            >>> class Ping(ev.Event):
            ...     number: int
            >>> g = ev.Graph()
            >>> _ = g.source("pings", Ping) >> ev.Terminal(print, name="end")
            >>> g.insert(ev.Filter("input.number > 1", name="large"), after="pings", before="end")
            <large of graph>
            >>> [(link.source, link.target) for link in g.links]
            [('pings', 'large'), ('large', 'end')]
        """
        start = self._start(after) if not isinstance(after, str) or not port else self[after][port]
        end = self._end(before, start)
        input = end.input if isinstance(before, PlacedInput) else None
        link = _found_link(self, start.placed.name, start.port, end.placed.name, input)
        if isinstance(stone, Stone) and stone.linked_ports == "none":
            raise GraphError(f"graph {self.name}: {stone!r} has no output, so it cannot stand between two")
        if isinstance(stone, Stone) and id(stone) in map(id, self.stones.values()):
            raise GraphError(f"graph {self.name}: {stone!r} stands in the graph already")
        on = start.placed.stone.on
        placed = self.add(stone)
        if placed.stone.on is None:
            placed.stone.on = on
        self.put_between(link, placed.name)
        return placed

    def remove(self, stone: Placed | str) -> None:
        """Takes a stone out.

        What led to it is linked to what it led to. One that leads nowhere, or that nothing leads to, goes
        with its links. Rules for what it asks for go with it.

        Args:
            stone: the stone, or its name.

        Raises:
            GraphError: there is no such stone, or it leads to several others.

        Example:
            >>> import evflow as ev
            >>> class Ping(ev.Event):
            ...     number: int
            >>> g = ev.Graph()
            >>> large = g.source("pings", Ping) >> ev.Filter("input.number > 1", name="large")
            >>> _ = large >> ev.Terminal(print, name="end")
            >>> g.remove("large")
            >>> [(link.source, link.target) for link in g.links]
            [('pings', 'end')]
        """
        name = self._placed(stone).name
        into = [link for link in self.links if link.target == name]
        out = [link for link in self.links if link.source == name]
        gone = {name}
        healed: dict[Link, Link] = {}
        if not into:
            gone.update(_own_splits(self, name))
        elif len(out) == 1:
            healed = {link: link._replace(target=out[0].target, input=out[0].input) for link in into}
            for link in healed.values():
                if link in self.links:
                    raise GraphError(
                        f"graph {self.name}: without {name!r} {link.source!r} would be linked to "
                        f"{link.target!r} twice; unlink one of the two first"
                    )
        elif out:
            ways = ", ".join(f"port {link.port} to {link.target!r}" for link in out)
            raise GraphError(
                f"graph {self.name}: {name!r} cannot be removed, since it leads to several stones ({ways}), "
                "and its upstream could be linked to any; unlink all but one first"
            )
        links = [healed.get(link, link) for link in self.links]
        self.stones = {key: known for key, known in self.stones.items() if key not in gone}
        self.links = Links([link for link in links if link.source not in gone and link.target not in gone])
        self.rules = {key: rule for key, rule in self.rules.items() if rule.stone in self.stones}

    def replace(self, stone: Placed | str, by: Stone) -> Placed:
        """Puts another stone in the place of one, with its name, its links and its node.

        Args:
            stone: the stone, or its name.
            by: what takes its place, of the same kind or another.

        Returns:
            The new stone.

        Raises:
            GraphError: there is no such stone, or ``by`` is not a stone or has another name.

        Example:
            >>> import evflow as ev
            >>> class Ping(ev.Event):
            ...     number: int
            >>> g = ev.Graph()
            >>> large = g.source("pings", Ping) >> ev.Filter("input.number > 1", name="large")
            >>> _ = large >> ev.Terminal(print)
            >>> g.replace("large", ev.Filter("input.number > 100")).stone.code
            'input.number > 100'
        """
        name = self._placed(stone).name
        if not isinstance(by, Stone):
            raise GraphError(
                f"graph {self.name}: expected a stone such as ev.Filter(…) in place of {name!r}, found {by!r}"
            )
        if by.name not in (None, name):
            raise GraphError(
                f"graph {self.name}: a stone that replaces {name!r} keeps that name, and has none of its "
                f"own; found {by.name!r}"
            )
        made = copy.copy(by)
        made.name, made.on = name, self.stones[name].on if by.on is None else by.on
        self.stones = {**self.stones, name: made}
        return self[name]

    def move(self, stone: Placed | str, node: str) -> None:
        """Places a stone on another node.

        Args:
            stone: the stone, or its name.
            node: the node's name.

        Raises:
            GraphError: there is no such stone, or the node is not a name.

        Example:
            >>> import evflow as ev
            >>> g = ev.Graph()
            >>> _ = g.source("pings", on="edge") >> ev.Terminal(print, name="end", on="edge")
            >>> g.move("end", "center")
            >>> {name: stone.on for name, stone in g.stones.items()}
            {'pings': 'edge', 'end': 'center'}
        """
        name = self._placed(stone).name
        if not isinstance(node, str) or not node:
            raise GraphError(f"graph {self.name}: node {node!r}: expected the name of a node")
        stones = dict(self.stones)
        before = stones[name].on
        for key in (name, *_own_splits(self, name)):
            if key == name or stones[key].on == before:
                stones[key] = copy.copy(stones[key])
                stones[key].name, stones[key].on = key, node
        self.stones = stones

    def fallback(self, node: str, *, to: str, after: float = 10.0) -> None:
        """Says where the stones of a node go when it is dead.

        Args:
            node: the node.
            to: the node that takes its stones.
            after: seconds for which it must have been dead.

        Raises:
            GraphError: the nodes are not two names, or the seconds are not a number of 0 or more.

        Example:
            >>> import evflow as ev
            >>> g = ev.Graph()
            >>> g.fallback("edge", to="backup", after=30)
            >>> g.fallbacks["edge"]
            Fallback(to='backup', after=30.0)
        """
        for name in (node, to):
            if not isinstance(name, str) or not name:
                raise GraphError(f"graph {self.name}: fallback: {name!r}: expected the name of a node")
        if node == to:
            raise GraphError(f"graph {self.name}: fallback of node {node!r}: expected another node")
        if not isinstance(after, int | float) or isinstance(after, bool) or not 0 <= after < math.inf:
            raise GraphError(
                f"graph {self.name}: fallback of node {node!r}: after {after!r}: expected seconds, 0 or more"
            )
        self.fallbacks[node] = Fallback(to, float(after))

    def _placed(self, stone: object) -> Placed:
        """A stone of this graph."""
        if isinstance(stone, str):
            return self[stone]
        if not isinstance(stone, Placed):
            raise GraphError(f"graph {self.name}: expected the name of a stone, found {stone!r}")
        if stone.graph is not self:
            raise GraphError(f"graph {self.name}: stone {stone.name!r} belongs to graph {stone.graph.name!r}")
        return self[stone.name]

    def _start(self, source: object) -> PlacedPort:
        if isinstance(source, PlacedPort):
            return PlacedPort(self._placed(source.placed), source.port)
        return PlacedPort(self._placed(source), 0)

    def _end(self, target: object, start: PlacedPort) -> PlacedInput:
        if isinstance(target, PlacedInput):
            return PlacedInput(self._placed(target.placed), target.input)
        if not isinstance(target, Placed | str):
            raise GraphError(
                f"graph {self.name}: {start.placed.name!r} can be linked to a stone such as ev.Terminal(…), "
                f"found {target!r}"
            )
        return PlacedInput(self._placed(target), "")

    def has_link(self, source: str, port: int, target: str, input: str = "") -> bool:
        """Whether a port is linked to an input, also over a split that the graph has added.

        Args:
            source: the name of the stone that has the port.
            port: the number of the port.
            target: the name of the stone that has the input.
            input: the name of the input; "" for the one that fits best.
        """
        split = split_name(source, port)
        over_split = (Link(source, port, split), Link(split, 0, target, input))
        return Link(source, port, target, input) in self.links or all(k in self.links for k in over_split)

    def put_between(self, link: Link, name: str) -> None:
        """Leads a link through a stone that the graph has.

        Args:
            link: the link, one of ``links``.
            name: the name of the stone.
        """
        self.links.replace(link, Link(link.source, link.port, name))
        self.links.add(Link(name, 0, link.target, link.input))


def split_name(stone: str, port: int) -> str:
    """The name of the split that a graph adds where a port is linked to several stones."""
    # With the port's number, since several ports of one stone may fan out.
    return f"{stone}.split{port or ''}"


def _own_splits(graph: Editable, name: str) -> Iterator[str]:
    """The splits that the graph has added behind a stone, and that nothing else leads to."""
    for link in graph.links:
        if link.source == name and link.target == split_name(name, link.port):
            stone = graph.stones.get(link.target)
            alone = sum(other.target == link.target for other in graph.links) == 1
            if stone is not None and own_kind(stone) == "split" and alone:
                yield link.target


def _found_link(graph: Editable, source: str, port: int, target: str, input: str | None) -> Link:
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
    if split in graph.stones and split in _own_splits(graph, source):
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
