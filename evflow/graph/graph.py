"""The graph: stones and links, described as plain data; nothing happens before ``run``."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from evflow.choices import choices
from evflow.errors import GraphError
from evflow.graph.editable import Editable, Fallback, split_name
from evflow.graph.kinds import described, made, own_kind, stone_class
from evflow.graph.morph import Morph
from evflow.graph.placed import End, Link, Links, Placed, PlacedInput, PlacedPort, Start
from evflow.graph.rules import Rules, checked_rule, rules_of
from evflow.outside import shown
from evflow.schema import Schema
from evflow.stone import Stone

if TYPE_CHECKING:
    from evflow.deploy.handle import Deployment
    from evflow.flow.flow import Flow

__all__ = ["Fallback", "Graph", "Link", "Links", "Placed", "PlacedInput", "PlacedPort"]

above = importlib.import_module
"""What checks, runs and deploys graphs stands above them, so it is imported by name, where it is used."""


class Graph(Editable):
    """Stones and the links between them.

    Args:
        name: the graph's name; to be deployed, one without "/".

    Raises:
        GraphError: the name is not a text, or is empty.

    Attributes:
        stones: name → stone, in the order added.
        links: the links, by the port at which they start; those of one port in the order made.
        morphs: what turns events of newer schemas into older ones.
        fallbacks: node → where its stones go when it is dead.
        rules: (stone, request) → what is done when the stone asks for it; see ``when``.

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
        if not isinstance(name, str) or not name:
            raise GraphError(f"graph {shown(name, 300)}: expected a name, a text of 1 character or more")
        self.name = name
        self.stones: dict[str, Stone] = {}
        self.links = Links()
        self._unnamed: dict[int, str] = {}
        self.morphs: list[Morph] = []
        self.fallbacks: dict[str, Fallback] = {}
        self.rules: Rules = {}
        self._on: str | None = None

    def source(self, name: str, *schemas: Any, on: str | None = None) -> Placed:
        """Adds a source, into which a program submits events.

        Args:
            name: its name.
            schemas: the schemas (or ``Event`` classes) expected; none for any.
            on: the node it is placed on.

        Returns:
            The source, to be linked to others.

        Raises:
            GraphError: another stone has the name.
            SchemaError: one of ``schemas`` is not a schema.
        """
        return self.add(stone_class("source")(*schemas, name=name, on=on))

    def add(self, stone: Stone) -> Placed:
        """Adds a stone; one that is there already is left where it is.

        Args:
            stone: the stone.

        Returns:
            The stone in the graph, to be linked to others.

        Raises:
            GraphError: another stone has its name, or ``stone`` is not a stone.
        """
        if not isinstance(stone, Stone):
            raise GraphError(f"graph {self.name}: expected a stone such as ev.Filter(…), found {stone!r}")
        name = self._unnamed.get(id(stone)) if stone.name is None else stone.name
        if isinstance(name, str) and self.stones.get(name) is stone:
            return Placed(self, name)
        name = stone.name
        if name is None:
            name = self._unnamed[id(stone)] = self._free_name(stone.kind)
        if not isinstance(name, str) or not name:
            raise GraphError(f"graph {self.name}: stone name {name!r}: expected a text")
        if name in self.stones:
            raise GraphError(f"graph {self.name}: two stones are named {name!r}; rename one of them")
        if stone.on is None:
            stone.on = self._on
        self.stones[name] = stone
        return Placed(self, name)

    def _free_name(self, kind: str) -> str:
        if kind not in self.stones:
            return kind
        taken, free = 1, 2
        while f"{kind}_{free}" in self.stones:
            taken, free = free, 2 * free
        # Bisected, so that 10,000 stones without names are not counted through for each.
        while free - taken > 1:
            middle = (taken + free) // 2
            taken, free = (middle, free) if f"{kind}_{middle}" in self.stones else (taken, middle)
        return f"{kind}_{free}"

    def link(self, source: Start, target: End | Stone) -> Placed:
        """Links an output port to a stone; ``source >> target`` is the same.

        A port that is linked to a second stone gets a ``Split`` between.

        Args:
            source: a stone (its port 0), one of its ports, or its name.
            target: a stone, one of its inputs, or its name; or a new stone.

        Returns:
            The target.

        Raises:
            GraphError: there is no such stone, it is of another graph, or the link is there already.

        Example:
            >>> import evflow as ev
            >>> g = ev.Graph()
            >>> _ = g.source("pings") >> ev.Terminal(print, name="end")
            >>> g.link("pings", ev.Terminal(print, name="other"))
            <other of graph>
            >>> g.link(g["pings"][0], "other")
            Traceback (most recent call last):
            evflow.errors.GraphError: graph graph: 'pings' is linked to 'other' already
        """
        start = self._start(source)
        if isinstance(target, Stone):
            target = self.add(target)
        end = self._end(target, start)
        link = Link(start.placed.name, start.port, end.placed.name, end.input)
        if self.has_link(link.source, link.port, link.target, link.input):
            raise GraphError(f"graph {self.name}: {link.source!r} is linked to {link.target!r} already")
        self._fan_out(link)
        return end.placed

    def when(
        self,
        stone: Placed | str,
        request: int,
        *,
        move: Mapping[str, str] | None = None,
        freeze: Iterable[str] = (),
        unfreeze: Iterable[str] = (),
    ) -> None:
        """Says what is done when a stone's function asks for it by ``reconfigure(request)``.

        All of it is one change. A rule that is there for the same stone and request is replaced.

        Args:
            stone: the stone that asks, or its name.
            request: the number that it asks with, 1 or more.
            move: stone → the node it goes to; for graphs that are deployed.
            freeze: stones that queue what arrives from then on.
            unfreeze: stones that go on.

        Raises:
            GraphError: an argument is malformed, or the rule would change nothing.

        Example:
            >>> import evflow as ev
            >>> class Ping(ev.Event):
            ...     number: int
            >>> seen = []
            >>> g = ev.Graph()
            >>> watch = ev.Filter("{ if (input.number == 2) reconfigure(1); return 1; }", name="watch")
            >>> _ = g.source("pings", Ping) >> watch >> ev.Terminal(seen.append, name="end")
            >>> g.when("watch", 1, freeze=["end"])
            >>> with g.run() as flow:
            ...     for number in (1, 2, 3):
            ...         flow["pings"].submit(Ping(number))
            ...         flow.drain()
            ...     seen
            [Ping(number=1), Ping(number=2)]
        """
        name = self._placed(stone).name if isinstance(stone, Placed) else stone
        rule = checked_rule(name, request, move, freeze, unfreeze)
        self.rules[rule.stone, rule.request] = rule

    def _fan_out(self, link: Link) -> None:
        if own_kind(self.stones[link.source]) == "split" or not self.links.at(link.source, link.port):
            self.links.add(link)
            return
        split = split_name(link.source, link.port)
        earlier = self.links.at(link.source, link.port)[0]
        if earlier.target != split:
            self.add(stone_class("split")(name=split, on=self.stones[link.source].on))
            self.put_between(earlier, split)
        self.links.add(Link(split, 0, link.target, link.input))

    def morph(self, new: Any, old: Any, code: str) -> None:
        """Registers what turns an event of a newer schema into an older one.

        It is used where a stone wants the older one (EVPath paper, section 3.4).

        Args:
            new: the schema (or ``Event`` class) of the events that come.
            old: the schema that older stones want.
            code: Cod over ``input`` and ``output``, as a transform's, without static variables.

        Raises:
            CodeError: the code is wrong.
        """
        morph = Morph(Schema.of(new), Schema.of(old), code)
        morph.function(morph.new)
        self.morphs.append(morph)

    @contextmanager
    def on(self, node: str) -> Iterator[None]:
        """Places the stones added within the ``with`` block on a node.

        Args:
            node: the name of the node.
        """
        before, self._on = self._on, node
        try:
            yield
        finally:
            self._on = before

    def copy(self) -> Graph:
        """Another graph of the same stones and links."""
        graph = Graph.__new__(Graph)
        graph.name, graph._on = self.name, None
        graph.stones, graph.links = self.stones.copy(), self.links.copy()
        graph._unnamed, graph.morphs = self._unnamed.copy(), self.morphs.copy()
        graph.fallbacks, graph.rules = self.fallbacks.copy(), self.rules.copy()
        return graph

    def __getitem__(self, name: str) -> Placed:
        if name not in self.stones:
            raise GraphError(
                f"graph {self.name} has no stone {name!r}{choices(str(name), list(self.stones))}"
            )
        return Placed(self, name)

    def check(self) -> None:
        """Refuses a graph that cannot run, with everything that is wrong with it.

        Raises:
            EvflowError: the one problem there is, a ``CodeError`` for a wrong function.
            GraphError: several problems; ``problems`` has a text for each.
        """
        above("evflow.engine.check").check_graph(self)

    def run(self, **settings: Any) -> Flow:
        """Starts the graph in the background of this process.

        Args:
            settings: see ``Flow``.

        Returns:
            The running graph; ``with graph.run() as flow`` closes it at the end of the block.

        Raises:
            EvflowError: see ``check``; or a stone cannot be opened.
        """
        flow: Flow = above("evflow.flow.flow").Flow(self, **settings)
        return flow

    def deploy(
        self, hosts: Mapping[str, str], *, replace: bool = False, timeout: float = 10.0, **settings: Any
    ) -> Deployment:
        """Rolls the graph out over daemons (``evflow node``), all of it or nothing.

        It goes there as data: functions as their source, compiled where they run, and handlers by name,
        ``"module:function"``, imported from what the daemon allows. It lives on these nodes: this program may
        end, and any may take a handle of it again with ``evflow.Deployment(name, hosts)``.

        Args:
            hosts: node → contact; a host without stones has a vote on changes, and stones can be moved there.
            replace: let the graph take the place of the deployment of its name, as one change.
            timeout: seconds that the nodes have to get ready.
            settings: ``name``, ``keys``, ``plain`` and ``timeout`` of this program's end; see ``Deployment``.

        Returns:
            A handle, with what a flow has, and more.

        Raises:
            EvflowError: the graph is wrong.
            DeployError: a node refuses or cannot be reached; says which stone on which node and why. Nothing
                has changed then.

        Example: see ``Daemon``.
        """
        deploy = above("evflow.deploy.rollout").deploy
        handle: Deployment = deploy(self, hosts, replace=replace, timeout=timeout, **settings)
        return handle

    def draw(self, path: str | None = None) -> Any:
        """A picture of the graph; a notebook shows it by itself.

        Args:
            path: a file to write it to, by its ending: ``.svg``, ``.png`` or ``.pdf``.

        Raises:
            GraphError: the library for the picture is not installed; says how to get it.
        """
        from evflow.graph.draw import draw

        return draw(self, path)

    def _repr_svg_(self) -> str:
        text: str = self.draw().svg
        return text

    def to_dict(self) -> dict[str, Any]:
        """The graph as plain data (JSON): functions as their source, handlers as ``module:function``,
        classes of stones that are not evflow's own as ``module:Class``, or as their package announces them.

        Raises:
            GraphError: a handler or a class has no such name, or the settings of a stone are not plain data.
            CodeError: the source of a Python function cannot be read.
        """
        return {
            "name": self.name,
            "stones": [
                {"name": name, "on": stone.on, **described(name, stone)}
                for name, stone in self.stones.items()
            ],
            "links": [[k.source, k.port, k.target, k.input] for k in self.links],
            "morphs": [[m.new.description, m.old.description, m.code] for m in self.morphs],
            "fallbacks": {
                node: {"to": rule.to, "after": rule.after} for node, rule in self.fallbacks.items()
            },
            "rules": [rule.data() for rule in self.rules.values()],
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], make: Callable[[Mapping[str, Any]], Stone] = made) -> Graph:
        """The graph that ``to_dict`` described.

        Args:
            data: the description.
            make: makes a stone of what its entry in ``data`` says. By default classes of stones that are not
                evflow's own are imported; where that fails, one that says so when it is to run stands there.

        Raises:
            GraphError: the data is malformed, a kind of stone is not known, or its settings make no stone.
        """
        try:
            graph = cls(data["name"])
            for entry in data["stones"]:
                graph.add(make(entry))
            graph.links = Links(
                Link(str(a), int(port), str(b), str(input)) for a, port, b, input in data["links"]
            )
            for new, old, code in data["morphs"]:
                graph.morph(Schema.from_description(new), Schema.from_description(old), code)
            for node, rule in data.get("fallbacks", {}).items():
                graph.fallback(node, to=rule["to"], after=rule["after"])
            graph.rules = rules_of(data)
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise GraphError(f"graph data is malformed: {type(error).__name__}: {error}") from error
        return graph

    def __repr__(self) -> str:
        return f"Graph({self.name}: {len(self.stones)} stones, {len(self.links)} links)"
