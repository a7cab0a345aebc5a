"""What Python's built-in functions, its ``math`` and its methods of text mean in the Python subset.

Where Python raises for a number outside a function's domain (``math.sqrt(-1)``) the result is C's: NaN or an
infinity.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from evflow.codgen.library import LIBRARY
from evflow.codgen.source.access import Attributes, Operand
from evflow.codgen.source.arithmetic import spelled
from evflow.codgen.source.calls import Argument
from evflow.codgen.source.pyoperators import divided, number
from evflow.codgen.tree import Const, Expr, Pos

if TYPE_CHECKING:
    from evflow.codgen.source.pyexpr import Expressions

__all__ = ["BUILTINS", "MATH", "METHODS"]

_Maker = Callable[["Expressions", list[ast.expr], Pos], Expr]


def _library(translator: Expressions, name: str, values: list[Expr], pos: Pos) -> Expr:
    result = translator.builder.call(name, [Argument(v, v.pos) for v in values], pos)
    assert isinstance(result, Expr)
    return translator.wide(result)


def _one(translator: Expressions, name: str, nodes: list[ast.expr], pos: Pos) -> Expr:
    """The only argument, which must be a number."""
    if len(nodes) != 1:
        raise translator.builder.error(f"{name}(...) takes 1 argument here, found {len(nodes)}", pos)
    value = translator.value(nodes[0])
    if value.type == "str":
        raise translator.error(f"{name}(...) takes a number here, found a text", nodes[0])
    return value


def _passed(name: str) -> _Maker:
    """A function that is one of the library."""

    def make(translator: Expressions, nodes: list[ast.expr], pos: Pos) -> Expr:
        result = translator.builder.call(name, translator.arguments(nodes), pos)
        return translator.wide(translator.builder.only_value(result, name, pos))

    return make


def _whole(name: str, function: str) -> _Maker:
    """A rounding that gives an integer; NaN, infinities and what 64 bits cannot hold are a RANGE fault."""

    def make(translator: Expressions, nodes: list[ast.expr], pos: Pos) -> Expr:
        value = number(translator.builder, _one(translator, name, nodes, pos))
        if value.type == "i64":
            return value
        return translator.builder.convert(_library(translator, function, [value], pos), "i64", checked=True)

    return make


def _round(translator: Expressions, nodes: list[ast.expr], pos: Pos) -> Expr:
    """Halves to the even neighbour, as Python rounds."""
    value = number(translator.builder, _one(translator, "round", nodes, pos))
    if value.type == "i64":
        return value
    builder = translator.builder
    first, whole = builder.hidden(value)
    low_first, low = builder.hidden(_library(translator, "floor", [whole], pos))
    part_first, part = builder.hidden(builder.binary("sub", first, low_first, pos))
    half, high = (
        builder.const("f64", 0.5, pos),
        builder.binary("add", low, builder.const("f64", 1.0, pos), pos),
    )
    remainder = _library(translator, "fmod", [low, builder.const("f64", 2.0, pos)], pos)
    even = builder.compare("eq", remainder, builder.const("f64", 0.0, pos), pos)
    nearest = builder.select(
        builder.compare("gt", part, half, pos), high, builder.select(even, low, high, pos), pos
    )
    rounded = builder.select(builder.compare("lt", part_first, half, pos), low, nearest, pos)
    return builder.convert(rounded, "i64", checked=True)


def _float(translator: Expressions, nodes: list[ast.expr], pos: Pos) -> Expr:
    return translator.builder.convert(_one(translator, "float", nodes, pos), "f64")


def _bool(translator: Expressions, nodes: list[ast.expr], pos: Pos) -> Expr:
    if len(nodes) != 1:
        raise translator.builder.error(f"bool(...) takes 1 argument, found {len(nodes)}", pos)
    return translator.condition(nodes[0])


def _absolute(translator: Expressions, nodes: list[ast.expr], pos: Pos) -> Expr:
    return _library(translator, "abs", [number(translator.builder, _one(translator, "abs", nodes, pos))], pos)


def _extreme(name: str) -> _Maker:
    def make(translator: Expressions, nodes: list[ast.expr], pos: Pos) -> Expr:
        return _library(
            translator, name, [number(translator.builder, translator.value(n)) for n in nodes], pos
        )

    return make


def _log(translator: Expressions, nodes: list[ast.expr], pos: Pos) -> Expr:
    if len(nodes) != 2:
        return _passed("log")(translator, nodes, pos)
    number_log, base_log = (_library(translator, "log", [translator.value(n)], pos) for n in nodes)
    return divided(translator.builder, number_log, base_log, pos)


def _is_infinite(translator: Expressions, nodes: list[ast.expr], pos: Pos) -> Expr:
    value = translator.builder.convert(_one(translator, "isinf", nodes, pos), "f64")
    size = _library(translator, "fabs", [value], pos)
    return translator.builder.compare("eq", size, translator.builder.const("f64", math.inf, pos), pos)


def _scaled(name: str, factor: float) -> _Maker:
    def make(translator: Expressions, nodes: list[ast.expr], pos: Pos) -> Expr:
        value = translator.builder.convert(_one(translator, name, nodes, pos), "f64")
        return translator.builder.binary("mul", value, translator.builder.const("f64", factor, pos), pos)

    return make


BUILTINS: dict[str, _Maker] = {
    "abs": _absolute,
    "bool": _bool,
    "float": _float,
    "int": _whole("int", "trunc"),
    "max": _extreme("max"),
    "min": _extreme("min"),
    "round": _round,
}
"""Built-in functions of Python whose meaning is not that of the library function of the same name."""

_DIRECT = [n for n, f in LIBRARY.items() if f.parameters[0] == "f64" and n not in ("round", "fmin", "fmax")]

MATH: dict[str, _Maker] = {
    **{name: _passed(name) for name in _DIRECT},
    "ceil": _whole("ceil", "ceil"),
    "degrees": _scaled("degrees", 180.0 / math.pi),
    "floor": _whole("floor", "floor"),
    "isinf": _is_infinite,
    "log": _log,
    "radians": _scaled("radians", math.pi / 180.0),
    "trunc": _whole("trunc", "trunc"),
}
"""Functions of the module ``math``."""


def _affix(name: str) -> Callable[[Expressions, Operand, list[ast.expr], Pos], Expr]:
    """``text.startswith(part)`` or ``endswith``, of one part or a tuple of them."""
    function = {"startswith": "starts_with", "endswith": "ends_with"}[name]

    def make(translator: Expressions, of: Operand, nodes: list[ast.expr], pos: Pos) -> Expr:
        text = translator.builder.value(of, pos)
        if text.type != "str" or len(nodes) != 1:
            raise translator.builder.error(f"'{name}' is a method of a text and takes 1 argument", pos)
        first, again = translator.builder.hidden(text)
        parts = nodes[0].elts if isinstance(nodes[0], ast.Tuple) else nodes
        tests = [
            _library(translator, function, [again if i else first, translator.value(p)], pos)
            for i, p in enumerate(parts)
        ]
        return (
            translator.builder.logical("or", tests, pos)
            if tests
            else translator.builder.const("bool", False, pos)
        )

    return make


def _get(translator: Expressions, of: Operand, nodes: list[ast.expr], pos: Pos) -> Expr:
    """``input.attrs.get("name", default)``: an attribute of the default's type."""
    default = translator.value(nodes[1]) if len(nodes) == 2 else None
    if not isinstance(of, Attributes) or not isinstance(default, Const) or default.type == "bool":
        found = "none" if default is None else spelled(default.type)
        raise translator.builder.error(
            "'get' is a method of attributes: input.attrs.get(\"name\", default), the default a constant "
            f"that says the type, such as 0, 0.0 or ''; found {found}",
            pos,
        )
    reader = {"i64": "attr_ivalue", "f64": "attr_dvalue", "str": "attr_svalue"}[default.type]
    key = Argument(translator.value(nodes[0]), translator.pos(nodes[0]))
    args = [Argument(of, pos), key, Argument(default, default.pos)]
    result = translator.builder.call(reader, args, pos)
    assert isinstance(result, Expr)
    return result


METHODS: dict[str, Callable[[Expressions, Operand, list[ast.expr], Pos], Expr]] = {
    "startswith": _affix("startswith"),
    "endswith": _affix("endswith"),
    "get": _get,
}
"""Methods of texts and of attributes."""
