"""The interpreter: the tree's stated meaning, against the machine's own C library and numpy."""

from __future__ import annotations

import ctypes
import math
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evflow import Schema
from evflow.codgen import semantics
from evflow.codgen.front import Input, build
from evflow.codgen.library import LIBRARY
from evflow.codgen.semantics import Halt
from evflow.codgen.tree import Fault
from evflow.schema.types import NUMBERS, Array, Bytes, ListOf, Maybe, Record, Str, f64, i32
from tests.codgen.functions import FUNCTIONS, checked_cast
from tests.codgen.interpret import interpret, interpret_queue, new_state

SUB = Schema("sub", {"x": float})
EVENT = Schema(
    "event",
    {
        "n": int,
        "x": float,
        "name": str,
        "raw": Bytes[4],
        "level": Maybe(f64),
        "extra": Maybe(Record("sub", {"sub": SUB})),
        "cube": Array[f64, None, None],
        "words": ListOf(Str[8]),
    },
)
VALUES: dict[str, Any] = {
    "n": 3,
    "x": 0.5,
    "name": "äb",
    "raw": b"a\0",
    "level": None,
    "extra": None,
    "cube": [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]],
    "words": ["IBM", "SUN"],
}
OUTPUT = Schema(
    "output", {"name": Str[3], "long": str, "raw": Bytes[2], "level": Maybe(i32), "x": float}, {"x": 7.5}
)

INTEGERS = sorted(semantics.BITS)
EDGES = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    -0.5,
    1.5,
    2.5,
    -2.5,
    1e-300,
    1e300,
    -1e300,
    math.inf,
    -math.inf,
    math.nan,
    3.0,
    4503599627370497.5,
]


def call(text: str, kind: str = "router", **values: Any) -> Any:
    function = build(text, kind, [Input("input", EVENT)], [("output", OUTPUT)])
    return interpret(function, {**VALUES, **values})


def _same(a: float, b: float) -> bool:
    return (math.isnan(a) and math.isnan(b)) or (a == b and math.copysign(1, a) == math.copysign(1, b))


@pytest.mark.skipif(sys.platform != "linux", reason="finds the C library as on Linux")
@pytest.mark.parametrize(
    "name", [n for n, f in LIBRARY.items() if f.result == "f64" and n not in ("fmin", "fmax")]
)
def test_library_function_gives_what_libm_gives(name: str) -> None:
    libm = ctypes.CDLL(None)
    function, arity = getattr(libm, name), len(LIBRARY[name].parameters)
    function.restype, function.argtypes = ctypes.c_double, [ctypes.c_double] * arity
    values = [*EDGES, *np.random.default_rng(1).normal(0, 3, 20).tolist()]
    for x in values:
        for y in values if arity == 2 else [None]:
            args = (x,) if y is None else (x, y)
            assert _same(FUNCTIONS[name](*args), function(*args)), args


def test_least_and_greatest_prefer_a_number_to_nan() -> None:
    least, greatest = FUNCTIONS["fmin"], FUNCTIONS["fmax"]
    assert (least(math.nan, 2.0), least(2.0, math.nan), least(2.0, 1.0)) == (2.0, 2.0, 1.0)
    assert (greatest(math.nan, 2.0), greatest(2.0, math.nan), greatest(2.0, 1.0)) == (2.0, 2.0, 2.0)


@given(st.sampled_from(INTEGERS), st.data())
def test_integer_arithmetic_is_numpys(kind: str, data: st.DataObject) -> None:
    dtype = NUMBERS[kind].dtype
    info = np.iinfo(dtype)
    number = st.integers(int(info.min), int(info.max))
    a, b = data.draw(number), data.draw(number)
    with np.errstate(all="ignore"):
        x, y = dtype.type(a), dtype.type(b)
        for op, expected in (
            ("add", x + y),
            ("sub", x - y),
            ("mul", x * y),
            ("and", x & y),
            ("or", x | y),
            ("xor", x ^ y),
        ):
            assert semantics.binary(op, a, b, kind) == int(expected)
        if b != 0:
            assert semantics.binary("floordiv", a, b, kind) == int(x // y)
            assert semantics.binary("mod", a, b, kind) == int(x % y)
            assert semantics.binary("rem", a, b, kind) == int(np.fmod(x, y))
        count = b % semantics.BITS[kind]
        assert semantics.binary("shl", a, b, kind) == int(np.left_shift(x, dtype.type(count)))
        assert semantics.binary("shr", a, b, kind) == int(np.right_shift(x, dtype.type(count)))
        assert semantics.unary("neg", a, kind) == int(-x)
        assert semantics.unary("inv", a, kind) == int(~x)


@given(st.floats(width=32), st.floats(width=32))
def test_single_precision_rounds_at_each_step(a: float, b: float) -> None:
    with np.errstate(all="ignore"):
        x, y = np.float32(a), np.float32(b)
        for op, expected in (
            ("add", x + y),
            ("sub", x - y),
            ("mul", x * y),
            ("div", x / y),
            ("rem", np.fmod(x, y)),
        ):
            assert _same(semantics.binary(op, a, b, "f32"), float(expected)), op


def test_division_by_zero_is_a_fault_of_integers_and_of_pythons_operators() -> None:
    for op, kind in (("div", "i64"), ("rem", "u8"), ("floordiv", "f64"), ("mod", "f64"), ("mod", "i32")):
        with pytest.raises(Halt) as caught:
            semantics.binary(op, 1, 0, kind)
        assert caught.value.fault == Fault.DIVISION
    assert semantics.binary("div", -1.0, 0.0, "f64") == -math.inf
    assert math.isnan(semantics.binary("div", 0.0, 0.0, "f64"))
    assert math.isnan(semantics.binary("rem", 1.0, 0.0, "f64"))
    assert semantics.binary("div", -(2**63), -1, "i64") == -(2**63)
    assert semantics.binary("rem", -(2**63), -1, "i64") == 0


@pytest.mark.parametrize(
    ("value", "kind", "result", "exact"),
    [
        (300, "u8", 44, False),
        (-1, "u64", 2**64 - 1, False),
        (2.5, "i32", 2, False),
        (-2.5, "u8", 0, False),
        (1e30, "i64", 2**63 - 1, False),
        (-math.inf, "i16", -(2**15), False),
        (math.nan, "i32", 0, False),
        (3.0, "i8", 3, True),
        (2**53 + 1, "f64", float(2**53), False),
        (2**53, "f64", float(2**53), True),
        (2**24 + 1, "f32", float(2**24), False),
        (0.1, "f32", float(np.float32(0.1)), True),
        (1e300, "f32", math.inf, False),
        (math.inf, "f32", math.inf, True),
        (7, "bool", True, False),
        (1, "bool", True, True),
        (True, "f64", 1.0, True),
        (2**63 + 2**39 + 1, "f32", float(np.float32(2**63 + 2**40)), False),
    ],
)
def test_cast_and_checked_conversion(value: Any, kind: str, result: Any, exact: bool) -> None:
    assert semantics.cast(value, kind) == result
    if exact:
        assert checked_cast(value, kind) == result
    else:
        with pytest.raises(Halt) as caught:
            checked_cast(value, kind)
        assert caught.value.fault == Fault.RANGE


def test_comparisons_with_nan_are_false() -> None:
    assert call("double n = NAN; return (n < 1) + (n > 1) + (n == n) + 10 * (n != n);").result == 10


def test_shift_counts_are_taken_modulo_the_width() -> None:
    assert call("long x = 1; int y = 1; return (x << 65) + (y << 33) + (1u << -31);").result == 6


def test_texts_have_bytes() -> None:
    assert call("length(input.name) * 10 + length(input.raw)").result == 32
    assert call('input.name == "\\u00e4b" && input.raw == "a\\0"').result == 1


def test_optional_values() -> None:
    assert call("input.level").fault == Fault.ABSENT
    assert call("input.extra.x").fault == Fault.ABSENT
    assert call("present(input.level) + present(input.extra)").result == 0
    assert call("present(input.level) ? input.level : -1", level=4.0).result == 4
    assert call("present(input.extra) && input.extra.x > 1", extra={"x": 2.0}).result == 1


def test_lists_and_arrays_of_varying_size() -> None:
    assert call("length(input.cube) * 10 + length(input.cube, 1)").result == 32
    assert call("length(input.cube, 1)", cube=np.zeros((0, 5))).result == 5
    assert call("input.cube[2][1]").result == 6
    assert call("input.cube[3][0]").fault == Fault.INDEX
    assert call('length(input.words) * 10 + (input.words[1] == "SUN")').result == 21
    assert call('input.words[-1] == "SUN"').fault == Fault.INDEX


def test_each_index_is_checked_before_the_next_is_evaluated() -> None:
    text = "static int n; int a[2][2]; n++; if (n == 1) return a[5][n = 9]; return n;"
    function = build(text, "router", [Input("input", EVENT)])
    state = new_state(function)
    assert interpret(function, VALUES, state=state).fault == Fault.INDEX
    assert interpret(function, VALUES, state=state).result == 2


def test_fault_takes_back_outputs_and_attributes_but_not_statics() -> None:
    text = (
        'static int n = 0; n++; output.x = n; submit(0, output); set_int_attr(event_attrs, "k", n);'
        "return input.n / (n - 1);"
    )
    function = build(text, "router", [Input("input", EVENT)], [("output", OUTPUT)])
    state = new_state(function)
    first = interpret(function, VALUES, state=state, attributes={"k": 9})
    assert (first.fault, first.emitted, first.attributes) == (Fault.DIVISION, [], {"k": 9})
    second = interpret(function, VALUES, state=state, attributes={"k": 9})
    assert (second.result, second.emitted[0].event["x"], second.attributes) == (3, 2.0, {"k": 2})


def test_output_starts_with_its_defaults_and_again_after_submit() -> None:
    outcome = call('output.name = "a"; submit(4, output); output.level = 3; return 1;', "transform")
    zero = {"name": "", "long": "", "raw": b"", "level": None, "x": 7.5}
    assert outcome.emitted == [(4, 0, {**zero, "name": "a"}), (0, 0, {**zero, "level": 3})]


def test_text_that_its_field_cannot_hold_is_a_fault() -> None:
    assert (
        call('output.name = "abc"; output.raw = "a\\0"; output.long = "a\\0"; return 1;', "transform").result
        == 1
    )
    assert call('output.name = "abcd"; return 1;', "transform").fault == Fault.TEXT
    assert call('output.name = "a\\0"; return 1;', "transform").fault == Fault.TEXT
    assert call('output.raw = "abc"; return 1;', "transform").fault == Fault.TEXT


def test_attributes_convert_as_by_a_cast() -> None:
    reads = (
        'attr_ivalue(event_attrs, "i") + attr_ivalue(event_attrs, "f") * 10'
        '+ attr_ivalue(event_attrs, "s", -5) * 100'
        '+ (attr_dvalue(event_attrs, "i") == 7.0) * 1000 + attr_set(event_attrs, "s") * 10000'
        '+ (attr_svalue(event_attrs, "s") == "text") * 100000'
        '+ (attr_svalue(event_attrs, "i", "no") == "no") * 1000000'
        '+ attr_ivalue(stone_attrs, "i") * 10000000'
    )
    function = build(reads, "router", [Input("input", None)])
    outcome = interpret(function, {}, attributes={"i": 7, "f": 2.9, "s": "text"}, stone_attributes={"i": 4})
    assert outcome.result == 7 + 20 - 500 + 1000 + 10_000 + 100_000 + 1_000_000 + 40_000_000


def test_system_values_are_given() -> None:
    function = build("time() + load() * 10 + cores() * 100", "router", [Input("input", None)])
    assert set(function.system) == {"time", "load", "cores"}
    assert interpret(function, {}, system={"time": 5.0, "load": 0.5}).result == 10


def test_queue_function_peeks_submits_and_discards() -> None:
    side = Schema("side", {"n": int})
    text = """while (count(a) && count(b)) {
        submit(1, a[count(a) - 1]);
        c.x = a[0].n + b[0].n;
        submit(0, c);
        discard(a, 0);
        discard(b, 0);
    }"""
    function = build(text, "queue", [Input("a", side), Input("b", side)], [("c", OUTPUT)])
    queues = [[{"n": 1}, {"n": 2}, {"n": 3}], [{"n": 10}, {"n": 20}]]
    outcome = interpret_queue(function, queues)
    assert [(e.port, e.source, e.event.get("x", e.event.get("n"))) for e in outcome.emitted] == [
        (1, ("queue", 0), 3),
        (0, 0, 11.0),
        (1, ("queue", 0), 3),
        (0, 0, 22.0),
    ]
    assert outcome.queues == [[{"n": 3}], []]
    assert len(queues[0]) == 3


def test_submits_of_one_event_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.codgen.interpret._MAX_SUBMITS", 1_000)
    text = "int i; for (i = 0; i < input.n; i++) submit(0, input); return 1;"
    assert len(call(text, n=1_000).emitted) == 1_000
    assert call(text, n=1_001).fault == Fault.LIMIT


def test_queue_after_a_fault_is_as_before() -> None:
    side = Schema("side", {"n": int})
    function = build("discard(a, 0); discard(a, 0);", "queue", [Input("a", side)])
    outcome = interpret_queue(function, [[{"n": 1}]])
    assert (outcome.fault, outcome.queues) == (Fault.INDEX, [[{"n": 1}]])
