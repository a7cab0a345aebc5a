from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from strategies import events, schemas, some

import evflow as ev
from evflow.errors import SchemaError
from evflow.events.batch import EventBatch
from evflow.schema import Schema
from evflow.schema.types import Array, Bytes, ListOf, Maybe, Str, f32, f64, i8, i64

pa = pytest.importorskip("pyarrow")


class Trade(ev.Event):
    symbol: ev.Str[8]
    price: float
    size: int = 0


TRADES = [Trade("IBM", 1.5, 1), Trade("", 2.5, 2), Trade("ä", -1.0, 3)]


def stored(kind: Any, column: Any) -> list[Any]:
    schema = Schema("s", {"x": kind})
    return [event.x for event in EventBatch.from_arrow(schema, pa.table({"x": column}))]


def _values(value: Any) -> Iterator[Any]:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    yield value
    for part in inner:
        yield from _values(part)


@some
@given(st.data())
def test_arrow_out_and_in_again_are_the_same_bytes(data: st.DataObject) -> None:
    schema = data.draw(schemas(depth=1).filter(lambda s: not s.recursive))
    rows = data.draw(st.lists(events(schema), max_size=3))
    # The lists of Arrow do not say the further dimensions of an array without elements.
    assume(
        not any(isinstance(v, np.ndarray) and v.ndim > 1 and not v.size for row in rows for v in _values(row))
    )
    batch = EventBatch.from_columns(schema, {f.name: [row[f.name] for row in rows] for f in schema.fields})
    table = batch.to_arrow()
    assert table.num_rows == len(rows)
    assert EventBatch.from_arrow(schema, table).to_bytes() == batch.to_bytes()


def test_arrow_table_of_events_has_its_types() -> None:
    schema = Schema(
        "s", {"t": Trade, "a": Array[f32, 2], "v": Array[f32, None], "n": Maybe(i8), "l": list[str]}
    )
    trade = {"symbol": "A", "price": 1.0, "size": 2}
    batch = EventBatch.from_columns(
        schema, {"t": [trade], "a": [[1, 2]], "v": [[3]], "n": [None], "l": [["x"]]}
    )
    table = batch.to_arrow()
    assert str(table.schema.field("t").type) == "struct<symbol: string, price: double, size: int64>"
    assert table.schema.field("a").type == pa.list_(pa.float32(), 2)
    assert table.schema.field("v").type == pa.list_(pa.float32())
    assert table.to_pylist() == [{"t": trade, "a": [1.0, 2.0], "v": [3.0], "n": None, "l": ["x"]}]


@pytest.mark.parametrize(
    "make",
    [
        lambda t: t,
        lambda t: t.to_batches()[0],
        lambda t: pa.concat_tables([t.slice(0, 1), t.slice(1)]),
        lambda t: pa.concat_tables([t, t]).slice(3),
        lambda t: pa.table({n: t[n].dictionary_encode() for n in t.schema.names}),
        lambda t: t.set_column(0, "symbol", t["symbol"].cast(pa.large_string())),
        lambda t: t.set_column(0, "symbol", t["symbol"].cast(pa.string_view())),
        lambda t: t.set_column(2, "size", t["size"].cast(pa.uint8())),
        lambda t: t.set_column(2, "size", t["size"].cast(pa.float32())),
    ],
)
def test_arrow_columns_of_every_kind_are_read(make: Any) -> None:
    columns = {"symbol": ["IBM", "", "ä"], "price": [1.5, 2.5, -1.0], "size": [1, 2, 3]}
    table = make(pa.table(columns))
    assert list(EventBatch.from_table(Trade.schema, table)) == TRADES


def test_arrow_nulls_are_none_where_optional_and_refused_elsewhere() -> None:
    for kind, values in (
        (Str(3), ["a", None]),
        (i64, [1, None]),
        (f64, [1.0, None]),
        (Bytes(2), [b"a", None]),
    ):
        for column in (pa.array(values), pa.array([*values, *values]).slice(2), pa.chunked_array([values])):
            assert stored(Maybe(kind), column) == values
            with pytest.raises(SchemaError, match="row 1: expected a value in every row"):
                stored(kind, column)
    assert stored(Maybe(i64), pa.nulls(2)) == [None, None]


def test_arrow_nested_columns_are_read() -> None:
    structs = pa.array([t.to_dict() for t in TRADES])
    assert stored(Trade, structs.slice(1)) == TRADES[1:]
    assert stored(Maybe(Schema("s", {"x": Trade})["x"].type), pa.array([TRADES[0].to_dict(), None])) == [
        TRADES[0],
        None,
    ]
    assert stored(ListOf(i8), pa.array([[1], [], [2, 3]])) == [[1], [], [2, 3]]
    blocks = pa.array(
        [[[1.0, 2.0], [3.0, 4.0]], [[5.0, 6.0], [7.0, 8.0]]], pa.list_(pa.list_(pa.float64(), 2), 2)
    )
    assert [a.tolist() for a in stored(Array[f64, 2, 2], blocks.slice(1))] == [[[5.0, 6.0], [7.0, 8.0]]]
    assert [a.tolist() for a in stored(Array[f64, None], pa.array([[1.0], []]))] == [[1.0], []]
    pairs = [[[1.0], [2.0]], [[3.0, 4.0], [5.0, 6.0]]]
    column = pa.array(pairs, pa.list_(pa.list_(pa.float64()), 2))
    assert [a.tolist() for a in stored(Array[f64, 2, None], column)] == pairs


def test_arrow_binary_that_is_no_utf8_is_refused_as_text() -> None:
    with pytest.raises(SchemaError, match="row 1: expected text in UTF-8"):
        stored(Str(3), pa.array([b"a", b"\xff"]))
    assert stored(bytes, pa.array([b"a", b"\xff"])) == [b"a", b"\xff"]


def test_arrow_decimals_and_times_are_refused() -> None:
    for column in (pa.array([1], pa.timestamp("s")), pa.array(["1.5"]).cast(pa.decimal128(3, 1))):
        with pytest.raises(SchemaError, match="column x: "):
            stored(f64, column)


def test_arrow_text_is_read_like_numpys() -> None:
    symbols = np.array(["IBM", "AAPL"])[np.arange(1000) % 2]
    assert stored(Str(8), pa.array(symbols)) == symbols.tolist()


def test_two_columns_of_one_name_are_refused() -> None:
    """Which of them is meant cannot be told."""
    table = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["x", "x"])
    with pytest.raises(SchemaError, match="two columns of the table are named 'x'"):
        EventBatch.from_table(ev.Schema("s", {"x": ev.i64}), table)


@pytest.mark.parametrize(
    ("kind", "arrow", "words"),
    [
        (ev.Timestamp, pa.timestamp("us"), r"row 1: expected a time.*found '-9223372036854775808 timestamp"),
        (ev.Timestamp, pa.timestamp("ns"), "row 1: .*not optional.*NaT"),
        (ev.Duration, pa.duration("ns"), "row 1: .*not optional.*NaT"),
    ],
)
def test_nat_in_the_memory_of_an_array_is_refused(kind: Any, arrow: pa.DataType, words: str) -> None:
    """Where pyarrow does not say that it is null."""
    numbers = pa.py_buffer(np.array([5, -(2**63)], np.int64))
    times = pa.Array.from_buffers(arrow, 2, [None, numbers])
    with pytest.raises(ev.SchemaError, match=words):
        ev.EventBatch.from_columns(ev.Schema("t", {"x": kind}), {"x": times})
