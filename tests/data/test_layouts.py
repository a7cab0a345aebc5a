"""Columns in every form of numpy, pandas and pyarrow give the events that their values give one by one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import evflow as ev
from evflow.errors import SchemaError

_DECIMAL = ev.Decimal[30, 2]


@pytest.mark.parametrize(
    ("kind", "column", "message"),
    [
        (ev.Decimal[18, 2], np.array([5], "M8[ns]"), "row 0: expected a decimal.Decimal, an int or a text"),
        (_DECIMAL, np.array([5], "m8[ns]"), "row 0: expected a decimal.Decimal, an int or a text"),
        (_DECIMAL, np.array([5], "m8[Y]"), "row 0: expected a decimal.Decimal, an int or a text"),
        (_DECIMAL, pd.Series(np.array([5], "m8[ns]"), dtype="category"), "row 0: expected a decimal.Decimal"),
        (ev.Timestamp, pd.Series(np.array([5], "m8[ns]"), dtype="category"), "expected a time"),
        (ev.Duration, pd.Series(np.array([5], "M8[ns]"), dtype="category"), "expected a duration"),
        (ev.Timestamp, np.array([1, -(2**63)]), "row 1: expected a time"),
        (ev.Duration, np.array([1, -(2**63)]), "row 1: expected a duration"),
        (ev.i64, memoryview(np.zeros((2, 2))), "expected a column of single numbers"),
        (ev.i64, np.ma.array([1, 2], mask=[False, True]), "row 1: expected a value in every row"),
        (ev.Array[ev.i64, 2], np.ma.array([[1, 2]], mask=[[False, True]]), "row 0: expected rows of"),
        (ev.Array[ev.i64, 2], [np.ma.array([1, 2], mask=[False, True])], "of which nothing is masked"),
        (ev.i64, np.ma.array(5), "expected a column"),
        (ev.i64, pd.DataFrame({"x": [1]}), "expected a column"),
        (ev.i64, pa.table({"x": [1]}), "expected a column"),
    ],
)  # fmt: skip
def test_columns_that_mean_something_else_are_refused(kind: Any, column: Any, message: str) -> None:
    with pytest.raises(SchemaError, match=f"^schema layout: column x: .*{message}"):
        ev.EventBatch.from_columns(ev.Schema("layout", {"x": kind}), {"x": column})


def test_masked_rows_are_missing_and_so_is_none_in_the_others() -> None:
    array = ev.Array[ev.i64, 2]
    whole = np.ma.array([[1, 2], [3, 4]], mask=[[False, False], [True, True]])
    objects = np.ma.array(["a", "b", None], mask=[True, False, False])
    times = np.ma.array(np.array([1, 2, "NaT"], "M8[s]"), mask=[True, False, False])
    for kind, column, missing in ((array, whole, [1]), (str, objects, [0, 2]), (ev.Timestamp, times, [0, 2])):
        batch = ev.EventBatch.from_columns(ev.Schema("masked", {"x": kind | None}), {"x": column})
        assert [row for row, event in enumerate(batch) if event.x is None] == missing


def test_tables_are_columns_of_nested_records() -> None:
    inner = ev.Schema("inner", {"n": int})
    schema = ev.Schema("outer", {"at": inner})
    for column in (pd.DataFrame({"n": [1, 2]}), pa.table({"n": [1, 2]}), {"n": [1, 2]}):
        assert [event.at.n for event in ev.EventBatch.from_columns(schema, {"at": column})] == [1, 2]
    rows = np.ma.array(np.array([(1,), (2,)], [("n", "i8")]), mask=[(True,), (False,)])
    with pytest.raises(SchemaError, match="column at: row 0: expected a value in every row"):
        ev.EventBatch.from_columns(schema, {"at": rows})


@pytest.mark.parametrize("kind", [str, bytes, ev.Str[3], ev.Bytes[3], int, ev.UUID, str | None, list[str]])
def test_columns_without_rows_may_be_of_any_numbers(kind: Any) -> None:
    """numpy makes floats of no values."""
    assert len(ev.EventBatch.from_columns(ev.Schema("none", {"x": kind}), {"x": np.array([])})) == 0


def test_bytes_with_gaps_are_read_as_what_they_show() -> None:
    schema = ev.Schema("ping", {"number": int})
    encoded = ev.EventBatch.from_events([schema(number=5)]).to_bytes()
    spread = np.repeat(np.frombuffer(encoded, np.uint8), 2).tobytes()
    assert ev.EventBatch.from_bytes(schema, memoryview(spread)[::2])[0].number == 5
