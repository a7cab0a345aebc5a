"""What the functions of ``library.LIBRARY`` compute, and what a checked conversion does, in plain Python."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from evflow.codgen.semantics import FLOATS, Halt, cast, normal
from evflow.codgen.tree import Fault

__all__ = ["FUNCTIONS", "checked_cast"]


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
    "rint": _whole(round),
    "fabs": math.fabs,
    "pow": _pow,
    "fmod": _total(math.fmod),
    "atan2": math.atan2,
    "hypot": _hypot,
    "copysign": _copysign,
    "fmin": _fmin,
    "fmax": _fmax,
    "abs": lambda x: normal(abs(x), "i64"),
    "isnan": math.isnan,
    "isfinite": math.isfinite,
    "starts_with": bytes.startswith,
    "ends_with": bytes.endswith,
    "contains": lambda text, part: part in text,
    "length": len,
}
"""What each function of ``library.LIBRARY`` computes."""
