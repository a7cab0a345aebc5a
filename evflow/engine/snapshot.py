"""A running stone as bytes: what it remembers and holds, so that it goes on elsewhere as if it had not moved.

A snapshot is four bytes of length (big-endian), a msgpack map of that length, and behind it the bytes of all
events, which are megabytes: so they are not copied, neither when they are written nor when they are read.
The bytes come from outside as far as ``parse`` knows: whatever is wrong with them is an error, and nothing
has changed. Each schema is described once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, NamedTuple

import msgpack
import msgspec
import numpy as np
from msgspec import Meta, Struct

from evflow.engine import actors
from evflow.engine.actors import are_numbers
from evflow.engine.engine import Engine
from evflow.engine.topology import IN, Slot
from evflow.errors import FlowError, SchemaError
from evflow.events.attributes import Attributes
from evflow.events.batch import EventBatch
from evflow.events.joining import joined
from evflow.graph.kinds import class_text
from evflow.outside import Malformed, from_msgpack
from evflow.schema import Schema
from evflow.stone import Checkpoint, Held, arrivals

_VERSION = 2

_LENGTH = 4
"""Bytes of the length of the map."""

Snapshot = bytes | memoryview
"""What ``take`` gave."""

Parts = Sequence[Snapshot]
"""A snapshot as bytes that lie in several places, in order."""

Arrivals = list[tuple[str, EventBatch]]
"""Events that come to a stone: input and events, in order."""

_Numbers = np.ndarray[Any, np.dtype[np.int64]]
_Count = Annotated[int, Meta(ge=0, lt=1 << 62)]
_Seconds = Annotated[float, Meta(ge=0, lt=1e300)]
_Attribute = Annotated[int, Meta(ge=-(1 << 63), le=(1 << 63) - 1)] | float | str


class _Events(Struct, array_like=True, forbid_unknown_fields=True):
    """Events of one schema that a stone holds, or has queued.

    Attributes:
        input: the input at which they came.
        schema: the place of their schema among ``_Content.schemas``.
        count: how many there are.
        start, length: where their bytes are among those behind the map.
        attributes: their attributes, by name a value for each event.
        numbers: where each stands among the events of all inputs, as int64, little-endian.
    """

    input: str
    schema: _Count
    count: Annotated[int, Meta(ge=1, lt=1 << 62)]
    start: _Count
    length: _Count
    attributes: dict[str, list[_Attribute | None]] | None
    numbers: bytes | None


class _Content(Struct):
    """The map of a snapshot; the fields are those of ``Parsed``."""

    version: int
    kind: str
    counts: Annotated[list[_Count], Meta(min_length=4, max_length=4)]
    unmatched: _Count
    busy: _Seconds
    frozen: bool
    attributes: dict[str, _Attribute]
    state: bytes | None
    layout: str
    ticks: _Count
    rest: _Seconds | None
    parked: list[_Events]
    held: list[_Events]
    schemas: list[dict[str, Any]]
    seen: bytes


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
    state, layout = (checkpoint.state, checkpoint.layout) if slot.actor else (slot.state, slot.layout)
    writer = _Writer()
    content = {
        "version": _VERSION,
        "kind": class_text(slot.stone),
        "counts": list(slot.counts),
        "unmatched": slot.unmatched,
        "busy": slot.busy,
        "frozen": slot.frozen,
        "attributes": _sound(slot.attributes),
        "state": None if state is None else state.tobytes(),
        "layout": layout,
        "ticks": ticks,
        "rest": rest,
        "parked": writer.rows((input, batch, None) for input, batch in joined(slot.parked)),
        "held": writer.rows((held.input, held.batch, held.numbers) for held in checkpoint.held),
        "schemas": writer.descriptions,
        "seen": seen,
    }
    told = msgpack.packb(content)
    return [len(told).to_bytes(_LENGTH, "big"), told, *writer.data]


class _Writer:
    """Writes the events of a snapshot.

    Attributes:
        descriptions: of the schemas of the events; these name theirs by its place.
        data: the bytes of the events.
    """

    def __init__(self) -> None:
        self.descriptions: list[dict[str, Any]] = []
        self.data: list[memoryview] = []
        self._places: dict[str, int] = {}
        self._size = 0

    def rows(self, found: Iterable[tuple[str, EventBatch, _Numbers | None]]) -> list[list[Any]]:
        """Events as the fields of ``_Events``."""
        return [self._row(input, batch.compact(), numbers) for input, batch, numbers in found if len(batch)]

    def _row(self, input: str, batch: EventBatch, numbers: _Numbers | None) -> list[Any]:
        attributes = None if batch.attributes is None else batch.attributes.to_lists()
        told = None if numbers is None else numbers.astype("<i8", copy=False).data
        start, data = self._size, batch.data.data
        self.data.append(data)
        self._size += len(data)
        place = self._places.setdefault(batch.schema.fingerprint, len(self.descriptions))
        if place == len(self.descriptions):
            self.descriptions.append(batch.schema.description)
        return [input, place, len(batch), start, len(data), attributes, told]


def _sound(attributes: Mapping[str, object]) -> dict[str, Any]:
    """Of what anyone has set as attributes of a stone that which are attributes."""
    plain = {
        key: value.item() if isinstance(value, np.generic) else value for key, value in attributes.items()
    }
    return {key: value for key, value in plain.items() if _is_text(key) and _is_attribute(value)}


def _is_attribute(value: object) -> bool:
    if isinstance(value, int):
        return -(1 << 63) <= value < 1 << 63
    return isinstance(value, float) or _is_text(value)


def _is_text(value: object) -> bool:
    # A text of Python may hold halves of characters, which UTF-8 does not have.
    return isinstance(value, str) and value.encode(errors="ignore").decode() == value


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
    whole = memoryview(data).toreadonly()
    start = _LENGTH + int.from_bytes(whole[:_LENGTH], "big")
    try:
        it = msgspec.convert(from_msgpack(whole[_LENGTH:start]), _Content, builtin_types=(bytes,))
        if it.version != _VERSION:
            raise Malformed(f"expected version {_VERSION}, found {it.version}")
        schemas = [Schema.from_description(description) for description in it.schemas]
        parked, held = ([_held(row, schemas, whole[start:]) for row in rows] for rows in (it.parked, it.held))
    except (Malformed, SchemaError) as error:
        raise FlowError(f"snapshot of stone {name!r}: {error}") from None
    except msgspec.ValidationError as error:
        raise FlowError(
            f"snapshot of stone {name!r}: expected a map of version {_VERSION}: {error}"
        ) from None
    state = None if it.state is None else np.frombuffer(it.state, np.uint8)
    told = (it.kind, it.counts, it.unmatched, it.busy, it.frozen, it.attributes)
    return Parsed(*told, state, it.layout, it.ticks, it.rest, parked, held, it.seen)


def _held(row: _Events, schemas: Sequence[Schema], events: memoryview) -> Held:
    end = row.start + row.length
    if row.schema >= len(schemas) or end > len(events):
        raise Malformed(
            f"expected one of {len(schemas)} schemas and a part of {len(events)} bytes, found schema "
            f"{row.schema} and {row.length} bytes from {row.start} on"
        )
    batch = EventBatch.from_bytes(schemas[row.schema], events[row.start : end], row.count)
    if row.attributes is not None:
        if any(len(values) != row.count for values in row.attributes.values()):
            raise Malformed(f"expected lists of {row.count} attributes")
        batch = batch.with_attributes(Attributes.from_lists(row.attributes))
    if row.numbers is None:
        return Held(row.input, batch)
    if len(row.numbers) != 8 * row.count:
        raise Malformed(f"expected {8 * row.count} bytes of numbers, found {len(row.numbers)}")
    numbers = np.frombuffer(row.numbers, "<i8").astype(np.int64, copy=False)
    if not are_numbers(numbers, row.count):
        raise Malformed(f"expected numbers that increase, found {numbers[:8].tolist()}")
    return Held(row.input, batch, numbers)


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
