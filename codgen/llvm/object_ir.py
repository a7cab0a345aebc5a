"""Encoding of a Python object as LLVM IR: from the slots of an event to bytes in memory, in one call.

It reads objects of CPython where they lie, and takes exactly what leaves no doubt: a float where a float
belongs, an int that fits, an array of the very type and shape. All else is left to an encoder that takes
more, and says what is wrong. Where the width of an event varies, its size is found out before anything is
written.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod

import numpy as np

from evflow.codgen.llvm.append_ir import (
    ARRAY_DATA,
    ARRAY_DTYPE,
    ARRAY_FLAGS,
    ARRAY_NDIM,
    ARRAY_SHAPE,
    BYTES_DATA,
    BYTES_SIZE,
    FLOAT_VALUE,
    Append,
    pointer,
)
from evflow.schema import Schema
from evflow.schema.program import head, varying
from evflow.schema.types import Array, Blob, Bytes, FieldType, Logical, Number, Record, Str, Text

__all__ = ["Layout", "can_encode", "write_encoder"]

_C_CONTIGUOUS = 1

_MOST = (1 << 32) - 1
"""What msgpack and the wire can say of a length."""


@dataclass(frozen=True)
class Layout:
    """Where an event class has its fields.

    Attributes:
        kind: the class.
        slots: bytes from the beginning of an object to each field, by name.
    """

    kind: type
    slots: Mapping[str, int]


def can_encode(schema: Schema) -> bool:
    """Whether ``write_encoder`` takes a schema: it has no lists, nothing that may be missing, and no values
    that are kept as something else."""
    if schema.recursive:
        return False
    return all(
        can_encode(kind.schema)
        if isinstance(kind, Record)
        else (kind.width is not None or isinstance(kind, Array | Blob | Text))
        and not (isinstance(kind, Logical) and not kind.plain)
        for kind in (field.type for field in schema.fields)
    )


def write_encoder(schema: Schema, layouts: Mapping[Schema, Layout]) -> str:
    """The function that takes an event of a class, and puts its bytes where the words of ``self`` say.

    Args:
        schema: the schema, one that ``can_encode`` takes.
        layouts: of its class, and of those of the records in it.

    Returns:
        A module whose entry ``run`` is a ``PyCFunction``; it gives True if it has taken the event, also where
        the gate has rejected it.
    """
    writer = _Writer(layouts)
    writer.require_type("%event", layouts[schema].kind)
    writer.begin(writer.size_of(schema, "%event"), schema.width)
    writer.record(schema, "%event")
    return writer.finish()


class _Writer(Append):
    """Writes the function that takes objects: each value is checked, then stored behind the one before."""

    def __init__(self, layouts: Mapping[Schema, Layout]) -> None:
        super().__init__()
        self._layouts = layouts
        # What writes the fields of varying width, whose sizes were found out, in the order of the wire.
        self._sized: deque[Callable[[], None]] = deque()
        # Where functions of Python put a second result.
        self._second = self.body.alloca("i64")

    def size_of(self, schema: Schema, value: str) -> str:
        """Bytes of an event of the right class, whose fields of varying width are checked."""
        size = str(schema.fixed_width)
        for field in varying(schema):
            more = self._size(field.type, self._field(schema, field.name, value))
            size = self.body.let(f"add i64 {size}, {more}")
        return size

    def _size(self, kind: FieldType, value: str) -> str:
        if isinstance(kind, Text):
            return self._sized_bytes(0xDB, value, *self._utf8(value))
        if isinstance(kind, Blob):
            self.require_type(value, bytes)
            data, size = self.body.at(value, BYTES_DATA), self.body.load("i64", value, BYTES_SIZE)
            return self._sized_bytes(0xC6, value, data, size)
        if isinstance(kind, Array):
            return self._sized_array(kind, value)
        assert isinstance(kind, Record)
        record = kind.schema
        self.require_type(value, self._layouts[record].kind)
        self._sized.append(lambda: self.record(record, value))
        return self.size_of(record, value)

    def record(self, schema: Schema, value: str) -> None:
        """Writes the fields of an event of the right class; ``size_of`` was called before."""
        self._constant += schema.header
        for field in schema.wire_fields:
            if field.offset is None:
                self._sized.popleft()()
            else:
                self._value(field.type, self._field(schema, field.name, value))

    def _field(self, schema: Schema, name: str, value: str) -> str:
        held = self.body.load("ptr", value, self._layouts[schema].slots[name])
        # A field that was deleted, or never set.
        self._require(self.body.let(f"icmp ne ptr {held}, null"))
        return held

    def _value(self, kind: FieldType, value: str) -> None:
        if not isinstance(kind, Record):
            self._constant += head(kind)
        if isinstance(kind, Number):
            self._boolean(value) if kind.kind == "b" else self._number(kind, value)
        elif isinstance(kind, Str):
            self._str(kind, value)
        elif isinstance(kind, Bytes):
            self._bytes(kind, value)
        elif isinstance(kind, Array):
            self._array(kind, value)
        else:
            assert isinstance(kind, Record)
            self.require_type(value, self._layouts[kind.schema].kind)
            self.record(kind.schema, value)

    def _sized_bytes(self, marker: int, value: str, source: str, size: str) -> str:
        self._require(self.body.let(f"icmp ule i64 {size}, {_MOST}"))

        def write() -> None:
            self._constant += bytes([marker])
            self._store(32, self.body.let(f"trunc i64 {size} to i32"))
            self._copy(value, source, size)

        self._sized.append(write)
        return self.body.let(f"add i64 {size}, 5")

    def _store(self, bits: int, value: str) -> None:
        self.body.store(f"i{bits}", self.body.swap(bits, value), self._place(bits // 8))

    def _boolean(self, value: str) -> None:
        body = self.body
        true, false = (body.let(f"icmp eq ptr {value}, {pointer(known)}") for known in (True, False))
        self._require(body.let(f"or i1 {true}, {false}"))
        self._store(8, body.let(f"select i1 {true}, i8 -61, i8 -62"))

    def _number(self, kind: Number, value: str) -> None:
        bits = 8 * kind.size
        if kind.kind == "f":
            number = self._float(value, 2**53 if kind.size == 8 else 2**24)
            if kind.size == 4:
                number = self._narrowed(number)
            self._store(
                bits, self.body.let(f"bitcast {'double' if bits == 64 else 'float'} {number} to i{bits}")
            )
            return
        number = self._integer(value)
        self._within(number, kind)
        self._store(bits, number if bits == 64 else self.body.let(f"trunc i64 {number} to i{bits}"))

    def _within(self, number: str, kind: Number) -> None:
        bits = 8 * kind.size
        if kind.kind == "u":
            # One that needs all 64 bits does not come out of Python as an i64, and is refused before.
            least, most = 0, min(2**bits, 2**63) - 1
        else:
            least, most = kind.bounds
        self._require(self.body.let(f"icmp sge i64 {number}, {least}"))
        self._require(self.body.let(f"icmp sle i64 {number}, {most}"))

    def _integer(self, value: str) -> str:
        """An int as i64."""
        body = self.body
        self.require_type(value, int)
        number = body.call("i64", "@ev_PyLong_AsLongLongAndOverflow", f"ptr {value}", f"ptr {self._second}")
        self._require(body.let(f"icmp eq i32 {body.load('i32', self._second)}, 0"))
        return number

    def _float(self, value: str, exact: int) -> str:
        """A float, or an int that a float of the field's size has exactly, as double."""
        body = self.body
        is_float, is_other, got = body.label(), body.label(), body.label()
        body.branch(self._is_type(value, float), is_float, is_other)
        body.begin(is_other)
        number = self._integer(value)
        self._require(body.let(f"icmp sge i64 {number}, {-exact}"))
        self._require(body.let(f"icmp sle i64 {number}, {exact}"))
        converted, whole = body.let(f"sitofp i64 {number} to double"), body.block
        body.jump(got)
        body.begin(is_float)
        read = body.load("double", value, FLOAT_VALUE)
        body.begin(got)
        return body.phi("double", [(converted, whole), (read, is_float)])

    def _narrowed(self, number: str) -> str:
        """A double as float, unless it is finite and would not stay so."""
        body = self.body
        narrow = body.let(f"fptrunc double {number} to float")
        body.module.declare("double @llvm.fabs.f64(double)")
        size = body.let(f"call double @llvm.fabs.f64(double {number})")
        back = body.let(f"call double @llvm.fabs.f64(double {body.let(f'fpext float {narrow} to double')})")
        infinite = "0x7FF0000000000000"
        lost = body.let(f"fcmp oeq double {back}, {infinite}")
        was = body.let(f"fcmp one double {size}, {infinite}")
        self._require(body.let(f"xor i1 {body.let(f'and i1 {lost}, {was}')}, true"))
        return narrow

    def _padded(self, source: str, size: str, capacity: int) -> None:
        """Bytes that may be fewer than there is room for, with zeros behind."""
        target = self._place(capacity)
        self.body.zero(target, capacity)
        self.body.copy(target, source, size)

    def _utf8(self, value: str) -> tuple[str, str]:
        """Where the UTF-8 of a str is, and how long."""
        body = self.body
        self.require_type(value, str)
        text = body.call("ptr", "@ev_PyUnicode_AsUTF8AndSize", f"ptr {value}", f"ptr {self._second}")
        right, wrong = body.label(), body.label()
        body.branch(body.let(f"icmp ne ptr {text}, null"), right, wrong)
        body.begin(wrong)
        body.do("call void @ev_PyErr_Clear()")
        body.jump(self._refuse)
        body.begin(right)
        return text, body.load("i64", self._second)

    def _str(self, kind: Str, value: str) -> None:
        body = self.body
        text, size = self._utf8(value)
        self._require(body.let(f"icmp ule i64 {size}, {kind.capacity}"))
        # Padding is NUL, so a text must not end with one.
        last = body.let(f"call i64 @llvm.usub.sat.i64(i64 {size}, i64 1)")
        body.module.declare("i64 @llvm.usub.sat.i64(i64, i64)")
        ends = body.let(f"icmp ne i8 {body.load('i8', text, last)}, 0")
        self._require(body.let(f"or i1 {ends}, {body.let(f'icmp eq i64 {size}, 0')}"))
        self._padded(text, size, kind.capacity)

    def _bytes(self, kind: Bytes, value: str) -> None:
        body = self.body
        self.require_type(value, bytes)
        size = body.load("i64", value, BYTES_SIZE)
        self._require(body.let(f"icmp ule i64 {size}, {kind.capacity}"))
        body.store("i16", body.let(f"trunc i64 {size} to i16"), self._place(2))
        self._padded(body.at(value, BYTES_DATA), size, kind.capacity)

    def _array(self, kind: Array, value: str) -> None:
        body = self.body
        shape = [n or 0 for n in kind.shape]
        self._require_shape(kind, value)
        size = kind.item_size * prod(shape)
        self._copies.append((self._place(size), body.load("ptr", value, ARRAY_DATA), str(size), value))

    def _sized_array(self, kind: Array, value: str) -> str:
        body = self.body
        shape = self._require_shape(kind, value)
        size = str(kind.item_size)
        for n in shape:
            size = body.let(f"mul i64 {size}, {n}")
        said = body.let(f"add i64 {size}, {1 + 4 * len(shape)}")
        self._require(body.let(f"icmp ule i64 {said}, {_MOST}"))

        def write() -> None:
            self._constant += b"\xc9"
            self._store(32, body.let(f"trunc i64 {said} to i32"))
            self._constant += bytes([kind.element.code, len(shape)])
            for n in shape:
                body.store("i32", body.let(f"trunc i64 {n} to i32"), self._place(4))
            self._copy(value, body.load("ptr", value, ARRAY_DATA), size)

        self._sized.append(write)
        return body.let(f"add i64 {said}, {Array.HEAD}")

    def _require_shape(self, kind: Array, value: str) -> list[str]:
        """Goes on only with an array of the very type, whose elements lie in order; gives its shape."""
        body = self.body
        self.require_type(value, np.ndarray)
        # Numpy has one object for each number type in this machine's byte order, which is that of the wire.
        dtype = body.load("ptr", value, ARRAY_DTYPE)
        self._require(body.let(f"icmp eq ptr {dtype}, {pointer(kind.element.dtype)}"))
        self._require(body.let(f"icmp eq i32 {body.load('i32', value, ARRAY_NDIM)}, {len(kind.shape)}"))
        contiguous = body.let(f"and i32 {body.load('i32', value, ARRAY_FLAGS)}, {_C_CONTIGUOUS}")
        self._require(body.let(f"icmp ne i32 {contiguous}, 0"))
        sizes = body.load("ptr", value, ARRAY_SHAPE)
        shape = [body.load("i64", sizes, 8 * axis) for axis in range(len(kind.shape))]
        for found, n in zip(shape, kind.shape, strict=True):
            known = f"icmp ule i64 {found}, {_MOST}" if n is None else f"icmp eq i64 {found}, {n}"
            self._require(body.let(known))
        return shape
