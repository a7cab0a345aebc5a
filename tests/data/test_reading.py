"""Columns out of a batch are the values that are on the wire, whether machine code reads them or Python."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import evflow as ev
from evflow.events.columns import reading
from evflow.schema.types import Logical, Record
from tests.data.strategies import events, schemas, some, tiers, wire_event


def _plain(value: Any) -> Any:
    """Values as they compare: arrays as lists with their dtype, NaN as a text."""
    if isinstance(value, np.ndarray):
        return (value.dtype.str, value.shape, [_plain(item) for item in value.reshape(-1).tolist()])
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return "nan" if isinstance(value, float) and value != value else value


@pytest.mark.parametrize(
    "many", [0, pytest.param(1_000_000, marks=pytest.mark.slow)], ids=["machine code", "Python"]
)
def test_every_column_of_any_schema_has_the_values_that_were_sent(many: int) -> None:
    @some
    @given(st.data())
    def check(data: st.DataObject) -> None:
        schema = data.draw(schemas())
        rows = data.draw(st.lists(events(schema), min_size=1, max_size=6))
        batch = ev.EventBatch.from_bytes(schema, b"".join(wire_event(schema, row) for row in rows))
        chosen = data.draw(st.lists(st.integers(0, len(rows) - 1), unique=True).map(sorted))
        if data.draw(st.booleans()):
            batch, rows = batch.select(chosen), [rows[n] for n in chosen]
        tier = data.draw(tiers)
        for field in schema.fields:
            if isinstance(field.type.held, Record | Logical) or "record" in field.type.text:
                continue
            with tier:
                found = batch[field.name]
            expected = [row[field.name] for row in rows]
            if found.dtype.kind == "O":
                assert _plain(found.tolist()) == _plain(expected)
                assert {type(value) for value in found} == {type(value) for value in expected}
            elif found.dtype.kind == "S":
                assert found.tolist() == [text.encode() for text in expected]
            else:
                wanted = np.array(expected, found.dtype).reshape(found.shape)
                assert np.array_equal(found, wanted, equal_nan=found.dtype.kind == "f")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reading, "_MANY", many)
        check()


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has machine code made for the first value."""
    monkeypatch.setattr(reading, "_MANY", 0)


class Scan(ev.Event):
    name: str
    taken: ev.Timestamp | None
    samples: ev.Array[ev.f64, None]  # type: ignore[valid-type]
    label: ev.Str[6]  # type: ignore[valid-type]


def _scans(n: int) -> ev.EventBatch:
    return ev.EventBatch.from_events(
        [
            Scan(
                name="é" * (i % 5),
                taken=np.datetime64(i, "ns") if i % 3 else None,
                samples=np.arange(i % 4, dtype=float),
                label="é" * (i % 4),
            )
            for i in range(n)
        ]
    )


def test_arrays_in_a_column_show_the_batch_and_cannot_be_written(at_once: None) -> None:
    column = _scans(10)["samples"]
    gc.collect()
    assert [array.tolist() for array in column] == [list(map(float, range(i % 4))) for i in range(10)]
    assert column[3].dtype == np.dtype(float) and not column[3].flags.writeable
    with pytest.raises(ValueError, match="read-only"):
        column[3][0] = 1.0


def test_tens_of_thousands_of_values_are_read_in_stretches(at_once: None) -> None:
    batch = _scans(20_001)
    assert batch["name"].tolist() == ["é" * (i % 5) for i in range(20_001)]
    assert batch.select(np.arange(0, 20_001, 7))["name"].tolist() == [
        "é" * (i % 5) for i in range(0, 20_001, 7)
    ]


def test_optional_times_and_texts_of_fixed_width_are_values_in_columns_and_tables(at_once: None) -> None:
    batch = _scans(9)
    times = [np.datetime64(i, "ns") if i % 3 else None for i in range(9)]
    assert batch["taken"].tolist() == times
    columns = batch.to_columns()
    assert columns["label"].tolist() == ["é" * (i % 4) for i in range(9)]
    assert columns["taken"].tolist() == times
    assert batch.to_arrow()["label"].to_pylist() == ["é" * (i % 4) for i in range(9)]


def test_what_is_read_is_let_go_of(at_once: None) -> None:
    import sys

    batch = _scans(3)
    before = sys.getrefcount(batch.data), sys.getrefcount(np.dtype(float))
    for _ in range(50):
        batch["samples"], batch["name"], batch["taken"]
    gc.collect()
    assert (sys.getrefcount(batch.data), sys.getrefcount(np.dtype(float))) == before
