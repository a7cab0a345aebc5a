"""Stones that cannot keep what came to them now, as on a full disk: their events wait and come again."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from evflow.disk import Trouble
from evflow.engine.topology import Slot
from evflow.errors import UnwrittenError
from evflow.mishaps import CONTAINED, sound
from evflow.stone import Actor

if TYPE_CHECKING:
    from evflow.engine.engine import Engine

__all__ = ["Stalls"]

_log = logging.getLogger("evflow.flow")

_ATTRIBUTE = "trouble"
"""The attribute of a stone that tells why it is stalled."""


class Stalls:
    """The stones of an engine whose files cannot be written now.

    What comes to such a stone is parked, as at a frozen one: so links do not acknowledge it, and what leads
    to the stone is blocked.

    Args:
        engine: whose stones these are.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._stalled: dict[Slot, Trouble] = {}
        self._unsettled: dict[Actor, tuple[object, Trouble]] = {}

    def __bool__(self) -> bool:
        return bool(self._stalled or self._unsettled)

    def begin(self, slot: Slot, error: UnwrittenError) -> None:
        """A stone could not keep events; these are to be parked."""
        trouble = self._stalled.get(slot)
        if trouble is None:
            trouble = self._stalled[slot] = Trouble(_log)
        slot.stalled = str(error)
        slot.attributes[_ATTRIBUTE] = slot.stalled
        trouble.failed(f"stone {slot.name!r}: {error}")
        # Who leads to the stone, and who keeps events in memory, is found anew.
        self._engine.changed()

    def settle(self, actor: Actor, mark: object) -> None:
        """Tells an actor that what it had emitted at ``mark`` has been handled, again later if it cannot note
        that now."""
        known = self._unsettled.get(actor)
        try:
            actor.settled(mark)
        except CONTAINED as error:
            # What it emitted is handled all the same.
            trouble = Trouble(_log) if known is None else known[1]
            trouble.failed(f"what a stone has emitted cannot be noted: {sound(error)}")
            self._unsettled[actor] = mark, trouble
        else:
            if known is not None:
                known[1].over()
                del self._unsettled[actor]

    def next_due(self) -> float | None:
        """When ``retry`` is needed next, in seconds of ``time.monotonic``; None if nothing is stalled."""
        troubles = [*self._stalled.values(), *(trouble for _, trouble in self._unsettled.values())]
        return min((trouble.due for trouble in troubles), default=None)

    def retry(self, now: float) -> None:
        """Gives stones what is parked at them, and settles what could not be noted; what that emits is to be
        moved by the engine."""
        for actor, (mark, trouble) in list(self._unsettled.items()):
            if not trouble.waits(now):
                self.settle(actor, mark)
        for slot, trouble in list(self._stalled.items()):
            if not trouble.waits(now):
                self._retry(slot, trouble)

    def _retry(self, slot: Slot, trouble: Trouble) -> None:
        if self._engine.topology.slots.get(slot.name) is not slot:
            del self._stalled[slot]
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
        del self._stalled[slot]
        slot.attributes.pop(_ATTRIBUTE, None)
        self._engine.changed()

    def unsettled(self) -> list[str]:
        """What could not be noted, one text a stone; any thread may ask."""
        return [trouble.why for _, trouble in list(self._unsettled.values()) if trouble.why]

    def waiting(self) -> list[str]:
        """Why events wait, one text a stone; any thread may ask."""
        return [f"stone {slot.name!r}: {slot.stalled}" for slot in list(self._stalled) if slot.stalled]
