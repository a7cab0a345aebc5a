"""Random programs of Cod with what ``tests.codgen.programs`` leaves out: switches, arrays of two dimensions,
every assignment operator, commas, attributes of the stone, small loops over texts."""

from __future__ import annotations

import re
from random import Random

from evflow import Schema
from evflow.schema.types import Array, Number
from tests.codgen.programs import ATTRIBUTES, Program

__all__ = ["CodProgram"]

_OPERATORS = "+= -= *= /= %= <<= >>= &= |= ^=".split()
_LITERALS = (
    r"'a' '\n' '\377' 0x7f 0xFFFFFFFFu 017 0b101 1L 18446744073709551615ul true M_PI NAN INFINITY".split()
)


class CodProgram(Program):
    """A random program; see ``Program``."""

    def __init__(self, random: Random, kind: str, input: Schema, output: Schema | None) -> None:
        self._tables: list[tuple[str, int, int]] = []
        super().__init__(random, kind, input, output)
        self.text = re.sub(r"(attr_[ids]value\()event_attrs", self._scope, self.text)

    def _scope(self, call: re.Match[str]) -> str:
        return call[1] + self._pick("event_attrs", "event_attrs", "stone_attrs")

    def _declaration(self) -> str:
        if self._counters == 0 or self._random.randrange(6):
            return super()._declaration()
        name, rows, columns = f"t{self._counters}", self._random.randrange(1, 4), self._random.randrange(1, 4)
        self._counters += 1
        self._tables.append((name, rows, columns))
        row = ", ".join(
            self._pick("1", "-2", "250", "0.5") for _ in range(self._random.randrange(1, columns + 1))
        )
        kind = self._pick("char", "unsigned short", "long", "float", "_Bool", "static int", "static double")
        return f"{kind} {name}[{rows}][{columns}]{self._pick('', f' = {{{{{row}}}}}')};"

    def _statement(self, depth: int) -> str:
        choice = self._random.randrange(14)
        if choice == 0 and depth:
            return self._switch(depth)
        if choice == 1 and self._tables:
            return self._table_assignment()
        if choice == 2 and self._integers:
            name = self._pick(*self._integers)
            return self._pick(
                f"{name} {self._pick(*_OPERATORS)} {self._value()};",
                f"{name} = ({self.integer(1)}, {name}++, {self.integer(1)});",
                f"i0 = -{name}-- + {name};",
            )
        if choice == 3:
            test = self._pick("isnan({})", "isfinite({})", "isnan(sqrt({}))").format(self.floating(2))
            return f"i0 += {test} + ({self._pick(*_LITERALS)} > {self.integer(1)});"
        if choice == 4 and self._strings:
            return self._text_loop()
        if choice == 5 and self._output is not None:
            return self._output_update()
        if choice == 6:
            return f'if (attr_set(event_attrs, "{self._pick(*ATTRIBUTES)}")) {{ {self._assignment()} }}'
        return super()._statement(depth)

    def _scoped(self, depth: int) -> str:
        kept = list(self._tables)
        text = super()._scoped(depth)
        self._tables = kept
        return text

    def _value(self) -> str:
        return str(self._pick(self.integer, self.integer, self.floating)(1))

    def _switch(self, depth: int) -> str:
        labels = self._random.sample(["0", "1", "2", "-1", "255", "'a'", "1 + 3"], self._random.randrange(4))
        sections = [f"case {label}: {self._section(depth)}" for label in labels]
        if self._random.random() < 0.7:
            sections.insert(self._random.randrange(len(sections) + 1), f"default: {self._section(depth)}")
        text = f"switch ({self._pick(self.integer(1), 'i0', 'i0 % 3')}) {{ {' '.join(sections)} }}"
        if self._random.random() < 0.3:
            name = f"i{self._counters}"
            self._counters += 1
            leave = f"if ({self.condition(1)}) continue;"
            return (
                f"for (int {name} = 0; {name} < 3; {name}++) {{ {text.replace('break;', leave, 1)} i0++; }}"
            )
        return text

    def _section(self, depth: int) -> str:
        return self._pick("", f"{self._statement(depth - 1)} {self._pick('break;', 'break;', '')}")

    def _table_assignment(self) -> str:
        name, rows, columns = self._pick(*self._tables)
        row, column = (
            self._pick(str(self._random.randrange(n)), "i0 % 2", "i0++ & 1") for n in (rows, columns)
        )
        return self._pick(
            f"{name}[{row}][{column}] {self._pick('=', *_OPERATORS[:4])} {self._value()};",
            f"i0 = {name}[{row}][{column}]{self._pick('++', '--')} > {name}[0][0];",
            f"for (int r = 0; r < {rows}; r++) for (int c = 0; c < {columns}; c++) i0 += {name}[r][c];",
        )

    def _text_loop(self) -> str:
        name, other = self._pick(*self._strings), self.text_value(1)
        return self._pick(
            f"while (length({name}) > 1 && i0 < 9) {{ {name} = i0 % 2 ? {other} : {name}; i0++; }}",
            f"i0 = strcmp({name}, {other}) {self._pick('==', '<', '>=')} 0;",
            f'{name} = min({name}, {other}); i0 = max({name}, {other}, "b") == {name};',
        )

    def _output_update(self) -> str:
        assert self._output is not None
        path, kind = self._output_field("output", self._output)
        if isinstance(kind, Array) and kind.static and all(kind.shape):
            indexes = [self._pick(str(self._random.randrange(n or 1)), "i0 & 1") for n in kind.shape]
            path, kind = f"{path}[{']['.join(indexes)}]", kind.element
        if not isinstance(kind, Number):
            return self._output_assignment()
        return self._pick(
            f"{path} {self._pick(*_OPERATORS)} {self._value()};", f"i0 = {path}++ < {self._value()};"
        )
