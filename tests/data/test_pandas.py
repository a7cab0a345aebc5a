from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import events, schemas, some

import evflow as ev
from evflow.errors import SchemaError
from evflow.events.batch import EventBatch
from evflow.schema import Schema
from evflow.schema.types import Array, Maybe, Str, f32, f64, i8, i64

pd = pytest.importorskip("pandas")


class Trade(ev.Event):
    symbol: ev.Str[8]
    price: float
    size: int = 0


TRADES = [Trade("IBM", 1.5, 1), Trade("", 2.5, 2), Trade("ä", -1.0, 3)]


def frame(**changes: Any) -> Any:
    columns = {"symbol": ["IBM", "", "ä"], "price": [1.5, 2.5, -1.0], "size": [1, 2, 3]}
    return pd.DataFrame({**columns, **changes}, index=[7, 8, 9])


def stored(kind: Any, series: Any) -> list[Any]:
    schema = Schema("s", {"x": kind})
    return [event.x for event in EventBatch.from_pandas(schema, pd.DataFrame({"x": series}))]


@pytest.mark.parametrize(
    "types",
    [
        {},
        {"symbol": "object"},
        {"symbol": "category"},
        {"symbol": "string[python]"},
        {"symbol": "string[pyarrow]"},
        {"price": "Float64", "size": "Int64"},
        {"size": "int8", "price": "float32"},
        {"size": "uint64"},
        {"size": "float64"},
        {"size": "category"},
        {"size": "int64[pyarrow]", "price": "double[pyarrow]"},
    ],
    ids=str,
)
def test_pandas_columns_of_every_kind_are_read(types: dict[str, str]) -> None:
    if any("pyarrow" in kind for kind in types.values()):
        pytest.importorskip("pyarrow")
    assert list(EventBatch.from_pandas(Trade.schema, frame().astype(types))) == TRADES
    assert list(EventBatch.from_table(Trade.schema, frame().astype(types)[::-1])) == TRADES[::-1]
    series = dict(frame().astype(types).items())
    assert list(EventBatch.from_columns(Trade.schema, series)) == TRADES


@some
@given(st.data())
def test_pandas_out_and_in_again_are_the_same_bytes(data: st.DataObject) -> None:
    schema = data.draw(schemas(depth=1))
    rows = data.draw(st.lists(events(schema), max_size=3))
    # pandas has no missing float that is not NaN.
    if any(isinstance(f.type, Maybe) and f.type.element in (f32, f64) for f in schema.fields):
        return
    batch = EventBatch.from_columns(schema, {f.name: [row[f.name] for row in rows] for f in schema.fields})
    assert EventBatch.from_pandas(schema, batch.to_pandas()).to_bytes() == batch.to_bytes()


def test_pandas_frame_of_events_has_native_columns() -> None:
    found = EventBatch.from_events(TRADES).to_pandas()
    assert found["symbol"].tolist() == ["IBM", "", "ä"]
    assert found["price"].dtype == np.float64
    assert found["price"].sum() == 3.0


def test_pandas_frame_of_arrays_and_records_has_objects() -> None:
    schema = Schema("s", {"a": Array[f64, 2], "r": Trade})
    batch = EventBatch.from_columns(schema, {"a": np.eye(2), "r": TRADES[:2]})
    found = batch.to_pandas()
    assert [a.tolist() for a in found["a"]] == [[1.0, 0.0], [0.0, 1.0]]
    assert found["r"][0] == {"symbol": "IBM", "price": 1.5, "size": 1}


@pytest.mark.parametrize(
    "missing",
    [
        pd.Series(["a", None]),
        pd.Series(["a", None], dtype="object"),
        pd.Series(["a", float("nan")], dtype="object"),
        pd.Series(["a", pd.NA], dtype="string[python]"),
        pd.Series(["a", None], dtype="category"),
    ],
    ids=lambda s: str(s.dtype),
)
def test_pandas_missing_text_is_none_where_optional_and_refused_elsewhere(missing: Any) -> None:
    assert stored(Maybe(Str(3)), missing) == ["a", None]
    assert stored(str | None, missing) == ["a", None]
    with pytest.raises(SchemaError, match="schema s: column x: row 1: expected"):
        stored(Str(3), missing)


@pytest.mark.parametrize(
    "missing",
    [
        pd.Series([1, None]),
        pd.Series([1, None], dtype="Int64"),
        pd.Series([1, None], dtype="object"),
        pd.Series([1, None], dtype="Float64"),
        pd.Series([1, None], dtype="category"),
    ],
    ids=lambda s: str(s.dtype),
)
def test_pandas_missing_numbers_are_none_where_optional_and_refused_elsewhere(missing: Any) -> None:
    assert stored(Maybe(i8), missing) == [1, None]
    assert stored(Maybe(f64), missing) == [1.0, None]
    with pytest.raises(SchemaError, match="schema s: column x: row 1: expected"):
        stored(i64, missing)


def test_pandas_nan_is_a_value_of_a_float() -> None:
    assert np.isnan(stored(f64, pd.Series([1.0, float("nan")]))[1])


def test_pandas_booleans_are_read() -> None:
    assert stored(bool, pd.Series([True, False])) == [True, False]
    assert stored(Maybe(Schema("s", {"x": bool})["x"].type), pd.Series([True, None], dtype="boolean")) == [
        True,
        None,
    ]


@pytest.mark.parametrize(
    ("column", "reason"), [("price", "no column for price"), ("symbol", "no column for symbol")]
)
def test_pandas_frame_without_a_column_is_refused(column: str, reason: str) -> None:
    with pytest.raises(SchemaError, match=reason):
        EventBatch.from_pandas(Trade.schema, frame().drop(columns=column))


def test_pandas_dates_are_refused_with_their_type() -> None:
    with pytest.raises(SchemaError, match=r"column price: expected numbers \(f64\), found dtype"):
        EventBatch.from_pandas(Trade.schema, frame(price=pd.to_datetime(["2020-01-01"] * 3)))


def test_two_columns_of_one_name_are_refused() -> None:
    """Which of them is meant cannot be told."""
    table = pd.DataFrame([["IBM", 1.5, 2.5]], columns=["symbol", "price", "price"])
    with pytest.raises(SchemaError, match="two columns of the DataFrame are named 'price'"):
        EventBatch.from_table(Trade.schema, table)
