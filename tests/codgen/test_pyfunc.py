"""The Python subset: Python itself, running the same function, is the judge."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from math import sqrt as square_root
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from evflow import CodeError, Schema
from evflow.codgen.front import Input, build, source_of
from evflow.codgen.tree import Fault
from evflow.schema.types import NUMBERS, Array, ListOf, Maybe, Record, Str, f32, f64, i8, i32
from tests.codgen.interpret import interpret, interpret_queue

SUB = Schema("sub", {"weight": float})
EVENT = Schema(
    "event",
    {
        "price": float,
        "size": int,
        "small": i8,
        "single": f32,
        "flag": bool,
        "name": Str[8],
        "grid": Array[f64, 3, 2],
        "level": Maybe(f64),
        "parts": ListOf(Record("sub", {"sub": SUB})),
        "big": NUMBERS["u64"],
    },
)
OUTPUT = Schema(
    "output", {"total": i32, "mean": float, "name": Str[4], "grid": Array[f64, 3, 2], "level": Maybe(f64)}
)

LIMIT = 3
FACTOR = -2.5
WORD = "IBM"
ON = True


def _compare(t: Any) -> Any:
    return (t.price > LIMIT and t.name == WORD) or not t.flag


def _arithmetic(t: Any) -> Any:
    return (t.size // LIMIT * 100 + t.size % 7 - -t.small) * 2 + (t.size << 2 | t.small & 6) ^ ~t.size >> 1


def _division(t: Any) -> Any:
    return math.floor(t.price / (t.size + 0.5) * 8) + t.size // t.small + t.size % t.small


def _float_rounding(t: Any) -> Any:
    return math.floor(t.price // 0.7 * 10 + t.price % 0.7 * 100 + t.price % -1.25)


def _true_division(t: Any) -> Any:
    return int(t.size / t.small * 16)


def _rounding(t: Any) -> Any:
    return (
        round(t.price) * 1000
        + int(t.price * 3) * 100
        + math.ceil(t.price) * 10
        + math.trunc(t.price)
        + round(t.size)
    )


def _functions(t: Any) -> Any:
    return math.floor(
        math.sqrt(abs(t.price)) + square_root(4) + math.hypot(t.price, 2) + math.log(8, 2) + math.pi * FACTOR
    )


def _power(t: Any) -> Any:
    return (
        t.size**5
        + t.small**2
        - (-t.size) ** 3
        + t.size**0
        + t.small**1
        + math.floor(t.price**2 + 2.0**t.small)
    )


def _chain(t: Any) -> Any:
    return 1 < t.size <= LIMIT < 10 and -9 < t.small + t.size < t.price < 100


def _operands(t: Any) -> Any:
    return (t.size or 7) + (t.small and 5) + (t.flag or 3) + len(t.name or "nothing")


def _loops(t: Any) -> Any:
    """Counts, in every way there is."""
    total = 0
    for i in range(10):
        if i == 3:
            continue
        if i > t.size:
            break
        total += i * 2
    for i in range(2, 9, 3):
        total = total * 3 + i
    for i in range(t.size, -3, -2):
        i = i * 2
        total ^= i
    for _ in range(0):
        total = -1
    while total > 50:
        total -= 13
    return total


def _swap(t: Any) -> Any:
    a, b = t.size, t.small
    a, b = b, a
    c = d = a
    x = a if a > b else b
    return x * 1000 + min(a, b, 5) * 10 + max(a, b) + abs(c) - d


def _branches(t: Any) -> Any:
    if t.size > 4:
        y = 1
    elif t.size > 0:
        y = 2
    elif t.flag:
        return 7
    else:
        y = 3
    return y


def _endless(t: Any) -> Any:
    n = 0
    while True:
        n += 1
        last = n * t.size
        if n > 4:
            break
    return last


def _texts(t: Any) -> Any:
    name = t.name
    found = name in ("IBM", "SUN") or "B" in name or name.startswith(("X", "Y")) or name.endswith("C")
    return (found and name not in ("XX",)) or not name or name < "B"


def _mixed_extremes(t: Any) -> Any:
    return math.floor(min(t.price, t.size, 2) * 4 + max(1, t.price) + max(True, t.small))


def _optional(t: Any) -> Any:
    if t.level is None:
        return 5
    return 1 if t.level is not None and t.level > 1 else 2


def _optional_truth(t: Any) -> Any:
    return 1 if t.level else 2


def _indexes(t: Any) -> Any:
    total = 0.0
    for j in range(len(t.grid)):
        for i in range(2):
            total += t.grid[j, i] * t.grid[j][i] + t.grid[-1, -2]
    return math.floor(total + len(t.parts) + t.parts[-1].weight)


def _bools(t: Any) -> Any:
    both = t.flag & ON
    other: int = 2
    other += t.flag
    return t.flag + t.flag * 2 + both + (t.flag ^ True) + -t.flag + bool(t.size) + int(True) + other


def _single(t: Any) -> Any:
    return math.floor(t.single * 1000) + (t.single == 0.1) + math.floor(float(t.small) / 3 * 1000)


def _special_floats(t: Any) -> Any:
    wild = t.price * math.inf
    return (
        math.isinf(wild)
        + math.isnan(wild - wild) * 2
        + math.isfinite(t.price) * 4
        + (math.degrees(t.price) > 57)
    )


FUNCTIONS = [
    _compare,
    _arithmetic,
    _division,
    _float_rounding,
    _true_division,
    _rounding,
    _functions,
    _power,
    _chain,
    _operands,
    _loops,
    _swap,
    _branches,
    _endless,
    _texts,
    _mixed_extremes,
    _optional,
    _optional_truth,
    _indexes,
    _bools,
    _single,
    _special_floats,
]


def random_event(rng: random.Random) -> dict[str, Any]:
    """An event with values at and between the edges that the functions have."""
    return {
        "price": rng.choice([0.0, 0.5, 1.5, 2.5, 3.5, -0.5, -1.5, -2.5, 80.0, rng.uniform(-9, 9)]),
        "size": rng.randrange(-8, 9),
        "small": rng.randrange(-4, 5),
        "single": float(np.float32(rng.choice([0.1, 0.5, rng.uniform(-9, 9)]))),
        "flag": rng.random() < 0.5,
        "name": rng.choice(["IBM", "", "SUN", "XX", "ABC", "YZ"]),
        "grid": np.array([[rng.uniform(-2, 2) for _ in range(2)] for _ in range(3)]),
        "level": rng.choice([None, 0.0, 0.5, 2.0]),
        "parts": [{"weight": rng.uniform(0, 5)} for _ in range(rng.randint(1, 3))],
        "big": rng.randrange(2**64),
    }


def as_object(event: dict[str, Any]) -> SimpleNamespace:
    """An event as a Python function sees it."""
    return SimpleNamespace(**{**event, "parts": [SimpleNamespace(**p) for p in event["parts"]]})


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__.strip("_"))
def test_function_does_what_python_does(function: Callable[[Any], Any]) -> None:
    compiled = build(function, "router", [Input("input", EVENT)])
    from_text = build(source_of(function), "router", [Input("input", EVENT)])
    rng = random.Random(3)
    for _ in range(150):
        event = random_event(rng)
        try:
            expected = (int(function(as_object(event))), Fault.NONE)
        except ZeroDivisionError:
            expected = (0, Fault.DIVISION)
        for each in (compiled, from_text):
            outcome = interpret(each, event)
            assert (outcome.result, outcome.fault) == expected, event


def test_filter_takes_pythons_truth() -> None:
    functions = [
        lambda t: t.name,
        lambda t: t.size,
        lambda t: t.price,
        lambda t: not t.flag,
        lambda t: t.size and t.name,
    ]
    rng = random.Random(4)
    for function in functions:
        compiled = build(function, "filter", [Input("input", EVENT)])
        for _ in range(30):
            event = random_event(rng)
            assert bool(interpret(compiled, event).result) == bool(function(as_object(event)))


def test_lambdas_on_one_line_are_told_apart() -> None:
    several = [lambda t: t.size > 1, lambda t: t.size > 2, lambda t: 5, lambda t: t.name or t.size]
    assert [source_of(f) for f in several] == [
        "lambda t: t.size > 1",
        "lambda t: t.size > 2",
        "lambda t: 5",
        "lambda t: t.name or t.size",
    ]


def test_lambda_over_several_lines_is_found() -> None:
    functions = (
        "something else",
        lambda t: (
            t.size
            + t.small
        ),
    )  # fmt: skip
    function = build(functions[1], "router", [Input("input", EVENT)])
    assert interpret(function, random_event(random.Random(0)) | {"size": 3, "small": 2}).result == 5


def test_constants_around_a_function_are_captured_in_its_text() -> None:
    def closed(n: int) -> Callable[[Any], Any]:
        top = math.inf
        return lambda t: t.size > n and t.price < top and t.price > FACTOR and t.name != WORD and ON

    text = "lambda t: t.size > 4 and t.price < 1e999 and t.price > (-2.5) and t.name != 'IBM' and True"
    assert source_of(closed(4)) == text
    event = random_event(random.Random(0)) | {"size": 5, "price": 0.0, "name": "X"}
    assert interpret(build(closed(4), "filter", [Input("input", EVENT)]), event).result == 1
    assert interpret(build(closed(5), "filter", [Input("input", EVENT)]), event).result == 0
    assert interpret(build(text, "filter", [Input("input", EVENT)]), event).result == 1


def _to_output(event: Any, result: Any) -> Any:
    result.total = event.size
    result.total += 1
    result.mean = event.small
    result.name = event.name
    result.grid = event.grid
    result.grid[0, 1] = 9.5
    result.grid[1][0] *= 2
    result.level = event.level
    return event.flag


def test_transform_fills_its_output() -> None:
    function = build(_to_output, "transform", [Input("input", EVENT)], [("output", OUTPUT)])
    event = random_event(random.Random(0)) | {
        "size": 5,
        "small": 2,
        "flag": True,
        "name": "IBM",
        "level": None,
    }
    filled = interpret(function, event).emitted[0].event
    grid = event["grid"].copy()
    grid[0, 1] = 9.5
    grid[1, 0] *= 2
    assert (filled["total"], filled["mean"], filled["name"], filled["level"]) == (6, 2.0, "IBM", None)
    np.testing.assert_array_equal(filled["grid"], grid)


def test_stored_number_that_does_not_fit_is_a_fault() -> None:
    function = build(_to_output, "transform", [Input("input", EVENT)], [("output", OUTPUT)])
    assert interpret(function, random_event(random.Random(0)) | {"size": 2**31}).fault == Fault.RANGE


def test_unsigned_number_beyond_63_bits_is_a_fault() -> None:
    function = build("lambda t: t.big > 0", "filter", [Input("input", EVENT)])
    event = random_event(random.Random(0))
    assert interpret(function, event | {"big": 2**63 - 1}).result == 1
    assert interpret(function, event | {"big": 2**63}).fault == Fault.RANGE


def test_number_without_integer_is_a_fault() -> None:
    event = random_event(random.Random(0))
    for text in ("lambda t: int(t.price)", "lambda t: round(t.price)", "lambda t: math.floor(t.price)"):
        function = build(text, "router", [Input("input", EVENT)])
        assert interpret(function, event | {"price": math.nan}).fault == Fault.RANGE
        assert interpret(function, event | {"price": 1e19}).fault == Fault.RANGE


def test_router_without_result_names_no_port() -> None:
    text = "def route(t):\n    if t.size > 3:\n        return 2\n    if t.size < 0:\n        return\n"
    function = build(text, "router", [Input("input", EVENT)])
    event = random_event(random.Random(0))
    assert [interpret(function, event | {"size": n}).result for n in (5, 1, -1)] == [2, -1, -1]


def _hops(event: Any) -> Any:
    event.attrs["hops"] = event.attrs.get("hops", 0) + 1
    event.attrs["last"] = "here"
    event.attrs["share"] = event.attrs.get("share", 0.5) / 2
    return "hops" in event.attrs and event.attrs.get("tag", "none") == "none"


def test_attributes_are_read_and_set_like_a_dict() -> None:
    function = build(_hops, "filter", [Input("input", None)])
    first = interpret(function, {})
    assert (first.result, first.attributes) == (1, {"hops": 1, "last": "here", "share": 0.25})
    second = interpret(function, {}, attributes={**first.attributes, "tag": "x"})
    assert (second.result, second.attributes["hops"]) == (0, 2)


def _join(a: Any, b: Any, c: Any) -> None:
    while count(a) > 0 and count(b) > 0:  # type: ignore[name-defined]  # noqa: F821
        c.total = a[0].size + b[-1].size
        submit(0, c)  # type: ignore[name-defined]  # noqa: F821
        discard(a, 0)  # type: ignore[name-defined]  # noqa: F821
        discard(b, 0)  # type: ignore[name-defined]  # noqa: F821


def test_queue_function_joins() -> None:
    side = Schema("side", {"size": int})
    function = build(_join, "queue", [Input("a", side), Input("b", side)], [("c", OUTPUT)])
    outcome = interpret_queue(
        function, [[{"size": 1}, {"size": 2}], [{"size": 10}, {"size": 20}, {"size": 30}]]
    )
    assert [e.event["total"] for e in outcome.emitted] == [31, 32]
    assert outcome.queues == [[], [{"size": 30}]]


def test_errors_name_the_place_in_the_users_file() -> None:
    def wrong(t: Any) -> Any:
        limit = 3
        return t.prise > limit

    with pytest.raises(CodeError) as caught:
        build(wrong, "filter", [Input("input", EVENT)])
    line = wrong.__code__.co_firstlineno + 2
    assert str(caught.value) == (
        "'t' has no field 'prise' (did you mean 'price'?); its fields are price, size, small, single, flag, "
        f"name, grid, level, parts, big (in wrong, test_pyfunc.py line {line})\n"
        "   3 |     return t.prise > limit\n"
        "                    ^ line 3, column 14"
    )
    assert (caught.value.line, caught.value.column) == (3, 14)


REFUSED = [
    ("def f(t):\n    x = 1\n    x = 2.5\n    return x", 3, 5,
     "'x' holds an integer (i64), found a float; write int(...)"),
    ("def f(t):\n    x = True\n    x = 1\n    return x", 3, 5,
     "'x' holds a bool, found a number (i64); write bool(...)"),
    ("def f(t):\n    if t.size: y = 1\n    return y", 3, 12,
     "'y' may have no value here; give it one before"),
    ("def f(t):\n    for i in range(3): pass\n    return i", 3, 12,
     "'i' may have no value here; give it one before"),
    ("def f(t):\n    with t: pass", 2, 5,
     "'with' is not within the Python subset; it has assignments, if, while, "
     "for … in range(…), break, continue, pass, return and calls"),
    ("def f(t):\n    return [x for x in t]", 2, 12, "a comprehension is not within the Python subset"),
    ("def f(t):\n    for x in t.grid: pass", 2, 14, "a loop runs over range(stop), range(start, stop) or "
     "range(start, stop, step)"),
    ("def f(t):\n    for i in range(0, 9, 0): pass", 2, 14,
     "the step of a range must be a constant that is not zero"),
    ("def f(t):\n    while t.size: pass\n    else: pass", 3, 11,
     "'else' of a loop is not within the Python subset"),
    ("def f(t):\n    t.size = 1", 2, 5,
     "'t.size' belongs to an event, which cannot be changed; assign to a variable or "
     "an output"),
    ("def f(t):\n    pass", 1, 1,
     "this function never returns a value: not zero passes the event on, zero drops it"),
    ("lambda t: t.size == None", 1, 21, "compare with None by 'is None' or 'is not None'"),
    ("lambda t: t.size is 3", 1, 11, "'is' compares only with None"),
    ("lambda t: t.size ** t.size", 1, 11, "an integer can be raised to a constant of 0 to 64; for more write "
     "float(x) ** y"),
    ("lambda t: math.gamma(t.price) or fine(t)", 1, 11,
     "math.gamma is not within the Python subset; it has acos, "),
    ("lambda t: fine(t.size)", 1, 11, "there is no function 'fine' (did you mean 'fmin'?)"),
    ("lambda t: t.name + 'x' == 'y'", 1, 11, "'+' needs numbers, found a text"),
    ("lambda t: t.name.upper() == 'X'", 1, 11,
     "there is no method 'upper'; the Python subset has startswith, endswith, "
     "get"),
    ("lambda t: np.sqrt(t.price) > 3", 1, 11,
     "a function may call only what is built in, not np.sqrt; write math.sqrt(...)"),
    ("lambda t: np.maximum(t.price, 1) > 3", 1, 11,
     "a function may call only what is built in, not np.maximum"),
    ("lambda t: np.abs(t.price) > 3", 1, 11,
     "a function may call only what is built in, not np.abs; write abs(...)"),
    ("async def f(t):\n    return 1", 1, 1, "Python function f is a coroutine, which no stone waits for"),
    ("lambda t: t.attrs['x'] > 3", 1, 11,
     "the type of an attribute is not known; write .get(\"name\", default)"),
    ("lambda t: 'ä' in t.nam", 1, 20, "'t' has no field 'nam' (did you mean 'name'?)"),
    ("lambda t: t.grid[0:2]", 1, 18, "a slice is not within the Python subset; index single elements"),
    ("lambda t: (x := 3)", 1, 12, "':=' is not within the Python subset"),
    ("lambda t: 99999999999999999999", 1, 11, "the number 99999999999999999999 does not fit 64 bits"),
    ("lambda t: max(t.size)", 1, 11, "max(...) takes at least 2 arguments, found 1"),
    ("lambda t: round(t.price, 2)", 1, 11, "round(...) takes 1 argument here, found 2"),
    ("lambda t, u: 1", 1, 1,
     "a filter takes the parameters (input), under any names and without defaults; found (t, u)"),
    ("def f(t=1): return 1", 1, 1,
     "a filter takes the parameters (input), under any names and without defaults; "
     "found (t=1)"),
    ("lambda t: t.size >", 1, 19, "no valid Python: invalid syntax"),
    ("def f(t):\n    return 1\nx = 3", 1, 1, "expected one 'def' or one 'lambda', and nothing beside it"),
    ("lambda t: " + "-" * 200 + "1", 1, 161, "nested deeper than 150 levels; use variables for parts of it"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "line", "column", "message"), REFUSED, ids=[t for t, *_ in REFUSED])
def test_what_is_not_in_the_subset_is_refused(text: str, line: int, column: int, message: str) -> None:
    with pytest.raises(CodeError) as caught:
        build(text, "filter", [Input("input", EVENT)])
    assert str(caught.value).startswith(message)
    assert (caught.value.line, caught.value.column) == (line, column)


def test_text_with_any_line_ends_and_odd_characters() -> None:
    text = "def f(t):\r\n    x = t.size\r    return x + 1\r\n"
    assert interpret(build(text, "router", [Input("input", EVENT)]), {"size": 4}).result == 5
    for odd in (
        "lambda t: t.name == '\\ud800'",
        "lambda t: t.name == '\ud800'",
        "lambda t: 1\0",
        "async def f(t): pass",
    ):
        with pytest.raises(CodeError):
            build(odd, "filter", [Input("input", EVENT)])
    with pytest.raises(CodeError, match="the text has 300010 characters"):
        build("lambda t: " + "1" * 300_000, "filter", [Input("input", EVENT)])


def twice(function: Any) -> Any:
    """A decorator that leaves the function as it is."""
    return function


@twice
def decorated(t: Any) -> bool:
    """A function whose decorator would not run in a stone."""
    return bool(t.size)


def test_decorators_are_refused() -> None:
    with pytest.raises(CodeError, match=r"decorated .*has a decorator.*without it") as caught:
        build("@cached\ndef decorated(t):\n    return 4", "router", [Input("input", EVENT)])
    assert (caught.value.line, caught.value.column) == (1, 2)
    with pytest.raises(CodeError, match=r"decorated \(test_pyfunc.py line \d+\) has a decorator"):
        build(decorated, "filter", [Input("input", EVENT)])
    with pytest.raises(CodeError, match="has a decorator"):
        source_of(decorated)


def test_what_would_be_ignored_is_refused() -> None:
    def floor(x: float) -> float:
        return x + 1

    def own(t: Any) -> bool:
        return bool(floor(t.price) > 1)

    with pytest.raises(CodeError, match=r"'floor' means a function of tests.codgen.test_pyfunc where"):
        build(own, "filter", [Input("input", EVENT)])
    for text, words in (
        ("def f(t, k=3):\n    return k", "without defaults"),
        ("def f(t, *, k=3):\n    return k", "without defaults"),
        ("lambda t, k=3: k", "without defaults"),
        ("def f(t):\n    x: int = 0\n    x: float = 1.0\n    return x > 0", "cannot become a float"),
        ("def f(t):\n    x: Thing = 0\n    return x", "annotated with int, float, bool or str"),
        ("def f(t):\n    global x\n    x = 1\n    return x", "'global' is not within"),
        ("def f(t):\n    nonlocal x\n    return 1", "'nonlocal' is not within"),
        ("def f(t):\n    yield 1", "'yield' is not within"),
        ("def f(t):\n    return (yield t.size)", "'yield' is not within"),
    ):
        with pytest.raises(CodeError, match=words):
            build(text, "filter", [Input("input", EVENT)])


def test_indented_text_keeps_its_columns() -> None:
    with pytest.raises(CodeError) as caught:
        build("    def f(t):\n        return t.nothing\n", "filter", [Input("input", EVENT)])
    assert (caught.value.line, caught.value.column) == (2, 18)


SECTORS = {"IBM": 3}


def test_what_cannot_be_used_is_not_called_unknown() -> None:
    def large(t: Any) -> bool:
        return bool(t.size > SECTORS["IBM"])

    with pytest.raises(
        CodeError, match=r"the name 'SECTORS' means a dict outside this function; .* only numbers"
    ):
        build(large, "filter", [Input("input", EVENT)])


def test_function_without_source_is_refused() -> None:
    made: Any = eval("lambda t: t.size")
    with pytest.raises(CodeError, match="the source of Python function <lambda> cannot be found"):
        build(made, "filter", [Input("input", EVENT)])

    async def waits(t: Any) -> bool:
        return True

    with pytest.raises(CodeError, match=r"waits is a coroutine, .* write 'def', not 'async def'"):
        build(waits, "filter", [Input("input", EVENT)])
    with pytest.raises(
        CodeError,
        match=r"len> is not a text of Cod and not a Python function.*Filter\(\"input\.x > 3\"\)",
    ):
        build(len, "filter", [Input("input", EVENT)])
