"""Events in memory that another process can write to at any time.

A check of such bytes proves nothing about what a reader finds there later. So everything is copied before it
is checked, but for the elements of large numeric arrays and the content of large blobs: any bytes are valid
there, and how many there are stands before them, in bytes that are copied.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from evflow.events.gather import ByteArray, frozen
from evflow.schema import Schema
from evflow.schema.program import LENGTH, NIL, steps, varying
from evflow.schema.types import Array, Blob, FieldType, Maybe, Number, Text

Keep = Callable[[int, int], None]
"""Makes the bytes from one offset to another those of this process alone, with the values that they have."""

_LARGE = 128 << 10
"""Bytes of an event from which its arrays stay where they are; fewer are copied sooner."""


class _Parts(NamedTuple):
    """What of an event is kept.

    Attributes:
        spans: of the fixed part, from offset to offset.
        rest: the types behind the fixed part, in order.
        numbers: whether events are numbers and arrays of them, all of known shape: no value says where
            another stands.
    """

    spans: tuple[tuple[int, int], ...]
    rest: tuple[FieldType, ...]
    numbers: bool


def steadied(schema: Schema, data: ByteArray, count: int, keep: Keep) -> ByteArray:
    """The same events, in bytes that are safe to check, and to read once they are checked.

    Args:
        schema: the schema that they claim to have.
        data: the events, unchecked, not writeable; another process may change them at any time.
        count: how many there are said to be.
        keep: called with offsets in ``data``; from then on nobody else changes these bytes.

    Returns:
        A copy; or ``data`` itself, where it is mostly arrays, with everything kept but their elements, and
        where all of it is numbers.
    """
    parts = schema.made.get("parts to keep") or _parts(schema)
    if parts.numbers:
        return data
    if len(data) < count * _LARGE or count < 1:
        return frozen(data.copy())
    at = 0
    for _ in range(count):
        for start, stop in parts.spans:
            keep(at + start, at + stop)
        at += schema.fixed_width
        for kind in parts.rest:
            at = _kept(kind, data, at, keep)
        if at > len(data):
            break
    return data


def _parts(schema: Schema) -> _Parts:
    contents = [(start, what) for start, _, what in steps(schema) if isinstance(what, FieldType)]
    spans, at = [], 0
    for start, kind in contents:
        if isinstance(kind, Array) and _is_content(kind) and (kind.width or 0) >= _LARGE:
            spans.append((at, start))
            at = start + (kind.width or 0) - kind.data_offset
    spans.append((at, schema.fixed_width))
    rest = tuple(field.type for field in varying(schema))
    numbers = not rest and all(takes_any_bytes(kind) for _, kind in contents)
    made: _Parts = schema.made.setdefault("parts to keep", _Parts(tuple(spans), rest, numbers))
    return made


def takes_any_bytes(kind: FieldType) -> bool:
    """True if any bytes are valid behind the marker or header of a value."""
    return _is_content(kind) or (isinstance(kind, Number) and not kind.narrowed)


def _is_content(kind: FieldType) -> bool:
    """Whether any bytes are valid as the elements of an array; numpy relies on booleans being 0 or 1."""
    return isinstance(kind, Array) and kind.element.kind != "b"


def _kept(kind: FieldType, data: ByteArray, at: int, keep: Keep) -> int:
    """Keeps what has to be kept of a value; returns where it ends, as far as it says so."""
    if at >= len(data):
        return at
    if isinstance(kind, Maybe):
        keep(at, at + 1)
        if data[at] == NIL:
            return at + 1
        kind = kind.element
    if isinstance(kind, Array | Text | Blob):
        head = kind.data_offset if isinstance(kind, Array) else LENGTH
        keep(at, at + head)
        if at + LENGTH > len(data):
            return at + LENGTH
        end: int = (
            at
            + (Array.HEAD if isinstance(kind, Array) else LENGTH)
            + int.from_bytes(data[at + 1 : at + LENGTH].tobytes())
        )
        if isinstance(kind, Text) or (isinstance(kind, Array) and not _is_content(kind)):
            keep(at, end)
        return end
    # Only a walk over all of a list or record tells where it ends.
    end = len(data) if kind.width is None else at + kind.width
    keep(at, end)
    return end
