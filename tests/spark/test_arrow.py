"""Rows of Arrow to events and back, against plain Python values."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from itertools import pairwise
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from evflow.errors import SchemaError
from evflow.events.batch import EventBatch
from evflow.events.gather import Place
from evflow.schema import Schema
from evflow.schema.types import TEXT, Array, FieldType, ListOf, Maybe, Number, Record, f64
from tests.data.strategies import events, plain_event, schemas, some, unpacked

pa = pytest.importorskip("pyarrow")

from evflow.spark.columns.decoder import arrow_schema_of, decode  # noqa: E402
from evflow.spark.columns.encoder import encode  # noqa: E402

FLAT = schemas(depth=2, logical=False).filter(lambda schema: not schema.recursive)


def as_rows(schema: Schema, events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What Python reads from the rows of these events."""
    return [{f.name: as_value(f.type, event[f.name]) for f in schema.fields} for event in events]


def as_value(kind: FieldType, value: Any) -> Any:
    if isinstance(kind, Maybe):
        return None if value is None else as_value(kind.element, value)
    if isinstance(kind, Number):
        return Decimal(value) if kind.name == "u64" else value
    if isinstance(kind, ListOf):
        return [as_value(kind.element, item) for item in value]
    if isinstance(kind, Record):
        return as_rows(kind.schema, [value])[0]
    if isinstance(kind, Array):
        return as_items(kind, value.tolist(), len(kind.shape))
    return value


def as_items(kind: Array, value: Any, depth: int) -> Any:
    if depth:
        return [as_items(kind, item, depth - 1) for item in value]
    return as_value(kind.element, value)


def parts(value: Any) -> Iterator[Any]:
    """A value and all that is within it."""
    yield value
    for part in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from parts(part)


def same(found: Any, expected: Any) -> None:
    """Equal, also where a float is not a number or a zero has a sign."""
    assert repr(found) == repr(expected)


def batch_of(schema: Schema, rows: list[dict[str, Any]]) -> EventBatch:
    return EventBatch.from_columns(schema, {f.name: [row[f.name] for row in rows] for f in schema.fields})


@pytest.mark.slow
@some
@given(st.data())
def test_decode_gives_the_values_of_the_events(data: st.DataObject) -> None:
    schema = data.draw(FLAT)
    rows = data.draw(st.lists(events(schema), max_size=4))
    found = decode(batch_of(schema, rows))
    found.validate(full=True)
    assert found.schema == arrow_schema_of(schema)
    same(found.to_pylist(), as_rows(schema, rows))


@pytest.mark.slow
@some
@given(st.data())
def test_decode_takes_the_selected_events(data: st.DataObject) -> None:
    schema = data.draw(FLAT)
    rows = data.draw(st.lists(events(schema), min_size=1, max_size=5))
    chosen = sorted(data.draw(st.sets(st.integers(0, len(rows) - 1))))
    found = decode(batch_of(schema, rows).select(np.array(chosen, np.int32)))
    found.validate(full=True)
    same(found.to_pylist(), as_rows(schema, [rows[i] for i in chosen]))


@pytest.mark.slow
@some
@given(st.data())
def test_encode_gives_events_of_the_rows(data: st.DataObject) -> None:
    schema = data.draw(FLAT)
    rows = data.draw(st.lists(events(schema), max_size=5))
    start = data.draw(st.integers(0, len(rows)))
    count = data.draw(st.integers(0, len(rows) - start))
    # The lists of Arrow do not say the further dimensions of an array without elements.
    assume(
        not any(isinstance(v, np.ndarray) and v.ndim > 1 and not v.size for row in rows for v in parts(row))
    )
    table = pa.RecordBatch.from_pylist(as_rows(schema, rows), schema=arrow_schema_of(schema))
    found = encode(schema, table.slice(start, count))
    assert len(found) == count
    content = found.to_bytes()
    EventBatch.from_bytes(schema, content, count)
    assert unpacked(content) == [plain_event(schema, row) for row in rows[start : start + count]]


@pytest.mark.slow
@some
@given(st.data())
def test_encode_writes_batches_one_behind_the_other_and_nothing_around_them(data: st.DataObject) -> None:
    schema = data.draw(FLAT)
    rows = data.draw(st.lists(events(schema), max_size=6))
    assume(
        not any(isinstance(v, np.ndarray) and v.ndim > 1 and not v.size for row in rows for v in parts(row))
    )
    cuts = sorted(data.draw(st.lists(st.integers(0, len(rows)), max_size=3)))
    table = pa.RecordBatch.from_pylist(as_rows(schema, rows), schema=arrow_schema_of(schema))
    batches = [table.slice(a, b - a) for a, b in pairwise([0, *cuts, len(rows)])]
    places = []

    def reserve(length: int) -> Place:
        memory = np.full(length + 2, 0xC1, np.uint8)
        places.append(memory)
        return Place(memory[1:-1], memory[1:-1])

    with patch("evflow.spark.columns.encoder.own_place", reserve):
        found = encode(schema, *batches)
    content = found.to_bytes()
    EventBatch.from_bytes(schema, content, len(rows))
    assert unpacked(content) == [plain_event(schema, row) for row in rows]
    (memory,) = places
    assert np.shares_memory(found.data, memory) or not len(rows)
    assert (memory[0], memory[-1]) == (0xC1, 0xC1)


POINT = Schema("point", {"x": f64, "tag": Maybe(TEXT)}, {"tag": None})
TRIP = Schema("trip", {"at": POINT, "past": list[POINT]})  # type: ignore[valid-type]


def test_structs_become_records_by_the_names_of_their_fields() -> None:
    points = [{"x": 1, "more": 0, "tag": "a"}, {"x": 2, "more": 0, "tag": None}]
    lists = [[points[0]], [points[1], points[0]]]
    for take in (slice(0, 2), slice(1, 2)):
        table = pa.RecordBatch.from_pydict({"at": points, "past": lists}).slice(take.start, 2)
        found = [event.to_dict() for event in encode(TRIP, table)]
        kept = [{"x": float(p["x"]), "tag": p["tag"]} for p in points]
        expected = [{"at": kept[0], "past": [kept[0]]}, {"at": kept[1], "past": [kept[1], kept[0]]}]
        assert found == expected[take]


def test_fields_of_structs_that_are_missing_take_their_default() -> None:
    table = pa.RecordBatch.from_pydict({"at": [{"x": 1.0}], "past": [[{"x": 2.0}]]})
    assert [event.to_dict() for event in encode(TRIP, table)] == [
        {"at": {"x": 1.0, "tag": None}, "past": [{"x": 2.0, "tag": None}]}
    ]
    with pytest.raises(SchemaError, match=r"column past\[\]: expected structs with one field x"):
        encode(TRIP, pa.RecordBatch.from_pydict({"at": [{"x": 1.0}], "past": [[{"y": 2.0}]]}))
    with pytest.raises(SchemaError, match=r"column past\[\]\.x: row 1: expected a value in every row"):
        encode(TRIP, pa.RecordBatch.from_pydict({"at": [{"x": 1.0}] * 2, "past": [[], [{"x": None}]]}))


def stored(kind: str, column: Any) -> list[Any]:
    """The values of events made of a column."""
    schema = Schema("s", {"x": kind})
    return [event.x for event in encode(schema, pa.RecordBatch.from_arrays([column], names=["x"]))]


def test_what_stands_under_a_null_does_not_matter() -> None:
    hidden = pa.array([7000, 1, 9000])
    missing = pa.array([True, False, True])
    structs = pa.StructArray.from_arrays([hidden], ["x"], mask=missing)
    schema = Schema("s", {"x": Maybe(Record("r", {"r": Schema("r", {"x": "i8"})}))})
    batch = pa.RecordBatch.from_arrays([structs], names=["x"])
    assert [e.x and e.x.x for e in encode(schema, batch)] == [None, 1, None]
    lists = pa.ListArray.from_arrays([0, 1, 2, 3], hidden, mask=missing)
    assert stored("optional(list(i8))", lists) == [None, [1], None]
    assert stored("optional(list(i8))", lists.slice(1)) == [[1], None]
    numbers = pa.Array.from_buffers(pa.int64(), 3, [pa.py_buffer(b"\2"), hidden.buffers()[1]])
    assert stored("optional(i8)", numbers) == [None, 1, None]


def test_maps_become_lists_of_records_and_maps_again() -> None:
    entry = Schema("entry", {"key": str, "value": "optional(i64)"})
    schema = Schema("s", {"m": Maybe(ListOf(Record("entry", {"entry": entry})))})
    maps = [[("a", 1), ("b", None)], None, [], [("c", 3)]]
    column = pa.array([[("z", 0)], *maps], pa.map_(pa.string(), pa.int64())).slice(1)
    batch = encode(schema, pa.RecordBatch.from_arrays([column], names=["m"]))
    assert [e.m and [(r.key, r.value) for r in e.m] for e in batch] == [maps[0], None, [], maps[3]]
    assert decode(batch, pa.schema({"m": column.type})).column(0).to_pylist() == maps
    back = decode(batch).column(0).to_pylist()
    assert back == [None if m is None else [{"key": k, "value": v} for k, v in m] for m in maps]


def test_columns_go_by_name() -> None:
    schema = Schema("s", {"a": f64, "b": str, "c": "array(i8,2)"}, {"b": "none"})
    table = pa.RecordBatch.from_pydict({"c": [[1, 2]], "more": [None], "a": [0.5]})
    (event,) = encode(schema, table)
    assert (event.a, event.b, event.c.tolist()) == (0.5, "none", [1, 2])
    with pytest.raises(SchemaError, match="schema s: no column for a; the columns are: c"):
        encode(schema, table.select(["c"]))
    with pytest.raises(SchemaError, match="two columns are named 'a'"):
        encode(schema, pa.RecordBatch.from_arrays([pa.array([1.0])] * 2, names=["a", "a"]))
    upper = pa.RecordBatch.from_pydict({"C": [[1, 2]], "A": [0.5]})
    (event,) = encode(schema, upper)
    assert (event.a, event.c.tolist()) == (0.5, [1, 2])
    both = pa.RecordBatch.from_pydict({"A": [0.5], "a": [1.5], "c": [[1, 2]]})
    assert encode(schema, both)[0].a == 1.5
    with pytest.raises(SchemaError, match="column a: row 0: expected a value in every row"):
        encode(schema, pa.RecordBatch.from_pydict({"A": pa.array([None], pa.float64()), "C": [[1, 2]]}))
    tree = Schema("tree", {"label": str, "branches": "list(record(tree))"})
    with pytest.raises(SchemaError, match="schema tree holds records within themselves"):
        encode(tree, table)


@pytest.mark.parametrize("value", [None, 5, "x", [], b"ab"])
def test_defaults_stand_in(value: Any) -> None:
    kind = {int: "i16", str: "str[3]", list: "list(str)", bytes: "bytes"}.get(
        type(value), "optional(list(i8))"
    )
    schema = Schema("s", {"a": f64, "b": kind}, {"b": value})
    assert [event.b for event in encode(schema, pa.RecordBatch.from_pydict({"a": [0.5, 1.5]}))] == [value] * 2


def test_decode_of_no_events_has_the_columns() -> None:
    schema = Schema("s", {"a": Maybe(f64), "b": str, "c": "list(optional(array(i8,?,2)))", "d": "bool"})
    empty = encode(schema, decode(EventBatch.from_events([], schema)))
    assert (len(empty), decode(empty).num_rows, decode(empty).schema) == (0, 0, arrow_schema_of(schema))


def test_many_rows_pass_through_optimised_code() -> None:
    rng = np.random.default_rng(7)
    n = 30_000
    words = np.array(["", "ä", "three", "a longer text than sixteen bytes"])[rng.integers(0, 4, n)]
    table = pa.RecordBatch.from_pydict(
        {
            "x": pa.array(rng.random(n), mask=rng.random(n) < 0.1),
            "s": pa.array(words),
            "t": pa.array(words, mask=rng.random(n) < 0.1),
            "l": pa.array([[int(i)] * (i % 3) for i in rng.integers(0, 99, n)]),
        }
    )
    schema = Schema("s", {"x": Maybe(f64), "s": "str[33]", "t": "optional(str)", "l": "array(i64,?)"})
    for _ in range(3):
        batch = encode(schema, table)
        back = decode(batch, table.schema)
    assert back.equals(table)
    chosen = np.flatnonzero(rng.random(n) < 0.5).astype(np.int32)
    assert decode(batch.select(chosen), table.schema).equals(table.take(pa.array(chosen)))
