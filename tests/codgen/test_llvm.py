"""Single operations as machine code of both tiers: hand-made trees, against the interpreter."""

from __future__ import annotations

import math
import struct
from typing import Any

import llvmlite.binding as llvm
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evflow.codgen import interpret
from evflow.codgen.front import Input, build
from evflow.codgen.jit import kernel
from evflow.codgen.kernel import Kernel, Port, Stage
from evflow.codgen.library import LIBRARY
from evflow.codgen.tree import (
    Assign,
    Binary,
    Block,
    Call,
    Compare,
    Const,
    Convert,
    Expr,
    Function,
    Load,
    Path,
    Pos,
    Return,
    Root,
    Run,
    Step,
    Unary,
)
from evflow.events.batch import EventBatch
from evflow.events.decode import decode
from evflow.events.encode import encode_dict
from evflow.schema import Schema
from evflow.schema.types import NUMBERS, TEXT, Number, Str
from tests.codgen.oracle import plain, records_at, run, run_kernel

POS = Pos(1, 1)
INTEGERS = ["i32", "u32", "i64", "u64"]
KINDS = [name for name in NUMBERS if name != "bool"]


def schema_of(*kinds: str) -> Schema:
    return Schema("Values", {f"v{i}": NUMBERS[kind] for i, kind in enumerate(kinds)})


def load(schema: Schema, index: int) -> Load:
    field = schema.fields[index]
    assert isinstance(field.type, Number)
    return Load(type=field.type.name, pos=POS, place=Path(Root("input", 0), (Step(field.name),), field.type))


def transform(schema: Schema, result: Expr) -> Function:
    """A transform whose output field ``r`` is the value of an expression."""
    out = Schema("Out", {"r": NUMBERS[result.type]})
    place = Path(Root("output", 0), (Step("r"),), NUMBERS[result.type])
    store = Run(pos=POS, value=Assign(type=result.type, pos=POS, place=place, value=result))
    done = Return(pos=POS, value=Const(type="i64", pos=POS, value=1))
    return Function(
        kind="transform",
        source="",
        inputs=(("input", schema),),
        outputs=(("output", out),),
        body=Block(pos=POS, body=(store, done)),
    )


def compiled(function: Function, *, optimised: bool) -> Kernel:
    schema = function.inputs[0][1]
    made = kernel((Stage(function, 0, (Port((), 0),)),), schema)
    llvm.parse_assembly(made.dump_ir()).verify()
    if optimised:
        made.code.saw(1 << 30)
    return made


def machine(function: Function, rows: list[tuple[Any, ...]], *, optimised: bool) -> list[Any]:
    """The values of ``r`` for rows of inputs, or the name of the fault."""
    schema = function.inputs[0][1]
    assert schema is not None
    events = [encode_dict(schema, {f"v{i}": v for i, v in enumerate(row)}) for row in rows]
    result = run_kernel(compiled(function, optimised=optimised), EventBatch.from_encoded(schema, events))
    found: list[Any] = [None] * len(rows)
    for position, record in records_at(result, 0):
        found[position] = plain(record["r"])
    for note in result.faults:
        found[note.position] = note.fault.name
    return found


def oracle(function: Function, rows: list[tuple[Any, ...]]) -> list[Any]:
    found = []
    for row in rows:
        outcome = interpret.interpret(function, {f"v{i}": v for i, v in enumerate(row)})
        if outcome.fault:
            found.append(outcome.fault.name)
        else:
            out = function.outputs[0][1]
            found.append(plain(decode(out, encode_dict(out, outcome.emitted[0].event))["r"]))
    return found


def edges(kind: str) -> list[Any]:
    """Values of a type where something may go wrong."""
    number = NUMBERS[kind]
    if number.kind == "f":
        values = [
            0.0,
            -0.0,
            1.5,
            -1.5,
            2.5,
            -0.5,
            1e30,
            -1e30,
            5e-324,
            9.2e18,
            1.9e19,
            3e38,
            math.inf,
            -math.inf,
            math.nan,
        ]
        values += [
            2.0**31,
            -(2.0**31),
            2.0**32,
            2.0**63,
            -(2.0**63),
            2.0**64,
            255.0,
            256.0,
            -129.0,
            16777217.0,
        ]
        return (
            [struct.unpack("<f", struct.pack("<f", v))[0] for v in values]
            if number.size == 4
            else [*values, 1e300]
        )
    bits = number.size * 8
    low = 0 if number.kind == "u" else -(1 << (bits - 1))
    high = low + (1 << bits) - 1
    near = [
        low,
        low + 1,
        -2,
        -1,
        0,
        1,
        2,
        3,
        7,
        63,
        64,
        65,
        high - 1,
        high,
        high // 2,
        16777217,
        (1 << 53) + 1,
        (1 << 62) - 1,
    ]
    return sorted({value for value in near if low <= value <= high})


def pairs(kind: str) -> list[tuple[Any, ...]]:
    values = edges(kind)
    return [(a, b) for a in values for b in values]


def check(function: Function, rows: list[tuple[Any, ...]]) -> None:
    wanted = oracle(function, rows)
    for optimised in (False, True):
        assert machine(function, rows, optimised=optimised) == wanted


@pytest.mark.parametrize("kind", INTEGERS)
@pytest.mark.parametrize("op", "add sub mul div rem floordiv mod and or xor shl shr".split())
def test_integer_operation(op: str, kind: str) -> None:
    schema = schema_of(kind, kind)
    check(
        transform(schema, Binary(type=kind, pos=POS, op=op, left=load(schema, 0), right=load(schema, 1))),
        pairs(kind),
    )


@pytest.mark.parametrize("kind", ["i32", "i64"])
@pytest.mark.parametrize("divisor", [-1, 0, 1, -3, 7])
@pytest.mark.parametrize("op", "div rem floordiv mod".split())
def test_division_by_a_constant(op: str, divisor: int, kind: str) -> None:
    schema = schema_of(kind)
    right = Const(type=kind, pos=POS, value=divisor)
    expr = Binary(type=kind, pos=POS, op=op, left=load(schema, 0), right=right)
    check(transform(schema, expr), [(value,) for value in edges(kind)])


@pytest.mark.parametrize("kind", ["f32", "f64"])
@pytest.mark.parametrize("op", "add sub mul div rem floordiv mod".split())
def test_float_operation(op: str, kind: str) -> None:
    schema = schema_of(kind, kind)
    check(
        transform(schema, Binary(type=kind, pos=POS, op=op, left=load(schema, 0), right=load(schema, 1))),
        pairs(kind),
    )


def test_product_and_sum_are_rounded_one_by_one() -> None:
    schema = schema_of("f64", "f64", "f64")
    product = Binary(type="f64", pos=POS, op="mul", left=load(schema, 0), right=load(schema, 1))
    expr = Binary(type="f64", pos=POS, op="add", left=product, right=load(schema, 2))
    row = (1.0 + 2.0**-30, 1.0 + 2.0**-30, -1.0)
    expected = row[0] * row[1] + row[2]
    assert expected != math.fsum([row[0] * row[1], 2.0**-60, row[2]])  # what one rounding would give
    for optimised in (False, True):
        assert machine(transform(schema, expr), [row], optimised=optimised) == [plain(expected)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("op", ["eq", "ne", "lt", "le", "gt", "ge"])
def test_comparison(op: str, kind: str) -> None:
    schema = schema_of(kind, kind)
    expr = Compare(type="bool", pos=POS, op=op, left=load(schema, 0), right=load(schema, 1))
    check(transform(schema, expr), pairs(kind))


@pytest.mark.parametrize("kind", ["i32", "u32", "i64", "u64", "f32", "f64"])
def test_negation_and_inversion(kind: str) -> None:
    schema = schema_of(kind)
    for op in ("neg",) if kind[0] == "f" else ("neg", "inv"):
        expr = Unary(type=kind, pos=POS, op=op, operand=load(schema, 0))
        check(transform(schema, expr), [(value,) for value in edges(kind)])


@pytest.mark.parametrize("checked", [False, True])
@pytest.mark.parametrize("source", KINDS)
def test_conversion(source: str, checked: bool) -> None:
    schema = schema_of(source)
    for target in NUMBERS:
        expr = Convert(type=target, pos=POS, operand=load(schema, 0), checked=checked)
        check(transform(schema, expr), [(value,) for value in edges(source)])


@pytest.mark.parametrize("target", KINDS)
def test_conversion_of_bool(target: str) -> None:
    schema = schema_of("bool")
    check(transform(schema, Convert(type=target, pos=POS, operand=load(schema, 0))), [(True,), (False,)])


@pytest.mark.parametrize(
    ("value", "expected"), [(1e30, 2**31 - 1), (-1e30, -(2**31)), (math.nan, 0), (-1.9, -1)]
)
def test_float_to_integer_saturates(value: float, expected: int) -> None:
    schema = schema_of("f64")
    expr = Convert(type="i32", pos=POS, operand=load(schema, 0))
    assert machine(transform(schema, expr), [(value,)], optimised=False) == [expected]


@pytest.mark.parametrize("name", [n for n, f in LIBRARY.items() if set(f.parameters) == {"f64"}])
def test_function_of_floats(name: str) -> None:
    parameters, result = LIBRARY[name]
    schema = schema_of(*parameters)
    call = Call(type=result, pos=POS, name=name, args=tuple(load(schema, i) for i in range(len(parameters))))
    rows = (
        pairs("f64")
        if len(parameters) == 2
        else [(v,) for v in [*edges("f64"), 0.1, 0.49999999999999994, 710.0, -745.5]]
    )
    check(transform(schema, call), rows)


def test_abs_of_the_least_integer_wraps() -> None:
    schema = schema_of("i64")
    call = Call(type="i64", pos=POS, name="abs", args=(load(schema, 0),))
    rows = [(-(2**63),), (-5,), (7,)]
    assert machine(transform(schema, call), rows, optimised=False) == [-(2**63), 5, 7]


TEXTS = ["", "a", "ab", "abc", "b", "abcdefgh", "abcdefghi", "é", "a\0b", "zz", "x" * 16, "x" * 17, "x" * 20]
TEXT_OPERATIONS = [
    "input.v{a} == input.v{b}", "input.v{a} != input.v{b}",
    "input.v{a} < input.v{b}", "input.v{a} >= input.v{b}",
    "starts_with(input.v{a}, input.v{b})", "ends_with(input.v{a}, input.v{b})",
    "contains(input.v{a}, input.v{b})", "length(input.v{a}) > length(input.v{b})",
]  # fmt: skip


@pytest.mark.parametrize("code", TEXT_OPERATIONS)
def test_operation_on_texts(code: str) -> None:
    schema = Schema("Texts", {"v0": Str[20], "v1": TEXT, "v2": Str[20]})
    events = [{"v0": a, "v1": b, "v2": b} for a in TEXTS for b in TEXTS]
    batch = EventBatch.from_encoded(schema, [encode_dict(schema, event) for event in events])
    for a, b in ((0, 1), (1, 0), (0, 2)):
        made = build(code.format(a=a, b=b), "filter", [Input("input", schema)])
        passed = [interpret.interpret(made, event).result != 0 for event in events]
        for optimised in (False, True):
            result = run_kernel(compiled(made, optimised=optimised), batch)
            rows = [
                row
                for s in result.exits[0]
                for row in (range(s.count) if s.rows is None else s.rows.tolist())
            ]
            assert rows == [row for row, yes in enumerate(passed) if yes]


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 40),
    st.text(max_size=8).filter(lambda s: s.isprintable() and '"' not in s and "\\" not in s),
    st.data(),
)
def test_padded_text_equals_a_literal_exactly_where_the_texts_are_equal(
    n: int, literal: str, data: st.DataObject
) -> None:
    schema = Schema("T", {"s": Str[n]})
    held = literal.encode()[:n].decode(errors="ignore")
    texts = [held, held[:-1], held + "x", "", data.draw(st.text("ab", max_size=n))]
    texts = [text for text in texts if len(text.encode()) <= n]
    batch = EventBatch.from_encoded(schema, [encode_dict(schema, {"s": text}) for text in texts])
    made = build(f'input.s == "{literal}"', "filter", [Input("input", schema)])
    result = run(Stage(made, 0, (Port((), 0),)), batch)
    rows = [row for s in result.exits[0] for row in (range(s.count) if s.rows is None else s.rows.tolist())]
    assert rows == [row for row, text in enumerate(texts) if text == literal]


def test_average_of_an_array_is_that_of_a_c_loop() -> None:
    from evflow.schema.types import Array, f64

    wind, average = (
        Schema("W", {"wind_velocity": Array[f64, 253, 37]}),
        Schema("A", {"average_velocity": f64}),
    )
    code = """{
        int i, j;
        double sum = 0.0;
        for(i = 0; i<37; i= i+1) {
            for(j = 0; j<253; j=j+1) {
                sum = sum + input.wind_velocity[j][i];
            }
        }
        output.average_velocity = sum / (37 * 253);
        return 1;
    }"""
    made = build(code, "transform", [Input("input", wind)], [("output", average)])
    values = np.random.default_rng(7).normal(5, 3, (253, 37))
    expected = 0.0
    for i in range(37):
        for j in range(253):
            expected += float(values[j, i])
    batch = EventBatch.from_encoded(wind, [encode_dict(wind, {"wind_velocity": values})])
    for optimised in (False, True):
        (record,) = records_at(run_kernel(compiled(made, optimised=optimised), batch), 0)
        assert record[1]["average_velocity"] == expected / (37 * 253)


def test_deeply_nested_code_is_compiled() -> None:
    schema = schema_of("i64")
    inner = "(" * 40 + "input.v0" + " + 1)" * 40
    made = build(f"{inner} > 41", "filter", [Input("input", schema)])
    batch = EventBatch.from_encoded(schema, [encode_dict(schema, {"v0": v}) for v in (1, 2)])
    assert run(Stage(made, 0, (Port((), 0),)), batch).counts.tolist() == [[2, 1, 1, 0]]


def test_work_that_fuel_does_not_count_is_bounded() -> None:
    schema = Schema("Long", {"items": "list(str)", "text": TEXT})
    event = encode_dict(schema, {"items": ["x"] * 10_000, "text": "a" * 10_000_000})
    batch = EventBatch.from_encoded(schema, [event])
    for turn in ("length(input.items[n % 2 == 0 ? 9999 : 0])", 'contains(input.text, "b")'):
        made = build(
            f"{{ long n = 0; while (1) n += 1 + 0 * {turn}; return n; }}",
            "filter",
            [Input("input", schema)],
            fuel=1 << 62,
        )
        (note,) = run(Stage(made, 0, (Port((), 0),)), batch).faults
        assert note.fault.name == "FUEL"


def test_walk_through_a_long_list_takes_linear_time() -> None:
    schema = Schema("Long", {"items": "list(str)"})
    items = ["x" * (n % 3) for n in range(100_000)]
    batch = EventBatch.from_encoded(schema, [encode_dict(schema, {"items": items})])
    code = "long n = 0; for (int i = 0; i < length(input.items); i++) n += length(input.items[i]);"
    made = build(f"{{ {code} return n == {sum(map(len, items))}; }}", "filter", [Input("input", schema)])
    assert run(Stage(made, 0, (Port((), 0),)), batch).counts.tolist() == [[1, 1, 0, 0]]


def test_fields_behind_long_ones_are_found_in_constant_time() -> None:
    schema = Schema("Late", {"items": "list(str)", "text": TEXT})
    event = encode_dict(schema, {"items": ["x"] * 20_000, "text": "abc"})
    batch = EventBatch.from_encoded(schema, [event] * 3)
    code = "long n = 0; for (int i = 0; i < 100000; i++) n += length(input.text);"
    made = build(f"{{ {code} return n == 300000; }}", "filter", [Input("input", schema)])
    assert run(Stage(made, 0, (Port((), 0),)), batch).counts.tolist() == [[3, 3, 0, 0]]


def test_sign_of_nan_is_not_to_be_seen() -> None:
    schema = schema_of("f64", "f64")
    zero = load(schema, 0)
    nan = Binary(type="f64", pos=POS, op="div", left=zero, right=zero)
    call = Call(type="f64", pos=POS, name="copysign", args=(load(schema, 1), nan))
    check(transform(schema, call), [(0.0, -1.5), (-0.0, 1.5)])
    assert machine(transform(schema, call), [(0.0, -1.5)], optimised=True) == [plain(1.5)]
