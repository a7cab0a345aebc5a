"""The operators of the Python subset on typed values: bool, i64, f64 and str."""

from __future__ import annotations

import ast
from collections.abc import Callable

from evflow.codgen.source.calls import Argument
from evflow.codgen.source.check import Builder
from evflow.codgen.tree import Binary, Const, Expr, Pos

__all__ = ["OPERATIONS", "Operation", "compared", "divided", "number"]

_MAX_POWER = 64

Operation = Callable[[Builder, Expr, Expr, Pos], Expr]


def number(builder: Builder, value: Expr) -> Expr:
    """A value that is computed with: a bool counts as 0 or 1."""
    return builder.convert(value, "i64") if value.type == "bool" else value


def compared(builder: Builder, op: str, left: Expr, right: Expr, pos: Pos) -> Expr:
    """Two numbers or two texts compared; a bool counts as 0 or 1."""
    return builder.compare(op, number(builder, left), number(builder, right), pos)


def _plain(op: str) -> Operation:
    """An operation that is C's, once the types are Python's."""

    def operate(builder: Builder, left: Expr, right: Expr, pos: Pos) -> Expr:
        both_bool = left.type == right.type == "bool" and op in ("and", "or", "xor")
        result = builder.binary(op, number(builder, left), number(builder, right), pos)
        return builder.truth(result) if both_bool else result

    return operate


def divided(builder: Builder, left: Expr, right: Expr, pos: Pos) -> Expr:
    """``/``: in floats, and a fault where the divisor is zero."""
    left, right = _floating(builder, "/", left, pos), _floating(builder, "/", right, pos)
    if not isinstance(right, Const) or right.value == 0:
        first, again = builder.hidden(right)
        nonzero = builder.compare("ne", first, builder.const("f64", 0.0, pos), pos)
        # Python's own division of zero by zero is the fault that IEEE division is not.
        fault = Binary(type="f64", pos=pos, op="floordiv", left=again, right=again)
        right = builder.select(nonzero, again, fault, pos)
    return builder.binary("div", left, right, pos)


def _floating(builder: Builder, op: str, value: Expr, pos: Pos) -> Expr:
    if value.type == "str":
        raise builder.error(f"'{op}' needs numbers, found a text", pos)
    return builder.convert(value, "f64")


def _power(builder: Builder, left: Expr, right: Expr, pos: Pos) -> Expr:
    """``**``: of an integer by a constant in integers, else in floats."""
    left, right = number(builder, left), number(builder, right)
    if left.type == "i64" and right.type == "i64":
        if not isinstance(right, Const) or not 0 <= right.value <= _MAX_POWER:
            raise builder.error(
                f"an integer can be raised to a constant of 0 to {_MAX_POWER}; for more write float(x) ** y",
                pos,
            )
        return _integer_power(builder, left, right.value, pos)
    base, exponent = _floating(builder, "**", left, pos), _floating(builder, "**", right, pos)
    if isinstance(exponent, Const) and exponent.value == 2.0:
        first, again = builder.hidden(base)
        return builder.binary("mul", first, again, pos)
    result = builder.call("pow", [Argument(base, pos), Argument(exponent, pos)], pos)
    return builder.only_value(result, "pow", pos)


def _integer_power(builder: Builder, base: Expr, exponent: int, pos: Pos) -> Expr:
    first, again = builder.hidden(base)
    result = _multiplied(builder, again, exponent, pos)
    return result if first is again else builder.sequence([first], result, pos)


def _multiplied(builder: Builder, base: Expr, exponent: int, pos: Pos) -> Expr:
    """A power by squaring; ``base`` may be evaluated any number of times."""
    if exponent < 2:
        return base if exponent else builder.const("i64", 1, pos)
    if exponent % 2:
        return builder.binary("mul", _multiplied(builder, base, exponent - 1, pos), base, pos)
    first, again = builder.hidden(_multiplied(builder, base, exponent // 2, pos))
    return builder.binary("mul", first, again, pos)


OPERATIONS: dict[type[ast.operator], Operation] = {
    ast.Add: _plain("add"),
    ast.Sub: _plain("sub"),
    ast.Mult: _plain("mul"),
    ast.Div: divided,
    ast.FloorDiv: _plain("floordiv"),
    ast.Mod: _plain("mod"),
    ast.Pow: _power,
    ast.BitAnd: _plain("and"),
    ast.BitOr: _plain("or"),
    ast.BitXor: _plain("xor"),
    ast.LShift: _plain("shl"),
    ast.RShift: _plain("shr"),
}
"""What the operators of Python do with two values."""
