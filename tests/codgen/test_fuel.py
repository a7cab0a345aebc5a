"""Fuel is paid by work: what a turn of a loop does, which branch is taken, how long the data is."""

from __future__ import annotations

import pytest

from evflow import Bytes, Schema
from evflow.codgen.front import Input, build
from evflow.codgen.kernel import Port, Stage, kernel
from evflow.codgen.tree import Fault
from evflow.events.encode import encode_dict
from tests.codgen.compiling import Compiled
from tests.codgen.interpret import interpret

SCHEMA = Schema("Rec", {"n": int, "x": float, "items": list[str], "text": str})
EVENT = {"n": 3, "x": 0.5, "items": ["a"] * 100, "text": "a" * 50_000}


def lasts(code: str, fuel: int, event: dict[str, object] = EVENT) -> bool:
    """Whether a function ends before its fuel does, in machine code and as the interpreter says."""
    function = build(code, "filter", [Input("input", SCHEMA)], fuel=fuel)
    compiled = Compiled(function, kernel((Stage(function, 0, (Port((), 0),)),), SCHEMA).code)
    native = compiled(encode_dict(SCHEMA, event)).fault
    assert native in (Fault.NONE, Fault.FUEL)
    assert native == interpret(function, event).fault
    return native == Fault.NONE


def loop(body: str, turns: int = 1000) -> str:
    return f"{{ double x = 0; long n = 0, i; for (i = 0; i < {turns}; i++) {{ {body} }} return 1; }}"


def test_a_short_turn_takes_a_unit() -> None:
    assert lasts(loop(""), 1000)
    assert not lasts(loop(""), 999)


@pytest.mark.parametrize(
    "work", ["x += sin(i);", "x = pow(x, i);", "n = n / (i + 1);", "x += input.x;", "n += input.n == i;"]
)
def test_a_turn_that_does_more_takes_more(work: str) -> None:
    """Twenty times the work takes at least ten times the fuel of one short turn."""
    assert lasts(loop(work), 20_000)
    assert not lasts(loop(work * 100), 10_000)


@pytest.mark.parametrize(
    "code",
    [
        "if (i == 500) { WORK }",
        "if (i != 500) n++; else { WORK }",
        "if (i == 500) { long j; for (j = 0; j < 9; j++) { WORK } }",
    ],
)
def test_a_branch_is_paid_for_where_it_is_taken(code: str) -> None:
    heavy = "x += sin(i) * pow(x, i);" * 20
    assert lasts(loop(code.replace("WORK", heavy)), 10_000)
    assert not lasts(loop(heavy), 10_000)


def test_turns_of_inner_loops_are_paid_for_too() -> None:
    code = loop("long j; for (j = 0; j < 100; j++) ;", turns=100)
    assert lasts(code, 15_000)
    assert not lasts(code, 9_999)


def test_continue_does_not_leave_without_paying() -> None:
    assert not lasts(loop("if (n == 0) continue; n++;"), 999)
    assert not lasts("{ long i = 0; do { i++; continue; } while (1); return 1; }", 1000)


def test_without_a_loop_no_fuel_is_needed() -> None:
    assert lasts("sin(input.x) + pow(input.x, 3) > 5 || input.n > 2", 1)


def test_what_the_most_fuel_pays_for_is_no_larger_than_a_machine_word() -> None:
    assert lasts(loop(""), (1 << 63) - 1)


def test_wide_fields_of_an_output_are_paid_for_by_their_width() -> None:
    """What is written or copied does not show in how many operations there are."""
    wide = Schema("Wide", {"blob": Bytes[60_000], "text": str})
    code = "{ long i; for (i = 0; i < 1000; i++) output.blob = input.blob; return 1; }"
    function = build(code, "transform", [Input("input", wide)], [("output", wide)], fuel=10_000)
    compiled = Compiled(function, kernel((Stage(function, 0, (Port((), 0),)),), wide).code)
    assert compiled(encode_dict(wide, {"blob": b"x", "text": ""})).fault == Fault.FUEL
