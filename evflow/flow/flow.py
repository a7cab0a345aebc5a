"""A running graph, seen from outside; ``worker.py`` is the thread behind it."""

from __future__ import annotations

import atexit
import threading
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any

from evflow.check import check_graph, find_arrivals
from evflow.engine.engine import Engine
from evflow.engine.letters import DeadLetters, LetterBox
from evflow.engine.topology import DROPPED, ERRORS, IN, OUT, Hop, Slot, Topology, crossing_of
from evflow.errors import FlowError, GraphError
from evflow.events.batch import EventBatch
from evflow.flow.entry import Entry
from evflow.flow.worker import Worker
from evflow.placement import bridged, placed_on
from evflow.stone import Stone, checked_integer

if TYPE_CHECKING:
    from evflow.graph import Graph
    from evflow.node.node import Links, Node

__all__ = ["Flow"]


_open: set[Flow] = set()


@atexit.register
def _close_all() -> None:
    # Whoever forgets to close loses nothing all the same.
    for flow in list(_open):
        flow.close()


class Flow:
    """A graph that runs in the background of this process; made by ``Graph.run``.

    It runs until ``close``, or until the program ends, which closes it.

    Args:
        graph: the graph; it is checked first.
        max_events: submissions that may wait at each stone before ``submit`` waits.
        max_bytes: bytes of batches that may wait at each stone, or of events at all frozen stones together,
            before ``submit`` waits.
        dead_letters: the number of dead letters kept; older ones are let go and counted.
        node: run the stones that are placed on this node, with bridges to the others; without, run all stones
            here.

    Raises:
        EvflowError: the graph is wrong, or a stone cannot be opened.

    Example:
        >>> import evflow as ev
        >>> class Ping(ev.Event):
        ...     number: int
        >>> g = ev.Graph()
        >>> large = g.source("pings", Ping) >> ev.Filter("input.number > 1", name="large")
        >>> _ = large >> ev.Terminal(lambda event: None)
        >>> with g.run() as flow:
        ...     flow["pings"].submit(Ping(1))
        ...     flow["pings"].submit_batch({"number": [2, 3]})
        ...     flow.drain()
        ...     flow.stats()["large"]["in"], flow.stats()["large"]["out"]
        (3, 2)
    """

    def __init__(
        self,
        graph: Graph,
        *,
        max_events: int = 65_536,
        max_bytes: int = 32 << 20,
        dead_letters: int = 10_000,
        node: Node | None = None,
    ) -> None:
        # A copy, since links and stones may change while it runs.
        self.graph = graph.copy() if node is None else bridged(graph)
        topology = check_graph(self.graph)
        if node is not None:
            topology = placed_on(topology, node.name)
        self.node = node if node is not None else _own_node(topology)
        self._slots = topology.slots
        checked_integer("max_events", max_events)
        checked_integer("max_bytes", max_bytes)
        self._box = LetterBox(checked_integer("dead_letters", dead_letters, 0), self._resubmit)
        links = None if self.node is None else self.node.attach(graph.name)
        try:
            self._engine = Engine(topology, self._box, lambda slot: _sender(links, topology, slot))
        except BaseException:
            if self.node is not None:
                self.node.close()
            raise
        self._worker = Worker(self._engine, graph.name, max_events, max_bytes, links)
        if links is not None:
            entrances = {name: topology.slots[name] for name in topology.entrances}
            worker = self._worker
            links.attach(self._engine, entrances, worker.run_arrived, worker.run_after, self._give_up)
        self._worker.start()
        self._do = self._worker.do
        self._entries: dict[str, Entry] = {}
        self._lock = threading.Lock()
        _open.add(self)

    def __getitem__(self, name: str) -> Entry:
        """The stone of that name, to submit events to.

        Raises:
            FlowError: there is none.
        """
        entry = self._entries.get(name)
        if entry is None:
            slot = self._slot(name)
            with self._lock:
                entry = self._entries.get(name)
                if entry is None:
                    entry = self._entries[name] = Entry(self._worker, slot)
        return entry

    def drain(self, timeout: float | None = None) -> None:
        """Returns when everything submitted so far has been handled.

        What a frozen, storage or queue stone holds counts as handled. What went to other nodes has been
        handled there, or is safe there; over a bridge that delivers at most once it has only been sent. A
        handler that calls this does not wait.

        Raises:
            FlowError: not within ``timeout`` seconds, and why; or the flow is closed.
        """
        self._worker.drain(timeout)

    def stats(self) -> dict[str, dict[str, float]]:
        """What happened at each stone: ``in``, ``out``, ``dropped``, ``errors``, ``unmatched`` and ``queued``
        events, and ``busy`` seconds. Exact after ``drain``."""
        return {
            name: {
                "in": int(slot.counts[IN]),
                "out": int(slot.counts[OUT]),
                "dropped": int(slot.counts[DROPPED]),
                "errors": int(slot.counts[ERRORS]),
                "unmatched": slot.unmatched,
                "queued": slot.queued,
                "busy": slot.busy,
            }
            for name, slot in list(self._slots.items())
        }

    def dead_letters(self) -> DeadLetters:
        """The events that were given up, oldest first; also after ``close``."""
        return self._box.letters()

    def freeze(self, name: str) -> None:
        """From now on a stone queues what arrives, in order.

        When ``max_bytes`` wait at frozen stones, the flow takes no more events until one goes on.
        """
        slot = self._slot(name)
        self._do(lambda: self._engine.freeze(slot))

    def unfreeze(self, name: str) -> None:
        """A frozen stone goes on, with what it queued first."""
        slot = self._slot(name)
        self._do(lambda: self._engine.unfreeze(slot))

    def send_stored(self, name: str, count: int | None = None) -> int:
        """Lets a storage stone's oldest ``count`` events go on (None: all).

        Returns:
            How many went.

        Raises:
            GraphError: ``count`` is no integer of 0 or more.
        """
        if count is not None:
            checked_integer(f"stone {name!r}: count", count, 0)
        slot = self._slot(name)
        return self._do(lambda: self._engine.send_stored(slot, count)) or 0

    def extract(self, name: str) -> list[EventBatch]:
        """Takes out the events that wait at a stone: those it holds, and those it queued while frozen."""
        slot = self._slot(name)
        return self._do(lambda: self._engine.extract(slot)) or []

    def transfer(self, source: str, target: str) -> None:
        """Moves the events that wait at one stone to another, in order, before what arrives there later."""
        start, end = self._slot(source), self._slot(target)
        self._do(lambda: self._engine.transfer(start, end))

    def attributes(self, name: str) -> dict[str, int | float | str]:
        """A stone's attributes, which its function reads as ``stone_attrs``; a dict to read and to set."""
        return self._slot(name).attributes

    def link(self, split: str, target: str | Stone) -> str:
        """Adds a target to a split.

        Args:
            split: the split's name.
            target: the name of a stone, or a new terminal or other stone that needs no output.

        Returns:
            The target's name.

        Raises:
            FlowError: there is no such stone, or it is a target already.
            GraphError: the stone cannot stand there; the flow is as it was.
        """
        return self._do(lambda: self._link(split, target)) or ""

    def unlink(self, split: str, target: str) -> None:
        """Takes a target off a split.

        Raises:
            FlowError: it is not one of the split's targets.
        """
        self._do(lambda: self._unlink(split, target))

    def close(self, timeout: float = 10.0) -> None:
        """Ends the flow: takes no more events, lets frozen stones go on, and handles all there is.

        What stones hold in memory goes to the dead letters; a file keeps it. Closing twice does nothing.

        Args:
            timeout: seconds to wait until other nodes have handled what was sent to them; what they have not
                by then goes to the dead letters.
        """
        with self._lock:
            for entry in self._entries.values():
                entry.close()
        try:
            self._worker.close(self._engine.close, timeout)
        finally:
            if self._worker.closing:
                _open.discard(self)

    def __enter__(self) -> Flow:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def draw(self, path: str | None = None) -> Any:
        """A picture of the graph with live counts; see ``Graph.draw``."""
        from evflow.draw import draw

        return draw(self.graph, path, self.stats())

    def _repr_svg_(self) -> str:
        text: str = self.draw().svg
        return text

    def __repr__(self) -> str:
        state = "closed" if self._worker.closing else "running"
        return f"<Flow {self.graph.name}, {state}>"

    def _slot(self, name: str) -> Slot:
        if name not in self._slots:
            raise FlowError(f"flow {self.graph.name} has no stone {name!r}; it has {', '.join(self._slots)}")
        return self._slots[name]

    def _resubmit(self, name: str, batch: EventBatch) -> None:
        self[name].submit_batch(batch)

    def _link(self, name: str, target: str | Stone) -> str:
        split = self._split(name)
        end = self._new_target(target) if isinstance(target, Stone) else self._slot(target)
        if any(hop.slot is end for hop in split.ports.get(0, ())):
            raise FlowError(f"{end.name!r} is a target of {name!r} already")
        split.ports.setdefault(0, []).append(Hop(end, ""))
        try:
            find_arrivals(self._engine.topology)
        except GraphError:
            split.ports[0].pop()
            find_arrivals(self._engine.topology)
            raise
        self.graph.link(self.graph[name], self.graph[end.name])
        self._engine.changed()
        return end.name

    def _new_target(self, stone: Stone) -> Slot:
        if stone.linked_ports != "none":
            raise GraphError(f"stone {stone!r}: its output would lead nowhere; link a Terminal")
        crossing = crossing_of(stone)
        if crossing is not None and self.node is None:
            raise GraphError(
                f"stone {stone!r}: this flow has no node; start it with graph.run(node=ev.Node())"
            )
        name = self.graph.add(stone).name
        slot = Slot(name, stone)
        if crossing is not None:
            self._engine.topology.crossings[name] = crossing
        self._engine.open(slot)
        self._slots[name] = slot
        return slot

    def _unlink(self, name: str, target: str) -> None:
        split = self._split(name)
        kept = [hop for hop in split.ports.get(0, []) if hop.slot.name != target]
        if len(kept) == len(split.ports.get(0, [])):
            raise FlowError(
                f"{target!r} is not a target of {name!r}; its targets are "
                f"{', '.join(hop.slot.name for hop in kept) or 'none'}"
            )
        split.ports[0] = kept
        self.graph.unlink(self.graph[name], self.graph[target])
        find_arrivals(self._engine.topology)
        self._engine.changed()

    def _split(self, name: str) -> Slot:
        slot = self._slot(name)
        if slot.stone.kind != "split":
            raise FlowError(
                f"stone {name!r} is a {slot.stone.kind}; only a split's targets can change while it runs"
            )
        return slot

    def _give_up(self, name: str, batch: EventBatch, reason: str) -> None:
        self._engine.give_up(self._slots[name], batch, reason)


def _own_node(topology: Topology) -> Node | None:
    """A node for a graph that runs here as a whole, if it has bridges that lead out of it."""
    if not topology.crossings:
        return None
    from evflow.node.node import Node

    return Node()


def _sender(links: Links | None, topology: Topology, slot: Slot) -> Callable[[EventBatch], None] | None:
    crossing = topology.crossings.get(slot.name)
    if crossing is None or links is None:
        return None
    return links.sender(slot, crossing)
