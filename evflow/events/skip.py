"""Where a value ends: walking over bytes that are known to be valid."""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import partial
from typing import Any

from evflow.schema.types import NUMBERS, Array, Blob, FieldType, ListOf, Maybe, Text

__all__ = ["Skipper", "skip", "skipper"]

Skipper = Callable[[Any, int], int]
"""A function from a buffer and the offset of a value to the offset behind the value."""

_u32 = struct.Struct(">I").unpack_from
_u16 = struct.Struct(">H").unpack_from

_SIZES = {0xC0: 1, 0xC2: 1, 0xC3: 1, **{number.marker: number.width for number in NUMBERS.values()}}


def skipper(kind: FieldType) -> Skipper:
    """The function that walks over a value of this type."""
    width = kind.width
    if width is not None:
        return partial(_skip_fixed, width)
    if isinstance(kind, (Text, Blob)):
        return _skip_text
    if isinstance(kind, Array):
        return _skip_array
    if isinstance(kind, ListOf) and kind.element.width is not None:
        return partial(_skip_list, kind.element.width)
    if isinstance(kind, Maybe):
        return partial(_skip_maybe, skip if kind.element.width is None else skipper(kind.element))
    return skip


def skip(buffer: Any, at: int) -> int:
    """Walks over one value of any type, by the markers alone."""
    waiting = 1
    while waiting:
        waiting -= 1
        marker = buffer[at]
        if marker in _SIZES:
            at += _SIZES[marker]
        elif marker == 0xD9 or marker == 0xC4:
            at += 2 + buffer[at + 1]
        elif marker == 0xDA or marker == 0xC5:
            at += 3 + _u16(buffer, at + 1)[0]
        elif marker == 0xDB or marker == 0xC6:
            at += 5 + _u32(buffer, at + 1)[0]
        elif marker == 0xC9:
            at += 6 + _u32(buffer, at + 1)[0]
        elif marker == 0xDC:
            waiting += _u16(buffer, at + 1)[0]
            at += 3
        elif marker == 0xDD:
            waiting += _u32(buffer, at + 1)[0]
            at += 5
        else:
            waiting += marker & 0x0F
            at += 1
    return at


def _skip_fixed(width: int, buffer: Any, at: int) -> int:
    return at + width


def _skip_text(buffer: Any, at: int) -> int:
    size: int = _u32(buffer, at + 1)[0]
    return at + 5 + size


def _skip_array(buffer: Any, at: int) -> int:
    size: int = _u32(buffer, at + 1)[0]
    return at + 6 + size


def _skip_list(width: int, buffer: Any, at: int) -> int:
    count: int = _u32(buffer, at + 1)[0]
    return at + 5 + width * count


def _skip_maybe(inner: Skipper, buffer: Any, at: int) -> int:
    return at + 1 if buffer[at] == 0xC0 else inner(buffer, at)
