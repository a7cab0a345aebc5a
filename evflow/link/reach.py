"""Which bridges the events at a stone can get to, and which stones keep events on the way."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from evflow.engine.topology import Slot
from evflow.link.inlet import Hold
from evflow.link.outlet import Outlet

if TYPE_CHECKING:
    from evflow.engine.engine import Engine

__all__ = ["Reach"]


class Reach:
    """What is known of the graph; found anew when it has changed.

    Args:
        outlets: bridge → outlet; it may grow.

    Attributes:
        engine: whose stones these are; set before anything is asked.
    """

    def __init__(self, outlets: Mapping[str, Outlet]) -> None:
        self.engine: Engine | None = None
        self._outlets = outlets
        self._leads: dict[str, set[str]] = {}
        self._found: dict[str, list[Outlet]] = {}
        self._keepers: list[Slot] = []
        self._behind_keepers: set[Outlet] = set()
        self._version = -1

    def leads(self, entry: Slot, onward: Slot) -> None:
        """A handler behind ``entry`` has submitted to ``onward``: what blocks this blocks that."""
        known = self._leads.setdefault(entry.name, set())
        if onward.name not in known:
            known.add(onward.name)
            self._found.clear()

    def blocked(self, slot: Slot) -> bool:
        """Whether events at a stone would get to a bridge that takes no more."""
        if not self._outlets:
            return False
        self._refresh()
        found = self._found.get(slot.name)
        if found is None:
            found = self._found[slot.name] = self._find(slot)
        return any(outlet.blocked for outlet in found)

    def behind_keeper(self, outlet: Outlet) -> bool:
        """Whether events may get to a bridge only after some stone has kept them."""
        self._refresh()
        return outlet in self._behind_keepers

    def holds(self) -> list[Hold]:
        """The stones that keep events in memory now."""
        self._refresh()
        return [Hold(slot, *slot.kept_ever) for slot in self._keepers if slot.keeps_events]

    def _refresh(self) -> None:
        assert self.engine is not None
        version = self.engine.version + len(self._outlets)
        if self._version != version:
            self._version = version
            self._found.clear()
            self._keepers = [slot for slot in self.engine.topology.slots.values() if slot.may_keep_events]
            self._behind_keepers = {outlet for slot in self._keepers for outlet in self._find(slot)}

    def _find(self, slot: Slot) -> list[Outlet]:
        assert self.engine is not None
        slots = self.engine.topology.slots
        found: list[Outlet] = []
        seen, todo = {slot.name}, [slot.name]
        while todo:
            at = slots[todo.pop()]
            if at.name in self._outlets:
                found.append(self._outlets[at.name])
            onward = {hop.slot.name for hops in at.ports.values() for hop in hops}
            for name in onward | self._leads.get(at.name, set()):
                if name not in seen:
                    seen.add(name)
                    todo.append(name)
        return found
