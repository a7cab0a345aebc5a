"""Random functions with the events that they see, all made from one ``random.Random``."""

from __future__ import annotations

import math
from random import Random
from typing import Any

from evflow import CodeError, Schema, SchemaError
from evflow.codgen.front import Input, build
from evflow.codgen.tree import Function
from evflow.schema.types import BLOB, NUMBERS, Blob, Bytes, FieldType, ListOf, Maybe, Number, Record
from tests.codgen.programs import Program, random_attributes, random_event, random_schema, random_type
from tests.fuzz.codprograms import CodProgram
from tests.fuzz.differential import Inputs

__all__ = [
    "FUEL",
    "INPUTS",
    "attributes",
    "blind",
    "event",
    "function",
    "inputs",
    "larger",
    "listed",
    "many",
    "shown",
]

INPUTS = 8
"""Events that each function sees."""

FUEL = 300


def event(random: Random, schema: Schema) -> dict[str, Any]:
    """The fields of an event; bytes are any bytes."""
    return {f.name: _any_bytes(random, f.type, v) for f, v in _pairs(schema, random_event(random, schema))}


def _pairs(schema: Schema, fields: dict[str, Any]) -> Any:
    return ((field, fields[field.name]) for field in schema.fields)


def _any_bytes(random: Random, kind: FieldType, value: Any) -> Any:
    if isinstance(kind, (Bytes, Blob)) and random.randrange(4) == 0:
        most = min(kind.capacity, 20) if isinstance(kind, Bytes) else 20
        return random.randbytes(random.randrange(most + 1))
    if isinstance(kind, Maybe):
        return None if value is None else _any_bytes(random, kind.element, value)
    if isinstance(kind, ListOf):
        return [_any_bytes(random, kind.element, item) for item in value]
    if isinstance(kind, Record):
        return {f.name: _any_bytes(random, f.type, v) for f, v in _pairs(kind.schema, value)}
    return value


def inputs(random: Random, schema: Schema, count: int = INPUTS) -> Inputs:
    """Events of a schema with attributes."""
    events = [event(random, schema) for _ in range(count)]
    return Inputs(schema, events, [attributes(random) for _ in events])


def attributes(random: Random) -> dict[str, Any]:
    """Attributes of an event; now and then extreme ones."""
    found = random_attributes(random)
    if random.randrange(4) == 0:
        found["hops"] = random.choice([-(1 << 63), (1 << 63) - 1, 0, -1])
    if random.randrange(4) == 0:
        found["weight"] = random.choice([math.inf, -math.inf, math.nan, -0.0, 1e300, 5e-324, 2.0**63])
    if random.randrange(4) == 0:
        found["label"] = random.choice(["", "a\0", "é" * 200, "EWR\0\0", "\U0010ffff"])
    return found


def many(random: Random, given: Inputs) -> Inputs:
    """So many events that the code lets other threads run meanwhile, and that buffers grow."""
    rows = random.choices(range(len(given.events)), k=random.choice([300, 2500]))
    return given.only(rows)


def larger(random: Random, schema: Schema) -> Schema:
    """A schema of events that may fit a function for ``schema``: more fields, in another order, of other
    number types, and some that have a default left out."""
    fields = {
        f.name: random.choice(list(NUMBERS.values()))
        if isinstance(f.type, Number) and random.random() < 0.4
        else f.type
        for f in schema.fields
        if f.required or random.random() < 0.6
    }
    if not schema.recursive:
        fields |= {f"more{n}": random_type(random, 1) for n in range(random.randrange(3))}
    names = random.sample(list(fields), len(fields)) or ["more"]
    return Schema(schema.name, {name: fields.get(name, BLOB) for name in names})


class Blind(CodProgram):
    """A random program that never looks at its event."""

    def _scan(self, path: str, schema: Schema, depth: int) -> None:
        pass


def blind(random: Random) -> tuple[Function, Schema]:
    """A random function that needs no schema, and some schema."""
    schema = random_schema(random, "In")
    while True:
        kind = random.choice(["filter", "router"])
        try:
            made = build(Blind(random, kind, schema, None).text, kind, [Input("input", None)], fuel=FUEL)
        except CodeError:
            continue
        return made, schema


def function(random: Random) -> tuple[Function, Schema]:
    """A random function in Cod that the front end accepts, and the schema of its events."""
    while True:
        kind = random.choice(["filter", "transform", "transform", "router"])
        declared = random_schema(random, "In")
        output = random.choice([declared, random_schema(random, "Out")]) if kind == "transform" else None
        text = random.choice([Program, CodProgram])(random, kind, declared, output).text
        outputs = [] if output is None else [("output", output)]
        try:
            actual = larger(random, declared) if random.randrange(5) == 0 else declared
            made = build(text, kind, [Input("input", declared, actual)], outputs, fuel=FUEL)
        except (CodeError, SchemaError):
            continue
        return made, actual


def shown(made: Function) -> str:
    """A function with its schemas."""
    lines = [f"{made.kind}, fuel {made.fuel}:", made.source]
    lines += [f"input {name}: {schema and schema.description}" for name, schema in made.inputs]
    lines += [f"output {name}: {schema.description}" for name, schema in made.outputs]
    return "\n".join(lines)


def listed(given: Inputs) -> str:
    """Events with their attributes."""
    pairs = zip(given.events, given.attributes, strict=True)
    return "\n".join(f"event {n}: {event!r} {attributes!r}" for n, (event, attributes) in enumerate(pairs))
