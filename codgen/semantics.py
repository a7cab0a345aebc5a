"""What each operation of the tree does to plain Python values, without a machine.

Values are held in one normal form a type: ``bool`` as bool, the integers as an int within their range,
``f32`` and ``f64`` as a float (an ``f32`` always one that 32 bits can hold), ``str`` as bytes. The
interpreter computes with these functions, and the front ends fold constants with them, so that both mean
the same.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from ctypes import c_float
from typing import Any

import numpy as np

from evflow.codgen.tree import Fault

__all__ = [
    "BITS",
    "FLOATS",
    "FUNCTIONS",
    "INTEGERS",
    "ZERO",
    "Halt",
    "binary",
    "cast",
    "checked_cast",
    "compare",
    "normal",
    "unary",
]

BITS = {"i8": 8, "i16": 16, "i32": 32, "i64": 64, "u8": 8, "u16": 16, "u32": 32, "u64": 64}
"""Width of each integer type."""

INTEGERS = frozenset(BITS)
FLOATS = frozenset({"f32", "f64"})

_LOW = {t: -(1 << (n - 1)) if t[0] == "i" else 0 for t, n in BITS.items()}
_HIGH = {t: (1 << (n - 1 if t[0] == "i" else n)) - 1 for t, n in BITS.items()}

ZERO: dict[str, Any] = {"bool": False, "str": b"", "f32": 0.0, "f64": 0.0, **dict.fromkeys(BITS, 0)}
"""The zero of each value type."""


class Halt(Exception):
    """Ends a function with a fault; never leaves ``evflow.codgen``."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.name)
        self.fault = fault


def _wrap(value: int, kind: str) -> int:
    low, bits = _LOW[kind], BITS[kind]
    return ((value - low) & ((1 << bits) - 1)) + low


def _fit(value: float, kind: str) -> float:
    """Rounds to 32 bits where the type has no more."""
    return c_float(value).value if kind == "f32" else value


def normal(value: Any, kind: str) -> Any:
    """A decoded value (Python or numpy scalar, str or bytes) in the normal form of a value type."""
    if kind == "str":
        return value.encode("utf-8", "surrogateescape") if isinstance(value, str) else bytes(value)
    if kind == "bool":
        return bool(value)
    if kind in FLOATS:
        return _fit(float(value), kind)
    return _wrap(int(value), kind)


def cast(value: Any, kind: str) -> Any:
    """A number as another number type, as a C cast with the undefined cases defined."""
    if kind == "bool":
        return value != 0
    if kind in FLOATS:
        return _fit(_to_float(value, kind), kind)
    if isinstance(value, float):
        if math.isnan(value):
            return 0
        if value <= _LOW[kind]:
            return _LOW[kind]
        return _HIGH[kind] if value >= _HIGH[kind] else int(value)
    return _wrap(int(value), kind)


def _to_float(value: Any, kind: str) -> float:
    if kind == "f32" and isinstance(value, int):
        # Once through f64 would round twice.
        return (
            float(np.uint64(value).astype(np.float32))
            if value >= 0
            else float(np.int64(value).astype(np.float32))
        )
    return float(value)


def checked_cast(value: Any, kind: str) -> Any:
    """``cast``, or a RANGE fault where the value would change.

    Raises:
        Halt: the value does not fit.
    """
    result = cast(value, kind)
    if isinstance(value, float) and kind in FLOATS:
        changed = math.isinf(result) and not math.isinf(value)
    elif isinstance(result, float) and math.isinf(result):
        changed = True
    else:
        # Python compares int with float exactly.
        changed = result != value
    if changed:
        raise Halt(Fault.RANGE)
    return result


def _divide(a: Any, b: Any, kind: str) -> Any:
    if kind in FLOATS:
        if b == 0:
            return math.nan if a == 0 or math.isnan(a) else math.copysign(math.inf, a) * math.copysign(1.0, b)
        return a / b
    if b == 0:
        raise Halt(Fault.DIVISION)
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


def _remainder(a: Any, b: Any, kind: str) -> Any:
    if kind in FLOATS:
        return _fmod(a, b)
    if b == 0:
        raise Halt(Fault.DIVISION)
    remainder = abs(a) % abs(b)
    return -remainder if a < 0 else remainder


def _floor_divide(a: Any, b: Any, kind: str) -> Any:
    if b == 0:
        raise Halt(Fault.DIVISION)
    return a // b


def _modulo(a: Any, b: Any, kind: str) -> Any:
    if b == 0:
        raise Halt(Fault.DIVISION)
    return a % b


_BINARY: dict[str, Callable[[Any, Any, str], Any]] = {
    "add": lambda a, b, kind: a + b,
    "sub": lambda a, b, kind: a - b,
    "mul": lambda a, b, kind: a * b,
    "div": _divide,
    "rem": _remainder,
    "floordiv": _floor_divide,
    "mod": _modulo,
    "and": lambda a, b, kind: a & b,
    "or": lambda a, b, kind: a | b,
    "xor": lambda a, b, kind: a ^ b,
    "shl": lambda a, b, kind: a << (b % BITS[kind]),
    "shr": lambda a, b, kind: a >> (b % BITS[kind]),
}


def binary(op: str, a: Any, b: Any, kind: str) -> Any:
    """Two numbers of type ``kind`` combined, in that type.

    Raises:
        Halt: division by zero.
    """
    result = _BINARY[op](a, b, kind)
    return _fit(result, kind) if kind in FLOATS else _wrap(result, kind)


def unary(op: str, value: Any, kind: str) -> Any:
    """``neg``, ``inv`` or ``not`` of a value of type ``kind``."""
    if op == "not":
        return not value
    if kind in FLOATS:
        return -value
    return _wrap(-value if op == "neg" else ~value, kind)


_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
}


def compare(op: str, a: Any, b: Any) -> bool:
    """``eq ne lt le gt ge`` of two numbers of one type, or of two byte strings."""
    return _COMPARE[op](a, b)


def _total(function: Callable[..., float]) -> Callable[..., float]:
    """The function of ``math`` with C's result where Python raises: NaN outside its domain, else infinity."""

    def called(*values: float) -> float:
        try:
            return function(*values)
        except ValueError:
            return math.nan
        except OverflowError:
            return math.inf

    return called


def _odd(function: Callable[[float], float]) -> Callable[[float], float]:
    """An odd function that overflows towards the sign of its argument."""
    total = _total(function)
    return lambda x: math.copysign(total(x), x)


def _logarithm(function: Callable[[float], float], pole: float) -> Callable[[float], float]:
    total = _total(function)
    return lambda x: -math.inf if x == pole else total(x)


def _whole(function: Callable[[float], int]) -> Callable[[float], float]:
    """A rounding to a whole number that keeps infinities, NaN and the sign of zero."""
    return lambda x: math.copysign(float(function(x)), x) if math.isfinite(x) else x


def _round_half_away(x: float) -> int:
    whole = math.trunc(x)
    return whole + (1 if x > 0 else -1) if abs(x - whole) >= 0.5 else whole


def _pow(x: float, y: float) -> float:
    try:
        return math.pow(x, y)
    except ValueError:
        if x != 0:
            return math.nan
        return math.copysign(math.inf, x) if _odd_whole(y) else math.inf
    except OverflowError:
        return -math.inf if x < 0 and _odd_whole(y) else math.inf


def _odd_whole(y: float) -> bool:
    return math.fmod(y, 2.0) in (1.0, -1.0)


_fmod = _total(math.fmod)


def _copysign(x: float, y: float) -> float:
    # Which sign a NaN has depends on how it was computed; it counts as positive.
    return math.copysign(x, 1.0 if math.isnan(y) else y)


def _fmin(x: float, y: float) -> float:
    return y if y < x or math.isnan(x) else x


def _fmax(x: float, y: float) -> float:
    return y if y > x or math.isnan(x) else x


def _hypot(x: float, y: float) -> float:
    with np.errstate(all="ignore"):
        return float(np.hypot(x, y))


FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{
        name: _total(getattr(math, name))
        for name in "sin cos tan asin acos atan tanh cosh exp exp2 expm1".split()
    },
    "sinh": _odd(math.sinh),
    **{name: _logarithm(getattr(math, name), 0.0) for name in ("log", "log2", "log10")},
    "log1p": _logarithm(math.log1p, -1.0),
    "sqrt": _total(math.sqrt),
    "cbrt": math.cbrt,
    "floor": _whole(math.floor),
    "ceil": _whole(math.ceil),
    "trunc": _whole(math.trunc),
    "round": _whole(_round_half_away),
    "fabs": math.fabs,
    "pow": _pow,
    "fmod": _fmod,
    "atan2": math.atan2,
    "hypot": _hypot,
    "copysign": _copysign,
    "fmin": _fmin,
    "fmax": _fmax,
    "abs": lambda x: _wrap(abs(x), "i64"),
    "isnan": math.isnan,
    "isfinite": math.isfinite,
    "starts_with": bytes.startswith,
    "ends_with": bytes.endswith,
    "contains": lambda text, part: part in text,
    "length": len,
}
"""What each function of ``library.LIBRARY`` computes."""
