"""The mathematical functions of the library as LLVM IR.

What an instruction computes exactly is an instruction. The others call the C library under names of our
own, so that the optimiser, which knows what ``pow`` means, does not replace a call by something that rounds
otherwise.
"""

from __future__ import annotations

from evflow.codgen.library import LIBRARY
from evflow.codgen.llvm.emitter import Emitter
from evflow.codgen.llvm.ir import Body, number
from evflow.codgen.tree import Pos

__all__ = ["C_FUNCTIONS", "call_math", "charge_remainder", "floor_divide_float", "modulo_float"]

C_FUNCTIONS = tuple(name for name, function in LIBRARY.items() if function.native == "C")
"""Functions of the C library, which the code calls as ``ev_`` and their name."""


def call_math(body: Body, name: str, args: tuple[str, ...]) -> str:
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


def charge_remainder(e: Emitter, x: str, y: str, pos: Pos) -> None:
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


def modulo_float(e: Emitter, x: str, y: str) -> str:
    """Python's ``x % y`` for y not zero: the remainder with the sign of ``y``."""
    return _divmod(e.body, x, y)[1]


def floor_divide_float(e: Emitter, x: str, y: str) -> str:
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
