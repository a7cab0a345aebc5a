"""Decoded events as plain dicts: what an output is before anything is set, and texts as they are stored."""

from __future__ import annotations

from typing import Any

import numpy as np

from evflow.codgen.semantics import Halt
from evflow.codgen.tree import Fault
from evflow.schema import REQUIRED, Schema
from evflow.schema.types import Array, Blob, Bytes, FieldType, ListOf, Maybe, Number, Record, Str

__all__ = ["stored_text", "utf8_text", "zero_event"]


def zero_event(schema: Schema) -> dict[str, Any]:
    """A new event: each field its default, or the zero of its type."""
    return {f.name: _zero(f.type) if f.default is REQUIRED else f.default for f in schema}


def _zero(kind: FieldType) -> Any:
    if isinstance(kind, Number):
        return kind.dtype.type(0).item()
    if isinstance(kind, Array):
        return np.zeros([n or 0 for n in kind.shape], kind.element.dtype)
    if isinstance(kind, ListOf):
        return []
    if isinstance(kind, Maybe):
        return None
    if isinstance(kind, Record):
        return zero_event(kind.schema)
    return b"" if isinstance(kind, (Bytes, Blob)) else ""


def stored_text(value: bytes, kind: FieldType) -> str | bytes:
    """A text as a field of type ``kind`` holds it.

    Raises:
        Halt: it is too long for the field, ends with NUL where that is padding, or is not UTF-8 in a field of
            text.
    """
    if isinstance(kind, Maybe):
        kind = kind.element
    if isinstance(kind, (Str, Bytes)) and len(value) > kind.capacity:
        raise Halt(Fault.TEXT)
    if isinstance(kind, Str) and value.endswith(b"\0"):
        raise Halt(Fault.TEXT)
    return value if isinstance(kind, (Bytes, Blob)) else utf8_text(value)


def utf8_text(value: bytes) -> str:
    """Bytes as text.

    Raises:
        Halt: they are not UTF-8.
    """
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise Halt(Fault.TEXT) from None
