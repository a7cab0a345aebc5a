"""The wire format of each type: the one place that says which bytes a value is made of.

A value starts with bytes that its type alone determines (``head``): the marker, and for a type of fixed width
also the length or the shape. Its content follows. A schema of fixed width is a flat *program* (``steps``):
constant bytes and contents by turns, each at its offset, records within records included. Encoders, decoders
and validators go over a program, whatever they read from and write to. A type of variable width is one of
``Text``, ``Blob``, ``Array``, ``ListOf``, ``Maybe`` and ``Record``, with the markers that are named here.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from evflow.schema.types import (
    MAX_DIMENSIONS,
    NUMBERS,
    Array,
    Blob,
    Bytes,
    FieldType,
    ListOf,
    Maybe,
    Number,
    Record,
    Str,
    Text,
)

if TYPE_CHECKING:
    from evflow.schema.schema import Field, Schema

NIL = 0xC0
"""The marker of an optional without a value."""

LENGTH = 5
"""Bytes of a marker and of the big-endian 32-bit length behind it."""

_MARKERS: dict[type[FieldType], int] = {Text: 0xDB, Blob: 0xC6, ListOf: 0xDD, Array: 0xC9}
_HALF = 0x100
_head5 = struct.Struct(">BI").pack
_array_start = struct.Struct(">BIBB").pack
_dimensions = [struct.Struct(f"<{n}I").pack for n in range(MAX_DIMENSIONS + 1)]
_numbers = {name: struct.Struct(f">B{number.letter}").pack for name, number in NUMBERS.items()}


class Step(NamedTuple):
    """A part of the fixed part of an event.

    Attributes:
        at: bytes from the start of the event.
        path: the field's dotted name; of a header the name of the record's field, "" for the event itself.
        what: constant bytes, or the type of a value whose head precedes it.
    """

    at: int
    path: str
    what: bytes | FieldType


def steps(schema: Schema, at: int = 0, prefix: str = "") -> Iterator[Step]:
    """The program of a schema's fixed part, in order: the header, then each field's head and content.

    Args:
        schema: the schema.
        at: where the event starts.
        prefix: the path of the record, with a dot behind it; "" for an event.
    """
    yield Step(at, prefix.removesuffix("."), schema.header)
    for field in schema.wire_fields:
        if field.offset is None:
            continue
        start, path, kind = at + field.offset, prefix + field.name, field.type
        if isinstance(kind, Record):
            yield from steps(kind.schema, start, f"{path}.")
        else:
            constant = head(kind)
            if constant:
                yield Step(start, path, constant)
            yield Step(start + len(constant), path, kind)


def array_dtype(kind: Array) -> np.dtype[Any]:
    """The numpy type of an array's elements as they stand on the wire."""
    return _ELEMENTS[kind.element.name]


_ELEMENTS = {name: number.dtype.newbyteorder("<") for name, number in NUMBERS.items()}


def cell(kind: FieldType) -> tuple[int, np.dtype[Any]]:
    """How numpy sees a value of fixed width: bytes from its start, and the type of what is there.

    A bool is its marker. Bytes are padded; their length (``<u2``) stands in the two bytes before.
    """
    if isinstance(kind, Record):
        return 0, kind.schema.dtype
    at = len(head(kind))
    if isinstance(kind, Number):
        return at, np.dtype("u1") if kind.kind == "b" else kind.dtype.newbyteorder(">")
    if isinstance(kind, Array):
        return at, np.dtype((array_dtype(kind), kind.shape))
    assert isinstance(kind, Str | Bytes)
    return at + 2 * isinstance(kind, Bytes), np.dtype(f"S{kind.capacity}")


def varying(schema: Schema) -> list[Field]:
    """The fields of variable width, in the order of the wire."""
    return [field for field in schema.wire_fields if field.offset is None]


def head(kind: FieldType) -> bytes:
    """The bytes that every value of a type starts with; none for ``bool``, whose marker is its value, and for
    an optional."""
    if isinstance(kind, Number):
        return b"" if kind.kind == "b" else bytes([kind.marker])
    if isinstance(kind, Str):
        return _sized(0xD9, kind.capacity)
    if isinstance(kind, Bytes):
        return _sized(0xC4, kind.capacity + 2)
    if isinstance(kind, Array) and kind.static:
        return array_head(kind, tuple(n or 0 for n in kind.shape))
    if isinstance(kind, Record):
        return kind.schema.header
    return b"" if isinstance(kind, Maybe) else bytes([_MARKERS[type(kind)]])


def _sized(marker: int, size: int) -> bytes:
    return bytes([marker, size]) if size < _HALF else bytes([marker + 1, *size.to_bytes(2, "big")])


def array_head(kind: Array, shape: tuple[int, ...]) -> bytes:
    """Everything before the elements of an array.

    Args:
        kind: its type.
        shape: its dimensions; the elements must have less than 4 GiB.
    """
    size = 1 + 4 * len(shape) + kind.item_size * prod(shape)
    return _array_start(0xC9, size, kind.element.code, len(shape)) + _dimensions[len(shape)](*shape)


def length_head(kind: Text | Blob | ListOf, length: int) -> bytes:
    """The marker and the length before a text, a blob (bytes) or a list (elements)."""
    return _head5(_MARKERS[type(kind)], length)


def packed(kind: FieldType, content: Any) -> bytes:
    """A number, a text or bytes on the wire.

    Args:
        kind: the type.
        content: a number, or bytes (of a text its UTF-8), which fit the type.
    """
    if isinstance(kind, Number):
        if kind.kind == "b":
            return b"\xc3" if content else b"\xc2"
        return _numbers[kind.name](kind.marker, content)
    if isinstance(kind, Text | Blob):
        return length_head(kind, len(content)) + bytes(content)
    assert isinstance(kind, Str | Bytes)
    size = len(content).to_bytes(2, "little") if isinstance(kind, Bytes) else b""
    return head(kind) + size + bytes(content).ljust(kind.capacity, b"\0")


def image(kind: FieldType, default: Any = None, *, defaults: bool = False) -> bytes:
    """The bytes of a value that is zero, empty or nil.

    Args:
        kind: the type.
        default: what to use instead, as it is stored; None for nothing.
        defaults: True to use the defaults of the fields of records.
    """
    if isinstance(kind, Maybe):
        return bytes([NIL]) if default is None else image(kind.element, default)
    if isinstance(kind, ListOf):
        return length_head(kind, 0)
    if isinstance(kind, Array):
        shape = tuple(n or 0 for n in kind.shape)
        return array_head(kind, shape) + bytes(kind.item_size * prod(shape))
    if isinstance(kind, Number):
        return packed(kind, 0 if default is None else default)
    if isinstance(kind, Record):
        return fixed_image(kind.schema, defaults) + _images(varying(kind.schema), defaults)
    return packed(kind, default.encode() if isinstance(default, str) else default or b"")


def fixed_image(schema: Schema, defaults: bool = False) -> bytes:
    """The fixed part of an event whose values are all zero or empty, or the defaults of its fields."""
    return schema.header + _images([f for f in schema.wire_fields if f.offset is not None], defaults)


def default_image(field: Field) -> bytes:
    """The bytes of a field's default, or of zero where it has none."""
    return image(field.type, None if field.required else field.stored_default, defaults=True)


def _images(fields: list[Field], defaults: bool) -> bytes:
    return b"".join(default_image(field) if defaults else image(field.type) for field in fields)
