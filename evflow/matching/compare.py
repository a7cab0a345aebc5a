"""Whether a value satisfies a constraint, compiled: what all engines on the CPU call.

Strings are given by the addresses of their UTF-8 bytes.
"""

from __future__ import annotations

from evflow.matching.native import compiled, u8
from evflow.matching.operators import EQ, GE, GT, LE, LT, NE, NOT_PREFIX, PREFIX, SUFFIX


@compiled
def order(left: int, left_size: int, right: int, right_size: int) -> int:
    """How two strings are ordered, by their bytes: negative, 0 or positive."""
    for i in range(min(left_size, right_size)):
        difference = u8(left + i) - u8(right + i)
        if difference:
            return difference
    return left_size - right_size


@compiled
def _same(left: int, right: int, size: int) -> bool:
    for i in range(size):  # noqa: SIM110
        if u8(left + i) != u8(right + i):
            return False
    return True


@compiled
def _contains(text: int, length: int, part: int, size: int) -> bool:
    begin = u8(part)
    for i in range(length - size + 1):  # noqa: SIM110
        if u8(text + i) == begin and _same(text + i, part, size):
            return True
    return False


@compiled
def number_holds(op: int, value: float, operand: float) -> bool:
    """Whether a number satisfies a comparison with a number."""
    if op == EQ:
        return value == operand
    if op == NE:
        return value != operand
    if op == LT:
        return value < operand
    if op == LE:
        return value <= operand
    return value > operand if op == GT else value >= operand


@compiled
def _pattern_holds(op: int, text: int, length: int, operand: int, size: int) -> bool:
    if size == 0 or size > length:
        return size == 0
    if op == PREFIX:
        return _same(text, operand, size)
    if op == SUFFIX:
        return _same(text + length - size, operand, size)
    return _contains(text, length, operand, size)


@compiled
def text_holds(op: int, text: int, length: int, operand: int, size: int) -> bool:
    """Whether a string satisfies a constraint with a string."""
    if op <= GE:
        return number_holds(op, order(text, length, operand, size), 0.0)
    if op >= NOT_PREFIX:
        return not _pattern_holds(op - NOT_PREFIX + PREFIX, text, length, operand, size)
    return _pattern_holds(op, text, length, operand, size)
