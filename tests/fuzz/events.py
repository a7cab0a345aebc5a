"""Random events of random schemas: whoever reads them reads the same."""

from __future__ import annotations

import math
from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np

from evflow import EventBatch, Schema, SchemaError
from evflow.schema.types import Array, Record
from evflow.schema.values import describe
from tests.codgen.oracle import plain
from tests.codgen.programs import random_schema
from tests.data.strategies import plain_event, unpacked, wire_event
from tests.fuzz import samples
from tests.fuzz.differential import same
from tests.fuzz.guard import guarded, read_only

__all__ = ["check", "offer", "on_guard", "read_in_every_way"]


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
        for _ in range(samples.INPUTS):
            offer(schema, random.choice(events), random.choice(schema.fields).name, _strange(random), tell)
    return len(events) + (samples.INPUTS if events else 0)


def offer(schema: Schema, valid: dict[str, Any], name: str, value: Any, tell: Callable[[str], None]) -> None:
    """Gives a field a value that it may not fit: it is refused, or makes an event."""
    tell(f"{schema.description}\n{name} = {describe(value)}")
    event = {**valid, name: value}
    for make in (
        lambda: EventBatch.from_events([event], schema),
        lambda: EventBatch.from_events([schema.event(**event)]),
        lambda: EventBatch.from_columns(schema, {name: [value] for name, value in event.items()}),
    ):
        try:
            batch = make()
        except SchemaError as error:
            assert str(error)
            continue
        same(len(batch), 1)
        EventBatch.from_bytes(schema, batch.to_bytes(), 1)[0].to_dict()


def _strange(random: Random) -> Any:
    kind = random_schema(random, "X")
    return random.choice(
        [
            *(
                None,
                True,
                0,
                -1,
                1 << 64,
                10**5000,
                1.5,
                1e39,
                math.nan,
                math.inf,
                1j,
                2.0,
                "",
                "a\0",
                "\ud800",
            ),
            *(
                "x" * 70_000,
                b"",
                b"\xff" * 301,
                [],
                [[]],
                [None],
                [1, 2, 3],
                ["a", 1],
                {},
                {"f0": 1},
                {1: 2},
                (),
                object(),
            ),
            *(
                np.int8(-1),
                np.uint64(1 << 63),
                np.float32(0.1),
                np.bool_(True),
                np.str_("s"),
                np.bytes_(b"s"),
            ),
            *(
                np.zeros((2, 0)),
                np.zeros((1, 2, 3), np.int32),
                np.array(5),
                np.array(["a"]),
                np.array([None]),
            ),
            *(
                np.array([1 << 63], np.uint64),
                np.array([np.nan, 1.0]),
                np.datetime64("2020-01-01"),
                np.ma.array([1]),
            ),
            *(
                range(3),
                iter([1]),
                memoryview(b"ab"),
                bytearray(b"ab"),
                int,
                {1, 2},
                float("1e400"),
                -0.0,
                ...,
            ),
            samples.event(random, kind),
            [samples.event(random, kind)],
        ]
    )


def on_guard(schema: Schema, content: bytes, rows: int) -> EventBatch:
    """Valid bytes as a batch whose memory ends at a guard page."""
    offsets = EventBatch.from_bytes(schema, content, rows).offsets
    return EventBatch(schema, read_only(content), rows, None if offsets is None else guarded(offsets))


def read_in_every_way(random: Random, batch: EventBatch) -> None:
    """Views, copies, columns and parts of a batch hold the same values."""
    schema, events = batch.schema, [view.to_dict() for view in batch]
    # Not the same bytes: a signalling NaN becomes a quiet one where it is read as a float of Python.
    values = unpacked(batch.to_bytes())
    same(unpacked(EventBatch.from_events(events, schema).to_bytes()), values)
    same(unpacked(EventBatch.from_events(batch.to_events(), schema).to_bytes()), values)
    for view, event in zip(batch, events, strict=True):
        names = [field.name for field in schema.fields]
        random.shuffle(names)
        same({name: _value(getattr(view, name)) for name in names}, plain(event))
    rows = sorted(random.sample(range(len(batch)), random.randrange(len(batch) + 1)))
    some = batch.select(np.array(rows, np.int32))
    halves = [batch[: len(batch) // 2], batch[len(batch) // 2 :]]
    same(EventBatch.concat(halves).to_bytes(), batch.to_bytes())
    order = random.choices(range(len(batch)), k=3) if len(batch) else []
    same(unpacked(batch.take(order).to_bytes()), [values[row] for row in order])
    start, stop = sorted(random.choices(range(len(batch) + 1), k=2))
    for part, chosen in ((batch, range(len(batch))), (some, rows), (batch[start:stop], range(start, stop))):
        same([plain(view.to_dict()) for view in part], [plain(events[row]) for row in chosen])
        same(unpacked(part.to_bytes()), [values[row] for row in chosen])
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
