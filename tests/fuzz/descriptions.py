"""Schema descriptions from outside: they are refused with a ``SchemaError``, or mean one schema for good."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from random import Random
from typing import Any

from evflow import EventBatch, Schema, SchemaError
from evflow.codgen.validate import Validator
from tests.codgen.programs import random_schema
from tests.fuzz import samples

__all__ = ["check", "mutated", "use"]

_TYPES = [
    "i8", "u64", "f32", "bool", "str", "bytes", "str[0]", "str[1]", "str[65533]", "str[65534]",
    "bytes[-1]", "bytes[99999]", "array(f64,3)", "array(f64,?)", "array(f64)", "array(u8,4294967295)",
    "array(u8,4294967296)", "array(i64,65536,65536)", "array(bool,?,?,?,?,?,?,?,?)",
    "array(bool,1,1,1,1,1,1,1,1,1)", "array(str,2)", "list(i8)", "optional(i8)",
    "optional(optional(i8))", "list(list(list(str)))", "record(S)", "record(R)", "list(record(S))",
    "optional(S)", "S", "int", "list()", "list(", "optional(list(optional(S)))", "", " i8", "i8 ",
    "i8\n", "array(f64, 3)", "array(f64,٣)", "str[٣]", "list(" * 70 + "i8" + ")" * 70, "array(" + "f64,"
    * 600 + "1)",
]  # fmt: skip
_VALUES = [
    None, True, False, 0, -1, 1 << 70, 1.5, "", "x", "\ud800", "a\0", [], {}, [[]], ["x", "i8"], {"f64":
    "7ff8000000000000"}, {"f64": "xx"}, {"f64": "00"}, {"hex": "00"}, {"hex": "zz"}, {"hex": "00",
    "f64": "00"}, ["S", "i8", 3], "class", "_x", "é", "ﬁ", "to_dict", "name", "x" * 256, {"name": "S",
    "fields": [["x", "i8"]]}, 2**63, -(2**63) - 1, float("inf"), float("nan"),
]  # fmt: skip


def mutated(random: Random, description: Any) -> Any:
    """A description with parts exchanged for what does not belong there."""
    found: Any = copy.deepcopy(description)
    for _ in range(random.choice([1, 1, 1, 2, 4])):
        places = [place for place in _places(found) if random.random() < 0.5] or list(_places(found))
        if not places:
            return _value(random)
        holder, key = random.choice(places)
        choice = random.randrange(6)
        if choice == 0:
            del holder[key]
        elif choice == 1 and isinstance(holder, list):
            holder.insert(key, random.choice([copy.deepcopy(holder[key]), _value(random)]))
        elif choice == 2:
            other, at = random.choice(places)
            if at in other if isinstance(other, dict) else at < len(other):
                holder[key] = copy.deepcopy(other[at])
        elif choice == 3:
            holder[key] = random.choice(_TYPES)
        elif choice == 4 and isinstance(holder, dict):
            holder[random.choice(["name", "fields", "records", "origin", "S", "R", "x"])] = holder.pop(key)
        else:
            holder[key] = _value(random)
    return found


def _value(random: Random) -> Any:
    return copy.deepcopy(random.choice(_VALUES))


def _places(node: Any) -> Any:
    """Every (container, key) in plain data."""
    if isinstance(node, (dict, list)):
        for key in list(node) if isinstance(node, dict) else range(len(node)):
            yield node, key
            yield from _places(node[key])


def check(random: Random, tell: Callable[[str], None]) -> tuple[int, int]:
    """Reads some descriptions; gives how many, and how many meant a schema."""
    accepted = 0
    for _ in range(samples.INPUTS):
        description = mutated(random, random_schema(random, "S").description)
        tell(repr(description))
        try:
            schema = Schema.from_description(description)
        except SchemaError as error:
            assert str(error)
            continue
        accepted += 1
        use(random, schema)
    return samples.INPUTS, accepted


def use(random: Random, schema: Schema) -> None:
    """Describes a schema again, and sends an event through it."""
    again = Schema.from_description(json.loads(json.dumps(schema.description)))
    assert again == schema
    assert again.description == schema.description
    assert again.fingerprint == schema.fingerprint
    assert [(f.name, f.type.text, f.offset) for f in again] == [
        (f.name, f.type.text, f.offset) for f in schema
    ]
    if schema.fixed_width < 1 << 16 and schema.leaves < 1000:
        events = [samples.event(random, schema)]
        content = EventBatch.from_events(events, schema).to_bytes()
        if len(content) < 1 << 16:
            assert EventBatch.from_bytes(again, content, 1).to_bytes() == content
            Validator(schema).check(EventBatch.from_bytes(again, content).data, 1)
