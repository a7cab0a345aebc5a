"""Functions that are long, wide or deep: they run as short ones do, or are refused with a sentence."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

import evflow as ev
from evflow.codgen.front import Input, build
from evflow.codgen.kernel import Port, Stage, kernel
from evflow.errors import CodeError
from evflow.events.encode import encode_dict
from tests.codgen import interpret
from tests.codgen.compiling import compile

EVENT = ev.Schema("Numbers", {"a": int, "b": float, "s": str, "t": ev.Str[8]})
VALUES = {"a": 7, "b": 0.5, "s": "text", "t": "x"}


def _result(text: str) -> int:
    """What a router gives, by the interpreter and by machine code."""
    made = build(text, "router", [Input("input", EVENT)])
    wanted = interpret.interpret(made, VALUES)
    found = compile(text, EVENT, kind="router")(encode_dict(EVENT, VALUES))
    assert (found.result, found.fault) == (wanted.result, wanted.fault)
    return wanted.result


@pytest.mark.parametrize("count", [2, 3, 40, pytest.param(200, marks=pytest.mark.slow)])
@pytest.mark.parametrize("python", [False, True])
def test_least_and_greatest_of_many(count: int, python: bool) -> None:
    random = Random(count)
    numbers = [random.randrange(1000) for _ in range(count)]
    form = "lambda e: int({})" if python else "{}"
    for name, wanted in (("min", min(numbers)), ("max", max(numbers))):
        listed = ", ".join(f"input.a - 7 + {n}" for n in numbers)
        listed = listed.replace("input", "e") if python else listed
        assert _result(form.format(f"{name}({listed})")) == wanted


def test_many_commas_keep_their_order() -> None:
    steps = ", ".join(f"i = i * 3 + {n}" for n in range(700))
    wanted = 0
    for n in range(700):
        wanted = (wanted * 3 + n) % (1 << 64)
    assert _result(f"{{ unsigned long i = 0; return ({steps}, i % 1000003); }}") == wanted % 1000003


def test_a_function_that_is_wide_runs_in_a_flow() -> None:
    class Numbers(ev.Event):
        a: int

    seen: list[int] = []
    graph = ev.Graph()
    wide = f"min({', '.join(['input.a'] * 100)}) > 3"
    graph.source("in", Numbers) >> ev.Filter(wide) >> ev.Terminal(lambda event: seen.append(event.a))
    with graph.run() as flow:
        for a in (5, 2):
            flow["in"].submit(Numbers(a))
        flow.drain()
        assert not flow.dead_letters()
    assert seen == [5]


@pytest.mark.parametrize(
    "made",
    [
        lambda: "-" * 10_000 + "1",
        lambda: "-~" * 74 + "input.a",
        lambda: "!-" * 70 + "input.a",
        lambda: "(" * 5_000 + "1" + ")" * 5_000,
        lambda: "sin(" * 120 + "1" + ")" * 120,
        lambda: "+".join(["input.a"] * 5_000),
        lambda: "input.a ? 1 : " * 2_000 + "0",
        lambda: "{" + "".join(f"if (input.a == {n}) return {n}; else " for n in range(140)) + "return 0; }",
        lambda: "{" + "".join(f"if (input.a == {n}) return {n}; else " for n in range(3000)) + "return 0; }",
        lambda: "{ long a[9]; return " + "a[" * 74 + "0" + "]" * 74 + "; }",
        lambda: "{ int i = 0; " + "while (i < 3) {" * 70 + "i++;" + "}" * 70 + " return i; }",
        lambda: "{ switch (input.a) {" + "".join(f"case {n}: break;" for n in range(999)) + "} return 0;}",
        lambda: "{ long v[8192]; v[8191] = 5; return v[input.a] + v[8191]; }",
        lambda: "{ long v[9000]; return v[input.a]; }",
        lambda: "{ static long v[131072]; return v[input.a]; }",
        lambda: f'contains("{"x" * 60_000}", input.t)',
        lambda: "9" * 60_000,
        lambda: "lambda e: " + " + ".join(["e.a"] * 5_000),
        pytest.param(lambda: "lambda e: " + " < ".join(["e.a"] * 2_000), marks=pytest.mark.slow),
        pytest.param(lambda: "lambda e: " + " or ".join(["e.a"] * 1_000), marks=pytest.mark.slow),
        lambda: "lambda e: e.a in (" + ", ".join(map(str, range(2_000))) + ")",
        lambda: "lambda e: " + "not " * 5_000 + "e.a",
        lambda: "lambda e: " + "e.a ** 64 + " * 100 + "1",
        lambda: "def f(e):\n" + "".join("  " * n + " if e.a:\n" for n in range(90)) + " " * 400 + "return 1",
    ],
)  # fmt: skip
def test_long_and_deep_functions_run_or_are_refused(made: Callable[[], str]) -> None:
    text = made()
    try:
        _result(text)
    except CodeError as error:
        assert error.message


def test_a_text_that_doubles_with_each_level_is_refused() -> None:
    text = "(strcmp(" * 25 + "input.s" + ', "x") > 1 ? input.s : input.t)' * 25 + ' == "x"'
    with pytest.raises(CodeError, match="more than 250000 operations"):
        build(text, "filter", [Input("input", EVENT)])


def test_functions_are_the_same_by_what_they_do() -> None:
    def built(text: str, fuel: int = 99) -> object:
        return build(text + " " * (1 << 14), "filter", [Input("input", EVENT)], fuel=fuel)

    one, other = built("input.a > 3"), built("input.a > 3")
    assert one is not other and one == other and hash(one) == hash(other)
    different = [built("input.a > 4"), built("input.a >= 3"), built("input.b > 3"), built("input.a > 3", 98)]
    assert all(one != each for each in different)
    assert one != "input.a > 3"


def test_what_cannot_be_compiled_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for error, words in (
        (RecursionError("deep"), "nested too deeply to be compiled"),
        (RuntimeError("bad IR"), "LLVM cannot compile this code: bad IR"),
        (MemoryError(), "LLVM cannot compile this code: MemoryError"),
    ):

        def failing(*args: object, error: BaseException = error, **more: object) -> None:
            raise error

        made = build(f"input.a > 3 /* {words} */", "filter", [Input("input", EVENT)])
        with monkeypatch.context() as patched:
            patched.setattr("evflow.codgen.kernel.KernelCode", failing)
            with pytest.raises(CodeError, match=words):
                kernel((Stage(made, 0, (Port((), 0),)),), EVENT)


def test_a_port_that_is_far_away_is_refused() -> None:
    class Numbers(ev.Event):
        a: int

    graph = ev.Graph()
    router = graph.source("in", Numbers) >> ev.Router("input.a")
    router[1 << 40] >> ev.Terminal(print)
    with pytest.raises(ev.GraphError, match="port 1099511627776 is linked; ports count to 10000"):
        graph.check()
