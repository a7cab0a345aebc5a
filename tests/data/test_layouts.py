"""Columns in every form of numpy, pandas and pyarrow give the events that their values give one by one."""

from __future__ import annotations

import datetime
import decimal
import uuid
from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import evflow as ev
from evflow.errors import SchemaError
from evflow.events.columns import direct

Column = np.ndarray[Any, Any]

_ODD = np.array([0, 1, 2, 255], np.uint8).view(bool)
"""Booleans as a buffer may have them: true is any byte but 0."""
_SIDE = ev.Enum["buy", "sell"]
_NUMBERS = ["i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f4", "f8"]
_TYPES = [ev.i8, ev.u8, ev.i16, ev.u16, ev.i32, ev.u32, ev.i64, ev.u64, ev.f32, ev.f64]


def _numbers(seed: int, dtype: str, shape: tuple[int, ...]) -> Column:
    """Numbers of which some are at the ends of the type."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    drawn = np.random.default_rng(seed).integers(0, 256, size, np.uint8).view(dtype).reshape(shape).copy()
    flat = drawn.reshape(-1)
    if drawn.dtype.kind == "f":
        flat[:4] = [-0.0, float("inf"), 2.0**53, 0.1]
        flat[~np.isfinite(flat)] = 1.5
    elif flat.size:
        flat[:2] = [np.iinfo(dtype).min, np.iinfo(dtype).max]
    return drawn


def _cases() -> Iterator[tuple[str, Any, Column]]:
    for seed, (dtype, kind) in enumerate(zip(_NUMBERS, _TYPES, strict=True)):
        yield dtype, kind, _numbers(seed, dtype, (7,))
        yield f"{dtype} in arrays", ev.Array[kind, 3], _numbers(seed, dtype, (5, 3))
        yield f"{dtype} in arrays of any size", ev.Array[kind, None], _numbers(seed, dtype, (5, 2))
        yield f"{dtype} in lists", list[kind], _numbers(seed, dtype, (5, 2))
        yield f"{dtype} without rows", kind, np.zeros(0, dtype)
        yield f"{dtype} in planes", ev.Array[kind, 2, 3], _numbers(seed, dtype, (4, 2, 3))
    yield "integers as floats", ev.f64, np.array([-5, 2**52], np.int64)
    yield "small integers", ev.i64, np.array([-5, 100], np.int8)
    yield "bool", bool, np.array([True, False, True])
    yield "odd bool", bool, _ODD
    yield "odd bool in arrays", ev.Array[bool, 2], _ODD.reshape(2, 2)
    yield "odd bool as numbers", ev.i32, _ODD
    yield "text", str, np.array(["a", "", "né", "\U0001f600b"])
    yield "short text", ev.Str[8], np.array(["a", "", "né", "longer"])
    yield "ASCII", ev.Str[8], np.array(["a", "", "b c", "longer"])
    yield "bytes", bytes, np.array([b"a", b"", b"\xff\xfe"])
    yield "short bytes", ev.Bytes[4], np.array([b"a", b"", b"\xff\xfe"])
    yield "text objects", str, np.array(["a", "né"], object)
    yield "enumeration", _SIDE, np.array(["sell", "buy", "sell"])
    yield "UUID", ev.UUID, np.array([uuid.UUID(int=1), uuid.UUID(int=2**127)], object)
    for kind in (ev.Decimal[10, 2], ev.Decimal[30, 2]):
        yield kind.text, kind, np.array([decimal.Decimal("1.25"), decimal.Decimal(-5)], object)
        yield f"{kind.text} of ints", kind, np.array([5, -6], np.int16)
        yield f"{kind.text} of texts", kind, np.array(["5", "19.90"])
    for unit in ("Y", "M", "W", "D", "h", "m", "s", "ms", "us", "ns"):
        yield f"time in {unit}", ev.Timestamp, np.array([0, 1, -3], f"M8[{unit}]")
        if unit not in "YM":
            yield f"duration in {unit}", ev.Duration, np.array([0, 1, -3], f"m8[{unit}]")
    yield "time in ns as ints", ev.Timestamp, np.array([0, 5, -(2**62)])
    yield "time of datetimes", ev.Timestamp, np.array([datetime.datetime.now(datetime.UTC)], object)


def _layouts(column: Column) -> Iterator[tuple[str, Any]]:
    n = len(column)
    times = column.dtype.kind in "mM"
    read_only = column.copy()
    read_only.flags.writeable = False
    packed = np.zeros(n, [("skipped", "i1"), ("value", column.dtype, column.shape[1:])])
    packed["value"] = column
    gaps = np.repeat(column, 2, axis=0)[::2]
    yield "plain", column
    yield "list", list(column)
    yield "tuple", tuple(column)
    yield "gaps", gaps
    yield "backwards", column[::-1].copy()[::-1]
    yield "a dtype object of its own", column.astype(column.dtype.newbyteorder("="))
    yield "swapped bytes", column.astype(column.dtype.newbyteorder("S"))
    yield "read-only", read_only
    yield "Fortran order", np.asfortranarray(column)
    yield "unaligned", packed["value"]
    yield "masked array without a mask", np.ma.array(column)
    yield "record array", packed.view(np.recarray)["value"]
    if column.ndim == 2:
        yield "matrix", column.view(np.matrix)
    if not times:
        yield "nested lists", column.tolist()
        yield "objects", column.astype(object)
    if column.dtype.kind in "biuf":
        yield "memoryview", memoryview(column)
        yield "memoryview with gaps", memoryview(gaps)
        yield "read-only memoryview", memoryview(column).toreadonly()
    if column.ndim == 1:
        yield from _foreign(column)
    else:
        yield "Series of arrays", pd.Series(list(column))
        if column.ndim == 2:
            yield from _slices(
                pa.FixedSizeListArray.from_arrays(pa.array(column.reshape(-1)), column.shape[1])
            )
            yield from _slices(pa.array(column.tolist(), pa.list_(pa.from_numpy_dtype(column.dtype))))


def _foreign(column: Column) -> Iterator[tuple[str, Any]]:
    """A column of single values as pandas and pyarrow have it."""
    if column.dtype.kind == "b":
        column = column.astype("u1") != 0  # what pandas and pyarrow make of other bytes is theirs to say
    yield "Series", pd.Series(column)
    yield "Series with an index", pd.Series(column, index=range(10, 10 + len(column)))
    yield "Series with gaps", pd.Series(np.repeat(column, 2))[::2]
    yield "Index", pd.Index(column)
    if column.dtype.kind != "S":
        yield "nullable", pd.Series(column).convert_dtypes(convert_integer=False, convert_floating=False)
    if column.dtype.kind in "iu":
        yield (
            "nullable numbers",
            pd.Series(column).astype(f"{'U' * (column.dtype.kind == 'u')}Int{8 * column.itemsize}"),
        )
    yield "categories", pd.Series(column).astype("category")
    if column.dtype.kind in "mM":
        column = np.asarray(pd.Series(column))
    if column.dtype != object or not isinstance(column[0], uuid.UUID):
        array = pa.array(column)
        yield from _slices(array)
        yield "Series of pyarrow", pd.Series(pd.arrays.ArrowExtensionArray(pa.chunked_array([array])))
        if not pa.types.is_decimal(array.type):
            yield "dictionary", array.dictionary_encode()


def _slices(array: pa.Array) -> Iterator[tuple[str, Any]]:
    n = len(array)
    yield "pyarrow", array
    yield "pyarrow from an offset on", pa.concat_arrays([array[:1], array, array[:1]])[min(n, 1) :][:n]
    yield "chunks", pa.chunked_array([array[:1], array[1:1], array[1:]], array.type)


_FEW = ("i1", "u4", "f8", "D", "s", "ns")
"""Numbers and units of time that are quick tests; the others differ from them by their width or a factor."""


def _is_slow(case: str) -> bool:
    return not {*_NUMBERS, *"YMWDhms", "ms", "us", "ns"}.isdisjoint(words := case.split()) and not any(
        word in _FEW for word in words
    )


@pytest.mark.parametrize(
    ("kind", "column"),
    [pytest.param(*case[1:], id=case[0], marks=[pytest.mark.slow] * _is_slow(case[0])) for case in _cases()],
)
def test_a_column_gives_the_events_of_its_values_however_it_lies(
    kind: Any, column: Column, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every form of a column, for a field alone, and for one and an optional one behind a text; by numpy, and
    by machine code."""
    layouts = list(_layouts(column))
    for fields in ({"x": kind}, {"z": ev.Str[2], "x": kind, "y": kind | None}):
        both = fields.keys() & {"x", "y"}
        schema = ev.Schema("layout", fields)
        values = [value != 0 for value in column.view(np.uint8)] if column.dtype == bool else list(column)
        one_by_one = [schema(**dict.fromkeys(fields, "z") | dict.fromkeys(both, value)) for value in values]
        expected = ev.EventBatch.from_events(one_by_one, schema).to_bytes()
        if len(fields) == 1 and column.dtype == bool:
            ev.EventBatch.from_bytes(schema, expected, len(column))
        for many, (layout, form) in product((1_000_000, 0), layouts):
            monkeypatch.setattr(direct, "_MANY", many)
            columns = dict.fromkeys(fields, ["z"] * len(column)) | dict.fromkeys(both, form)
            found = ev.EventBatch.from_columns(schema, columns).to_bytes()
            assert found == expected, (many, layout)


def test_many_rows_of_any_layout_are_written_by_machine_code_as_by_numpy() -> None:
    """Machine code takes over after some thousands of rows; it reads columns with gaps and odd booleans."""
    n = 25_000
    kinds = {
        "b": bool,
        "f": ev.Array[bool, 2],
        "i": ev.i16,
        "w": ev.i64,
        "a": ev.Array[ev.f32, 3],
        "t": ev.Str[4],
    }
    odd = np.random.default_rng(1).integers(0, 256, 4 * n, np.uint8) * np.tile(
        np.array([0, 1], np.uint8), 2 * n
    )
    small = np.repeat(_numbers(2, "i2", (n,)), 3)
    columns = {
        "b": odd.view(bool)[1::4],
        "f": odd.view(bool)[: 2 * n].reshape(2, n).T,
        "i": small[::3],
        "w": small[::-3],
        "a": np.asfortranarray(_numbers(3, "f4", (n, 3))),
        "t": np.tile(np.array(["a", "bcd"]), n)[::2],
    }
    plain = {name: np.ascontiguousarray(column) for name, column in columns.items()}
    plain |= {name: plain[name].view(np.uint8) != 0 for name in "bf"}
    expected = ev.EventBatch.from_columns(ev.Schema("numpy", kinds), plain).to_bytes()
    schema = ev.Schema("machine", kinds)
    for _ in range(3):
        assert ev.EventBatch.from_columns(schema, columns).to_bytes() == expected
    ev.EventBatch.from_bytes(schema, expected, n)


@pytest.mark.parametrize("kind", [ev.Array[bool, 4], ev.Array[bool, None], list[bool]])
def test_events_hold_booleans_of_any_byte_as_0_and_1(kind: Any) -> None:
    schema = ev.Schema("odd", {"x": kind})
    expected = ev.EventBatch.from_events([schema(x=[False, True, True, True])]).to_bytes()
    assert ev.EventBatch.from_events([schema(x=_ODD)] * 3).to_bytes() == expected * 3
    arrived: list[Any] = []
    g = ev.Graph()
    _ = g.source("in", schema) >> ev.Terminal(lambda event: arrived.append(list(event.x)))
    with g.run() as flow:
        for _ in range(300):
            flow["in"].submit(schema(x=_ODD))
        flow.drain()
    assert arrived == [[False, True, True, True]] * 300


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


NANOSECONDS = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3_600 * 10**9}
NANOSECONDS |= {"D": 24 * NANOSECONDS["h"], "W": 7 * 24 * NANOSECONDS["h"]}


@given(
    unit=st.sampled_from([*NANOSECONDS]), many=st.integers(1, 50),
    n=st.one_of(st.integers(-(10**6), 10**6), st.integers(-(2**62), 2**62)),
)  # fmt: skip
def test_a_time_alone_in_any_unit_of_numpy_is_what_its_nanoseconds_say(unit: str, many: int, n: int) -> None:
    schema = ev.Schema("lap", {"at": ev.Timestamp, "took": ev.Duration})
    values = {"at": np.datetime64(n, (unit, many)), "took": np.timedelta64(n, (unit, many))}
    expected = n * many * NANOSECONDS[unit]
    for field, value in values.items():
        lap = schema(**({"at": 0, "took": 0} | {field: value}))
        if abs(expected) < 2**63:
            batch = ev.EventBatch.from_events([lap])
            assert int(batch.column(field).view(">i8")[0]) == expected
        else:
            with pytest.raises(SchemaError, match=f"field {field}: .*within 292 years"):
                ev.EventBatch.from_events([lap])
