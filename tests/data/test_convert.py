from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import events, schemas, some

from evflow.events.attributes import Attributes
from evflow.events.batch import EventBatch
from evflow.events.convert import convert_events
from evflow.events.encode import encode_dict
from evflow.schema import Schema
from evflow.schema.types import Array, ListOf, Maybe, Str, boolean, f32, f64, i8, i64, u64


def convert(source: Any, target: Any, *values: Any) -> tuple[list[Any], list[int]]:
    """The values that could be converted, and the positions of the others."""
    schema = Schema("from_", {"x": source})
    batch = EventBatch.from_events([schema(x=v) for v in values], schema)
    converted, positions, failed = convert_events(batch, Schema("to", {"x": target}))
    bad = [position for position, _ in failed]
    assert sorted([*positions.tolist(), *bad]) == list(range(len(values)))
    return [event.to_dict()["x"] for event in converted], bad


@some
@given(st.data())
def test_convert_to_the_same_schema_changes_nothing(data: st.DataObject) -> None:
    schema = data.draw(schemas())
    encoded = [encode_dict(schema, e) for e in data.draw(st.lists(events(schema), max_size=3))]
    converted, positions, failed = convert_events(EventBatch.from_encoded(schema, encoded), schema)
    assert converted.to_bytes() == b"".join(encoded)
    assert (positions.tolist(), failed) == (list(range(len(encoded))), [])


@pytest.mark.parametrize(
    ("source", "target", "good", "bad"),
    [
        (f64, f32, [1.5, float("inf")], [1e39]),
        (f64, i8, [1.0, -128.0], [0.5, 128.0, float("nan"), float("inf")]),
        (i64, i8, [127], [128]),
        (i64, u64, [2**63 - 1], [-1]),
        (u64, f64, [2**53], [2**53 + 1]),
        (i64, f32, [2**24], [2**24 + 1]),
        (i64, boolean, [0, 1], [2]),
        (f64, boolean, [0.0, 1.0], [0.5]),
        (boolean, f64, [True, False], []),
        (Str(5), Str(2), ["ab"], ["abc"]),
        (Str(5), Schema("s", {"x": str})["x"].type, ["ab"], []),
        (i8, Maybe(i64), [3], []),
        (Maybe(i64), i8, [3], [None, 300]),
        (ListOf(f64), ListOf(i8), [[1.0], []], [[0.5]]),
        (Str(3), i64, [], ["1"]),
    ],
)
def test_convert_keeps_the_value_or_gives_the_event_up(
    source: Any, target: Any, good: list[Any], bad: list[Any]
) -> None:
    kept, failed = convert(source, target, *good, *bad)
    assert kept == good
    assert failed == list(range(len(good), len(good) + len(bad)))


def test_convert_f64_to_f32_rounds() -> None:
    assert convert(f64, f32, 0.1) == ([float(np.float32(0.1))], [])


def test_convert_arrays_of_other_elements() -> None:
    kept, bad = convert(Array[f64, None], Array[i8, None], np.array([1.0, 2.0]), np.array([0.5]))
    assert [a.tolist() for a in kept] == [[1, 2]]
    assert kept[0].dtype == np.int8
    assert bad == [1]
    assert convert(Array[f64, None], Array[f64, 2], np.zeros(3))[1] == [0]


def test_convert_records_take_a_subset_and_defaults() -> None:
    old = Schema("r", {"a": i64, "extra": str, "b": f64})
    new = Schema("r", {"b": f32, "a": i8, "c": i8}, {"c": 7})
    source = Schema("s", {"rs": ListOf(Schema("q", {"x": old})["x"].type), "n": str, "m": str})
    target = Schema("t", {"n": str, "rs": ListOf(Schema("q", {"x": new})["x"].type)})
    rows = [{"a": 1, "extra": "x", "b": 1.5}]
    batch = EventBatch.from_events(
        [source(rs=rows, n="n", m="m"), source(rs=[{**rows[0], "a": 999}], n="", m="")]
    )
    batch.attributes = Attributes.from_rows([{"k": 1}, {"k": 2}])
    converted, positions, failed = convert_events(batch, target)
    assert converted.to_events()[0].to_dict() == {"n": "n", "rs": [{"b": 1.5, "a": 1, "c": 7}]}
    assert (converted[0].attrs, positions.tolist()) == ({"k": 1}, [0])
    position, reason = failed[0]
    assert position == 1
    assert reason.startswith("schema t: field rs[0].a: expected an integer from -128 to 127 (i8), found 999")


def test_convert_positions_are_those_of_the_selected_events() -> None:
    schema = Schema("s", {"x": i64})
    batch = EventBatch.from_columns(schema, {"x": [1, 1000, 2, 3]}).select(np.array([1, 2, 3]))
    converted, positions, failed = convert_events(batch, Schema("t", {"x": i8}))
    assert ([e.x for e in converted], positions.tolist(), [p for p, _ in failed]) == ([2, 3], [1, 2], [0])
