"""Delivery tracking: who must still keep an event, since it could be lost otherwise.

A frame that came is acknowledged when nothing it led to can be lost any more with this node. What it led to
is known because a frame is handled as a whole before the next: the bridges that sent something on meanwhile,
each up to a ticket, and the stones that keep events in memory. All else has been handled, is in a file, or
was given up to the dead letters.

A bridge that has ended is not part of the graph any more, but its outlet is the backup of what the receiver
holds in memory: its frames are kept, and sent again to a receiver that has lost them, until all are safe.
They are sent without a tag then: newer frames along the same route, which take another way now, may have come
before them.
"""

from __future__ import annotations

import logging
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol

from evflow.disk import Trouble
from evflow.engine.topology import Slot
from evflow.errors import LinkError
from evflow.events.batch import EventBatch
from evflow.net.link.attributes import divided
from evflow.net.link.downstream import Downstream
from evflow.net.link.inlet import Arrived, Inlet, Pending
from evflow.net.link.outlet import Outlet
from evflow.net.link.provenance import Known, Provenance, Seen, next_route

if TYPE_CHECKING:
    from evflow.net.link.hub import Hub
    from evflow.stone import Actor

_log = logging.getLogger("evflow.link")

_MAX_BRIDGES = 20_000
_LONGEST_PATH = 16
"""Bridges after which a frame is no longer known by where it came from: it goes round in circles."""

Owed = list[tuple[Outlet, int]]
"""Outlets, each with the ticket up to which it must have resolved its emissions."""

Paths = dict[tuple[str, str, bytes], tuple[int, ...]]
"""Paths, by bridge, the stone that it leads to, and route."""

Gone = tuple[str, bytes]
"""A bridge, and a route that is known of it no more."""

Emitted = list[tuple["Actor", object]]
"""Actors, each with its mark of how far it has emitted."""


class Journal(Protocol):
    """Keeps over restarts which frames were safe."""

    def load(self) -> dict[tuple[str, str], list[Provenance]]:
        """By bridge and the stone that it leads to, the latest frame of each route."""

    def save(self, safe: Paths, gone: Sequence[Gone]) -> None:
        """Forgets what is gone, then sets the paths of the latest safe frames; returns when that is kept.

        Raises:
            LinkError: it cannot be written now; nothing has changed.
        """

    def forget(self, stone: str) -> None:
        """Forgets what came for a stone.

        Raises:
            LinkError: it cannot be written now; nothing has changed.
        """


class Delivery:
    """What a node was given and what it owes.

    Args:
        outlets: bridge → outlet; it may grow.
        downstream: what is known of the graph.
        journal: keeps over restarts what was safe; None where that need not be.
        retired: outlets of bridges that have ended; it may grow.

    Attributes:
        trouble: of the journal. While it cannot be written no frame is acknowledged, and none taken in.
        journals: whether there is a journal.
        waits: whether somebody waits for what is safe, and ``settle`` will tell.
    """

    def __init__(
        self,
        outlets: Mapping[str, Outlet],
        downstream: Downstream,
        journal: Journal | None,
        retired: Iterable[Outlet] = (),
    ) -> None:
        self._outlets = outlets
        self._retired = retired
        self._downstream = downstream
        self._journal = journal
        self.journals, self.waits = journal is not None, False
        self._seen: OrderedDict[str, Seen] = OrderedDict()
        # What the journal is still to be told: bridges' routes and stones to forget, and paths.
        self._gone: list[Gone] = []
        self._left: set[str] = set()
        self._unsaved: Paths = {}
        self.trouble = Trouble(_log)
        self._current: Provenance | None = None
        self._counts: dict[Outlet, int] = {}
        self._touched: dict[Outlet, int] = {}
        self._settling: deque[tuple[Owed, Emitted]] = deque()
        self._emitted: deque[tuple[Pending, Actor, object]] = deque()
        self._waiters: list[tuple[Callable[[], bool], Callable[[], None]]] = []
        for (bridge, stone), tags in (journal.load() if journal is not None else {}).items():
            seen = self._seen_over(bridge)
            for tag in tags:
                seen.is_new(tag, stone=stone)
                seen.make_safe(tag.route, tag.path)

    def emit(self, outlet: Outlet, batch: EventBatch) -> None:
        """Gives events to a bridge, as a part of what the frame at hand leads to.

        Raises:
            LinkError: their attributes cannot be sent; nothing was taken.
        """
        for part in (batch,) if batch.attributes is None else divided(batch):
            tag = None
            if outlet.terms.exact and self._current is not None and self._tagged(outlet, self._current):
                number = self._counts[outlet] = self._counts.get(outlet, -1) + 1
                tag = Provenance(self._current.route, (*self._current.path, number))
            outlet.put(part, tag)
        if outlet.terms.exact:
            self._touched[outlet] = outlet.head

    def _tagged(self, outlet: Outlet, current: Provenance) -> bool:
        # What a stone that keeps events lets go is something else after a restart; one name would mean both.
        return len(current.path) < _LONGEST_PATH and not self._downstream.behind_keeper(outlet)

    def frame(self, slot: Slot) -> tuple[bytes, tuple[int, ...]] | None:
        """The frame at hand, its route and path; None if what comes of it to a stone may be something else
        another time."""
        tag = self._current
        if tag is None or len(tag.path) >= _LONGEST_PATH or self._downstream.after_keeper(slot):
            return None
        return tag.route, tag.path

    def handle(self, inlet: Inlet, arrived: Arrived) -> None:
        """Has the engine handle a frame that came over an inlet, unless it was handled before."""
        pending = Pending(arrived.sequence, arrived.tag, [], [])
        if inlet.exact:
            inlet.pending.append(pending)
        if arrived.batch is None:
            return
        tag, downstream, engine = arrived.tag, self._downstream, self._downstream.engine
        assert engine is not None
        if inlet.exact:
            seen = self._seen.get(inlet.bridge)
            if seen is None:
                seen = self._seen_over(inlet.bridge)
            else:
                self._seen.move_to_end(inlet.bridge)
            # A bridge that has ended sends again without the tag.
            own = None if tag.route == inlet.stream else Provenance(inlet.stream, (arrived.sequence,))
            new = own is None or seen.is_new(own, inlet.peer, inlet.slot.name)
            if not new or not seen.is_new(tag, inlet.peer, inlet.slot.name):
                inlet.duplicates += 1
                # It was handled before, but what it led to may not be safe yet.
                owed = _now([*downstream.outlets(inlet.slot), *self._retired])
                pending.again, pending.holds, pending.owed = True, downstream.holds(), owed
                return
            self._current = Provenance(inlet.routes.get(tag.route) or inlet.route_onward(tag), tag.path)
        self._counts, self._touched = {}, {}
        inlet.handling, engine.entry = 1, inlet.slot
        try:
            engine.submit(inlet.slot, arrived.batch, inlet.input, (inlet.bridge, inlet.stream))
            engine.run()
        finally:
            self._current = None
        # Where that failed it stays: what the frame led to is known only in part, so it is not safe.
        inlet.handling = 0
        if inlet.exact:
            pending.owed = list(self._touched.items())
            if downstream.keepers or downstream.version != engine.version:
                pending.holds = downstream.holds()

    def run_numbered(self, slot: Slot, number: int, run: Callable[[], None]) -> None:
        """Moves what a stone has emitted by itself as if it were a frame that came, and tells its actor when
        that is safe.

        Args:
            slot: the stone; its actor's ``stream`` stands for the stream of the frame.
            number: the number of the frame.
            run: moves the events until none moves any more.
        """
        actor = slot.actor
        assert actor is not None
        stream = slot.asked("stream", lambda actor: bytes(memoryview(actor.stream)), b"")
        tag = Provenance(next_route(stream, slot.name), (number,))
        mark = slot.asked("mark", lambda actor: actor.mark(), None)
        self._current = tag if stream else None
        self._counts, self._touched = {}, {}
        try:
            run()
        finally:
            self._current = None
        pending = Pending(number, tag, list(self._touched.items()), self._downstream.holds())
        self._emitted.append((pending, actor, mark))
        self.waits = True

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Within the ``with`` block events are moved that are not a part of the frame at hand."""
        before = self._current, self._counts, self._touched
        self._current, self._counts, self._touched = None, {}, {}
        try:
            yield
        finally:
            self._current, self._counts, self._touched = before

    def _seen_over(self, bridge: str) -> Seen:
        seen = self._seen.get(bridge)
        if seen is None:
            seen = self._seen[bridge] = Seen(partial(self._forgot, bridge))
            if len(self._seen) > _MAX_BRIDGES:
                quiet, routes = self._seen.popitem(last=False)
                for route in routes:
                    self._forgot(quiet, route)
        self._seen.move_to_end(bridge)
        return seen

    def _forgot(self, bridge: str, route: bytes) -> None:
        if self._journal is not None:
            self._gone.append((bridge, route))

    def _save(self, now: float | None = None) -> bool:
        """Brings the journal up to date; what is known no more by now does not go into it.

        Returns:
            Whether it is; if not, that is to be tried again.
        """
        if self._journal is None:
            self._unsaved = {}
        elif self._unsaved or self._gone or self._left:
            new = self._unsaved
            known = {key: path for key, path in new.items() if key[2] in self._seen.get(key[0], ())}
            try:
                for stone in list(self._left):
                    self._journal.forget(stone)
                    self._left.discard(stone)
                self._journal.save(known, self._gone)
            except LinkError as error:
                self.trouble.failed(str(error), now)
                return False
            self._gone, self._unsaved = [], {}
        if self.trouble.why:
            self.trouble.over()
        return True

    def _note(self, bridge: str, stone: str, tags: Iterable[Provenance]) -> None:
        seen = self._seen_over(bridge)
        for tag in tags:
            seen.is_new(tag, stone=stone)

    # --- what moves along with a stone

    def seen(self, stone: str) -> dict[str, list[Known]]:
        """What came for a stone, by bridge."""
        return {bridge: known for bridge, seen in self._seen.items() if (known := seen.known(stone))}

    def learn(self, stone: str, known: Mapping[str, list[Known]]) -> None:
        """Adds what came for a stone while it was on another node.

        Only what was safe there goes into the journal. The rest is held by the stone: should this node lose
        its memory, that must be handled again.
        """
        for bridge, listed in known.items():
            seen = self._seen_over(bridge)
            for route, path, safe in listed:
                seen.is_new(Provenance(route, path), stone=stone)
                if safe and seen.make_safe(route, safe):
                    self._unsaved[bridge, stone, route] = safe
        self._save()

    def forget(self, stone: str) -> None:
        """Forgets what came for a stone, which is elsewhere now.

        If it comes back without what it held, that must be handled again.
        """
        for bridge, seen in list(self._seen.items()):
            seen.forget(stone)
            if not len(seen):
                del self._seen[bridge]
        self._unsaved = {key: path for key, path in self._unsaved.items() if key[1] != stone}
        if self._journal is not None:
            self._left.add(stone)
            self._save()

    def retire(self, outlet: Outlet, inlets: Iterable[Inlet]) -> None:
        """A bridge has ended: what stones of this node hold may have gone on over it in part."""
        for inlet in inlets:
            for pending in inlet.pending:
                if pending.holds:
                    pending.owed.append((outlet, outlet.head))

    def in_hand(self, inlet: Inlet) -> Outlet | None:
        """An outlet that has not handed on what the frames of an inlet have led to; None if nothing of them
        is left to do, but what stones of this node hold in memory."""
        for pending in inlet.pending:
            if not self._is_safe(pending):
                late = self._late(inlet, pending)
                if late:
                    return late[0]
        return None

    def _late(self, inlet: Inlet, pending: Pending) -> list[Outlet]:
        """The outlets that have not handed on what a frame has led to."""
        late = [outlet for outlet, ticket in pending.owed if outlet.handled < ticket]
        if late and inlet.slot.name in self._downstream:
            # What stones let go counts as owed by all outlets, also by those that it cannot have come to.
            reached = self._downstream.outlets(inlet.slot)
            late = [outlet for outlet in late if outlet in reached]
        return late

    # --- when it is safe

    def _all_owed(self) -> Owed:
        return _now(self._outlets.values())

    def _is_safe(self, pending: Pending, ask_stones: bool = True) -> bool:
        if pending.holds:
            if not ask_stones:
                return False
            pending.holds = self._downstream.remaining(pending.holds)
            if not all(hold.slot.has_released(hold.parked, hold.taken) for hold in pending.holds):
                return False
            # What the stones let go went on meanwhile.
            before = [(outlet, ticket) for outlet, ticket in pending.owed if outlet.retired]
            pending.holds, pending.owed = [], before + self._all_owed()
        if pending.owed:
            pending.owed = _unresolved(pending.owed)
        return not pending.owed

    def settle(self, inlets: Sequence[Inlet], now: float | None = None) -> None:
        """Finds which frames are safe now, and tells whoever waits for that.

        Args:
            inlets: those of the node.
            now: the time; None if a journal that could not be written is not to be tried again by this.
        """
        self.settle_links(inlets, now, ask_stones=True)
        if self.waits:
            self._tell_waiters()

    def settle_links(
        self, inlets: Sequence[Inlet], now: float | None = None, ask_stones: bool = False
    ) -> None:
        """Finds which frames are safe now; while a pass is under way no stone is asked, and nobody told."""
        if self.trouble.why and (now is None or self.trouble.waits(now)):
            return
        safe: Paths = {}
        counts: list[tuple[Inlet, int]] = []
        for inlet in inlets:
            if inlet.pending:
                counts.append((inlet, self._settle(inlet, safe, ask_stones)))
        # Over two channels a later frame of a route may have become safe before.
        for (bridge, stone, route), path in safe.items():
            if self._seen_over(bridge).make_safe(route, path) and self._journal is not None:
                self._unsaved[bridge, stone, route] = path
        # Only what the journal has is acknowledged: after a kill it would come again, and be new.
        if self._journal is None or not (safe or self.trouble.why) or self._save(now):
            for inlet, count in counts:
                for _ in range(count):
                    inlet.safe = inlet.pending.popleft().sequence
        for inlet, _ in counts:
            inlet.held = max(inlet.held, inlet.safe)
            if inlet.pending:
                self._find_held(inlet, ask_stones)

    def _settle(self, inlet: Inlet, safe: Paths, ask_stones: bool) -> int:
        """Finds how many of the oldest frames of an inlet are safe, and the paths of these."""
        count = 0
        for pending in islice(inlet.pending, max(len(inlet.pending) - inlet.handling, 0)):
            if (pending.owed or pending.holds) and not self._is_safe(pending, ask_stones):
                break
            count += 1
            if not pending.again:  # a later one may be safe already
                key = inlet.bridge, inlet.slot.name, pending.tag.route
                safe[key] = max(pending.tag.path, safe.get(key, ()))
        if count:
            newest = inlet.pending[count - 1].sequence
            safe[inlet.bridge, inlet.slot.name, inlet.stream] = (newest,)
        return count

    def _tell_waiters(self) -> None:
        """Calls whoever waits for what is safe by now."""
        while self._emitted and self._is_safe(self._emitted[0][0]):
            _, actor, mark = self._emitted.popleft()
            self._tell([(actor, mark)])
        while self._settling and not (owed := _unresolved(self._settling[0][0])):
            self._tell(self._settling.popleft()[1])
        if self._settling:
            self._settling[0] = (owed, self._settling[0][1])
        ready = [entry for entry in self._waiters if entry[0]()]
        # What is called may have this done again.
        self._waiters = [entry for entry in self._waiters if entry not in ready] if ready else self._waiters
        self.waits = bool(self._emitted or self._settling or self._waiters)
        for _, call in ready:
            call()

    def _find_held(self, inlet: Inlet, ask_stones: bool) -> None:
        """Finds up to which frame nothing is left to do but what stones hold, here or further on."""
        ahead = max(inlet.held + 1 - inlet.pending[0].sequence, 0)
        handled = len(inlet.pending) - inlet.handling
        while ahead < handled and not self._under_way(inlet, inlet.pending[ahead], ask_stones):
            inlet.held = inlet.pending[ahead].sequence
            ahead += 1

    def _under_way(self, inlet: Inlet, pending: Pending, ask_stones: bool) -> bool:
        """Whether something is left to do of a frame but to hold what it has led to."""
        if pending.holds and not ask_stones:
            return True
        handling = any(
            hold.slot.handles and not hold.slot.has_released(hold.parked, hold.taken)
            for hold in pending.holds
        )
        return handling or bool(self._late(inlet, pending))

    def settle_actors(self, emitted: Emitted) -> None:
        """Tells actors that what they emitted has been handled, once what went over bridges is safe."""
        if not emitted:
            return
        owed = self._all_owed()
        if owed or self._settling:
            self._settling.append((owed, emitted))
            self.waits = True
        else:
            self._tell(emitted)

    def _tell(self, emitted: Emitted) -> None:
        assert self._downstream.engine is not None
        for actor, mark in emitted:
            self._downstream.engine.stalls.settle(actor, mark)

    def when_handled(self, call: Callable[[], None]) -> None:
        """Calls when all that was emitted so far has been handled, or is held further on."""
        owed = [(o, o.head) for o in (*self._outlets.values(), *self._retired)]
        self._waiters.append((lambda: all(o.handled >= ticket for o, ticket in owed), call))
        self.waits = True

    def when_safe(self, slot: Slot, call: Callable[[], None]) -> None:
        """Calls when all that was emitted so far behind a stone needs nobody's memory any more."""
        owed = [(o, o.head) for o in (*self._downstream.outlets(slot), *self._retired)]
        self._waiters.append((lambda: not _unresolved(owed), call))
        self.waits = True


def _now(outlets: Iterable[Outlet]) -> Owed:
    """What outlets owe at this moment."""
    return [(o, o.head) for o in outlets if o.terms.exact and o.resolved < o.head]


def _unresolved(owed: Owed) -> Owed:
    return [(outlet, ticket) for outlet, ticket in owed if outlet.resolved < ticket]


MOST_RETIRED = 100
"""Retired outlets of a node; a bridge that would be one more has to wait."""

_MOST_ALIKE = 16
"""Those among them that were one bridge to one peer, which keeps apart so many."""

_PATIENCE = 3600.0
"""Seconds for which a peer may say that it has no such stone, until what it has held is given up."""

GiveUp = Callable[[str, "EventBatch", str], Any]
"""(bridge, events, reason)."""


class Retired:
    """The retired outlets of a node.

    Args:
        hub: the node's other parts.

    Attributes:
        outlets: the outlets, each with what takes events that are given up.
    """

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self.outlets: dict[Outlet, GiveUp] = {}

    def __len__(self) -> int:
        return len(self.outlets)

    def __iter__(self) -> Iterator[Outlet]:
        return iter(self.outlets)

    def full(self, outlet: Outlet) -> str:
        """Why there is no room for an outlet now; "" if there is."""
        bridge, peer = outlet.bridge, outlet.address.peer
        if len(self) >= MOST_RETIRED:
            return f"{len(self)} bridges have ended while their receivers hold events; so many may be kept"
        alike = sum(other.bridge == bridge and other.address.peer == peer for other in self)
        if alike >= _MOST_ALIKE:
            return f"it has ended {alike} times while {peer} holds events; so many may be kept"
        return ""

    def add(self, outlet: Outlet, give_up: GiveUp) -> None:
        """Keeps an outlet until its frames are safe; its channel is opened anew, as one that has ended."""
        self.outlets[outlet] = give_up
        self._hub.delivery.retire(outlet, self._hub.remote_inputs.all())
        self._hub.links[outlet.address.peer].reopen(outlet)

    def follow(self, stone: str, peer: str) -> None:
        """A stone is on a peer now: what is kept for it on others is led there."""
        for outlet in self:
            if outlet.address.stone == stone and outlet.address.peer != peer:
                before = self._hub.links[outlet.address.peer]
                before.remove(outlet)
                outlet.readdressed(outlet.address._replace(peer=peer))
                self._hub.peer(peer).add(outlet)
                before.end_if_idle()

    def tidy(self, now: float) -> None:
        """Ends those that keep nothing any more, and those that are refused for too long."""
        for outlet, give_up in list(self.outlets.items()):
            if outlet.refused_since is not None and now >= outlet.refused_since + _PATIENCE:
                reason = f"the bridge was taken away, and node {outlet.address.peer} has not got what it held"
                _log.warning("bridge %s: %s: %s", outlet.bridge, reason, outlet.reason)
                for batch in outlet.lost():
                    give_up(outlet.bridge, batch, f"{reason}; {outlet.reason}")
            if not outlet.keeps:
                del self.outlets[outlet]
                link = self._hub.links[outlet.address.peer]
                link.remove(outlet)
                link.end_if_idle()
