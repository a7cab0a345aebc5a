"""Cod's parser: pycparser judges its trees, and what is refused is refused in one place and by its name."""

from __future__ import annotations

import sys
from random import Random
from types import FrameType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evflow import CodeError, Schema
from evflow.codgen.front import Input, build
from evflow.codgen.source.codnodes import BinaryOp, Compound, Node
from evflow.codgen.source.codparse import parse
from tests.codgen.cparsed import Refused, by_evflow, by_pycparser
from tests.codgen.ctexts import CText
from tests.codgen.interpret import interpret
from tests.examples import tried
from tests.fuzz.codprograms import CodProgram
from tests.fuzz.hostile import mutated

SCHEMA = Schema("event", {"f0": int, "f1": float, "f2": str})
ONLY_EVFLOW = ("Invalid char constant", "Invalid struct reference")
"""Long characters, which are refused later and in better words; fields that are named like a keyword."""

ONLY_PYCPARSER = ("is not a number of C", "is never closed")
"""A point directly behind a number, which has no fields; C23's ' between digits."""


def refusal(text: str) -> CodeError:
    with pytest.raises(CodeError) as caught:
        parse(text)
    return caught.value


def judged(text: str) -> bool:
    """Whether the text is taken, by both parsers as the same tree."""
    try:
        expected = by_pycparser(text)
    except Refused as error:
        try:
            by_evflow(text)
        except CodeError:
            return False
        assert any(known in str(error) for known in ONLY_EVFLOW)
        return False
    try:
        assert by_evflow(text) == expected
    except CodeError as error:
        assert error.message.endswith(ONLY_PYCPARSER)
        return False
    return True


@settings(max_examples=tried(100))
@given(st.integers(0, 1 << 60))
def test_tree_is_that_of_pycparser(seed: int) -> None:
    text = CText(Random(seed)).block()
    judged(f"{{{text}}}")


@settings(max_examples=tried(150))
@given(st.integers(0, 1 << 60))
def test_changed_text_is_taken_and_refused_as_by_pycparser(seed: int) -> None:
    random = Random(seed)
    text = CText(random).block(2) if seed % 2 else CodProgram(random, "filter", SCHEMA, None).text
    changed = "{" + mutated(random, text) + ";}"
    if not any(mark in changed for mark in ("/*", "//", "\r", "#")):
        judged(changed)


@pytest.mark.parametrize(
    "text",
    [
        "int string = 3; string = string + 1; { string x; } ",
        "{ int bool; bool = 1; } bool b = bool;",
        "for (int size_t = 0; size_t < 3; size_t++) size_t; size_t n;",
        "bool bool = 1; (bool) + 1;",
        "int8_t unsigned x;",
        "--((int) x);",
        "--(int) x;",
        "unsigned int8_t;",
        "string string;",
        "int string = (string) 1, x = (string) 2; string = 3;",
        "int string = 1, x = string;",
        "string;",
        "int;",
        "const x;",
        "static x = 3;",
        "(const) x;",
        "(static int) x;",
        "if (1) int x;",
        "return return;",
        "else x;",
        "int (x;",
        "x = {1};",
        "a ? b, c : d = e;",
        "a = b ? c : d = e;",
        "a + b = c = d;",
        "switch (1) int x;",
        "{ switch (1) }",
        "case 1: x;",
        "switch (1) { case 1: { case 2: x; } }",
        "switch (1) { if (1) case 1: x; }",
        "do x; while (1)",
        "for (;;) ",
        "for (int i; int j; ) ;",
        "f(a, );",
        "a[];",
        "a.1;",
        "a..b;",
        "1uu;",
        "08;",
        "0x;",
        "1f;",
        "09.5;",
        "0x1e+5;",
        "x y;",
        "- ;",
    ],
)
def test_strange_text_is_judged_as_by_pycparser(text: str) -> None:
    judged("{" + text + "}")


@settings(max_examples=tried(50))
@given(st.integers(0, 1 << 60))
def test_blanks_and_comments_mean_nothing(seed: int) -> None:
    def without_places(tree: Any) -> Any:
        if isinstance(tree, list | tuple):
            return [without_places(part) for part in tree if not isinstance(part, tuple) or len(part) != 2]
        return tree

    random = Random(seed)
    text = f"{{{CText(random).block(2)}}}"
    blanks = [" ", "\n", "\r\n", "\t", " /* a comment; \n with ' and \" and { */ ", " // one line ' \" (\n"]
    spaced = "".join(random.choice(blanks) if c in " \n" else c for c in text)
    if '"' not in text and judged(text):
        assert without_places(by_evflow(spaced)) == without_places(by_evflow(text))


NAMED = [
    ("{ goto end; }", "'goto' is not part of Cod", 3),
    ("x = 1; here: x = 2;", "a label is not part of Cod", 8),
    ("struct s { int x; } v;", "a struct of one's own is not part of Cod", 1),
    ("static union u v;", "a union is not part of Cod", 8),
    ("enum e { A, B } v;", "an enum is not part of Cod", 1),
    ("return (struct s) x;", "a struct of one's own is not part of Cod", 9),
    ("typedef int t;", "'typedef' is not part of Cod", 1),
    ("int x, *p;", "Cod has no pointers; a text is declared 'string name'", 8),
    ("int (*f)(int);", "Cod has no pointers; a text is declared 'string name'", 5),
    ("return *x;", "Cod has no pointers", 8),
    ("return 3 + &x;", "Cod has no pointers", 12),
    ("(char *) x", "Cod has no pointers; a text is declared 'string name'", 7),
    ("a.b->c", "Cod has no pointers; write '.' instead of '->'", 4),
    ("int f(int x) { return 1; }", "a function of one's own is not part of Cod", 5),
    ("(int (int)) x", "a function of one's own is not part of Cod", 6),
    ("(int[3]) x", "an array type here is not part of Cod", 5),
    ("(int[]) {1, 2}", "an array type here is not part of Cod", 5),
    ("x = (int) {1};", "a compound literal is not part of Cod", 5),
    ("x = ({ 1; });", "a block in an expression is not part of Cod", 5),
    ("int a[2] = {[1] = 3};", "a named initialiser is not part of Cod", 13),
    ("int a[2] = {1, .x = 3};", "a named initialiser is not part of Cod", 16),
    ("extern int x;", "'extern' is not part of Cod", 1),
    ("inline int x;", "'inline' is not part of Cod", 1),
    ("const restrict int x;", "'restrict' is not part of Cod", 7),
    ("_Atomic int x;", "'_Atomic' is not part of Cod", 1),
    ("1 + sizeof x", "'sizeof' is not part of Cod", 5),
    ("_Alignof(int)", "'_Alignof' is not part of Cod", 1),
    ("_Static_assert(1, \"\");", "'_Static_assert' is not part of Cod", 1),
    ("_Generic(1, int: 2)", "'_Generic' is not part of Cod", 1),
    ("_Pragma(\"once\") x = 1;", "a pragma is not part of Cod", 1),
    ("asm(\"nop\");", "'asm' is not part of Cod", 1),
    ("asm volatile (\"nop\");", "'asm' is not part of Cod", 1),
    ("x = 1;\n#pragma once", "there is no preprocessor in Cod", 1),
    ("if (1) case 1: x;", "'case' outside of a switch is not part of Cod", 8),
    ("{ default: x; }", "'default' outside of a switch is not part of Cod", 3),
    ("const x = 3;", "a declaration needs a type", 1),
    ("L\"wide\"", "the prefix 'L' of a text or a character is not part of Cod", 1),
    ("x == u8'a'", "the prefix 'u8' of a text or a character is not part of Cod", 6),
    ("x @ y", "the character '@' is not part of Cod", 3),
    ("x + é", "the character 'é' is not part of Cod", 5),
    ("x + 08", "'08' is not a number of C", 5),
    ("x + 1f", "'1f' is not a number of C", 5),
    ("x + 1_000", "'1_000' is not a number of C", 5),
    ("x + 0xg", "'0xg' is not a number of C", 5),
    ("x == \"a\\\n\"", "the text is never closed", 6),
    ("x == 'a", "the character is never closed", 6),
    ("return x", "syntax error at the end of the text; perhaps a ';' is missing before it", 9),
    ("return x // here", "syntax error at the end of the text; perhaps a ';' is missing before it", 9),
    ("(a\n  + b]", "']' closes nothing", 6),
    ("f(a, b", "'(' is never closed", 2),
    ("returned x", "syntax error at 'x'", 10),
]  # fmt: skip


@pytest.mark.parametrize(("text", "message", "column"), NAMED, ids=[text[:40] for text, _, _ in NAMED])
def test_what_is_not_cod_is_refused_by_its_name_at_its_place(text: str, message: str, column: int) -> None:
    error = refusal(text)
    assert (error.message, error.column) == (message, column)
    assert error.line == text.count("\n") + 1 if error.column < 3 else error.line >= 1


@pytest.mark.parametrize("count", [140, 301, 2_000])
@pytest.mark.parametrize(
    "parts",
    [
        ("(", "1", ")"), ("- ", "1", ""), ("f(", "1", ")"), ("a[", "1", "]"), ("(int)", "1", ""),
        ("a = ", "1", ""), ("1 ? 1 : ", "1", ""), ("1 ? ", "1", " : 1"), ("{", ";", "}"),
        ("if (1) ", ";", ""), ("while (1) ", ";", ""), ("if (1); else ", ";", ""),
        ("do ", ";", " while (1);"), ("for (;;) ", ";", ""), ("switch (1) case 1: ", ";", ""),
        ("1 + (", "1", ")"), ("{ int a; if (f(1)) ", ";", "}"),
    ],
)  # fmt: skip
def test_nesting_is_bounded(count: int, parts: tuple[str, str, str]) -> None:
    opening, inner, closing = parts
    text = opening * count + inner + closing * count
    if count < 300:
        parse(text)
    else:
        error = refusal(text)
        assert "nested too deeply" in error.message
        assert error.column > 100


def test_values_in_braces_are_bounded_too() -> None:
    parse("int x = " + "{" * 140 + "1" + "}" * 140 + ";")
    assert "nested too deeply" in refusal("int x = " + "{" * 9000 + "1" + "}" * 9000 + ";").message


@pytest.mark.parametrize("text", ["1", "a.b", "a[1]", "f(1)", "-a", "(1)"])
@pytest.mark.parametrize("operator", [" + ", " && ", ", ", "/* and */|"])
def test_long_chain_is_no_nesting(text: str, operator: str) -> None:
    assert isinstance(parse(operator.join([text] * 2_000)), Node)


def test_calls_of_a_parse_grow_with_the_text() -> None:
    def calls(text: str) -> int:
        count = 0

        def seen(frame: FrameType, event: str, argument: Any) -> None:
            nonlocal count
            count += event == "call"

        before = sys.getprofile()
        sys.setprofile(seen)
        try:
            parse(text)
        finally:
            sys.setprofile(before)
        return count

    text = "if (input.f0 > 3 && (int) input.f1 * 2 != a[1]) { static int x[2] = {1, 2}; x[0]++; } "
    few, many = calls(text * 10), calls(text * 1000)
    assert many < 100 * few
    assert calls("input.number > 5") < 12


def test_numbers_and_texts_beyond_the_usual() -> None:
    def value(text: str) -> Any:
        return interpret(
            build(text, "router", [Input("input", SCHEMA)]), {"f0": 1, "f1": 2.0, "f2": "é"}
        ).result

    assert value("0x1p99999 == INFINITY && 1e99999 == INFINITY") == 1
    assert value('"\\1" "23" == "\\001\\062\\063" && length("\\1" "23") == 3') == 1
    assert value('input.f2 == "é" && ". long" != ". lon$"') == 1
    assert value("int asm = 2, string = 3; return asm + string;") == 5
    assert value("switch (1) case 0: case 1: return 4; return 5;") == 4
    for text in ("'é'", "'\\400'", "'abcdef'", "''", "1'000'000"):
        with pytest.raises(CodeError):
            value(text)


def test_place_of_a_node_is_where_it_begins() -> None:
    tree = parse("  -a * b\n+ (c)")
    assert isinstance(tree, BinaryOp)
    assert (tree.at, tree.left.at, tree.right.at) == (2, 2, 12)
    assert isinstance(parse("{ return 1; }"), Compound)
