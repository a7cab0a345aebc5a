"""Which stones may ask for reconfiguration, and how what they ask for is taken from them."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from evflow.codgen.kernel import request_at, take_request
from evflow.engine.topology import Slot
from evflow.stone import Actor

__all__ = ["Asking", "asking"]

Asking = tuple[str, Callable[[], int]]
"""A stone, and what takes its newest request from it; 0 if there is none."""


def asking(slots: Iterable[Slot]) -> list[Asking]:
    """The stones that may ask; a compiled one is among them once it has its statics."""
    found = []
    for slot in slots:
        take = _compiled(slot) if slot.actor is None else _acting(slot.actor)
        if take is not None:
            found.append((slot.name, take))
    return found


def _acting(actor: Actor) -> Callable[[], int] | None:
    return None if type(actor).take_request is Actor.take_request else actor.take_request


def _compiled(slot: Slot) -> Callable[[], int] | None:
    at = None if slot.state is None or slot.restored else request_at(slot.layout)
    if at is None:
        return None

    def take() -> int:
        # What was restored may be the statics of another function, until events come.
        return 0 if slot.state is None or slot.restored else take_request(slot.state, at)

    return take
