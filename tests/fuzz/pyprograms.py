"""Random functions in the Python subset, all made from one ``random.Random``."""

from __future__ import annotations

from random import Random
from typing import Any

from evflow import Schema
from evflow.schema.types import Array, Blob, Bytes, FieldType, ListOf, Maybe, Number, Record, Str, Text

__all__ = ["PyProgram"]

_INTEGERS = "0 1 2 3 7 -1 -7 64 255 65536 4294967295 9223372036854775807 -9223372036854775808".split()
_FLOATS = "0.0 -0.0 0.5 1.5 -2.25 2.5 1e300 1e-310 9.3e18 math.pi math.inf math.nan".split()
_TEXTS = ['""', '"a"', '"ab"', '"é"', '"EWR"', '"a\\0b"', 'b"\\xff"', '"abababab"']
_MATH = "sqrt sin cos exp log log2 fabs cbrt tanh expm1 degrees".split()
_ROUNDED = "int round math.floor math.ceil math.trunc".split()
_TESTS = "== != < <= > >=".split()


class PyProgram:
    """A random function; ``text`` is its source.

    Args:
        random: where choices come from. kind: "filter", "transform" or "router". input: schema of the events.
        output: schema of what a transform fills.
    """

    def __init__(self, random: Random, kind: str, input: Schema, output: Schema | None) -> None:
        self._random = random
        self._kind = kind
        self._output = output
        self._names: dict[str, list[str]] = {"i": ["i0"], "f": [], "s": [], "b": []}
        self._fields: dict[str, list[str]] = {"i": [], "f": [], "s": [], "b": []}
        self._copies: dict[str, list[str]] = {}
        self._loops = 0
        self._scan("e", input, 0)
        body = ["i0 = 1", *(self._declaration() for _ in range(random.randrange(4)))]
        for _ in range(random.randrange(1, 6)):
            body += self._statement(2)
        body.append(f"return {self._result()}")
        parameters = "e" if output is None else "e, out"
        self.text = f"def f({parameters}):\n" + "\n".join(f"    {line}" for line in body) + "\n"

    def _pick(self, *choices: Any) -> Any:
        return self._random.choice(choices)

    def _scan(self, path: str, schema: Schema, depth: int) -> None:
        for field in schema.fields:
            self._scan_value(f"{path}.{field.name}", field.type, depth)

    def _scan_value(self, path: str, kind: FieldType, depth: int) -> None:
        self._copies.setdefault(kind.text, []).append(path)
        inner = kind.element if isinstance(kind, Maybe) else kind
        if isinstance(kind, Maybe):
            self._fields["b"].append(f"({path} is {self._pick('', 'not ')}None)")
        if isinstance(inner, Number):
            self._fields["b" if inner.kind == "b" else "f" if inner.kind == "f" else "i"].append(path)
        elif isinstance(inner, (Str, Text, Bytes, Blob)):
            self._fields["s"].append(path)
        elif isinstance(inner, Array):
            indexes = [self._index(n) for n in inner.shape]
            joined = self._pick(", ".join(indexes), "][".join(indexes))
            element = "b" if inner.element.kind == "b" else "f" if inner.element.kind == "f" else "i"
            self._fields[element].append(f"{path}[{joined}]")
            self._fields["i"].append(f"len({path})")
        elif isinstance(inner, ListOf):
            self._fields["i"].append(f"len({path})")
            item = inner.element.element if isinstance(inner.element, Maybe) else inner.element
            if not isinstance(item, (Array, ListOf)):
                self._scan_value(f"{path}[{self._index(None)}]", inner.element, depth + 1)
        elif isinstance(inner, Record) and depth < 3:
            self._scan(path, inner.schema, depth + 1)

    def _index(self, size: int | None) -> str:
        if size is not None and self._random.random() < 0.8:
            return str(self._random.randrange(-size, size))
        return self._pick("0", "0", "0", "-1", "1", "i0", "i0 % 3")

    # Expressions by their kind: i integer, f float, s text, b bool.

    def _value(self, kind: str, depth: int) -> str:
        return {"i": self._integer, "f": self._float, "s": self._text, "b": self._condition}[kind](depth)

    def _leaf(self, kind: str, *literals: str) -> str:
        return self._pick(self._pick(*literals), *(self._names[kind] * 2), *self._fields[kind][:12])

    def _integer(self, depth: int) -> str:
        if depth <= 0 or self._random.random() < 0.2:
            return self._leaf("i", *_INTEGERS)
        a, b = self._integer(depth - 1), self._integer(depth - 1)
        choice = self._random.randrange(9)
        if choice < 4:
            return f"({a} {self._pick('+', '-', '*', '//', '%', '&', '|', '^', '<<', '>>')} {b})"
        if choice == 4:
            return f"{self._pick(*_ROUNDED)}({self._float(depth - 1)})"
        if choice == 5:
            return f"({a} if {self._condition(depth - 1)} else {b})"
        if choice == 6:
            return self._pick(
                f"min({a}, {b})", f"max({a}, {b})", f"abs({a})", f"(-{a})", f"(~{a})", f"({a} ** 3)"
            )
        if choice == 7:
            return f"len({self._text(depth - 1)})"
        return self._pick('e.attrs.get("hops", 2)', a)

    def _float(self, depth: int) -> str:
        if depth <= 0 or self._random.random() < 0.2:
            return self._leaf("f", *_FLOATS)
        a, b = self._float(depth - 1), self._float(depth - 1)
        choice = self._random.randrange(7)
        if choice < 3:
            return (
                f"({a} {self._pick('+', '-', '*', '/', '//', '%')} {self._pick(b, self._integer(depth - 1))})"
            )
        if choice == 3:
            return f"math.{self._pick(*_MATH)}({a})"
        if choice == 4:
            return f"({a} if {self._condition(depth - 1)} else {b})"
        if choice == 5:
            return self._pick(f"float({self._integer(depth - 1)})", f"abs({a})", f"max({a}, {b})", f"(-{a})")
        return self._pick('e.attrs.get("weight", 0.5)', f"({self._integer(depth - 1)} / {self._integer(0)})")

    def _text(self, depth: int) -> str:
        leaf = self._leaf("s", *_TEXTS)
        if depth > 0 and self._random.random() < 0.3:
            other = self._pick('e.attrs.get("label", "none")', self._text(depth - 1))
            return f"({leaf} if {self._condition(depth - 1)} else {other})"
        return leaf

    def _condition(self, depth: int) -> str:
        if depth <= 0:
            return self._leaf("b", "True", "False", "(i0 > 1)")
        kind, test = self._pick("i", "f", "s"), self._pick(*_TESTS)
        a, b, c = (self._value(kind, depth - 1) for _ in range(3))
        choice = self._random.randrange(7)
        if choice < 3:
            return f"({a} {test} {b})"
        if choice == 3:
            return f"({a} {test} {b} {self._pick(*_TESTS)} {c})"
        if choice == 4:
            text, part = self._text(depth - 1), self._text(depth - 1)
            return self._pick(
                f"({part} in {text})",
                f"{text}.startswith({part})",
                f"{text}.endswith(({part}, {self._text(0)}))",
            )
        if choice == 5:
            return f"({self._condition(depth - 1)} {self._pick('and', 'or')} {self._condition(depth - 1)})"
        return self._pick(
            f"(not {self._condition(depth - 1)})", '("hops" in e.attrs)', f"({a} in ({b}, {c}))"
        )

    # Statements, as lines.

    def _declaration(self) -> str:
        kind = self._pick("i", "f", "s", "b")
        name = f"{kind}{sum(map(len, self._names.values()))}"
        line = f"{name} = {self._value(kind, 2)}"
        self._names[kind].append(name)
        return line

    def _statement(self, depth: int) -> list[str]:
        choice = self._random.randrange(10)
        if choice == 0 and depth:
            return [f"if {self._condition(2)}:", *self._block(depth), "else:", *self._block(depth)]
        if choice == 1 and depth:
            return [
                self._loop(),
                *self._block(depth),
                *self._indented([self._pick("pass", "break", "continue")]),
            ]
        if choice == 2:
            return [self._attribute()]
        if choice == 3 and self._kind != "router":
            what = "e" if self._output is None else self._pick("e", "out")
            return [f"submit({self._pick('0', '1', '2', '9', self._integer(1))}, {what})"]
        if choice == 4 and depth:
            return [f"if {self._condition(2)}:", f"    return {self._result()}"]
        if self._output is not None and choice < 8:
            return [self._output_assignment()]
        return [self._assignment()]

    def _block(self, depth: int) -> list[str]:
        return self._indented(self._statement(depth - 1))

    @staticmethod
    def _indented(lines: list[str]) -> list[str]:
        return [f"    {line}" for line in lines]

    def _loop(self) -> str:
        self._loops += 1
        stop = self._pick("3", "i0", self._integer(1))
        span = self._pick("4", f"0, {stop}", f"{stop}, -2, -1", f"0, {stop}, 2")
        return self._pick(f"for k{self._loops} in range({span}):", "while i0 < 5:")

    def _assignment(self) -> str:
        kind = self._pick(*(kind for kind, names in self._names.items() if names))
        name = self._pick(*self._names[kind])
        if kind in "if" and self._random.random() < 0.4:
            return f"{name} {self._pick('+=', '-=', '*=', '//=', '%=')} {self._value(kind, 2)}"
        return f"{name} = {self._value(kind, 3)}"

    def _attribute(self) -> str:
        name, kind = self._pick(("hops", "i"), ("weight", "f"), ("label", "s"), ("hops", "f"))
        return f'e.attrs["{name}"] = {self._value(kind, 2)}'

    def _output_assignment(self) -> str:
        assert self._output is not None
        field = self._pick(*self._output.fields)
        path, kind = f"out.{field.name}", field.type
        copies = self._copies.get(kind.text, [])
        if copies and self._random.random() < 0.6:
            return f"{path} = {self._pick(*copies)}"
        inner = kind.element if isinstance(kind, Maybe) else kind
        if isinstance(inner, Array) and inner.static and inner is kind and all(inner.shape):
            indexes = ", ".join(str(self._random.randrange(n or 1)) for n in inner.shape)
            path, inner = f"{path}[{indexes}]", inner.element
        if isinstance(inner, Number):
            return f"{path} = {self._number(inner)}"
        if isinstance(inner, (Str, Text, Bytes, Blob)):
            return f"{path} = {self._text(2)}"
        return f"{path} = {self._pick(*copies)}" if copies else "pass"

    def _number(self, kind: Number) -> str:
        if kind.kind == "b":
            return self._condition(2)
        return (
            self._pick(self._integer, self._float)(2) if kind.kind == "f" else self._integer(self._pick(0, 2))
        )

    def _result(self) -> str:
        if self._kind == "router":
            return self._pick(self._integer(2), "0", "1", "2", "i0 % 3", "None")
        return self._pick(self._condition(3), "True", self._text(1), self._float(1))
