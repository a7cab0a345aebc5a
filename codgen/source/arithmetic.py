"""Typed expressions over values: constants, conversions, operators, and what C says about their types.

``Arithmetic`` is the ground floor of the checker (``check.py``). Its methods take finished expressions,
bring the operands to the type that the operation computes in, refuse what has no meaning, and fold
constants.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from evflow.codgen import semantics
from evflow.codgen.semantics import FLOATS, ZERO
from evflow.codgen.tree import (
    Assign,
    Binary,
    Compare,
    Const,
    Convert,
    Expr,
    Load,
    Logical,
    Path,
    Place,
    Pos,
    Select,
    Unary,
)
from evflow.errors import CodeError
from evflow.schema.logical.enum import Enum

_SMALL = frozenset({"bool", "i8", "i16", "u8", "u16"})
_ORDER = ("i32", "u32", "i64", "u64", "f32", "f64")
_BITWISE = frozenset({"and", "or", "xor", "shl", "shr"})

OPERATORS = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "rem": "%", "floordiv": "//", "mod": "%",
    "and": "&", "or": "|", "xor": "^", "shl": "<<", "shr": ">>", "inv": "~", "neg": "-", "pos": "+",
    "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=",
}  # fmt: skip
"""How the operators of the tree are written."""

_EXACT: dict[str, Callable[[Any, Any], Any]] = {"add": operator.add, "sub": operator.sub, "mul": operator.mul}

_SPELLED = {"str": "a text", "bool": "a bool"}


def spelled(kind: str) -> str:
    """A value type in a message: ``a text``, ``a number (f64)``."""
    return _SPELLED.get(kind, f"a number ({kind})")


def promoted(kind: str) -> str:
    """The type that C computes in with a value of number type ``kind``."""
    return "i32" if kind in _SMALL else kind


def common_type(a: str, b: str) -> str:
    """C's usual arithmetic conversions for two number types (``long`` has 64 bits)."""
    return max(promoted(a), promoted(b), key=_ORDER.index)


def enumeration(place: Place) -> Enum | None:
    """The enumeration of the names that stand at a place."""
    kind = place.type.held if isinstance(place, Path) else place.variable.names
    return kind if isinstance(kind, Enum) else None


def names_of(value: Expr) -> Enum | None:
    """The enumeration that a value is the position of a name of; None for any other value."""
    while isinstance(value, Convert):
        value = value.operand
    if isinstance(value, Select):
        yes, no = names_of(value.yes), names_of(value.no)
        return yes if yes == no else None
    return enumeration(value.place) if isinstance(value, (Load, Assign)) else None


class _At:
    """A place that a builder stands at for a while; a generator would take four times as long."""

    __slots__ = ("_builder", "_pos")

    def __init__(self, builder: Arithmetic, pos: Pos) -> None:
        self._builder, self._pos = builder, pos

    def __enter__(self) -> None:
        self._builder.pos, self._pos = self._pos, self._builder.pos

    def __exit__(self, *_: object) -> None:
        self._builder.pos = self._pos


class Arithmetic:
    """Makes expressions of values.

    Args:
        source: the text that positions refer to, shown in errors.
        where: name, file and first line of the function, named in errors; None for a bare text.

    Attributes:
        source: as given.
        pos: where in it the code stands that is being translated; what is made, and what is wrong, is there.
    """

    def __init__(self, source: str, where: tuple[str, str, int] | None = None) -> None:
        self.source = source
        self._where = where
        self.pos = Pos(1, 1)

    def at(self, pos: Pos) -> _At:
        """Within ``with``, what is made stands at ``pos``."""
        return _At(self, pos)

    def error(self, message: str, pos: Pos | None = None) -> CodeError:
        """The error to raise for what stands at ``pos``, by default at the current place."""
        pos = pos or self.pos
        if self._where is not None:
            name, file, line = self._where
            message = f"{message} (in {name}, {file} line {line + pos.line - 1})"
        return CodeError(message, self.source, pos.line, pos.column)

    def const(self, kind: str, value: object) -> Const:
        """A constant; ``value`` is brought to the normal form of ``kind``.

        Raises:
            CodeError: a text that UTF-8 cannot hold.
        """
        try:
            return Const(type=kind, pos=self.pos, value=semantics.normal(value, kind))
        except UnicodeEncodeError:
            raise self.error("the text holds half of a surrogate pair, which is not a character") from None

    def convert(self, expr: Expr, kind: str, *, checked: bool = False) -> Expr:
        """The value as another type; only between numbers.

        Raises:
            CodeError: a text where a number is needed, or the reverse.
        """
        if expr.type == kind:
            return expr
        if "str" in (expr.type, kind):
            raise self.error(f"expected {spelled(kind)}, found {spelled(expr.type)}", expr.pos)
        if isinstance(expr, Const):
            value = semantics.cast(expr.value, kind)
            if not checked or value == expr.value:
                return Const(type=kind, pos=expr.pos, value=value)
        return Convert(type=kind, pos=expr.pos, operand=expr, checked=checked)

    def truth(self, expr: Expr, *, text_is_condition: bool = False) -> Expr:
        """The value as a condition: a number that is not zero; in Python also a text that is not empty."""
        if expr.type == "bool":
            return expr
        if expr.type == "str" and not text_is_condition:
            raise self.error("a text is not a condition; compare it, or test its length(...)", expr.pos)
        with self.at(expr.pos):
            return self.compare("ne", expr, self.const(expr.type, ZERO[expr.type]))

    def _numbers(self, op: str, *operands: Expr) -> None:
        for operand in operands:
            if operand.type == "str":
                raise self.error(f"'{OPERATORS[op]}' needs numbers, found a text")
            if operand.type in FLOATS and (op in _BITWISE or op == "inv"):
                raise self.error(f"'{OPERATORS[op]}' needs integers, found {spelled(operand.type)}")

    def unary(self, op: str, operand: Expr) -> Expr:
        """``neg``, ``inv`` or ``pos`` (C's unary plus) of a number, promoted as in C."""
        self._numbers(op, operand)
        operand = self.convert(operand, promoted(operand.type))
        if op == "pos":
            return operand
        if isinstance(operand, Const):
            return self.const(operand.type, semantics.unary(op, operand.value, operand.type))
        return Unary(type=operand.type, pos=self.pos, op=op, operand=operand)

    def negation(self, operand: Expr) -> Expr:
        """``not`` of a condition."""
        if isinstance(operand, Const):
            return self.const("bool", not operand.value)
        return Unary(type="bool", pos=self.pos, op="not", operand=operand)

    def binary(self, op: str, left: Expr, right: Expr) -> Expr:
        """Two numbers combined, in C's common type; a shift in the type of what is shifted."""
        self._numbers(op, left, right)
        shift = op in ("shl", "shr")
        kind = promoted(left.type) if shift else common_type(left.type, right.type)
        if op == "rem" and kind in FLOATS:
            raise self.error("'%' needs integers; for floats there is fmod(x, y)")
        left, right = self.convert(left, kind), self.convert(right, kind)
        if isinstance(left, Const) and isinstance(right, Const):
            try:
                value = semantics.binary(op, left.value, right.value, kind)
            except semantics.Halt:  # a division by zero stays a fault of the events that reach it
                pass
            else:
                if op in _EXACT and kind in ("i32", "i64") and _EXACT[op](left.value, right.value) != value:
                    more = "; write L behind a number to compute in 64 bits" if kind == "i32" else ""
                    raise self.error(f"'{OPERATORS[op]}' gives more than {kind} holds{more}")
                return self.const(kind, value)
        return Binary(type=kind, pos=self.pos, op=op, left=left, right=right)

    def compare(self, op: str, left: Expr, right: Expr) -> Expr:
        """Two numbers or two texts compared; a name with what an enumeration is kept as."""
        left, right = self._named(left, right), self._named(right, left)
        if (left.type == "str") != (right.type == "str"):
            found = f"{spelled(left.type)} and {spelled(right.type)}"
            raise self.error(f"'{OPERATORS[op]}' compares two numbers or two texts, found {found}")
        if left.type != "str":
            texts = _three_way(left)
            if texts is not None and isinstance(right, Const) and right.value == 0:
                left, right = texts
            elif left.type != right.type or left.type == "bool":
                kind = common_type(left.type, right.type)
                left, right = self.convert(left, kind), self.convert(right, kind)
        if isinstance(left, Const) and isinstance(right, Const):
            return self.const("bool", semantics.compare(op, left.value, right.value))
        return Compare(type="bool", pos=self.pos, op=op, left=left, right=right)

    def _named(self, value: Expr, other: Expr) -> Expr:
        """The number of a name, where the other value is one of an enumeration."""
        names = names_of(other)
        return value if names is None else self.number_of(value, names)

    def number_of(self, value: Expr, names: Enum) -> Expr:
        """What a value is kept as in an enumeration.

        Raises:
            CodeError: it is a name that the enumeration lacks, or one of another enumeration.
        """
        own = names_of(value)
        if own is not None and not names.takes(own):
            raise self.error(f"{own.text} and {names.text} have different names")
        if not isinstance(value, Const) or value.type != "str":
            return value
        name = value.value.decode() if isinstance(value.value, bytes) else str(value.value)
        if name not in names.names:
            raise self.error(f"'{name}' is not a name of {names.text}")
        return self.const("u8", names.names.index(name))

    def three_way(self, left: Expr, right: Expr) -> Expr:
        """C's ``strcmp``: -1, 0 or 1 (i32); compared with 0 it becomes the comparison of the texts."""
        less = Compare(type="bool", pos=self.pos, op="lt", left=left, right=right)
        more = Compare(type="bool", pos=self.pos, op="gt", left=left, right=right)
        otherwise = Convert(type="i32", pos=self.pos, operand=more)
        return Select(type="i32", pos=self.pos, condition=less, yes=self.const("i32", -1), no=otherwise)

    def logical(self, op: str, conditions: list[Expr]) -> Expr:
        """``and`` or ``or`` of conditions in order; of a long chain a shallow tree of the same meaning."""
        if len(conditions) == 1:
            return conditions[0]
        middle = len(conditions) // 2
        left, right = self.logical(op, conditions[:middle]), self.logical(op, conditions[middle:])
        return Logical(type="bool", pos=self.pos, op=op, left=left, right=right)

    def select(self, condition: Expr, yes: Expr, no: Expr) -> Expr:
        """``condition ? yes : no`` in the common type of both."""
        yes, no = self._named(yes, no), self._named(no, yes)
        if yes.type != no.type:
            if "str" in (yes.type, no.type):
                found = f"{spelled(yes.type)} and {spelled(no.type)}"
                raise self.error(f"both branches must be numbers, or both texts; found {found}")
            kind = common_type(yes.type, no.type)
            yes, no = self.convert(yes, kind), self.convert(no, kind)
        if isinstance(condition, Const):
            return yes if condition.value else no
        return Select(type=yes.type, pos=self.pos, condition=condition, yes=yes, no=no)

    def sequence(self, parts: list[Expr], then: Expr) -> Expr:
        """C's comma: ``parts`` in order for their effect, and the value of ``then``."""
        if not parts:
            return then
        always, zero = self.const("bool", True), self.const(then.type, ZERO[then.type])
        happened: list[Expr] = []
        for part in parts:
            left = self.truth(part, text_is_condition=True)
            happened.append(Logical(type="bool", pos=part.pos, op="or", left=left, right=always))
        condition = self.logical("and", happened)
        return Select(type=then.type, pos=self.pos, condition=condition, yes=then, no=zero)


def _three_way(expr: Expr) -> tuple[Expr, Expr] | None:
    """The texts that a ``three_way`` compares, if the expression is one."""
    if isinstance(expr, Select) and isinstance(expr.condition, Compare) and expr.condition.left.type == "str":
        no = expr.no
        if (
            isinstance(no, Convert)
            and isinstance(no.operand, Compare)
            and no.operand.left is expr.condition.left
        ):
            return expr.condition.left, expr.condition.right
    return None
