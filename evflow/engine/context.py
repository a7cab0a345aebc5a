"""An actor's way to the engine."""

from __future__ import annotations

from collections.abc import Callable
from operator import index
from typing import TYPE_CHECKING

from evflow.engine.actors import checked_batch
from evflow.engine.topology import DROPPED, IN, Slot
from evflow.events.batch import EventBatch
from evflow.outside import shown
from evflow.stone import Entrance

if TYPE_CHECKING:
    from evflow.engine.engine import Engine


class StoneContext:
    """An actor's way to the engine; see ``evflow.stone.Context``."""

    def __init__(self, engine: Engine, slot: Slot) -> None:
        self._engine = engine
        self._slot = slot

    def emit(self, batch: EventBatch, port: int = 0, number: int | None = None) -> None:
        if number is not None and not isinstance(number, int):
            raise TypeError(f"emit: number {shown(number)}: expected an integer or None")
        self._engine.emit(self._slot, checked_batch(batch), port, number)

    def wake(self) -> None:
        self._engine.waking.call(self._slot)

    @property
    def home(self) -> tuple[str, str]:
        return self._engine.contact, self._slot.name

    @property
    def frame(self) -> tuple[bytes, tuple[int, ...]] | None:
        return self._engine.frame(self._slot)

    def fault(self, batch: EventBatch, reason: str | BaseException) -> None:
        # An exception is asked for first: others would read an attribute, which its class may refuse.
        if not isinstance(reason, BaseException | str):
            raise TypeError(f"fault: reason {shown(reason)}: expected a text or an exception")
        self._engine.fault(self._slot, checked_batch(batch), reason)

    @property
    def entrance(self) -> Entrance | None:
        return self._engine.entrance(self._slot)

    def spend(self, seconds: float) -> None:
        self._slot.busy += seconds

    def drop(self, count: int) -> None:
        self._slot.counts[DROPPED] += index(count)

    def take(self, count: int) -> None:
        self._slot.counts[IN] += index(count)

    def sender(self) -> Callable[[EventBatch], None] | None:
        sender = self._engine.sender(self._slot)
        self._slot.sends = sender is not None
        return sender

    @property
    def attributes(self) -> dict[str, int | float | str]:
        return self._slot.attributes
