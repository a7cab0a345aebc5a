"""Changes of the graph of a flow, one at a time: edited, checked, compiled, and then made as one step.

What takes long is done by whoever asks for the change. The engine's thread closes, waits and swaps. A
handler, which is in that thread, cannot wait: its change is made after its event, and what is wrong goes to
the log.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from evflow import mishaps
from evflow.engine.difference import Difference, difference
from evflow.engine.plan import plan_route
from evflow.engine.topology import Slot, Topology
from evflow.errors import EvflowError, FlowError, SchemaError
from evflow.flow.alter import Alteration
from evflow.flow.worker import Worker
from evflow.kinds import own_kind
from evflow.mishaps import CONTAINED
from evflow.schema import Schema
from evflow.stone import Acting
from evflow.ticks import TICK

if TYPE_CHECKING:
    from evflow.graph import Graph

__all__ = ["Changes", "Terms", "compile_ahead"]

_log = logging.getLogger("evflow.flow")

_LOOK_AGAIN = 0.002
"""Seconds after which it is looked again whether all is quiet."""

T = TypeVar("T")

Prepare = Callable[["Graph"], Topology]
"""Checks a graph; gives what of it runs."""

Begin = Callable[[Topology, Callable[[Difference], None]], Alteration]
"""Makes an alteration; what is given is called once it is made."""


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
            self._worker.later(lambda: self._edit_here(work, terms))
            return None
        with self._alone():
            while True:
                base = self.graph
                graph = base.copy()
                result = work(graph)
                if self._make(base, graph, terms):
                    return result

    @contextmanager
    def block(self, terms: Terms) -> Iterator[Graph]:
        """A copy of the graph to be edited within a ``with`` block; see ``Flow.change``."""
        if self._worker.in_handler:
            base = self.graph
            graph = base.copy()
            yield graph
            self._worker.later(lambda: self._make_here(base, graph, terms))
            return
        with self._alone():
            base = self.graph
            graph = base.copy()
            yield graph
            if not self._make(base, graph, terms):
                raise self._stale()

    @contextmanager
    def _alone(self) -> Iterator[None]:
        if self._editor == threading.get_ident():
            raise FlowError(
                f"flow {self._name}: a change within a change; edit the graph that `with flow.change()` gives"
            )
        with self._one:
            self._editor = threading.get_ident()
            try:
                yield
            finally:
                self._editor = None

    def _stale(self) -> FlowError:
        return FlowError(f"flow {self._name}: a handler changed the graph meanwhile; make this change again")

    def _make(self, base: Graph, graph: Graph, terms: Terms) -> bool:
        """Makes a graph the flow's; False if the one it was made from is no longer the flow's."""
        topology, running = self._prepare(graph), self._worker.engine.topology
        for name in topology.slots.keys() & running.slots.keys():
            topology.slots[name].frozen = topology.slots[name].frozen or running.slots[name].frozen
        compile_ahead(running, topology)
        pending = _Pending(graph, topology, terms)
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

    def _edit_here(self, work: Callable[[Graph], object], terms: Terms) -> None:
        if self._pending is not None:
            self._postponed.append(lambda: self._edit_here(work, terms))
            return
        graph = self.graph.copy()
        work(graph)
        self._make_here(self.graph, graph, terms)

    def _make_here(self, base: Graph, graph: Graph, terms: Terms) -> None:
        if self._pending is not None:
            self._postponed.append(lambda: self._make_here(base, graph, terms))
            return
        pending = _Pending(graph, self._prepare(graph), terms)
        if not self._start(base, pending):
            raise self._stale()
        pending.logged = True
        if pending.error is not None:
            raise pending.error

    def _start(self, base: Graph, pending: _Pending) -> bool:
        if self.graph is not base or self._pending is not None:
            return False
        pending.alteration = self._begin(pending.topology, lambda made: self._follow(pending.graph))
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

    def __init__(self, graph: Graph, topology: Topology, terms: Terms) -> None:
        self.graph = graph
        self.topology = topology
        self.terms = terms
        self.deadline = time.monotonic() + terms.timeout
        self.alteration: Alteration | None = None
        self.done = threading.Event()
        self.error: EvflowError | None = None
        self.end: Callable[[], None] = lambda: None
        self.logged = False


def compile_ahead(running: Topology, wanted: Topology) -> None:
    """Compiles what a change will need, as far as it is known before, so that events do not wait for it.

    Args:
        running: the topology as it is.
        wanted: the topology as it shall be.

    Raises:
        CodeError: a route cannot be compiled.
    """
    made = difference(running, wanted)
    changed = made.new | made.replaced | made.relinked
    behind_actors: set[str] = set()
    for name, slot in wanted.slots.items():
        if isinstance(slot.stone, Acting):
            if name in made.new | made.replaced:
                slot.stone.prepare()
            behind_actors.update(hop.slot.name for hops in slot.ports.values() for hop in hops)
    starts = made.entries | (changed & (wanted.entrances | behind_actors)) | _newly_made(wanted, made)
    todo, seen = sorted(starts & wanted.slots.keys()), set(starts)
    while todo:
        slot = wanted.slots[todo.pop()]
        for schema in _expected(slot) if not isinstance(slot.stone, Acting) else ():
            try:
                route = plan_route(slot, schema, wanted)
            except SchemaError:
                continue  # told where such events arrive
            behind = {hop.slot.name for hops in (*route.exits, route.direct) for hop in hops} - seen
            todo += sorted(behind & changed)
            seen |= behind


def _newly_made(wanted: Topology, made: Difference) -> frozenset[str]:
    return frozenset(name for name in made.new if wanted.slots[name].makes_events)


def _expected(slot: Slot) -> list[Schema]:
    kind = own_kind(slot.stone)
    if kind == "generator":
        return [TICK]
    schemas = slot.stone.emits(None) if kind == "source" else slot.arrivals
    return [schema for schema in schemas if schema is not None]
