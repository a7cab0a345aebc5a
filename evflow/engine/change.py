"""Changing a running graph: the running topology becomes the wanted one between two runs, or stays as it is.

What can fail is done first, and undone if something does: stones that come are opened, and those that become
others of the same name. Only then are the links, the events that stones hold and the stones that go seen to.
What a change touches is found by a comparison of the two topologies, which has no effect.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from functools import partial
from types import MappingProxyType

from msgspec import Struct, field

from evflow import mishaps
from evflow.engine import actors
from evflow.engine.engine import Engine
from evflow.engine.plan import Route
from evflow.engine.snapshot import Arrivals, Parsed, Snapshot, arrive, read
from evflow.engine.topology import IN, Crossing, Slot, Topology
from evflow.errors import EvflowError, UnwrittenError
from evflow.events.batch import EventBatch
from evflow.mishaps import CONTAINED, Broken
from evflow.stone import Actor, Stone, arrivals

_log = logging.getLogger("evflow.engine")

REMOVED = "the stone was removed while it held the event"


def adopt(
    engine: Engine,
    wanted: Topology,
    moved: Collection[str] = (),
    drop: Callable[[str], None] = lambda bridge: None,
    snapshots: Mapping[str, Snapshot | Parsed] = MappingProxyType({}),
    made: Difference | None = None,
    routes: Mapping[tuple[str, str, str], Route] = MappingProxyType({}),
) -> Difference:
    """Makes the running topology the wanted one; called in the engine's thread, between two runs.

    A stone whose description is the same goes on as it is, with its state, its counts and what it holds. One
    that is replaced keeps its counts, its attributes and what it queued while frozen; the statics of its
    function begin anew, and what it held arrives at the new one in order, before all that comes later. What a
    stone holds that goes becomes dead letters, unless a file keeps it.

    Args:
        engine: the engine.
        wanted: the stones and links as they are to be. Slots of new stones become a part of the engine's
            topology; of the others only the description and the links are read.
        moved: stones that go, and go on elsewhere with what they held.
        drop: forgets the outlet of a bridge that goes; called for those that are there only.
        snapshots: of stones that come from elsewhere; see ``evflow.engine.snapshot``.
        made: what differs between the two topologies, where that is known.
        routes: how events go on in ``wanted``, as far as that is known; see ``Engine.know``.

    Returns:
        What was changed.

    Raises:
        EvflowError: a stone cannot be opened, or a snapshot is malformed; nothing has changed.
    """
    running = engine.topology
    if made is None:
        made = difference(running, wanted)
    opening = _Opening(engine, wanted, made, drop)
    retired = opening.run(snapshots)
    try:
        for name in made.gone:
            _end(engine, running.slots[name], name in moved)
        for name in sorted(made.vanishing - made.replaced):
            drop(name)
        running.slots = {name: running.slots.get(name, slot) for name, slot in wanted.slots.items()}
        touched = {*made.new, *made.gone, *made.replaced, *made.relinked}
        for name, slot in running.slots.items():
            as_wanted = wanted.slots[name]
            if as_wanted is not slot:
                if (slot.arrivals, slot.separate) != (as_wanted.arrivals, as_wanted.separate):
                    touched.add(name)
                slot.ports, slot.arrivals = as_wanted.ports, as_wanted.arrivals
                slot.separate = as_wanted.separate
        names = touched if running.morphs == wanted.morphs else None
        for name in running.slots if names is None else names & running.slots.keys():
            running.slots[name].functions.clear()
        running.entrances, running.morphs = wanted.entrances, wanted.morphs
        engine.adopted(names)
        for key, route in routes.items():
            # A stone that stays has the slot that it had, and statics that come are checked by a plan.
            same = all(running.slots[name] is wanted.slots[name] for name in route.names)
            if same and route.names.isdisjoint(snapshots):
                engine.know(key, route)
        for slot, events in opening.arriving:
            arrive(engine, slot, events)
        _hand_over(engine, retired)
    except EvflowError:
        raise
    except Exception as error:
        raise Broken("a change of the graph was made only in part") from error
    return made


class _Opening:
    """Opens what comes; whatever fails, everything is as it was.

    Args:
        made: what changes.
        drop: see ``adopt``.

    Attributes:
        arriving: what stones that come from elsewhere held, and have to take as if it arrived.
    """

    def __init__(
        self, engine: Engine, wanted: Topology, made: Difference, drop: Callable[[str], None]
    ) -> None:
        self._engine = engine
        self._wanted = wanted
        self._made = made
        self._drop = drop
        self._undo: list[Callable[[], object]] = []
        self._retired: list[tuple[Slot, Stone, Actor | None]] = []
        self._dropped: list[Slot] = []
        self.arriving: list[tuple[Slot, Arrivals]] = []

    def run(self, snapshots: Mapping[str, Snapshot | Parsed]) -> list[tuple[Slot, Stone, Actor | None]]:
        """Opens all; gives the stones that were replaced, with what they were and their actors."""
        running = self._engine.topology
        crossings = running.crossings
        # Bridges find there where they lead when they are opened.
        running.crossings = self._wanted.crossings
        try:
            self._leave_files()
            for name in self._wanted.slots:
                if name in self._made.new:
                    self._open(self._wanted.slots[name])
                elif name in self._made.replaced:
                    self._replace(running.slots[name], self._wanted.slots[name].stone)
            for name in self._made.new & snapshots.keys():
                slot = self._wanted.slots[name]
                self.arriving.append((slot, read(self._engine, slot, snapshots[name])))
        except BaseException:
            while self._undo:
                self._take_back(self._undo.pop())
            running.crossings = crossings
            # Whoever asked meanwhile has found stones that were replaced.
            self._engine.changed()
            # It owed nothing, so another outlet does as well as the one that was dropped.
            for slot in self._dropped:
                self._engine.open(slot)
            raise
        return self._retired

    def _take_back(self, step: Callable[[], object]) -> None:
        """Undoes one step; one that fails must not keep the others from being undone."""
        try:
            step()
        except CONTAINED as error:
            who = f"change to stones {', '.join(map(repr, sorted(self._made.new | self._made.replaced)))}"
            mishaps.tell(_log, who, "undoing a step of it failed", error)

    def _leave_files(self) -> None:
        """Closes the stones that go and have a file that one that comes is to have: only one can."""
        wanted = {file for name in self._made.new for file in self._wanted.slots[name].stone.files}
        for name in self._made.gone:
            slot = self._engine.topology.slots[name]
            if slot.actor is not None and slot.keeps and not wanted.isdisjoint(slot.stone.files):
                slot.actor.close()
                self._undo.append(partial(self._engine.open, slot))

    def _open(self, slot: Slot) -> None:
        self._engine.open(slot)
        self._undo.append(lambda: self._close(slot))

    def _close(self, slot: Slot) -> None:
        actor, slot.actor = slot.actor, None
        try:
            if actor is not None:
                actor.close()
        finally:
            if slot.name in self._made.appearing:
                self._drop(slot.name)

    def _replace(self, slot: Slot, stone: Stone) -> None:
        before, actor = slot.stone, slot.actor
        if type(before) is type(stone) and actor is not None and actor.become(stone):
            self._undo.append(lambda: actor.become(before))
            actor_before: Actor | None = None
        else:
            actor_before = actor
        if slot.name in self._made.vanishing:
            self._drop(slot.name)
            self._dropped.append(slot)

        def undo() -> None:
            slot.stone, slot.actor = before, actor

        self._undo.append(undo)
        slot.stone = stone
        if actor_before is not None or actor is None:
            slot.actor = None
            self._open(slot)
        self._retired.append((slot, before, actor_before))


def _end(engine: Engine, slot: Slot, moved: bool) -> None:
    """Ends a stone that goes."""
    parked = [batch for _, batch in slot.unpark()]
    actor = slot.actor
    held: list[EventBatch] = []
    try:
        # What a file keeps stays there: it is not lost, and where it moved to it was written anew.
        if actor is not None and not slot.keeps:
            held = actors.extracted(slot.name, actor)
    except CONTAINED as error:
        mishaps.tell(_log, f"stone {slot.name!r}", "what it held is lost with it", error)
    if not moved:
        for batch in (*held, *parked):
            engine.give_up(slot, batch, REMOVED)
    engine.forget(slot.name)
    engine.end(slot)


def _hand_over(engine: Engine, retired: list[tuple[Slot, Stone, Actor | None]]) -> None:
    """Begins the statics of stones that were replaced anew, and gives them what those before them held."""
    for slot, before, actor in retired:
        slot.state, slot.layout, slot.restored = None, "", False
        slot.rename_inputs()
        period = getattr(slot.stone, "period", None)
        if period is None or period != getattr(before, "period", None):
            ticks, _ = engine.rhythm(slot)
            engine.set_rhythm(slot, ticks if period is not None else 0, None)
        if actor is not None:
            slot.kept_before += actors.count(slot.name, actor, "oldest")
            events = _held(slot.name, actor)
            # They were counted when they arrived at the stone that held them.
            slot.counts[IN] -= sum(len(batch) for _, batch in events)
            arrive(engine, slot, events)
    engine.run()
    for slot, _, actor in retired:
        try:
            if actor is not None:
                # Only now is all that it held somewhere else.
                actor.extract()
                mark = actors.asked(slot.name, actor, "mark", lambda actor: actor.mark(), None)
                engine.stalls.settle(actor, mark)
                actor.close()
        except EvflowError:
            raise
        except CONTAINED as error:
            mishaps.tell(_log, f"stone {slot.name!r}", "the one that it replaced could not be closed", error)


def _held(name: str, actor: Actor) -> Arrivals:
    try:
        return arrivals(actors.checkpoint(name, actor).held)
    except UnwrittenError:
        raise
    except EvflowError:
        # It has no checkpoint of its own, and cannot tell inputs.
        try:
            return [("", batch) for batch in actors.extracted(name, actor)]
        except CONTAINED as error:
            mishaps.tell(_log, f"stone {name!r}", "what the one that it replaced held is lost", error)
            return []


class Difference(Struct, frozen=True):
    """What differs between the running topology and the wanted one, by the names of stones.

    Attributes:
        new: stones that come.
        gone: stones that go.
        replaced: stones that become others of the same name.
        relinked: stones that stay and lead elsewhere within the node.
        appearing: bridges to other nodes that come, those replaced among them.
        vanishing: bridges to other nodes that go, those replaced among them.
        readdressed: bridges that stay and lead elsewhere, and where to.
        entered: stones that others may send to from now on.
        left: stones that others may not send to any more.
        entries: stones where events come in that get to what changes; closed while the change is made.
        leading: the running stones from which events get to what changes, and those that change.
    """

    new: frozenset[str] = frozenset()
    gone: frozenset[str] = frozenset()
    replaced: frozenset[str] = frozenset()
    relinked: frozenset[str] = frozenset()
    appearing: frozenset[str] = frozenset()
    vanishing: frozenset[str] = frozenset()
    readdressed: Mapping[str, Crossing] = field(default_factory=dict)
    entered: frozenset[str] = frozenset()
    left: frozenset[str] = frozenset()
    entries: frozenset[str] = frozenset()
    leading: frozenset[str] = frozenset()


def difference(running: Topology, wanted: Topology) -> Difference:
    """What has to change so that the running topology becomes the wanted one.

    Args:
        running: as it is.
        wanted: the topology as it is to be.
    """
    old, new = running.slots, wanted.slots
    before, after = running.crossings, wanted.crossings
    replaced, relinked = set(), set()
    for name, slot in new.items():
        known = old.get(name, slot)
        if known is slot:
            continue
        # A bridge finds out when it is opened whether it leads to another node.
        if (name in before) != (name in after) or not same_stone(known.stone, slot.stone):
            replaced.add(name)
        elif known.ports != slot.ports:
            relinked.add(name)
    gone = old.keys() - new.keys()
    kept = (before.keys() & after.keys()) - replaced
    # A stone that was an entrance and is replaced stays the same place to send to.
    entrances_before, entrances = running.entrances & old.keys(), wanted.entrances & new.keys()
    leading = _leading(running, gone | replaced | relinked)
    return Difference(
        new=frozenset(new.keys() - old.keys()),
        gone=frozenset(gone),
        replaced=frozenset(replaced),
        relinked=frozenset(relinked),
        appearing=frozenset(after.keys() - kept),
        vanishing=frozenset(before.keys() - kept),
        readdressed={name: after[name] for name in sorted(kept) if before[name] != after[name]},
        entered=frozenset(entrances - entrances_before),
        left=frozenset(entrances_before - entrances),
        entries=leading & (running.makers | running.entrances),
        leading=leading,
    )


def same_stone(one: Stone, other: Stone) -> bool:
    """Whether two descriptions say the same, wherever they are placed and whatever they are named."""
    if one is other:
        return True
    if type(one) is not type(other):
        return False
    values, others = _parameters(one), _parameters(other)
    if values.keys() == others.keys() and all(values[key] is others[key] for key in values):
        return True
    if type(one).settings is Stone.settings:
        # It says nothing of itself, so it may be another.
        return False
    try:
        return one.settings() == other.settings()
    except EvflowError:
        # A handler without a name is the same only as itself.
        return False


def _parameters(stone: Stone) -> dict[str, object]:
    return {key: value for key, value in vars(stone).items() if key not in ("name", "on")}


def _leading(topology: Topology, changed: Collection[str]) -> frozenset[str]:
    upstream: dict[str, list[str]] = {}
    for slot in topology.slots.values():
        for links in slot.ports.values():
            for link in links:
                upstream.setdefault(link.target, []).append(link.source)
    reached, todo = set(changed), list(changed)
    while todo:
        for name in upstream.get(todo.pop(), ()):
            if name not in reached:
                reached.add(name)
                todo.append(name)
    return frozenset(reached)
