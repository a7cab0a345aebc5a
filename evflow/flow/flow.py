"""A running graph, seen from outside; ``worker.py`` is the thread behind it."""

from __future__ import annotations

import atexit
import importlib
import math
import threading
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from evflow.engine.change import Difference
from evflow.engine.check import check_graph
from evflow.engine.engine import Engine
from evflow.engine.letters import DeadLetters, LetterBox
from evflow.engine.placement import bridged, placed_on
from evflow.engine.topology import DROPPED, ERRORS, IN, OUT, Slot, Topology
from evflow.errors import FlowError, GraphError, LinkError
from evflow.events.batch import EventBatch
from evflow.flow.changeable import Changeable
from evflow.flow.changing import Ahead, Alteration, Changes, Obeying, check_rules_here
from evflow.flow.drains import Drain, check_timeout
from evflow.flow.entry import Entry
from evflow.flow.loading import load
from evflow.flow.net import Alone, Net
from evflow.flow.worker import Worker
from evflow.forked import leave_to_parent, renew
from evflow.outside import shown
from evflow.stone import Acting, checked_integer

if TYPE_CHECKING:
    from evflow.flow.questions import Questions
    from evflow.graph.graph import Graph
    from evflow.net.node.node import Links, Node

T = TypeVar("T")

_open: set[Flow] = set()


def _close_all() -> None:
    # Whoever forgets to close loses nothing all the same.
    for flow in list(_open):
        # One that broke has told its user, or the log.
        with suppress(FlowError):
            flow.close()


class Flow(Changeable):
    """A graph that runs in the background of this process; made by ``Graph.run``.

    It runs until ``close``, or until the program ends, which closes it. A method that is given the name of a
    stone raises ``FlowError`` if there is no such stone, or if it has to act and the flow is closed.

    Args:
        graph: the graph; it is checked first.
        max_events: submissions that may wait at each stone before ``submit`` waits, or raises if a handler
            calls it, which cannot wait.
        max_bytes: bytes that may wait at each stone, or at all frozen stones together, before ``submit``
            does so.
        dead_letters: the number of dead letters kept, of 256 MiB at most; older ones are let go and counted.
        on_error: what happens when stones have failed on events, which are dead letters then: "keep" goes on,
            and the log tells of it; with "raise" the next ``drain`` or ``close`` raises what failed first,
            too.
        node: run the stones that are placed on this node, with bridges to the others; without, run all stones
            here. It is closed with the flow, also where that cannot begin.

    Raises:
        EvflowError: the graph is wrong, or a stone cannot be opened.

    Attributes:
        node: the node, or None.
        links: its links, as the engine's thread drives them; None without a node.
        engine: what runs; touched in its own thread only, see ``call``.

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
        on_error: str = "keep",
        node: Node | None = None,
    ) -> None:
        # A copy, since stones and links may change while it runs.
        described = graph.copy()
        if node is not None and not hasattr(node, "attach"):
            raise GraphError(
                f"graph {graph.name}: node {shown(node, 300)}: expected a node such as ev.Node('edge')"
            )
        self.node = node
        self._placed = node is not None
        self._raises = on_error == "raise"
        try:
            if on_error not in ("keep", "raise"):
                raise FlowError(
                    f"graph {graph.name}: on_error {shown(on_error, 300)}: expected 'keep' or 'raise'"
                )
            topology = self._checked(described, running=False)
        except BaseException:
            if node is not None:
                node.close()
            raise
        reached = any(
            isinstance(slot.stone, Acting) and slot.stone.listens for slot in topology.slots.values()
        )
        if node is None:
            _refuse_unknown_peers(topology)
        if (topology.crossings or reached) and node is None:
            self.node = _new_node("tcp://127.0.0.1:0" if reached else None)
        self._start(described, topology, max_events, max_bytes, dead_letters)

    @classmethod
    def empty(
        cls,
        name: str,
        *,
        max_events: int = 65_536,
        max_bytes: int = 32 << 20,
        dead_letters: int = 10_000,
        node: Node | None = None,
    ) -> Flow:
        """A flow without stones, to be filled by ``alteration``; ``name`` is that of its graph, and
        ``max_events``, ``max_bytes``, ``dead_letters`` and ``node`` are as ``Flow`` has them."""
        # A graph knows the flow that it runs in; a flow finds graphs only when it is to begin without one.
        graph = importlib.import_module("evflow.graph.graph").Graph(name)
        flow = cls.__new__(cls)
        flow.node, flow._placed, flow._raises = node, node is not None, False
        flow._start(graph, Topology({}), max_events, max_bytes, dead_letters)
        return flow

    def _start(
        self, graph: Graph, topology: Topology, max_events: int, max_bytes: int, dead_letters: int
    ) -> None:
        load()
        checked_integer("max_events", max_events)
        checked_integer("max_bytes", max_bytes)
        self._box = LetterBox(
            checked_integer("dead_letters", dead_letters, 0), self._resubmit, flow=graph.name
        )
        self.links = links = None if self.node is None else self.node.attach(graph.name)
        try:
            contact = "" if self.node is None else self.node.contact
            self.engine = Engine(topology, self._box, lambda slot: _sender(links, topology, slot), contact)
        except BaseException:
            if self.node is not None:
                self.node.close()
            raise
        net: Net = Alone(self.engine.waking.blocked, self.engine.stalls.settle) if links is None else links
        self._worker = worker = Worker(self.engine, graph.name, max_events, max_bytes, net)
        if links is not None:
            entrances = {name: topology.slots[name] for name in topology.entrances}
            links.attach(self.engine, entrances, worker.run_inner, self._give_up)
        self._questions: Questions | None = None
        if links is not None:
            from evflow.flow.questions import Questions

            later, each_turn = partial(worker.later, links=True), partial(worker.each_turn, links=True)
            self._questions = Questions(self.engine, links, later, each_turn)
        self._net = net
        self._changes = Changes(graph.name, worker, graph, self._checked, self._altered)
        self._do = worker.do
        self._obeying: Callable[[], None] | None = None
        self._obey()
        self._entries: dict[str, Entry] = {}
        self._removed: set[str] = set()
        self._lock = threading.Lock()
        leave_to_parent(self)
        worker.start()
        _open.add(self)
        # The last that is registered is called first: before pyzmq can send nothing more, for one.
        atexit.unregister(_close_all)
        atexit.register(_close_all)

    def _checked(self, graph: Graph, running: bool = True) -> Topology:
        """What of a graph runs here; what is added later is placed here, if nowhere.

        Raises:
            EvflowError: the graph is wrong.
        """
        # A running graph may be left without a stone, so with none that is placed.
        if self._placed and self.node is not None and graph.stones:
            for name in [name for name, stone in graph.stones.items() if running and stone.on is None]:
                graph.move(name, self.node.name)
            here = placed_on(check_graph(bridged(graph), running=running), self.node.name)
            check_rules_here(graph, here)
            return here
        topology = check_graph(graph, running=running, known=self.engine.topology if running else None)
        check_rules_here(graph, topology)
        if running and topology.crossings and self.node is None:
            raise GraphError(
                f"bridge {next(iter(topology.crossings))!r} leads to another node, and this flow has none; "
                "start it with graph.run(node=ev.Node())"
            )
        return topology

    @property
    def graph(self) -> Graph:
        """The graph as it runs now, with the bridges that were added where links cross from node to node."""
        graph = self._changes.graph
        return bridged(graph) if self._placed else graph

    def __getitem__(self, name: str) -> Entry:
        """The stone of that name, to submit events to.

        Raises:
            FlowError: there is none, or it was removed.
        """
        entry = self._entries.get(name)
        if entry is None:
            with self._lock:
                # Found within the lock: a stone that is removed ends its entry within it, too.
                slot = self._slot(name)
                entry = self._entries.get(name)
                if entry is None:
                    entry = self._entries[name] = Entry(self._worker, slot)
        return entry

    def drain(self, timeout: float | None = None) -> None:
        """Returns when everything submitted so far has been handled.

        What a frozen, storage or queue stone holds counts as handled. What went to other nodes has been
        handled there, or is safe there; over a bridge that delivers at most once it has only been sent. A
        handler that calls this does not wait. Who waits for other nodes, or for workers, is told so in the
        log after 10 seconds, and then after each tenfold time.

        Raises:
            FlowError: not within ``timeout`` seconds, and why; the flow is closed; or a handler had submitted
                more than may wait, and events became dead letters by that. This is raised once.
            EvflowError: why a stone has failed that emits by itself, as by a job of Spark; or with
                ``on_error="raise"`` what failed first.
        """
        self._worker.drain(timeout)
        if self._raises and not self._worker.in_handler:
            self._box.failures.raise_first()

    def when_drained(self, call: Callable[[], object]) -> None:
        """Has ``call`` called, in the flow's own thread, when ``drain`` would return; it does not wait.

        Args:
            call: called without arguments; never, if the flow ends before.
        """
        self._worker.begin(Drain(self.engine, call))

    def stats(self) -> dict[str, dict[str, float]]:
        """What happened at each stone: ``in``, ``out``, ``dropped``, ``errors``, ``unmatched`` and ``queued``
        events, and ``busy`` seconds. Exact after ``drain``."""
        return {
            name: {
                "in": slot.counts[IN],
                "out": slot.counts[OUT],
                "dropped": slot.counts[DROPPED],
                "errors": slot.counts[ERRORS],
                "unmatched": slot.unmatched,
                "queued": slot.queued,
                "busy": slot.busy,
            }
            for name, slot in list(self.engine.topology.slots.items())
        }

    def dead_letters(self, prefix: str = "") -> DeadLetters:
        """The events that were given up, oldest first; also after ``close``.

        Args:
            prefix: what the names of the stones begin with that gave them up.
        """
        return self._box.letters(prefix)

    def freeze(self, name: str) -> None:
        """From now on the stone ``name`` queues what arrives, in order.

        When ``max_bytes`` wait at frozen stones, the flow takes no more events until one goes on.
        """
        slot = self._slot(name)
        self._do(lambda: self.engine.freeze(slot))

    def unfreeze(self, name: str) -> None:
        """Lets the frozen stone ``name`` go on, with what it queued first."""
        slot = self._slot(name)
        self._do(lambda: self.engine.unfreeze(slot))

    def send_stored(self, name: str, count: int | None = None) -> int:
        """Lets the oldest ``count`` events of the storage stone ``name`` go on (None: all).

        Returns:
            How many events went; 0 from a handler.

        Raises:
            GraphError: ``count`` is not an integer of 0 or more.
        """
        if count is not None:
            checked_integer(f"stone {name!r}: count", count, 0)
        slot = self._slot(name)
        return self._do(lambda: self.engine.send_stored(slot, count)) or 0

    def extract(self, name: str) -> list[EventBatch]:
        """Takes out and gives what waits at the stone ``name``, held or queued while frozen, oldest first."""
        slot = self._slot(name)
        return self._do(lambda: self.engine.extract(slot)) or []

    def transfer(self, source: str, target: str) -> None:
        """Moves what waits at the stone ``source`` to ``target``, in order, before later arrivals."""
        start, end = self._slot(source), self._slot(target)
        self._do(lambda: self.engine.transfer(start, end))

    def attributes(self, name: str) -> dict[str, int | float | str]:
        """The attributes of the stone ``name``, its function's ``stone_attrs``; a dict to read and to set."""
        return self._slot(name).attributes

    def alteration(
        self,
        wanted: Topology,
        moved: Collection[str] = frozenset(),
        done: Callable[[Difference], None] = lambda made: None,
        drop: Callable[[str], None] | None = None,
        ahead: Ahead | None = None,
    ) -> Alteration:
        """A change of what runs here, step by step, each of which is for ``call``; ``graph`` does not follow.

        Args:
            wanted: the stones and links as they are to be.
            moved: stones that go, and go on elsewhere with what they held.
            done: called with what was changed, before the entries are opened again.
            drop: ends a bridge that goes; by default what it still owes becomes dead letters.
            ahead: what is known of the change ahead; see ``Alteration``.
        """

        def follow(made: Difference) -> None:
            self._follow(made)
            done(made)

        return Alteration(
            self.engine,
            self._net,
            wanted,
            moved,
            submitted=self._worker.submitted,
            done=follow,
            drop=drop,
            ahead=ahead,
        )

    def _altered(
        self, wanted: Topology, done: Callable[[Difference], None], ahead: Ahead | None
    ) -> Alteration:
        def follow(made: Difference) -> None:
            done(made)
            self._obey()

        return self.alteration(wanted, done=follow, ahead=ahead)

    def _obey(self) -> None:
        """Has the thread follow the graph's rules, where it has any."""
        if self._obeying is None and self._changes.graph.rules:
            obeying = Obeying(self.engine, lambda: self._changes.graph)
            # A flow that closes lets all frozen stones go on, so none may freeze then.
            self._obeying = self._worker.each_turn(
                lambda now: None if self._worker.closing else obeying.look(now)
            )

    def _follow(self, made: Difference) -> None:
        """Ends the entries of stones that are gone; called in the engine's thread."""
        with self._lock:
            self._removed = (self._removed | made.gone) - made.new
        self.end_entries(made.gone, "it was removed from the flow")

    def end_entries(self, names: Iterable[str], reason: str) -> None:
        """From now on stones take nothing that is submitted; what waits to be taken becomes dead letters.

        Args:
            names: the stones, which are to be removed, or were.
            reason: why, for whoever submits; for ``call``.
        """
        with self._lock:
            ended = [(name, entry) for name in names if (entry := self._entries.pop(name, None))]
        for name, entry in ended:
            entry.close()
            for batch in entry.end(reason):
                self._box.put(name, batch, [f"{reason} before the event was taken"] * len(batch))

    def call(self, task: Callable[[], T], links: bool = False) -> T | None:
        """Has the engine's thread do a task between two runs, and gives its result once it is there.

        From a handler it does not wait: the task is done after the handler's event, and None comes back.

        Args:
            task: called without arguments.
            links: whether ``task`` needs nothing but ``Flow.links``, so that it need not wait for handlers.

        Raises:
            FlowError: the flow is closed.
            EvflowError: what the task raised.
        """
        return self._do(task, links=links)

    def post(self, task: Callable[[], object], links: bool = False) -> None:
        """Has the engine's thread do a task, in its time; an error of evflow goes to the log.

        Args:
            task: called without arguments.
            links: whether ``task`` needs nothing but ``Flow.links``, so that it need not wait for handlers.
        """
        self._worker.later(task, links)

    def ask(self, peer: str, stone: str, question: dict[str, Any], timeout: float = 10.0) -> Any:
        """Asks a stone of another node, and waits for its answer.

        The question is sent again until it is answered; what it asks is done once, unless the other node is
        started again meanwhile.

        Args:
            peer: a peer of this flow's node by name, or a contact.
            stone: the stone's name there; on a daemon ``deployment/stone``.
            question: plain data, as msgpack has it; what stones answer is said where they are described.
            timeout: seconds to wait.

        Returns:
            The answer, plain data.

        Raises:
            EvflowError: what the stone raised.
            LinkError: no answer in time.
            FlowError: this flow has no node, is closed, or a handler asks, for which it cannot wait.
        """
        if self._questions is None:
            raise FlowError(f"flow {self.graph.name} has no node; start it with graph.run(node=ev.Node())")
        if threading.get_ident() == self._worker.ident:
            raise FlowError("a handler cannot wait for an answer; ask in another thread")
        try:
            return self._questions.ask(self._do, peer, stone, question, timeout)
        except LinkError as error:
            from evflow.net.link.control import UnansweredError

            why = f"; {self._trouble(peer)}" if isinstance(error, UnansweredError) else ""
            raise LinkError(f"stone {stone!r} of {error}{why}") from None

    def _trouble(self, peer: str) -> str:
        """What is wrong with the link to a peer, as far as is known."""
        link = {} if self.node is None else self.node.links().get(peer, {})
        return link.get("trouble") or "its node does not answer"

    def each_turn(self, call: Callable[[float], float | None], links: bool = False) -> Callable[[], None]:
        """From now on the engine's thread calls this in each of its turns.

        Args:
            call: is given the time as ``time.monotonic`` tells it, and returns when it is to be called next
                at the latest; None if any time will do.
            links: whether ``call`` needs nothing but ``Flow.links``, so that it need not wait for handlers.

        Returns:
            What ends that.
        """
        return self._worker.each_turn(call, links)

    @property
    def failure(self) -> FlowError | None:
        """Why the flow has ended, though nobody closed it: its own bookkeeping failed, and its cause is that
        failure. None while it runs, and after an orderly end."""
        return self._worker.failure

    def close(self, timeout: float | None = 10.0) -> None:
        """Ends the flow: takes no more events, lets frozen stones go on, and handles all there is.

        What stones hold in memory goes to the dead letters; a file keeps it. Closing twice does nothing.

        Args:
            timeout: seconds to wait until other nodes have handled what was sent to them, and workers of
                terminals what is theirs; they begin anew whenever a worker is done with something. What has
                not been handled by then goes to the dead letters. None waits as long as it takes.

        Raises:
            FlowError: ``timeout`` is not a number. The flow broke before, or while it ended; see ``failure``.
                With ``on_error="raise"`` also what failed first, unless ``drain`` has raised it.
        """
        self._close(timeout)
        if self._raises:
            self._box.failures.raise_first()

    def _close(self, timeout: float | None = 10.0) -> None:
        check_timeout(self.graph.name, timeout)
        self._end(self.engine.close, math.inf if timeout is None else timeout, thaw=True)

    @property
    def failed(self) -> int:
        """Events that stones have failed on so far, which are dead letters, and calls of congestion handlers
        that failed."""
        return self._box.failures.count

    def forsake(self) -> None:
        """In a fork: the flow is the parent's, and says so to whoever uses it here."""
        _open.discard(self)
        renew(self._lock)
        for entry in self._entries.values():
            entry.forsake()
        self._worker.forsake()

    def stop(self) -> None:
        """Ends the flow as it stands: for who has kept elsewhere what stones hold. What came over links
        and is not safe is sent again by who sent it."""
        self._end(self.engine.stop, 0.0, thaw=False)

    def _end(self, finish: Callable[[], None], timeout: float, thaw: bool) -> None:
        was_open = self in _open
        with self._lock:
            for entry in self._entries.values():
                entry.close()
        try:
            self._worker.close(finish, timeout, thaw)
        finally:
            if self._worker.closing:
                _open.discard(self)
        if was_open:
            self._box.failures.sum_up()

    def __enter__(self) -> Flow:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # What the block raises is not hidden by what failed in the flow.
        if error is None:
            self.close()
        else:
            self._close()

    def draw(self, path: str | None = None) -> Any:
        """A picture of the graph with live counts, in the file ``path`` if given; see ``Graph.draw``."""
        from evflow.graph.draw import draw

        return draw(self.graph, path, self.stats())

    def _repr_svg_(self) -> str:
        text: str = self.draw().svg
        return text

    def __repr__(self) -> str:
        state = "closed" if self._worker.closing else "running"
        return f"<Flow {self.graph.name}, {state}>"

    def _slot(self, name: str) -> Slot:
        slot = self.engine.topology.slots.get(name)
        if slot is None:
            raise self._unknown(name, self.engine.topology.slots)
        return slot

    def _resubmit(self, name: str, batch: EventBatch, timeout: float | None) -> None:
        self[name].submit_batch(batch, timeout=timeout)

    def _give_up(self, name: str, batch: EventBatch, reason: str) -> None:
        self._box.put(name, batch, [reason] * len(batch))


def _new_node(listen: str | None) -> Node:
    """A node for a graph that runs here as a whole, and has bridges that lead out of it, or stones that other
    processes have to reach."""
    from evflow.net.node.node import Node

    return Node(listen=listen)


def _refuse_unknown_peers(topology: Topology) -> None:
    """A node that a flow makes for itself has no peers, and nobody knows of it."""
    for name, crossing in topology.crossings.items():
        if "://" not in crossing.peer:
            raise GraphError(
                f"bridge {name!r} leads to node {crossing.peer!r}, of which no contact is known; give its "
                "contact in the place of its name, or run the graph with "
                f"node=ev.Node(peers={{{crossing.peer!r}: CONTACT}})"
            )


def _sender(links: Links | None, topology: Topology, slot: Slot) -> Callable[[EventBatch], None] | None:
    crossing = topology.crossings.get(slot.name)
    if crossing is None or links is None:
        return None
    return links.sender(slot, crossing)
