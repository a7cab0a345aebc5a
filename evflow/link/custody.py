"""Custody: who must still keep an event, since it could be lost otherwise.

A frame that came is acknowledged when nothing it led to can be lost any more with this node. What it led to
is known because a frame is handled as a whole before the next: the bridges that sent something on meanwhile,
each up to a ticket, and the stones that keep events in memory. All else has been handled, is in a file, or
was given up to the dead letters.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Protocol

from evflow.events.batch import EventBatch
from evflow.link.inlet import Arrived, Inlet, Pending
from evflow.link.outlet import Outlet
from evflow.link.reach import Reach
from evflow.link.tags import Seen, Tag

if TYPE_CHECKING:
    from evflow.stone import Actor

__all__ = ["Custody", "Journal"]

_MAX_BRIDGES = 20_000
_LONGEST_PATH = 16
"""Bridges after which a frame is no longer known by where it came from: it goes round in circles."""

Owed = list[tuple[Outlet, int]]
"""Outlets, each with the ticket up to which it must have resolved its emissions."""

Emitted = list[tuple["Actor", object]]
"""Actors, each with its mark of how far it has emitted."""


class Journal(Protocol):
    """Keeps over restarts which frames were safe."""

    def load(self) -> dict[tuple[str, str], list[Tag]]:
        """By peer and bridge, the latest frame of each route."""

    def save(self, safe: dict[tuple[str, str, bytes], tuple[int, ...]]) -> None:
        """Sets the paths of the latest safe frames, by peer, bridge and route; returns when they are kept."""


class Custody:
    """What a node was given and what it owes.

    Args:
        outlets: bridge → outlet; it may grow.
        reach: what is known of the graph.
        journal: keeps over restarts what was safe; None where that need not be.
    """

    def __init__(self, outlets: Mapping[str, Outlet], reach: Reach, journal: Journal | None) -> None:
        self._outlets = outlets
        self._reach = reach
        self._journal = journal
        self._seen: OrderedDict[tuple[str, str], Seen] = OrderedDict()
        self._current: Tag | None = None
        self._counts: dict[Outlet, int] = {}
        self._touched: dict[Outlet, int] = {}
        self._settling: deque[tuple[Owed, Emitted]] = deque()
        self._waiters: list[tuple[Owed, Callable[[], None]]] = []
        for key, tags in (journal.load() if journal is not None else {}).items():
            seen = self._seen[key] = Seen()
            for tag in tags:
                seen.note(tag)

    def emit(self, outlet: Outlet, batch: EventBatch) -> None:
        """Gives events to a bridge, as a part of what the frame at hand leads to."""
        tag = None
        if outlet.terms.exact:
            if self._tagged(outlet):
                assert self._current is not None
                number = self._counts[outlet] = self._counts.get(outlet, -1) + 1
                tag = Tag(self._current.route, (*self._current.path, number))
            self._touched[outlet] = outlet.head + 1
        outlet.put(batch, tag)

    def _tagged(self, outlet: Outlet) -> bool:
        known = self._current is not None and len(self._current.path) < _LONGEST_PATH
        # What a stone that keeps events lets go is something else after a restart; one name would mean both.
        return known and not self._reach.behind_keeper(outlet)

    def handle(self, inlet: Inlet, arrived: Arrived, run: Callable[[EventBatch], None]) -> None:
        """Has a frame handled, unless it was before.

        Args:
            inlet: where it came.
            arrived: the frame.
            run: moves its events until none moves any more.
        """
        pending = Pending(arrived.sequence, arrived.tag, [], [])
        if inlet.exact:
            inlet.pending.append(pending)
        if arrived.batch is None:
            return
        if inlet.exact and not self._seen_over(inlet).is_new(arrived.tag):
            inlet.duplicates += 1
            # It was handled before, but what it led to may not be safe yet.
            pending.again, pending.holds, pending.owed = True, self._reach.holds(), self._all_owed()
            return
        if inlet.exact:
            self._current = Tag(inlet.route_onward(arrived.tag), arrived.tag.path)
        self._counts, self._touched = {}, {}
        try:
            run(arrived.batch)
        finally:
            self._current = None
        pending.owed = list(self._touched.items())
        pending.holds = self._reach.holds() if inlet.exact else []

    def _seen_over(self, inlet: Inlet) -> Seen:
        key = (inlet.peer, inlet.bridge)
        seen = self._seen.get(key)
        if seen is None:
            seen = self._seen[key] = Seen()
            if len(self._seen) > _MAX_BRIDGES:
                self._seen.popitem(last=False)
        self._seen.move_to_end(key)
        return seen

    def _all_owed(self) -> Owed:
        return [(o, o.head) for o in self._outlets.values() if o.terms.exact and o.resolved < o.head]

    def _is_safe(self, pending: Pending) -> bool:
        if pending.holds:
            if not all(hold.slot.has_released(hold.parked, hold.taken) for hold in pending.holds):
                return False
            # What the stones let go went on meanwhile.
            pending.holds, pending.owed = [], self._all_owed()
        pending.owed = _unresolved(pending.owed)
        return not pending.owed

    def settle(self, inlets: Iterable[Inlet]) -> None:
        """Finds which frames are safe now, and tells whoever waits for that."""
        safe: dict[tuple[str, str, bytes], tuple[int, ...]] = {}
        for inlet in inlets:
            while inlet.pending and self._is_safe(inlet.pending[0]):
                pending = inlet.pending.popleft()
                inlet.safe = pending.sequence
                if not pending.again:  # a later one may be safe already
                    safe[inlet.peer, inlet.bridge, pending.tag.route] = pending.tag.path
            _find_held(inlet)
        if safe and self._journal is not None:
            self._journal.save(safe)
        while self._settling and not (owed := _unresolved(self._settling[0][0])):
            _tell(self._settling.popleft()[1])
        if self._settling:
            self._settling[0] = (owed, self._settling[0][1])
        for entry in [entry for entry in self._waiters if all(o.handled >= t for o, t in entry[0])]:
            self._waiters.remove(entry)
            entry[1]()

    def settle_actors(self, emitted: Emitted) -> None:
        """Tells actors that what they emitted has been handled, once what went over bridges is safe."""
        if not emitted:
            return
        owed = self._all_owed()
        if owed or self._settling:
            self._settling.append((owed, emitted))
        else:
            _tell(emitted)

    def when_handled(self, call: Callable[[], None]) -> None:
        """Calls when all that was emitted so far has been handled, or is held further on."""
        self._waiters.append(([(o, o.head) for o in self._outlets.values()], call))


def _find_held(inlet: Inlet) -> None:
    """Finds up to which frame nothing is left to do but what stones hold, here or further on."""
    inlet.held = max(inlet.held, inlet.safe)
    ahead = max(inlet.held + 1 - inlet.pending[0].sequence, 0) if inlet.pending else 0
    while ahead < len(inlet.pending):
        pending = inlet.pending[ahead]
        if any(outlet.handled < ticket for outlet, ticket in pending.owed):
            return
        inlet.held = pending.sequence
        ahead += 1


def _unresolved(owed: Owed) -> Owed:
    return [(outlet, ticket) for outlet, ticket in owed if outlet.resolved < ticket]


def _tell(emitted: Emitted) -> None:
    for actor, mark in emitted:
        actor.settled(mark)
