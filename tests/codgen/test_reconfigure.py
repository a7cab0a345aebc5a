"""Functions that ask for reconfiguration: the newest request wins, and all back ends agree on it."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evflow import CodeError, Schema
from evflow.codgen.front import Input, build, source_of
from evflow.codgen.kernel import Port, Stage, kernel
from evflow.codgen.queuekernel import QueueState, queue_kernel
from evflow.codgen.runtime import layout_of, new_state, request_at, take_request
from evflow.codgen.tree import REQUEST, Fault, Function
from evflow.events.attributes import Attributes
from evflow.events.batch import EventBatch
from evflow.events.encode import encode_dict
from evflow.graph.morph import Morph
from evflow.net.link.congestion import compiled_handler
from evflow.schema.types import f64, i32, i64
from tests.codgen import interpret
from tests.codgen.oracle import SYSTEM
from tests.codgen.programs import Program, random_attributes, random_event, random_schema
from tests.examples import tried

NUMBER = Schema("number", {"x": i64, "y": f64})
LAST = "{ if (input.x > 3 || input.x < 0) reconfigure(input.x); return input.x % 2; }"


def made(code: str | Callable[..., object], kind: str = "filter", schema: Schema = NUMBER) -> Function:
    outputs = [("output", schema)] if kind == "transform" else []
    return build(code, kind, [Input("input", schema)], outputs)


def ran(
    function: Function,
    events: list[dict[str, Any]],
    schema: Schema = NUMBER,
    attributes: list[dict[str, Any]] | None = None,
    *,
    optimised: bool = False,
    selection: list[int] | None = None,
) -> tuple[Any, Any]:
    """The statics after a batch, and what the kernel gave."""
    batch = EventBatch.from_encoded(schema, [encode_dict(schema, event) for event in events])
    compiled = kernel((Stage(function, 0, (Port((), 0),)),), schema)
    if optimised:
        compiled.code.saw(1 << 30)
    chosen = None if selection is None else np.array(selection, np.int32)
    columns = None if attributes is None else Attributes.from_rows(attributes).columns
    state = new_state(function)
    result = compiled.run(batch.data, batch.offsets, chosen, batch.rows, columns, [state], [{}], SYSTEM)
    return state, result


def taken(function: Function, state: Any) -> int:
    at = request_at(layout_of(function))
    assert at is not None
    return take_request(state, at)


def numbers(*values: int) -> list[dict[str, Any]]:
    return [{"x": value, "y": 0.5} for value in values]


@settings(max_examples=tried(20), deadline=None)
@given(st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(-3, 9), max_size=300), st.booleans())
def test_last_request_of_a_batch_is_the_one_that_is_taken(values: list[int], optimised: bool) -> None:
    function = made(LAST)
    state, result = ran(function, numbers(*values), optimised=optimised)
    asked = [value for value in values if value > 3]
    assert taken(function, state) == (asked[-1] if asked else 0)
    assert taken(function, state) == 0
    passed = sum(value % 2 for value in values)
    assert result.counts[0].tolist() == [len(values), passed, len(values) - passed, 0]


def test_only_selected_events_ask() -> None:
    function = made(LAST)
    state, _ = ran(function, numbers(7, 8, 9), selection=[0, 1])
    assert taken(function, state) == 8


def python_filter(event: Any) -> bool:
    if event.x > 3:
        reconfigure(event.x - 1)  # type: ignore[name-defined]  # noqa: F821
    return True


@pytest.mark.parametrize("code", [python_filter, source_of(python_filter)])
def test_python_functions_ask_too(code: Any) -> None:
    function = made(code)
    state, _ = ran(function, numbers(9, 5, 3))
    assert taken(function, state) == 4


@pytest.mark.parametrize("kind", ["filter", "router", "transform"])
def test_every_kind_of_function_may_ask(kind: str) -> None:
    function = made("{ reconfigure(input.x); return 0; }", kind)
    state, _ = ran(function, numbers(1, 2))
    assert taken(function, state) == 2


def test_a_request_stays_after_a_fault_behind_it() -> None:
    function = made("{ reconfigure(input.x); return 1 / (input.x - 2); }")
    state, result = ran(function, numbers(1, 2))
    assert len(result.faults) == 1
    assert taken(function, state) == 2


def test_the_argument_is_evaluated_once() -> None:
    function = made("{ static int n; reconfigure(++n); return n; }")
    state, _ = ran(function, numbers(0, 0, 0))
    assert taken(function, state) == 3
    n = interpret.new_state(function)
    for event in numbers(0, 0, 0):
        interpret.interpret(function, event, state=n)
    assert n.values == [3, 3]


def asking_program(random: Random) -> tuple[Function | None, Schema]:
    """A random program that asks, also in a loop, and the schema of its events."""
    schema = random_schema(random, "In")
    program = Program(random, "filter", schema, None)
    head, tail = program.text[:-2].rsplit("\n", 1)
    ask = (
        f"for (int turn = 0; turn < 3; turn++) if ({program.condition(2)}) reconfigure({program.integer(2)});"
    )
    try:
        function = build(f"{head}\n{ask}\n{tail}\n}}", "filter", [Input("input", schema)], fuel=300)
    except CodeError:
        return None, schema
    return function, schema


@settings(max_examples=tried(20), deadline=None)
@given(st.integers(0, 2**64 - 1), st.booleans())
def test_random_programs_ask_as_the_interpreter_says(seed: int, optimised: bool) -> None:
    random = Random(seed)
    function, schema = asking_program(random)
    if function is None:
        return
    events = [random_event(random, schema) for _ in range(6)]
    attributes = [random_attributes(random) for _ in events]
    known = interpret.new_state(function)
    for event, given_attributes in zip(events, attributes, strict=True):
        interpret.interpret(function, event, state=known, attributes=given_attributes, system=SYSTEM)
    wanted = known.values[[variable.name for variable in function.statics].index(REQUEST)]
    state, _ = ran(function, events, schema, attributes, optimised=optimised)
    assert taken(function, state) == wanted, function.source


def test_most_random_programs_are_accepted() -> None:
    assert sum(asking_program(Random(seed))[0] is not None for seed in range(40)) > 20


def test_functions_of_queues_ask() -> None:
    code = "{ if (count(a) == 2) { reconfigure(a[0].x); discard(a, 0); } }"
    function = build(code, "queue", [Input("a", NUMBER)])
    batch = EventBatch.from_encoded(NUMBER, [encode_dict(NUMBER, e) for e in numbers(5, 0, 6, 9)])
    queues, state = QueueState((NUMBER,), 100), new_state(function)
    run = queue_kernel(function).run
    run(0, batch.data, batch.offsets, None, batch.rows, None, queues, state, {}, {})
    waiting: list[Any] = []
    known = interpret.new_state(function)
    for event in numbers(5, 0, 6, 9):
        waiting = list(interpret.interpret_queue(function, [[*waiting, event]], state=known).queues[0])
    # 5, then 0, which is not a request, then 6: each is asked for when the next one comes.
    assert known.values == [6]
    assert taken(function, state) == 6


def test_a_function_that_does_not_ask_is_as_it_was() -> None:
    function = made("{ static int n; n++; return n; }")
    assert [variable.name for variable in function.statics] == ["n"]
    assert function.asks_at is None
    assert request_at(layout_of(function)) is None


def test_statics_and_variables_named_alike_do_not_clash() -> None:
    function = made(
        "{ static char before = 1; static long reconfigure = 7; int request = 2; reconfigure(input.x); "
        "static long after[3] = {4, 5, 6}; reconfigure += request; return 0; }"
    )
    state, _ = ran(function, numbers(3, 4))
    assert taken(function, state) == 4
    known = interpret.new_state(function)
    for event in numbers(3, 4):
        interpret.interpret(function, event, state=known)
    values = dict(zip([variable.name for variable in function.statics], known.values, strict=True))
    assert (values["before"], values["reconfigure"], values[REQUEST]) == (1, 11, 4)


def test_the_place_of_the_first_request_is_known() -> None:
    at = made("{\n  if (input.x > 3)\n    reconfigure(1);\n  reconfigure(2);\n  return 1;\n}").asks_at
    assert at is not None
    assert (at.line, at.column) == (3, 5)


@pytest.mark.parametrize(
    ("code", "message", "line", "column"),
    [
        (
            "{\n  reconfigure(1.5);\n  return 1; }",
            "takes the number of a request, found a number (f64)",
            2,
            15,
        ),
        ('{ reconfigure("move"); return 1; }', "takes the number of a request, found a text", 1, 15),
        ("{ reconfigure(); return 1; }", "reconfigure(...) takes 1 argument, found 0", 1, 3),
        ("{ reconfigure(1, 2); return 1; }", "reconfigure(...) takes 1 argument, found 2", 1, 3),
        ("{ reconfigure(input); return 1; }", "'input' is an event, which has no value", 1, 15),
        ("reconfigure(1)", "reconfigure(...) has no value; write it as a statement of its own", 1, 1),
        (
            "def f(e):\n    reconfigure(e.y)\n    return True",
            "the number of a request, found a number",
            2,
            17,
        ),
        ("lambda e: reconfigure(1)", "has no value; write it as a statement of its own", 1, 11),
        ("{ reconfigure(1); }", "this function never returns a value", 1, 1),
        ("{ reconfigur(1); return 1; }", "did you mean 'reconfigure'?", 1, 3),
    ],
)
def test_wrong_requests_are_refused_where_they_stand(code: str, message: str, line: int, column: int) -> None:
    with pytest.raises(CodeError) as caught:
        made(code)
    assert message in str(caught.value)
    assert (caught.value.line, caught.value.column) == (line, column)


def test_morphs_cannot_have_statics() -> None:
    """There is no memory for them, as a stone may get events of one schema on several ways."""
    code = "/* a static */\nstatic long n = 5; n++; output.a = n; return 1;"
    schema = Schema("A", {"a": i64})
    with pytest.raises(CodeError, match="a morph cannot have static variables, found 'n'") as caught:
        Morph(schema, schema, code).function(schema)
    assert (caught.value.line, caught.value.column) == (2, 1)


def test_morphs_cannot_ask() -> None:
    old = Schema("old", {"a": i32})
    with pytest.raises(CodeError, match="a morph cannot ask for reconfiguration") as caught:
        Morph(NUMBER, old, "{\n  reconfigure(1); output.a = input.x; return 1; }").function(NUMBER)
    assert (caught.value.line, caught.value.column) == (2, 3)


def test_congestion_handlers_cannot_ask() -> None:
    with pytest.raises(CodeError, match="a congestion handler cannot ask for reconfiguration") as caught:
        compiled_handler("{ if (count(a) > 9) reconfigure(1); }", {"a": NUMBER})
    assert (caught.value.line, caught.value.column) == (1, 21)


def test_a_fault_before_the_request_prevents_it() -> None:
    function = made("{ reconfigure(7 / input.x); return 1; }")
    outcome = interpret.interpret(function, {"x": 0, "y": 0.0}, state=interpret.new_state(function))
    assert outcome.fault is Fault.DIVISION
    state, _ = ran(function, numbers(7, 0))
    assert taken(function, state) == 1
