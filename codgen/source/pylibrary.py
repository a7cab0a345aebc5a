"""What Python's operators, built-in functions, ``math`` and methods of texts mean in the Python subset.

Values are bool, i64, f64 and str. Where Python raises for a number outside a function's domain
(``math.sqrt(-1)``) the result is C's: NaN or an infinity.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from evflow.codgen.library import LIBRARY
from evflow.codgen.source.access import Attributes, Operand
from evflow.codgen.source.arithmetic import spelled
from evflow.codgen.source.calls import Argument
from evflow.codgen.source.check import Builder
from evflow.codgen.tree import Binary, Const, Expr

if TYPE_CHECKING:
    from evflow.codgen.source.pyexpr import Expressions

_MAX_POWER = 64

_Operation = Callable[[Builder, Expr, Expr], Expr]
_Function = Callable[["Expressions", list[ast.expr]], Expr]
_Method = Callable[["Expressions", Operand, list[ast.expr]], Expr]


def number(builder: Builder, value: Expr) -> Expr:
    """A value that is computed with: a bool counts as 0 or 1."""
    return builder.convert(value, "i64") if value.type == "bool" else value


def compared(builder: Builder, op: str, left: Expr, right: Expr) -> Expr:
    """Two numbers or two texts compared; a bool counts as 0 or 1."""
    return builder.compare(op, number(builder, left), number(builder, right))


def _plain(op: str) -> _Operation:
    """An operation that is C's, once the types are Python's."""

    def operate(builder: Builder, left: Expr, right: Expr) -> Expr:
        both_bool = left.type == right.type == "bool" and op in ("and", "or", "xor")
        result = builder.binary(op, number(builder, left), number(builder, right))
        return builder.truth(result) if both_bool else result

    return operate


def _divided(builder: Builder, left: Expr, right: Expr) -> Expr:
    """``/``: in floats, and a fault where the divisor is zero."""
    left, right = _floating(builder, "/", left), _floating(builder, "/", right)
    if not isinstance(right, Const) or right.value == 0:
        first, again = builder.hidden(right)
        nonzero = builder.compare("ne", first, builder.const("f64", 0.0))
        # Python's own division of zero by zero is the fault that IEEE division is not.
        fault = Binary(type="f64", pos=builder.pos, op="floordiv", left=again, right=again)
        right = builder.select(nonzero, again, fault)
    return builder.binary("div", left, right)


def _floating(builder: Builder, op: str, value: Expr) -> Expr:
    if value.type == "str":
        raise builder.error(f"'{op}' needs numbers, found a text")
    return builder.convert(value, "f64")


def _power(builder: Builder, left: Expr, right: Expr) -> Expr:
    """``**``: of an integer by a constant in integers, else in floats."""
    left, right = number(builder, left), number(builder, right)
    if left.type == "i64" and right.type == "i64":
        if not isinstance(right, Const) or not 0 <= right.value <= _MAX_POWER:
            raise builder.error(
                f"an integer can be raised to a constant of 0 to {_MAX_POWER}; for more write float(x) ** y"
            )
        first, again = builder.hidden(left)
        result = _multiplied(builder, again, right.value)
        return builder.sequence([] if first is again else [first], result)
    base, exponent = _floating(builder, "**", left), _floating(builder, "**", right)
    if isinstance(exponent, Const) and exponent.value == 2.0:
        return builder.binary("mul", *builder.hidden(base))
    return _call(builder, "pow", [base, exponent])


def _multiplied(builder: Builder, base: Expr, exponent: int) -> Expr:
    """A power by squaring; ``base`` may be evaluated any number of times."""
    if exponent < 2:
        return base if exponent else builder.const("i64", 1)
    if exponent % 2:
        return builder.binary("mul", _multiplied(builder, base, exponent - 1), base)
    return builder.binary("mul", *builder.hidden(_multiplied(builder, base, exponent // 2)))


OPERATIONS: dict[type[ast.operator], _Operation] = {
    ast.Div: _divided,
    ast.Pow: _power,
    ast.Add: _plain("add"),
    ast.Sub: _plain("sub"),
    ast.Mult: _plain("mul"),
    ast.FloorDiv: _plain("floordiv"),
    ast.Mod: _plain("mod"),
    ast.BitAnd: _plain("and"),
    ast.BitOr: _plain("or"),
    ast.BitXor: _plain("xor"),
    ast.LShift: _plain("shl"),
    ast.RShift: _plain("shr"),
}
"""What the operators of Python do with two values."""


def _call(builder: Builder, name: str, values: Sequence[Expr]) -> Expr:
    """A function of the library."""
    result = builder.call(name, [Argument(value, value.pos) for value in values])
    assert isinstance(result, Expr)
    return result


def _library(name: str) -> _Function:
    """A function that is one of the library; a bool counts as 0 or 1."""

    def make(translator: Expressions, nodes: list[ast.expr]) -> Expr:
        values = [number(translator.builder, translator.value(node)) for node in nodes]
        return translator.wide(_call(translator.builder, name, values))

    return make


def _one(translator: Expressions, name: str, nodes: list[ast.expr]) -> Expr:
    """The only argument, which must be a number."""
    if len(nodes) != 1:
        raise translator.builder.error(f"{name}(...) takes 1 argument here, found {len(nodes)}")
    value = translator.value(nodes[0])
    if value.type == "str":
        raise translator.error(f"{name}(...) takes a number here, found a text", nodes[0])
    return number(translator.builder, value)


def _whole(name: str, function: str) -> _Function:
    """A rounding that gives an integer; NaN, infinities and what 64 bits cannot hold are a RANGE fault."""

    def make(translator: Expressions, nodes: list[ast.expr]) -> Expr:
        value = _one(translator, name, nodes)
        if value.type == "i64":
            return value
        return translator.builder.convert(_call(translator.builder, function, [value]), "i64", checked=True)

    return make


def _float(translator: Expressions, nodes: list[ast.expr]) -> Expr:
    return translator.builder.convert(_one(translator, "float", nodes), "f64")


def _bool(translator: Expressions, nodes: list[ast.expr]) -> Expr:
    if len(nodes) != 1:
        raise translator.builder.error(f"bool(...) takes 1 argument, found {len(nodes)}")
    return translator.condition(nodes[0])


def _absolute(translator: Expressions, nodes: list[ast.expr]) -> Expr:
    return _call(translator.builder, "abs", [_one(translator, "abs", nodes)])


def _log(translator: Expressions, nodes: list[ast.expr]) -> Expr:
    if len(nodes) != 2:
        return _library("log")(translator, nodes)
    return _divided(translator.builder, *(_library("log")(translator, [node]) for node in nodes))


def _is_infinite(translator: Expressions, nodes: list[ast.expr]) -> Expr:
    builder = translator.builder
    size = _call(builder, "fabs", [_one(translator, "isinf", nodes)])
    return builder.compare("eq", size, builder.const("f64", math.inf))


def _scaled(name: str, factor: float) -> _Function:
    def make(translator: Expressions, nodes: list[ast.expr]) -> Expr:
        builder = translator.builder
        value = builder.convert(_one(translator, name, nodes), "f64")
        return builder.binary("mul", value, builder.const("f64", factor))

    return make


BUILTINS: dict[str, _Function] = {
    "abs": _absolute,
    "bool": _bool,
    "float": _float,
    "int": _whole("int", "trunc"),
    "max": _library("max"),
    "min": _library("min"),
    "round": _whole("round", "rint"),
}
"""Built-in functions of Python whose meaning is not that of the library function of the same name."""

_NOT_PYTHONS = ("round", "rint", "fmin", "fmax")

MATH: dict[str, _Function] = {
    **{n: _library(n) for n, f in LIBRARY.items() if f.parameters[0] == "f64" and n not in _NOT_PYTHONS},
    "ceil": _whole("ceil", "ceil"),
    "degrees": _scaled("degrees", 180.0 / math.pi),
    "floor": _whole("floor", "floor"),
    "isinf": _is_infinite,
    "log": _log,
    "radians": _scaled("radians", math.pi / 180.0),
    "trunc": _whole("trunc", "trunc"),
}
"""Functions of the module ``math``."""


def _affix(name: str, function: str) -> _Method:
    """``text.startswith(part)`` or ``endswith``, of one part or a tuple of them."""

    def make(translator: Expressions, of: Operand, nodes: list[ast.expr]) -> Expr:
        builder = translator.builder
        text = builder.value(of)
        if text.type != "str" or len(nodes) != 1:
            raise builder.error(f"'{name}' is a method of a text and takes 1 argument")
        parts = nodes[0].elts if isinstance(nodes[0], ast.Tuple) else nodes
        return translator.any_of(text, parts, lambda whole, part: _call(builder, function, [whole, part]))

    return make


def _get(translator: Expressions, of: Operand, nodes: list[ast.expr]) -> Expr:
    """``input.attrs.get("name", default)``: an attribute of the default's type."""
    builder = translator.builder
    default = translator.value(nodes[1]) if len(nodes) == 2 else None
    if not isinstance(of, Attributes) or not isinstance(default, Const) or default.type == "bool":
        found = "none" if default is None else spelled(default.type)
        raise builder.error(
            "'get' is a method of attributes: input.attrs.get(\"name\", default), the default a constant "
            f"that says the type, such as 0, 0.0 or ''; found {found}"
        )
    reader = {"i64": "attr_ivalue", "f64": "attr_dvalue", "str": "attr_svalue"}[default.type]
    result = builder.call(reader, [Argument(of, builder.pos), *translator.arguments(nodes)])
    assert isinstance(result, Expr)
    return result


METHODS: dict[str, _Method] = {
    "startswith": _affix("startswith", "starts_with"),
    "endswith": _affix("endswith", "ends_with"),
    "get": _get,
}
"""Methods of texts and of attributes."""
