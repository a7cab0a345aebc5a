"""The graph: stones and links, described as plain data; nothing happens before ``run``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, overload

from evflow.errors import GraphError
from evflow.morph import Morph
from evflow.schema import Schema
from evflow.stone import Stone, stone_class

if TYPE_CHECKING:
    from evflow.flow.flow import Flow

__all__ = ["Graph", "Link", "Placed", "PlacedInput", "PlacedPort"]


@dataclass(frozen=True)
class Link:
    """A link from a port of one stone to an input of another ("" for the input that fits best)."""

    source: str
    port: int
    target: str
    input: str = ""


class Graph:
    """Stones and the links between them.

    Args:
        name: the graph's name.

    Attributes:
        stones: name → stone, in the order added.
        links: the links, in the order made.
        morphs: what turns events of newer schemas into older ones.

    Example:
        >>> import evflow as ev
        >>> class Trade(ev.Event):
        ...     price: float
        >>> g = ev.Graph("trades")
        >>> high = g.source("trades", Trade) >> ev.Filter("input.price > 78.5", name="high")
        >>> end = high >> ev.Terminal(print)
        >>> list(g.stones)
        ['trades', 'high', 'terminal']
    """

    def __init__(self, name: str = "graph") -> None:
        self.name = name
        self.stones: dict[str, Stone] = {}
        self.links: list[Link] = []
        self.morphs: list[Morph] = []
        self._on: str | None = None

    def source(self, name: str, *schemas: Any, on: str | None = None) -> Placed:
        """Adds a source, into which a program submits events.

        Args:
            name: its name.
            schemas: the schemas (or ``Event`` classes) expected; none for any.
            on: the node it is placed on.
        """
        return self.add(stone_class("source")(*schemas, name=name, on=on))

    def add(self, stone: Stone) -> Placed:
        """Adds a stone; one that is there already is left where it is.

        Raises:
            GraphError: another stone has its name.
        """
        if not isinstance(stone, Stone):
            raise GraphError(f"graph {self.name}: expected a stone such as ev.Filter(…), found {stone!r}")
        for name, known in self.stones.items():
            if known is stone:
                return Placed(self, name)
        name = stone.name if stone.name is not None else self._free_name(stone.kind)
        if not isinstance(name, str) or not name:
            raise GraphError(f"graph {self.name}: stone name {name!r}: expected a text")
        if name in self.stones:
            raise GraphError(f"graph {self.name}: there are two stones named {name!r}; give one another name")
        if stone.on is None:
            stone.on = self._on
        self.stones[name] = stone
        return Placed(self, name)

    def _free_name(self, kind: str) -> str:
        name, number = kind, 1
        while name in self.stones:
            number += 1
            name = f"{kind}_{number}"
        return name

    def link(self, source: Placed | PlacedPort, target: Placed | PlacedInput | Stone) -> Placed:
        """Links an output port to a stone; ``source >> target`` is the same.

        A port that is linked to a second stone gets a ``Split`` between.

        Returns:
            The target.

        Raises:
            GraphError: a stone is of another graph, or the link is there already.
        """
        start = source[0] if isinstance(source, Placed) else source
        if isinstance(target, Stone):
            target = self.add(target)
        end = PlacedInput(target, "") if isinstance(target, Placed) else target
        if not isinstance(end, PlacedInput):
            raise GraphError(
                f"graph {self.name}: {start.placed.name!r} can be linked to a stone such as ev.Terminal(…), "
                f"found {target!r}"
            )
        for placed in (start.placed, end.placed):
            if placed.graph is not self:
                raise GraphError(
                    f"graph {self.name}: stone {placed.name!r} belongs to graph {placed.graph.name!r}"
                )
        link = Link(start.placed.name, start.port, end.placed.name, end.input)
        if link in self.links:
            raise GraphError(f"graph {self.name}: {link.source!r} is linked to {link.target!r} already")
        self._fan_out(link)
        return end.placed

    def unlink(self, source: Placed | PlacedPort, target: Placed) -> None:
        """Takes away the link from an output port to a stone.

        Raises:
            GraphError: there is no such link.
        """
        start = source[0] if isinstance(source, Placed) else source
        ends = (start.placed.name, start.port, target.name)
        kept = [k for k in self.links if (k.source, k.port, k.target) != ends]
        if len(kept) == len(self.links):
            raise GraphError(
                f"graph {self.name}: {ends[0]!r} port {ends[1]} is not linked to {target.name!r}"
            )
        self.links = kept

    def put_between(self, link: Link, name: str) -> None:
        """Leads a link through a stone that the graph has."""
        at = self.links.index(link)
        self.links[at : at + 1] = [
            Link(link.source, link.port, name),
            Link(name, 0, link.target, link.input),
        ]

    def _fan_out(self, link: Link) -> None:
        earlier = next((k for k in self.links if (k.source, k.port) == (link.source, link.port)), None)
        if earlier is None or self.stones[link.source].kind == "split":
            self.links.append(link)
            return
        # With the port's number, since several ports of one stone may fan out.
        split = f"{link.source}.split{link.port or ''}"
        if earlier.target != split:
            self.add(stone_class("split")(name=split, on=self.stones[link.source].on))
            self.links[self.links.index(earlier)] = Link(link.source, link.port, split)
            self.links.append(Link(split, 0, earlier.target, earlier.input))
        self.links.append(Link(split, 0, link.target, link.input))

    def morph(self, new: Any, old: Any, code: str) -> None:
        """Registers what turns an event of a newer schema into an older one.

        It is used where a stone wants the older one (EVPath paper, section 3.4).

        Args:
            new: the schema (or ``Event`` class) of the events that come.
            old: the schema that older stones want.
            code: Cod over ``input`` and ``output``, as a transform's.

        Raises:
            CodeError: the code is wrong.
        """
        morph = Morph(Schema.of(new), Schema.of(old), code)
        morph.function(morph.new)
        self.morphs.append(morph)

    @contextmanager
    def on(self, node: str) -> Iterator[None]:
        """Places the stones added within the ``with`` block on a node."""
        before, self._on = self._on, node
        try:
            yield
        finally:
            self._on = before

    def copy(self) -> Graph:
        """Another graph of the same stones and links."""
        graph = Graph(self.name)
        graph.stones = dict(self.stones)
        graph.links = list(self.links)
        graph.morphs = list(self.morphs)
        return graph

    def __getitem__(self, name: str) -> Placed:
        if name not in self.stones:
            raise GraphError(f"graph {self.name} has no stone {name!r}; it has {', '.join(self.stones)}")
        return Placed(self, name)

    def check(self) -> None:
        """Refuses a graph that cannot run, with everything that is wrong with it.

        Raises:
            EvflowError: the one problem there is, a ``CodeError`` for a wrong function.
            GraphError: several problems; ``problems`` has a text for each.
        """
        from evflow.check import check_graph

        check_graph(self)

    def run(self, **settings: Any) -> Flow:
        """Starts the graph in the background of this process.

        Args:
            settings: see ``Flow``.

        Returns:
            The running graph; ``with graph.run() as flow`` closes it at the end of the block.

        Raises:
            EvflowError: see ``check``; or a stone cannot be opened.
        """
        from evflow.flow.flow import Flow

        return Flow(self, **settings)

    def draw(self, path: str | None = None) -> Any:
        """A picture of the graph; a notebook shows it by itself.

        Args:
            path: a file to write it to, by its ending: ``.svg``, ``.png`` or ``.pdf``.

        Raises:
            GraphError: the library for the picture is not installed; says how to get it.
        """
        from evflow.draw import draw

        return draw(self, path)

    def _repr_svg_(self) -> str:
        text: str = self.draw().svg
        return text

    def to_dict(self) -> dict[str, Any]:
        """The graph as plain data (JSON): functions as their source, handlers as ``module:function``.

        Raises:
            GraphError: a handler has no such name.
            CodeError: the source of a Python function cannot be read.
        """
        return {
            "name": self.name,
            "stones": [
                {"name": name, "kind": stone.kind, "on": stone.on, "settings": stone.settings()}
                for name, stone in self.stones.items()
            ],
            "links": [[k.source, k.port, k.target, k.input] for k in self.links],
            "morphs": [[m.new.description, m.old.description, m.code] for m in self.morphs],
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Graph:
        """The graph that ``to_dict`` described.

        Raises:
            GraphError: the data is malformed, or a handler cannot be imported.
        """
        try:
            graph = cls(data["name"])
            for entry in data["stones"]:
                stone = stone_class(entry["kind"]).from_settings(entry["settings"])
                stone.name, stone.on = entry["name"], entry["on"]
                graph.add(stone)
            graph.links = [Link(str(a), int(port), str(b), str(input)) for a, port, b, input in data["links"]]
            for new, old, code in data["morphs"]:
                graph.morph(Schema.from_description(new), Schema.from_description(old), code)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise GraphError(f"graph data is malformed: {type(error).__name__}: {error}") from error
        return graph

    def __repr__(self) -> str:
        return f"Graph({self.name}: {len(self.stones)} stones, {len(self.links)} links)"


@dataclass(frozen=True, repr=False)
class Placed:
    """A stone in a graph: ``placed >> stone`` links its output, ``placed[n]`` is its port n.

    ``placed["name"]`` is one of its inputs, for a stone that has several.
    """

    graph: Graph
    name: str

    @property
    def stone(self) -> Stone:
        """The stone's description."""
        return self.graph.stones[self.name]

    @overload
    def __getitem__(self, port: int) -> PlacedPort: ...
    @overload
    def __getitem__(self, port: str) -> PlacedInput: ...
    def __getitem__(self, port: int | str) -> PlacedPort | PlacedInput:
        if isinstance(port, int):
            if port < 0:
                raise GraphError(f"stone {self.name!r}: output port {port}: expected 0 or more")
            return PlacedPort(self, port)
        if not isinstance(port, str) or port not in self.stone.inputs:
            raise GraphError(
                f"stone {self.name!r} has no input {port!r}; it has {', '.join(self.stone.inputs) or 'none'}"
            )
        return PlacedInput(self, port)

    def __rshift__(self, target: Placed | PlacedInput | Stone) -> Placed:
        return self.graph.link(self, target)

    def __repr__(self) -> str:
        return f"<{self.name} of {self.graph.name}>"


@dataclass(frozen=True)
class PlacedPort:
    """One output port of a stone."""

    placed: Placed
    port: int

    def __rshift__(self, target: Placed | PlacedInput | Stone) -> Placed:
        return self.placed.graph.link(self, target)


@dataclass(frozen=True)
class PlacedInput:
    """One input of a stone that has several."""

    placed: Placed
    input: str
