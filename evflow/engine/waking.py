"""Stones that emit by themselves, are full, or cannot write what comes to them, as on a full disk."""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from threading import get_ident
from types import MappingProxyType
from typing import TYPE_CHECKING

from evflow import mishaps
from evflow.disk import Trouble
from evflow.engine.topology import Slot
from evflow.errors import EvflowError, UnwrittenError
from evflow.mishaps import CONTAINED, named, sound
from evflow.outside import shown
from evflow.stone import Acting, Actor

if TYPE_CHECKING:
    from evflow.engine.engine import Engine

_log = logging.getLogger("evflow.engine")
_flow_log = logging.getLogger("evflow.flow")

_AFTER_FAILURE = 1.0
"""Seconds until a stone is woken again that has failed when it was woken."""


class Waking:
    """Which actors are to be woken, and which hold up the stones before them.

    Args:
        engine: whose stones these are.

    Attributes:
        ring: wakes the thread that drives the engine.
        number: what the actor that was woken last has given its events, or None.
        behind: whether handlers have submitted more than could be run so far: nothing else comes in then.
        wakers: the stones that emit by themselves.
        called: the stones that were called, and not woken since.
        stoppers: the names of the stones that may be full.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.ring: Callable[[], None] = lambda: None
        self.number: int | None = None
        self.behind = False
        self.wakers: list[Slot] = []
        self.stoppers: set[str] = set()
        self._ahead: dict[tuple[Slot, bool], list[Slot]] = {}
        self._due: dict[Slot, float | None] = {}
        self.called: deque[Slot] = deque()
        self._wanted: set[Slot] = set()
        self._failures: dict[Slot, str] = {}
        # Threads of actors that wait for room, and the actors that may have to make it.
        self._waiters: dict[int, tuple[Actor, list[Actor]]] = {}

    def call(self, slot: Slot) -> None:
        """Has a stone woken soon; called in any thread."""
        self.called.append(slot)
        self.ring()

    def due(self, now: float, held: Callable[[Slot], bool]) -> Iterator[Slot]:
        """Wakes, one after the other, the stones that are due; what each has emitted is to be moved before
        the next.

        Args:
            now: seconds on a clock that only goes forward.
            held: whether a stone may emit nothing now; then it is woken later.
        """
        if self._engine.sorted != self._engine.version:
            self._engine.sort_out()
        while self.called:
            self._wanted.add(self.called.popleft())
        for slot in self.wakers:
            actor, due = slot.actor, self._due.get(slot, 0.0)
            is_due = slot in self._wanted or (due is not None and due <= now)
            # From one that leads nowhere nothing can be emitted.
            if actor is None or not is_due or (slot.ports and (slot.frozen or held(slot))):
                continue
            self._wanted.discard(slot)
            self.number = None
            self._due[slot] = now + _AFTER_FAILURE
            try:
                with self._engine.away:
                    self._due[slot] = _when(actor.wake(now))
                self._failures.pop(slot, None)
            except CONTAINED as error:
                self._failures[slot] = f"; it failed when it was woken: {named(error)}"
                mishaps.tell(_log, f"stone {slot.name!r}", "it failed when it was woken", error)
            yield slot

    def next_due(self, now: float, held: Callable[[Slot], bool]) -> float:
        """When ``due`` is needed next; infinity if not before something else happens."""
        if self._engine.sorted != self._engine.version:
            self._engine.sort_out()
        times = [
            due
            for slot in self.wakers
            if (due := now if slot in self._wanted else self._due.get(slot, now)) is not None
            and not (slot.ports and (slot.frozen or held(slot)))
        ]
        return min(times, default=math.inf)

    def blocked(self, slot: Slot, leaving: bool = False) -> bool:
        """Whether a stone downstream of a stone, or of what it emits itself, is full."""
        if self.behind:
            return True
        if self._engine.sorted != self._engine.version:
            self._engine.sort_out()
        if not self.stoppers:
            return False
        ahead = self._ahead.get((slot, leaving))
        if ahead is None:
            ahead = self._ahead[slot, leaving] = self._find(slot, leaving)
        return any(stopper.stalled or _full(stopper) for stopper in ahead)

    def _find(self, slot: Slot, leaving: bool) -> list[Slot]:
        """The stones that may be full, among those that events may get to before they wait somewhere."""
        seen, todo, found = {slot}, [slot], []
        while todo:
            at = todo.pop()
            own = leaving and at is slot
            # A stone that is full may emit: by that it gets room again.
            if at.name in self.stoppers and not own:
                found.append(at)
            if at.buffers and not own:
                continue
            onward = self._engine.topology.onward(at) - seen
            seen |= onward
            todo.extend(onward)
        return found

    def busy(self, since: Mapping[Slot, tuple[int, int]] = MappingProxyType({})) -> list[str]:
        """What stones that are not frozen will still emit or handle by themselves, and what stones cannot
        keep now; one text each.

        Args:
            since: of some stones how far ``kept_ever`` had come; what they have taken since does not count.
        """
        self._engine.sort_out()
        told = self._engine.stalls.waiting()
        for slot in self.wakers:
            why = "" if slot.frozen else slot.busy_with
            if why and not (slot in since and slot.has_released(*since[slot])):
                told.append(f"stone {slot.name!r}: {why}{self._failures.get(slot, '')}")
        return told

    def kept(self) -> dict[Slot, tuple[int, int]] | None:
        """How far ``kept_ever`` has come of the stones that handle events by themselves; None while another
        emits some."""
        self._engine.sort_out()
        if any(slot.ports and slot.handles for slot in self.wakers):
            return None
        return {slot: slot.kept_ever for slot in self.wakers if not slot.ports}

    def left(self) -> int:
        """Events that stones hold and will handle by themselves."""
        self._engine.sort_out()
        return sum(slot.queued for slot in self.wakers if slot.handles)

    def waits_for_itself(self, slot: Slot, actor: Actor) -> bool:
        """Whether a handler of ``actor`` that waits for room at a stone may wait for itself.

        It may if the actor is full and events at the stone get to it, or if they get to another that is full
        and a handler of that one waits for this one. It is asked in the handler's thread, which says by
        ``no_longer_waits`` when it is done.
        """
        self._engine.sort_out()
        ahead = [stopper.actor for stopper in self._find(slot, False) if stopper.actor is not None]
        self._waiters[get_ident()] = actor, ahead
        seen: set[Actor] = set()
        todo = [actor]
        while todo:
            at = todo.pop()
            for waiter, needed in list(self._waiters.values()):
                if waiter is at:
                    onward = {one for one in needed if one.full} - seen
                    seen |= onward
                    todo.extend(onward)
        return actor in seen

    def no_longer_waits(self) -> None:
        """The calling thread does not wait any more."""
        self._waiters.pop(get_ident(), None)

    def draining(self) -> None:
        """Tells these stones that a drain begins."""
        self._engine.sort_out()
        for slot in self.wakers:
            if not slot.frozen:
                slot.asked("draining", lambda actor: actor.draining(), None)

    def failures(self) -> list[EvflowError]:
        """Why stones emit nothing more."""
        self._engine.sort_out()
        told = (slot.asked("failure", _failure, None) for slot in self.wakers)
        return [failure for failure in told if failure is not None]

    def troubles(self) -> list[str]:
        """Why a flow may not come to rest: who is busy, and who is full."""
        self._engine.sort_out()
        full = [name for name in sorted(self.stoppers) if _full(self._engine.topology.slots[name])]
        return [
            *self.busy(),
            *self._engine.stalls.unsettled(),
            *(f"stone {name!r} is full and takes no more now" for name in full),
        ]

    def sort_out(self, slots: list[Slot]) -> None:
        """Finds, among all stones, those that emit by themselves and those that may be full."""
        acting = [slot for slot in slots if isinstance(slot.stone, Acting)]
        self.wakers = [slot for slot in acting if isinstance(slot.stone, Acting) and slot.stone.wakes]
        self.stoppers = {
            slot.name
            for slot in acting
            if slot.stalled or (slot.actor is not None and type(slot.actor).full is not Actor.full)
        }
        self._ahead.clear()
        self._due = {slot: due for slot, due in self._due.items() if slot in self.wakers}
        self._failures = {slot: why for slot, why in self._failures.items() if slot in self.wakers}
        self._wanted &= set(self.wakers)


def _failure(actor: Actor) -> EvflowError | None:
    failure: object = actor.failure
    if failure is not None and not isinstance(failure, EvflowError):
        raise TypeError(f"failure: expected an EvflowError or None, found {shown(failure)}")
    return failure


def _when(due: object) -> float | None:
    # A comparison also refuses NaN.
    if due is not None and not (isinstance(due, int | float) and due == due):
        raise TypeError(f"wake(): expected seconds or None, found {shown(due)}")
    return due


def _full(slot: Slot) -> bool:
    return slot.asked("full", lambda actor: bool(actor.full), False)


_ATTRIBUTE = "trouble"
"""The attribute of a stone that tells why it is stalled."""


class Stalls:
    """The stones of an engine whose files cannot be written now.

    What comes to such a stone is parked, as at a frozen one: so links do not acknowledge it, and what leads
    to the stone is blocked.

    Args:
        engine: whose stones these are.

    Attributes:
        stalled: the stones.
        open: the actors that could not note what has been handled.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.stalled: dict[Slot, Trouble] = {}
        self.open: dict[Actor, tuple[object, Trouble]] = {}

    def begin(self, slot: Slot, error: UnwrittenError) -> None:
        """A stone could not keep events; these are to be parked."""
        trouble = self.stalled.get(slot)
        if trouble is None:
            trouble = self.stalled[slot] = Trouble(_flow_log)
        slot.stalled = str(error)
        slot.attributes[_ATTRIBUTE] = slot.stalled
        trouble.failed(f"stone {slot.name!r}: {error}")
        # Who leads to the stone, and who keeps events in memory, is found anew.
        self._engine.changed()

    def settle(self, actor: Actor, mark: object) -> None:
        """Tells an actor that what it had emitted at ``mark`` has been handled, again later if it cannot note
        that now."""
        known = self.open.get(actor)
        try:
            actor.settled(mark)
        except CONTAINED as error:
            # What it emitted is handled all the same.
            trouble = Trouble(_flow_log) if known is None else known[1]
            trouble.failed(f"what a stone has emitted cannot be noted: {sound(error)}")
            self.open[actor] = mark, trouble
        else:
            if known is not None:
                known[1].over()
                del self.open[actor]

    def next_due(self) -> float:
        """When ``retry`` is needed next, in seconds of ``time.monotonic``; infinity if nothing is stalled."""
        troubles = [*self.stalled.values(), *(trouble for _, trouble in self.open.values())]
        return min((trouble.due for trouble in troubles), default=math.inf)

    def retry(self, now: float) -> None:
        """Gives stones what is parked at them, and settles what could not be noted; what that emits is to be
        moved by the engine."""
        for actor, (mark, trouble) in list(self.open.items()):
            if not trouble.waits(now):
                self.settle(actor, mark)
        for slot, trouble in list(self.stalled.items()):
            if not trouble.waits(now):
                self._retry(slot, trouble)

    def _retry(self, slot: Slot, trouble: Trouble) -> None:
        if self._engine.topology.slots.get(slot.name) is not slot:
            del self.stalled[slot]
            return
        slot.stalled = ""
        ever = slot.parked_ever
        for input, batch in slot.unpark():
            self._engine.submit(slot, batch, input)
        self._engine.run()
        # What is parked again was counted when it came.
        slot.parked_ever = ever
        if slot.stalled:
            return
        trouble.over()
        del self.stalled[slot]
        slot.attributes.pop(_ATTRIBUTE, None)
        self._engine.changed()

    def unsettled(self) -> list[str]:
        """What could not be noted, one text a stone; any thread may ask."""
        return [trouble.why for _, trouble in list(self.open.values()) if trouble.why]

    def waiting(self) -> list[str]:
        """Why events wait, one text a stone; any thread may ask."""
        return [f"stone {slot.name!r}: {slot.stalled}" for slot in list(self.stalled) if slot.stalled]
