"""Encoding of a Python object as LLVM IR: from the slots of an event to bytes in memory, in one call.

It reads objects of CPython where they lie, and takes exactly what leaves no doubt: a float where a float
belongs, an int that fits, an array of the very type and shape. All else is left to an encoder that takes
more, and says what is wrong. Where the width of an event varies, its size is found out before anything is
written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

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
    LIST_ITEMS,
    LIST_SIZE,
    Append,
    Checks,
    pointer,
)
from evflow.codgen.llvm.writer_ir import Piece, Source, Writer
from evflow.schema import Field, Schema
from evflow.schema.types import Array, Blob, FieldType, ListOf, Logical, Number, Record, Str, Text

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
    append = Append()
    source = _Event(append, layouts)
    append.require_type("%event", layouts[schema].kind)
    size = str(schema.width)
    if schema.width is None:
        size = Writer(append.body, source, measuring=True).record(schema, (schema, "%event"), "0")
    append.begin(size, schema.width)
    Writer(append.body, source).record(schema, (schema, "%event"), append.target)
    return append.finish()


class Objects(Source):
    """Objects of Python, of which a value is its address.

    What is found out while a value is measured holds when it is written.

    Args:
        checks: the function that they are read in.
        layouts: where the classes of the records among them have their fields.
    """

    def __init__(self, checks: Checks, layouts: Mapping[Schema, Layout]) -> None:
        self.body = checks.body
        self._checks = checks
        self._require = checks.require
        self._layouts = layouts
        # What is known of values: their fields, their UTF-8, their shapes.
        self._known: dict[tuple[str, str], Any] = {}
        # Where functions of Python put a second result.
        self._second = self.body.alloca("i64")

    def _once(self, what: str, value: str, find: Callable[[], Any]) -> Any:
        if (what, value) not in self._known:
            self._known[what, value] = find()
        return self._known[what, value]

    def require(self, condition: str, value: str, reason: str) -> None:
        self._require(condition)

    def field(self, holder: tuple[Schema, str], field: Field) -> str:
        schema, value = holder
        return str(self._once(f".{field.name}", value, lambda: self._field(schema, field.name, value)))

    def holder(self, kind: Record, value: str) -> tuple[Schema, str]:
        schema = kind.schema
        self._once("type", value, lambda: self._checks.require_type(value, self._layouts[schema].kind))
        return schema, value

    def number(self, kind: Number, value: str) -> str:
        if kind.kind == "b":
            return self._boolean(value)
        bits = 8 * kind.size
        if kind.kind != "f":
            number = self._integer(value)
            self._within(number, kind)
            return number if bits == 64 else self.body.let(f"trunc i64 {number} to i{bits}")
        number = self._float(value, 2**53 if kind.size == 8 else 2**24)
        if kind.size == 8:
            return self.body.let(f"bitcast double {number} to i64")
        return self.body.let(f"bitcast float {self._narrowed(number)} to i32")

    def piece(self, kind: FieldType, value: str) -> Piece:
        pointer, size = self._once("piece", value, lambda: self._piece(kind, value))
        return pointer, size, size

    def _piece(self, kind: FieldType, value: str) -> tuple[str, str]:
        if isinstance(kind, Str | Text):
            pointer, size = self._utf8(value)
        else:
            self._checks.require_type(value, bytes)
            pointer, size = self.body.at(value, BYTES_DATA), self.body.load("i64", value, BYTES_SIZE)
        self._require(self.body.let(f"icmp ule i64 {size}, {_MOST}"))
        return pointer, size

    def copy_short(self, piece: Piece, target: str, capacity: int) -> None:
        self.body.copy(target, piece[0], piece[1])

    def copy(self, value: str, piece: Piece, target: str) -> None:
        self.body.copy(target, piece[0], piece[1])

    def present(self, value: str) -> str:
        return self.body.let(f"icmp ne ptr {value}, {pointer(None)}")

    def items(self, kind: ListOf, value: str) -> tuple[str, Callable[[str], str]]:
        """The elements of a list of this very type, which nobody changes while no other thread runs."""
        self._checks.require_type(value, list)
        count, first = self.body.load("i64", value, LIST_SIZE), self.body.load("ptr", value, LIST_ITEMS)
        self._require(self.body.let(f"icmp ule i64 {count}, {_MOST}"))
        return count, lambda i: self.body.load("ptr", first, self.body.let(f"shl i64 {i}, 3"))

    def shape(self, kind: Array, value: str) -> list[str]:
        shape: list[str] = self._once("shape", value, lambda: self._require_shape(kind, value))
        return shape

    def size(self, kind: Array, value: str) -> str:
        return str(self._once("size", value, lambda: self._size(kind, value)))

    def _size(self, kind: Array, value: str) -> str:
        size = str(kind.item_size)
        for n in self.shape(kind, value):
            size = self.body.let(f"mul i64 {size}, {n}")
        said = self.body.let(f"add i64 {size}, {1 + 4 * len(kind.shape)}")
        self._require(self.body.let(f"icmp ule i64 {said}, {_MOST}"))
        return size

    def copy_elements(self, kind: Array, value: str, size: str, target: str) -> None:
        self.body.copy(target, self.body.load("ptr", value, ARRAY_DATA), size)

    def _field(self, schema: Schema, name: str, value: str) -> str:
        held = self.body.load("ptr", value, self._layouts[schema].slots[name])
        # A field that was deleted, or never set.
        self._require(self.body.let(f"icmp ne ptr {held}, null"))
        return held

    def _boolean(self, value: str) -> str:
        body = self.body
        true, false = (body.let(f"icmp eq ptr {value}, {pointer(known)}") for known in (True, False))
        self._require(body.let(f"or i1 {true}, {false}"))
        return body.let(f"zext i1 {true} to i8")

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
        self._checks.require_type(value, int)
        number = body.call("i64", "@ev_PyLong_AsLongLongAndOverflow", f"ptr {value}", f"ptr {self._second}")
        self._require(body.let(f"icmp eq i32 {body.load('i32', self._second)}, 0"))
        return number

    def _float(self, value: str, exact: int) -> str:
        """A float, or an int that a float of the field's size has exactly, as double."""
        body = self.body
        is_float, is_other, got = body.label(), body.label(), body.label()
        body.branch(self._checks.is_type(value, float), is_float, is_other)
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

    def _utf8(self, value: str) -> tuple[str, str]:
        """Where the UTF-8 of a str is, and how long."""
        body = self.body
        self._checks.require_type(value, str)
        text = body.call("ptr", "@ev_PyUnicode_AsUTF8AndSize", f"ptr {value}", f"ptr {self._second}")
        right, wrong = body.label(), body.label()
        body.branch(body.let(f"icmp ne ptr {text}, null"), right, wrong)
        body.begin(wrong)
        body.do("call void @ev_PyErr_Clear()")
        body.jump(self._checks.refuse)
        body.begin(right)
        return text, body.load("i64", self._second)

    def _require_shape(self, kind: Array, value: str) -> list[str]:
        """Goes on only with an array of the very type, whose elements lie in order; gives its shape."""
        body = self.body
        self._checks.require_type(value, np.ndarray)
        # Numpy's own object for the number type in this machine's byte order, which is that of the wire.
        # Arrays on loan have another one: they are not to be copied.
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
        if kind.element.kind == "b":
            self._require_booleans(value, shape)
        return shape

    def _require_booleans(self, value: str, shape: list[str]) -> None:
        """Goes on only where each element is 0 or 1; a true one of a foreign buffer may be any byte."""
        body, count = self.body, "1"
        for n in shape:
            count = body.let(f"mul i64 {count}, {n}")
        data = body.load("ptr", value, ARRAY_DATA)
        body.loop(count, lambda at: self._require(body.let(f"icmp ule i8 {body.load('i8', data, at)}, 1")))


class _Event(Objects):
    """An event that is appended: what may be long is copied last, when nothing more can be wrong."""

    def __init__(self, append: Append, layouts: Mapping[Schema, Layout]) -> None:
        super().__init__(append, layouts)
        self._copies = append.copies

    def copy(self, value: str, piece: Piece, target: str) -> None:
        self._copies.append((target, piece[0], piece[1], value))

    def copy_elements(self, kind: Array, value: str, size: str, target: str) -> None:
        self._copies.append((target, self.body.load("ptr", value, ARRAY_DATA), size, value))
