"""Expressions of numbers as LLVM IR.

In an event a number is a marker and big-endian bytes; in an array it is the raw little-endian element.

What an instruction of LLVM computes exactly is an instruction. The other functions of the library call the C
library under names of our own, so that the optimiser, which knows what ``pow`` means, does not replace a call
by something that rounds otherwise.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from evflow.codgen import tree
from evflow.codgen.library import LIBRARY, SYSTEM
from evflow.codgen.llvm import layout, texts
from evflow.codgen.llvm.emitter import Emitter, Place
from evflow.codgen.llvm.ir import LLVM_TYPES, Body, number
from evflow.codgen.semantics import FLOATS
from evflow.codgen.tree import Expr, Fault, Pos
from evflow.schema.types import NUMBERS, Maybe, Number

_ARITHMETIC = {"add": "add", "sub": "sub", "mul": "mul", "and": "and", "or": "or", "xor": "xor"}
_FLOAT_ARITHMETIC = {"add": "fadd", "sub": "fsub", "mul": "fmul", "div": "fdiv"}
_SIGNED = frozenset({"i8", "i16", "i32", "i64"})
_FLOAT_TESTS = {"eq": "oeq", "ne": "une", "lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge"}


C_FUNCTIONS = tuple(name for name, function in LIBRARY.items() if function.native == "C")
"""Functions of the C library, which the code calls as ``ev_`` and their name."""


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
    kind, bits, _ = e.host.attribute(expr.scope, expr.name)
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
    if expr.type in FLOATS:
        return e.body.let(f"fneg {kind} {operand}")
    return e.body.let(f"sub {kind} 0, {operand}")


def _binary(e: Emitter, expr: tree.Binary) -> str:
    left, right = e.value(expr.left), e.value(expr.right)
    if expr.type in FLOATS:
        return _float_binary(e, expr, left, right)
    op, kind = expr.op, LLVM_TYPES[expr.type]
    if op in _ARITHMETIC:
        return e.body.let(f"{_ARITHMETIC[op]} {kind} {left}, {right}")
    if op in ("shl", "shr"):
        masked = e.body.let(f"and {kind} {right}, {_bits_of(expr.type) - 1}")
        shift = "shl" if op == "shl" else "ashr" if expr.type in _SIGNED else "lshr"
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
    _charge_remainder(e, left, right, expr.pos)
    operation = {"rem": _fmod, "floordiv": _floor_divide_float, "mod": _modulo_float}[expr.op]
    result = operation(e, left, right)
    return body.let(f"fptrunc double {result} to float") if expr.type == "f32" else result


def _fmod(e: Emitter, left: str, right: str) -> str:
    return _call_math(e.body, "fmod", (left, right))


def _divide(e: Emitter, expr: tree.Binary, left: str, right: str) -> str:
    """Integer ``div rem floordiv mod``; the divisor -1 is set aside, since MIN / -1 traps in hardware."""
    body, kind, op = e.body, LLVM_TYPES[expr.type], expr.op
    known = expr.right.value if isinstance(expr.right, tree.Const) else None
    if not known:
        e.fault_if(body.let(f"icmp eq {kind} {right}, 0"), Fault.DIVISION, expr.pos)
    if expr.type not in _SIGNED:
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
    left, right = _compared(e, expr.left), _compared(e, expr.right)
    of, kind = expr.left.type, LLVM_TYPES[expr.left.type]
    if of in FLOATS:
        return e.body.let(f"fcmp {_FLOAT_TESTS[expr.op]} {kind} {left}, {right}")
    sign = "" if expr.op in ("eq", "ne") else "s" if of in _SIGNED else "u"
    return e.body.let(f"icmp {sign}{expr.op} {kind} {left}, {right}")


def _compared(e: Emitter, expr: Expr) -> str:
    return e.host.constant(expr) if isinstance(expr, tree.Const) else e.value(expr)


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
    condition, kind = e.value(expr.condition), LLVM_TYPES[expr.type]
    return e.body.choose(condition, (kind,), lambda: [e.value(expr.yes)], lambda: [e.value(expr.no)])[0]


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
        test = "fcmp une" if source in FLOATS else "icmp ne"
        return body.let(f"{test} {old} {value}, {number(source, 0)}")
    if source in FLOATS and target in FLOATS:
        return body.let(f"{'fpext' if target == 'f64' else 'fptrunc'} {old} {value} to {new}")
    if source in FLOATS:
        return _saturated(e, value, source, target)
    if target in FLOATS:
        return body.let(f"{'sitofp' if source in _SIGNED else 'uitofp'} {old} {value} to {new}")
    if old == new:
        return value
    if source != "bool" and _bits_of(source) > _bits_of(target):
        return body.let(f"trunc {old} {value} to {new}")
    return body.let(f"{'sext' if source in _SIGNED else 'zext'} {old} {value} to {new}")


def _saturated(e: Emitter, value: str, source: str, target: str) -> str:
    old, new = LLVM_TYPES[source], LLVM_TYPES[target]
    name = f"@llvm.fpto{'si' if target in _SIGNED else 'ui'}.sat.{new}.{'f32' if source == 'f32' else 'f64'}"
    e.body.module.declare(f"{new} {name}({old})")
    return e.body.call(new, name, f"{old} {value}")


def _check(e: Emitter, expr: tree.Convert, value: str, source: str, result: str, target: str) -> None:
    """A RANGE fault where a cast changed the value: it must come back the same, and with the same sign."""
    body, old, new = e.body, LLVM_TYPES[source], LLVM_TYPES[target]
    if source == "bool":
        return
    if source in FLOATS and target in FLOATS:
        infinite = _is_infinite(e, result, target)
        finite = body.let(f"xor i1 {_is_infinite(e, value, source)}, true")
        e.fault_if(body.let(f"and i1 {infinite}, {finite}"), Fault.RANGE, expr.pos)
        return
    back = _cast(e, result, target, source)
    changed = body.let(f"{'fcmp une' if source in FLOATS else 'icmp ne'} {old} {back}, {value}")
    beyond = None
    if target in FLOATS:
        # It did not round up past its type.
        limit = number(target, 2.0 ** (_bits_of(source) - (source in _SIGNED)))
        beyond = body.let(f"fcmp oeq {new} {result}, {limit}")
    elif source in FLOATS and target != "bool":
        # The greatest i64 and u64 round up to a power of two that does not fit, and that saturates to them.
        limit = number(source, 2.0 ** (_bits_of(target) - (target in _SIGNED)))
        beyond = body.let(f"fcmp oge {old} {value}, {limit}")
    elif target != "bool" and (source in _SIGNED) != (target in _SIGNED):
        kind, sign = (old, value) if source in _SIGNED else (new, result)
        beyond = body.let(f"icmp slt {kind} {sign}, 0")
    if beyond is not None:
        changed = body.let(f"or i1 {changed}, {beyond}")
    e.fault_if(changed, Fault.RANGE, expr.pos)


def _is_infinite(e: Emitter, value: str, kind: str) -> str:
    body, of = e.body, LLVM_TYPES[kind]
    name = f"@llvm.fabs.{kind}"
    body.module.declare(f"{of} {name}({of})")
    magnitude = body.call(of, name, f"{of} {value}")
    return body.let(f"fcmp oeq {of} {magnitude}, {number(kind, float('inf'))}")


def _call(e: Emitter, expr: tree.Call) -> str:
    if expr.name in texts.FUNCTIONS:
        return texts.FUNCTIONS[expr.name](e, expr)
    if expr.name in SYSTEM:
        return e.host.system(e, expr.name)
    values = tuple(e.value(argument) for argument in expr.args)
    if expr.name == "fmod":
        _charge_remainder(e, values[0], values[1], expr.pos)
    return _call_math(e.body, expr.name, values)


def _bits_of(kind: str) -> int:
    """The width of a number type; 0 for ``bool``."""
    return NUMBERS[kind].size * 8


def read_number(e: Emitter, place: Place, suffix: str = "") -> str:
    """Loads the number at a place; ``suffix`` is ``Host.invariant`` where the place is in an event."""
    kind, body = place.type, e.body
    assert isinstance(kind, Number)
    if kind.kind == "b":
        marker = body.load("i8", place.base, place.offset, suffix)
        false = 0 if place.element else NUMBERS["bool"].marker - 256
        return body.let(f"icmp ne i8 {marker}, {false}")
    key = (place.base, place.offset, kind.name, place.element) if suffix else None
    known = e.loaded.get(key)
    if known is not None:
        return known
    bits = kind.size * 8
    raw = body.load(f"i{bits}", place.base, place.offset + (not place.element), suffix)
    if not place.element:
        raw = body.swap(bits, raw)
    if kind.kind == "f":
        raw = body.let(f"bitcast i{bits} {raw} to {LLVM_TYPES[kind.name]}")
    if key is not None and body.block == "start":
        e.loaded[key] = raw  # what is loaded at the start is known wherever the function gets to
    return raw


def write_number(e: Emitter, place: Place, value: str) -> None:
    """Stores a number at a place whose marker stands already."""
    kind = place.type
    assert isinstance(kind, Number)
    body = e.body
    if kind.kind == "b":
        yes, no = (1, 0) if place.element else (NUMBERS["bool"].marker - 255, NUMBERS["bool"].marker - 256)
        body.store("i8", body.let(f"select i1 {value}, i8 {yes}, i8 {no}"), place.base, place.offset)
        return
    bits = kind.size * 8
    if kind.kind == "f":
        value = body.let(f"bitcast {LLVM_TYPES[kind.name]} {value} to i{bits}")
    if not place.element:
        value = body.swap(bits, value)
    body.store(f"i{bits}", value, place.base, place.offset + (not place.element))


def _call_math(body: Body, name: str, args: tuple[str, ...]) -> str:
    """A function of ``library.LIBRARY`` over numbers."""
    if name == "copysign":
        # Which sign a NaN has depends on how it was computed; it counts as positive.
        nan = body.let(f"fcmp uno double {args[1]}, {args[1]}")
        args = (args[0], body.let(f"select i1 {nan}, double {number('f64', 0)}, double {args[1]}"))
    if native := LIBRARY[name].native:
        return _external(body, f"ev_{name}" if native == "C" else f"llvm.{name}.f64", args)
    if name in ("fmin", "fmax"):
        return _least_or_greatest(body, "olt" if name == "fmin" else "ogt", *args)
    if name == "abs":
        negative = body.let(f"icmp slt i64 {args[0]}, 0")
        return body.let(f"select i1 {negative}, i64 {body.let(f'sub i64 0, {args[0]}')}, i64 {args[0]}")
    if name == "isnan":
        return body.let(f"fcmp uno double {args[0]}, {args[0]}")
    assert name == "isfinite"
    magnitude = _external(body, "llvm.fabs.f64", args)
    return body.let(f"fcmp olt double {magnitude}, {number('f64', float('inf'))}")


def _external(body: Body, name: str, args: tuple[str, ...]) -> str:
    body.module.declare(f"double @{name}({', '.join('double' for _ in args)})")
    return body.call("double", f"@{name}", *(f"double {a}" for a in args))


def _least_or_greatest(body: Body, test: str, x: str, y: str) -> str:
    better = body.let(f"fcmp {test} double {y}, {x}")
    nan = body.let(f"fcmp uno double {x}, {x}")
    return body.let(f"select i1 {body.let(f'or i1 {better}, {nan}')}, double {y}, double {x}")


def _charge_remainder(e: Emitter, x: str, y: str, pos: Pos) -> None:
    """Pays in a loop for a remainder: the C library takes a nanosecond for each power of two between."""
    if not e.loops:
        return
    body = e.body
    high, low = (_exponent(body, v) for v in (x, y))
    between = body.let(f"sub i64 {high}, {low}")
    some = body.let(f"icmp sgt i64 {between}, 0")
    e.charge(body.let(f"select i1 {some}, i64 {between}, i64 0"), pos)


def _exponent(body: Body, x: str) -> str:
    bits = body.let(f"bitcast double {x} to i64")
    return body.let(f"and i64 {body.let(f'lshr i64 {bits}, 52')}, 2047")


def _modulo_float(e: Emitter, x: str, y: str) -> str:
    """Python's ``x % y`` for y not zero: the remainder with the sign of ``y``."""
    return _divmod(e.body, x, y)[1]


def _floor_divide_float(e: Emitter, x: str, y: str) -> str:
    """Python's ``x // y`` for y not zero."""
    body = e.body
    quotient = _divmod(body, x, y)[0]
    floor = _external(body, "llvm.floor.f64", (quotient,))
    lost = body.let(f"fsub double {quotient}, {floor}")
    short = body.let(f"fcmp ogt double {lost}, {number('f64', 0.5)}")
    above = body.let(f"fadd double {floor}, {number('f64', 1)}")
    nearest = body.let(f"select i1 {short}, double {above}, double {floor}")
    signed_zero = _external(body, "llvm.copysign.f64", (number("f64", 0), body.let(f"fdiv double {x}, {y}")))
    nonzero = body.let(f"fcmp une double {quotient}, {number('f64', 0)}")
    return body.let(f"select i1 {nonzero}, double {nearest}, double {signed_zero}")


def _divmod(body: Body, x: str, y: str) -> tuple[str, str]:
    """An almost whole quotient and the remainder with the sign of ``y``, as CPython computes them."""
    zero = number("f64", 0)
    rest = _external(body, "ev_fmod", (x, y))
    whole = body.let(f"fsub double {x}, {rest}")
    quotient = body.let(f"fdiv double {whole}, {y}")
    nonzero = body.let(f"fcmp une double {rest}, {zero}")
    y_negative, rest_negative = (body.let(f"fcmp olt double {v}, {zero}") for v in (y, rest))
    opposite = body.let(f"xor i1 {y_negative}, {rest_negative}")
    moved = body.let(f"and i1 {nonzero}, {opposite}")
    lower = body.let(f"fsub double {quotient}, {number('f64', 1)}")
    quotient = body.let(f"select i1 {moved}, double {lower}, double {quotient}")
    sum_ = body.let(f"fadd double {rest}, {y}")
    shifted = body.let(f"select i1 {moved}, double {sum_}, double {rest}")
    signed_zero = _external(body, "llvm.copysign.f64", (zero, y))
    return quotient, body.let(f"select i1 {nonzero}, double {shifted}, double {signed_zero}")


VALUES: dict[type, Callable[[Emitter, Any], str]] = {
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
