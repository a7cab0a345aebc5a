"""Expressions of Cod: the parser's nodes to operands and typed expressions."""

from __future__ import annotations

import math
import re
from bisect import bisect
from typing import Any

from evflow.codgen.source.access import Operand
from evflow.codgen.source.check import Builder
from evflow.codgen.source.codnodes import ID, Assignment, BinaryOp, ExprList, FuncCall
from evflow.codgen.source.codtext import TYPE_NAMES
from evflow.codgen.source.translator import Translator
from evflow.codgen.tree import Expr, Pos, Stmt

CONSTANTS: dict[str, bool | int | float | str] = {
    "true": True, "false": False, "M_PI": math.pi, "M_E": math.e, "NAN": math.nan, "INFINITY": math.inf
}  # fmt: skip
"""Names that Cod knows."""

_INTEGER_TYPES = {
    "char": "i8", "char signed": "i8", "char unsigned": "u8",
    "short": "i16", "int short": "i16", "short unsigned": "u16", "int short unsigned": "u16",
    "int": "i32", "": "i32", "unsigned": "u32", "int unsigned": "u32",
    "long": "i64", "int long": "i64", "long long": "i64", "int long long": "i64",
    "long unsigned": "u64", "int long unsigned": "u64",
    "long long unsigned": "u64", "int long long unsigned": "u64"
}  # fmt: skip
_TYPES = {**_INTEGER_TYPES, "float": "f32", "double": "f64", "_Bool": "bool", **TYPE_NAMES}

_BINARY = {
    "+": "add", "-": "sub", "*": "mul", "/": "div", "%": "rem",
    "&": "and", "|": "or", "^": "xor", "<<": "shl", ">>": "shr"
}  # fmt: skip
_COMPARE = {"==": "eq", "!=": "ne", "<": "lt", "<=": "le", ">": "gt", ">=": "ge"}
_LOGICAL = {"&&": "and", "||": "or"}
_SIGNS = {"-": "neg", "+": "pos", "~": "inv"}
_STEPS = {"++": ("add", False), "--": ("sub", False), "p++": ("add", True), "p--": ("sub", True)}

_ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]+)|([0-7]{1,3})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))", re.DOTALL)
_ESCAPED = {
    "n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v",
    "\\": "\\", "'": "'", '"': '"', "?": "?"
}  # fmt: skip


class Expressions(Translator):
    """Translates expressions.

    Args:
        builder: makes the nodes.
        text: the text in which the nodes stand.
    """

    def __init__(self, builder: Builder, text: str) -> None:
        super().__init__(builder)
        self._lines, at = [0], text.find("\n")
        while at >= 0:
            self._lines.append(at + 1)
            at = text.find("\n", at + 1)

    def place(self, node: Any) -> Pos:
        line = bisect(self._lines, node.at)
        return Pos(line, node.at - self._lines[line - 1] + 1)

    def refused(self, node: Any) -> str:
        return f"this ({type(node).__name__}) is not part of Cod"

    def condition(self, node: Any) -> Expr:
        """An expression as a condition."""
        return self.builder.truth(self.value(node))

    def effect(self, node: Any) -> list[Stmt]:
        """An expression as a statement."""
        if isinstance(node, ExprList):
            return [s for part in node.exprs for s in self.effect(part)]
        with self.builder.at(self.place(node)):
            if isinstance(node, Assignment) and node.op == "=":
                return self.builder.store(self.operand(node.lvalue), self.operand(node.rvalue))
            called = isinstance(node, FuncCall)
            return [self.builder.effect(self._called(node) if called else self.value(node))]

    def expr_ID(self, node: Any) -> Operand:
        return self.builder.lookup(node.name)

    def expr_Text(self, node: Any) -> Operand:
        value = b""
        for part in node.parts:
            value += self._unescaped(part[1:-1], node)
        return self.builder.const("str", value)

    def expr_Constant(self, node: Any) -> Operand:
        text, kind = node.value, node.type
        if kind == "int":
            return self._integer(text)
        if kind == "char":
            return self.builder.const("i32", self._character(text, node))
        digits = text.rstrip("lLfF")  # a hexadecimal float ends with a decimal exponent
        try:
            number = float.fromhex(digits) if "x" in text.lower() else float(digits)
        except OverflowError:
            number = math.inf
        return self.builder.const("f32" if text[-1] in "fF" else "f64", number)

    def _integer(self, text: str) -> Expr:
        """An integer constant, in the first of C's types that holds it."""
        digits = text.rstrip("uUlL")
        suffix = text[len(digits) :].lower()
        lower = digits.lower()
        base = (
            16 if lower.startswith("0x") else 2 if lower.startswith("0b") else 8 if digits[0] == "0" else 10
        )
        number = int(digits[2:] if base in (2, 16) else digits, base) if len(digits) < 80 else 1 << 64
        types = ["i32", "i64"] if base == 10 else ["i32", "u32", "i64", "u64"]
        if "u" in suffix:
            types = ["u32", "u64"]
        if "l" in suffix:
            types = [t for t in types if t.endswith("64")]
        for kind in types:
            if number < 1 << (int(kind[1:]) - (kind[0] == "i")):
                return self.builder.const(kind, number)
        raise self.builder.error(f"the number {text} does not fit 64 bits")

    def _character(self, text: str, node: Any) -> int:
        value = self._unescaped(text[1:-1], node)
        if len(_ESCAPE.sub("x", text)) != 3:
            raise self.error("'...' holds exactly one character; write a text in \"...\"", node)
        if len(value) != 1:
            raise self.error(f"the character {text} is not one byte", node)
        return value[0] - 256 if value[0] > 127 else value[0]

    def _unescaped(self, text: str, node: Any) -> bytes:
        parts, done = [], 0
        for match in _ESCAPE.finditer(text):
            parts.append(text[done : match.start()].encode("utf-8", "surrogatepass"))
            done = match.end()
            hexadecimal, octal, short, long, single = match.groups()
            code = int(hexadecimal or octal or short or long or "0", 16 if not octal else 8)
            if single is not None:
                if single not in _ESCAPED:
                    raise self.error(f"'\\{single}' is not an escape of C", node)
                parts.append(_ESCAPED[single].encode())
            elif short or long:
                if code > 0x10FFFF or 0xD800 <= code < 0xE000:
                    raise self.error(f"'{match.group()}' is not a character", node)
                parts.append(chr(code).encode())
            elif code > 255:
                raise self.error(f"'{match.group()}' is more than one byte", node)
            else:
                parts.append(bytes([code]))
        parts.append(text[done:].encode("utf-8", "surrogatepass"))
        return b"".join(parts)

    def expr_StructRef(self, node: Any) -> Operand:
        of, builder = self.operand(node.name), self.builder
        before, builder.pos = builder.pos, self.place(node.field)
        field = builder.field(of, node.field.name)
        builder.pos = before
        return field

    def expr_ArrayRef(self, node: Any) -> Operand:
        of, index = self.operand(node.name), self.value(node.subscript)
        with self.builder.at(self.place(node.subscript)):
            return self.builder.index(of, index)

    def _called(self, node: Any) -> Expr | Stmt:
        if not isinstance(node.name, ID):
            raise self.error("only a function of the library can be called, by its name", node)
        return self.builder.call(node.name.name, self.arguments(node.args))

    def expr_FuncCall(self, node: Any) -> Operand:
        return self.builder.only_value(self._called(node), getattr(node.name, "name", "this"))

    def expr_BinaryOp(self, node: Any) -> Operand:
        if node.op in _LOGICAL:
            conditions = [self.condition(n) for n in _chain(node)]
            return self.builder.logical(_LOGICAL[node.op], conditions)
        left, right = self.value(node.left), self.value(node.right)
        if node.op in _COMPARE:
            return self.builder.compare(_COMPARE[node.op], left, right)
        return self.builder.binary(_BINARY[node.op], left, right)

    def expr_UnaryOp(self, node: Any) -> Operand:
        op = node.op
        if op in _STEPS:
            operation, old = _STEPS[op]
            target, one = self.operand(node.expr), self.builder.const("i32", 1)
            return self.builder.update(target, lambda v: self.builder.binary(operation, v, one), old=old)
        if op == "!":
            return self.builder.negation(self.condition(node.expr))
        return self.builder.unary(_SIGNS[op], self.value(node.expr))

    def expr_TernaryOp(self, node: Any) -> Operand:
        condition = self.condition(node.cond)
        return self.builder.select(condition, self.value(node.iftrue), self.value(node.iffalse))

    def expr_Cast(self, node: Any) -> Operand:
        kind = self.type_name(node.words, node)
        return self.builder.convert(self.value(node.expr), kind)

    def expr_Assignment(self, node: Any) -> Operand:
        target = self.operand(node.lvalue)
        if node.op == "=":
            return self.builder.assign(target, self.value(node.rvalue))
        op, value = _BINARY[node.op[:-1]], self.value(node.rvalue)
        return self.builder.update(target, lambda v: self.builder.binary(op, v, value))

    def expr_ExprList(self, node: Any) -> Operand:
        *parts, last = [self.value(part) for part in node.exprs]
        with self.builder.at(self.place(node.exprs[0])):
            return self.builder.sequence(parts, last)

    def type_name(self, names: list[str], where: Any) -> str:
        """The value type that a declaration or a cast names.

        Args:
            names: the words of the type.
            where: the node to point at.

        Raises:
            CodeError: Cod has no such type.
        """
        words = " ".join(sorted(names))
        if "signed" in names and "char" not in names:
            words = words.replace("unsigned", "-").replace("signed", "")
        kind = _TYPES.get(words)
        if kind is None:
            raise self.error(f"there is no type '{' '.join(names)}' in Cod", where)
        return kind


def _chain(node: Any) -> list[Any]:
    """The operands of a chain of one logical operator, in order."""
    operands: list[Any] = []
    pending = [node]
    while pending:
        top = pending.pop()
        if isinstance(top, BinaryOp) and top.op == node.op:
            pending += (top.right, top.left)
        else:
            operands.append(top)
    return operands
