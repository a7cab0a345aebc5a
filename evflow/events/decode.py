"""Events as plain Python: dicts, or the mutable events that a user would make.

Bytes are read from front to back with a stack of what is still to be filled in, so that no depth of an event
is too much for Python's own stack.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import numpy as np

from evflow.events.event import Event, event_class
from evflow.events.numeric import AnyArray
from evflow.schema import Schema, array_dtype
from evflow.schema.types import (
    MAX_DIMENSIONS,
    NUMBERS,
    Array,
    Bytes,
    FieldType,
    ListOf,
    Logical,
    Maybe,
    Number,
    Record,
    Str,
    Text,
)

__all__ = ["array_at", "decode", "decode_event"]

_u32 = struct.Struct(">I").unpack_from
_shapes = [struct.Struct(f"<{n}I").unpack_from for n in range(MAX_DIMENSIONS + 1)]
_unpackers = {name: struct.Struct(f">{number.letter}").unpack_from for name, number in NUMBERS.items()}
_New = Callable[[Schema], tuple[Any, Any]]


def decode(schema: Schema, data: Any, offset: int = 0) -> dict[str, Any]:
    """One event as a dict of plain Python values and (copied) numpy arrays; records within are dicts.

    Args:
        schema: the event's schema.
        data: bytes, or a memoryview of bytes, validated.
        offset: where the event starts.
    """
    quick = _quick(schema)
    fields: dict[str, Any] = (
        _decode(schema, data, offset, _new_dict) if quick is None else quick(data, offset)
    )
    return fields


def decode_event(schema: Schema, data: Any, offset: int = 0) -> Event:
    """One event as a mutable ``Event``; records within are events too."""
    quick = _quick(schema)
    if quick is None:
        deep: Event = _decode(schema, data, offset, _new_event)
        return deep
    event = object.__new__(event_class(schema))
    for name, value in quick(data, offset).items():
        setattr(event, name, value)
    return event


def _quick(schema: Schema) -> Callable[[Any, int], dict[str, Any]] | None:
    """A generated decoder of one event without anything variable or nested: one call of ``struct``."""
    if "quick decoder" not in schema.made:
        schema.made["quick decoder"] = _make_quick(schema)
    made: Callable[[Any, int], dict[str, Any]] | None = schema.made["quick decoder"]
    return made


def _make_quick(schema: Schema) -> Callable[[Any, int], dict[str, Any]] | None:
    form = f">{len(schema.header)}x"
    values: dict[str, str] = {}
    scope: dict[str, Any] = {"NUL": b"\0"}
    for field in schema.wire_fields:
        kind, name = field.type, f"v{field.index}"
        if isinstance(kind, Number):
            form += "B" if kind.kind == "b" else f"x{kind.letter}"
            values[field.name] = f"{name} == 0xC3" if kind.kind == "b" else name
            if isinstance(kind, Logical):
                scope[f"load{field.index}"] = kind.load
                values[field.name] = f"load{field.index}({name})"
        elif isinstance(kind, Str):
            form += f"{kind.head}x{kind.capacity}s"
            values[field.name] = f'str({name}.rstrip(NUL), "utf-8")'
        else:
            return None
    names = ", ".join(f"v{field.index}" for field in schema.wire_fields)
    fields = ", ".join(f"{field.name!r}: {values[field.name]}" for field in schema.fields)
    text = f"def quick(data, at):\n    {names}, = unpack(data, at)\n    return {{{fields}}}\n"
    scope["unpack"] = struct.Struct(form).unpack_from
    exec(compile(text, f"<decoder of {schema.name}>", "exec"), scope)
    made: Callable[[Any, int], dict[str, Any]] = scope["quick"]
    return made


def _new_dict(schema: Schema) -> tuple[Any, dict[str, Any]]:
    fields: dict[str, Any] = dict.fromkeys(f.name for f in schema.fields)
    return fields, fields


class _Fields:
    """The fields of an event as items to be set."""

    def __init__(self, event: Event) -> None:
        self._event = event

    def __setitem__(self, name: str, value: Any) -> None:
        setattr(self._event, name, value)


def _new_event(schema: Schema) -> tuple[Any, _Fields]:
    event = object.__new__(event_class(schema))
    return event, _Fields(event)


def _decode(schema: Schema, data: Any, at: int, new: _New) -> Any:
    result: list[Any] = [None]
    # What is still to be read, the next one last: its type, and where it goes.
    stack: list[tuple[FieldType, Any, Any]] = [(Record(schema.name, {schema.name: schema}), result, 0)]
    while stack:
        kind, target, key = stack.pop()
        if isinstance(kind, Maybe):
            if data[at] == 0xC0:
                target[key] = None
                at += 1
                continue
            kind = kind.element
        if isinstance(kind, Record):
            target[key], fields = new(kind.schema)
            at += len(kind.schema.header)
            stack.extend((f.type, fields, f.name) for f in reversed(kind.schema.wire_fields))
        elif isinstance(kind, ListOf):
            count = _u32(data, at + 1)[0]
            at += 5
            target[key] = items = [None] * count
            stack.extend((kind.element, items, i) for i in range(count - 1, -1, -1))
        else:
            target[key], at = _read(kind, data, at)
    return result[0]


def _read(kind: FieldType, data: Any, at: int) -> tuple[Any, int]:
    """A value that holds no other, and where it ends."""
    if isinstance(kind, Logical):
        stored, end = _read(kind.stored, data, at)
        return kind.load(stored), end
    if isinstance(kind, Number):
        if kind.kind == "b":
            return bool(data[at] == 0xC3), at + 1
        return _unpackers[kind.name](data, at + 1)[0], at + kind.width
    if isinstance(kind, Str):
        end = at + kind.width
        return bytes(data[at + kind.head : end]).rstrip(b"\0").decode(), end
    if isinstance(kind, Bytes):
        start = at + kind.head + 2
        return bytes(data[start : start + (data[start - 2] | data[start - 1] << 8)]), at + kind.width
    size = _u32(data, at + 1)[0]
    if isinstance(kind, Array):
        return array_at(kind, data, at).copy(), at + 6 + size
    content = bytes(data[at + 5 : at + 5 + size])
    return content.decode() if isinstance(kind, Text) else content, at + 5 + size


def array_at(kind: Array, data: Any, at: int) -> AnyArray:
    """The array at an offset as a view of the bytes, which is read-only if they are."""
    n = len(kind.shape)
    shape: Any = _shapes[n](data, at + 7) if None in kind.shape else kind.shape
    return np.ndarray(shape, array_dtype(kind), data, at + 7 + 4 * n)
