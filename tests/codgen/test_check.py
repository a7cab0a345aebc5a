"""What the checker refuses, in words that say what to do, and how it sees events of other schemas."""

from __future__ import annotations

from typing import Any

import pytest

import evflow as ev
from evflow import CodeError, Schema, SchemaError
from evflow.codgen.front import Input, build
from evflow.codgen.tree import Fault
from evflow.schema.types import NUMBERS, Array, Bytes, ListOf, Maybe, Record, Str, f64, i16, i32, u8
from tests.codgen.compiling import compile
from tests.codgen.interpret import interpret, interpret_queue

SUB = Schema("sub", {"weight": float, "count": i16})
SUB_RECORD = Record("sub", {"sub": SUB})
EVENT = Schema(
    "event",
    {
        "price": float,
        "size": i32,
        "name": Str[8],
        "sub": SUB,
        "parts": ListOf(SUB_RECORD),
        "grid": Array[i32, 3, 2],
        "wave": Array[f64, None],
        "level": Maybe(f64),
        "extra": Maybe(SUB_RECORD),
    },
)
OUTPUT = Schema(
    "output",
    {
        "total": int,
        "name": Str[4],
        "sub": SUB,
        "grid": Array[f64, 3, 2],
        "wave": Array[f64, None],
        "level": Maybe(f64),
    },
)
FIELDS = "price, size, name, sub, parts, grid, wave, level, extra"


def refusal(text: str, kind: str = "transform") -> str:
    """The whole message that this text gets."""
    with pytest.raises(CodeError) as caught:
        build(text, kind, [Input("input", EVENT)], [("output", OUTPUT)])
    return str(caught.value)


def test_error_shows_the_line_and_points_at_the_column() -> None:
    assert refusal("int x = 1;\nreturn x +\n   input.prise;") == (
        f"'input' has no field 'prise' (did you mean 'price'?); its fields are {FIELDS}\n"
        "   3 |    input.prise;\n"
        "                ^ line 3, column 10"
    )


def test_column_of_the_first_line_is_that_of_the_users_text() -> None:
    assert refusal("input.price + nothing").endswith("\n                     ^ line 1, column 15")
    assert refusal("{ return nothing; }").endswith("^ line 1, column 10")
    assert refusal("string s = input.name; return nothing;").endswith("^ line 1, column 31")


WRONG = [
    ("input.price + input.name", "'+' needs numbers, found a text"),
    ("input.price & 3", "'&' needs integers, found a number (f64)"),
    ("~input.price", "'~' needs integers, found a number (f64)"),
    ("input.price % 2", "'%' needs integers; for floats there is fmod(x, y)"),
    ("input.name == 3", "'==' compares two numbers or two texts, found a text and a number (i32)"),
    ("input.name && 1", "a text is not a condition; compare it, or test its length(...)"),
    ("input.size ? 1 : \"a\"",
     "both branches must be numbers, or both texts; found a number (i32) and a text"),
    ("(int) input.name", "expected a number (i32), found a text"),
    ("input.name", "the result is a text; expected a number: not zero sends the output on, zero drops it"),
    ("input.sub", "'input.sub' is a record (record(sub)), which has no value; name one of its fields"),
    ("input", "'input' is an event, which has no value; name one of its fields"),
    ("input.size.x", "'input.size' is i32; it has no field 'x'"),
    ("input.sub.wait",
     "'input.sub' has no field 'wait' (did you mean 'weight'?); its fields are weight, count"),
    ("input.grid", "'input.grid' is array(i32,3,2): expected 2 indexes, found 0"),
    ("input.grid[1]", "'input.grid[…]' is array(i32,3,2): expected 2 indexes, found 1"),
    ("input.grid[1][2][3]", "'input.grid[…][…]' is not an array, list or queue; it cannot be indexed"),
    ("input.parts.weight", "'input.parts' is list(record(sub)): expected 1 index, found 0"),
    ("input.size[0]", "'input.size' is not an array, list or queue; it cannot be indexed"),
    ("input.wave[1.5]", "expected an integer here, found a number (f64)"),
    ("int a[3]; return a;", "'a' is an array: expected 1 index, found 0"),
    ("int a[3]; return a[1][2];", "'a' has 1 dimension; there is one index too many"),
    ("nothing", "the name 'nothing' is not known"),
    ("prise > 3", "the name 'prise' is not known"),
    ("price > 3", "the name 'price' is not known; a field is written 'input.price'"),
    ("int count1; return count2;", "the name 'count2' is not known (did you mean 'count1'?)"),
    ("{ int x; } return x;", "the name 'x' is not known"),
    ("int x; int x; return x;", "'x' is already declared here"),
    ("int input; return 1;", "'input' cannot be declared: it is the event"),
    ("input.size = 3; return 1;",
     "'input.size' belongs to an event, which cannot be changed; assign to a variable or an "
     "output"),
    ("3 = 4; return 1;", "this cannot be assigned to; expected a variable or a field of an output"),
    ("const int k = 3; k++; return k;", "'k' is const"),
    ("output.wave[0] = 1; return 1;",
     "'output.wave' has no fixed size; in an output it can only be copied as a whole "
     "from an event"),
    ("output.sub = 3; return 1;", "'output.sub' can only be copied as a whole, from a field of an event"),
    ("output.name == \"x\"", "'output.name': the text of an output can only be set, not read"),
    ("output.total = input.grid; return 1;",
     "'output.total' is i64, 'input.grid' is array(i32,3,2): expected one and the "
     "same type"),
    ("output.sub = output.sub; return 1;",
     "a whole record, array or list is copied only from an event into an output"),
    ("output.name = 3; return 1;", "'output.name' holds a text, found a number (i32)"),
    ("return fine(1);", "there is no function 'fine' (did you mean 'fmin'?)"),
    ("sqrt(1, 2)", "sqrt(...) takes 1 argument, found 2"),
    ("pow(2)", "pow(...) takes 2 arguments, found 1"),
    ("sqrt(input.name)", "sqrt(...) takes a number here, found a text"),
    ("contains(input.name, 3)", "contains(...) takes a text here, found a number"),
    ("min(1)", "min(...) takes at least 2 arguments, found 1"),
    ("length(input.grid, 2)", "'input.grid' has 2 dimensions; there is none 2"),
    ("length(3)", "length(...) takes a text, an array, a list or a queue"),
    ("present(3)", "present(...) takes an optional field of an event"),
    ("count(input)", "count(...) takes a queue"),
    ("return submit(0, output);", "submit(...) has no value; write it as a statement of its own"),
    ("submit(0, input.sub); return 1;",
     "submit(port, event) takes an event: the input, a queued one, or an output"),
    ("attr_ivalue(input, \"k\")", "attr_ivalue(...) takes event_attrs or stone_attrs first"),
    ("attr_ivalue(event_attrs, input.name)", "the name of an attribute must be a literal text"),
    ("attr_ivalue(event_attrs, \"k\", input.size)", "the default of an attribute must be a constant"),
    ("set_int_attr(stone_attrs, \"k\", 1); return 1;",
     "the attributes of a stone can only be read; set those of the "
     "event"),
    ("set_int_attr(event_attrs, \"k\", \"v\"); return 1;", "expected a number (i64), found a text"),
    ("return;", "'return' needs a value here: not zero sends the output on, zero drops it"),
    ("input.size > 3;", "this function never returns a value: not zero sends the output on, zero drops it"),
    ("", "the text is empty; expected an expression or a block with 'return'"),
    ("/* only */ // this", "the text is empty; expected an expression or a block with 'return'"),
    ("return 1", "syntax error at the end of the text; perhaps a ';' is missing before it"),
    ("int x = 3\nreturn x;", "syntax error at 'return'; perhaps a ';' is missing before it"),
    ("input.size +", "syntax error at the end of the text"),
    ("x = ;", "syntax error at ';'"),
    ("input.size > 3 and input.size < 5", "syntax error at 'and'; 'and' is written &&"),
    ("input.size > 3 or input.size < 5", "syntax error at 'or'; 'or' is written ||"),
    ("not input.size", "syntax error at 'input'; 'not' is written !"),
    ("input.size == True", "the name 'True' is not known; in Cod it is true"),
    ("(input.size", "'(' is never closed"),
    ("input.size)", "')' closes nothing"),
    ("input.name == \"IBM", "the text is never closed"),
    ("input.size /* three", "the comment is never closed"),
    ("#define X 3\nreturn X;", "there is no preprocessor in Cod"),
    ("return 1; } int more() { return 2;", "'}' closes nothing"),
    ("int *p; return 1;", "Cod has no pointers; a text is declared 'string name'"),
    ("return &input;", "Cod has no pointers"),
    ("input->size", "Cod has no pointers; write '.' instead of '->'"),
    ("goto end; end: return 1;", "'goto' is not part of Cod"),
    ("end: return 1;", "a label is not part of Cod"),
    ("struct s { int x; } v; return 1;", "a struct of one's own is not part of Cod"),
    ("typedef int t; return 1;", "'typedef' is not part of Cod"),
    ("int f(int x); return 1;", "a function of one's own is not part of Cod"),
    ("extern int x; return 1;", "'extern' is not part of Cod"),
    ("sizeof(int)", "'sizeof' is not part of Cod"),
    ("long double x; return 1;", "there is no type 'long double' in Cod"),
    ("break; return 1;", "'break' is not in a loop or a switch"),
    ("switch (1) { case 1: continue; } return 1;", "'continue' is not in a loop"),
    ("switch (1) { case 1: case 1: return 1; } return 1;", "case 1 stands there twice"),
    ("switch (1) { case input.size: return 1; } return 1;", "the value of a case must be a constant integer"),
    ("switch (1.5) { case 1: return 1; } return 1;", "'switch' needs an integer"),
    ("case 1: return 1;", "'case' outside of a switch is not part of Cod"),
    ("static int n = input.size; return n;",
     "a static variable starts with a constant; assign what changes in a "
     "statement"),
    ("static string s; return 1;", "'s': a text variable can be neither static nor an array"),
    ("int a[input.size]; return 1;", "the size of an array must be a constant integer"),
    ("int a[0]; return 1;", "an array of 0 elements: expected 1 to 1048576"),
    ("int a[9000]; return 1;", "arrays of 72000 bytes (8 an element): expected at most 65536 in all"),
    ("int a[2] = {1, 2, 3}; return 1;", "these braces hold more values than the array"),
    ("int a[2] = 3; return 1;", "an array is initialised by values in braces"),
    ("int x = {3}; return 1;", "'x' is a single value; braces are for arrays"),
    ("'ab'", "'...' holds exactly one character; write a text in \"...\""),
    ("18446744073709551616", "the number 18446744073709551616 does not fit 64 bits"),
    ('"\\q" == "q"', "'\\q' is not an escape of C"),
    ("1" + " + 1" * 200, "nested deeper than 150 levels; use variables for parts of it"),
    ("60 * 1000000000", "'*' gives more than i32 holds; write L behind a number to compute in 64 bits"),
    ("9223372036854775807 + 1", "'+' gives more than i64 holds"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "message"), WRONG, ids=[text[:60] for text, _ in WRONG])
def test_wrong_code_is_refused_in_these_words(text: str, message: str) -> None:
    assert refusal(text).split("\n")[0] == message


@pytest.mark.parametrize(
    ("text", "line", "column"),
    [
        ("1 + (input.size", 1, 5),
        ("int a = 1;\n  return input.size);", 2, 20),
        ("int a = 1;\n  return (input.size;", 2, 10),
        ("int a = 1; /* one\ntwo */ /* three", 2, 8),
        ("int a = 1;\n\n #define X 3", 3, 2),
    ],
)
def test_brackets_and_marks_that_do_not_fit_have_their_place(text: str, line: int, column: int) -> None:
    with pytest.raises(CodeError) as caught:
        build(text, "filter", [Input("input", EVENT)])
    assert (caught.value.line, caught.value.column) == (line, column)


def test_hostile_nesting_is_refused() -> None:
    for text in (
        "(" * 5000 + "1" + ")" * 5000,
        "-" * 5000 + "1",
        "{" * 3000 + "}" * 3000,
        "1" + "?1:1" * 3000,
    ):
        assert "nested" in refusal(text)
    for text in ("lambda t: " + "(" * 5000 + "1" + ")" * 5000, "lambda t: " + "1 + " * 5000 + "1"):
        with pytest.raises(CodeError):
            build(text, "filter", [Input("input", EVENT)])
    assert refusal("x" * 300_000).startswith("the text has 300000 characters")


def test_deep_nesting_within_the_limit_works() -> None:
    event = {"size": 3}
    for text in ("- " * 140 + "input.size", "if (1) " * 140 + "return 3;", "!" * 140 + "input.size ? 3 : 0"):
        assert interpret(build(text, "router", [Input("input", EVENT)]), event).result == 3
    sum_of_many = "input.size" + " + 0 * input.size" * 140
    assert interpret(build(sum_of_many, "router", [Input("input", EVENT)]), event).result == 3
    for text in ("lambda t: " + "-" * 140 + "t.size", "lambda t: t.size" + " + 0" * 140):
        assert interpret(build(text, "router", [Input("input", EVENT)]), event).result == 3


@pytest.mark.slow
def test_short_text_cannot_ask_for_endless_copies() -> None:
    wide = Schema("wide", {f"f{i}": int for i in range(500)})
    text = "output = input;" * 201 + "return 1;"
    with pytest.raises(CodeError, match="copies of whole records write more than 100000 fields"):
        build(text, "transform", [Input("input", wide)], [("output", wide)])


def test_two_events_of_one_name_are_refused() -> None:
    with pytest.raises(
        CodeError, match="'a' names two events; each input and output needs a name of its own"
    ):
        build("submit(0, a);", "queue", [Input("a", EVENT)], [("a", OUTPUT)])


def test_queue_is_no_event() -> None:
    def attempt(text: str) -> str:
        with pytest.raises(CodeError) as caught:
            build(text, "queue", [Input("a", EVENT)], [("c", OUTPUT)])
        return str(caught.value).split("\n")[0]

    assert attempt("a.size;") == "'a' is a queue: write a[0].size or count(a)"
    assert attempt("int x = a;") == "'a' is a queue: write a[0].field or count(a)"
    assert attempt("a[0].sise;").startswith("'a[…]' has no field 'sise' (did you mean 'size'?)")
    assert attempt("discard(c, 0);") == "discard(...) takes a queue"


def test_unknown_kind_and_missing_output_are_refused() -> None:
    with pytest.raises(
        CodeError, match="a function of kind 'map': expected one of filter, transform, router, queue"
    ):
        build("1", "map", [Input("input", EVENT)])
    with pytest.raises(CodeError, match="a transform fills an output: expected an output schema, found none"):
        build("1", "transform", [Input("input", EVENT)])


DECLARED = Schema(
    "declared",
    {
        "size": int,
        "price": float,
        "name": str,
        "code": u8,
        "level": Maybe(f64),
        "note": str,
        "rate": float,
        "parts": ListOf(SUB_RECORD),
    },
    {"level": None, "note": "none", "rate": 1.5, "parts": []},
)  # fmt: skip
ACTUAL = Schema(
    "actual",
    {"other": str, "name": Bytes[6], "size": i16, "price": NUMBERS["f32"], "code": int},
)
VALUES: dict[str, Any] = {"other": "x", "name": b"IBM", "size": 12, "price": 2.5, "code": 200}


def over_actual(text: str, **values: Any) -> Any:
    function = build(text, "router", [Input("input", DECLARED, ACTUAL)])
    return interpret(function, {**VALUES, **values})


def test_fields_of_a_larger_event_are_converted() -> None:
    assert over_actual('input.size * 2 + (input.price == 2.5) + (input.name == "IBM")').result == 26
    assert over_actual("input.code").result == 200
    assert over_actual("input.code", code=256).fault == Fault.RANGE
    assert over_actual("input.size", code=256).result == 12


def test_missing_fields_take_their_defaults() -> None:
    assert over_actual('input.note == "none" && input.rate == 1.5').result == 1
    assert over_actual("present(input.level) * 2 + present(input.note) + length(input.parts)").result == 1
    assert over_actual("present(input.level) ? input.level : 7").result == 7
    assert over_actual("input.level").fault == Fault.INDEX
    assert over_actual("input.parts[0].weight").fault == Fault.INDEX


def test_event_that_does_not_fit_names_every_field() -> None:
    other = Schema("other", {"size": str, "sub": Schema("sub", {"count": int})})
    declared = Schema(
        "declared", {"size": int, "sub": SUB, "price": float, "extra": Maybe(f64)}, {"extra": None}
    )
    with pytest.raises(SchemaError) as caught:
        build("1", "filter", [Input("input", declared, other)])
    assert str(caught.value) == (
        "events of other do not fit declared: field size is str, expected i64; "
        "field sub.weight (f64) is missing and has no default; "
        "field price (f64) is missing and has no default"
    )


def test_function_without_schema_takes_any_event() -> None:
    text = (
        'set_int_attr(event_attrs, "hops", attr_ivalue(event_attrs, "hops") + 1); submit(3, input); return 1;'
    )
    function = build(text, "filter", [Input("input", None, ACTUAL)])
    assert function.inputs == (("input", None),)
    assert function.attributes == ("hops",)
    outcome = interpret(function, VALUES, attributes={"hops": 4})
    assert (outcome.result, outcome.attributes, outcome.emitted) == (
        1,
        {"hops": 5},
        [(3, ("input", 0), VALUES)],
    )
    with pytest.raises(CodeError, match="'input' has no declared schema, so its fields are not known"):
        build("input.size", "filter", [Input("input", None)])


def test_index_with_effects_is_evaluated_once() -> None:
    for text, expected in (
        (
            "int a[3], i = 0; a[i++] += 7; a[i++]++; --a[i++];"
            "return a[0] * 100 + a[1] * 10 + a[2] + i * 1000;",
            3709,
        ),
        ("int i = 0; output.grid[i++][i++] += 2.5; return output.grid[0][1] * 10 + i;", 27),
        ("static int b[2][2]; int i = 0; b[i++][(i += 0) ? 1 : 0] -= 3; return b[0][1] * 10 + i;", -29),
        ("int i = 5; return min(i++, 9) * 10 + i;", 56),
    ):
        function = build(text, "router", [Input("input", EVENT)], [("output", OUTPUT)])
        assert interpret(function, {}).result == expected, text


def test_whole_fields_are_copied_and_stay_apart() -> None:
    text = (
        "output = input; output.sub.count = 9; output.grid[0][0] = 0.5; submit(1, output);"
        "output.sub = input.parts[1]; output.level = input.level; output.wave = input.wave; return 1;"
    )
    event: dict[str, Any] = {
        "price": 1.0,
        "size": 3,
        "name": "IBM",
        "sub": {"weight": 1.5, "count": 2},
        "parts": [{"weight": 0.0, "count": 0}, {"weight": 4.5, "count": 7}],
        "grid": [[1, 2], [3, 4], [5, 6]],
        "wave": [1.0, 2.0],
        "level": 0.25,
        "extra": None,
    }
    outcome = interpret(build(text, "transform", [Input("input", EVENT)], [("output", OUTPUT)]), event)
    first, second = (e.event for e in outcome.emitted)
    assert first["grid"].tolist() == [[0.5, 2.0], [3.0, 4.0], [5.0, 6.0]]
    assert (first["sub"], first["name"], first["total"]) == ({"weight": 1.5, "count": 9}, "IBM", 0)
    assert (second["sub"], second["level"], second["name"]) == ({"weight": 4.5, "count": 7}, 0.25, "")
    assert event["sub"] == {"weight": 1.5, "count": 2}


def test_optional_field_is_copied_or_converted() -> None:
    same = build(
        "output.level = input.level; return 1;", "transform", [Input("input", EVENT)], [("output", OUTPUT)]
    )
    assert interpret(same, {"level": None}).emitted[0].event["level"] is None
    narrow = Schema("narrow", {"level": Maybe(i32)})
    other = build(
        "output.level = input.level; return 1;", "transform", [Input("input", EVENT)], [("output", narrow)]
    )
    assert interpret(other, {"level": 2.0}).emitted[0].event == {"level": 2}
    assert interpret(other, {"level": None}).fault == Fault.ABSENT


def test_queue_index_with_effects_is_evaluated_once_in_a_copy() -> None:
    text = "int i = 0; c = a[i++]; c.total = i; submit(0, c);"
    function = build(text, "queue", [Input("a", OUTPUT)], [("c", OUTPUT)])
    queued = {
        "total": 9,
        "name": "q",
        "sub": {"weight": 1.0, "count": 1},
        "grid": [[0.0] * 2] * 3,
        "wave": [],
        "level": 2.0,
    }
    outcome = interpret_queue(function, [[queued]])
    assert (outcome.emitted[0].event["total"], outcome.emitted[0].event["level"]) == (1, 2.0)


def test_same_arguments_give_the_same_tree() -> None:
    def over(limit: float) -> Any:
        return lambda t: t.size > limit

    inputs = [Input("input", EVENT)]
    assert build("input.size", "filter", inputs) is build("input.size", "filter", inputs)
    assert build("input.size", "filter", inputs) is not build("input.size", "router", inputs)
    assert build(over(1), "filter", inputs) is build(over(1), "filter", inputs)
    assert build(over(1), "filter", inputs) != build(over(1.0), "filter", inputs)
    assert build(over(1), "filter", inputs) != build(over(2), "filter", inputs)


@pytest.mark.parametrize(
    ("code", "passed"),
    [
        ('lambda e: e.side in ("sell", "hold")', [1, 2]),
        ('lambda e: e.side not in ("sell",)', [0, 2]),
        ('lambda e: (e.side if e.side != "hold" else e.other) == "buy"', [0, 2]),
        ('lambda e: e.other == e.side == "buy"', [0]),
        ('(input.side == "hold" ? input.other : input.side) == "buy"', [0, 2]),
        ('(input.side == "hold" ? "buy" : input.side) == 0', [0, 2]),
        ('{ switch (input.side) { case "buy": return 0; case "sell": return 1; } return 0; }', [1]),
    ],
)
def test_names_of_an_enumeration_are_meant_wherever_values_are_compared(code: str, passed: list[int]) -> None:
    sides = ev.Enum["buy", "sell", "hold"]
    schema = ev.Schema("Sided", {"side": sides, "other": sides})
    rows = [{"side": side, "other": "buy"} for side in ("buy", "sell", "hold")]
    batch = ev.EventBatch.from_events(rows, schema)
    assert compile(code, schema).select(batch.data, 3).tolist() == passed


def test_a_case_without_a_name_of_the_enumeration_is_refused() -> None:
    schema = ev.Schema("Sided", {"side": ev.Enum["buy", "sell"]})
    with pytest.raises(ev.CodeError, match="'hold' is not a name of enum"):
        compile('{ switch (input.side) { case "hold": return 1; } return 0; }', schema)
