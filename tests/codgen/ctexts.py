"""Random blocks of Cod's grammar, without regard to what they mean: names need not be declared."""

from __future__ import annotations

from random import Random

__all__ = ["CText"]

_NAMES = "a b c input x1 _y string int8_t".split()
_BINARY = "+ - * / % & | ^ << >> < <= > >= == != && ||".split()
_ASSIGNMENTS = "= += -= *= /= %= <<= >>= &= |= ^=".split()
_CONSTANTS = r"""
    0 7 017 0x1F 0b11 12u 12UL 12ull 12lu 0xFFLLu 1.5 1. .5f 1e3 2.5E-3L 0x1.8p1 0x1p-3f 0x1e+1 'a' '\n'
    '\'' '\\' '\x41' '\101' "text" "" "a\"b" "a\\" "/*no*/" "//" "é"
""".split()
_TYPES = [
    "int", "unsigned", "long long unsigned int", "char signed", "double", "bool", "const float", "uint8_t",
    "string", "short const volatile",
]  # fmt: skip


class CText:
    """Makes texts of one ``random.Random``."""

    def __init__(self, random: Random) -> None:
        self._random = random

    def _pick(self, *choices: str) -> str:
        return self._random.choice(choices)

    def _list(self, most: int, make: str, between: str = ", ", **given: int) -> str:
        return between.join(getattr(self, make)(**given) for _ in range(self._random.randint(1, most)))

    def operand(self, depth: int) -> str:
        """What may stand between two operators, mostly without parentheses."""
        choice = self._random.randrange(14 if depth > 0 else 5)
        if choice < 3:
            return self._pick(*_NAMES[:6])
        if choice < 5:
            return self._pick(*_CONSTANTS)
        inner = self.operand(depth - 1)
        if choice == 5:
            return f"({self.expression(depth - 1)})"
        if choice == 6:
            return f"{self._pick('-', '+', '~', '!', '++', '--', '- -', '!!')} {inner}"
        if choice == 7:
            return f"({self._pick(*_TYPES)}) {inner}"
        if choice == 8:
            return f"{inner}[{self.expression(depth - 1)}]"
        if choice == 9:
            return f"{inner}{self._pick('++', '--', ' ++')}"
        if choice == 10:
            return f"{self._pick(*_NAMES[:6])}({self._list(3, 'assigned', depth=depth - 1)})"
        if choice == 11:
            return f"{self._pick(*_NAMES[:6])}()"
        return f"{self._pick(*_NAMES[:6])} . {self._pick(*_NAMES)}"

    def assigned(self, depth: int) -> str:
        """An expression without a comma outside of brackets."""
        parts = [self.operand(depth)]
        for _ in range(self._random.choice([0, 0, 1, 2, 5])):
            parts += (self._pick(*_BINARY), self.operand(depth - 1))
        text = " ".join(parts)
        choice = self._random.randrange(8)
        if choice == 0 and depth:
            return f"{text} ? {self.expression(depth - 1)} : {self.assigned(depth - 1)}"
        if choice == 1 and depth:
            return f"{text} {self._pick(*_ASSIGNMENTS)} {self.assigned(depth - 1)}"
        return text

    def expression(self, depth: int) -> str:
        return self._list(self._random.choice([1, 1, 1, 3]), "assigned", depth=depth)

    def _initial(self, depth: int) -> str:
        if depth > 0 and self._random.randrange(3) == 0:
            return f"{{{self._list(3, '_initial', depth=depth - 1)}{self._pick('', ',')}}}"
        return self._pick("{}", *[self.assigned(1)] * 5)

    def _declarator(self) -> str:
        name = self._pick(*(_NAMES if self._random.randrange(40) == 0 else _NAMES[:6]))
        text = self._pick(name, name, name, f"({name})", f"(({name}))")
        for _ in range(self._random.choice([0, 0, 1, 2])):
            text += f"[{self._pick('', self.assigned(1))}]"
        return text if self._random.randrange(2) else f"{text} = {self._initial(2)}"

    def declaration(self) -> str:
        kind = self._pick(*_TYPES)
        return f"{self._pick('', '', 'static ', 'register ')}{kind} {self._list(3, '_declarator')};"

    def statement(self, depth: int) -> str:
        choice = self._random.randrange(12 if depth else 4)
        inner = self.statement(depth - 1) if depth else ""
        test = self.expression(1)
        if choice < 2:
            return f"{self.expression(3)};"
        if choice == 2:
            return self._pick("return;", f"return {test};", "break;", "continue;", ";")
        if choice == 3:
            return f"{{{self.block(depth - 1)}}}"
        if choice == 4:
            return f"if ({test}) {inner}"
        if choice == 5:
            return f"if ({test}) {inner} else {self.statement(depth - 1)}"
        if choice == 6:
            return f"while ({test}) {inner}"
        if choice == 7:
            return f"do {inner} while ({test});"
        if choice < 10:
            first = self._pick(";", f"{test};", self.declaration())
            return f"for ({first} {self._pick('', test)}; {self._pick('', self.expression(1))}) {inner}"
        label = self._pick("case 1:", f"case {self.operand(1)}:", "default:")
        if choice == 10:
            return f"switch ({test}) {label} {inner}"
        sections = self._list(4, "_section", " ", depth=depth - 1)
        return f"switch ({test}) {{ {self._pick('', '', inner)} {sections} }}"

    def _section(self, depth: int) -> str:
        label = self._pick("case 1:", f"case {self.operand(1)}:", "case 'a': default:", "default:")
        return f"{label} {self.block(depth) if self._random.randrange(4) else ''}"

    def block(self, depth: int = 3) -> str:
        """Some statements and declarations."""
        items = []
        for _ in range(self._random.randrange(1, 5)):
            items.append(self.statement(max(depth, 0)) if self._random.randrange(3) else self.declaration())
        return self._pick(" ", "\n", "\n  ").join(items)
