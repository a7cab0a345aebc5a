"""The engine: executes the plan of one node's stones.

It is sans-I/O: no socket, thread or clock of its own. Events go in by ``submit``; ``run`` takes them as far
as they go and returns when nothing moves any more; ``tick`` is told the time. A change of the graph is
made between two runs, so it never meets an event half-way: routes over what changed are planned anew.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager, nullcontext, suppress
from operator import add, itemgetter
from typing import TYPE_CHECKING, Any

from evflow import mishaps
from evflow.engine.actors import Asking, asking, extracted, opened
from evflow.engine.context import StoneContext
from evflow.engine.fit import Adapter
from evflow.engine.host import system_values
from evflow.engine.passes import faulted, left
from evflow.engine.plan import Route, count_passing, plan_route
from evflow.engine.slices import Shared, Slices
from evflow.engine.topology import DROPPED, ERRORS, IN, OUT, Slot, Topology, behind_keepers
from evflow.engine.waking import Stalls, Waking
from evflow.errors import CodeError, FlowError, SchemaError, UnwrittenError
from evflow.events.batch import EventBatch
from evflow.events.fields import explained
from evflow.graph.ticks import TICK
from evflow.mishaps import CONTAINED, Broken, Forked, reason_for, sound
from evflow.schema import Schema
from evflow.stone import Acting, Actor, Compiled, Entrance

if TYPE_CHECKING:
    from evflow.codgen.kernel import Kernel, Result
    from evflow.engine.letters import LetterBox

MOST_SCHEMAS = 1000
"""Schemas of events for which routes are known, beside one for each stone; more are planned anew."""

_PARTED = 20_000
"""Events, a run counted as 64 of them, after which the passes of a route are compiled as one."""
_log = logging.getLogger("evflow.engine")
_SLOT = itemgetter(0)
_HERE: AbstractContextManager[None] = nullcontext()


class Engine:
    """Runs the stones of a topology.

    Args:
        topology: the stones and links.
        letters: where events that are given up go.
        sender: gives what takes a bridge's events to its node, or None where they stay here.
        contact: that of its node; "" if it has none.

    Attributes:
        waking: which stones emit by themselves, and when.
        stalls: which stones cannot keep what came to them now.
        frozen: the stones that queue what arrives.
        now: the time as it was told last, from which ``rhythm`` reckons.
        rhythms: the stones that want a tick, each with the seconds between two.
        frame: what the frame is known by that a stone handles; see ``evflow.stone.Context``.
        version: another number after each change of the topology, or of what is frozen.
        sorted: the version for which ``sort_out`` was done last.
        pending: events that ``run`` is to move, each with the stone and the input that they are for.
        emitters: the names of stones that have emitted since ``emitted`` was called last.
        loose: set when a stone has emitted, or a handler has submitted what is to be moved yet.
        begun: the stones at which the events came in that are under way.
        entry: the stone by which the first of them came into the flow; None if that were ticks.
        aside: moves what handlers have submitted so far, while the events wait that came with those that they
            were called with; gives how many bytes of events these were.
        ungate: called with each such change, before anything else is done by the new topology.
        adoptions: how often other stones and links were adopted.
        away: entered while the engine's thread runs a stone's own code, or machine code that may take long;
            the links of the node are served meanwhile.
        forsaken: whether this is a fork that a handler made: nothing goes on when it returns.

    Raises:
        EvflowError: a stone cannot be opened, as a storage file that is damaged.
    """

    def __init__(
        self,
        topology: Topology,
        letters: LetterBox,
        sender: Callable[[Slot], Callable[[EventBatch], None] | None] = lambda slot: None,
        contact: str = "",
    ) -> None:
        self.topology = topology
        self.sender = sender
        self.contact = contact
        self.frame: Callable[[Slot], tuple[bytes, tuple[int, ...]] | None] = lambda slot: None
        self.waking = Waking(self)
        self.stalls = Stalls(self)
        self.version, self.sorted = 0, -1
        self.begun: tuple[Slot, ...] = ()
        self.entry: Slot | None = None
        self.aside: Callable[[], int] = lambda: 0
        self.ungate: Callable[[], None] = lambda: None
        self.adoptions = 0
        self.away: AbstractContextManager[None] = nullcontext()
        self.forsaken = False
        self._letters = letters
        self.pending: deque[tuple[Slot, str, EventBatch]] = deque()
        self._seconds_aside = 0.0
        self._shared: Shared | None = None
        self._routes: dict[tuple[str, str, str], Route | str] = {}
        self._adapters: dict[tuple[str, str, str], Adapter | str] = {}
        self.emitters: set[str] = set()
        self.loose = False
        self._origin: tuple[str, bytes] | None = None
        self._merged: set[Slot] | None = None
        self._due: dict[str, float] = {}
        self._rest: dict[str, float] = {}
        self.now = 0.0
        self._ticks: dict[str, int] = {}
        self.rhythms: list[tuple[Slot, float]] = []
        self.frozen: list[Slot] = []
        self._asking: list[Asking] | None = None
        try:
            for slot in topology.slots.values():
                self.open(slot)
        except BaseException:
            self.stop()
            raise

    def open(self, slot: Slot) -> None:
        """Starts a stone's running half; one that passes events on or is compiled has none."""
        stone = slot.stone
        context = StoneContext(self, slot)
        slot.actor = opened(slot.name, stone, context) if isinstance(stone, Acting) else None
        if slot.frozen:
            slot.asked("pause", lambda actor: actor.pause(), None)

    def submit(
        self, slot: Slot, batch: EventBatch, input: str = "", origin: tuple[str, bytes] | None = None
    ) -> None:
        """Takes events in at a stone; ``run`` moves them.

        Args:
            slot: the stone.
            batch: the events.
            input: the input; "" for the one that fits best.
            origin: where they come into the flow: ``name`` and ``life`` of an ``evflow.stone.Entrance``.
        """
        self._origin = None if self.pending else origin
        self.pending.append((slot, input, batch))

    def run(self) -> None:
        """Moves events until none moves any more."""
        pending, begun = self.pending, self.begun
        self.begun = (*begun, *map(_SLOT, pending))
        while pending:
            slot, input, batch = pending.popleft()
            try:
                if slot.frozen:
                    slot.park(input, batch)
                elif slot.actor is not None:
                    self._act(slot, input, batch)
                else:
                    self._route(slot, input, batch)
            except CONTAINED as error:
                self._lose(slot, batch, error)
        self._origin, self._shared, self.begun = None, None, begun

    def _step_aside(self) -> int:
        """Moves what handlers have submitted so far, as if nothing else were under way; see ``aside``."""
        before = (self.pending, self._origin, self._shared, self._seconds_aside)
        start = time.perf_counter()
        self.pending = deque()
        try:
            return self.aside()
        finally:
            self.pending, self._origin, self._shared, seconds = before
            self._seconds_aside = seconds + time.perf_counter() - start

    def entrance(self, slot: Slot) -> Entrance | None:
        """Where the events came in that a stone handles; see ``evflow.stone.Context``."""
        if self._merged is None:
            self._merged = behind_keepers(self.topology)
        if self._origin is None or slot in self._merged:
            return None
        return Entrance(self.adoptions, *self._origin)

    def emitted(self) -> list[tuple[Actor, object]]:
        """The actors that have emitted since this was asked last, and how far; to be told by their
        ``settled`` when that has been handled."""
        slots = self.topology.slots
        actors = [(name, slots[name].actor) for name in self.emitters if name in slots]
        self.emitters.clear()
        marks: list[tuple[Actor, object]] = []
        for name, actor in actors:
            try:
                if actor is not None:
                    marks.append((actor, actor.mark()))
            except CONTAINED as error:
                mishaps.tell(_log, f"stone {name!r}", "it will not hear that what it emitted is safe", error)
        return marks

    def changed(self, names: Collection[str] | None = None) -> None:
        """Forgets routes, all or those over stones of ``names``; called when the topology has changed."""
        self.version += 1
        self.ungate()
        self._asking = None
        if names is None:
            self._routes, self._adapters = {}, {}
            return
        kept, fit = self._routes.items(), self._adapters.items()
        self._routes = {k: r for k, r in kept if isinstance(r, Route) and r.names.isdisjoint(names)}
        self._adapters = {k: a for k, a in fit if isinstance(a, Adapter) and k[0] not in names}

    def know(self, key: tuple[str, str, str], route: Route) -> None:
        """Takes over a route for events at a stone; ``key`` is its name, the input and their fingerprint."""
        self._routes[key] = route

    def _forget_oldest(self, known: dict[tuple[str, str, str], Any]) -> None:
        # Peers may bring schemas without end, and what is known of one takes 50 KB.
        if len(known) >= MOST_SCHEMAS + len(self.topology.slots):
            del known[next(iter(known))]

    def adopted(self, names: Collection[str] | None) -> None:
        """Other stones or links have taken the place of those before; ``names`` as for ``changed``."""
        self.adoptions += 1
        self._merged = None
        self.changed(names)

    def freeze(self, slot: Slot) -> None:
        """From now on the stone queues what arrives."""
        if not slot.frozen:
            slot.asked("pause", lambda actor: actor.pause(), None)
        slot.frozen = True
        self.changed()

    def unfreeze(self, slot: Slot) -> None:
        """The stone goes on, with what it queued first."""
        if slot.frozen:
            slot.asked("resume", lambda actor: actor.resume(), None)
        slot.frozen = False
        self.changed()
        for input, batch in slot.unpark():
            self.pending.append((slot, input, batch))

    def requests(self) -> list[tuple[str, int]]:
        """What stones have asked for by ``reconfigure`` since this was called last: of each the name, and
        the newest request."""
        if self._asking is None:
            self._asking = asking(self.topology.slots.values())
        if not self._asking:
            return []
        asked = ((name, take()) for name, take in self._asking)
        return [(name, request) for name, request in asked if request]

    @property
    def parked_bytes(self) -> int:
        """Bytes of events that wait at frozen stones."""
        self.sort_out()
        return sum([slot.parked_bytes for slot in self.frozen])

    def extract(self, slot: Slot) -> list[EventBatch]:
        """Takes out what waits at a stone: first what its actor holds, then what was parked."""
        held: list[EventBatch] = []
        if slot.actor is not None:
            held = extracted(slot.name, slot.actor)
            self.stalls.settle(slot.actor, slot.asked("mark", lambda actor: actor.mark(), None))
        return held + [batch for _, batch in slot.unpark()]

    def send_stored(self, slot: Slot, count: int | None) -> int:
        """Lets the oldest ``count`` events that an actor holds go on; returns how many went."""
        if slot.actor is None or slot.stone.linked_ports == "none":
            raise FlowError(f"stone {slot.name!r} is a {slot.stone.kind} and stores nothing")
        sent = extracted(slot.name, slot.actor, count)
        for batch in sent:
            self.emit(slot, batch)
        return sum(len(batch) for batch in sent)

    def transfer(self, source: Slot, target: Slot) -> None:
        """Moves the events that wait at one stone to another, in order, before what arrives there later."""
        for batch in self.extract(source):
            if target.frozen:
                target.park("", batch)
            else:
                self.pending.append((target, "", batch))

    def tick(self, now: float, wall: float, held: Callable[[Slot], bool] = lambda slot: False) -> None:
        """Gives every generator that is due its tick.

        Args:
            now: seconds on a clock that only goes forward.
            wall: seconds since 1970 (UTC).
            held: whether a generator may make nothing now; that tick is left out.
        """
        self.sort_out()
        for slot, period in self.rhythms:
            due = self._due_at(slot, period, now)
            if now < due or slot.frozen:
                continue
            if held(slot):
                self._due[slot.name] = now + period
                continue
            number = self._ticks.get(slot.name, 0)
            self._ticks[slot.name] = number + 1
            # After a delay the missed ticks are left out, and the rhythm is kept.
            self._due[slot.name] = due + period * max(1, int((now - due) / period) + 1)
            try:
                self.submit(slot, EventBatch.from_columns(TICK, {"count": [number], "time": [wall]}))
            except CONTAINED as error:
                mishaps.tell(_log, f"stone {slot.name!r}", "a tick is left out", error)

    def next_due(self, now: float) -> float:
        """When ``tick`` or ``Stalls.retry`` is needed next, on the same clock; infinity if never."""
        self.sort_out()
        times = [self._due_at(slot, period, now) for slot, period in self.rhythms if not slot.frozen]
        return min([*times, self.stalls.next_due()])

    def _due_at(self, slot: Slot, period: float, now: float) -> float:
        self.now = now
        if slot.name not in self._due:
            self._due[slot.name] = now + self._rest.pop(slot.name, period)
        return self._due[slot.name]

    def rhythm(self, slot: Slot) -> tuple[int, float | None]:
        """How many ticks a stone got, and seconds until the next; None if it has no rhythm yet."""
        due = self._due.get(slot.name)
        rest = self._rest.get(slot.name) if due is None else max(0.0, due - self.now)
        return self._ticks.get(slot.name, 0), rest

    def set_rhythm(self, slot: Slot, ticks: int, rest: float | None) -> None:
        """Sets what ``rhythm`` tells; with None for the rest a whole period goes by before the next tick."""
        self.forget(slot.name)
        if ticks:
            self._ticks[slot.name] = ticks
        if rest is not None:
            self._rest[slot.name] = rest

    def forget(self, name: str) -> None:
        """Forgets the rhythm of a stone."""
        for known in (self._due, self._rest, self._ticks):
            known.pop(name, None)

    def sort_out(self) -> None:
        """Finds the stones that are asked for in every turn, if there was a change; any thread may ask."""
        while self.sorted != self.version:
            version, slots = self.version, list(self.topology.slots.values())
            self.waking.sort_out(slots)
            self.frozen = [slot for slot in slots if slot.frozen]
            compiled = [(slot, slot.stone) for slot in slots if isinstance(slot.stone, Compiled)]
            self.rhythms = [(slot, stone.period) for slot, stone in compiled if stone.period is not None]
            self.sorted = version

    def close(self) -> None:
        """Ends every stone; what they hold and cannot keep becomes dead letters."""
        for slot in self.topology.slots.values():
            try:
                if slot.actor is not None and not slot.actor.keeps:
                    for batch in extracted(slot.name, slot.actor):
                        reason = "the flow was closed while the stone held the event"
                        self.give_up(slot, batch, reason, failed=False)
                # They stay parked, so that links do not acknowledge them.
                for _, batch in slot.parked if slot.stalled else ():
                    self.give_up(slot, batch, f"the flow was closed while the event waited: {slot.stalled}")
            except CONTAINED as error:
                mishaps.tell(_log, f"stone {slot.name!r}", "what it held is lost with the flow", error)
        self.stop()

    def stop(self) -> None:
        """Ends every stone as it stands."""
        for slot in self.topology.slots.values():
            self.end(slot)

    def end(self, slot: Slot) -> None:
        """Ends a stone's running half; a failure of that is told in the log."""
        try:
            if slot.actor is not None:
                slot.actor.close()
        except CONTAINED as error:
            mishaps.tell(_log, f"stone {slot.name!r}", "it could not be closed", error)

    def give_up(
        self, slot: Slot, batch: EventBatch, reason: str, error: BaseException | None = None,
        failed: bool = True,
    ) -> None:  # fmt: skip
        """Puts events among the dead letters; ``failed`` says whether the stone failed on them."""
        self._letters.put(slot.name, batch, [reason] * len(batch), error, failed)

    def failed(self, slot: Slot, what: str, error: BaseException) -> None:
        """Notes that a function of a stone failed, though no event is lost by that."""
        error = sound(error)
        self._letters.failures.note(slot.name, [f"{what} failed: {reason_for(error)}"], error, letters=False)

    def _lose(self, slot: Slot, batch: EventBatch, error: BaseException) -> None:
        """Gives up events at a stone because what was to be done with them failed."""
        try:
            slot.counts[IN] += len(batch)
            self.fault(slot, batch, error)
        except CONTAINED as worse:
            raise Broken(f"stone {slot.name!r}: events were neither handled nor given up") from worse

    def _refuse(self, slot: Slot, batch: EventBatch, reason: str) -> None:
        slot.counts[IN] += len(batch)
        slot.unmatched += len(batch)
        self.give_up(slot, batch, reason)

    # --- passing and compiled stones

    def _route(self, slot: Slot, input: str, batch: EventBatch) -> None:
        key = (slot.name, input, batch.schema.fingerprint)
        route = self._routes.get(key)
        if route is None:
            self._forget_oldest(self._routes)
            route = self._routes[key] = self._plan(slot, input, batch.schema)
        if isinstance(route, str):
            self._refuse(slot, batch, route)
            return
        if route.parted:
            route.spent += 64 + len(batch)
            if route.spent > _PARTED:
                route = self._routes[key] = self._joined(route, slot, input, batch.schema)
        leaving = [(hop.slot, hop.input, batch) for hop in route.direct]
        result = None
        if route.kernel is not None:
            start = time.perf_counter()
            result = self._run_kernel(route, route.kernel, batch)
            seconds = time.perf_counter() - start
            # All that may fail comes before the first count, so that events are given up as a whole.
            self._leave(route, result, batch, leaving)
            faults = list(faulted(result, batch)) if len(result.faults) else ()
            self._account(route, result, seconds)
            for event, reason, stage in faults:
                self.give_up(route.stages[stage][0], event, reason)
        self.pending.extend(leaving)
        count = len(batch)
        for meter in route.meters:
            count_passing(meter, result, count)

    def _run_kernel(self, route: Route, kernel: Kernel, batch: EventBatch) -> Result:
        columns = batch.attributes.columns if batch.attributes is not None else None
        # Machine code that keeps the interpreter lock is short, and nobody else could do anything meanwhile.
        with _HERE if kernel.brief(len(batch), len(batch.data)) else self.away:
            return kernel.run(
                batch.data, batch.offsets, batch.selection, batch.rows, columns,
                route.states, route.stone_attributes, system_values(route.system),
            )  # fmt: skip

    def _plan(self, slot: Slot, input: str, schema: Schema, whole: bool = False) -> Route | str:
        # Stones on the route may get their statics by this.
        self._asking = None
        try:
            return plan_route(slot, schema, self.topology, input, whole=whole)
        except (SchemaError, CodeError) as error:
            return str(error)

    def _joined(self, route: Route, slot: Slot, input: str, schema: Schema) -> Route:
        """The route with stones that came while the graph ran as a part of the pass they belong to."""
        whole = self._plan(slot, input, schema, True)
        if isinstance(whole, str):
            route.parted = False
            return route
        for stone, _ in whole.stages:
            stone.separate = False
        return whole

    def _account(self, route: Route, result: Result, seconds: float) -> None:
        counts = result.counts.tolist()
        total = max(sum(row[IN] for row in counts), 1)
        for (slot, own), row in zip(route.stages, counts, strict=True):
            if own:
                slot.counts[:] = map(add, slot.counts, row)
            else:
                slot.counts[IN] += row[ERRORS]
                slot.counts[ERRORS] += row[ERRORS]
            slot.busy += seconds * row[IN] / total

    def _leave(
        self, route: Route, result: Result, batch: EventBatch, leaving: list[tuple[Slot, str, EventBatch]]
    ) -> None:
        for hops, segments in zip(route.exits, result.exits, strict=True):
            if not hops:
                continue
            for segment in segments:
                came = left(result, segment, batch)
                leaving.extend((hop.slot, hop.input, came) for hop in hops)

    # --- acting stones

    def _act(self, slot: Slot, input: str, batch: EventBatch) -> None:
        key = (slot.name, input, batch.schema.fingerprint)
        adapter = self._adapters.get(key)
        if adapter is None:
            self._forget_oldest(self._adapters)
            adapter = self._adapters[key] = self._adapt(slot, input, batch.schema)
        if isinstance(adapter, str):
            self._refuse(slot, batch, adapter)
            return
        start, aside = time.perf_counter(), self._seconds_aside
        if adapter.idle:
            # As ``len(batch)``, without a call.
            count = batch.rows if batch.selection is None else len(batch.selection)
            slot.counts[IN] += count
            self._receive(slot, adapter.input, batch, count)
        else:
            # Converted as a whole first: if that fails, no event of the batch was counted or handled.
            parts = list(adapter.apply(batch))
            slot.counts[IN] += len(batch)
            for converted, rejected in parts:
                for event, reason in rejected:
                    self.fault(slot, event, reason)
                if count := len(converted):
                    self._receive(slot, adapter.input, converted, count)
        slot.busy += time.perf_counter() - start - (self._seconds_aside - aside)

    def _receive(self, slot: Slot, input: str, batch: EventBatch, count: int) -> None:
        assert slot.actor is not None
        # One event alone is its own slice.
        if count == 1 or not slot.actor.divides:
            self._give(slot, input, batch)
            if self.pending:
                self._step_aside()
            return
        slices = Slices(batch, self._shared_by_next(batch))
        for part in slices:
            self._give(slot, input, part)
            if slices.left or self.pending:
                slices.led_to(self._step_aside())

    def _shared_by_next(self, batch: EventBatch) -> Shared | None:
        """What slices a batch that the stone before got too, or that the next one will get."""
        if self._shared is None or self._shared.batch is not batch:
            if not self.pending or self.pending[0][2] is not batch:
                return None
            self._shared = Shared(batch)
        return self._shared

    def _give(self, slot: Slot, input: str, batch: EventBatch) -> None:
        assert slot.actor is not None
        try:
            if not slot.stalled:
                if slot.sends:
                    slot.actor.receive(batch, input)
                else:
                    with self.away:
                        slot.actor.receive(batch, input)
                if self.forsaken:
                    raise Forked
                return
        except UnwrittenError as error:
            batch = batch.slice(error.taken, len(batch))
            self.stalls.begin(slot, error)
        except CONTAINED as error:
            if self.forsaken:
                raise Forked from error
            self.fault(slot, batch, error)
            return
        # They arrive once more.
        slot.counts[IN] -= len(batch)
        slot.park(input, batch)

    def _adapt(self, slot: Slot, input: str, schema: Schema) -> Adapter | str:
        try:
            fit = slot.fit(schema, self.topology.morphs, input)
            stone = slot.stone
            assert isinstance(stone, Acting)
            if stone.inputs[fit.input] is None:
                fit = fit.whole()
            return Adapter(fit, schema, stone.exact)
        except (SchemaError, CodeError) as error:
            return str(error)

    def emit(self, slot: Slot, batch: EventBatch, port: int = 0, number: int | None = None) -> None:
        """Sends events out of a port of an acting stone; for their number see ``evflow.stone.Context``."""
        self.waking.number = number
        # A stone that was removed may be linked to others that were, too.
        slots = self.topology.slots
        hops = [(slots[link.target], link.input) for link in slot.ports.get(port, ()) if link.target in slots]
        if not hops:
            slot.counts[DROPPED] += len(batch)
            return
        slot.counts[OUT] += len(batch)
        if number is None:
            self.emitters.add(slot.name)
            self.loose = True
        for target, input in hops:
            self.pending.append((target, input, batch))

    def fault(self, slot: Slot, batch: EventBatch, reason: str | BaseException) -> None:
        """Counts events as errors of a stone and puts them among the dead letters."""
        slot.counts[ERRORS] += len(batch)
        if isinstance(reason, BaseException):
            error = sound(reason)
            # A note that names the fields is not worth a failure.
            with suppress(*CONTAINED):
                explained(error)
            self.give_up(slot, batch, reason_for(error), error)
        else:
            self.give_up(slot, batch, reason)
