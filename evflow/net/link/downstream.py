"""Which bridges the events at a stone get to, which stones keep events on the way, and which are closed."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from evflow.engine.topology import Slot
from evflow.net.link.inlet import Hold, Inlet
from evflow.net.link.outlet import Outlet

if TYPE_CHECKING:
    from evflow.engine.engine import Engine


class Downstream:
    """What is known of the graph; found anew when it has changed.

    Args:
        outlets: bridge → outlet; it may grow.

    Attributes:
        engine: whose stones these are; set before anything is asked.
        closes: whether any stone is closed, as it is while a change is made.
        keepers: the stones that may keep events in memory.
        version: that of the engine's graph when ``keepers`` was found.
    """

    def __init__(self, outlets: Mapping[str, Outlet]) -> None:
        self.engine: Engine | None = None
        self._outlets = outlets
        self._leads: defaultdict[str, set[str]] = defaultdict(set)
        self._found: dict[tuple[str, bool], list[Outlet]] = {}
        self.keepers: list[Slot] = []
        self._behind_keepers: set[Outlet] = set()
        self._after_keepers: set[str] = set()
        self.version = -1
        self.closes = False
        self._closed: Counter[str] = Counter()
        self._passing: Counter[str] = Counter()
        self._repeating: Counter[str] = Counter()

    def close(self, names: Iterable[str], passing: Iterable[str] = (), repeating: Iterable[str] = ()) -> None:
        """From now on these stones take no events from outside, until opened as often; but what comes over
        the bridges ``passing`` they do, and those of ``repeating`` what was sent to them before."""
        self._closed.update(names)
        self.closes = bool(self._closed)
        self._passing.update(passing)
        self._repeating.update(repeating)

    def open(self, names: Iterable[str], passing: Iterable[str] = (), repeating: Iterable[str] = ()) -> None:
        """Takes one closing of each of these stones back, and one exception for each of these bridges and
        stones."""
        for counts, taken in (
            (self._closed, names), (self._passing, passing), (self._repeating, repeating)
        ):  # fmt: skip
            for name in taken:
                if counts[name] > 1:
                    counts[name] -= 1
                else:
                    del counts[name]
        self.closes = bool(self._closed)

    def changed(self) -> None:
        """There are other outlets."""
        self.version = -1

    def leads(self, entry: Slot, onward: Slot) -> None:
        """A handler behind ``entry`` has submitted to ``onward``: what blocks this blocks that."""
        known = self._leads[entry.name]
        if onward.name not in known:
            known.add(onward.name)
            self._found.clear()

    def repeating(self, stone: str) -> bool:
        """Whether a closed stone takes what was sent to it before: each closing allows it."""
        return 0 < self._closed[stone] <= self._repeating[stone]

    def blocked(self, slot: Slot, leaving: bool = False, inlet: Inlet | None = None) -> bool:
        """Whether a stone is closed, or a bridge or a stone downstream of it is full.

        Args:
            slot: the stone.
            leaving: whether they are events that the stone itself emits.
            inlet: where the events come from another node; None if they do not.
        """
        if self.closes and slot.name in self._closed:
            passes = inlet is not None and inlet.bridge in self._passing
            repeats = inlet is not None and inlet.repeats and self.repeating(slot.name)
            if not (passes or repeats):
                return True
        engine = self.engine
        if engine is not None:
            waking, stale = engine.waking, engine.sorted != engine.version
            if (waking.behind or waking.stoppers or stale) and waking.blocked(slot, leaving):
                return True
        if self._outlets:
            fresh = self.engine is not None and self.version == self.engine.version
            found = self._found.get((slot.name, leaving)) if fresh else None
            for outlet in self.outlets(slot, leaving) if found is None else found:
                if outlet.blocked:
                    return True
        return False

    def __contains__(self, stone: str) -> bool:
        """Whether there is a stone of that name."""
        return self.slot(stone) is not None

    def slot(self, stone: str) -> Slot | None:
        """The stone of a name; None if there is none."""
        return None if self.engine is None else self.engine.topology.slots.get(stone)

    def closed(self, stone: str) -> bool:
        """Whether a stone takes no events from outside."""
        return stone in self._closed

    def outlets(self, slot: Slot, leaving: bool = False) -> Sequence[Outlet]:
        """The outlets that events at a stone, or those that it emits, get to before they wait somewhere."""
        if not self._outlets:
            return ()
        if self.engine is None or self.version != self.engine.version:
            self._refresh()
        found = self._found.get((slot.name, leaving))
        if found is None:
            found = self._found[slot.name, leaving] = self._find(slot, leaving)
        return found

    def behind_keeper(self, outlet: Outlet) -> bool:
        """Whether events may get to a bridge only after some stone has kept them."""
        self._refresh()
        return outlet in self._behind_keepers

    def after_keeper(self, slot: Slot) -> bool:
        """Whether events may get to a stone only after another has kept them."""
        self._refresh()
        return slot.name in self._after_keepers

    def holds(self) -> list[Hold]:
        """The stones that keep events in memory now."""
        if self.engine is None or self.version != self.engine.version:
            self._refresh()
        if not self.keepers:
            return []
        return [Hold(slot, *slot.kept_ever) for slot in self.keepers if slot.keeps_events]

    def remaining(self, holds: list[Hold]) -> list[Hold]:
        """What is still to leave stones of this node. What a stone held that is gone went with it; what one
        held that was replaced is in the memory of the one in its place."""
        assert self.engine is not None
        slots = self.engine.topology.slots
        found = []
        for hold in holds:
            slot = slots.get(hold.slot.name)
            if slot is not None:
                found.append(hold if slot is hold.slot else Hold(slot, *slot.kept_ever))
        return found

    def _refresh(self) -> None:
        assert self.engine is not None
        if self.version != self.engine.version:
            self.version = self.engine.version
            slots = self.engine.topology.slots
            known = {name: onward & slots.keys() for name, onward in self._leads.items() if name in slots}
            self._leads = defaultdict(set, known)
            self._found.clear()
            self.keepers = [slot for slot in slots.values() if slot.may_keep_events]
            self._behind_keepers = {outlet for slot in self.keepers for outlet in self._find(slot)}
            self._after_keepers = {name for slot in self.keepers for name in self._onward(slot)[1:]}

    def _find(self, slot: Slot, leaving: bool = True) -> list[Outlet]:
        return [self._outlets[name] for name in self._onward(slot, leaving) if name in self._outlets]

    def _onward(self, slot: Slot, leaving: bool = True) -> list[str]:
        """The stones that events at a stone, or those that it emits, may get to; itself first."""
        assert self.engine is not None
        slots = self.engine.topology.slots
        found: list[str] = []
        seen, todo = {slot.name}, [slot.name]
        while todo:
            at = slots.get(todo.pop())
            if at is None:
                continue
            found.append(at.name)
            if at.buffers and not (leaving and at is slot):
                continue
            onward = {link.target for links in at.ports.values() for link in links}
            for name in onward | self._leads.get(at.name, set()):
                if name not in seen:
                    seen.add(name)
                    todo.append(name)
        return found
