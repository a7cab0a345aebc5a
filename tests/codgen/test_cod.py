"""Cod: the paper's figures, each construct of the language, and C itself as the judge of its arithmetic."""

from __future__ import annotations

import random
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evflow import Schema
from evflow.codgen.front import Input, build
from evflow.codgen.tree import Fault
from evflow.schema.types import NUMBERS, Array, Str, f64, i32
from tests.codgen.interpret import Outcome, interpret, new_state

FIGURE_6 = """{
   if ((input.trade_price < 75.5) ||
        (input.trade_price > 78.5)) {
      return 1; /* pass event over output link */
   }
   return 0; /* discard event */
}"""

FIGURE_7 = """{
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

EVENT = Schema(
    "event",
    {"n": i32, "x": float, "name": Str[8], "text": str, "grid": Array[i32, 3, 2], "u": NUMBERS["u64"]},
)
VALUES: dict[str, Any] = {
    "n": 7,
    "x": 2.5,
    "name": "IBM",
    "text": "a longer text",
    "grid": np.arange(6).reshape(3, 2),
    "u": 2**64 - 1,
}


def call(text: str, **values: Any) -> Outcome:
    """A router of this text, called once; what it returns is the result."""
    return interpret(build(text, "router", [Input("input", EVENT)]), {**VALUES, **values})


def test_figure_6_passes_trades_outside_of_the_range() -> None:
    trade = Schema("trade", {"trade_price": float})
    function = build(FIGURE_6, "filter", [Input("input", trade)])
    prices = (70, 75.5, 76, 78.5, 79)
    assert [p for p in prices if interpret(function, {"trade_price": p}).result] == [70, 79]


def test_figure_7_gives_the_mean_of_a_c_loop_to_the_last_bit() -> None:
    wind = Schema("wind", {"wind_velocity": Array[f64, 253, 37]})
    average = Schema("average", {"average_velocity": float})
    function = build(FIGURE_7, "transform", [Input("input", wind)], [("output", average)])
    field = np.random.default_rng(7).normal(size=(253, 37))
    total = 0.0
    for i in range(37):
        for j in range(253):
            total += float(field[j, i])
    outcome = interpret(function, {"wind_velocity": field})
    assert outcome.emitted[0].event == {"average_velocity": total / (37 * 253)}


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("input.n", 7),
        ("input.n > 3", 1),
        ("input.n > 3 && input.x < 2 || input.n == 7", 1),
        ("input.n + 'a' + 010 + 0x1F + 0b11", 7 + 97 + 8 + 31 + 3),
        ("'\\n' + '\\x41' + '\\101'", 10 + 65 + 65),
        ("input.grid[2][1] * 10 + input.grid[input.n - 7][0]", 50),
        ("input.x * 2", 5),
        ("(char) 200", -56),
        ("(unsigned char) -1", 255),
        ("(int) 2.9 + (int) -2.9", 0),
        ("-1 < 1u", 0),
        ("5 % -3 * 100 + -5 / 3", 199),
        ("1 ? 2 : 1 / 0", 2),
        ("input.u > 0 ? 1 : 2", 1),
        ("+input.n - -3 + ~0 + !5", 9),
        ("M_PI > 3.14 && M_PI < 3.15 && true && !false", 1),
        ("1.5f == 1.5 && 0.1f != 0.1", 1),
        ("0x1.8p1f + 0x1p-1 * 2 + 1e2f", 104),
        ("min(input.n, 2.5) * 2 + max(1, 2, 3) + abs(-4) + abs(-0.5) * 2", 13),
        ("length(input.grid) * 100 + length(input.grid, 1) * 10 + length(input.name)", 323),
        ("strlen(input.text)", 13),
        ("2147483647L + 1 > 0", 1),
        ("4294967295U + 1 == 0", 1),
        ("// a comment\ninput.n /* another\n */ + 1", 8),
    ],
)
def test_expression_has_the_value_of_c(text: str, result: int) -> None:
    assert call(text).result == result


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("int x; return x;", 0),
        ("int x = 3, y = x * 2; { int x = 10; y += x; } return y + x;", 19),
        ("int i, s = 0; for (i = 0; i < 10; i++) s += i; return s;", 45),
        ("int s = 0; for (int i = 0, j = 9; i < j; i++, j--) s += j - i; return s;", 25),
        ("int s = 0; for (;;) { if (++s > 5) break; } return s;", 6),
        ("int i = 0, s = 0; while (i < 9) { i++; if (i % 2) continue; s += i; } return s;", 20),
        ("int i = 0; do { i++; } while (i < 3); return i;", 3),
        ("int i = 5; do i++; while (0); return i;", 6),
        ("if (input.n > 3) return 1; else if (input.n > 1) return 2; else return 3;", 1),
        ("if (input.n < 3) return 1; return 2;", 2),
        ("int i = 3; return i++ * 10 + i;", 34),
        ("int i = 3; return --i * 10 + i--;", 22),
        ("int a[3] = {1, 2, 3}; int i = 0; a[i++] += 5; return a[0] * 100 + a[1] * 10 + i;", 621),
        ("int a[2][3] = {{1, 2}, {4}}; return a[0][0] + a[0][1] * 10 + a[0][2] * 100 + a[1][0] * 1000;",
         4021),
        ("int a[2][2] = {1, 2, 3, 4}; return a[0][1] * 10 + a[1][0];", 23),
        ("double a[] = {0.5, 1.5}; return (a[0] + a[1]) * length(a);", 4),
        ("int x = (1, 2, 3); return x;", 3),
        ("int x = 1, y; y = x = 5; return x + y;", 10),
        ("int8_t x = 127; x++; return x;", -128),
        ("unsigned char x = 250; x += 10; return x;", 4),
        ("uint64_t x = 0; x--; return x > 0 ? 1 : 2;", 1),
        ("int x = 7; x <<= 2; x |= 1; x ^= 3; x &= ~8; x >>= 1; x -= 2; x *= 3; x /= 2; x %= 7; return x;",
         6),
        ("float f = 16777217; return f;", 16777216),
        ("bool b = 0.5; return b;", 1),
        ("size_t n = 3; const int k = 4; register int r = 5; return n * k * r;", 60),
        ("long long a = 1; unsigned long long b = 2; short int c = 3;"
         "signed char d = 4; return a + b + c + d;",
         10),
        ("switch (input.n) { case 1: return 10; case 7: case 8: return 20; default: return 30; }", 20),
        ("switch (input.n) { default: return 30; case 1: return 10; }", 30),
        ("int s = 0; switch (2) { case 1: s += 1; case 2: s += 10; case 3: s += 100; break;"
         "case 4: s += 1000; } return s;", 110),
        ("int i, s = 0; for (i = 0; i < 6; i++) { switch (i) { case 1: continue; case 2: s += 100; break; "
         "case 3: s += 1000; default: s += 1; } s += 10; } return s;", 1154),
        ("if (0); ; { } return 4;", 4),
        ("return 1, 2;", 2),
    ],
)  # fmt: skip
def test_block_does_what_c_does(text: str, result: int) -> None:
    assert call(text).result == result
    assert call("{" + text + "}").result == result


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ('input.name == "IBM"', 1),
        ('input.name != "IBM"', 0),
        ('input.name < "ICM" && input.name > "IAM" && input.name <= "IBM" && input.name >= "IBM"', 1),
        ('strcmp(input.name, "IBM") == 0', 1),
        ('!strcmp(input.name, "IBM")', 1),
        ('strcmp(input.name, "A") * 10 + strcmp(input.name, "Z")', 9),
        ('strcmp(input.name, "Z") < 0', 1),
        (
            'starts_with(input.text, "a lo") && ends_with(input.text, "text") '
            '&& contains(input.text, "nger")',
            1,
        ),
        ('string s = input.name; return s == "IBM" && length(s) == 3;', 1),
        ('string s = input.n > 5 ? input.name : "other"; s = s; return length(s);', 3),
        ('"a" "b" == "ab"', 1),
        ('length("\\u00e4\\0b")', 4),
        ('min("b", "a") == "a"', 1),
    ],
)
def test_texts_are_compared_by_their_bytes(text: str, result: int) -> None:
    assert call(text).result == result


def test_static_variables_live_from_event_to_event() -> None:
    text = "static int n = 5; static double a[2] = {0.5}; n++; a[1] += n; return a[0] + a[1];"
    function = build(text, "router", [Input("input", EVENT)])
    state = new_state(function)
    assert [interpret(function, VALUES, state=state).result for _ in range(3)] == [6, 13, 21]
    assert interpret(function, VALUES).result == 6


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("1 / (input.n - 7)", Fault.DIVISION),
        ("1 % (input.n - 7)", Fault.DIVISION),
        ("input.grid[3][0]", Fault.INDEX),
        ("input.grid[0][-1]", Fault.INDEX),
        ("int a[2]; return a[input.n];", Fault.INDEX),
        ("while (1); return 1;", Fault.FUEL),
        ("for (;;); return 1;", Fault.FUEL),
    ],
)
def test_fault_ends_the_function_for_that_event(text: str, fault: Fault) -> None:
    outcome = interpret(build(text, "router", [Input("input", EVENT)], fuel=1000), VALUES)
    assert (outcome.result, outcome.fault) == (0, fault)


def test_fault_stands_at_its_place_in_the_source() -> None:
    outcome = call("int x = 0;\n  return 5 +\n    1 / x;")
    assert outcome.fault_pos is not None
    assert (outcome.fault_pos.line, outcome.fault_pos.column) == (3, 5)


def test_fuel_is_taken_by_each_turn() -> None:
    text = "int i; for (i = 0; i < 10; i++); return i;"
    enough = build(text, "router", [Input("input", EVENT)], fuel=10)
    assert interpret(enough, VALUES).result == 10
    short = build(text, "router", [Input("input", EVENT)], fuel=9)
    assert interpret(short, VALUES).fault == Fault.FUEL


@pytest.mark.parametrize(
    ("kind", "text", "result"),
    [
        ("filter", "return 0.5;", 1),
        ("filter", "return 0.0;", 0),
        ("filter", "return input.u;", -1),
        ("filter", "NAN", 1),
        ("router", "return 2.9;", 2),
        ("router", "return -0.5;", 0),
        ("router", "if (input.n > 100) return 5;", 0),
    ],
)
def test_result_is_what_the_kind_wants(kind: str, text: str, result: int) -> None:
    function = build(text, kind, [Input("input", EVENT)])
    assert interpret(function, VALUES).result == result


def test_long_chain_of_conditions_is_no_deep_tree() -> None:
    text = " || ".join(f"input.n == {i}" for i in range(1000, 3000))
    assert call(text).result == 0
    assert call(text + " || input.n == 7").result == 1


def test_field_may_be_named_like_a_keyword() -> None:
    place = Schema("place", {"lat": float, "long": float, "int": i32, "for_": i32})
    text = "double l = input. long; return input.int + input.for_ + l + 1.;"
    function = build(text, "router", [Input("input", place)])
    assert interpret(function, {"lat": 1.0, "long": 2.0, "int": 30, "for_": 400}).result == 433


# C itself is the judge: the same bodies go through a C compiler.

TYPES = {
    "a": ("int8_t", "i8"), "b": ("uint8_t", "u8"), "c": ("int16_t", "i16"), "d": ("uint16_t", "u16"),
    "e": ("int", "i32"), "f": ("unsigned", "u32"), "g": ("long", "i64"), "h": ("unsigned long", "u64"),
    "x": ("float", "f32"), "y": ("double", "f64"),
}  # fmt: skip
INTEGER_FIELDS = "abcdefgh"


class CBodies:
    """Bodies of functions that mean the same in C and in Cod, without what C leaves undefined."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def integer(self, depth: int) -> str:
        pick = self.random.choice
        if depth <= 0:
            return pick(
                [
                    "input." + pick(INTEGER_FIELDS),
                    pick(["v", "w"]),
                    pick(["0", "1", "3u", "(-7)", "250", "100000L", "0xFFul"]),
                ]
            )
        left, right = self.integer(depth - self.random.randint(1, 3)), self.integer(depth - 1)
        form = self.random.randrange(9)
        if form == 0:
            return f"({left} {pick(['<<', '>>'])} ({right} & 7))"
        if form == 1:
            return f"({left} {pick(['/', '%'])} (({right} & 15) | 1))"
        if form == 2:
            return f"({left} {pick(['<', '<=', '>', '>=', '==', '!=', '&&', '||'])} {right})"
        if form == 3:
            return f"({pick(['-', '~', '!', '+'])}{left})"
        if form == 4:
            return f"(({TYPES[pick(INTEGER_FIELDS)][0]}) {left})"
        if form == 5:
            return f"({self.integer(depth - 2)} ? {left} : {right})"
        return f"({left} {pick(['+', '-', '*', '&', '|', '^'])} {right})"

    def floating(self, depth: int) -> str:
        pick = self.random.choice
        if depth <= 0:
            return pick(
                ["input.x", "input.y", "input.e", "input.b", "input.h", "1.5f", "0.1", "3", "input.x"]
            )
        left, right = self.floating(depth - 1), self.floating(depth - self.random.randint(1, 2))
        if self.random.random() < 0.15:
            return f"({left} {pick(['<', '<=', '==', '!='])} {right} ? {left} : {right})"
        return f"({left} {pick(['+', '-', '*'])} {right})"

    def integer_body(self) -> str:
        pick = self.random.choice
        first, second = TYPES[pick(INTEGER_FIELDS)][0], TYPES[pick(INTEGER_FIELDS)][0]
        lines = [
            f"{first} v = input.{pick(INTEGER_FIELDS)}; {second} w = 3; int i; {first} t[4] = {{1, 2, 3}};"
        ]
        for _ in range(self.random.randint(1, 5)):
            op = pick(["+=", "-=", "*=", "&=", "|=", "^=", "="])
            lines.append(
                pick([
                    f"v {op} {self.integer(3)};",
                    f"w {op} {self.integer(2)};",
                    "v++; --w;",
                    f"v <<= ({self.integer(1)} & 3); w >>= 1;",
                    f"if ({self.integer(2)}) v {op} w; else w = v;",
                    f"for (i = 0; i < 5; i++) {{ if (v == i) continue; t[i & 3] {op} {self.integer(2)}; }}",
                    "switch (v & 3) { case 0: v += 2; case 1: w -= 1; break; "
                    f"default: v ^= {self.integer(1)}; }}",
                    "v += t[w & 3]; t[v & 3]++;",
                ])
            )  # fmt: skip
        return "\n".join([*lines, f"return {self.integer(3)};"])


def run_c(
    directory: Path, result: str, show: str, bodies: list[str], events: list[dict[str, Any]]
) -> list[list[str]]:
    """What a C compiler makes of the bodies: a row of results for each event."""
    fields = "".join(f"{c} {n};" for n, (c, _) in TYPES.items())
    functions = "\n".join(f"static {result} f{i}(void) {{\n{body}\n}}" for i, body in enumerate(bodies))
    calls = "".join(f'printf("{show} ", f{i}());' for i in range(len(bodies)))
    sets = "\n".join(
        "".join(f"input.{n} = ({TYPES[n][0]}) {_c_literal(v)};" for n, v in event.items())
        + calls
        + 'puts("");'
        for event in events
    )
    source = directory / "cases.c"
    source.write_text(
        f"#include <stdint.h>\n#include <stdio.h>\nstatic struct {{ {fields} }} input;\n{functions}\n"
        f"int main(void) {{ {sets} return 0; }}\n"
    )
    program = directory / "cases"
    flags = ["-O0", "-w", "-fwrapv", "-ffp-contract=off", "-fsigned-char"]
    subprocess.run(["gcc", *flags, "-o", str(program), str(source)], check=True)
    printed = subprocess.run([str(program)], check=True, capture_output=True, encoding="utf-8").stdout
    return [line.split() for line in printed.splitlines()]


def _c_literal(value: Any) -> str:
    return value.hex() if isinstance(value, float) else f"{value}ul" if value >= 1 << 63 else f"({value}l)"


def random_events(seed: int, count: int) -> list[dict[str, Any]]:
    """Events at the edges of their types and in between."""
    rng = random.Random(seed)
    events = []
    for _ in range(count):
        event: dict[str, Any] = {}
        for name, (_, kind) in TYPES.items():
            if kind[0] == "f":
                event[name] = float(
                    np.float32(rng.choice([0.0, -0.5, 3.25, rng.uniform(-1e3, 1e3), 1e10, 1 / 3]))
                )
            else:
                info = np.iinfo(NUMBERS[kind].dtype)
                low, high = max(int(info.min), -(2**63) + 1), int(info.max)
                event[name] = rng.choice([low, high, 0, 1, low // 3, rng.randint(low, high), min(high, 77)])
        events.append(event)
    return events


needs_gcc = pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc as the oracle")
CASES = Schema("cases", {name: NUMBERS[kind] for name, (_, kind) in TYPES.items()})


@pytest.mark.slow
@needs_gcc
def test_integer_bodies_give_what_gcc_gives(tmp_path: Path) -> None:
    bodies = [CBodies(seed).integer_body() for seed in range(250)]
    events = random_events(1, 6)
    expected = run_c(tmp_path, "long", "%ld", bodies, events)
    for number, body in enumerate(bodies):
        function = build(body, "router", [Input("input", CASES)])
        for event, row in zip(events, expected, strict=True):
            outcome = interpret(function, event)
            assert (str(outcome.result), outcome.fault) == (row[number], Fault.NONE), (body, event)


@pytest.mark.slow
@needs_gcc
def test_float_expressions_give_what_gcc_gives(tmp_path: Path) -> None:
    expressions = []
    for seed in range(200):
        expressions.append(CBodies(seed).floating(3))
    events = random_events(2, 6)
    expected = run_c(tmp_path, "double", "%a", [f"return {e};" for e in expressions], events)
    result = Schema("result", {"value": float})
    for number, expression in enumerate(expressions):
        text = f"output.value = {expression}; return 1;"
        function = build(text, "transform", [Input("input", CASES)], [("output", result)])
        for event, row in zip(events, expected, strict=True):
            value = interpret(function, event).emitted[0].event["value"]
            assert value == float.fromhex(row[number]), (expression, event)
