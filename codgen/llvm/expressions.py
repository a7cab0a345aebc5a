"""Expressions of numbers as LLVM IR."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from evflow.codgen import tree
from evflow.codgen.library import SYSTEM
from evflow.codgen.llvm import layout, texts
from evflow.codgen.llvm.emitter import Emitter
from evflow.codgen.llvm.ir import LLVM_TYPES, number
from evflow.codgen.llvm.maths import call_math, charge_remainder, floor_divide_float, modulo_float
from evflow.codgen.llvm.numbers import bits_of, is_float, is_signed, read_number
from evflow.codgen.tree import Expr, Fault
from evflow.schema.types import Maybe

__all__ = ["number_value"]

_ARITHMETIC = {"add": "add", "sub": "sub", "mul": "mul", "and": "and", "or": "or", "xor": "xor"}
_FLOAT_ARITHMETIC = {"add": "fadd", "sub": "fsub", "mul": "fmul", "div": "fdiv"}
_INTEGER_TESTS = {"eq": "eq", "ne": "ne", "lt": "lt", "le": "le", "gt": "gt", "ge": "ge"}
_FLOAT_TESTS = {"eq": "oeq", "ne": "une", "lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge"}


def number_value(e: Emitter, expr: Expr) -> str:
    """The operand of any expression but a ``str``."""
    return _VALUES[type(expr)](e, expr)


def _const(e: Emitter, expr: tree.Const) -> str:
    return number(expr.type, expr.value)


def _load(e: Emitter, expr: tree.Load) -> str:
    if isinstance(expr.place, tree.Element):
        pointer = e.element(expr.place, expr.pos)
        return e.body.load(LLVM_TYPES[expr.type], pointer)
    written = expr.place.root.kind == "output"
    return read_number(e, e.place(expr.place, expr.pos), "" if written else e.host.invariant)


def _assign(e: Emitter, expr: tree.Assign) -> str:
    return e.assign(expr)


def _length(e: Emitter, expr: tree.Length) -> str:
    if isinstance(expr.what, int):
        return e.host.queue_length(e, expr.what)
    return layout.item_count(e.body, e.place(expr.what, expr.pos), expr.axis)


def _present(e: Emitter, expr: tree.Present) -> str:
    place = e.place(expr.path, expr.pos, inside=False)
    if not isinstance(place.type, Maybe):
        return "true"
    marker = e.body.load("i8", place.base, place.offset)
    return e.body.let(f"icmp ne i8 {marker}, {layout.NIL - 256}")


def _attribute(e: Emitter, expr: tree.Attribute) -> str:
    kind, bits, _ = e.host.attribute(e, expr.scope, expr.name)
    body = e.body
    if expr.exists:
        return body.let(f"icmp ne i64 {kind}, 0")
    is_int, is_number = body.let(f"icmp eq i64 {kind}, 1"), body.let(f"icmp eq i64 {kind}, 2")
    as_float = body.let(f"bitcast i64 {bits} to double")
    if expr.type == "i64":
        other = _saturated(e, as_float, "f64", "i64")
        found, same = body.let(f"select i1 {is_int}, i64 {bits}, i64 {other}"), "i64"
    else:
        converted = body.let(f"sitofp i64 {bits} to double")
        found, same = body.let(f"select i1 {is_number}, double {as_float}, double {converted}"), "double"
    default = e.value(expr.default) if expr.default is not None else number(expr.type, 0)
    known = body.let(f"or i1 {is_int}, {is_number}")
    return body.let(f"select i1 {known}, {same} {found}, {same} {default}")


def _unary(e: Emitter, expr: tree.Unary) -> str:
    operand, kind = e.value(expr.operand), LLVM_TYPES[expr.type]
    if expr.op == "not":
        return e.body.let(f"xor i1 {operand}, true")
    if expr.op == "inv":
        return e.body.let(f"xor {kind} {operand}, -1")
    if is_float(expr.type):
        return e.body.let(f"fneg {kind} {operand}")
    return e.body.let(f"sub {kind} 0, {operand}")


def _binary(e: Emitter, expr: tree.Binary) -> str:
    left, right = e.value(expr.left), e.value(expr.right)
    if is_float(expr.type):
        return _float_binary(e, expr, left, right)
    op, kind = expr.op, LLVM_TYPES[expr.type]
    if op in _ARITHMETIC:
        return e.body.let(f"{_ARITHMETIC[op]} {kind} {left}, {right}")
    if op in ("shl", "shr"):
        masked = e.body.let(f"and {kind} {right}, {bits_of(expr.type) - 1}")
        shift = "shl" if op == "shl" else "ashr" if is_signed(expr.type) else "lshr"
        return e.body.let(f"{shift} {kind} {left}, {masked}")
    return _divide(e, expr, left, right)


def _float_binary(e: Emitter, expr: tree.Binary, left: str, right: str) -> str:
    body, kind = e.body, LLVM_TYPES[expr.type]
    if expr.op in _FLOAT_ARITHMETIC:
        return body.let(f"{_FLOAT_ARITHMETIC[expr.op]} {kind} {left}, {right}")
    if expr.op != "rem":
        e.fault_if(body.let(f"fcmp oeq {kind} {right}, {number(expr.type, 0)}"), Fault.DIVISION, expr.pos)
    if expr.type == "f32":
        left, right = (body.let(f"fpext float {operand} to double") for operand in (left, right))
    charge_remainder(e, left, right, expr.pos)
    operation = {"rem": _fmod, "floordiv": floor_divide_float, "mod": modulo_float}[expr.op]
    result = operation(e, left, right)
    return body.let(f"fptrunc double {result} to float") if expr.type == "f32" else result


def _fmod(e: Emitter, left: str, right: str) -> str:
    return call_math(e.body, "fmod", (left, right))


def _divide(e: Emitter, expr: tree.Binary, left: str, right: str) -> str:
    """Integer ``div rem floordiv mod``; the divisor -1 is set aside, since MIN / -1 traps in hardware."""
    body, kind, op = e.body, LLVM_TYPES[expr.type], expr.op
    known = expr.right.value if isinstance(expr.right, tree.Const) else None
    if not known:
        e.fault_if(body.let(f"icmp eq {kind} {right}, 0"), Fault.DIVISION, expr.pos)
    if not is_signed(expr.type):
        return body.let(f"{'udiv' if op in ('div', 'floordiv') else 'urem'} {kind} {left}, {right}")
    negate, divisor = "false", right
    if known is None or known == -1:
        negate = body.let(f"icmp eq {kind} {right}, -1")
        divisor = body.let(f"select i1 {negate}, {kind} 1, {kind} {right}")
    if op == "div":
        return _negated_if(e, negate, kind, left, body.let(f"sdiv {kind} {left}, {divisor}"))
    remainder = body.let(f"srem {kind} {left}, {divisor}")
    if op == "rem":
        return remainder
    # Rounding down differs from truncation where the remainder and the divisor have different signs.
    opposite = body.let(f"icmp slt {kind} {body.let(f'xor {kind} {remainder}, {divisor}')}, 0")
    inexact = body.let(f"icmp ne {kind} {remainder}, 0")
    lower = body.let(f"and i1 {opposite}, {inexact}")
    if op == "mod":
        moved = body.let(f"add {kind} {remainder}, {divisor}")
        return body.let(f"select i1 {lower}, {kind} {moved}, {kind} {remainder}")
    quotient = body.let(f"sdiv {kind} {left}, {divisor}")
    floored = body.let(f"sub {kind} {quotient}, {body.let(f'zext i1 {lower} to {kind}')}")
    return _negated_if(e, negate, kind, left, floored)


def _negated_if(e: Emitter, condition: str, kind: str, value: str, otherwise: str) -> str:
    if condition == "false":
        return otherwise
    negated = e.body.let(f"sub {kind} 0, {value}")
    return e.body.let(f"select i1 {condition}, {kind} {negated}, {kind} {otherwise}")


def _compare(e: Emitter, expr: tree.Compare) -> str:
    if expr.left.type == "str":
        return texts.compare(e, expr)
    left, right = e.value(expr.left), e.value(expr.right)
    of, kind = expr.left.type, LLVM_TYPES[expr.left.type]
    if is_float(of):
        return e.body.let(f"fcmp {_FLOAT_TESTS[expr.op]} {kind} {left}, {right}")
    test = _INTEGER_TESTS[expr.op]
    if test not in ("eq", "ne"):
        test = ("s" if is_signed(of) else "u") + test
    return e.body.let(f"icmp {test} {kind} {left}, {right}")


def _logical(e: Emitter, expr: tree.Logical) -> str:
    body = e.body
    left = e.value(expr.left)
    rest, done, first = body.label(), body.label(), body.block
    body.branch(left, *((rest, done) if expr.op == "and" else (done, rest)))
    body.begin(rest)
    right = e.value(expr.right)
    last = body.block
    body.begin(done)
    return body.phi("i1", [("false" if expr.op == "and" else "true", first), (right, last)])


def _select(e: Emitter, expr: tree.Select) -> str:
    body = e.body
    yes, no, done = body.label(), body.label(), body.label()
    body.branch(e.value(expr.condition), yes, no)
    body.begin(yes)
    first = (e.value(expr.yes), body.block)
    body.jump(done)
    body.begin(no)
    second = (e.value(expr.no), body.block)
    body.begin(done)
    return body.phi(LLVM_TYPES[expr.type], [first, second])


def _convert(e: Emitter, expr: tree.Convert) -> str:
    value = e.value(expr.operand)
    source, target = expr.operand.type, expr.type
    if source == target:
        return value
    result = _cast(e, value, source, target)
    if expr.checked:
        _check(e, expr, value, source, result, target)
    return result


def _cast(e: Emitter, value: str, source: str, target: str) -> str:
    body, old, new = e.body, LLVM_TYPES[source], LLVM_TYPES[target]
    if target == "bool":
        return body.let(f"{'fcmp une' if is_float(source) else 'icmp ne'} {old} {value}, {number(source, 0)}")
    if is_float(source) and is_float(target):
        return body.let(f"{'fpext' if target == 'f64' else 'fptrunc'} {old} {value} to {new}")
    if is_float(source):
        return _saturated(e, value, source, target)
    if is_float(target):
        return body.let(f"{'sitofp' if is_signed(source) else 'uitofp'} {old} {value} to {new}")
    if old == new:
        return value
    if source != "bool" and bits_of(source) > bits_of(target):
        return body.let(f"trunc {old} {value} to {new}")
    return body.let(f"{'sext' if is_signed(source) else 'zext'} {old} {value} to {new}")


def _saturated(e: Emitter, value: str, source: str, target: str) -> str:
    old, new = LLVM_TYPES[source], LLVM_TYPES[target]
    name = f"@llvm.fpto{'si' if is_signed(target) else 'ui'}.sat.{new}.{'f32' if source == 'f32' else 'f64'}"
    e.body.module.declare(f"{new} {name}({old})")
    return e.body.call(new, name, f"{old} {value}")


def _check(e: Emitter, expr: tree.Convert, value: str, source: str, result: str, target: str) -> None:
    """A RANGE fault where a cast changed the value: it must come back the same, and with the same sign."""
    body, old, new = e.body, LLVM_TYPES[source], LLVM_TYPES[target]
    if source == "bool":
        return
    if is_float(target):
        changed = _check_float(e, value, source, result, target)
    elif is_float(source):
        changed = _check_truncated(e, value, source, result, target)
    else:
        back = _cast(e, result, target, source)
        changed = body.let(f"icmp ne {old} {back}, {value}")
        if is_signed(source) != is_signed(target) and target != "bool":
            sign = value if is_signed(source) else result
            negative = body.let(f"icmp slt {old if is_signed(source) else new} {sign}, 0")
            changed = body.let(f"or i1 {changed}, {negative}")
    e.fault_if(changed, Fault.RANGE, expr.pos)


def _check_float(e: Emitter, value: str, source: str, result: str, target: str) -> str:
    body, new = e.body, LLVM_TYPES[target]
    if not is_float(source):
        # It is exact if it comes back as it was, and did not round up past its type.
        back = _saturated(e, result, target, source)
        differs = body.let(f"icmp ne {LLVM_TYPES[source]} {back}, {value}")
        limit = number(target, 2.0 ** (bits_of(source) - is_signed(source)))
        beyond = body.let(f"fcmp oeq {new} {result}, {limit}")
        return body.let(f"or i1 {differs}, {beyond}")
    infinite = _is_infinite(e, result, target)
    finite = body.let(f"xor i1 {_is_infinite(e, value, source)}, true")
    return body.let(f"and i1 {infinite}, {finite}")


def _is_infinite(e: Emitter, value: str, kind: str) -> str:
    body, of = e.body, LLVM_TYPES[kind]
    name = f"@llvm.fabs.{kind}"
    body.module.declare(f"{of} {name}({of})")
    magnitude = body.call(of, name, f"{of} {value}")
    return body.let(f"fcmp oeq {of} {magnitude}, {number(kind, float('inf'))}")


def _check_truncated(e: Emitter, value: str, source: str, result: str, target: str) -> str:
    body, old = e.body, LLVM_TYPES[source]
    if target == "bool":
        back = body.let(f"uitofp i1 {result} to {old}")
        return body.let(f"fcmp une {old} {back}, {value}")
    back = _cast(e, result, target, source)
    differs = body.let(f"fcmp une {old} {back}, {value}")
    # The greatest i64 and u64 round up to a power of two that does not fit, and that saturates to them.
    limit = number(source, 2.0 ** (bits_of(target) - is_signed(target)))
    return body.let(f"or i1 {differs}, {body.let(f'fcmp oge {old} {value}, {limit}')}")


def _call(e: Emitter, expr: tree.Call) -> str:
    if expr.name in texts.FUNCTIONS:
        return texts.FUNCTIONS[expr.name](e, expr)
    if expr.name in SYSTEM:
        return e.host.system(e, expr.name)
    values = tuple(e.value(argument) for argument in expr.args)
    if expr.name == "fmod":
        charge_remainder(e, values[0], values[1], expr.pos)
    return call_math(e.body, expr.name, values)


_VALUES: dict[type, Callable[[Emitter, Any], str]] = {
    tree.Const: _const,
    tree.Load: _load,
    tree.Assign: _assign,
    tree.Length: _length,
    tree.Present: _present,
    tree.Attribute: _attribute,
    tree.Unary: _unary,
    tree.Binary: _binary,
    tree.Compare: _compare,
    tree.Logical: _logical,
    tree.Select: _select,
    tree.Convert: _convert,
    tree.Call: _call,
}
