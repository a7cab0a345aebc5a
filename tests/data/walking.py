"""The rules for bytes from outside, stated in the plainest way: a walk over events, value by value."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NoReturn

import numpy as np

from evflow.errors import SchemaError
from evflow.events.gather import ByteArray, Offsets
from evflow.schema import Schema
from evflow.schema.program import NIL, head
from evflow.schema.types import (
    MAX_DEPTH,
    Array,
    Blob,
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


def _refuse(schema: Schema, row: int, path: str, at: int, expected: str, found: bytes) -> NoReturn:
    shown = found.hex(" ") if found else "the end of the bytes"
    field = f"field {path}, " if path else ""
    raise SchemaError(
        f"bytes of {schema.name}: event {row}, {field}byte {at}: expected {expected}, found {shown}"
    )


def walk(schema: Schema, data: ByteArray, count: int | None = None) -> Offsets:
    """Validates events of any width by walking over them; see ``evflow.events.wirecheck.check``.

    Returns:
        Where each event starts and the last ends, int64.
    """
    content = data.tobytes()
    offsets = [0]
    while offsets[-1] < len(content) if count is None else len(offsets) <= count:
        offsets.append(_Walk(schema, content, len(offsets) - 1, offsets[-1]).end())
    if offsets[-1] != len(content):
        found = content[offsets[-1] : offsets[-1] + 8]
        _refuse(
            schema, len(offsets) - 1, "", offsets[-1], f"the end of the bytes after {count} events", found
        )
    return np.array(offsets, np.int64)


_Step = tuple[FieldType, str]


class _Walk:
    """The walk over one event."""

    def __init__(self, schema: Schema, content: bytes, row: int, start: int) -> None:
        self._schema = schema
        self._content = content
        self._row = row
        self._at = start
        # What surrounds the value, outermost first: the values still to come there, and how many records.
        event: _Step = Record(schema.name, {schema.name: schema}), ""
        self._around: list[tuple[Iterator[_Step], int]] = [(iter((event,)), 0)]
        self._path: list[str] = []

    def end(self) -> int:
        """Where the event ends."""
        while self._around:
            steps, depth = self._around[-1]
            step = next(steps, None)
            del self._path[len(self._around) - 1 :]
            if step is None:
                self._around.pop()
            else:
                self._path.append(step[1])
                self._value(step[0], depth)
        return self._at

    def _value(self, kind: FieldType, depth: int) -> None:
        if isinstance(kind, Maybe):
            if self._peek(1) == bytes([NIL]):
                self._at += 1
                return
            kind = kind.element
        if isinstance(kind, Record) and depth >= MAX_DEPTH:
            self._refuse(f"at most {MAX_DEPTH} records within each other")
        self._constant(head(kind))
        if isinstance(kind, Record):
            self._around.append((((f.type, f".{f.name}") for f in kind.schema.wire_fields), depth + 1))
        elif isinstance(kind, ListOf):
            count = self._u32()
            if count > len(self._content) - self._at:
                self._at -= 4
                self._refuse("no more elements than there are bytes")
            element = kind.element
            self._around.append((((element, f"[{i}]") for i in range(count)), depth))
        elif isinstance(kind, Number):
            self._number(kind)
        elif isinstance(kind, Str):
            self._text(kind.capacity)
        elif isinstance(kind, Text):
            self._text(self._u32())
        elif isinstance(kind, Blob):
            self._take(self._u32())
        elif isinstance(kind, Bytes):
            self._padded(kind)
        elif isinstance(kind, Array) and kind.static:
            self._elements(kind, (kind.width or 0) - kind.data_offset)
        elif isinstance(kind, Array):
            self._array(kind)

    def _number(self, kind: Number) -> None:
        if kind.kind == "b":
            if self._peek(1) not in (b"\xc2", b"\xc3"):
                self._refuse("0xc2 or 0xc3 (bool)")
            self._at += 1
            return
        value = int.from_bytes(self._take(kind.size), "big", signed=kind.kind == "i")
        if kind.narrowed and not kind.bounds[0] <= value <= kind.bounds[1]:
            self._at -= kind.size
            self._refuse(f"a value of {kind.text}")

    def _padded(self, kind: Bytes) -> None:
        length = int.from_bytes(self._take(2), "little")
        if length > kind.capacity or (isinstance(kind, Logical) and length != kind.capacity):
            self._at -= 2
            most = "" if isinstance(kind, Logical) else "at most "
            self._refuse(f"a length of {most}{kind.capacity}")
        if self._take(kind.capacity)[length:].strip(b"\0"):
            self._at -= kind.capacity
            self._refuse("zeros behind the value")

    def _text(self, size: int) -> None:
        start = self._at
        try:
            self._take(size).decode()
        except UnicodeDecodeError:
            self._at = start
            self._refuse("text in UTF-8")

    def _array(self, kind: Array) -> None:
        size = self._u32()
        self._constant(bytes([kind.element.code, len(kind.shape)]))
        elements, room = 1, kind.item_size
        for n in kind.shape:
            dimension = int.from_bytes(self._take(4), "little")
            if n is not None and dimension != n:
                self._at -= 4
                self._refuse(f"a dimension of {n}")
            elements *= dimension
            # Of an empty array too: numpy has none of a shape whose other dimensions memory cannot hold.
            room *= dimension or 1
            if room >= 1 << 63:
                self._refuse("dimensions that memory can hold")
        if size != 1 + 4 * len(kind.shape) + elements * kind.item_size:
            self._refuse(f"as many elements as the length of {size} bytes says, not {elements}")
        self._elements(kind, elements * kind.item_size)

    def _elements(self, kind: Array, size: int) -> None:
        content = self._take(size)
        if kind.element.kind == "b" and content.strip(b"\0\1"):
            self._at -= size
            self._refuse("booleans of 0 or 1")

    def _peek(self, n: int) -> bytes:
        return self._content[self._at : self._at + n]

    def _take(self, n: int) -> bytes:
        taken = self._peek(n)
        if len(taken) < n:
            self._refuse(f"{n} bytes, {n - len(taken)} more than there are")
        self._at += n
        return taken

    def _u32(self) -> int:
        return int.from_bytes(self._take(4), "big")

    def _constant(self, wanted: bytes) -> None:
        if self._peek(len(wanted)) != wanted:
            self._refuse(f"0x{wanted.hex()}")
        self._at += len(wanted)

    def _refuse(self, expected: str) -> NoReturn:
        path = "".join(self._path).removeprefix(".")
        _refuse(self._schema, self._row, path, self._at, expected, self._peek(8))
