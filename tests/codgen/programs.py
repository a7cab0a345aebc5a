"""Random schemas, events and programs of Cod, all made from one ``random.Random``, for comparing back ends.

``Sample(random)`` is a schema of events, one of outputs, and a program over them that the front end accepts
nearly always. The same seed gives the same sample, so a failure is repeated by its seed.
"""

from __future__ import annotations

import math
import struct
from random import Random
from typing import Any

import numpy as np

from evflow.schema import Schema
from evflow.schema.types import (
    BLOB,
    NUMBERS,
    TEXT,
    Array,
    Blob,
    Bytes,
    FieldType,
    ListOf,
    Maybe,
    Number,
    Record,
    Str,
    Text,
)

__all__ = ["ATTRIBUTES", "Program", "random_attributes", "random_event", "random_schema", "random_type"]

ATTRIBUTES = ("hops", "weight", "label")

_INTEGERS = [t for t in NUMBERS.values() if t.kind in "iu"]
_FLOATS = [t for t in NUMBERS.values() if t.kind == "f"]
_TEXTS = ["", "a", "ab", "abc", "b", "é", "漢字", "a\0b", "EWR", "JFK", "abababab", "longer than eight"]
_UNARY = (
    "sin cos tan asin acos atan sinh cosh tanh exp exp2 expm1 log log2 log10 log1p "
    "sqrt cbrt floor ceil trunc round fabs"
)
_BINARY = "pow fmod atan2 hypot copysign fmin fmax min max"
_CASTS = {
    "i": ("char", "short", "int", "long"),
    "u": ("unsigned char", "unsigned short", "unsigned", "unsigned long"),
}


def random_type(random: Random, depth: int = 2) -> FieldType:
    """Any type of a field."""
    number = random.choice(list(NUMBERS.values()))
    kind = random.randrange(14 if depth else 9)
    if kind < 4:
        return number
    if kind < 6:
        return random.choice([Str, Bytes])[random.choice([1, 2, 3, 4, 7, 8, 9, 16, 20, 300])]
    if kind == 6:
        return random.choice([TEXT, BLOB])
    if kind == 7:
        return Array[(number, *(random.randrange(1, 4) for _ in range(random.randrange(1, 3))))]
    if kind == 8:
        return Array[(number, *random.choice([(None,), (None, 2), (2, None)]))]
    if kind < 11:
        inner = random_type(random, depth - 1)
        return inner if isinstance(inner, Maybe) else Maybe(inner)
    if kind < 13:
        return ListOf(random_type(random, depth - 1))
    inner_schema = random_schema(random, f"R{random.randrange(1 << 30)}", depth - 1)
    return Record(inner_schema.name, {inner_schema.name: inner_schema})


def random_schema(random: Random, name: str, depth: int = 2) -> Schema:
    """Any schema; now and then one that holds itself."""
    fields: dict[str, Any] = {f"f{i}": random_type(random, depth) for i in range(random.randrange(1, 6))}
    if depth == 2 and random.randrange(4) == 0:
        fields["next"] = random.choice([f"optional({name})", f"list({name})"])
    defaults = {k: _default(random, t) for k, t in fields.items() if random.randrange(4) == 0}
    return Schema(name, fields, {k: v for k, v in defaults.items() if v is not None})


def _default(random: Random, kind: Any) -> Any:
    inner = kind.element if isinstance(kind, Maybe) else kind
    if isinstance(inner, (Number, Str, Bytes, Text, Blob)):
        value = _value(random, inner, 0)
        return value if value == value else 1.5
    return None


def random_event(random: Random, schema: Schema, depth: int = 3) -> dict[str, Any]:
    """The fields of one event."""
    return {f.name: _value(random, f.type, depth) for f in schema.fields}


def _value(random: Random, kind: FieldType, depth: int) -> Any:
    if isinstance(kind, Number):
        return _number(random, kind)
    if isinstance(kind, (Str, Text)):
        return _text(random, kind.capacity if isinstance(kind, Str) else 40)
    if isinstance(kind, (Bytes, Blob)):
        return _text(random, kind.capacity if isinstance(kind, Bytes) else 40).encode()
    if isinstance(kind, Array):
        shape = [random.randrange(4) if n is None else n for n in kind.shape]
        values = [_number(random, kind.element) for _ in range(math.prod(shape))]
        return np.array(values, kind.element.dtype).reshape(shape)
    if isinstance(kind, Maybe):
        return None if depth <= 0 or random.random() < 0.3 else _value(random, kind.element, depth - 1)
    if isinstance(kind, ListOf):
        return [
            _value(random, kind.element, depth - 1) for _ in range(random.randrange(4) if depth > 0 else 0)
        ]
    assert isinstance(kind, Record)
    return random_event(random, kind.schema, depth - 1)


def _number(random: Random, kind: Number) -> Any:
    if kind.kind == "b":
        return random.random() < 0.5
    if kind.kind == "f":
        value = random.choice(
            [0.0, -0.0, 1.5, -2.25, 1e30, -1e-30, math.inf, -math.inf, math.nan, random.uniform(-9, 9)]
        )
        return struct.unpack("<f", struct.pack("<f", value))[0] if kind.size == 4 else value
    low = 0 if kind.kind == "u" else -(1 << 8 * kind.size - 1)
    high = low + (1 << 8 * kind.size) - 1
    return random.choice(
        [low, high, random.randint(low, high), *(max(low, random.randrange(-3, 10)) for _ in range(5))]
    )


def _text(random: Random, capacity: int) -> str:
    text = random.choice([*_TEXTS, "".join(random.choices("ab é", k=random.randrange(12)))])
    return text.encode()[:capacity].decode(errors="ignore").rstrip("\0")


def random_attributes(random: Random) -> dict[str, Any]:
    """Attributes of an event: some of ``ATTRIBUTES``."""
    values = {"hops": random.randrange(-5, 9), "weight": random.uniform(-2, 2), "label": _text(random, 9)}
    return {name: value for name, value in values.items() if random.random() < 0.6}


class Program:
    """A random program; ``text`` is its source.

    Args:
        random: where choices come from.
        kind: "filter", "transform" or "router".
        input: schema of the events.
        output: schema of what a transform fills.
    """

    def __init__(self, random: Random, kind: str, input: Schema, output: Schema | None) -> None:
        self._random = random
        self._kind = kind
        self._input = input
        self._output = output
        self._integers: list[str] = []
        self._floats: list[str] = []
        self._strings: list[str] = []
        self._arrays: list[tuple[str, int]] = []
        self._counters = 0
        self._sources: dict[str, list[str]] = {"i": [], "f": [], "s": [], "b": []}
        self._copies: dict[str, list[str]] = {}
        self._lists: list[str] = []
        self._scan("input", input, 0)
        body = [self._declaration() for _ in range(random.randrange(1, 5))]
        body += [self._statement(2) for _ in range(random.randrange(1, 7))]
        self.text = "{\n" + "\n".join(body) + f"\n{self._return()}\n}}"

    def _pick(self, *choices: Any) -> Any:
        return self._random.choice(choices)

    # What there is to read in the event.

    def _scan(self, path: str, schema: Schema, depth: int) -> None:
        for field in schema.fields:
            self._scan_value(f"{path}.{field.name}", field.type, depth)

    def _scan_value(self, path: str, kind: FieldType, depth: int) -> None:
        self._copies.setdefault(kind.text, []).append(path)
        inner = kind.element if isinstance(kind, Maybe) else kind
        if isinstance(kind, Maybe):
            self._sources["b"].append(f"present({path})")
            if self._random.random() < 0.5:
                return
        if isinstance(inner, Number):
            self._sources["f" if inner.kind == "f" else "i"].append(path)
        elif isinstance(inner, (Str, Text, Bytes, Blob)):
            self._sources["s"].append(path)
        elif isinstance(inner, Array):
            self._sources["i"].append(f"length({path}, {self._random.randrange(len(inner.shape))})")
            indexes = "".join(f"[{self._index(n)}]" for n in inner.shape)
            self._sources["f" if inner.element.kind == "f" else "i"].append(path + indexes)
        elif isinstance(inner, ListOf):
            self._sources["i"].append(f"length({path})")
            element = inner.element.element if isinstance(inner.element, Maybe) else inner.element
            if not isinstance(element, (Array, ListOf)):
                self._scan_value(f"{path}[{self._index()}]", inner.element, depth + 1)
        elif isinstance(inner, Record) and depth < 3:
            self._scan(path, inner.schema, depth + 1)

    def _index(self, size: int | None = None) -> str:
        if size is not None and self._random.random() < 0.8:
            return str(self._random.randrange(size))
        return self._pick("0", "0", "0", "0", "0", "0", "1", "2", "-1", "i0", "i0 % 3")

    # Expressions, as text in brackets.

    def integer(self, depth: int) -> str:
        """An integer, or a bool where C has an integer."""
        if depth <= 0 or self._random.random() < 0.2:
            return self._integer_leaf()
        a, b = self.integer(depth - 1), self.integer(depth - 1)
        choice = self._random.randrange(12)
        if choice < 5:
            return f"({a} {self._pick(*'+-*/%&|^+-*&|^', '<<', '>>')} {b})"
        if choice == 5:
            return f"({self._pick('-', '~', '!')}{a})"
        if choice == 6:
            return f"({self.condition(depth - 1)} ? {a} : {b})"
        if choice == 7:
            return f"(({self._pick(*_CASTS['i'], *_CASTS['u'])}){self._pick(a, self.floating(depth - 1))})"
        if choice == 8:
            return f"({self.condition(depth - 1)})"
        if choice == 9:
            return self._pick(
                f"abs({a})", f"min({a}, {b})", f"max({a}, {b})", f"length({self.text_value(depth - 1)})"
            )
        if choice == 10 and self._integers:
            name = self._pick(*self._integers)
            return self._pick(f"({name} = {a})", f"({name}++)", f"(--{name})", f"({name} += {a})")
        return self._pick(a, f'attr_ivalue(event_attrs, "{self._pick(*ATTRIBUTES)}")')

    def _integer_leaf(self) -> str:
        literal = self._pick(
            "0",
            "1",
            "2",
            "7",
            "-1",
            "100",
            "255",
            "65536",
            "2147483647",
            "3000000000",
            "5u",
            "9223372036854775807",
        )
        return self._pick(
            f"({literal})", *(self._integers * 2), *self._sources["i"][:12], *self._sources["b"][:3]
        )

    def floating(self, depth: int) -> str:
        """A float."""
        if depth <= 0 or self._random.random() < 0.2:
            literal = self._pick("0.0", "1.5", "-2.25", "1e300", "3.0f", "0.1", "1e-310")
            return self._pick(f"({literal})", *(self._floats * 2), *self._sources["f"][:12])
        a, b = self.floating(depth - 1), self.floating(depth - 1)
        choice = self._random.randrange(9)
        if choice < 4:
            return f"({a} {self._pick(*'+-*/')} {self._pick(b, self.integer(depth - 1))})"
        if choice == 4:
            return f"{self._pick(*_UNARY.split())}({a})"
        if choice == 5:
            return f"{self._pick(*_BINARY.split())}({a}, {b})"
        if choice == 6:
            return f"(({self._pick('float', 'double')}){self._pick(a, self.integer(depth - 1))})"
        if choice == 7:
            return f"({self.condition(depth - 1)} ? {a} : {b})"
        return self._pick(f"(-{a})", f'attr_dvalue(event_attrs, "{self._pick(*ATTRIBUTES)}", 2.5)', "time()")

    def text_value(self, depth: int) -> str:
        """A text."""
        literal = '"' + self._pick("", "a", "ab", "abc", "EWR", "é", "a\\0b", "abababab") + '"'
        leaf = self._pick(literal, *(self._strings * 2), *self._sources["s"][:12])
        if depth > 0 and self._random.random() < 0.3:
            attribute = f'attr_svalue(event_attrs, "{self._pick(*ATTRIBUTES)}", "none")'
            return self._pick(
                attribute, f"({self.condition(depth - 1)} ? {leaf} : {self.text_value(depth - 1)})"
            )
        return leaf

    def condition(self, depth: int) -> str:
        """A condition."""
        if depth <= 0:
            return self._pick("(1)", *self._sources["b"][:4], *(f"({i} > 1)" for i in self._integers))
        test = self._pick("==", "!=", "<", "<=", ">", ">=")
        choice = self._random.randrange(7)
        if choice < 2:
            return f"({self.integer(depth - 1)} {test} {self._pick(self.integer, self.floating)(depth - 1)})"
        if choice == 2:
            return f"({self.floating(depth - 1)} {test} {self.floating(depth - 1)})"
        if choice == 3:
            return f"({self.text_value(depth - 1)} {test} {self.text_value(depth - 1)})"
        if choice == 4:
            name = self._pick("starts_with", "ends_with", "contains")
            return f"{name}({self.text_value(depth - 1)}, {self.text_value(depth - 1)})"
        if choice == 5:
            return f"({self.condition(depth - 1)} {self._pick('&&', '||')} {self.condition(depth - 1)})"
        return f"(!{self.condition(depth - 1)})"

    # Statements.

    def _declaration(self) -> str:
        number = self._counters
        self._counters += 1
        choice = self._random.randrange(7) if number else 0
        if choice < 2:
            kind = self._pick(*_CASTS["i"], *_CASTS["u"], "_Bool") if number else "int"
            text = f"{kind} i{number} = {self.integer(1) if number else '1'};"
            self._integers.append(f"i{number}")
            return text
        if choice == 2:
            text = f"{self._pick('float', 'double')} x{number} = {self.floating(1)};"
            self._floats.append(f"x{number}")
            return text
        if choice == 3:
            text = f"string s{number} = {self.text_value(1)};"
            self._strings.append(f"s{number}")
            return text
        if choice == 4:
            self._integers.append(f"i{number}")
            kind = self._pick("int", "long", "unsigned char", "short")
            return f"static {kind} i{number} = {self._random.randrange(5)};"
        size = self._random.randrange(1, 5)
        self._arrays.append((f"a{number}", size))
        return f"{self._pick('', 'static ')}{self._pick('int', 'double', 'unsigned char')} a{number}[{size}];"

    def _statement(self, depth: int) -> str:
        choice = self._random.randrange(12)
        if choice < 3:
            return self._assignment()
        if choice == 3 and depth:
            one, other = self._statement(depth - 1), self._statement(depth - 1)
            return f"if ({self.condition(2)}) {{ {one} }} else {{ {other} }}"
        if choice == 4 and depth:
            return self._loop(depth)
        if choice == 5:
            return self._array_assignment()
        if choice == 6 and self._kind != "router":
            port = self._pick("0", "1", "2", "9", self.integer(1))
            return f"submit({port}, {'input' if self._output is None else self._pick('input', 'output')});"
        if choice == 7:
            return self._pick(
                f'set_int_attr(event_attrs, "hops", {self.integer(2)});',
                f'set_double_attr(event_attrs, "{self._pick("hops", "weight")}", {self.floating(1)});',
                f'set_string_attr(event_attrs, "label", {self.text_value(1)});',
            )
        if choice == 8 and depth:
            return f"if ({self.condition(2)}) {self._return()}"
        if choice == 9 and depth:
            return f"{{ {self._scoped(depth)} }}"
        return self._output_assignment() if self._output is not None else self._assignment()

    def _scoped(self, depth: int) -> str:
        kept = [list(names) for names in (self._integers, self._floats, self._strings, self._arrays)]
        text = f"{self._declaration()} {self._statement(depth - 1)} {self._statement(depth - 1)}"
        self._integers, self._floats, self._strings, self._arrays = kept  # type: ignore[assignment]
        return text

    def _assignment(self) -> str:
        options = [f"{name} = {self.integer(3)};" for name in self._integers[-2:]]
        options += [f"{name} {self._pick('=', '+=', '*=')} {self.floating(3)};" for name in self._floats[-2:]]
        options += [f"{name} = {self.text_value(2)};" for name in self._strings[-2:]]
        return self._pick(*options) if options else ";"

    def _array_assignment(self) -> str:
        if not self._arrays:
            return self._assignment()
        name, size = self._pick(*self._arrays)
        index = self._pick(*map(str, range(size)), *map(str, range(size)), "i0", self.integer(1))
        value = self._pick(self.integer, self.floating)(2)
        return f"{name}[{index}] {self._pick('=', '+=', '-=')} {value}; i0 = {name}[{index}] > 2;"

    def _loop(self, depth: int) -> str:
        name = f"i{self._counters}"
        self._counters += 1
        self._integers.append(name)
        body = (
            f"{self._statement(depth - 1)} {self._pick('', 'break;', f'if ({self.condition(1)}) continue;')}"
        )
        self._integers.remove(name)
        turns = self._random.randrange(5)
        return self._pick(
            f"for (int {name} = 0; {name} < {turns}; {name}++) {{ {body} }}",
            f"{{ int {name} = {turns}; while ({name}-- > 0) {{ {body} }} }}",
            f"{{ int {name} = 0; do {{ {body} }} while (++{name} < {turns}); }}",
        )

    def _output_assignment(self) -> str:
        assert self._output is not None
        path, kind = self._output_field("output", self._output)
        inner = kind.element if isinstance(kind, Maybe) else kind
        copies = self._copies.get(kind.text, [])
        if copies and self._random.random() < 0.6:
            return f"{path} = {self._pick(*copies)};"
        if isinstance(inner, Number):
            return f"{path} = {self._pick(self.integer, self.floating)(2)};"
        if isinstance(inner, (Str, Text, Bytes, Blob)):
            return f"{path} = {self.text_value(2)};"
        if isinstance(inner, Array) and inner.static and inner is kind:
            indexes = "".join(f"[{self._random.randrange(n or 1)}]" for n in inner.shape)
            return f"{path}{indexes} = {self._pick(self.integer, self.floating)(2)};"
        return f"{path} = {self._pick(*copies)};" if copies else ";"

    def _output_field(self, path: str, schema: Schema) -> tuple[str, FieldType]:
        field = self._pick(*schema.fields)
        path = f"{path}.{field.name}"
        if isinstance(field.type, Record) and (
            field.type.text not in self._copies or self._random.random() < 0.5
        ):
            return self._output_field(path, field.type.schema)
        return path, field.type

    def _return(self) -> str:
        if self._kind == "router":
            return f"return {self._pick(self.integer(2), '0', '1', '2', 'i0 % 3')};"
        return f"return {self._pick(self.condition(3), '1')};"
