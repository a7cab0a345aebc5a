"""A running stone as bytes: what it remembers and holds, so that it goes on elsewhere as if it had not moved.

The bytes come from outside as far as ``read`` knows: whatever is wrong with them is an error, and nothing has
changed. Each schema is described once; the events lie there as they are (``evflow/engine/pieces.py``).
"""

from __future__ import annotations

from evflow.engine.engine import Engine
from evflow.engine.pieces import PieceReader, PieceWriter, sound
from evflow.engine.topology import IN, Slot
from evflow.errors import FlowError
from evflow.events.batch import EventBatch
from evflow.events.joining import joined
from evflow.stone import Checkpoint, arrivals

__all__ = ["Arrivals", "arrive", "read", "restore", "seen_of", "take"]

_VERSION = 2

Arrivals = list[tuple[str, EventBatch]]
"""Events that come to a stone: input and events, in order."""


def take(engine: Engine, slot: Slot, seen: bytes = b"") -> bytes:
    """All that a stone remembers and holds; it goes on as it was.

    Args:
        engine: the engine.
        slot: the stone.
        seen: what came to it from other nodes, as its links tell it.

    Raises:
        FlowError: it holds events and cannot tell them.
    """
    checkpoint = Checkpoint() if slot.actor is None else slot.actor.checkpoint()
    told = sum(len(held.batch) for held in checkpoint.held)
    if slot.actor is not None and told != slot.actor.queued:
        raise FlowError(
            f"stone {slot.name!r} ({slot.stone.kind}) holds {slot.actor.queued} events and tells {told}: its "
            "actor needs a checkpoint()"
        )
    ticks, rest = engine.rhythm(slot)
    writer = PieceWriter()
    state, layout = (checkpoint.state, checkpoint.layout) if slot.actor else (slot.state, slot.layout)
    content = {
        "version": _VERSION,
        "kind": slot.stone.kind,
        "counts": slot.counts.tolist(),
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
    return writer.whole(content)


def seen_of(data: bytes) -> bytes:
    """What ``take`` was given as ``seen``.

    Raises:
        FlowError: the bytes are malformed.
    """
    return PieceReader("snapshot of a stone", data, _VERSION).value("seen", bytes)


def restore(engine: Engine, slot: Slot, data: bytes) -> None:
    """Makes a stone that has just been opened go on where another one was when ``data`` was taken of it.

    Raises:
        FlowError: the bytes are malformed, or a file cannot be written; nothing has changed.
    """
    arrive(engine, slot, read(engine, slot, data))


def read(engine: Engine, slot: Slot, data: bytes) -> Arrivals:
    """Like ``restore``; gives the events that the stone cannot take up, but that are to ``arrive`` at it.

    Raises:
        FlowError: see ``restore``.
    """
    reader = PieceReader(f"snapshot of stone {slot.name!r}", data, _VERSION)
    counts, state, attributes = reader.counts(), reader.state(), reader.attributes()
    unmatched, busy = reader.integer("unmatched"), reader.seconds("busy")
    frozen, layout, kind = (
        reader.value("frozen", bool),
        reader.value("layout", str),
        reader.value("kind", str),
    )
    ticks, rest = reader.integer("ticks"), reader.seconds("rest") if reader.has("rest") else None
    parked, held = reader.events("parked"), reader.events("held")
    taken = False
    if slot.actor is not None and kind == slot.stone.kind:
        taken = slot.actor.restore(Checkpoint(tuple(held), state, layout))
    arriving = [] if taken else arrivals(held)
    # From here on nothing fails.
    slot.counts[:] = counts
    # They will be counted when they arrive.
    slot.counts[IN] -= sum(len(batch) for _, batch in arriving)
    slot.unmatched, slot.busy = unmatched, busy
    slot.attributes.update(attributes)
    if slot.actor is None and state is not None:
        slot.state, slot.layout, slot.restored = state, layout, True
    engine.set_rhythm(slot, ticks, rest)
    if not frozen:
        return [*arriving, *arrivals(parked)]
    slot.frozen = True
    for one in parked:
        slot.park(slot.known_input(one.input), one.batch)
    engine.changed()
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
