"""Changes of a running graph: the transaction, and who asks for it: a program, or a rule of the graph.

An ``Alteration`` is the one transaction, of programs and of deployments: entries close, all comes to rest,
the change is made, they open. Each step is taken in the engine's thread. What takes long, as checks and
compilation, is done before by the thread that asks. A handler in the engine's thread cannot wait: its change
is made after its event, and an error goes to the log.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from evflow import mishaps
from evflow.engine.actors import asked, text
from evflow.engine.change import Difference, adopt, difference
from evflow.engine.engine import Engine
from evflow.engine.plan import Route, plan_route
from evflow.engine.snapshot import Parsed
from evflow.engine.topology import Slot, Topology
from evflow.errors import EvflowError, FlowError, GraphError, SchemaError
from evflow.flow.net import Net
from evflow.flow.worker import Worker
from evflow.graph.kinds import own_kind
from evflow.graph.ticks import TICK
from evflow.later import Once
from evflow.mishaps import CONTAINED, Broken
from evflow.schema import Schema
from evflow.stone import Acting, Actor

if TYPE_CHECKING:
    from evflow.graph.graph import Graph
    from evflow.graph.rules import Rule

_log = logging.getLogger("evflow.flow")

_LOOK_AGAIN = 0.002
"""Seconds after which it is looked again whether all is quiet."""

T = TypeVar("T")


class Ahead(NamedTuple):
    """What was found before the engine's thread was asked.

    Attributes:
        changes: what is to be changed.
        routes: how events go on from stones that come; see ``Engine.know``.
        version: ``Engine.version`` before.
    """

    changes: Difference
    routes: Mapping[tuple[str, str, str], Route]
    version: int


class Alteration:
    """A change of what an engine runs: ``begin``, then once nothing is ``waiting`` ``commit``, or ``cancel``.

    Used in the engine's thread only.

    Args:
        engine: the engine.
        net: the links.
        wanted: the stones and links as they are to be.
        moved: stones that go, and go on elsewhere with what they held.
        submitted: stones that programs submit to, besides the sources.
        done: called with what was changed, once it is.
        drop: ends a bridge that goes; by default what it still owes becomes dead letters.
        ahead: what ``compile_ahead`` has found.

    Attributes:
        changes: what is changed.
        entries: the stones that are closed meanwhile.
    """

    def __init__(
        self,
        engine: Engine,
        net: Net,
        wanted: Topology,
        moved: Collection[str] = frozenset(),
        *,
        submitted: Collection[str] = (),
        done: Callable[[Difference], None] = lambda made: None,
        drop: Callable[[str], None] | None = None,
        ahead: Ahead | None = None,
    ) -> None:
        self._drop = net.drop if drop is None else drop
        self._engine = engine
        self._net = net
        self._wanted = wanted
        self._moved = frozenset(moved)
        self._done = done
        self._adoptions = engine.adoptions
        self._closed = False
        self._passing: frozenset[str] = frozenset()
        self._draining: frozenset[str] = frozenset()
        self._repeating: Collection[str] = ()
        self._lost: Collection[str] = ()
        self._paused: list[tuple[str, Actor]] = []
        self._ahead = ahead if ahead is not None and ahead.version == engine.version else None
        self.changes = difference(engine.topology, wanted) if self._ahead is None else self._ahead.changes
        self.entries = self.changes.entries.union(self.changes.leading.intersection(submitted))

    def begin(
        self,
        passing: Collection[str] = (),
        draining: Collection[str] = (),
        sealed: bool = False,
        lost: Collection[str] = (),
    ) -> None:
        """Closes the entries; from now on what comes there waits, but for what had been sent there before.

        Args:
            passing: bridges of other nodes whose events are taken all the same, until ``seal``.
            draining: bridges to such entries of other nodes, which must have handled what they were given.
            sealed: whether nothing at all is taken, from the start.
            lost: nodes that are dead for good: what waits for them at bridges that keep nothing is let go.
        """
        if not self._closed:
            self._closed = True
            self._lost = lost
            self._passing = frozenset(() if sealed else passing)
            self._repeating = () if sealed else self.entries
            self._draining = frozenset(draining)
            self._net.close_entries(self.entries, self._passing, self._repeating)
            slots = self._engine.topology.slots
            ending = [slots[name] for name in sorted(self.changes.gone | self.changes.replaced)]
            self._paused = [(slot.name, slot.actor) for slot in ending if slot.actor is not None]
            for name, actor in self._paused:
                asked(name, actor, "pause", lambda actor: actor.pause(), None)

    def waiting(self) -> str:
        """What has to be done before the change can be made; "" if it can be made now."""
        for name, actor in self._paused:
            if at_work := text(name, actor, "at_work"):
                return f"stone {name!r}: {at_work}"
        bridges = self.changes.vanishing | self._draining
        return self._net.waiting_for(self.entries, {name for name in bridges if not self._lets_go(name)})

    def _lets_go(self, bridge: str) -> bool:
        """Whether a bridge keeps nothing for a node that is dead for good."""
        topology = self._engine.topology
        crossing = topology.crossings.get(bridge)
        if crossing is None or crossing.peer not in self._lost:
            return False
        return getattr(topology.slots[bridge].stone, "delivery", "") == "at_most_once"

    def seal(self) -> None:
        """From now on nothing is taken any more."""
        passing, self._passing = self._passing, frozenset()
        repeating, self._repeating = self._repeating, ()
        self._net.open_entries((), passing, repeating)

    def commit(
        self, wanted: Topology | None = None, snapshots: Mapping[str, Parsed] | None = None
    ) -> Difference:
        """Makes the change and opens the entries.

        Args:
            wanted: as the stones and links are to be by now, where others than those of this change have
                become others since it was begun.
            snapshots: of the stones that come from other nodes, by name; see ``evflow.engine.snapshot``.

        Returns:
            What was changed.

        Raises:
            FlowError: the graph was changed meanwhile, and ``wanted`` is not given.
            EvflowError: a stone cannot be opened, or a snapshot is malformed.

        In either case nothing has changed, and the entries are open.
        """
        try:
            if wanted is None and self._engine.adoptions != self._adoptions:
                raise FlowError("the graph was changed by another change meanwhile; make this change again")
            known = self.changes if wanted is None else None
            topology = self._wanted if wanted is None else wanted
            ahead = self._ahead if wanted is None else None
            routes = ahead.routes if ahead is not None and ahead.version == self._engine.version else {}
            made = adopt(self._engine, topology, self._moved, self._drop, snapshots or {}, known, routes)
        except BaseException:
            self.cancel()
            raise
        try:
            self._tell(made)
            self._done(made)
        except EvflowError:
            raise
        except Exception as error:
            raise Broken("the links were told of a change of the graph only in part") from error
        finally:
            self.cancel()
        return made

    def _tell(self, made: Difference) -> None:
        """Tells the links what was changed."""
        topology = self._engine.topology
        slots = topology.slots
        for name in sorted(made.left):
            why = "is led to from this node only" if name in slots else "has moved or was removed"
            self._net.leave(name, f"stone {name!r} {why}")
        # What came for a stone that was replaced may be for an input that it has not.
        for name in sorted(made.entered | (made.replaced & topology.entrances)):
            self._net.enter(name, slots[name])
        for bridge, crossing in made.readdressed.items():
            self._net.readdress(bridge, crossing)

    def cancel(self) -> None:
        """Opens the entries; what was not committed is as if it had not been begun."""
        if self._closed:
            self._closed = False
            self._net.open_entries(self.entries, self._passing, self._repeating)
            for name, actor in self._paused:
                asked(name, actor, "resume", lambda actor: actor.resume(), None)
            self._paused = []


Prepare = Callable[["Graph"], Topology]
"""Checks a graph; gives what of it runs."""

Begin = Callable[[Topology, Callable[[Difference], None], Ahead | None], Alteration]
"""Makes an alteration, of what is known ahead; what is given is called once it is made."""


class Terms(NamedTuple):
    """How long a change may wait, and whether it does at all; see ``Flow.change``."""

    timeout: float
    settled: bool = True


class Changes:
    """The changes of one flow.

    Args:
        name: the flow's name.
        worker: the thread.
        graph: what the flow was started with.
        prepare: see ``Prepare``.
        begin: see ``Begin``.

    Attributes:
        graph: the graph as it is now; another object after each change.
    """

    def __init__(self, name: str, worker: Worker, graph: Graph, prepare: Prepare, begin: Begin) -> None:
        self.graph = graph
        self._name = name
        self._worker = worker
        self._prepare = prepare
        self._begin = begin
        self._one = threading.Lock()
        self._editor: int | None = None  # the thread that has it
        self._pending: _Pending | None = None
        self._postponed: list[Callable[[], object]] = []

    def edit(self, work: Callable[[Graph], T], terms: Terms) -> T | None:
        """Makes what ``work`` does to a copy of the graph; see ``Flow.change``.

        Returns:
            What ``work`` returned; None from a handler.
        """
        if self._worker.in_handler:
            self._worker.later(lambda: self._make_here(lambda: self._edited(work), terms))
            return None
        self._begin_alone()
        try:
            while True:
                base = self.graph
                graph = base.copy()
                result = work(graph)
                if self._make(base, graph, terms):
                    return result
        finally:
            self._end_alone()

    @contextmanager
    def block(self, terms: Terms) -> Iterator[Graph]:
        """A copy of the graph to be edited within a ``with`` block; see ``Flow.change``."""
        if self._worker.in_handler:
            base = self.graph
            graph = base.copy()
            yield graph
            self._worker.later(lambda: self._make_here(lambda: self._fresh(base, graph), terms))
            return
        self._begin_alone()
        try:
            base = self.graph
            graph = base.copy()
            yield graph
            if not self._make(base, graph, terms):
                raise self._stale()
        finally:
            self._end_alone()

    def _begin_alone(self) -> None:
        """Waits until no other thread makes a change.

        Raises:
            FlowError: this thread makes one.
        """
        if self._editor == threading.get_ident():
            raise FlowError(
                f"flow {self._name}: a change within a change; edit the graph that `with flow.change()` gives"
            )
        self._one.acquire()
        self._editor = threading.get_ident()

    def _end_alone(self) -> None:
        self._editor = None
        self._one.release()

    def _stale(self) -> FlowError:
        return FlowError(f"flow {self._name}: a handler changed the graph meanwhile; make this change again")

    def _make(self, base: Graph, graph: Graph, terms: Terms) -> bool:
        """Makes a graph the flow's; False if the one it was made from is no longer the flow's."""
        try:
            engine = self._worker.engine
            version = engine.version
            topology, running = self._prepare(graph), engine.topology
            for name, slot in topology.slots.items():
                known = running.slots.get(name, slot)
                if known is not slot:
                    slot.frozen = known.frozen
            ahead = Ahead(*compile_ahead(running, topology), version)
        except CONTAINED:
            other = self._pending
            if other is None and self.graph is base:
                raise
            # What runs may have been read while a handler's change was being made.
            if other is not None:
                self._worker.wait(other.done)
            return self.graph is base and self._make(base, graph, terms)
        pending = _Pending(graph, topology, terms, ahead)
        while not self._worker.do(lambda: self._start(base, pending)):
            other = self._pending
            if other is not None:
                self._worker.wait(other.done)
            if self.graph is not base:
                return False
        self._worker.wait(pending.done)
        if pending.error is not None:
            raise pending.error
        return True

    # --- in the engine's thread

    def _edited(self, work: Callable[[Graph], object]) -> Graph:
        graph = self.graph.copy()
        work(graph)
        return graph

    def _fresh(self, base: Graph, graph: Graph) -> Graph:
        if self.graph is not base:
            raise self._stale()
        return graph

    def _make_here(self, edited: Callable[[], Graph], terms: Terms) -> None:
        """Makes a change that a handler asked for, or has it made after the one that is on its way."""
        if self._pending is not None:
            self._postponed.append(lambda: self._make_here(edited, terms))
            return
        graph = edited()
        pending = _Pending(graph, self._prepare(graph), terms)
        self._start(self.graph, pending)
        pending.logged = True
        if pending.error is not None:
            raise pending.error

    def _start(self, base: Graph, pending: _Pending) -> bool:
        if self.graph is not base or self._pending is not None:
            return False
        pending.alteration = self._begin(
            pending.topology, lambda made: self._follow(pending.graph), pending.ahead
        )
        pending.alteration.begin()
        self._pending = pending
        if self._look(pending, time.monotonic()) is not None:
            pending.end = self._worker.each_turn(lambda now: self._look(pending, now))
        return True

    def _follow(self, graph: Graph) -> None:
        self.graph = graph

    def _look(self, pending: _Pending, now: float) -> float | None:
        """Makes the change if it can be made now, or gives it up in the end; else when to look again."""
        assert pending.alteration is not None
        try:
            waiting = pending.alteration.waiting() if pending.terms.settled else ""
            if waiting and now < pending.deadline:
                return min(now + _LOOK_AGAIN, pending.deadline)
            if waiting:
                pending.alteration.cancel()
                raise FlowError(
                    f"flow {self._name}: the change was not made, since what it touches was not quiet within "
                    f"{pending.terms.timeout} s; {waiting}"
                )
            pending.alteration.commit()
        except EvflowError as error:
            pending.error = error
        except CONTAINED as error:
            mishaps.tell(_log, f"flow {self._name}", "a change of the graph failed, and is given up", error)
            pending.alteration.cancel()
            pending.error = FlowError(f"flow {self._name}: the change was not made: {mishaps.named(error)}")
            pending.error.__cause__ = error
        if pending.error is not None and pending.logged:
            _log.error("%s", pending.error)
        pending.end()
        self._pending = None
        pending.done.set()
        postponed, self._postponed = self._postponed, []
        for task in postponed:
            self._worker.later(task)
        return None


class _Pending:
    """A change on its way.

    Attributes:
        done: set when it is made or given up.
        error: why it was given up.
        end: ends the looking for whether it can be made.
        logged: whether nobody waits for it, so that an error goes to the log.
    """

    def __init__(self, graph: Graph, topology: Topology, terms: Terms, ahead: Ahead | None = None) -> None:
        self.graph = graph
        self.topology = topology
        self.terms = terms
        self.ahead = ahead
        self.deadline = time.monotonic() + terms.timeout
        self.alteration: Alteration | None = None
        self.done = Once()
        self.error: EvflowError | None = None
        self.end: Callable[[], None] = lambda: None
        self.logged = False


def compile_ahead(
    running: Topology, wanted: Topology
) -> tuple[Difference, dict[tuple[str, str, str], Route]]:
    """Compiles what a change will need, as far as it is known before, so that events do not wait for it.

    Args:
        running: the topology as it is.
        wanted: the topology as it is to be.

    Returns:
        What has to change; and how events of these schemas go on from stones that come, as ``Engine.know``
        takes it.

    Raises:
        CodeError: a route cannot be compiled.
    """
    made = difference(running, wanted)
    changed = made.new | made.replaced
    for name in changed:
        stone = wanted.slots[name].stone
        if isinstance(stone, Acting):
            stone.prepare()
    if not running.slots.items().isdisjoint(wanted.slots.items()):
        # Slots that run are the engine's, so only what is compiled apart from them can be planned here.
        starts = frozenset([name for name in changed if wanted.slots[name].separate])
    else:
        changed |= made.relinked
        actors = [slot for slot in wanted.slots.values() if isinstance(slot.stone, Acting)]
        behind_actors = {slot.name for actor in actors for slot in wanted.onward(actor)}
        starts = made.entries | (changed & (wanted.entrances | behind_actors)) | (made.new & wanted.makers)
    routes: dict[tuple[str, str, str], Route] = {}
    todo, seen = sorted(starts & wanted.slots.keys()), set(starts)
    while todo:
        slot = wanted.slots[todo.pop()]
        for schema in _expected(slot) if not isinstance(slot.stone, Acting) else ():
            try:
                route = plan_route(slot, schema, wanted)
            except SchemaError:
                continue  # told where such events arrive
            routes[slot.name, "", schema.fingerprint] = route
            behind = {hop.slot.name for hops in (*route.exits, route.direct) for hop in hops} - seen
            todo += sorted(behind & changed)
            seen |= behind
    return made, routes


def _expected(slot: Slot) -> list[Schema]:
    kind = own_kind(slot.stone)
    if kind == "generator":
        return [TICK]
    schemas = slot.stone.emits(None) if kind == "source" else slot.arrivals
    return [schema for schema in schemas if schema is not None]


def check_rules_here(graph: Graph, here: Topology) -> None:
    """Refuses rules that a flow without a deployment could not follow.

    Args:
        graph: the graph.
        here: what of it runs in this process.

    Raises:
        GraphError: a stone here asks for what concerns other nodes.
    """
    for rule in graph.rules.values():
        if rule.stone not in here.slots:
            continue
        for name, node in rule.move.items():
            raise GraphError(
                f"{rule.text} moves {name!r} to node {node!r}, which only a deployment can do; use "
                "graph.deploy(…), or leave the rule out"
            )
        for name in rule.targets:
            if name not in here.slots:
                raise GraphError(
                    f"{rule.text} concerns {name!r}, which runs on another node; use graph.deploy(…), or "
                    "leave the rule out"
                )


class Obeying:
    """Does what the rules of a graph say; used by the thread that drives the engine.

    Args:
        engine: the engine.
        graph: gives the graph as it is now.
    """

    def __init__(self, engine: Engine, graph: Callable[[], Graph]) -> None:
        self._engine = engine
        self._graph = graph

    def look(self, now: float) -> float | None:
        """Does what stones have asked for; gives ``now`` if that changed anything, to be called again."""
        rules = self._graph().rules
        if not rules:
            return None
        changed = False
        for name, request in self._engine.requests():
            rule = rules.get((name, request))
            if rule is None:
                _log.info("stone %s asks for reconfiguration %d, for which there is no rule", name, request)
            else:
                changed = self._obey(rule) or changed
        return now if changed else None

    def _obey(self, rule: Rule) -> bool:
        slots = self._engine.topology.slots
        frozen = [slots[name] for name in rule.freeze if name in slots and not slots[name].frozen]
        going = [slots[name] for name in rule.unfreeze if name in slots and slots[name].frozen]
        for slot in frozen:
            self._engine.freeze(slot)
        for slot in going:
            self._engine.unfreeze(slot)
        return bool(frozen or going)
