"""What kernels share: whether a value satisfies a constraint, a place an area, a filter an event."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from evflow.matching.compare import number_holds, order, text_holds
from evflow.matching.native import compiled
from evflow.matching.rows import NUMBER, TEXT
from evflow.matching.twophase.compiled import Columns, Int, Rows, Words
from evflow.matching.twophase.predicates import EXISTS, NEVER, TEXTS


class Attribute(NamedTuple):
    """An attribute of an event: its kind, and its number, or where the bytes of its string stand."""

    kind: Int
    number: Any
    start: Int
    length: Int


@compiled
def order_of(chars: NDArray[np.uint8], at: Int, length: Int, words: Words, text: Int) -> Int:
    """Negative, 0 or positive as a string of an event stands before an operand, equals it, or behind it."""
    operand: Int = words.offsets[text]
    size: Int = words.offsets[text + 1] - operand
    return order(chars.ctypes.data + at, length, words.data.ctypes.data + operand, size)


@compiled
def satisfies(
    test: Int, number: Any, text: Int, words: Words, attribute: Attribute, chars: NDArray[np.uint8]
) -> Any:
    """Whether an attribute satisfies a test with an operand."""
    if test == EXISTS:
        return True
    if test < TEXTS:
        return attribute.kind == NUMBER and number_holds(test, attribute.number, number)
    if test == NEVER or attribute.kind != TEXT:
        return False
    operand: Int = words.offsets[text]
    size: Int = words.offsets[text + 1] - operand
    return text_holds(
        test - TEXTS,
        chars.ctypes.data + attribute.start,
        attribute.length,
        words.data.ctypes.data + operand,
        size,
    )


@compiled
def near(held: Columns, filter_: Int, place: NDArray[Any], event: Int) -> Any:
    """Whether an event's place lies in a filter's area, if there is one."""
    if math.isnan(held.centre[filter_, 0]):
        return True
    dx = place[event, 0] - held.centre[filter_, 0]
    dy = place[event, 1] - held.centre[filter_, 1]
    if held.centre.shape[1] == 2:
        return dx * dx + dy * dy <= held.reach[filter_]
    dz = place[event, 2] - held.centre[filter_, 2]
    return dx * dx + dy * dy + dz * dz <= held.reach[filter_]


@compiled
def read_event(events: Rows, event: Int, where: NDArray[np.int64]) -> None:
    """Notes at which row each attribute of an event stands."""
    for i in range(events.start[event], events.start[event + 1]):
        if events.name[i] < len(where):
            where[events.name[i]] = i


@compiled
def unread_event(events: Rows, event: Int, where: NDArray[np.int64]) -> None:
    """Undoes ``read_event``."""
    for i in range(events.start[event], events.start[event + 1]):
        if events.name[i] < len(where):
            where[events.name[i]] = -1


@compiled
def tested(held: Columns, filter_: Int, words: Words, events: Rows, where: NDArray[np.int64]) -> Any:
    """Whether the event that was read satisfies all constraints of a filter, one after the other."""
    for c in range(held.start[filter_], held.start[filter_ + 1]):
        i = where[held.name[c]]
        if i < 0:
            return False
        attribute = Attribute(
            np.int64(events.kind[i]), events.number[i], events.char_start[i], np.int64(events.char_length[i])
        )
        if not satisfies(held.test[c], held.number[c], held.text[c], words, attribute, events.chars):
            return False
    return True
