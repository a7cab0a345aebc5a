"""Expressions as CUDA C. Arithmetic of integers is done without a sign, where overflow is defined."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from evflow.codgen.cuda.writer import Writer, c_type
from evflow.codgen.semantics import BITS, FLOATS
from evflow.codgen.tree import (
    Assign,
    Binary,
    Call,
    Compare,
    Const,
    Convert,
    Element,
    Expr,
    Fault,
    Length,
    Load,
    Logical,
    Path,
    Present,
    Select,
    Unary,
)
from evflow.schema.types import NUMBERS, Array, Bytes, Number, Str

__all__ = ["value"]

_OPERATORS = {"add": "+", "sub": "-", "mul": "*", "div": "/", "and": "&", "or": "|", "xor": "^"}
_TESTS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_DIVISIONS = {"div": "divided", "rem": "remainder_", "floordiv": "floor_divided", "mod": "modulo"}
_OURS = ("fmod", "copysign", "fmin", "fmax", "round", "isnan", "isfinite")


def value(w: Writer, expr: Expr) -> str:
    """Writes an expression; gives a name or a constant."""
    return _VALUES[type(expr)](w, expr)


def _const(w: Writer, expr: Const) -> str:
    if expr.type == "str":
        return w.literal(expr.value)
    return _number(expr.type, expr.value)


def _number(kind: str, value: Any) -> str:
    if kind == "bool":
        return "true" if value else "false"
    if kind not in FLOATS:
        # The digits of the least integer would be one too many for its type.
        return f"({kind}){value}" if 0 <= value < 1 << 31 else f"({kind}){value & (1 << 64) - 1:#x}ull"
    if math.isfinite(value):
        return f"({kind}){float(value).hex()}"
    bits = "0x7ff8" if math.isnan(value) else "0xfff0" if value < 0 else "0x7ff0"
    return f"({kind})float64({bits}000000000000ull)"


def _load(w: Writer, expr: Load) -> str:
    if isinstance(expr.place, Element):
        return w.let(c_type(expr.type), w.element(expr.place, expr.pos))
    address = w.address(expr.place, expr.pos)
    kind = expr.place.type
    if isinstance(kind, Str):
        return w.let("Text", f"trimmed({address(kind.head)}, {kind.capacity})")
    if isinstance(kind, Bytes):
        return w.let("Text", f"Text{{{address(kind.head + 2)}, little16({address(kind.head)})}}")
    assert isinstance(kind, Number)
    return w.let(kind.name, _stored(address, kind, bool(expr.place.steps[-1].indexes)))


def _stored(address: Callable[[int], str], kind: Number, element: bool) -> str:
    """The number at an address: an element of an array has no marker."""
    if kind.kind == "b":
        return f"*({address(0)}) != {0 if element else NUMBERS['bool'].marker}"
    at = address(0 if element else 1)
    if kind.size == 1:
        return f"({kind.name})*({at})"
    bits = f"{'little' if element else 'big'}{8 * kind.size}({at})"
    return f"float{8 * kind.size}({bits})" if kind.kind == "f" else f"({kind.name}){bits}"


def _assign(w: Writer, expr: Assign) -> str:
    assert isinstance(expr.place, Element)
    after = value(w, expr.value)
    place = w.element(expr.place, expr.pos)
    before = w.let(c_type(expr.type), place) if expr.old else after
    w.line(f"{place} = {after};")
    return before


def _length(w: Writer, expr: Length) -> str:
    assert isinstance(expr.what, Path) and isinstance(expr.what.type, Array)
    w.address(expr.what, expr.pos)
    return f"(i64){expr.what.type.shape[expr.axis]}"


def _present(w: Writer, expr: Present) -> str:
    w.address(expr.path, expr.pos)
    return "true"


def _unary(w: Writer, expr: Unary) -> str:
    operand = value(w, expr.operand)
    if expr.op == "not":
        return w.let("bool", f"!{operand}")
    if expr.type in FLOATS:
        return w.let(expr.type, f"-{operand}")
    text = f"0 - (u64){operand}" if expr.op == "neg" else f"~(u64){operand}"
    return w.let(expr.type, f"({expr.type})({text})")


def _binary(w: Writer, expr: Binary) -> str:
    left, right = value(w, expr.left), value(w, expr.right)
    kind, op = expr.type, expr.op
    if kind in FLOATS:
        return _float_binary(w, expr, left, right)
    if op in _DIVISIONS:
        w.fault_if(f"{right} == 0", Fault.DIVISION, expr.pos)
        return w.let(kind, f"{_DIVISIONS[op]}<{kind}>({left}, {right})")
    unsigned = f"u{BITS[kind]}"
    if op in ("shl", "shr"):
        by = f"({right} & {BITS[kind] - 1})"
        return w.let(kind, f"({kind})(({unsigned}){left} << {by})" if op == "shl" else f"{left} >> {by}")
    return w.let(kind, f"({kind})(({unsigned}){left} {_OPERATORS[op]} ({unsigned}){right})")


def _float_binary(w: Writer, expr: Binary, left: str, right: str) -> str:
    if expr.op in _OPERATORS:
        return w.let(expr.type, f"{left} {_OPERATORS[expr.op]} {right}")
    if expr.op != "rem":
        w.fault_if(f"{right} == 0", Fault.DIVISION, expr.pos)
    name = {"rem": "fmod_", "floordiv": "floor_divided", "mod": "modulo"}[expr.op]
    return w.let(expr.type, f"({expr.type}){name}((f64){left}, (f64){right})")


def _compare(w: Writer, expr: Compare) -> str:
    left, right, test = value(w, expr.left), value(w, expr.right), _TESTS[expr.op]
    if expr.left.type != "str":
        return w.let("bool", f"{left} {test} {right}")
    a, b = w.let("Text", left), w.let("Text", right)
    w.charge(f"least({a}.length, {b}.length) / 8", expr.pos)
    if expr.op in ("eq", "ne"):
        return w.let("bool", f"equal({a}, {b}) {test} true")
    return w.let("bool", f"order({a}, {b}) {test} 0")


def _logical(w: Writer, expr: Logical) -> str:
    name = w.name_of("t")
    w.line(f"bool {name} = {value(w, expr.left)};")
    with w.braces(f"if ({'' if expr.op == 'and' else '!'}{name})"):
        w.line(f"{name} = {value(w, expr.right)};")
    return name


def _select(w: Writer, expr: Select) -> str:
    condition, name = value(w, expr.condition), w.name_of("t")
    w.line(f"{c_type(expr.type)} {name};")
    with w.braces(f"if ({condition})"):
        w.line(f"{name} = {value(w, expr.yes)};")
    with w.braces("else"):
        w.line(f"{name} = {value(w, expr.no)};")
    return name


def _convert(w: Writer, expr: Convert) -> str:
    operand, source, target = value(w, expr.operand), expr.operand.type, expr.type
    if source == target:
        return operand
    result = w.let(target, _cast(operand, source, target))
    if expr.checked and source != "bool":
        w.fault_if(_changed(operand, source, result, target), Fault.RANGE, expr.pos)
    return result


def _cast(operand: str, source: str, target: str) -> str:
    if target == "bool":
        return f"{operand} != 0"
    if source in FLOATS and target not in FLOATS:
        low, high, limit = _range(target)
        ends = f"{_number(target, low)}, {_number(target, high)}, {_number(source, limit)}"
        return f"saturated<{target}, {source}>({operand}, {ends})"
    return f"({target}){operand}"


def _range(kind: str) -> tuple[int, int, float]:
    """The least and greatest integer of a type, and the power of two behind it."""
    bits = BITS[kind] - (kind[0] == "i")
    return -(1 << bits) if kind[0] == "i" else 0, (1 << bits) - 1, 2.0**bits


def _changed(operand: str, source: str, result: str, target: str) -> str:
    """Whether a cast changed the number."""
    if target == "bool":
        return f"({source}){result} != {operand}"
    if source in FLOATS and target in FLOATS:
        return f"!isfinite_({result}) && isfinite_({operand})"
    if target in FLOATS:
        # It is exact if it comes back as it was, and did not round up past its type.
        limit = _number(target, _range(source)[2])
        return f"{_cast(result, target, source)} != {operand} || {result} == {limit}"
    if source in FLOATS:
        return f"({source}){result} != {operand} || {operand} >= {_number(source, _range(target)[2])}"
    return f"({source}){result} != {operand} || ({result} < 0) != ({operand} < 0)"


def _call(w: Writer, expr: Call) -> str:
    args = [value(w, argument) for argument in expr.args]
    name = expr.name
    if name == "abs":
        return w.let("i64", f"{args[0]} < 0 ? (i64)(0 - (u64){args[0]}) : {args[0]}")
    if name in _OURS:
        return w.let(c_type(expr.type), f"{name}_({', '.join(args)})")
    if expr.args[0].type != "str":
        return w.let("f64", f"{name}({', '.join(args)})")
    texts = [w.let("Text", argument) for argument in args]
    if name == "length":
        return w.let("i64", f"{texts[0]}.length")
    if name == "contains":
        # Every place may be compared as far as the part goes.
        w.charge(f"({texts[0]}.length + 1) * ({texts[1]}.length + 1)", expr.pos)
    else:
        w.charge(f"{texts[1]}.length / 8", expr.pos)
    return w.let("bool", f"{name}({', '.join(texts)})")


_VALUES: dict[type, Callable[[Writer, Any], str]] = {
    Const: _const,
    Load: _load,
    Assign: _assign,
    Length: _length,
    Present: _present,
    Unary: _unary,
    Binary: _binary,
    Compare: _compare,
    Logical: _logical,
    Select: _select,
    Convert: _convert,
    Call: _call,
}
