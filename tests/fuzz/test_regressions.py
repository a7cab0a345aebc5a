"""What the fuzzers found."""

from __future__ import annotations

import gc
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from evflow import CodeError, EventBatch, Schema, SchemaError
from evflow.codgen import native
from evflow.codgen.front import Input, build, source_of
from evflow.codgen.kernel import Kernel, KernelCode, Port, Stage
from evflow.codgen.runtime import new_state
from evflow.codgen.tree import Fault, Function
from evflow.events.attributes import Attributes
from evflow.schema.types import BLOB, TEXT, Bytes, Maybe, Record, Str
from tests.codgen.compiling import compile
from tests.fuzz import differential, guard
from tests.fuzz.differential import Inputs

LONG = 10**5000
INNER = Schema("inner", {"name": TEXT})
TEXTS = Schema(
    "texts",
    {"raw": BLOB, "short": Bytes[9], "s": Str[9], "t": TEXT, "m": Maybe(TEXT), "p": Maybe(Str[9]),
     "in_": Record("inner", {"inner": INNER})},
)  # fmt: skip


def compare(made: Function, schema: Schema, events: list[dict[str, Any]]) -> differential.Trace:
    """What the interpreter says, after native code has said the same."""
    inputs = Inputs(schema, events, [{} for _ in events])
    with guard.installed():
        differential.check(made, inputs, Random(0))
    return differential.expected(made, inputs)


def transform(code: str, input: Schema, output: Schema) -> Function:
    return build(code, "transform", [Input("input", input)], [("output", output)])


@pytest.mark.parametrize("target", ["s", "t", "m", "p", "in_.name"])
@pytest.mark.parametrize("source", ["raw", "short"])
def test_text_field_takes_bytes_only_if_they_are_utf8(target: str, source: str) -> None:
    made = transform(f"{{ string s = input.{source}; output.{target} = s; return 1; }}", TEXTS, TEXTS)
    event = {"raw": b"", "short": b"", "s": "", "t": "", "m": None, "p": None, "in_": {"name": ""}}
    contents = [b"plain", "é漢".encode(), b"\xff", "é".encode()[:1], b"\xed\xa0\x80", b""]
    found = compare(made, TEXTS, [{**event, source: content} for content in contents])
    assert found.results == [1, 1, *[(Fault.TEXT.name, 1)] * 3, 1]


def test_text_literal_that_is_no_utf8_is_a_fault_where_text_must_be() -> None:
    schema = Schema("s", {"x": int})
    made = transform('{ output.t = input.x ? "\\xff" : "ok"; return 1; }', schema, Schema("o", {"t": TEXT}))
    assert compare(made, schema, [{"x": 0}, {"x": 1}]).results == [1, ("TEXT", 1)]


def test_attribute_takes_bytes_only_if_they_are_utf8() -> None:
    schema = Schema("s", {"raw": BLOB})
    made = build(
        '{ set_string_attr(event_attrs, "a", input.raw); return 1; }', "filter", [Input("input", schema)]
    )
    found = compare(made, schema, [{"raw": b"a\xff"}, {"raw": b"ab"}])
    assert found.results == [("TEXT", 1), 1]
    assert found.sent[0] == [(1, "in", {"a": "ab"})]


@pytest.mark.parametrize(
    "code",
    ['attr_set(event_attrs, "\\xff")', 'attr_ivalue(stone_attrs, "\\xff")', 'lambda e: b"\\xff" in e.attrs'],
)
def test_name_of_an_attribute_is_text(code: str) -> None:
    with pytest.raises(CodeError, match="the name of an attribute must be text in UTF-8"):
        build(code, "filter", [Input("input", None)])


@pytest.mark.parametrize("row", [{"a": "\ud800"}, {"a": "x\udcff"}, {"\ud800": 1}])
def test_attributes_have_no_lone_surrogates(row: dict[str, Any]) -> None:
    with pytest.raises(SchemaError, match="without lone surrogates"):
        Attributes.from_rows([row])


@pytest.mark.parametrize(
    "body",
    [
        "int i = output.x++ < 1; output.x = input.n + i; return 1;",
        "output.x *= input.n; submit(input.n, output); return 1;",
        "for (int k = 0; k < 3; k++) { output.x += input.n; submit(k, output); } return output.x--;",
        "output.a[1] = 3; output.a[input.n & 1] -= 5; output.x = output.a[0] + output.a[1]; return 1;",
    ],
)
def test_output_is_read_as_it_was_written_also_in_optimised_code(body: str) -> None:
    schema, array = Schema("s", {"n": "i32"}), {"a": "array(i16,2)"} if ".a" in body else {}
    for output in (Schema("o", {"x": int, **array}, {"x": 6}), Schema("o", {"x": int, **array, "y": BLOB})):
        compare(transform(f"{{ {body} }}", schema, output), schema, [{"n": n} for n in (0, 1, -3, 2)])


@pytest.mark.slow
def test_optimising_frees_what_it_used() -> None:
    text = "define void @f() {\n ret void\n}"

    def optimise(times: int) -> int:
        for _ in range(times):
            native._optimise(native._parsed(text), native._machine(optimised=True))
        gc.collect()
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

    before = optimise(20)
    assert optimise(150) - before < 2 << 20


@pytest.mark.parametrize(
    "number", ["0x" + "f" * 5000, "0b" + "1" * 20_000, f"-0x{'f' * 5000}"], ids=["x", "b", "-"]
)
def test_huge_integer_in_python_is_refused(number: str) -> None:
    for code in (f"lambda e: e.x > {number}", f"def f(e):\n    return e.x ** {number}"):
        with pytest.raises(CodeError, match="does not fit 64 bits"):
            build(code, "filter", [Input("input", Schema("s", {"x": int}))])


def test_huge_integer_around_a_function_is_refused() -> None:
    def outside(e: Any) -> bool:
        return bool(e.x > LONG)

    for function in (outside, lambda e: e.x > LONG):
        with pytest.raises(CodeError):
            build(function, "filter", [Input("input", Schema("s", {"x": int}))])
    assert "> 0x" in source_of(lambda e: e.x > LONG)


@pytest.mark.parametrize("kind", ["i64", "f64", "str", "list(i8)", "array(u8,?)"])
def test_huge_integer_as_a_value_is_refused(kind: str) -> None:
    schema = Schema("s", {"x": kind})
    value: Any = [-LONG] if "(" in kind else LONG
    for make in (
        EventBatch.from_events,
        lambda rows, schema: EventBatch.from_columns(schema, {"x": [rows[0]["x"]]}),
    ):
        with pytest.raises(SchemaError, match="expected"):
            make([{"x": value}], schema)


def test_huge_integer_as_a_name_or_default_is_refused() -> None:
    for description in ({"name": LONG, "fields": []}, {"name": "s", "fields": [["x", "i8", LONG]]}):
        with pytest.raises(SchemaError):
            Schema.from_description(description)


@pytest.mark.parametrize(
    "text", ["\ndef f(e):\n    return 1\0", "  def f(e):\n    return 1 +\n", "\n\nlambda e: \0"]
)
def test_place_of_an_error_is_in_the_text(text: str) -> None:
    with pytest.raises(CodeError, match="no valid Python") as caught:
        build(text, "filter", [Input("input", None)])
    assert 1 <= caught.value.line <= text.count("\n") + 1
    assert caught.value.column >= 1


@pytest.mark.parametrize(
    "value", [1 << 63, -LONG, "\ud800", None, [1]], ids=["i64", "long", "surrogate", "none", "list"]
)
def test_what_is_no_attribute_of_a_stone_counts_as_not_set(value: Any) -> None:
    made = build(
        'attr_ivalue(stone_attrs, "n", 5) == 5 && !attr_set(stone_attrs, "n")',
        "filter",
        [Input("input", None)],
    )
    kernel = Kernel(KernelCode((Stage(made, 0, (Port((), 0),)),), None))
    data = guard.read_only(b"\x91\xc2")
    result = kernel.run(data, None, None, 1, None, [new_state(made)], [{"n": value}], {})
    assert result.counts.tolist() == [[1, 1, 0, 0]]


@pytest.mark.parametrize("selection", [None, [1, 2]])
def test_function_of_attributes_never_looks_for_events(selection: list[int] | None) -> None:
    made = build('attr_ivalue(stone_attrs, "n") == 3', "filter", [Input("input", None)])
    kernel = Kernel(KernelCode((Stage(made, 0, (Port((), 0),)),), None))
    chosen = None if selection is None else np.array(selection, np.int32)
    result = kernel.run(guard.read_only(b""), None, chosen, 3, None, [new_state(made)], [{"n": 3}], {})
    assert result.counts.tolist() == [[3 if selection is None else 2] * 2 + [0, 0]]
    assert compile('attr_set(stone_attrs, "n")').select(guard.read_only(b""), 3).tolist() == []
