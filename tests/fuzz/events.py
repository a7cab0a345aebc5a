"""Random events of random schemas: whoever reads them reads the same."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np

from evflow import EventBatch, Schema
from evflow.schema.types import Array, Record
from tests.codgen.oracle import plain
from tests.codgen.programs import random_schema
from tests.data.strategies import plain_event, unpacked, wire_event
from tests.fuzz import samples
from tests.fuzz.differential import same
from tests.fuzz.guard import guarded, read_only

__all__ = ["check", "on_guard", "read_in_every_way"]


def check(random: Random, tell: Callable[[str], None]) -> int:
    """Encodes events of a random schema and reads them again; gives how many."""
    schema = random_schema(random, "S")
    events = [samples.event(random, schema) for _ in range(random.choice([0, 1, samples.INPUTS]))]
    tell(f"{schema.description}\n{events}")
    batch = EventBatch.from_events(events, schema)
    content = batch.to_bytes()
    same(content, b"".join(wire_event(schema, event) for event in events))
    same(unpacked(content), [plain_event(schema, event) for event in events])
    same([plain(view.to_dict()) for view in batch], [plain(event) for event in events])
    read_in_every_way(random, on_guard(schema, content, len(events)))
    if events:
        same(EventBatch.from_columns(schema, batch.to_columns()).to_bytes(), content)
    return len(events)


def on_guard(schema: Schema, content: bytes, rows: int) -> EventBatch:
    """Valid bytes as a batch whose memory ends at a guard page."""
    offsets = EventBatch.from_bytes(schema, content, rows).offsets
    return EventBatch(schema, read_only(content), rows, None if offsets is None else guarded(offsets))


def read_in_every_way(random: Random, batch: EventBatch) -> None:
    """Views, copies, columns and parts of a batch hold the same values."""
    schema, events = batch.schema, [view.to_dict() for view in batch]
    same(EventBatch.from_events(events, schema).to_bytes(), batch.to_bytes())
    same(EventBatch.from_events(batch.to_events(), schema).to_bytes(), batch.to_bytes())
    for view, event in zip(batch, events, strict=True):
        names = [field.name for field in schema.fields]
        random.shuffle(names)
        same({name: _value(getattr(view, name)) for name in names}, plain(event))
    rows = sorted(random.sample(range(len(batch)), random.randrange(len(batch) + 1)))
    some = batch.select(np.array(rows, np.int32))
    start, stop = sorted(random.choices(range(len(batch) + 1), k=2))
    for part, chosen in ((batch, range(len(batch))), (some, rows), (batch[start:stop], range(start, stop))):
        same([plain(view.to_dict()) for view in part], [plain(events[row]) for row in chosen])
        same(part.to_bytes(), EventBatch.from_events([events[row] for row in chosen], schema).to_bytes())
        same(part.nbytes, len(part.to_bytes()))
        _compare_columns(part, [events[row] for row in chosen])


def _compare_columns(batch: EventBatch, events: list[dict[str, Any]]) -> None:
    columns = batch.to_columns()
    same(list(columns), [field.name for field in batch.schema.fields])
    for field in batch.schema.fields:
        wanted = [plain(event[field.name]) for event in events]
        same([_value(value) for value in columns[field.name]], wanted)
        raw = batch.column(field.name)
        same(len(raw), len(events))
        if not isinstance(field.type, (Record, Array)) and raw.dtype.kind != "S":
            same([_value(value) for value in raw], wanted)
    if batch.schema.width is not None and len(batch):
        same(batch.to_numpy().dtype, batch.schema.dtype)


def _value(value: Any) -> Any:
    """A value as ``plain`` has it."""
    if hasattr(value, "to_dict"):
        return plain(value.to_dict())
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, (str, bytes, dict, np.ndarray)) or not hasattr(value, "__len__"):
        return plain(value)
    return [_value(item) for item in value]
