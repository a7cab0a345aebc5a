"""Encoding of a Python object as LLVM IR: from the slots of an event to bytes in memory, in one call.

It reads objects of CPython where they lie, and takes exactly what leaves no doubt: a float where a float
belongs, an int that fits, an array of the very type and shape. All else is left to an encoder that takes
more, and says what is wrong.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

import numpy as np

from evflow.codgen.llvm.empty import empty_value
from evflow.codgen.llvm.ir import Body, Module
from evflow.schema import Schema
from evflow.schema.types import Array, Bytes, FieldType, Number, Record, Str

__all__ = [
    "ARRAY_DATA",
    "ARRAY_DTYPE",
    "ARRAY_FLAGS",
    "ARRAY_NDIM",
    "ARRAY_SHAPE",
    "BYTES_DATA",
    "BYTES_SIZE",
    "FLOAT_VALUE",
    "PYTHON_FUNCTIONS",
    "TYPE",
    "WORDS",
    "Layout",
    "write_appender",
    "write_encoder",
]

PYTHON_FUNCTIONS = {
    "PyBool_FromLong": "ptr @ev_PyBool_FromLong(i64)",
    "PyErr_Clear": "void @ev_PyErr_Clear()",
    "PyLong_AsLongLongAndOverflow": "i64 @ev_PyLong_AsLongLongAndOverflow(ptr, ptr)",
    "PyThread_get_thread_ident": "i64 @ev_PyThread_get_thread_ident()",
    "PyUnicode_AsUTF8AndSize": "ptr @ev_PyUnicode_AsUTF8AndSize(ptr, ptr)",
}
"""The functions of Python that the code calls, and how they are declared."""

WORDS = ("at", "end", "thread", "gate", "rejected")
"""The words behind the array that a function has as its ``self``: the address where the next bytes go, that
where the memory ends, the thread whose bytes it does not take, the address of a function ``i64 (ptr event)``
that says by 0 that an event is not to be kept (0 for none), and how many were not."""

# Bytes from the beginning of an object of CPython or numpy to what it is and holds.
TYPE = 8
FLOAT_VALUE = 16
BYTES_SIZE, BYTES_DATA = 16, 32
ARRAY_DATA, ARRAY_NDIM, ARRAY_SHAPE, ARRAY_DTYPE, ARRAY_FLAGS = 16, 24, 32, 56, 64
_C_CONTIGUOUS = 1


@dataclass(frozen=True)
class Layout:
    """Where an event class has its fields.

    Attributes:
        kind: the class.
        slots: bytes from the beginning of an object to each field, by name.
    """

    kind: type
    slots: Mapping[str, int]


def write_encoder(schema: Schema, layouts: Mapping[Schema, Layout]) -> str:
    """The function that takes an event of a class, and puts its bytes where the words of ``self`` say.

    Args:
        schema: the schema, of fixed width.
        layouts: of its class, and of those of the records in it.

    Returns:
        A module whose entry ``run`` is a ``PyCFunction``; it gives True if it has taken the event, also where
        the gate has rejected it.
    """
    assert schema.width is not None
    writer = _Writer(layouts)
    writer.require_type("%event", layouts[schema].kind)
    writer.begin(str(schema.width))
    writer.record(schema, "%event")
    return writer.finish()


def write_appender() -> str:
    """The function that takes bytes, and puts them where the words of ``self`` say; see ``write_encoder``."""
    writer = _Writer({})
    writer.require_type("%event", bytes)
    size = writer.body.load("i64", "%event", BYTES_SIZE)
    writer.begin(size)
    writer.body.copy(writer.target, writer.body.at("%event", BYTES_DATA), size)
    return writer.finish()


def _pointer(value: object) -> str:
    """An object that lives as long as the code."""
    return f"inttoptr (i64 {id(value)} to ptr)"


class _Writer:
    """Writes a function: each value is checked, then stored behind the one before.

    Attributes:
        body: the function.
        target: where its bytes go.
    """

    def __init__(self, layouts: Mapping[Schema, Layout]) -> None:
        self._layouts = layouts
        module = Module()
        for signature in PYTHON_FUNCTIONS.values():
            module.declare(signature)
        self.body = Body(module, "ptr @run(ptr %self, ptr %event) nounwind")
        self.target = ""
        self._refuse = self.body.label()
        self._constant = b""
        self._at = 0
        # Where functions of Python put a second result.
        self._second = self.body.alloca("i64")

    def begin(self, size: str) -> None:
        """Finds out where the bytes go, and that there is room for them."""
        body = self.body
        self._words = body.load("ptr", "%self", ARRAY_DATA)
        at, end, thread = (body.load("i64", self._words, 8 * i) for i in range(3))
        self._behind = body.let(f"add i64 {at}, {size}")
        self._require(body.let(f"icmp ule i64 {self._behind}, {end}"))
        here = body.call("i64", "@ev_PyThread_get_thread_ident")
        self._require(body.let(f"icmp ne i64 {here}, {thread}"))
        self.target = body.let(f"inttoptr i64 {at} to ptr")

    def finish(self) -> str:
        """Keeps what was written, unless the gate rejects it, and gives the module."""
        body = self.body
        self._flush()
        gate = body.load("ptr", self._words, 8 * WORDS.index("gate"))
        ask, reject, keep, done = (body.label() for _ in range(4))
        body.branch(body.let(f"icmp eq ptr {gate}, null"), keep, ask)
        body.begin(ask)
        passed = body.call("i64", gate, f"ptr {self.target}")
        body.branch(body.let(f"icmp eq i64 {passed}, 0"), reject, keep)
        body.begin(reject)
        rejected = body.load("i64", self._words, 8 * WORDS.index("rejected"))
        more = body.let(f"add i64 {rejected}, 1")
        body.store("i64", more, self._words, 8 * WORDS.index("rejected"))
        body.jump(done)
        body.begin(keep)
        body.store("i64", self._behind, self._words, 8 * WORDS.index("at"))
        body.begin(done)
        body.ret("ptr " + body.call("ptr", "@ev_PyBool_FromLong", "i64 1"))
        body.begin(self._refuse)
        body.ret("ptr " + body.call("ptr", "@ev_PyBool_FromLong", "i64 0"))
        body.finish()
        return body.module.text()

    def record(self, schema: Schema, value: str) -> None:
        """Writes the fields of an event of the right class."""
        self._constant += schema.header
        slots = self._layouts[schema].slots
        for field in schema.wire_fields:
            held = self.body.load("ptr", value, slots[field.name])
            # A field that was deleted, or never set.
            self._require(self.body.let(f"icmp ne ptr {held}, null"))
            self._value(field.type, held)

    def _value(self, kind: FieldType, value: str) -> None:
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

    def _require(self, condition: str) -> None:
        right = self.body.label()
        self.body.branch(condition, right, self._refuse)
        self.body.begin(right)

    def _is_type(self, value: str, kind: type) -> str:
        found = self.body.load("ptr", value, TYPE)
        return self.body.let(f"icmp eq ptr {found}, {_pointer(kind)}")

    def require_type(self, value: str, kind: type) -> None:
        """Goes on only if an object is of this very type."""
        self._require(self._is_type(value, kind))

    def _flush(self) -> None:
        if self._constant:
            data, size = self._constant, len(self._constant)
            self.body.copy(self.body.at(self.target, self._at), self.body.module.constant(data), size)
            self._at += size
            self._constant = b""

    def _place(self, size: int) -> str:
        """Where the next bytes of the event go."""
        self._flush()
        at = self.body.at(self.target, self._at)
        self._at += size
        return at

    def _store(self, bits: int, value: str) -> None:
        self.body.store(f"i{bits}", self.body.swap(bits, value), self._place(bits // 8))

    def _boolean(self, value: str) -> None:
        body = self.body
        true, false = (body.let(f"icmp eq ptr {value}, {_pointer(known)}") for known in (True, False))
        self._require(body.let(f"or i1 {true}, {false}"))
        self._store(8, body.let(f"select i1 {true}, i8 -61, i8 -62"))

    def _number(self, kind: Number, value: str) -> None:
        self._constant += bytes([kind.marker])
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
            least, most = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
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

    def _str(self, kind: Str, value: str) -> None:
        body = self.body
        self.require_type(value, str)
        text = body.call("ptr", "@ev_PyUnicode_AsUTF8AndSize", f"ptr {value}", f"ptr {self._second}")
        right, wrong = body.label(), body.label()
        body.branch(body.let(f"icmp ne ptr {text}, null"), right, wrong)
        body.begin(wrong)
        body.do("call void @ev_PyErr_Clear()")
        body.jump(self._refuse)
        body.begin(right)
        size = body.load("i64", self._second)
        self._require(body.let(f"icmp ule i64 {size}, {kind.capacity}"))
        # Padding is NUL, so a text must not end with one.
        last = body.let(f"call i64 @llvm.usub.sat.i64(i64 {size}, i64 1)")
        body.module.declare("i64 @llvm.usub.sat.i64(i64, i64)")
        ends = body.let(f"icmp ne i8 {body.load('i8', text, last)}, 0")
        self._require(body.let(f"or i1 {ends}, {body.let(f'icmp eq i64 {size}, 0')}"))
        self._constant += empty_value(kind)[: kind.head]
        self._padded(text, size, kind.capacity)

    def _bytes(self, kind: Bytes, value: str) -> None:
        body = self.body
        self.require_type(value, bytes)
        size = body.load("i64", value, BYTES_SIZE)
        self._require(body.let(f"icmp ule i64 {size}, {kind.capacity}"))
        self._constant += empty_value(kind)[: kind.head]
        body.store("i16", body.let(f"trunc i64 {size} to i16"), self._place(2))
        self._padded(body.at(value, BYTES_DATA), size, kind.capacity)

    def _array(self, kind: Array, value: str) -> None:
        body = self.body
        shape = [n or 0 for n in kind.shape]
        self.require_type(value, np.ndarray)
        # Numpy has one object for each number type in this machine's byte order, which is that of the wire.
        dtype = body.load("ptr", value, ARRAY_DTYPE)
        self._require(body.let(f"icmp eq ptr {dtype}, {_pointer(kind.element.dtype)}"))
        self._require(body.let(f"icmp eq i32 {body.load('i32', value, ARRAY_NDIM)}, {len(shape)}"))
        contiguous = body.let(f"and i32 {body.load('i32', value, ARRAY_FLAGS)}, {_C_CONTIGUOUS}")
        self._require(body.let(f"icmp ne i32 {contiguous}, 0"))
        sizes = body.load("ptr", value, ARRAY_SHAPE)
        for axis, n in enumerate(shape):
            self._require(body.let(f"icmp eq i64 {body.load('i64', sizes, 8 * axis)}, {n}"))
        size = kind.item_size * prod(shape)
        image = empty_value(kind)
        self._constant += image[: len(image) - size]
        body.copy(self._place(size), body.load("ptr", value, ARRAY_DATA), size)
