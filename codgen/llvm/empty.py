"""The wire form of a record whose fields all have their defaults, else zero.

It is what an output of a stone function starts as: text is empty, a list has no element, an optional is
nil, a varying dimension of an array is 0, and a nested record is made of such fields itself.
"""

from __future__ import annotations

import struct
from typing import Any

from evflow.schema import REQUIRED, Schema
from evflow.schema.types import Array, Blob, Bytes, FieldType, ListOf, Maybe, Number, Record, Str, Text

__all__ = ["empty_record", "empty_value", "fixed_image"]

_PACK = {"i": "bhiq", "u": "BHIQ", "f": "  fd"}


def fixed_image(schema: Schema) -> bytes:
    """The header and the fields of fixed width."""
    fixed = (f for f in schema.wire_fields if f.offset is not None)
    return schema.header + b"".join(empty_value(f.type, f.stored_default) for f in fixed)


def empty_record(schema: Schema) -> bytes:
    """A whole record."""
    variable = (f for f in schema.wire_fields if f.offset is None)
    return fixed_image(schema) + b"".join(empty_value(f.type, f.stored_default) for f in variable)


def empty_value(kind: FieldType, default: Any = REQUIRED) -> bytes:
    """A field with its default, or zero where it has none."""
    value = None if default is REQUIRED else default
    if isinstance(kind, Number):
        return _number(kind, 0 if value is None else value)
    if isinstance(kind, Str):
        return _head(0xD9, kind.capacity) + (value or "").encode().ljust(kind.capacity, b"\0")
    if isinstance(kind, Bytes):
        blob = value or b""
        return (
            _head(0xC4, kind.capacity + 2) + struct.pack("<H", len(blob)) + blob.ljust(kind.capacity, b"\0")
        )
    if isinstance(kind, Text):
        text = (value or "").encode()
        return b"\xdb" + struct.pack(">I", len(text)) + text
    if isinstance(kind, Blob):
        return b"\xc6" + struct.pack(">I", len(value or b"")) + (value or b"")
    if isinstance(kind, Array):
        return _array(kind)
    if isinstance(kind, ListOf):
        return b"\xdd\0\0\0\0"
    if isinstance(kind, Maybe):
        return b"\xc0" if value is None else empty_value(kind.element, value)
    assert isinstance(kind, Record)
    return empty_record(kind.schema)


def _number(kind: Number, value: Any) -> bytes:
    if kind.kind == "b":
        return bytes([kind.marker + bool(value)])
    code = _PACK[kind.kind][kind.size.bit_length() - 1]
    return bytes([kind.marker]) + struct.pack(f">{code}", float(value) if kind.kind == "f" else value)


def _head(marker: int, size: int) -> bytes:
    return bytes([marker, size]) if size <= 0xFF else bytes([marker + 1]) + size.to_bytes(2, "big")


def _array(kind: Array) -> bytes:
    shape = [0 if n is None else n for n in kind.shape]
    size = kind.item_size
    for n in shape:
        size *= n
    data = bytes([len(shape)]) + struct.pack(f"<{len(shape)}I", *shape) + bytes(size)
    return b"\xc9" + struct.pack(">I", len(data)) + bytes([kind.element.code]) + data
