"""Events as bytes: one event of any schema, from an object or a mapping.

Two encoders make the same bytes. The *quick* one is generated Python source: it reads the attributes,
makes the cheap checks that leave no doubt, and packs everything of fixed width in one call. Whatever it is
not sure of it hands to the *careful* one (``evflow.events.careful``), which walks the schema, takes
everything that is allowed, and otherwise says exactly what is wrong. So the usual event costs one call of
``struct``, and an error costs what a good message costs.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from evflow.errors import SchemaError
from evflow.events.careful import array_elements, encode_careful, encode_value
from evflow.events.numeric import AnyArray, truth
from evflow.schema import Schema, array_dtype
from evflow.schema.description import held_record
from evflow.schema.program import array_head, head
from evflow.schema.types import (
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
from evflow.schema.values import to_number

LARGE = 64 << 10
"""Bytes from which an event is not copied needlessly."""

Piece = bytes | memoryview

_INLINE_LEAVES = 64
_head5 = struct.Struct(">BI").pack


def encoder(schema: Schema) -> Callable[[object], bytes]:
    """The function that encodes one event of ``schema``.

    It takes an object with the schema's fields as attributes (an ``Event``, a view, anything) or a
    mapping; nested records likewise. It raises ``SchemaError``, naming schema, field, value and what was
    expected.
    """
    quick = schema.made.get("encoder")
    if quick is None:
        quick = schema.made["encoder"] = _make_encoder(schema)
    made: Callable[[object], bytes] = quick
    return made


def encoder_parts(schema: Schema) -> Callable[[object], tuple[Piece, ...]]:
    """Like ``encoder``, but the bytes come in pieces, to be put back to back.

    Among them is memory (C-contiguous) of arrays of the event, where they are as they are encoded; it changes
    when they do.
    """
    quick = schema.made.get("encoder of parts")
    if quick is None:
        quick = schema.made["encoder of parts"] = _make_encoder(schema, in_parts=True)
    made: Callable[[object], tuple[Piece, ...]] = quick
    return made


def encode_dict(schema: Schema, values: Mapping[str, Any]) -> bytes:
    """One event from a mapping of field names to values; a missing field takes its default.

    Raises:
        SchemaError: a field is missing or its value does not fit.
    """
    return encode_careful(schema, values)


def value_encoder(kind: FieldType) -> Callable[[Any], bytes]:
    """The function that encodes one value of a type; it raises ``SchemaError`` like ``encoder``'s."""
    record, _ = held_record(kind)
    if record is not None and record.schema.recursive:
        return partial(encode_value, kind)
    quick = _raw_encoder(kind)

    def encode(value: Any) -> bytes:
        try:
            return quick(value)
        except _DOUBTS:
            return encode_value(kind, value)

    return encode


class _Doubt(Exception):
    """The quick encoder leaves this value to the careful one."""


# numpy before 2.3 warns where a bool of its own is packed as a number, and warnings may be errors.
_DOUBTS = (
    _Doubt, AttributeError, TypeError, ValueError, OverflowError, struct.error, SchemaError,
    DeprecationWarning,
)  # fmt: skip


def _make_encoder(schema: Schema, in_parts: bool = False) -> Callable[[object], Any]:
    careful: Callable[[Schema, Any], Any] = _careful_parts if in_parts else encode_careful
    if schema.recursive:
        return partial(careful, schema)
    source = _Source(Record(schema.name, {schema.name: schema}), in_parts)
    body = "\n        ".join(source.lines)
    text = f"""\
def encode(value):
    try:
        {body}
    except DOUBTS:
        return careful(schema, value)
"""
    source.names.update(DOUBTS=_DOUBTS, careful=careful, schema=schema)
    return source.function(text, schema.name)


def _careful_parts(schema: Schema, value: Any) -> tuple[Piece, ...]:
    return (encode_careful(schema, value),)


def _raw_encoder(kind: FieldType) -> Callable[[Any], bytes]:
    """The quick encoder of a value within an event, which lets its doubts out."""
    source = _Source(kind)
    body = "\n    ".join(source.lines)
    return source.function(f"def encode(value):\n    {body}\n", kind.text)


class _Source:
    """The statements that encode one value of a type, and the names they use.

    Constant bytes and values of fixed width are gathered into calls of ``struct.Struct.pack``; what is
    large or of variable width stands between them, and all is joined, or returned ``in_parts``.
    """

    def __init__(self, kind: FieldType, in_parts: bool = False) -> None:
        self.names: dict[str, Any] = {"NUL": "\0", "utf8": str.encode, "Doubt": _Doubt}
        self.lines: list[str] = []
        self._parts: list[str] = []
        self._constant = b""
        self._format = ">"
        self._arguments: list[str] = []
        self._value(kind, "value")
        self._flush()
        together = f"({', '.join(self._parts)},)"
        if not in_parts:
            alone = len(self._parts) == 1 and not self._parts[0].startswith("*")
            together = self._parts[0] if alone else f'b"".join({together})'
        self.lines.append(f"return {together}")

    def function(self, text: str, name: str) -> Callable[[Any], bytes]:
        """The function ``encode`` of a source text."""
        exec(compile(text, f"<encoder of {name}>", "exec"), self.names)
        made: Callable[[Any], bytes] = self.names["encode"]
        return made

    def _bind(self, prefix: str, value: object = None) -> str:
        name = f"{prefix}{len(self.names)}"
        self.names[name] = value
        return name

    def _value(self, kind: FieldType, value: str) -> None:
        if isinstance(kind, Logical):
            self.lines.append(f"{value} = {self._bind('store', kind.store)}({value})")
        if kind.width is not None and not isinstance(kind, Record):
            self._constant += head(kind)
        if isinstance(kind, Number):
            self._number(kind, value)
        elif isinstance(kind, Str):
            self._str(kind, value)
        elif isinstance(kind, Bytes):
            self.lines.append(
                f"if {value}.__class__ is not bytes or len({value}) > {kind.capacity}: raise Doubt"
            )
            self._pack(f"{kind.capacity + 2}s", f'len({value}).to_bytes(2, "little") + {value}')
        elif isinstance(kind, Array) and kind.static:
            self._part(partial(_elements, kind, array_dtype(kind)), value)
        elif isinstance(kind, Record) and (value == "value" or kind.schema.leaves <= _INLINE_LEAVES):
            self._record(kind.schema, value)
        elif isinstance(kind, Array | Blob | Maybe):
            self._part(_pieces_of(kind), value, several=True)
        else:
            self._part(_bytes_of(kind), value)

    def _record(self, schema: Schema, source: str) -> None:
        self._constant += schema.header
        for field in schema.wire_fields:
            value = self._bind("v")
            self.lines.append(f"{value} = {source}.{field.name}")
            self._value(field.type, value)

    def _number(self, kind: Number, value: str) -> None:
        if kind.kind == "b":
            boolean = self._bind("boolean", _boolean)
            self._pack(
                "1s", f'b"\\xc3" if {value} is True else b"\\xc2" if {value} is False else {boolean}({value})'
            )
            return
        if kind.kind == "f":
            checked = self._bind("float", partial(_float, kind, 2**53 if kind.size == 8 else 2**24))
            self.lines.append(f"if {value}.__class__ is not float: {value} = {checked}({value})")
        self._pack(kind.letter, value)

    def _str(self, kind: Str, value: str) -> None:
        text, check = self._bind("s"), self._bind("check", _check_text)
        self.lines.append(f"{text} = utf8({value})")
        self.lines.append(
            f"if len({text}) > {kind.capacity} or NUL in {value}: {check}({text}, {kind.capacity})"
        )
        self._pack(f"{kind.capacity}s", text)

    def _pack(self, code: str, argument: str) -> None:
        self._spill()
        self._format += code
        self._arguments.append(argument)

    def _part(self, encode: Callable[[Any], Any], value: str, several: bool = False) -> None:
        self._flush()
        self._parts.append(f"{'*' * several}{self._bind('chunk', encode)}({value})")

    def _spill(self) -> None:
        if self._constant:
            self._format += f"{len(self._constant)}s"
            self._arguments.append(repr(self._constant))
            self._constant = b""

    def _flush(self) -> None:
        self._spill()
        if self._arguments:
            pack = self._bind("pack", struct.Struct(self._format).pack)
            self._parts.append(f"{pack}({', '.join(self._arguments)})")
        self._format, self._arguments = ">", []


def _boolean(value: object) -> bytes:
    if isinstance(value, np.bool_):
        return b"\xc3" if value else b"\xc2"
    raise _Doubt


def _float(kind: Number, exact: int, value: Any) -> Any:
    return value if value.__class__ is int and -exact <= value <= exact else to_number(kind, value)


def _check_text(encoded: bytes, capacity: int) -> None:
    if len(encoded) > capacity or encoded.endswith(b"\0"):
        raise _Doubt


def _elements(kind: Array, dtype: np.dtype[Any], value: Any) -> memoryview:
    ready = value.__class__ is np.ndarray and value.dtype == dtype and value.flags.c_contiguous
    if ready and kind.element.kind == "b":
        ready = truth(value) is value
    array: AnyArray = value if ready and kind.takes(value.shape) else array_elements(kind, value)
    return array.data


def _pieces_of(kind: FieldType) -> Callable[[Any], tuple[Piece, ...]]:
    """The function from a value to its bytes in pieces, for what may be large in itself."""
    if isinstance(kind, Array):
        return partial(_array_pieces, kind, array_dtype(kind))
    if isinstance(kind, Blob):
        return _blob_pieces
    if isinstance(kind, Maybe):
        return partial(_maybe_pieces, _pieces_of(kind.element))
    return partial(_one_piece, _bytes_of(kind))


def _bytes_of(kind: FieldType) -> Callable[[Any], bytes]:
    """The function from a value to its bytes, for what does not go into one ``pack``."""
    if isinstance(kind, Text):
        return _encode_text
    if isinstance(kind, ListOf):
        return partial(_encode_list, _bytes_of(kind.element))
    return _raw_encoder(kind)


def _array_pieces(kind: Array, dtype: np.dtype[Any], value: Any) -> tuple[Piece, ...]:
    elements = _elements(kind, dtype, value)
    return array_head(kind, elements.shape or ()), elements


def _blob_pieces(value: bytes) -> tuple[Piece, ...]:
    if value.__class__ is not bytes:
        raise _Doubt
    return _head5(0xC6, len(value)), value


def _maybe_pieces(encode: Callable[[Any], tuple[Piece, ...]], value: Any) -> tuple[Piece, ...]:
    return (b"\xc0",) if value is None else encode(value)


def _one_piece(encode: Callable[[Any], bytes], value: Any) -> tuple[Piece, ...]:
    return (encode(value),)


def _encode_text(value: str) -> bytes:
    encoded = str.encode(value)
    return _head5(0xDB, len(encoded)) + encoded


def _encode_list(encode: Callable[[Any], bytes], values: Sequence[Any]) -> bytes:
    if values.__class__ is not list and values.__class__ is not tuple:
        raise _Doubt
    return _head5(0xDD, len(values)) + b"".join(map(encode, values))
