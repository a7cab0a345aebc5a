"""What a user does to the graph of a flow while events flow."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from evflow.choices import choices, listed
from evflow.errors import EvflowError, FlowError, GraphError
from evflow.flow.changing import Changes, Terms
from evflow.stone import Stone

if TYPE_CHECKING:
    from evflow.graph.graph import Graph, Placed

T = TypeVar("T")


class Editing:
    """The edits of a graph that runs, by the names of its stones; of a ``Flow`` and of a ``Deployment``."""

    def _edit(self, work: Callable[[Graph], T], timeout: float) -> T | None:
        """Makes what ``work`` does to a copy of the graph; gives what it returns, None from a handler."""
        raise NotImplementedError

    def _unknown(self, name: str, stones: Iterable[str]) -> EvflowError:
        """The error of a stone that is not there."""
        raise NotImplementedError

    def link(
        self, source: str, target: str | Stone, port: int = 0, *, input: str = "", timeout: float = 10.0
    ) -> str:
        """Links a stone's port to another stone; a port that is linked already gets a split.

        Args:
            source: the stone's name.
            target: the name of a stone, or a new terminal or other stone that needs no output.
            port: the port.
            input: the target's input; "" for the one that fits best.
            timeout: see ``change``.

        Returns:
            The target's name; "" from a handler.

        Raises:
            FlowError: there is no such stone, or it is linked so already.
            GraphError: the stone cannot stand there; the flow is as it was.
        """

        def work(graph: Graph) -> str:
            start = self._known(graph, source)
            if isinstance(target, Stone):
                return graph.link(start[port], target).name
            end = self._known(graph, target)
            if graph.has_link(source, port, target, input):
                raise FlowError(f"{target!r} is a target of {source!r} already")
            return graph.link(start[port], end[input] if input else end).name

        return self._edit(work, timeout) or ""

    def unlink(
        self, source: str, target: str, *, port: int = 0, input: str | None = None, timeout: float = 10.0
    ) -> None:
        """Takes a link away, also one that leads over a split that the graph has added.

        A split may be left without a target; it drops what comes then.

        Args:
            source: the stone's name.
            target: the name of the stone that it is linked to.
            port: the stone's port.
            input: the target's input; None for the one that is linked.
            timeout: see ``change``.

        Raises:
            FlowError: there is no such stone, or it is not linked so.
            GraphError: the stone's output would lead nowhere; the flow is as it was.
        """

        def work(graph: Graph) -> None:
            start, end = self._known(graph, source), self._known(graph, target)
            try:
                graph.unlink(start[port], end if input is None else end[input])
            except GraphError as error:
                raise FlowError(str(error)) from None

        self._edit(work, timeout)

    def insert(self, stone: Stone, *, after: str, before: str, port: int = 0, timeout: float = 10.0) -> str:
        """Puts a new stone between two that are linked; see ``Graph.insert``.

        Args:
            stone: the new stone; its port 0 leads on.
            after: the name of the stone before it.
            before: the name of the stone behind it.
            port: the port of ``after`` that leads to ``before``.
            timeout: seconds; see ``change``, which also says what else is raised.

        Returns:
            The name of the new stone; "" from a handler.

        Raises:
            FlowError: there is no such stone.
            GraphError: the two are not linked, or the new stone leads nowhere, or its name is taken.
        """

        def work(graph: Graph) -> str:
            for name in (after, before):
                if name not in graph.stones:
                    raise self._unknown(name, graph.stones)
            return graph.insert(stone, after=after, before=before, port=port).name

        return self._edit(work, timeout) or ""

    def remove(self, name: str, *, timeout: float = 10.0) -> None:
        """Takes a stone out, and links what led to it to what it led to; see ``Graph.remove``.

        Args:
            name: the name of the stone.
            timeout: seconds; see ``change``, which also says what else is raised.

        Raises:
            FlowError: there is no such stone.
            GraphError: the stone leads to several others.
        """
        self._edit(lambda graph: graph.remove(self._known(graph, name)), timeout)

    def replace(self, name: str, stone: Stone, *, timeout: float = 10.0) -> None:
        """Puts another stone in the place of one, with its name and its links; see ``Graph.replace``.

        Args:
            name: the name of the stone that goes.
            stone: the stone that takes its place.
            timeout: seconds; see ``change``, which also says what else is raised.

        Raises:
            FlowError: there is no such stone.
            GraphError: ``stone`` is not a stone or has another name, or cannot stand there.
        """
        self._edit(lambda graph: graph.replace(self._known(graph, name), stone), timeout)

    def _known(self, graph: Graph, name: str) -> Placed:
        """A stone of the graph by its name."""
        if name not in graph.stones:
            raise self._unknown(name, graph.stones)
        return graph[name]


class Changeable(Editing):
    """The part of a ``Flow`` that changes its graph."""

    _changes: Changes
    _removed: set[str]

    @contextmanager
    def change(self, *, timeout: float = 10.0, settled: bool = True) -> Iterator[Graph]:
        """Changes the graph while events flow: whole at the end of the ``with`` block, or not at all.

        The block edits a copy of the graph: ``insert``, ``remove``, ``replace``, ``link``, ``unlink``. Each
        event goes through the graph as it was or as it is then, and none is lost or overtaken. A stone that
        stays goes on as it is. One that is replaced keeps its counts, its attributes and the events that wait
        there, and its function begins anew. What a stone holds that is removed goes to the dead letters. A
        handler that does this does not wait: it is done after its event, and an error goes to the log.

        Args:
            timeout: seconds to wait until all is quiet.
            settled: wait until what came from other nodes has been handled, and what was sent to them over
                bridges that end. Without, what such a bridge still owes goes to the dead letters, and what is
                sent again after a node died may be handled twice.

        Raises:
            EvflowError: the graph would be wrong, a stone cannot be opened, or it was not quiet in time; or
                what the block raises. Nothing has changed then.

        Example:
            >>> import evflow as ev
            >>> class Ping(ev.Event):
            ...     number: int
            >>> seen = []
            >>> g = ev.Graph()
            >>> end = ev.Terminal(lambda event: seen.append(event.number), name="end")
            >>> _ = g.source("pings", Ping) >> end
            >>> with g.run() as flow:
            ...     flow["pings"].submit_batch({"number": [1, 2, 3]})
            ...     with flow.change() as graph:
            ...         _ = graph.insert(ev.Filter("input.number > 1"), after="pings", before="end")
            ...         _ = graph.link("pings", ev.Terminal(lambda event: seen.append(-event.number)))
            ...     flow["pings"].submit_batch({"number": [1, 2]})
            >>> seen
            [1, 2, 3, -1, -2, 2]
        """
        with self._changes.block(Terms(timeout, settled)) as graph:
            yield graph

    def _edit(self, work: Callable[[Graph], T], timeout: float) -> T | None:
        return self._changes.edit(work, Terms(timeout))

    def _unknown(self, name: str, stones: Iterable[str]) -> FlowError:
        flow = self._changes.graph.name
        if name in self._removed:
            return FlowError(f"stone {name!r} was removed from flow {flow}")
        known, elsewhere = list(stones), self._changes.graph.stones.get(name)
        if elsewhere is not None and elsewhere.on is not None:
            where = f"which is on node {elsewhere.on}"
            return FlowError(f"flow {flow} has no stone {name!r}, {where}{listed(known)}")
        return FlowError(f"flow {flow} has no stone {name!r}{choices(str(name), known)}")
