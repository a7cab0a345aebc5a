"""Bytes from outside, validated before anything trusts them.

Small events of fixed width are valid if they have the bits that all such events have in common, which numpy
sees of all of them at once. Any other event is walked, value by value; once there are many, a validator is
compiled for their schema. The walk states the rules in the plainest way; the other two are tested against it.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from typing import NamedTuple, NoReturn

import numpy as np

from evflow.errors import SchemaError
from evflow.events.gather import ByteArray, Offsets
from evflow.events.steady import takes_any_bytes
from evflow.schema import Schema
from evflow.schema.program import NIL, head, steps
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

# Bytes of a schema that are checked before a validator is compiled: by then compiling costs less.
_MUCH = 65_536
# A call counts as so many bytes at least.
_CALL = 512
# A byte that is walked counts as so many.
_WALKED = 4
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
    quick = width is not None and width <= _SMALL
    check_native = schema.made.get("native check") or _compiled(schema, len(data) * (1 if quick else _WALKED))
    if check_native is not None:
        offsets = check_native(data, count)
    elif not (quick and _is_plain(schema, data, rows)):
        offsets = walk(schema, data, count)
    return (len(offsets) - 1, offsets) if width is None else (rows, None)


def compile_check(schema: Schema) -> None:
    """Compiles the validator of a schema of which many events will come, before they do."""
    importlib.import_module("evflow.codgen.validate").validator(schema).hasten()


def _compiled(schema: Schema, size: int) -> Callable[[ByteArray, int | None], Offsets] | None:
    """The compiled validator, once it is worth compiling; it is kept with the schema."""
    schema.made["bytes checked"] = seen = schema.made.get("bytes checked", 0) + max(size, _CALL)
    if seen <= _MUCH:
        return None
    # Found when it is needed: the compiler is heavy, and few processes read foreign bytes.
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
    """True if bytes are one event, and a comparison of bits is enough to see that; else only ``check``
    tells."""
    if schema.width != len(data) or len(data) > _SMALL:
        return False
    number = (schema.made.get("plain bits") or _plain(schema)).number
    return number is not None and int.from_bytes(data) & number[0] == number[1]


def _is_plain(schema: Schema, data: ByteArray, rows: int) -> bool:
    """True if small events of fixed width are valid, and their text is ASCII; else only a walk tells."""
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


def _refuse(schema: Schema, row: int, path: str, at: int, expected: str, found: bytes) -> NoReturn:
    shown = found.hex(" ") if found else "the end of the bytes"
    field = f"field {path}, " if path else ""
    raise SchemaError(
        f"bytes of {schema.name}: event {row}, {field}byte {at}: expected {expected}, found {shown}"
    )


def walk(schema: Schema, data: ByteArray, count: int | None = None) -> Offsets:
    """Validates events of any width by walking over them; see ``check``.

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
