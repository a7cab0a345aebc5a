"""Hypothesis strategies for schemas and for values that fit them, and what plain msgpack makes of the values.

``schemas()`` draws any schema, ``schemas(fixed=True)`` one whose events have one width,
``schemas(listless=True)`` one without lists and optional fields, ``schemas(logical=False)`` one without
logical types. ``events(schema)`` draws the fields of one
event as a dict. ``plain`` and ``plain_event`` say what the ``msgpack`` package must read, ``wire`` and
``wire_event`` which bytes must be written; they follow ``docs/wire-format.md`` and know nothing of evflow's
encoder. ``tiers`` draws how far machine code is optimised.
"""

from __future__ import annotations

import decimal
import math
import struct
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any
from unittest import mock

import msgpack
import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from evflow import UUID, Decimal, Duration, Enum, Timestamp
from evflow.codgen import native
from evflow.schema import Schema
from evflow.schema.types import (
    BLOB,
    NUMBERS,
    TEXT,
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
    i64,
    u8,
)
from tests.examples import tried

__all__ = [
    "LOGICAL",
    "events",
    "kept",
    "number_values",
    "plain",
    "plain_event",
    "schemas",
    "some",
    "types",
    "unpacked",
    "values",
    "wire",
    "wire_event",
]

some = settings(deadline=None, max_examples=tried(20), suppress_health_check=[HealthCheck.too_slow])
"""As many examples as a quick test run can take."""

_NAMES = st.sampled_from("a b c d e x y z id price size symbol count index items keys größe имя".split())
_KEYS = st.lists(_NAMES, min_size=1, max_size=5, unique=True)


# Strategies are made once: to make one anew for each draw takes longer than to draw.
_NUMBERS = st.sampled_from(sorted(NUMBERS.values(), key=lambda number: number.name))
_CAPACITIES = st.one_of(st.integers(1, 12), st.sampled_from([252, 253, 254, 255, 256, 257]))


LOGICAL: list[FieldType] = [
    Timestamp, Duration, UUID, Enum["buy", "sell", "hold"], Decimal[4], Decimal[10, 2], Decimal[18, 18],
    Decimal[19, 0], Decimal[38, 10],
]  # fmt: skip
_EXACT = decimal.Context(prec=100)


@cache
def _logical_values(kind: FieldType) -> st.SearchStrategy[Any]:
    text = kind.text
    if text in ("timestamp", "duration"):
        of = np.datetime64 if text == "timestamp" else np.timedelta64
        return st.integers(-(2**63) + 1, 2**63 - 1).map(lambda n: of(n, "ns"))
    if text == "uuid":
        return st.uuids()
    if text.startswith("enum"):
        return st.sampled_from(text[5:-1].split(","))
    precision, scale = map(int, text[8:-1].split(","))
    numbers = st.integers(-(10**precision) + 1, 10**precision - 1)
    return numbers.map(lambda n: _EXACT.scaleb(decimal.Decimal(n), -scale))


def kept(kind: FieldType, value: Any) -> tuple[FieldType, Any]:
    """What a value of a logical type is kept as, and of which type that is."""
    text = kind.text
    if text in ("timestamp", "duration"):
        return i64, int(value.astype(np.int64))
    if text == "uuid":
        return Bytes(16), value.bytes
    if text.startswith("enum"):
        return u8, text[5:-1].split(",").index(value)
    precision, scale = map(int, text[8:-1].split(","))
    number = int(_EXACT.scaleb(value, scale))
    return (i64, number) if precision <= 18 else (Bytes(16), number.to_bytes(16, "little", signed=True))


@cache
def _arrays(*, fixed: bool) -> st.SearchStrategy[FieldType]:
    dimension = st.integers(0, 3) if fixed else st.one_of(st.none(), st.integers(0, 3))
    return st.builds(Array, _NUMBERS, st.lists(dimension, min_size=1, max_size=3).map(tuple))


@cache
def _simple(*, fixed: bool, logical: bool) -> st.SearchStrategy[FieldType]:
    fixed_types = st.one_of(
        _NUMBERS,
        st.sampled_from(LOGICAL if logical else [u8]),
        st.builds(Str, _CAPACITIES),
        st.builds(Bytes, _CAPACITIES),
        _arrays(fixed=True),
    )
    return (
        fixed_types if fixed else st.one_of(fixed_types, st.just(TEXT), st.just(BLOB), _arrays(fixed=False))
    )


_KINDS = {
    lists: st.sampled_from(["simple", "simple", "record"] + ["list", "optional"] * lists)
    for lists in (False, True)
}
"""Of types, by whether there are lists."""


@st.composite
def types(
    draw: st.DrawFn,
    fixed: bool = False,
    depth: int = 2,
    names: Any = None,
    listless: bool = False,
    logical: bool = True,
) -> FieldType:
    """Any type of a field; ``names`` gives records names of their own."""
    kind = draw(_KINDS[not (fixed or listless)]) if depth else "simple"
    if kind == "simple":
        return draw(_simple(fixed=fixed, logical=logical))
    names = names if names is not None else iter(f"R{i}" for i in range(1_000_000))
    if kind == "record":
        schema = draw(schemas(fixed=fixed, depth=depth - 1, names=names, listless=listless, logical=logical))
        return Record(schema.name, {schema.name: schema})
    element = draw(types(fixed=False, depth=depth - 1, names=names, logical=logical))
    if kind == "optional":
        return element if isinstance(element, Maybe) else Maybe(element)
    return ListOf(element)


@st.composite
def schemas(
    draw: st.DrawFn,
    fixed: bool = False,
    depth: int = 2,
    names: Any = None,
    listless: bool = False,
    logical: bool = True,
) -> Schema:
    """Any schema; with lists and optional fields, it may hold itself."""
    names = names if names is not None else iter(f"R{i}" for i in range(1_000_000))
    name = next(names)
    fields: dict[str, Any] = {
        key: draw(types(fixed=fixed, depth=depth, names=names, listless=listless, logical=logical))
        for key in draw(_KEYS)
    }
    if not fixed and not listless and draw(st.integers(0, 5)) == 0:
        fields["self_"] = draw(st.sampled_from([f"optional(record({name}))", f"list(record({name}))"]))
    return Schema(name, fields)


@cache
def number_values(number: Number) -> st.SearchStrategy[Any]:
    """Values that a number type holds exactly."""
    if number.kind == "b":
        return st.booleans()
    if number.kind == "f":
        return st.floats(width=8 * number.size)  # type: ignore[arg-type]
    low = 0 if number.kind == "u" else -(2 ** (8 * number.size - 1))
    return st.integers(low, low + 2 ** (8 * number.size) - 1)


@cache
def _texts(capacity: int | None = None) -> st.SearchStrategy[str]:
    text = st.text(max_size=12).filter(lambda s: not _has_surrogates(s))
    if capacity is None:
        return text
    return text.map(lambda s: s.encode()[:capacity].decode(errors="ignore").rstrip("\0"))


def _has_surrogates(text: str) -> bool:
    return any("\ud800" <= c <= "\udfff" for c in text)


@cache
def _array_values(kind: Array) -> st.SearchStrategy[Any]:
    def of(shape: tuple[int, ...]) -> st.SearchStrategy[Any]:
        size = int(np.prod(shape))
        elements = st.lists(number_values(kind.element), min_size=size, max_size=size)
        return elements.map(lambda items: np.array(items, kind.element.dtype).reshape(shape))

    return st.tuples(*(st.integers(0, 3) if n is None else st.just(n) for n in kind.shape)).flatmap(of)


def values(kind: FieldType, depth: int = 3) -> st.SearchStrategy[Any]:
    """Values of a type, records as dicts, arrays as numpy arrays."""
    if isinstance(kind, Logical):
        return _logical_values(kind)
    if isinstance(kind, Number):
        return number_values(kind)
    if isinstance(kind, Str):
        return _texts(kind.capacity)
    if isinstance(kind, Text):
        return _texts()
    if isinstance(kind, (Bytes, Blob)):
        return st.binary(max_size=min(kind.capacity, 12) if isinstance(kind, Bytes) else 12)
    if isinstance(kind, Array):
        return _array_values(kind)
    if isinstance(kind, Maybe):
        return st.none() if depth <= 0 else st.one_of(st.none(), values(kind.element, depth))
    if isinstance(kind, ListOf):
        return st.just([]) if depth <= 0 else st.lists(values(kind.element, depth - 1), max_size=3)
    assert isinstance(kind, Record)
    return events(kind.schema, depth - 1)


def events(schema: Schema, depth: int = 3) -> st.SearchStrategy[dict[str, Any]]:
    """The fields of one event."""
    return st.fixed_dictionaries({f.name: st.deferred(_late(f.type, depth)) for f in schema.fields})


def _late(kind: FieldType, depth: int) -> Callable[[], st.SearchStrategy[Any]]:
    return lambda: values(kind, depth)


def plain_event(schema: Schema, event: Mapping[str, Any]) -> list[Any]:
    """What msgpack must read from an event: the fields of fixed width, then the others."""
    order = [f for f in schema.fields if _is_fixed(f.type)] + [
        f for f in schema.fields if not _is_fixed(f.type)
    ]
    return [plain(f.type, event[f.name]) for f in order]


def plain(kind: FieldType, value: Any) -> Any:
    """What msgpack must read from a value; floats as their bits, so that NaN equals NaN."""
    if isinstance(kind, Logical):
        return plain(*kept(kind, value))
    if isinstance(kind, Number) and kind.kind == "f":
        return ("float", np.float64(np.array(value, kind.dtype)).tobytes() if value == value else "nan")
    if isinstance(kind, Str):
        return value.encode().ljust(kind.capacity, b"\0").decode()
    if isinstance(kind, Bytes):
        return struct.pack("<H", len(value)) + value.ljust(kind.capacity, b"\0")
    if isinstance(kind, Array):
        array = np.asarray(value, kind.element.dtype.newbyteorder("<"))
        head = struct.pack(f"<B{array.ndim}I", array.ndim, *array.shape)
        return msgpack.ExtType(kind.element.code, head + array.tobytes())
    if isinstance(kind, Maybe):
        return None if value is None else plain(kind.element, value)
    if isinstance(kind, ListOf):
        return [plain(kind.element, item) for item in value]
    if isinstance(kind, Record):
        return plain_event(kind.schema, value)
    return value


def wire_event(schema: Schema, event: Mapping[str, Any]) -> bytes:
    """The bytes of an event."""
    n = len(schema.fields)
    header = bytes([0x90 + n]) if n < 16 else struct.pack(">BH", 0xDC, n)
    order = [f for f in schema.fields if _is_fixed(f.type)] + [
        f for f in schema.fields if not _is_fixed(f.type)
    ]
    return header + b"".join(wire(f.type, event[f.name]) for f in order)


_FORMS = {
    "i8": (0xD0, "b"), "i16": (0xD1, "h"), "i32": (0xD2, "i"), "i64": (0xD3, "q"), "u8": (0xCC, "B"),
    "u16": (0xCD, "H"), "u32": (0xCE, "I"), "u64": (0xCF, "Q"), "f32": (0xCA, "f"), "f64": (0xCB, "d"),
}  # fmt: skip


def wire(kind: FieldType, value: Any) -> bytes:
    """The bytes of a value."""
    if isinstance(kind, Logical):
        return wire(*kept(kind, value))
    if isinstance(kind, Number) and kind.name == "bool":
        return b"\xc3" if value else b"\xc2"
    if isinstance(kind, Number):
        marker, form = _FORMS[kind.name]
        return struct.pack(">B" + form, marker, value)
    if isinstance(kind, Str):
        n = kind.capacity
        head = struct.pack(">BB", 0xD9, n) if n < 256 else struct.pack(">BH", 0xDA, n)
        return head + value.encode().ljust(n, b"\0")
    if isinstance(kind, Bytes):
        n = kind.capacity + 2
        head = struct.pack(">BB", 0xC4, n) if n < 256 else struct.pack(">BH", 0xC5, n)
        return head + struct.pack("<H", len(value)) + value.ljust(kind.capacity, b"\0")
    if isinstance(kind, Text):
        return struct.pack(">BI", 0xDB, len(value.encode())) + value.encode()
    if isinstance(kind, Blob):
        return struct.pack(">BI", 0xC6, len(value)) + value
    if isinstance(kind, Array):
        data: bytes = plain(kind, value).data
        return struct.pack(">BIB", 0xC9, len(data), kind.element.code) + data
    if isinstance(kind, Maybe):
        return b"\xc0" if value is None else wire(kind.element, value)
    if isinstance(kind, ListOf):
        return struct.pack(">BI", 0xDD, len(value)) + b"".join(wire(kind.element, item) for item in value)
    assert isinstance(kind, Record)
    return wire_event(kind.schema, value)


def unpacked(data: bytes) -> list[Any]:
    """What msgpack reads from bytes: every object, floats as in ``plain``."""
    unpacker = msgpack.Unpacker(strict_map_key=False, max_buffer_size=len(data) + 1)
    unpacker.feed(data)
    return [_with_bits(item) for item in unpacker]


def _with_bits(item: Any) -> Any:
    if isinstance(item, float):
        return ("float", np.float64(item).tobytes() if item == item else "nan")
    return [_with_bits(inner) for inner in item] if isinstance(item, list) else item


def _is_fixed(kind: FieldType) -> bool:
    if isinstance(kind, Array):
        return None not in kind.shape
    if isinstance(kind, Record):
        # A record that holds itself does so through a list or an optional field.
        return all(_is_fixed(f.type) for f in kind.schema.fields)
    return isinstance(kind, (Number, Str, Bytes))


def _tier(drawn: int) -> Any:
    return mock.patch.multiple(native, HOT=math.inf if drawn else -1, _MASS=0)


tiers = st.integers(0, 3).map(_tier)
"""A context in which machine code is optimised at once, or not at all."""
