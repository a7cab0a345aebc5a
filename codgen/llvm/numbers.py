"""Numbers in events as LLVM IR: a marker and big-endian bytes, or the raw little-endian element of an
array."""

from __future__ import annotations

from evflow.codgen.llvm.emitter import Emitter, Place
from evflow.codgen.llvm.ir import LLVM_TYPES
from evflow.schema.types import NUMBERS, Number

__all__ = ["bits_of", "is_float", "is_signed", "read_number", "write_number"]


def is_float(kind: str) -> bool:
    """Whether a number type is ``f32`` or ``f64``."""
    return kind[0] == "f"


def is_signed(kind: str) -> bool:
    """Whether an integer type is signed."""
    return kind[0] == "i"


def bits_of(kind: str) -> int:
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
    bits = kind.size * 8
    raw = body.load(f"i{bits}", place.base, place.offset + (not place.element), suffix)
    if not place.element:
        raw = body.swap(bits, raw)
    return body.let(f"bitcast i{bits} {raw} to {LLVM_TYPES[kind.name]}") if kind.kind == "f" else raw


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
