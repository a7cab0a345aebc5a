"""Text that nobody would write: changed programs, deep nesting, huge literals, NULs, noise.

The front ends either refuse it with a ``CodeError``, or accept it, and then it runs like any other function.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from random import Random
from typing import Any

from evflow import CodeError, Schema
from evflow.codgen.front import Input, build
from evflow.codgen.tree import Function
from tests.codgen.programs import random_schema
from tests.fuzz import differential, samples
from tests.fuzz.codprograms import CodProgram
from tests.fuzz.pyprograms import PyProgram

__all__ = ["built", "check", "mutated", "text"]

_TOKEN = re.compile(r"\w+|\s+|[^\w\s]{1,3}", re.DOTALL)
_CLASSES = ("[A-Za-z_]", "[0-9]", "[^\\w\\s]")
_WORDS = r"""
    if else for while do switch case default break continue return static const int long unsigned char
    double float string bool struct typedef goto sizeof input output event_attrs stone_attrs submit
    discard count length present def lambda class yield import global await in is not and or None True
    print self __class__ range math.inf async ( ) [ ] { } ; , . -> ... := ** // << >> ++ -- && || ! ~ ?
    : & | ^ % / * + - = == != <= #pragma # ' " \ @ $ ` \n 0 1 -1 00 08 0x 0xffffffffffffffff 0b2 1e400
    1e-400 0x1p9 .5. 1.f 5ull 9223372036854775808 '\0' 'ab' "\xff" "\777" "\ud800" "\U00110000" u8"x"
    L'x' 1_000 1j 0o7 f"{x}" b"\xff" r"\" /* */ ??/ <: %:
""".split()
_STRANGE = "\0 \ufeff \u202e \u2028 é ﬁ 𝟙 \x1a \x85 \r \f \ud800 \t ''' １".split(" ")
_BRACKETS = [
    ("(", ")"), ("[", "]"), ("{", "}"), ("abs(", ")"), ("i0[", "]"), ("(1, ", ")"), ("{ int a;", "}"),
    ("1 ? ", ": 0"), ("do ", " while (0);"), ("switch (1) { case 1: ", "}"), ("-", ""), ("!", ""), ("~", ""),
    ("not ", ""),
    ("1 + ", ""), ("1 < ", ""), ("1 && ", ""), ("if (1) ", ""), ("for (;;) ", ""), ("1 if 1 else ", ""),
    ("lambda: ", ""), ("(int)", ""), ("i0 = ", ""), ('"a" ', ""), ("a.", ""), ("case 1: ", ""),
]  # fmt: skip


def text(random: Random, kind: str, schema: Schema, output: Schema | None) -> str:
    """A text that is probably no function."""
    python = random.random() < 0.4
    valid = (PyProgram if python else CodProgram)(random, kind, schema, output).text
    choice = random.randrange(10)
    if choice == 0:
        return _deep(random, python)
    if choice == 1:
        return _noise(random, python)
    return mutated(random, valid)


def mutated(random: Random, valid: str) -> str:
    """A text with some of its tokens left out, repeated, exchanged or replaced."""
    tokens = _TOKEN.findall(valid)
    for _ in range(random.choice([1, 1, 1, 2, 3, 8])):
        at = random.randrange(len(tokens) + 1)
        other = random.randrange(len(tokens) + 1)
        new = random.choice([random.choice(_WORDS), random.choice(tokens or [""]), random.choice(_STRANGE)])
        choice = random.randrange(10)
        if choice > 6 and at < len(tokens):
            tokens[at] = _alike(random, tokens, tokens[at])
        elif choice == 0:
            del tokens[at : at + random.choice([1, 1, 2, 5])]
        elif choice == 1:
            tokens[at:at] = tokens[other : other + random.randrange(1, 12)]
        elif choice == 2 and at < len(tokens) and other < len(tokens):
            tokens[at], tokens[other] = tokens[other], tokens[at]
        elif choice == 3:
            tokens.insert(at, new)
        elif choice == 4:
            tokens[at : at + 1] = [_literal(random)]
        else:
            tokens[at : at + 1] = [new]
    return "".join(tokens)


def _alike(random: Random, tokens: list[str], token: str) -> str:
    """A word for a word, a number for a number, an operator for an operator."""
    kind = next((kind for kind in _CLASSES if re.match(kind, token)), r"\s")
    return random.choice([other for other in tokens if re.match(kind, other)] or [token])


def _literal(random: Random) -> str:
    digits = "".join(random.choices("0123456789", k=random.choice([3, 20, 400, 5000])))
    return random.choice(
        [digits, f"0x{digits}", f"1e{digits}", f"{digits}.5", f'"{digits}"', f"'{digits}'", f"-{digits}"]
    )


def _deep(random: Random, python: bool) -> str:
    n = random.choice([10, 100, 149, 151, 1000, 20_000])
    opening, closing = random.choice(_BRACKETS)
    inner = f"{opening * n}1{closing * n}"
    form = random.choice(["{}", "return {};", "{{ int i0 = 1; {} }}", "{{ {}; return 1; }}", "int a[{}];"])
    return f"def f(e):\n    return {inner}" if python else form.format(inner)


def _noise(random: Random, python: bool) -> str:
    words = [*_WORDS, *_STRANGE, "\n", " ", "    "]
    noise = random.choice(
        [
            "".join(random.choices(words, k=random.randrange(60))),
            " ".join(random.choices(words, k=random.randrange(60))),
            random.randbytes(random.randrange(80)).decode("latin-1"),
            random.choice(words) * random.choice([10, 1000, 70_000]),
        ]
    )
    return ("def f(e):\n    " if python else "") + noise


def check(random: Random, tell: Callable[[str], None]) -> tuple[int, int]:
    """Builds some texts, and runs those that are accepted; gives how many of each there were."""
    accepted = 0
    for _ in range(samples.INPUTS):
        kind = random.choice(["filter", "transform", "router", "queue"])
        schema = random_schema(random, "In")
        output = random.choice([schema, random_schema(random, "Out")]) if kind == "transform" else None
        code = text(random, kind, schema, output)
        tell(f"{kind} over {schema.description}, output {output and output.description}:\n{code!r}")
        made = built(code, kind, schema, output)
        if made is None:
            continue
        accepted += 1
        if kind != "queue" and random.randrange(4) == 0:
            given = samples.inputs(random, schema, 3)
            story = f"{samples.shown(made)}\n{samples.listed(given)}"
            differential.check(made, given, random, lambda step, story=story: tell(f"{story}\n{step}"))
    return samples.INPUTS, accepted


def built(code: Any, kind: str, schema: Schema, output: Schema | None) -> Function | None:
    """The function that a text is, or None if it is refused as it should be."""
    outputs = [] if output is None else [("output", output)]
    try:
        return build(code, kind, [Input("input", schema)], outputs, fuel=samples.FUEL)
    except CodeError as error:
        assert error.message and error.column >= 1
        assert 1 <= error.line <= error.source.count("\n") + 1
        assert str(error).startswith(error.message)
        return None
