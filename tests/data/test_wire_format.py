"""The document and the code say the same: its examples and vectors, with evflow and with plain msgpack."""

from __future__ import annotations

import json
import math
import re
import struct
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pytest
from strategies import LOGICAL, plain_event, unpacked, wire_event

from evflow.errors import SchemaError
from evflow.events.batch import EventBatch
from evflow.events.encode import encode_dict
from evflow.schema import Schema, logical
from evflow.schema.types import Array, FieldType, ListOf, Maybe, Number, Record
from tests.data.walking import walk

DOCUMENT = (Path(__file__).parents[2] / "docs" / "wire-format.md").read_text()
EXAMPLE, VECTORS, REFUSED = (
    json.loads(text) for text in re.findall(r"```json\n(.*?)```", DOCUMENT, re.DOTALL)
)


def value_of(kind: FieldType, noted: Any) -> Any:
    """The value that a vector's notation stands for."""
    if isinstance(kind, Maybe):
        return None if noted is None else value_of(kind.element, noted)
    if isinstance(kind, Record):
        return {f.name: value_of(f.type, noted[f.name]) for f in kind.schema.fields}
    if isinstance(kind, ListOf):
        return [value_of(kind.element, item) for item in noted]
    if isinstance(kind, Array):
        return np.array(noted["elements"], kind.element.dtype).reshape(noted["shape"])
    text = kind.text.partition("(")[0]
    if text in ("timestamp", "duration"):
        return np.datetime64(noted, "ns") if text == "timestamp" else np.timedelta64(noted, "ns")
    if text in ("decimal", "uuid"):
        return Decimal(noted) if text == "decimal" else UUID(noted)
    if isinstance(noted, dict):
        return (
            struct.unpack(">d", bytes.fromhex(noted["f64"]))[0]
            if "f64" in noted
            else bytes.fromhex(noted["hex"])
        )
    return float(noted) if isinstance(kind, Number) and kind.kind == "f" else noted


def events_of(case: dict[str, Any]) -> tuple[Schema, list[tuple[dict[str, Any], bytes]]]:
    schema = Schema.from_description(case["description"])
    record = Record(schema.name, {schema.name: schema})
    return schema, [(value_of(record, e["values"]), bytes.fromhex(e["hex"])) for e in case["events"]]


def title(case: dict[str, Any]) -> str:
    return str(case.get("title") or case.get("why"))


@pytest.mark.parametrize("case", VECTORS, ids=title)
def test_wire_format_vectors_are_what_evflow_writes_and_reads(case: dict[str, Any]) -> None:
    schema, events = events_of(case)
    assert schema.fingerprint == case["fingerprint"]
    assert schema.width == case["width"]
    for values, wire in events:
        assert encode_dict(schema, values) == wire
    whole = b"".join(wire for _, wire in events)
    batch = EventBatch.from_bytes(schema, whole)
    assert [encode_dict(schema, event.to_dict()) for event in batch] == [wire for _, wire in events]
    assert walk(schema, np.frombuffer(whole, np.uint8)).tolist()[-1] == len(whole)


@pytest.mark.parametrize("case", VECTORS, ids=title)
def test_wire_format_vectors_are_what_plain_msgpack_reads(case: dict[str, Any]) -> None:
    schema, events = events_of(case)
    for values, wire in events:
        assert unpacked(wire) == [plain_event(schema, values)]
        assert wire_event(schema, values) == wire


@pytest.mark.parametrize("case", REFUSED, ids=title)
def test_wire_format_bytes_to_be_refused_are_refused(case: dict[str, Any]) -> None:
    schema = Schema.from_description(case["description"])
    wire = bytes.fromhex(case["hex"])
    with pytest.raises(SchemaError, match="bytes of t: "):
        EventBatch.from_bytes(schema, wire)
    with pytest.raises(SchemaError, match="bytes of t: "):
        walk(schema, np.frombuffer(wire, np.uint8))


def test_wire_format_example_of_a_description_has_its_fingerprint() -> None:
    schema = Schema.from_description(EXAMPLE)
    assert schema.description == EXAMPLE
    assert f"`{schema.fingerprint}`" in DOCUMENT
    canonical = json.dumps(EXAMPLE, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert f"```text\n{canonical}\n```" in DOCUMENT


def test_each_logical_type_is_in_the_document_and_drawn_by_the_property_tests() -> None:
    kinds = {path.stem for path in Path(logical.__path__[0]).glob("[!_]*.py")}
    assert kinds == {kind.text.partition("(")[0] for kind in LOGICAL}
    assert [kind for kind in sorted(kinds) if not re.search(rf"^\|[^|]* `{kind}[`(]", DOCUMENT, re.M)] == []


def test_wire_format_offsets_are_those_of_the_batches() -> None:
    for case, offsets in (
        (VECTORS[0], "0, 29, 58"),
        (VECTORS[2], re.findall(r"vary, they are ([\d, ]+)\.", DOCUMENT)[0]),
    ):
        schema, events = events_of(case)
        found = walk(schema, np.frombuffer(b"".join(wire for _, wire in events), np.uint8)).tolist()
        assert ", ".join(map(str, found)) == offsets


def test_wire_format_default_nan_is_one() -> None:
    other_nan = struct.unpack(">d", bytes.fromhex("7ff8000000000001"))[0]
    one, other = (Schema("t", {"x": float}, {"x": nan}) for nan in (math.nan, other_nan))
    assert one.fingerprint == other.fingerprint
