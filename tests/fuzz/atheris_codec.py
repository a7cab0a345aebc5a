"""Coverage-guided: bytes as events, and as descriptions of schemas.

The first byte of an input says what the rest claims to be. Run as
``python tests/fuzz/atheris_codec.py -runs=100000``.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from random import Random

import atheris

sys.path[0] = str(Path(__file__).parents[2])

with atheris.instrument_imports(include=["evflow"]):
    from evflow import EventBatch, Schema, SchemaError
    from evflow.codgen.validate import Validator
    from tests.codgen.programs import random_schema
    from tests.fuzz import descriptions, foreign, samples
    from tests.fuzz.coverage import fuzz
    from tests.fuzz.events import read_in_every_way

SCHEMAS = [random_schema(Random(n), "S") for n in range(60)]
VALIDATORS = [Validator(schema) for schema in SCHEMAS]


def target(data: bytes) -> None:
    """Judges one input."""
    if not data:
        return
    number, content = data[0], data[1:]
    if number >= len(SCHEMAS):
        describe(content)
        return
    batch = foreign.judged(Random(len(data)), SCHEMAS[number], VALIDATORS[number], content)
    if batch is not None:
        read_in_every_way(Random(len(data)), batch)


def describe(content: bytes) -> None:
    """Takes bytes for the description of a schema."""
    try:
        description = json.loads(content)
    except (ValueError, RecursionError):
        return
    try:
        schema = Schema.from_description(description)
    except SchemaError:
        return
    descriptions.use(Random(len(content)), schema)


def seeds() -> list[bytes]:
    """Valid inputs."""
    found = [b"\xff" + json.dumps(schema.description).encode() for schema in SCHEMAS]
    for number, schema in enumerate(SCHEMAS):
        events = [samples.event(Random(number), schema) for _ in range(2)]
        found.append(bytes([number]) + EventBatch.from_events(events, schema).to_bytes())
    return found


if __name__ == "__main__":
    fuzz(atheris, target, seeds())
