"""What an actor says of itself, checked: somebody else's may fail, or give what it should not."""

from __future__ import annotations

import logging
import operator
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from evflow import mishaps
from evflow.codgen.runtime import request_at, take_request
from evflow.errors import EvflowError, FlowError
from evflow.events.batch import EventBatch
from evflow.mishaps import CONTAINED
from evflow.outside import shown
from evflow.stone import Acting, Actor, Checkpoint, Context, Held

if TYPE_CHECKING:
    from evflow.engine.topology import Slot

_log = logging.getLogger("evflow.engine")

T = TypeVar("T")


def asked(name: str, actor: Actor | None, what: str, ask: Callable[[Actor], T], default: T) -> T:
    """What an actor says of itself; a failure is told in the log.

    Args:
        name: the stone's name.
        actor: its actor, if it has one.
        what: what is asked for, for the log.
        ask: asks the actor.
        default: what counts where there is no actor, or it fails to say so.
    """
    if actor is None:
        return default
    try:
        return ask(actor)
    except CONTAINED as error:
        mishaps.tell(_log, f"stone {name!r}", f"{what!r} failed, and counts as {default!r}", error)
        return default


def count(name: str, actor: Actor | None, what: str) -> int:
    """``taken``, ``oldest`` or ``queued`` of an actor; 0 where that fails."""
    return asked(name, actor, what, lambda actor: operator.index(getattr(actor, what)), 0)


def text(name: str, actor: Actor | None, what: str) -> str:
    """``busy`` or ``at_work`` of an actor; "" where that fails."""
    return asked(name, actor, what, lambda actor: _text(getattr(actor, what)), "")


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"expected a text, found {shown(value)}")
    return value


def extracted(name: str, actor: Actor, most: int | None = None) -> list[EventBatch]:
    """The oldest events that an actor gives up, ``most`` of them or all.

    Raises:
        FlowError: what it gave is not a list of batches.
    """
    found: object = actor.extract(most)
    if not isinstance(found, list) or not all(isinstance(batch, EventBatch) for batch in found):
        raise FlowError(f"stone {name!r}: extract(): expected a list of batches, found {shown(found, 300)}")
    return found


def opened(name: str, stone: Acting, context: Context) -> Actor:
    """The running half of a stone.

    Raises:
        FlowError: ``open`` failed, or what it gave is not an actor.
        EvflowError: what ``open`` raised.
    """
    try:
        actor: object = stone.open(context)
    except EvflowError:
        raise
    except CONTAINED as error:
        raise FlowError(f"stone {name!r} ({stone.kind}) cannot be opened: {mishaps.named(error)}") from error
    if not isinstance(actor, Actor):
        raise FlowError(f"stone {name!r}: open(): expected an Actor, found {shown(actor, 300)}")
    return actor


def checked_batch(found: object) -> EventBatch:
    """What an actor emits or gives up, if it is a batch.

    Raises:
        TypeError: it is not.
    """
    if not isinstance(found, EventBatch):
        raise TypeError(f"expected an EventBatch, found {shown(found)}")
    return found


def checkpoint(name: str, actor: Actor) -> Checkpoint:
    """What an actor holds and remembers.

    Raises:
        FlowError: it fails to say so, or what it gave is not a checkpoint of all that is ``queued``.
        EvflowError: what it raised.
    """
    try:
        found: object = actor.checkpoint()
        queued = operator.index(actor.queued)
    except EvflowError:
        raise
    except CONTAINED as error:
        raise FlowError(f"stone {name!r}: its checkpoint failed: {mishaps.named(error)}") from error
    if not isinstance(found, Checkpoint) or not _is_sound(found):
        what = "a Checkpoint as its docstring says, numbers int64 and increasing"
        raise FlowError(f"stone {name!r}: checkpoint(): expected {what}, found {shown(found, 300)}")
    told = sum(len(held.batch) for held in found.held)
    if told != queued:
        raise FlowError(
            f"stone {name!r} holds {queued} events and tells {told}: its actor needs a checkpoint()"
        )
    return found


def _is_sound(found: Checkpoint) -> bool:
    state = found.state is None or (isinstance(found.state, np.ndarray) and found.state.dtype == np.uint8)
    held = isinstance(found.held, tuple) and all(
        isinstance(one, Held)
        and isinstance(one.input, str)
        and isinstance(one.batch, EventBatch)
        and (one.numbers is None or are_numbers(one.numbers, len(one.batch)))
        for one in found.held
    )
    return state and held and isinstance(found.layout, str)


def are_numbers(found: object, count: int) -> bool:
    """Whether something is the ``numbers`` of ``count`` held events: int64 that increase from 0 or more."""
    if not isinstance(found, np.ndarray) or found.dtype != np.int64 or found.shape != (count,):
        return False
    return not count or (found[0] >= 0 and found[-1] < 1 << 62 and bool((found[1:] > found[:-1]).all()))


# --- requests for reconfiguration

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
