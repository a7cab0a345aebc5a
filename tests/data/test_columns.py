from __future__ import annotations

import contextlib
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import events, schemas, some

import evflow as ev
from evflow.errors import SchemaError
from evflow.events.batch import EventBatch
from evflow.events.encode import encode_dict
from evflow.schema import Schema
from evflow.schema.types import NUMBERS, Array, Bytes, ListOf, Maybe, Str, f32, f64, i8, i32, i64, u8, u64


class Trade(ev.Event):
    symbol: ev.Str[8]
    price: float
    size: int = 0


def column_of(kind: Any, values: Any) -> EventBatch:
    return EventBatch.from_columns(Schema("s", {"x": kind}), {"x": values})


def stored(kind: Any, values: Any) -> list[Any]:
    return [event.x for event in column_of(kind, values)]


@pytest.mark.slow
@some
@given(st.data())
def test_columns_encode_what_events_do(data: st.DataObject) -> None:
    schema = data.draw(schemas())
    rows = data.draw(st.lists(events(schema), max_size=4))
    columns = {f.name: [row[f.name] for row in rows] for f in schema.fields}
    batch = EventBatch.from_columns(schema, columns)
    assert batch.to_bytes() == b"".join(encode_dict(schema, row) for row in rows)
    assert not batch.data.flags.writeable


@some
@given(st.data())
def test_columns_out_and_in_again_are_the_same_bytes(data: st.DataObject) -> None:
    schema = data.draw(schemas())
    rows = data.draw(st.lists(events(schema), max_size=4))
    batch = EventBatch.from_columns(schema, {f.name: [row[f.name] for row in rows] for f in schema.fields})
    assert EventBatch.from_columns(schema, batch.to_columns()).to_bytes() == batch.to_bytes()
    if schema.width is not None:
        assert EventBatch.from_numpy(schema, batch.to_numpy()).to_bytes() == batch.to_bytes()


SYMBOLS = ["IBM", "", "ä", "12345678", "a\0b", "日本"]


@pytest.mark.parametrize(
    "symbols",
    [
        SYMBOLS,
        tuple(SYMBOLS),
        np.array(SYMBOLS),
        np.array(SYMBOLS, object),
        np.array([s.encode() for s in SYMBOLS]),
        np.array([s.encode() for s in SYMBOLS], "S20"),
        np.array(SYMBOLS, "U20"),
        np.array(SYMBOLS, ">U9"),
        np.array(SYMBOLS, np.dtypes.StringDType()),
        np.array(SYMBOLS * 2)[::2][:3].repeat(2)[[0, 2, 4, 1, 3, 5]],
    ],
    ids=repr,
)
def test_columns_of_text_may_be_anything_that_holds_text(symbols: Any) -> None:
    expected = [s.decode() if isinstance(s, bytes) else str(s) for s in symbols]
    n = len(expected)
    batch = EventBatch.from_columns(
        Trade.schema, {"symbol": symbols, "price": np.arange(n), "size": range(n)}
    )
    assert list(batch) == [Trade(s, float(i), i) for i, s in enumerate(expected)]
    assert stored(str, symbols) == expected
    assert stored(Maybe(Str(8)), symbols) == expected


@pytest.mark.parametrize(
    "symbols", [np.array(["A", "B"]), np.array([b"A", b"B"]), np.array(["", ""]), np.array(["A", "B"])[:0]]
)
def test_columns_of_ascii_take_the_short_way_to_the_same_bytes(symbols: Any) -> None:
    batch = column_of(Str[3], symbols)
    assert batch.to_bytes() == b"".join(
        encode_dict(batch.schema, {"x": str(np.array(s, "U"))}) for s in symbols.astype("U")
    )


@pytest.mark.parametrize(
    ("kind", "values", "row", "reason"),
    [
        (Str[3], ["a", "abcd"], 1, "text of at most 3 bytes of UTF-8, not 4"),
        (Str[3], np.array(["a", "abcd"]), 1, "not 4"),
        (Str[3], np.array([b"a", b"abcd"]), 1, "not 4"),
        (Str[3], ["a", "b", "ää"], 2, "not 4"),
        (Str[3], ["a", "b\0"], 1, "does not end with NUL"),
        (Str[3], ["a", None], 1, "found None"),
        (Str[3], ["a", float("nan")], 1, "found nan"),
        (Str[3], [1, "a"], 0, "found 1 (int)"),
        (Str[3], ["a", b"b"], 1, "found b'b'"),
        (Str[3], ["a", "\ud800"], 1, "surrogates"),
        (Str[3], np.array([b"a", b"\xff"]), 1, "UTF-8"),
        (Str[3], np.array([b"ab\xc3", b"\xa4b"]), 0, "UTF-8"),
        (str, np.array([b"ab\xc3", b"\xa4b"]), 0, "UTF-8"),
        (str, np.array([b"ab", b"\xa4b"]), 1, "UTF-8"),
        (str, np.array([b"ab", b"x\xa4b", b""]), 1, "UTF-8"),
        (str, ["a", None], 1, "found None"),
        (i8, np.array([1, 128]), 1, "an integer from -128 to 127 (i8), found 128"),
        (i8, np.array([1, 2, -129]), 2, "found -129"),
        (u8, [0, -1], 1, "found -1"),
        (i64, np.array([1, 2**63], np.uint64), 1, "found 9223372036854775808"),
        (u64, np.array([1, -1]), 1, "found -1"),
        (i32, np.array([1.0, 0.5]), 1, "found 0.5"),
        (i32, np.array([1.0, np.nan]), 1, "found nan"),
        (i32, np.array([1.0, np.inf]), 1, "found inf"),
        (i32, np.array([2.0**31]), 0, "found 2147483648.0"),
        (i64, np.array([2.0**63]), 0, "found 9.2"),
        (u64, np.array([2.0**64]), 0, "found 1.8"),
        (i32, [1, None], 1, "found None"),
        (f32, np.array([0.0, 1e39]), 1, "found 1e+39"),
        (f32, np.array([0, 2**24 + 1]), 1, "found 16777217"),
        (f64, np.array([0, 2**53 + 1]), 1, "found 9007199254740993"),
        (f64, np.array([2**64 - 1], np.uint64), 0, "found 18446744073709551615"),
        (f64, [2**53 + 1, 0.5], 0, "found 9007199254740993"),
        (f64, ["1"], None, "numbers (f64)"),
        (f64, np.array(["2020"], "M8[D]"), None, "found dtype('<M8[D]')"),
        (f64, np.zeros((2, 2)), None, "a column of single numbers (f64)"),
        (bool, np.array([0, 2]), 1, "found 2"),
        (bool, ["a"], None, "numbers (bool)"),
        (Bytes[2], [b"a", b"abc"], 1, "at most 2 bytes"),
        (Bytes[2], ["a"], 0, "expected bytes"),
        (Bytes[2], np.array([1]), None, "a column of bytes"),
        (bytes, ["a"], 0, "expected bytes"),
        (Array[f64, 2], np.zeros((3, 3)), None, "a column of shape (3, 2)"),
        (Array[i8, 2], np.array([[1, 2], [3, 300]]), 1, "found 300"),
        (Array[f64, 2], [[1.0, 2.0], [1.0]], 1, "an array of 2 elements"),
        (ListOf(i64), [[1], [None]], 1, "found None"),
        (Maybe(i8), [1, None, 300], None, "expected an integer from -128 to 127 (i8), found 300"),
    ],
)
def test_columns_refuse_with_column_row_and_value(
    kind: Any, values: Any, row: int | None, reason: str
) -> None:
    with pytest.raises(SchemaError) as caught:
        column_of(kind, values)
    message = str(caught.value)
    assert message.startswith("schema s: column x: " + ("" if row is None else f"row {row}: "))
    assert reason in message


_DTYPES = ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", ">i4", ">f8", "?", "O"]
_EDGES = [
    0, 1, -1, 127, 128, -128, 255, 256, 32767, 65535, 65536, 2**24, 2**24 + 1, 2**31, 2**32, 2**53 + 1,
    2**63 - 1, 2**63, 2**64 - 1, 0.5, 2.0**63, 2.0**64, -(2.0**63), 1e300, float("inf"), float("nan"),
]  # fmt: skip


@pytest.mark.parametrize("kind", NUMBERS.values(), ids=repr)
def test_columns_of_numbers_keep_every_value_or_refuse(kind: Any) -> None:
    for dtype, edge in product(_DTYPES, _EDGES):
        try:
            with np.errstate(all="ignore"):
                column = np.array([edge], dtype)
        except (OverflowError, ValueError):
            continue
        given_ = column[0].item() if isinstance(column[0], np.generic) else column[0]
        try:
            found = stored(kind, column)[0]
        except SchemaError:
            assert not _holds(kind, given_), (dtype, edge, given_)
        else:
            assert _holds(kind, given_), (dtype, edge, given_)
            wanted = float(np.float32(given_)) if kind is f32 and isinstance(given_, float) else given_
            assert found == wanted or (found != found and given_ != given_), (dtype, edge)


def _holds(kind: Any, value: Any) -> bool:
    """Whether a number type has this very number, from Python's exact integers and floats."""
    if kind.kind == "b":
        return value in (0, 1)
    if kind.kind in "iu":
        low = 0 if kind.kind == "u" else -(2 ** (8 * kind.size - 1))
        return (
            value == value
            and abs(value) != float("inf")
            and int(value) == value
            and low <= value < low + 2 ** (8 * kind.size)
        )
    if isinstance(value, float):
        return kind is f64 or abs(value) < 3.5e38 or value != value or abs(value) == float("inf")
    digits = 24 if kind is f32 else 53
    return value == 0 or abs(value) >> max(abs(value).bit_length() - digits, 0) << max(
        abs(value).bit_length() - digits, 0
    ) == abs(value)


def test_columns_of_floats_may_stand_for_integers() -> None:
    assert stored(i32, np.array([1.0, -2.0])) == [1, -2]
    assert stored(i32, [1.0, 2]) == [1, 2]
    assert stored(bool, np.array([0, 1], np.int8)) == [False, True]


def test_columns_optional_takes_what_is_missing_as_none() -> None:
    nan = float("nan")
    assert stored(Maybe(i8), [1, None, 3]) == [1, None, 3]
    assert stored(Maybe(i8), np.array([1.0, nan, 3.0])) == [1, None, 3]
    assert stored(Maybe(Str(3)), ["a", None, nan]) == ["a", None, None]
    assert stored(Maybe(f64), [1.0, None]) == [1.0, None]
    assert np.isnan(stored(Maybe(f64), np.array([nan]))[0])
    assert stored(Maybe(i8), np.ma.array([1, 2], mask=[False, True])) == [1, None]
    with pytest.raises(
        SchemaError, match="row 1: expected a value in every row, since the field is not optional"
    ):
        column_of(i8, np.ma.array([1, 2], mask=[False, True]))


def test_columns_missing_are_named_together_with_those_there() -> None:
    with pytest.raises(SchemaError, match="no column for symbol, price; the columns are: size, other"):
        EventBatch.from_columns(Trade.schema, {"size": [1], "other": [2]})


def test_columns_without_a_column_take_the_default() -> None:
    schema = Schema(
        "s",
        {"a": i8, "b": Str[3], "c": str, "d": Maybe(f64), "e": ListOf(i8)},
        {"b": "x", "c": "y", "d": None, "e": []},
    )
    batch = EventBatch.from_columns(schema, {"a": [1, 2], "more": ["not", "a", "field"]})
    assert [e.to_dict() for e in batch] == [{"a": n, "b": "x", "c": "y", "d": None, "e": []} for n in (1, 2)]


def test_columns_of_different_length_are_refused() -> None:
    with pytest.raises(SchemaError, match="columns of different length: symbol 1, price 2"):
        EventBatch.from_columns(Trade.schema, {"symbol": ["a"], "price": [1.0, 2.0]})


@pytest.mark.parametrize("column", [5, "text", None, object()])
def test_columns_that_are_none_are_refused(column: Any) -> None:
    with pytest.raises(SchemaError, match="column"):
        EventBatch.from_columns(Trade.schema, {"symbol": column, "price": [1.0]})


def test_columns_of_a_nested_record_may_come_in_any_form() -> None:
    leg = Schema("leg", {"price": f64, "side": Str[1]}, {"side": "b"})
    order = Schema("order", {"id": i64, "leg": leg})
    expected = [{"id": n, "leg": {"price": n / 2, "side": "b"}} for n in range(3)]
    prices = np.arange(3) / 2
    rows = np.zeros(3, [("price", "f4"), ("side", "S1")])
    rows["price"], rows["side"] = prices, b"b"
    forms: list[dict[str, Any]] = [
        {"leg": {"price": prices}},
        {"leg.price": prices},
        {"leg": rows},
        {"leg": [{"price": p} for p in prices.tolist()]},
        {"leg": np.array([leg(price=p) for p in prices.tolist()], object)},
    ]
    for form in forms:
        assert [e.to_dict() for e in EventBatch.from_columns(order, {"id": range(3), **form})] == expected
    with pytest.raises(SchemaError, match="column leg: row 1: expected a leg with field price"):
        EventBatch.from_columns(order, {"id": range(2), "leg": [{"price": 1.0}, {"cost": 2.0}]})
    with pytest.raises(SchemaError, match=r"column leg\.side: row 0: expected text of at most 1 bytes"):
        EventBatch.from_columns(order, {"id": [1], "leg.price": [1.0], "leg.side": ["ab"]})


def test_columns_of_arrays_may_be_one_array_or_many() -> None:
    block = np.arange(12.0).reshape(2, 3, 2)
    for values in (
        block,
        list(block),
        block.tolist(),
        block.astype(np.float32),
        block[::1, ::1, ::1].astype(">f8"),
    ):
        assert [a.tolist() for a in stored(Array[f64, 3, 2], values)] == block.tolist()
    assert [a.tolist() for a in stored(Array[i8, None], [[1], [], np.array([2, 3])])] == [[1], [], [2, 3]]


def test_numpy_rows_are_columns() -> None:
    rows = np.array([("A", 1.5, 3), ("B", 2.5, 4)], [("symbol", "U4"), ("price", "f8"), ("size", "i4")])
    for schema in (Trade.schema, Trade):
        assert list(EventBatch.from_numpy(schema, rows)) == [Trade("A", 1.5, 3), Trade("B", 2.5, 4)]
    with pytest.raises(SchemaError, match="expected rows in one dimension"):
        EventBatch.from_numpy(Trade.schema, rows.reshape(1, 2))


def test_table_dispatches_and_refuses_what_is_none() -> None:
    batch = EventBatch.from_events([Trade("A", 1.0)])
    assert EventBatch.from_table(Trade.schema, batch) is batch
    with pytest.raises(SchemaError, match="expected a batch of"):
        EventBatch.from_table(Schema("other", {"x": f64}), batch)
    for table in (None, 5, [1, 2], np.zeros(3), "text"):
        with pytest.raises(SchemaError, match="schema Trade: expected a table"):
            EventBatch.from_table(Trade.schema, table)


def test_columns_of_records_within_records_have_one_length() -> None:
    inner = Schema("inner", {"x": f64, "y": f64, "z": f64})
    outer = Schema("outer", {"b": Schema("middle", {"a": inner})})
    columns = {"b": {"a": {"x": [1.0], "y": [2.0], "z": [3.0]}}}
    assert [e.to_dict() for e in EventBatch.from_columns(outer, columns)] == [
        {"b": {"a": {"x": 1.0, "y": 2.0, "z": 3.0}}}
    ]
    empty = EventBatch.from_columns(outer, {"b": {"a": {"x": [], "y": [], "z": []}}})
    assert len(EventBatch.from_numpy(outer, empty.to_numpy())) == 0
    with pytest.raises(SchemaError, match=r"different length: b\.a\.x 1, b\.a\.y 2"):
        EventBatch.from_columns(outer, {"b": {"a": {"x": [1.0], "y": [2.0, 1.0], "z": [3.0]}}})


_ODD: list[Any] = [
    None, 5, "ab", b"ab", [], (), {}, {"a": 1}, {1, 2}, range(2), [1, 2], [1, None], ["a", "b"], ["a",
    1], [b"a", b"b"], [[1], [2]], [[1, 2], [3]], [None, None], [{}, {}], [{"a": 1}, 5], [object(),
    object()], [1j, 2j], [2**70, 1], [float("nan"), 1], [np.array(1), np.array(2)], [np.zeros(2),
    np.zeros(3)], np.array(5), np.zeros(0), np.zeros(2), np.zeros((2, 2)), np.zeros((2, 0)),
    np.array(["a", "b"]), np.array([["a"], ["b"]]), np.array([b"a", b"\xff"]), np.array([[b"a"],
    [b"b"]]), np.array([1j, 2]), np.array(["2020", "2021"], "M8[s]"), np.array([None, 1]),
    np.array([["a"], [1]], object), np.array([b"a", b"b"], "V1"), np.zeros(2, "i4,f8"), np.zeros(2,
    "U0"), np.ma.array([1, 2], mask=[0, 1]), memoryview(b"ab"), bytearray(b"ab"), iter([1, 2]),
    ["\ud800"] * 2, np.array(["a", "b"], np.dtypes.StringDType()), np.array([["a", "b"]],
    np.dtypes.StringDType()),
]  # fmt: skip


@some
@given(st.data())
def test_columns_of_anything_are_encoded_or_refused(data: st.DataObject) -> None:
    schema = data.draw(schemas())
    for _ in range(20):
        columns = {f.name: data.draw(st.sampled_from(_ODD)) for f in schema.fields}
        with contextlib.suppress(SchemaError):
            batch = EventBatch.from_columns(schema, columns)
            assert EventBatch.from_bytes(schema, batch.to_bytes()).rows == batch.rows
