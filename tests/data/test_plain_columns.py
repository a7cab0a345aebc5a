"""Columns that are assigned as they are, against the careful way and against events encoded one by one."""

from __future__ import annotations

from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import some

from evflow.errors import SchemaError
from evflow.events.batch import EventBatch
from evflow.events.columns import direct, plain, writing
from evflow.events.encode import encode_dict
from evflow.schema import Schema
from evflow.schema.types import NUMBERS, Array, Bytes, Maybe, Number, Str, boolean, f32, f64, i32, i64

LEG = Schema("leg", {"price": f64, "side": Str(2), "open": boolean}, {"side": "b"})
KINDS: list[Any] = [
    *NUMBERS.values(), Str(1), Str(5), Array(f64, (2,)), Array(i32, (2, 3)), Array(f32, (0,)),
    Array(boolean, (2,)), Bytes(3), LEG, str, Maybe(i64),
]  # fmt: skip
NUMERIC = ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "?"]


def outcome(schema: Schema, columns: Any) -> Any:
    """The bytes and the number of rows of a batch, or what is wrong with its columns."""
    try:
        batch = EventBatch.from_columns(schema, columns)
    except SchemaError as error:
        return str(error)
    assert not batch.data.flags.writeable
    return len(batch), batch.to_bytes()


def careful(schema: Schema, columns: Any) -> Any:
    """The same from the careful way alone."""

    def fields_of(rows: Any, at: int, schema: Schema, given: Any) -> list[Any]:
        return [field for field in schema.fields if field.offset is not None]

    with mock.patch.multiple(
        writing,
        plain_length=lambda *_: None,
        fill_plain=fields_of,
        fill_rows=lambda *_: False,
        table_encoder=lambda *_: None,
    ):
        return outcome(schema, columns)


def by_code(schema: Schema, columns: Any) -> Any:
    """The same from machine code, where that takes the columns."""
    with mock.patch.object(plain, "_MANY", 0), mock.patch.object(writing, "LARGE", 1):
        return outcome(schema, columns)


def row_by_row(schema: Schema, columns: Any) -> Any:
    """The same from the machine code that writes tables row by row, where that takes the columns."""
    with mock.patch.object(direct, "_MANY", 0), mock.patch.object(writing, "fill_rows", lambda *_: False):
        return outcome(schema, columns)


@st.composite
def laid_out(draw: st.DrawFn, values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The same values, differently in memory."""
    how = draw(st.sampled_from(["plain", "plain", "apart", "backwards", "read-only", "unaligned", "fortran"]))
    if how == "apart":
        wide = np.zeros((len(values), 3, *values.shape[1:]), values.dtype)
        wide[:, 1] = values
        return wide[:, 1]
    if how == "backwards":
        return values[::-1].copy()[::-1]
    if how == "unaligned":
        packed = np.zeros(len(values), [("a", "u1"), ("b", values.dtype, values.shape[1:])])
        packed["b"] = values
        return packed["b"]
    result = np.asfortranarray(values) if how == "fortran" else values.copy()
    if how == "read-only":
        result.flags.writeable = False
    return result


@st.composite
def numbers(draw: st.DrawFn, kind: Number, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """An array of numbers, mostly such that fit; floats of any bits."""
    name = draw(st.sampled_from([f"{kind.kind}{kind.size}" if kind.size else "?"] * 8 + NUMERIC))
    dtype = np.dtype(draw(st.sampled_from("<>")) + name)
    if dtype.kind == "b" or draw(st.booleans()):
        drawn = draw(st.lists(st.integers(0, 1), min_size=int(np.prod(shape)), max_size=int(np.prod(shape))))
        return np.array(drawn, dtype).reshape(shape)
    size = int(np.prod(shape)) * dtype.itemsize
    bits = draw(st.binary(min_size=size, max_size=size))
    return draw(laid_out(np.frombuffer(bits, dtype).reshape(shape)))


@st.composite
def texts(draw: st.DrawFn, n: int) -> Any:
    """A column of text, mostly short and of ASCII."""
    alphabet = draw(st.sampled_from(["ab", "ab", "abä\0", "日\udc00a"]))
    values = draw(st.lists(st.text(alphabet, max_size=6), min_size=n, max_size=n))
    form = draw(st.sampled_from(["S", "U", "<U3", ">U3", "S9", "list", "O"]))
    if form == "list":
        return values
    if "S" in form:
        return draw(laid_out(np.array([v.encode(errors="replace") for v in values], form)))
    return draw(laid_out(np.array(values, form)))


@st.composite
def columns_for(draw: st.DrawFn, kind: Any, n: int) -> Any:
    """A column for a field, in one of many forms."""
    if isinstance(kind, Schema):
        return {
            f.name: draw(columns_for(f.type, n)) for f in kind.fields if f.required or draw(st.booleans())
        }
    if isinstance(kind, Array):
        made: Any = draw(numbers(kind.element, (n, *(m or 0 for m in kind.shape))))
    elif isinstance(kind, Bytes):
        return draw(st.lists(st.binary(max_size=3), min_size=n, max_size=n))
    elif isinstance(kind, (Number, Maybe)):
        made = draw(numbers(kind if isinstance(kind, Number) else i64, (n,)))
    else:
        made = draw(texts(n))
    if isinstance(made, np.ndarray):
        form = draw(
            st.sampled_from(["as it is"] * 8 + ["list", "tuple", "subclass", "object", "masked", "column"])
        )
        if form in ("list", "tuple"):
            return made.tolist() if form == "list" else tuple(made.tolist())
        if form == "object":
            return made.astype(object)
        if form == "masked":
            return np.ma.array(made, mask=False)
        if form == "subclass":
            return made.view(np.memmap)
        if form == "column":
            return made.reshape(*made.shape, 1)
    return made


@some
@given(st.data())
def test_plain_columns_give_what_the_careful_way_gives(data: st.DataObject) -> None:
    kinds = data.draw(st.lists(st.sampled_from(KINDS), min_size=1, max_size=5))
    schema = Schema("s", {f"x{i}": kind for i, kind in enumerate(kinds)})
    n = data.draw(st.integers(0, 4))
    columns = {f"x{i}": data.draw(columns_for(kind, n)) for i, kind in enumerate(kinds)}
    twist = data.draw(
        st.sampled_from(["", "", "", "", "longer", "missing", "more", "member", "scalar", "order"])
    )
    if twist == "longer":
        columns["x0"] = np.zeros(n + 1)
    elif twist == "missing":
        del columns["x0"]
    elif twist == "more":
        columns["other"] = data.draw(st.sampled_from([5, None, np.zeros(9), [1]]))
    elif twist == "member":
        columns["x0.price"] = np.zeros(data.draw(st.integers(0, 4)))
    elif twist == "scalar":
        columns["x0"] = data.draw(st.sampled_from([np.array(5), "text", None, {}, 7]))
    elif twist == "order":
        columns = dict(reversed(columns.items()))
    assert outcome(schema, columns) == by_code(schema, columns) == careful(schema, columns)
    assert row_by_row(schema, columns) == careful(schema, columns)


@some
@given(st.data())
def test_plain_numbers_encode_what_events_do(data: st.DataObject) -> None:
    kinds = data.draw(st.lists(st.sampled_from(list(NUMBERS.values())), min_size=1, max_size=17))
    schema = Schema("s", {f"x{i}": kind for i, kind in enumerate(kinds)})
    n = data.draw(st.integers(0, 3))
    columns = {}
    for i, kind in enumerate(kinds):
        drawn = data.draw(st.binary(min_size=n * max(kind.size, 1), max_size=n * max(kind.size, 1)))
        values = (
            np.frombuffer(drawn, np.uint8) % 2 == 1 if kind is boolean else np.frombuffer(drawn, kind.dtype)
        )
        # Python's floats need not keep every bit of a NaN.
        values = np.where(values == values, values, 0).astype(kind.dtype)
        dtype = data.draw(st.sampled_from([kind.dtype, kind.dtype.newbyteorder()]))
        columns[f"x{i}"] = data.draw(laid_out(values.astype(dtype)))
    rows = [{name: column[row].item() for name, column in columns.items()} for row in range(n)]
    expected = n, b"".join(encode_dict(schema, row) for row in rows)
    assert outcome(schema, columns) == by_code(schema, columns) == row_by_row(schema, columns) == expected


@pytest.mark.parametrize(("kind", "bits"), [(f32, 0x7F800001), (f64, 0xFFF0000000000123)])
def test_plain_columns_keep_the_bits_of_nan(kind: Number, bits: int) -> None:
    column = np.array([bits], f"u{kind.size}").view(kind.dtype)
    swapped = column.byteswap().view(kind.dtype.newbyteorder())
    for given_ in (column, swapped):
        for encoded in (outcome, by_code):
            _, data = encoded(Schema("s", {"x": kind}), {"x": given_})
            assert data[2:] == bits.to_bytes(kind.size, "big")


@pytest.mark.parametrize("target", NUMBERS.values(), ids=repr)
def test_plain_columns_are_only_of_types_that_always_fit(target: Number) -> None:
    for dtype in map(np.dtype, NUMERIC):
        kept = _all_kept(dtype, target)
        for ordered in (dtype, dtype.newbyteorder()):
            assert kept or ordered not in plain._FITTING[target], dtype


def _all_kept(dtype: np.dtype[Any], target: Number) -> bool:
    """Whether a number type has the numbers at the edges of one of numpy's."""
    if dtype.kind == "b":
        edges: list[Any] = [False, True]
    elif dtype.kind in "iu":
        edges = [int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)]
    else:
        edges = [float(np.finfo(dtype).max), 0.5]
    with np.errstate(all="ignore"):
        return all(np.array(edge, dtype).astype(target.dtype).item() == edge for edge in edges)


@pytest.mark.parametrize("n", [1, 1000])
def test_plain_columns_need_no_closer_look(n: int) -> None:
    schema = Schema("s", {"a": i32, "b": f64, "c": Str(4), "d": boolean, "e": Array(f64, (2,)), "leg": LEG})
    leg = {"price": np.ones(n), "side": np.array(["b"] * n), "open": np.zeros(n, "?")}
    columns = {
        "a": np.arange(n, dtype=np.int32), "b": np.ones(n, ">f8"), "c": np.array([b"abc"] * n),
        "d": np.ones(n, "?"), "e": np.ones((n, 2)), "leg": leg, "f": None,
    }  # fmt: skip
    expected = careful(schema, columns)
    with (
        mock.patch.object(writing, "fitting_column", side_effect=AssertionError),
        mock.patch.object(writing, "convert_array", side_effect=AssertionError),
        mock.patch.object(writing, "text_pieces", side_effect=AssertionError),
    ):
        assert outcome(schema, columns) == expected


@pytest.mark.parametrize("kinds", [["f8"], ["i4", "f8", "S4", "?", "(2,)f8", "u2", "S1"], ["(200,)f8", "?"]])
@pytest.mark.parametrize("n", [1, 7, 1000, pytest.param(25_001, marks=pytest.mark.slow)])
def test_rows_of_many_are_written_by_machine_code(kinds: list[str], n: int) -> None:
    """A few rows at a time, of columns that lie anywhere; and once so many have come by itself."""
    chance = np.random.default_rng(n)
    of = {"S4": Str(5), "S1": Str(1), "(2,)f8": Array(f64, (2,)), "(200,)f8": Array(f64, (200,))}
    simple = {"f8": f64, "i4": i32, "?": boolean, "u2": NUMBERS["u16"]}
    schema = Schema("s", {f"x{i}": (of | simple)[kind] for i, kind in enumerate(kinds)})
    table = np.zeros(n, [(f"x{i}", kind) for i, kind in enumerate(kinds)])
    for name, kind in zip(table.dtype.names or (), kinds, strict=True):
        drawn = chance.integers(0, 2 if kind == "?" else 90, table[name].shape)
        table[name] = np.char.add("t", drawn.astype("U2")) if kind[0] == "S" else drawn
    columns = {name: table[name] for name in table.dtype.names or ()}
    expected = careful(schema, columns)
    with mock.patch.object(writing, "fill_plain", side_effect=AssertionError):
        assert by_code(schema, columns) == expected
        assert n < 25_000 or outcome(schema, columns) == expected


def test_plain_columns_of_long_text_are_checked_too() -> None:
    column = np.array([b"x" * 40] * 1000)
    schema = Schema("s", {"x": Str(40)})
    assert outcome(schema, {"x": column}) == careful(schema, {"x": column})
    column[777] = b"\xff"
    assert "row 777" in outcome(schema, {"x": column})
