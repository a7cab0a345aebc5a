"""Single operations as machine code of both tiers: hand-made trees, against the interpreter."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from typing import Any

import llvmlite.binding as llvm
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evflow.codgen.front import Input, build
from evflow.codgen.kernel import Kernel, Port, Stage, kernel
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
    If,
    Load,
    Path,
    Pos,
    Return,
    Root,
    Run,
    Step,
    Stmt,
    Unary,
)
from evflow.events.batch import EventBatch
from evflow.events.encode import encode_dict
from evflow.events.view import view_class
from evflow.schema import Schema
from evflow.schema.types import NUMBERS, TEXT, Number, Str
from tests.codgen import interpret
from tests.codgen.oracle import plain, records_at, run, run_kernel
from tests.examples import tried

POS = Pos(1, 1)
KINDS = [name for name in NUMBERS if name != "bool"]


def schema_of(*kinds: str) -> Schema:
    return Schema("Values", {f"v{i}": NUMBERS[kind] for i, kind in enumerate(kinds)})


def load(schema: Schema, index: int) -> Load:
    field = schema.fields[index]
    assert isinstance(field.type, Number)
    return Load(type=field.type.name, pos=POS, place=Path(Root("input", 0), (Step(field.name),), field.type))


def transform(schema: Schema, **results: Expr) -> Function:
    """A transform whose output fields are the values of expressions."""
    return function(schema, results, [stored(name, result) for name, result in results.items()])


def stored(name: str, result: Expr) -> Stmt:
    place = Path(Root("output", 0), (Step(name),), NUMBERS[result.type])
    return Run(pos=POS, value=Assign(type=result.type, pos=POS, place=place, value=result))


def function(schema: Schema, results: dict[str, Expr], statements: list[Stmt]) -> Function:
    out = Schema("Out", {name: NUMBERS[result.type] for name, result in results.items()})
    done = Return(pos=POS, value=Const(type="i64", pos=POS, value=1))
    return Function(
        kind="transform",
        source="",
        inputs=(("input", schema),),
        outputs=(("output", out),),
        body=Block(pos=POS, body=(*statements, done)),
    )


def choice(schema: Schema, which: int, **results: Expr) -> Function:
    """A transform that sets one output field for an event: the input ``which`` has its number.

    So each expression has its own faults, while all are compiled at once.
    """
    turns: list[Stmt] = []
    for number, (name, result) in enumerate(results.items()):
        wanted = Const(type="i32", pos=POS, value=number)
        asked = Compare(type="bool", pos=POS, op="eq", left=load(schema, which), right=wanted)
        turns.append(If(pos=POS, condition=asked, then=Block(pos=POS, body=(stored(name, result),))))
    return function(schema, results, turns)


def tiers(function: Function) -> Iterator[Kernel]:
    """A kernel in its first tier, then the same in its second one."""
    made = kernel((Stage(function, 0, (Port((), 0),)),), function.inputs[0][1])
    llvm.parse_assembly(made.code.dump_ir()).verify()
    assert not made.code.optimised
    yield made
    made.code.saw(1 << 30)
    assert made.code.optimised
    yield made


def machine(function: Function, rows: list[tuple[Any, ...]]) -> list[list[Any]]:
    """For each tier the outputs for rows of inputs, or the name of the fault."""
    schema = function.inputs[0][1]
    assert schema is not None
    batch = EventBatch.from_encoded(
        schema, [encode_dict(schema, {f"v{i}": v for i, v in enumerate(row)}) for row in rows]
    )
    answers = []
    for made in tiers(function):
        result = run_kernel(made, batch)
        found: list[Any] = [None] * len(rows)
        for position, record in records_at(result, 0):
            found[position] = plain(record)
        for note in result.faults:
            found[note.position] = note.fault.name
        answers.append(found)
    return answers


def oracle(function: Function, rows: list[tuple[Any, ...]]) -> list[Any]:
    found = []
    for row in rows:
        outcome = interpret.interpret(function, {f"v{i}": v for i, v in enumerate(row)})
        if outcome.fault:
            found.append(outcome.fault.name)
        else:
            out = function.outputs[0][1]
            found.append(plain(view_class(out)(encode_dict(out, outcome.emitted[0].event)).to_dict()))
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
    """Each edge before and behind a few of them."""
    values = edges(kind)
    few = [values[n] for n in ((0, 1, 3, 4, 6, 12, 14) if NUMBERS[kind].kind == "f" else (0, 1, 2, 4, -1))]
    return [pair for a in values for b in few for pair in ((a, b), (b, a))]


def check(function: Function, rows: list[tuple[Any, ...]]) -> None:
    first, second = machine(function, rows)
    wanted = oracle(function, rows)
    assert first == wanted
    assert second == wanted


@pytest.mark.parametrize(
    "kind", ["i32", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("u32", "i64")), "u64"]
)
def test_integer_operations(kind: str) -> None:
    schema = schema_of(kind, kind, "i32")
    each = {
        f"is_{op}": Binary(type=kind, pos=POS, op=op, left=load(schema, 0), right=load(schema, 1))
        for op in "add sub mul div rem floordiv mod and or xor shl shr".split()
    }
    check(choice(schema, 2, **each), [(*pair, which) for which in range(len(each)) for pair in pairs(kind)])


@pytest.mark.parametrize("kind", ["i32", "i64"])
@pytest.mark.parametrize("op", "div rem floordiv mod".split())
def test_division_by_a_constant(op: str, kind: str) -> None:
    schema = schema_of(kind, "i32")
    each = {
        f"by_{n}": Binary(
            type=kind, pos=POS, op=op, left=load(schema, 0), right=Const(type=kind, pos=POS, value=divisor)
        )
        for n, divisor in enumerate([-1, 0, 1, -3, 7])
    }
    check(choice(schema, 1, **each), [(value, which) for which in range(len(each)) for value in edges(kind)])


@pytest.mark.parametrize("kind", [pytest.param("f32", marks=pytest.mark.slow), "f64"])
def test_float_operations(kind: str) -> None:
    schema = schema_of(kind, kind, "i32")
    each = {
        f"is_{op}": Binary(type=kind, pos=POS, op=op, left=load(schema, 0), right=load(schema, 1))
        for op in "add sub mul div rem floordiv mod".split()
    }
    check(choice(schema, 2, **each), [(*pair, which) for which in range(len(each)) for pair in pairs(kind)])


def test_product_and_sum_are_rounded_one_by_one() -> None:
    schema = schema_of("f64", "f64", "f64")
    product = Binary(type="f64", pos=POS, op="mul", left=load(schema, 0), right=load(schema, 1))
    expr = Binary(type="f64", pos=POS, op="add", left=product, right=load(schema, 2))
    row = (1.0 + 2.0**-30, 1.0 + 2.0**-30, -1.0)
    expected = row[0] * row[1] + row[2]
    assert expected != math.fsum([row[0] * row[1], 2.0**-60, row[2]])  # what one rounding would give
    assert machine(transform(schema, r=expr), [row]) == [[plain({"r": expected})]] * 2


@pytest.mark.parametrize("kind", KINDS)
def test_comparisons(kind: str) -> None:
    schema = schema_of(kind, kind)
    each = {
        op: Compare(type="bool", pos=POS, op=op, left=load(schema, 0), right=load(schema, 1))
        for op in ("eq", "ne", "lt", "le", "gt", "ge")
    }
    check(transform(schema, **each), pairs(kind))


@pytest.mark.parametrize("kind", ["i32", "u32", "i64", "u64", "f32", "f64"])
def test_negation_and_inversion(kind: str) -> None:
    schema = schema_of(kind)
    for op in ("neg",) if kind[0] == "f" else ("neg", "inv"):
        expr = Unary(type=kind, pos=POS, op=op, operand=load(schema, 0))
        check(transform(schema, r=expr), [(value,) for value in edges(kind)])


@pytest.mark.parametrize("source", KINDS)
def test_conversions(source: str) -> None:
    schema = schema_of(source)
    each = {f"to_{name}": Convert(type=name, pos=POS, operand=load(schema, 0)) for name in NUMBERS}
    check(transform(schema, **each), [(value,) for value in edges(source)])


@pytest.mark.parametrize("source", KINDS)
def test_conversions_that_are_checked(source: str) -> None:
    schema = schema_of(source, "i32")
    each = {
        f"to_{name}": Convert(type=name, pos=POS, operand=load(schema, 0), checked=True) for name in NUMBERS
    }
    check(choice(schema, 1, **each), [(value, n) for n in range(len(each)) for value in edges(source)])


def test_conversions_of_bool() -> None:
    schema = schema_of("bool")
    each = {f"to_{name}": Convert(type=name, pos=POS, operand=load(schema, 0)) for name in KINDS}
    check(transform(schema, **each), [(True,), (False,)])


def test_float_to_integer_saturates() -> None:
    schema = schema_of("f64")
    expr = Convert(type="i32", pos=POS, operand=load(schema, 0))
    expected = {1e30: 2**31 - 1, -1e30: -(2**31), math.nan: 0, -1.9: -1}
    wanted = [{"r": integer} for integer in expected.values()]
    assert machine(transform(schema, r=expr), [(value,) for value in expected]) == [wanted, wanted]


@pytest.mark.parametrize(
    "rows",
    [[(v,) for v in [*edges("f64"), 0.1, 0.49999999999999994, 710.0, -745.5]], pairs("f64")],
    ids=["one", "two"],
)
def test_functions_of_floats(rows: list[tuple[Any, ...]]) -> None:
    schema = schema_of(*["f64"] * len(rows[0]))
    args = tuple(load(schema, i) for i in range(len(rows[0])))
    each: dict[str, Expr] = {
        f"is_{name}": Call(type=f.result, pos=POS, name=name, args=args)
        for name, f in LIBRARY.items()
        if f.parameters == ("f64",) * len(args)
    }
    assert each
    check(transform(schema, **each), rows)


def test_abs_of_the_least_integer_wraps() -> None:
    schema = schema_of("i64")
    call = Call(type="i64", pos=POS, name="abs", args=(load(schema, 0),))
    rows = [(-(2**63),), (-5,), (7,)]
    assert machine(transform(schema, r=call), rows) == [[{"r": -(2**63)}, {"r": 5}, {"r": 7}]] * 2


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
        for compiled in tiers(made):
            result = run_kernel(compiled, batch)
            rows = [
                row
                for s in result.exits[0]
                for row in (range(s.count) if s.rows is None else s.rows.tolist())
            ]
            assert rows == [row for row, yes in enumerate(passed) if yes]


@settings(max_examples=tried(20), deadline=None)
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
    for compiled in tiers(made):
        (record,) = records_at(run_kernel(compiled, batch), 0)
        assert record[1]["average_velocity"] == expected / (37 * 253)


def test_deeply_nested_code_is_compiled() -> None:
    schema = schema_of("i64")
    inner = "(" * 40 + "input.v0" + " + 1)" * 40
    made = build(f"{inner} > 41", "filter", [Input("input", schema)])
    batch = EventBatch.from_encoded(schema, [encode_dict(schema, {"v0": v}) for v in (1, 2)])
    assert run(Stage(made, 0, (Port((), 0),)), batch).counts.tolist() == [[2, 1, 1, 0]]


@pytest.mark.parametrize(
    "turn",
    [
        "length(input.items[i % 2 == 0 ? 9999 : 0])",
        'contains(input.text, "b")',
        "input.text == input.text",
        "input.text > input.text",
        "ends_with(input.text, input.text)",
    ],
)
@pytest.mark.parametrize("looped", [True, False])
def test_what_is_done_to_long_data_takes_fuel(turn: str, looped: bool) -> None:
    """Also outside a loop, where it stands often; with short data the same takes little."""
    schema = Schema("Long", {"items": "list(str)", "text": TEXT})
    code = (
        f"{{ long n = 0; long i; for (i = 0; i < 200; i++) n += 1 + 0 * ({turn}); return n; }}"
        if looped
        else f"{{ long n = 0; long i = 0; {f'n += {turn};' * 100} return 1; }}"
    )
    made = build(code, "filter", [Input("input", schema)], fuel=40_000)
    texts = {} if "items" in turn else {"short": "a" * 100}
    found = {}
    for name, text in {**texts, "long": "a" * 1_000_000}.items():
        items = ["x"] * (10_000 if name == "long" else 1)
        batch = EventBatch.from_encoded(schema, [encode_dict(schema, {"items": items, "text": text})])
        found[name] = [note.fault.name for note in run(Stage(made, 0, (Port((), 0),)), batch).faults]
    assert found == {**{name: [] for name in texts}, "long": ["FUEL"]}


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
    rows = [(0.0, -1.5), (-0.0, 1.5)]
    wanted = [plain({"r": 1.5})] * 2
    assert oracle(transform(schema, r=call), rows) == wanted
    assert machine(transform(schema, r=call), rows) == [wanted, wanted]
