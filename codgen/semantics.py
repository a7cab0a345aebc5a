"""What each operation of the tree does to plain Python values, without a machine.

Values are held in one normal form a type: ``bool`` as bool, the integers as an int within their range,
``f32`` and ``f64`` as a float (an ``f32`` always one that 32 bits can hold), ``str`` as bytes. The front
ends fold constants with these functions, and the interpreter of the tests computes with them, so that both
mean the same.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from ctypes import c_float
from typing import Any

import numpy as np

from evflow.codgen.tree import Fault

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
        return math.nan if b == 0 or math.isinf(a) else math.fmod(a, b)
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
