"""Stones in a graph, their ports and inputs, as what links are made between; and the links themselves."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple, overload

from evflow.errors import GraphError

if TYPE_CHECKING:
    from evflow.graph.graph import Graph
    from evflow.stone import Stone


class Link(NamedTuple):
    """A link from a port of one stone to an input of another ("" for the input that fits best)."""

    source: str
    port: int
    target: str
    input: str = ""


class Links(Sequence[Link]):
    """The links of a graph, by the port at which they start; those of one port in the order made.

    Args:
        links: the first links.
    """

    def __init__(self, links: Iterable[Link] = ()) -> None:
        self._by_port: dict[tuple[str, int], dict[Link, None]] = {}
        for link in links:
            self._by_port.setdefault((link.source, link.port), {})[link] = None

    def __len__(self) -> int:
        return sum(map(len, self._by_port.values()))

    @overload
    def __getitem__(self, index: int) -> Link: ...
    @overload
    def __getitem__(self, index: slice) -> list[Link]: ...
    def __getitem__(self, index: int | slice) -> Link | list[Link]:
        return list(self)[index]

    def __iter__(self) -> Iterator[Link]:
        return chain.from_iterable(self._by_port.values())

    def __contains__(self, link: object) -> bool:
        return isinstance(link, Link) and link in self._by_port.get((link.source, link.port), ())

    def __eq__(self, other: object) -> bool:
        return list(self) == list(other) if isinstance(other, Links) else NotImplemented

    def __repr__(self) -> str:
        return repr(list(self))

    def copy(self) -> Links:
        """The same links, to be changed apart."""
        made = Links()
        made._by_port = {port: links.copy() for port, links in self._by_port.items()}
        return made

    def at(self, source: str, port: int) -> list[Link]:
        """The links that start at a port.

        Args:
            source: the name of a stone.
            port: the number of its port.
        """
        return list(self._by_port.get((source, port), ()))

    def add(self, link: Link) -> None:
        """Adds a link, behind those that start at the same port."""
        self._by_port.setdefault((link.source, link.port), {})[link] = None

    def replace(self, link: Link, by: Link) -> None:
        """Puts a link that starts at the same port in the place of one of the links."""
        port = link.source, link.port
        self._by_port[port] = {by if known == link else known: None for known in self._by_port[port]}


@dataclass(frozen=True, repr=False)
class Placed:
    """A stone in a graph: ``placed >> stone`` links its output, ``placed[n]`` is its port n.

    ``placed["name"]`` is one of its inputs, for a stone that has several.

    Attributes:
        graph: the graph.
        name: the name of the stone there.
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

    def __rshift__(self, target: End | Stone) -> Placed:
        return self.graph.link(self, target)

    def __repr__(self) -> str:
        return f"<{self.name} of {self.graph.name}>"


@dataclass(frozen=True)
class PlacedPort:
    """One output port of a stone."""

    placed: Placed
    port: int

    def __rshift__(self, target: End | Stone) -> Placed:
        return self.placed.graph.link(self, target)


@dataclass(frozen=True)
class PlacedInput:
    """One input of a stone that has several."""

    placed: Placed
    input: str


Start = Placed | PlacedPort | str
"""Where a link starts: a stone (its port 0), one of its ports, or its name."""

End = Placed | PlacedInput | str
"""Where a link ends: a stone (the input that fits best), one of its inputs, or its name."""
