"""Bytes from outside: every check says the same, and what is accepted can be read in every way."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from random import Random
from typing import Any

import numpy as np

from evflow import CodeError, EventBatch, Schema, SchemaError
from evflow.codgen.front import Input, build
from evflow.codgen.validate import Validator
from evflow.events.wirecheck import check as checked
from tests.codgen.programs import Program, random_schema
from tests.codgen.test_validate import oracle
from tests.data.strategies import plain_event, unpacked
from tests.data.walking import walk
from tests.fuzz import differential, samples
from tests.fuzz.differential import Inputs, both_tiers, same
from tests.fuzz.events import on_guard, read_in_every_way
from tests.fuzz.guard import read_only

__all__ = ["check", "judged", "mutated", "verdicts"]

_BYTES = [
    0,
    1,
    2,
    0x7F,
    0x80,
    0xFF,
    0x91,
    0x9F,
    0xC0,
    0xC1,
    0xC2,
    0xC3,
    0xC4,
    0xC6,
    0xC9,
    0xD9,
    0xDB,
    0xDC,
    0xDD,
]
_NUMBERS = [0, 1, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0xFFFFFFF0, 0x10000]


def mutated(random: Random, data: bytes) -> bytes:
    """Bytes with some of them changed, left out, repeated or added."""
    content = bytearray(data)
    for _ in range(random.choice([1, 1, 2, 3])):
        at = random.randrange(len(content) + 1)
        choice = random.randrange(8)
        if choice < 2:
            content[at : at + 1] = bytes([random.choice([*_BYTES, random.randrange(256)])])
        elif choice == 2:
            del content[at : at + random.randrange(1, 9)]
        elif choice == 3:
            content[at:at] = random.randbytes(random.randrange(1, 5))
        elif choice == 4:
            other = random.randrange(len(content) + 1)
            content[at:at] = content[other : other + random.randrange(40)]
        elif choice == 5:
            content[at : at + 4] = random.choice(_NUMBERS).to_bytes(4, random.choice(["big", "little"]))
        elif choice == 6:
            del content[at:]
        elif at < len(content):
            content[at] ^= 1 << random.randrange(8)
    return bytes(content)


def verdicts(
    schema: Schema, validator: Validator, content: bytes, count: int | None
) -> list[list[int] | None]:
    """Where events start according to each check there is; None where it refuses."""
    array = read_only(content)
    found: list[list[int] | None] = []
    judges: list[Any] = [checked, lambda _, data, n: validator.check(data, n)]
    if count is None or count >= 0:
        judges.append(walk)
    for judge in judges:
        try:
            said = judge(schema, array, count)
        except SchemaError as error:
            assert str(error).startswith(f"bytes of {schema.name}: ")
            found.append(None)
            continue
        offsets = said[1] if isinstance(said, tuple) else said
        found.append(
            list(range(0, len(content) + 1, schema.width or 0)) if offsets is None else offsets.tolist()
        )
    return found


def judged(random: Random, schema: Schema, validator: Validator, content: bytes) -> EventBatch | None:
    """The events that bytes are, if all checks take them for events, and None if all refuse them."""
    wanted = oracle(schema, content)
    count = random.choice([None, None, None if wanted is None else len(wanted) - 1, 0, 1, 3, -1, 1 << 40])
    if wanted is not None and count is not None and count != len(wanted) - 1:
        wanted = None
    for verdict in verdicts(schema, validator, content, count):
        same(verdict, wanted)
    if wanted is None:
        return None
    batch = on_guard(schema, content, len(wanted) - 1)
    starts = [0, *np.cumsum([len(content[a:b]) for a, b in pairwise(wanted)]).tolist()]
    same(starts, wanted)
    same(unpacked(content), [plain_event(schema, view.to_dict()) for view in batch])
    return batch


def check(random: Random, tell: Callable[[str], None]) -> tuple[int, int]:
    """Lets bytes be judged, and reads those that are accepted; gives how many of each there were."""
    schema = random_schema(random, "S")
    validator, accepted = Validator(schema), 0
    for tier in both_tiers(validator._code):
        for _ in range(samples.INPUTS // 2):
            events = [samples.event(random, schema) for _ in range(random.randrange(3))]
            valid = EventBatch.from_events(events, schema).to_bytes()
            content = random.choice(
                [valid, *(mutated(random, valid) for _ in range(6)), random.randbytes(30)]
            )
            tell(f"{tier}, {schema.description}\n{content.hex()}")
            batch = judged(random, schema, validator, content)
            if batch is not None:
                accepted += 1
                read_in_every_way(random, batch)
                if len(batch) and tier == "optimised" and content != valid:
                    _run(random, batch, tell)
    return samples.INPUTS, accepted


def _run(random: Random, batch: EventBatch, tell: Callable[[str], None]) -> None:
    """Lets a native function read events that came from outside."""
    schema = batch.schema
    try:
        made = build(
            Program(random, "filter", schema, None).text,
            "filter",
            [Input("input", schema)],
            fuel=samples.FUEL,
        )
    except CodeError:
        return
    events = [view.to_dict() for view in batch]
    given = Inputs(schema, events, [samples.attributes(random) for _ in events])
    same(unpacked(given.data.tobytes()), unpacked(batch.to_bytes()))
    tell(f"{samples.shown(made)}\n{samples.listed(given)}")
    differential.check(made, given, random)
