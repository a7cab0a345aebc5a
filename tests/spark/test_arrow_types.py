"""Columns of all types of Arrow as fields, and what does not fit, against values of plain Python."""

from __future__ import annotations

import datetime as dt
import uuid
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

from evflow.errors import SchemaError
from evflow.events.batch import EventBatch
from evflow.schema import Schema
from evflow.schema.types import Maybe, Record, f64

pa = pytest.importorskip("pyarrow")

from evflow.spark.columns.decoder import decode  # noqa: E402
from evflow.spark.columns.encoder import encode  # noqa: E402

UTC = "UTC"
MOMENT = dt.datetime(2013, 1, 1, 12, 30, 0, 250000)
MICROS = 1357043400250000
AT = np.datetime64(MICROS, "us")

STORED: list[tuple[Any, Any, list[Any]]] = [
    ("i64", pa.array([MOMENT], pa.timestamp("us")), [MICROS]),
    ("i64", pa.array([MOMENT], pa.timestamp("us", UTC)), [MICROS]),
    ("i64", pa.array([MOMENT], pa.timestamp("ns")), [MICROS]),
    ("i64", pa.array([MOMENT], pa.timestamp("ms", UTC)), [MICROS]),
    ("f64", pa.array([MOMENT], pa.timestamp("us")), [float(MICROS)]),
    ("i32", pa.array([dt.date(1970, 1, 2), dt.date(1969, 12, 30)]), [1, -2]),
    ("u16", pa.array([dt.date(1970, 1, 2)], pa.date64()), [1]),
    ("i64", pa.array([dt.time(0, 0, 1, 5)], pa.time64("us")), [1_000_005_000]),
    ("i64", pa.array([dt.timedelta(days=-1, microseconds=1)]), [1 - 86_400_000_000]),
    ("str", pa.array([Decimal("-12.50"), Decimal("0.07")], pa.decimal128(38, 2)), ["-12.50", "0.07"]),
    ("str", pa.array([Decimal("0.000000015")], pa.decimal128(10, 10)), ["1.50E-8"]),
    ("f64", pa.array([Decimal("0.1"), Decimal("-999999999.3")], pa.decimal128(15, 1)), [0.1, -999999999.3]),
    ("f32", pa.array([Decimal("0.5")], pa.decimal128(6, 1)), [0.5]),
    ("i8", pa.array([Decimal("-7.00")], pa.decimal128(20, 2)), [-7]),
    ("u64", pa.array([Decimal(2**64 - 1)], pa.decimal128(20, 0)), [2**64 - 1]),
    ("i8", pa.array([1, -128], pa.int64()), [1, -128]),
    ("u8", pa.array([200], pa.int16()), [200]),
    ("i32", pa.array([3.0]), [3]),
    ("f32", pa.array([1.5]), [1.5]),
    ("bool", pa.array([0, 1], pa.int8()), [False, True]),
    ("i64", pa.array([True, False]), [1, 0]),
    ("str", pa.array(["a", "", "bé"], pa.large_string()), ["a", "", "bé"]),
    ("str", pa.array(["a", "b" * 40], pa.string_view()), ["a", "b" * 40]),
    ("str", pa.array(["a", "b", "a"]).dictionary_encode(), ["a", "b", "a"]),
    ("str[3]", pa.array([b"a", "é".encode()]), ["a", "é"]),
    ("bytes", pa.array([b"ab\0"], pa.binary(3)), [b"ab\0"]),
    ("bytes[4]", pa.array([b"ab\0", b""], pa.large_binary()), [b"ab\0", b""]),
    ("bytes", pa.array([b"a" * 40], pa.binary_view()), [b"a" * 40]),
    ("list(i8)", pa.array([[1, 2], [3, 4]], pa.list_(pa.int64(), 2)), [[1, 2], [3, 4]]),
    (
        "list(str)",
        pa.array([["a"], [], ["b", "c"]], pa.large_list(pa.large_string())),
        [["a"], [], ["b", "c"]],
    ),
    ("list(i64)", pa.array([[MOMENT], []], pa.list_(pa.timestamp("us"))), [[MICROS], []]),
    ("timestamp", pa.array([MOMENT], pa.timestamp("us", "Asia/Tokyo")), [AT]),
    ("timestamp", pa.array([MOMENT], pa.timestamp("ms")), [AT]),
    ("timestamp", pa.array([dt.date(1969, 12, 31)]), [np.datetime64("1969-12-31", "ns")]),
    ("timestamp", pa.array([7, -7], pa.int32()), [np.datetime64(7, "ns"), np.datetime64(-7, "ns")]),
    (
        "duration",
        pa.array([dt.timedelta(days=-1), dt.timedelta(0, 1)]),
        [np.timedelta64(-1, "D"), np.timedelta64(1, "s")],
    ),
    (
        "decimal(6,2)",
        pa.array([Decimal("-1.5"), Decimal("9999.99")], pa.decimal128(20, 4)),
        [Decimal("-1.50"), Decimal("9999.99")],
    ),
    ("decimal(6,2)", pa.array([3, -4], pa.int8()), [Decimal("3.00"), Decimal("-4.00")]),
    (
        "decimal(38,1)",
        pa.array([Decimal(-(10**30)), Decimal("0.1")], pa.decimal256(50, 3)),
        [Decimal(-(10**30)), Decimal("0.1")],
    ),
    ("uuid", pa.array(["00000000-0000-0000-0000-00000000000a"]), [uuid.UUID(int=10)]),
    ("uuid", pa.array([bytes(15) + b"\1", bytes(15) + b"\2"]), [uuid.UUID(int=1), uuid.UUID(int=2)]),
    (
        "uuid",
        pa.array([bytes(16), b"\1" + bytes(15)], pa.binary(16)),
        [uuid.UUID(int=0), uuid.UUID(int=2**120)],
    ),
    ("enum(buy,sell)", pa.array(["sell", "buy", "sell"]).dictionary_encode(), ["sell", "buy", "sell"]),
    ("enum(buy,sell)", pa.array(["buy"], pa.large_string()), ["buy"]),
    ("list(timestamp)", pa.array([[MOMENT], []], pa.list_(pa.timestamp("us"))), [[AT], []]),
    ("list(optional(decimal(4,1)))", pa.array([[Decimal("1.5"), None]]), [[Decimal("1.5"), None]]),
    ("i16", pa.RunEndEncodedArray.from_arrays(pa.array([2, 3], pa.int32()), pa.array([7, 8])), [7, 7, 8]),
]


@pytest.mark.parametrize(("kind", "column", "expected"), STORED, ids=lambda value: str(value)[:20])
def test_columns_of_many_types_fit(kind: str, column: Any, expected: list[Any]) -> None:
    assert stored(kind, column) == expected
    assert stored(kind, column.slice(1)) == expected[1:]
    assert stored(f"optional({kind})", column) == expected
    if pa.types.is_run_end_encoded(column.type):
        return
    if pa.types.is_dictionary(column.type):
        holed = column.take(pa.array([None, *range(len(column)), None]))
    else:
        holed = pa.array([None, *column.to_pylist(), None], column.type)
    assert stored(f"optional({kind})", holed) == [None, *expected, None]
    assert stored(f"optional({kind})", holed.slice(1)) == [*expected, None]
    with pytest.raises(SchemaError, match="column x: row 0: expected a value in every row"):
        stored(kind, holed)


def stored(kind: str, column: Any) -> list[Any]:
    """The values of events made of a column."""
    schema = Schema("s", {"x": kind})
    batch = encode(schema, pa.RecordBatch.from_arrays([column], names=["x"]))
    batch = EventBatch.from_bytes(schema, batch.to_bytes(), len(column))
    return [event.x for event in batch]


REFUSED: list[tuple[Any, Any, str]] = [
    ("i8", pa.array([1, 300]), r"column x: row 1: expected an integer from -128 to 127 \(i8\), found 300"),
    ("i32", pa.array([1, None, 2.5]).fill_null(0.0), r"row 2: expected an integer .* found 2\.5"),
    ("f64", pa.array([1, 2**53 + 1]), r"row 1: expected a number that f64 holds"),
    ("f64", pa.array(["1"]), r"column x: expected a column of f64, found a column of string; cast"),
    ("str", pa.array([1]), r"expected a column of text \(str\), found a column of int64"),
    ("bytes", pa.array([1]), r"expected a column of bytes"),
    ("i64", pa.array([1, 1500], pa.timestamp("ns")), r"row 0: expected whole microseconds"),
    (
        "i64",
        pa.array([Decimal("1.0"), Decimal("1.5")]),
        r"row 1: expected an integer .* found Decimal\('1.5'\)",
    ),
    ("f64", pa.array([Decimal(1)], pa.decimal128(16, 0)), r"numbers of which f64 holds all digits"),
    ("f32", pa.array([Decimal(1)], pa.decimal128(7, 0)), r"numbers of which f32 holds all digits"),
    (
        "str[2]",
        pa.array(["ab", "é", "abc"]),
        r"row 2: expected text of at most 2 bytes of UTF-8, found 'abc'",
    ),
    ("str[200]", pa.array(["ab", "a" * 201]), r"row 1: expected text of at most 200 bytes"),
    ("str[2]", pa.array(["a\0"]), r"row 0: expected text that does not end with NUL"),
    ("bytes[2]", pa.array([b"abc"]), r"row 0: expected at most 2 bytes, found b'abc'"),
    ("str", pa.array([b"a", b"\xff", b"b"]), r"row 1: expected text in UTF-8, found b'\\xff'"),
    ("str[4]", pa.array([b"\xc3", b"\xa9"]), r"row 0: expected text in UTF-8"),
    ("array(f64,?)", pa.array([[1.0], [1.0, None]]), r"row 1: expected an array without nulls"),
    ("array(f64,2)", pa.array([[1.0, 2.0], [1.0]]), r"row 1: expected arrays of one shape"),
    ("array(f64,?,?)", pa.array([[[1.0]], [[1.0], []]]), r"row 1: expected arrays of one shape"),
    ("array(f64,?,2)", pa.array([[], [[1.0]]]), r"row 1: expected arrays of one shape"),
    ("array(f64,?,?)", pa.array([[[1.0]], [None]]), r"row 1: expected a value in every row"),
    ("array(i8,?,?)", pa.array([[[1]], [[2], [300]]]), r"column x\[\]\[\]: row 1: .* found 300"),
    ("list(i8)", pa.array([[1], [], [2, 300]]), r"column x\[\]: row 2: .* found 300"),
    ("list(i8)", pa.array([[1], [None]]), r"column x\[\]: row 1: expected a value in every row"),
    ("list(i8)", pa.array([1]), r"column x: expected a column of arrays"),
    ("list(i8)", pa.array([[1]], pa.list_view(pa.int8())), r"expected a column of arrays .*list_view"),
    ("timestamp", pa.array(["2020"]), r"column x: expected a column of timestamp, found a column of string"),
    ("timestamp", pa.array([0, 10**16], pa.timestamp("s")), r"row 1: expected a value of timestamp"),
    ("duration", pa.array([MOMENT]), r"expected a column of duration"),
    ("decimal(4,1)", pa.array([1.5]), r"expected a column of decimal\(4,1\), found a column of double"),
    ("decimal(4,1)", pa.array([Decimal("1.5"), Decimal("1.55")]), r"row 1: .* found Decimal\('1.55'\)"),
    ("decimal(4,1)", pa.array([1, 1000]), r"row 1: expected a value of decimal\(4,1\), found 1000"),
    ("uuid", pa.array(["00000000-0000-0000-0000-00000000000a", "x"]), r"row 1: expected a value of uuid"),
    ("uuid", pa.array([bytes(15)]), r"row 0: expected a value of uuid"),
    ("enum(a,b)", pa.array(["a", "c"]), r"row 1: expected a value of enum\(a,b\), found 'c'"),
    ("enum(a,b)", pa.array([1]), r"expected a column of enum\(a,b\)"),
]


@pytest.mark.parametrize(("kind", "column", "message"), REFUSED, ids=lambda value: str(value)[:20])
def test_what_does_not_fit_is_named(kind: str, column: Any, message: str) -> None:
    with pytest.raises(SchemaError, match=f"schema s: .*{message}"):
        stored(kind, column)


def test_decode_gives_the_types_asked_for() -> None:
    schema = Schema(
        "s", {"at": "optional(i64)", "day": "i32", "price": str, "size": "u8", "list": "list(i32)"}
    )
    batch = EventBatch.from_columns(
        schema,
        {"at": [MICROS, None], "day": [0, -1], "price": ["1.50", "-2"], "size": [1, 255], "list": [[0], []]},
    )
    wanted = pa.schema(
        {
            "list": pa.large_list(pa.date32()),
            "price": pa.decimal128(10, 2),
            "at": pa.timestamp("us", UTC),
            "day": pa.date32(),
            "size": pa.uint8(),
        }
    )
    found = decode(batch, wanted)
    found.validate(full=True)
    assert found.schema == wanted
    moment = MOMENT.replace(tzinfo=dt.UTC)
    assert found.to_pydict() == {
        "list": [[dt.date(1970, 1, 1)], []],
        "price": [Decimal("1.50"), Decimal("-2.00")],
        "at": [moment, None],
        "day": [dt.date(1970, 1, 1), dt.date(1969, 12, 31)],
        "size": [1, 255],
    }
    days = EventBatch.from_columns(Schema("d", {"day": "i64"}), {"day": [365, -1]})
    assert decode(days, pa.schema({"day": pa.date32()}))["day"].to_pylist() == [
        dt.date(1971, 1, 1),
        dt.date(1969, 12, 31),
    ]
    ms = decode(batch, pa.schema({"at": pa.timestamp("ms")}))
    assert ms.to_pydict() == {"at": [MOMENT, None]}


def test_decode_gives_logical_types_as_spark_has_them() -> None:
    schema = Schema(
        "s",
        {
            "at": "timestamp", "took": "optional(duration)", "price": "decimal(6,2)",
            "amount": "optional(decimal(38,1))", "id": "uuid", "side": "optional(enum(a,b))",
            "days": "list(timestamp)",
        },
    )  # fmt: skip
    values = {
        "at": [-1, 1500], "took": [None, -1], "price": [Decimal("-0.01"), 5],
        "amount": [Decimal(-(10**30)), None],
        "id": [uuid.UUID(int=1), uuid.UUID(int=2)], "side": ["b", None], "days": [[-1], []],
    }  # fmt: skip
    batch = EventBatch.from_columns(schema, values)
    second = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
    micro = dt.timedelta(microseconds=1)
    assert decode(batch).to_pylist() == [
        {
            "at": second - micro, "took": None, "price": Decimal("-0.01"), "amount": Decimal(-(10**30)),
            "id": uuid.UUID(int=1).bytes, "side": "b", "days": [second - micro],
        },
        {
            "at": second + micro, "took": -micro, "price": Decimal("5.00"), "amount": None,
            "id": uuid.UUID(int=2).bytes, "side": None, "days": [],
        },
    ]  # fmt: skip
    wanted = pa.schema({"at": pa.timestamp("ns", UTC), "price": pa.decimal128(20, 4)})
    assert decode(batch, wanted)["at"].cast(pa.int64()).to_pylist() == [-1, 1500]
    assert decode(batch, wanted)["price"].to_pylist() == [Decimal("-0.01"), Decimal(5)]
    with pytest.raises(SchemaError, match=r"column price: decimal\(6,2\) as decimal128\(3, 2\)"):
        decode(
            EventBatch.from_columns(schema, {**values, "price": [1, 999]}),
            pa.schema({"price": pa.decimal128(3, 2)}),
        )


def test_defaults_of_logical_types_stand_in_for_columns() -> None:
    kinds = {
        "at": "timestamp",
        "price": "decimal(6,2)",
        "wide": "decimal(20,0)",
        "id": "uuid",
        "side": "enum(a,b)",
    }
    defaults = {"at": AT, "price": Decimal("1.5"), "wide": -1, "id": uuid.UUID(int=3), "side": "b"}
    schema = Schema("s", {"n": "i8", **kinds}, defaults)
    found = encode(schema, pa.RecordBatch.from_pydict({"n": [1, 2]}))
    assert [event.to_dict() for event in found] == [{"n": n, **defaults} for n in (1, 2)]


def test_decode_refuses_what_it_cannot_give() -> None:
    batch = EventBatch.from_columns(
        Schema("s", {"a": Maybe(f64), "b": str, "c": "list(i8)", "d": "i64"}),
        {"a": [None], "b": ["x"], "c": [[1]], "d": [1 << 62]},
    )
    for wanted, message in (
        ({"z": pa.int8()}, "schema s has no field 'z'"),
        ({"b": pa.decimal128(5, 2)}, "column b: str as decimal"),
        ({"b": pa.struct([])}, "column b: str as struct"),
        ({"c": pa.int8()}, "column c: a list cannot be had as int8"),
        ({"d": pa.date32()}, "column d: i64 as date32"),
        ({"d": pa.time64("ns")}, r"column d: i64 as time64\[ns\]: .*not a time of day"),
    ):
        with pytest.raises(SchemaError, match=message):
            decode(batch, pa.schema(wanted))
    with pytest.raises(SchemaError, match="column a: 1 of its values are missing where none may be"):
        decode(batch, pa.schema([pa.field("a", pa.float64(), nullable=False)]))


def test_nulls_within_nulls_are_none_of_a_column_without_nulls() -> None:
    point = Schema("point", {"x": Maybe(f64)})
    schema = Schema("s", {"p": Maybe(Record("point", {"point": point}))})
    wanted = pa.schema({"p": pa.struct([pa.field("x", pa.float64(), nullable=False)])})
    whole = EventBatch.from_columns(schema, {"p": [None, {"x": 1.0}, None]})
    assert decode(whole, wanted).to_pydict() == {"p": [None, {"x": 1.0}, None]}
    holed = EventBatch.from_columns(schema, {"p": [None, {"x": None}]})
    with pytest.raises(SchemaError, match=r"column p\.x: 1 of its values are missing"):
        decode(holed, wanted)
