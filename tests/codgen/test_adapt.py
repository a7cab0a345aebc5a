"""Events of one schema as events of another: what converts, what is refused, what no function can say."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from evflow import Schema, SchemaError
from evflow.codgen.adapt import adapt, needs
from evflow.codgen.tree import Fault
from evflow.schema.types import (
    NUMBERS,
    Array,
    Bytes,
    FieldType,
    ListOf,
    Maybe,
    Record,
    Str,
    f32,
    f64,
    i16,
    i32,
)
from tests.codgen.interpret import interpret


def schema(name: str, /, **fields: Any) -> Schema:
    return Schema(name, fields)


def adapted(actual: Schema, declared: Schema, event: dict[str, Any]) -> dict[str, Any]:
    """The event as one of the declared schema."""
    function = adapt(actual, declared)
    assert function is not None
    outcome = interpret(function, event)
    assert outcome.fault == Fault.NONE
    return dict(outcome.emitted[0].event)


def test_numbers_texts_and_defaults() -> None:
    declared = Schema(
        "d",
        {"a": int, "b": f32, "c": str, "d": Str[4], "e": bool, "f": float, "g": Maybe(f64)},
        {"f": 2.5, "g": None},
    )
    actual = schema("a", x=str, e=NUMBERS["u8"], d=str, c=Bytes[8], b=float, a=i16)
    event = {"x": "extra", "e": 1, "d": "IBM", "c": b"text", "b": 1.5, "a": -3}
    expected = {"a": -3, "b": 1.5, "c": "text", "d": "IBM", "e": True, "f": 2.5, "g": None}
    assert adapted(actual, declared, event) == expected


def test_64_bit_float_in_a_32_bit_field_is_itself_where_it_fits() -> None:
    assert adapted(schema("wide", x=float), schema("narrow", x=f32), {"x": 1.5}) == {"x": 1.5}


@pytest.mark.parametrize(
    ("actual", "declared", "value", "fault"),
    [
        (i32, i16, 40_000, Fault.RANGE),
        (NUMBERS["u64"], NUMBERS["i64"], 2**63, Fault.RANGE),
        (f64, i32, 2.5, Fault.RANGE),
        (f64, f32, 1e300, Fault.RANGE),
        (NUMBERS["i64"], f64, 2**53 + 1, Fault.RANGE),
        (i32, NUMBERS["bool"], 2, Fault.RANGE),
        (Str[8], Str[3], "four", Fault.TEXT),
        (Maybe(f64), f64, None, Fault.ABSENT),
        (Array[i32, 2], Array[i16, 2], [1, 70_000], Fault.RANGE),
    ],
)
def test_value_that_does_not_fit_is_a_fault(
    actual: FieldType, declared: FieldType, value: Any, fault: Fault
) -> None:
    function = adapt(schema("a", x=actual), schema("d", x=declared))
    assert function is not None
    assert interpret(function, {"x": value}).fault == fault


def test_records_arrays_and_optionals() -> None:
    inner = schema("inner", n=i16, w=float, extra=str)
    wanted = schema("wanted", w=f32, n=int)
    same = schema("same", t=str)
    actual = schema(
        "a",
        sub=inner,
        grid=Array[i32, 2, 3],
        wave=Array[f64, None],
        level=Maybe(i16),
        gone=Maybe(i16),
        plain=i16,
        parts=ListOf(Record("same", {"same": same})),
        opt=Maybe(Record("same", {"same": same})),
    )
    declared = schema(
        "d",
        grid=Array[f64, 2, 3],
        wave=Array[f64, None],
        sub=wanted,
        level=Maybe(f64),
        gone=Maybe(f64),
        plain=Maybe(NUMBERS["i64"]),
        parts=ListOf(Record("same", {"same": same})),
        opt=Maybe(Record("same", {"same": same})),
    )
    event = {
        "sub": {"n": 2, "w": 0.5, "extra": "x"},
        "grid": [[1, 2, 3], [4, 5, 6]],
        "wave": np.array([1.0, 2.0]),
        "level": 3,
        "gone": None,
        "plain": 4,
        "parts": [{"t": "p"}],
        "opt": {"t": "q"},
    }
    result = adapted(actual, declared, event)
    assert result.pop("grid").tolist() == [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]
    assert result.pop("wave").tolist() == [1.0, 2.0]
    assert result == {
        "sub": {"w": 0.5, "n": 2},
        "level": 3.0,
        "gone": None,
        "plain": 4,
        "parts": [{"t": "p"}],
        "opt": {"t": "q"},
    }


def test_large_array_does_not_run_out_of_fuel() -> None:
    function = adapt(schema("a", x=Array[f32, 4000, 4000]), schema("d", x=Array[f64, 4000, 4000]))
    assert function is not None
    assert function.fuel > 4000 * 4001


@pytest.mark.parametrize(
    ("actual", "declared"),
    [
        (ListOf(i16), ListOf(i32)),
        (Array[f32, None], Array[f64, None]),
        (Array[f32, 3], Array[f32, None]),
        (Maybe(Array[f32, 3]), Maybe(Array[f64, 3])),
    ],
)
def test_what_no_function_can_say_is_none(actual: FieldType, declared: FieldType) -> None:
    assert adapt(schema("a", x=actual), schema("d", x=declared)) is None
    assert needs(schema("a", x=actual), schema("d", x=declared)) == "convert"


def test_needs_tells_how_much_there_is_to_do() -> None:
    declared = Schema("d", {"a": int, "b": float, "c": str}, {"c": ""})
    assert needs(declared, declared) == "same"
    assert needs(schema("other", a=int, b=float, c=str), declared) == "same"
    assert needs(schema("other", b=float, a=int, c=str), declared) == "subset"
    assert needs(schema("other", a=int, b=float, c=str, d=int), declared) == "subset"
    assert needs(schema("other", a=i16, b=float, c=str), declared) == "convert"
    assert needs(schema("other", a=int, b=float), declared) == "convert"


def test_misfit_names_every_field() -> None:
    declared = schema(
        "d",
        a=int,
        b=str,
        c=Array[f64, 3],
        d=ListOf(i16),
        e=Record("sub", {"sub": schema("sub", x=int, y=int)}),
    )
    actual = schema("a", b=float, c=Array[f64, 4], d=ListOf(Str[3]), e=schema("sub", x=str))
    message = (
        "events of a do not fit d: field a (i64) is missing and has no default; "
        "field b is f64, expected str; "
        "field c is array(f64,4), expected array(f64,3); field d[] is str[3], expected i16; "
        "field e.x is str, expected i64; field e.y (i64) is missing and has no default"
    )
    for attempt in (adapt, needs):
        with pytest.raises(SchemaError) as caught:
            attempt(actual, declared)
        assert str(caught.value) == message


def test_recursive_records_are_compared_once() -> None:
    def tree(name: str, value: FieldType) -> Schema:
        return Schema(name, {"value": value, "children": "list(record(%s))" % name})  # noqa: UP031

    assert needs(tree("node", i16), tree("node", i32)) == "convert"
    with pytest.raises(SchemaError, match="field value is str"):
        needs(tree("node", Str[2]), tree("node", i32))
