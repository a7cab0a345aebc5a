"""Bytes from outside, validated before anything trusts them.

Small events of fixed width are valid if they have the bits that all such events have in common, which numpy
sees of all of them at once. For any other event, and once there are many, a validator is compiled for their
schema. Both are tested against a walk that states the rules in the plainest way (``tests/data/walking.py``).
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from evflow.errors import SchemaError
from evflow.events.gather import ByteArray, Offsets
from evflow.events.steady import takes_any_bytes
from evflow.schema import Schema
from evflow.schema.program import steps
from evflow.schema.types import (
    Array,
    Bytes,
    FieldType,
    Logical,
    Number,
    Str,
)

# Bytes of a schema that are compared before a validator is compiled: by then compiling costs less.
_MUCH = 65_536
# A call counts as so many bytes at least.
_CALL = 512
# Bytes up to which events are checked by their bits.
_SMALL = 1024


def check(schema: Schema, data: ByteArray, count: int | None = None) -> tuple[int, Offsets | None]:
    """Validates events back to back.

    Args:
        schema: their schema.
        data: uint8, 1-D: the events, nothing before or behind them.
        count: how many there are; None for as many as there are.

    Returns:
        How many events there are, and where each starts and the last ends if their width varies.

    Raises:
        SchemaError: names the event, the field, the byte, what was expected and what was found.
    """
    if count is not None and count < 0:
        raise SchemaError(f"bytes of {schema.name}: expected a count of events, found {count}")
    width = schema.width
    if width is not None:
        rows, rest = divmod(len(data), width)
        if rest or (count is not None and count != rows):
            wanted = f"a multiple of {width}" if count is None else f"{count * width}"
            raise SchemaError(
                f"bytes of {schema.name}: expected {wanted} bytes (events of {width}), found {len(data)}"
            )
    check_native = schema.made.get("native check")
    if check_native is None and width is not None and width <= _SMALL:
        schema.made["bytes checked"] = seen = schema.made.get("bytes checked", 0) + max(len(data), _CALL)
        if seen <= _MUCH and _is_plain(schema, data, rows):
            return rows, None
    offsets = (check_native or _compiled(schema))(data, count)
    return (len(offsets) - 1, offsets) if width is None else (rows, None)


def compile_check(schema: Schema) -> None:
    """Compiles the validator of a schema of which many events will come, before they do."""
    importlib.import_module("evflow.codgen.validate").validator(schema).hasten()


def _compiled(schema: Schema) -> Callable[[ByteArray, int | None], Offsets]:
    """The compiled validator; it is kept with the schema."""
    # Found when it is needed: the compiler is heavy.
    validator = importlib.import_module("evflow.codgen.validate").validator(schema)
    found: Callable[[ByteArray, int | None], Offsets] = validator.check
    schema.made["native check"] = found
    return found


class _Plain(NamedTuple):
    """What small events of fixed width have in common, if all their text is ASCII.

    Attributes:
        mask: the bits, one event, uint8.
        bits: what they are there.
        others: where values start that take more than that, and their types.
        number: the mask and the bits as numbers; None where they do not decide alone.
    """

    mask: ByteArray
    bits: ByteArray
    others: list[tuple[int, FieldType]]
    number: tuple[int, int] | None


def is_one(schema: Schema, data: bytes) -> bool:
    """True if bytes are one event, and a comparison of bits is enough to see that; else ``check`` tells."""
    if schema.width != len(data) or len(data) > _SMALL:
        return False
    number = (schema.made.get("plain bits") or _plain(schema)).number
    return number is not None and int.from_bytes(data) & number[0] == number[1]


def _is_plain(schema: Schema, data: ByteArray, rows: int) -> bool:
    """True if small events of fixed width are valid, and their text is ASCII; else the validator tells."""
    plain = schema.made.get("plain bits") or _plain(schema)
    events = data.reshape(rows, len(plain.bits))
    if ((events & plain.mask) != plain.bits).any():
        return False
    return all(_fits(kind, events[:, at:]) for at, kind in plain.others)


def _fits(kind: FieldType, content: ByteArray) -> bool:
    """True if all values of a type are valid; the content of each starts a row."""
    if isinstance(kind, Number):
        low, high = kind.bounds
        values = content[:, : kind.size].copy().view(kind.dtype.newbyteorder(">"))
        return bool(((values >= low) & (values <= high)).all())
    assert isinstance(kind, Bytes)
    lengths = content[:, :2].copy().view("<u2")
    padding = np.arange(kind.capacity) >= lengths
    return bool((lengths <= kind.capacity).all() and not content[:, 2 : 2 + kind.capacity][padding].any())


def _plain(schema: Schema) -> _Plain:
    mask, bits = bytearray(schema.width or 0), bytearray(schema.width or 0)
    others = []
    for at, _, what in steps(schema):
        if isinstance(what, bytes):
            mask[at : at + len(what)], bits[at : at + len(what)] = b"\xff" * len(what), what
        elif isinstance(what, Number) and what.kind == "b":
            mask[at], bits[at] = 0xFE, 0xC2
        elif isinstance(what, Str):
            mask[at : at + what.capacity] = b"\x80" * what.capacity
        elif isinstance(what, Array) and what.element.kind == "b":
            size = (what.width or 0) - what.data_offset
            mask[at : at + size] = b"\xfe" * size
        elif isinstance(what, Bytes) and isinstance(what, Logical):
            mask[at : at + 2], bits[at : at + 2] = b"\xff\xff", what.capacity.to_bytes(2, "little")
        elif not takes_any_bytes(what):
            others.append((at, what))
    number = None if others else (int.from_bytes(mask), int.from_bytes(bits))
    found = _Plain(np.frombuffer(mask, np.uint8), np.frombuffer(bits, np.uint8), others, number)
    schema.made["plain bits"] = found
    return found
