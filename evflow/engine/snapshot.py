"""A running stone as bytes: what it remembers and holds, so that it goes on elsewhere as if it had not moved.

The bytes come from outside as far as ``parse`` knows: whatever is wrong with them is an error, and nothing
has changed. Each schema is described once; the events lie there as they are (``evflow/engine/pieces.py``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from evflow.engine import actors
from evflow.engine.engine import Engine
from evflow.engine.pieces import PieceReader, PieceWriter, sound
from evflow.engine.topology import IN, Slot
from evflow.events.batch import EventBatch
from evflow.events.joining import joined
from evflow.kinds import class_text
from evflow.stone import Checkpoint, Held, arrivals

__all__ = [
    "Arrivals",
    "Parsed",
    "Parts",
    "Snapshot",
    "arrive",
    "parse",
    "read",
    "restore",
    "take",
    "take_parts",
]

_VERSION = 2

Snapshot = bytes | memoryview
"""What ``take`` gave."""

Parts = Sequence[Snapshot]
"""A snapshot as bytes that lie in several places, in order."""

Arrivals = list[tuple[str, EventBatch]]
"""Events that come to a stone: input and events, in order."""


def take(engine: Engine, slot: Slot, seen: bytes = b"") -> bytes:
    """The snapshot of a stone, in one piece; see ``take_parts``."""
    return b"".join(take_parts(engine, slot, seen))


def take_parts(engine: Engine, slot: Slot, seen: bytes = b"") -> Parts:
    """All that a stone remembers and holds; it goes on as it was.

    Args:
        engine: the engine.
        slot: the stone.
        seen: what came to it from other nodes, as its links tell it.

    Raises:
        FlowError: it holds events and cannot tell them.
    """
    checkpoint = Checkpoint() if slot.actor is None else actors.checkpoint(slot.name, slot.actor)
    ticks, rest = engine.rhythm(slot)
    writer = PieceWriter()
    state, layout = (checkpoint.state, checkpoint.layout) if slot.actor else (slot.state, slot.layout)
    content = {
        "version": _VERSION,
        "kind": class_text(slot.stone),
        "counts": list(slot.counts),
        "unmatched": slot.unmatched,
        "busy": slot.busy,
        "frozen": slot.frozen,
        "attributes": sound(slot.attributes),
        "state": None if state is None else state.tobytes(),
        "layout": layout,
        "ticks": ticks,
        "rest": rest,
        "parked": writer.events((input, batch, None) for input, batch in joined(slot.parked)),
        "held": writer.events((held.input, held.batch, held.numbers) for held in checkpoint.held),
        "schemas": writer.descriptions,
        "seen": seen,
    }
    return writer.parts(content)


class Parsed(NamedTuple):
    """What a snapshot says, which is well formed; see ``parse``."""

    kind: str
    counts: list[int]
    unmatched: int
    busy: float
    frozen: bool
    attributes: dict[str, int | float | str]
    state: np.ndarray[Any, np.dtype[np.uint8]] | None
    layout: str
    ticks: int
    rest: float | None
    parked: list[Held]
    held: list[Held]
    seen: bytes
    """As ``take`` was given it."""


def parse(data: Snapshot, name: str) -> Parsed:
    """Reads a snapshot, in any thread: events by the million take a while to be looked through.

    Args:
        data: what ``take`` gave.
        name: the stone's name, for errors.

    Raises:
        FlowError: the bytes are malformed.
    """
    reader = PieceReader(f"snapshot of stone {name!r}", data, _VERSION)
    return Parsed(
        kind=reader.value("kind", str),
        counts=reader.counts(),
        unmatched=reader.integer("unmatched"),
        busy=reader.seconds("busy"),
        frozen=reader.value("frozen", bool),
        attributes=reader.attributes(),
        state=reader.state(),
        layout=reader.value("layout", str),
        ticks=reader.integer("ticks"),
        rest=reader.seconds("rest") if reader.has("rest") else None,
        parked=reader.events("parked"),
        held=reader.events("held"),
        seen=reader.value("seen", bytes),
    )


def restore(engine: Engine, slot: Slot, data: Snapshot) -> None:
    """Makes a stone that has just been opened go on where another one was when ``data`` was taken of it.

    Raises:
        FlowError: the bytes are malformed, or a file cannot be written; nothing has changed.
    """
    arrive(engine, slot, read(engine, slot, data))


def read(engine: Engine, slot: Slot, data: Snapshot | Parsed) -> Arrivals:
    """Like ``restore``; gives the events that the stone cannot take up, but that are to ``arrive`` at it.

    Raises:
        FlowError: see ``restore``.
    """
    it = data if isinstance(data, Parsed) else parse(data, slot.name)
    taken = False
    if slot.actor is not None and it.kind == class_text(slot.stone):
        taken = slot.actor.restore(Checkpoint(tuple(it.held), it.state, it.layout))
    arriving = [] if taken else arrivals(it.held)
    # From here on nothing fails.
    slot.counts[:] = it.counts
    # They will be counted when they arrive.
    slot.counts[IN] -= sum(len(batch) for _, batch in arriving)
    slot.unmatched, slot.busy = it.unmatched, it.busy
    slot.attributes.update(it.attributes)
    if slot.actor is None and it.state is not None:
        slot.state, slot.layout, slot.restored = it.state, it.layout, True
    engine.set_rhythm(slot, it.ticks, it.rest)
    if not it.frozen:
        return [*arriving, *arrivals(it.parked)]
    if not slot.frozen:
        engine.freeze(slot)
    for one in it.parked:
        slot.park(slot.known_input(one.input), one.batch)
    return arriving


def arrive(engine: Engine, slot: Slot, events: Arrivals) -> None:
    """Has events come to a stone before all that comes later, at an input of another name where it has not
    theirs."""
    known = [(slot.known_input(input), batch) for input, batch in events]
    if slot.frozen:
        slot.park_first(known)
        return
    for input, batch in known:
        engine.submit(slot, batch, input)
