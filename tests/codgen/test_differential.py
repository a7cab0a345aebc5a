"""Random programs over random events: machine code of both tiers gives the interpreter's answer."""

from __future__ import annotations

from random import Random

import llvmlite.binding as llvm
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evflow.codgen.front import Input, build
from evflow.codgen.kernel import Stage, kernel
from evflow.codgen.tree import Function
from evflow.errors import CodeError
from evflow.schema import Schema
from tests.codgen.oracle import expected, native
from tests.codgen.programs import Program, random_attributes, random_event, random_schema
from tests.examples import tried


def sample(random: Random) -> tuple[str, Function | None, Schema]:
    """A program, its tree if the front end accepts it, and the schema of its events."""
    kind = random.choice(["filter", "transform", "transform", "router"])
    schema = random_schema(random, "In")
    output = random.choice([schema, random_schema(random, "Out")]) if kind == "transform" else None
    text = Program(random, kind, schema, output).text
    outputs = [] if output is None else [("output", output)]
    try:
        return text, build(text, kind, [Input("input", schema)], outputs, fuel=300), schema
    except CodeError as error:
        assert "Traceback" not in str(error)
        return text, None, schema


def check(seed: int, *, optimised: bool) -> bool:
    """Compares one sample; gives whether there was a program to compare."""
    random = Random(seed)
    text, function, schema = sample(random)
    if function is None:
        return False
    events = [random_event(random, schema) for _ in range(6)]
    attributes = [random_attributes(random) for _ in events]
    llvm.parse_assembly(kernel((Stage(function, 0),), schema).code.dump_ir()).verify()
    wanted = expected(function, events, attributes, schema)
    assert native(function, events, attributes, schema, optimised=optimised) == wanted, text
    return True


@settings(max_examples=tried(50), deadline=None)
@given(st.integers(0, 2**64 - 1))
def test_first_tier_agrees_with_interpreter(seed: int) -> None:
    check(seed, optimised=False)


@pytest.mark.slow
@settings(max_examples=tried(25), deadline=None)
@given(st.integers(0, 2**64 - 1))
def test_optimised_code_agrees_with_interpreter(seed: int) -> None:
    check(seed, optimised=True)


@pytest.mark.parametrize("seed", range(tried(20)))
def test_most_programs_are_accepted(seed: int) -> None:
    assert any(sample(Random(seed * 100 + i))[1] is not None for i in range(20))
