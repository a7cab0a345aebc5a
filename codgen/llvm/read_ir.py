"""One field of encoded events to Python objects as LLVM IR: a function that Python calls with an object
array, and that puts an object for each event there.

The events are valid, so nothing can be wrong with them. An object is put where it belongs before what is in
it is made, so that nothing is lost where memory runs out.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from evflow.codgen.llvm.append_ir import ARRAY_DATA, BYTES_DATA, LIST_ITEMS, PYTHON_FUNCTIONS, pointer
from evflow.codgen.llvm.ir import Body, Module
from evflow.codgen.llvm.layout import count32, end
from evflow.schema import Schema
from evflow.schema.program import LENGTH, NIL, head
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

WORDS = ("data", "starts", "width", "first", "last")
"""What the function is told, int64 in ``bytes``: the address of the events, that of where each starts (int64;
0 where they have one width), their width, and for which events to put objects."""


class Numpy(NamedTuple):
    """Functions of numpy by their addresses, and the type of arrays.

    Attributes:
        new: ``PyArray_NewFromDescr``.
        set_base: ``PyArray_SetBaseObject``.
        kind: ``numpy.ndarray``.
    """

    new: int
    set_base: int
    kind: type


def can_read(kind: FieldType) -> bool:
    """Whether values of a type, those within it too, are objects that the function makes."""
    if isinstance(kind, ListOf | Maybe):
        return can_read(kind.element)
    return not isinstance(kind, Record | Logical)


def write_reader(schema: Schema, path: list[str], kind: FieldType, numpy: Numpy) -> str:
    """The function that is given a list: words (see ``WORDS``), an object array, and what holds the bytes.

    Args:
        schema: the events' schema.
        path: the names that lead to the field, through records.
        kind: what to read, one that ``can_read`` takes: the field's type, or what its values are kept as.
        numpy: how arrays are made.

    Returns:
        A module whose entry ``run`` is a ``PyCFunction``; it gives None.
    """
    module = Module()
    for signature in PYTHON_FUNCTIONS.values():
        module.declare(signature)
    body = Body(module, "ptr @run(ptr %self, ptr %given) nounwind")
    given = body.load("ptr", "%given", LIST_ITEMS)
    words = body.at(body.load("ptr", given), BYTES_DATA)
    target = body.load("ptr", body.load("ptr", given, 8), ARRAY_DATA)
    word = {name: body.load("i64", words, 8 * at) for at, name in enumerate(WORDS)}
    data, starts = (body.let(f"inttoptr i64 {word[name]} to ptr") for name in ("data", "starts"))
    even = body.let(f"icmp eq i64 {word['starts']}, 0")
    reader = _Reader(body, numpy, body.load("ptr", given, 16))

    def read(row: str) -> None:
        scaled = body.let(f"shl i64 {row}, 3")
        start = body.choose(
            even,
            ("i64",),
            lambda: [body.let(f"mul i64 {row}, {word['width']}")],
            lambda: [body.load("i64", starts, scaled)],
        )[0]
        slot = body.at(target, scaled)
        before = body.load("ptr", slot)
        reader.put(kind, _find(body, schema, path, body.at(data, start)), slot)
        with body.when(body.let(f"icmp ne ptr {before}, null")):
            body.do(f"call void @ev_Py_DecRef(ptr {before})")

    body.loop(word["last"], read, word["first"])
    body.do(f"call void @ev_Py_IncRef(ptr {pointer(None)})")
    body.ret(f"ptr {pointer(None)}")
    body.begin(reader.failed)
    body.ret("ptr null")
    body.finish()
    return module.text()


def write_copier() -> str:
    """The function that is given words, int64 in ``bytes``: the address of events, that of where each starts,
    bytes from there to what is copied, how many these are, how many events, and where the copies go, back to
    back.

    Returns:
        A module whose entry ``run`` is a ``PyCFunction``; it gives None.
    """
    module = Module()
    module.declare(PYTHON_FUNCTIONS["Py_IncRef"])
    body = Body(module, "ptr @run(ptr %self, ptr %given) nounwind")
    words = body.at("%given", BYTES_DATA)
    data, starts, at, size, rows, out = (body.load("i64", words, 8 * number) for number in range(6))
    first = body.let(f"inttoptr i64 {body.let(f'add i64 {data}, {at}')} to ptr")
    starts, out = (body.let(f"inttoptr i64 {word} to ptr") for word in (starts, out))

    def copy(n: int | str, row: str) -> None:
        source = body.at(first, body.load("i64", starts, body.let(f"shl i64 {row}, 3")))
        body.copy(body.at(out, body.let(f"mul i64 {row}, {n}")), source, n)

    few = [(n, body.label()) for n in (1, 2, 4, 8)]
    many, done = body.label(), body.label()
    body.switch(size, many, few)
    ways: list[tuple[int | str, str]] = [*few, (size, many)]
    for n, label in ways:
        body.begin(label)
        body.loop(rows, partial(copy, n))
        body.jump(done)
    body.begin(done)
    body.do(f"call void @ev_Py_IncRef(ptr {pointer(None)})")
    body.ret(f"ptr {pointer(None)}")
    body.finish()
    return module.text()


def _find(body: Body, schema: Schema, path: list[str], start: str) -> str:
    """Where a field is."""
    at = start
    for name in path:
        field = schema[name]
        if field.offset is not None:
            at = body.at(at, field.offset)
        else:
            at = body.at(at, schema.fixed_width)
            for before in schema.wire_fields[: field.wire_index]:
                if before.offset is None:
                    at = end(body, at, before.type)
        if isinstance(field.type, Record):
            schema = field.type.schema
    return at


class _Reader:
    """Writes what makes objects.

    Args:
        body: the function.
        numpy: how arrays are made.
        holder: what holds the bytes of arrays.

    Attributes:
        failed: the label to jump to where Python has raised an exception.
    """

    def __init__(self, body: Body, numpy: Numpy, holder: str) -> None:
        self.failed = body.label()
        self._body = body
        self._numpy = numpy
        self._holder = holder

    def put(self, kind: FieldType, at: str, slot: str) -> None:
        """Makes an object of the value at an address, and puts it into a slot."""
        body = self._body
        if isinstance(kind, Maybe):
            nil, some, done = body.label(), body.label(), body.label()
            body.branch(body.let(f"icmp eq i8 {body.load('i8', at)}, {NIL - 256}"), nil, some)
            body.begin(nil)
            self._put_known(pointer(None), slot)
            body.jump(done)
            body.begin(some)
            self.put(kind.element, at, slot)
            body.begin(done)
        elif isinstance(kind, ListOf):
            self._list(kind, at, slot)
        elif isinstance(kind, Number) and kind.kind == "b":
            true = body.let(f"icmp eq i8 {body.load('i8', at)}, {kind.marker + 1 - 256}")
            self._put_known(body.let(f"select i1 {true}, ptr {pointer(True)}, ptr {pointer(False)}"), slot)
        elif isinstance(kind, Array):
            self._array(kind, at, slot)
        else:
            self._put_new(self._single(kind, at), slot)

    def _put_known(self, value: str, slot: str) -> None:
        self._body.do(f"call void @ev_Py_IncRef(ptr {value})")
        self._body.store("ptr", value, slot)

    def _put_new(self, value: str, slot: str) -> None:
        body, made = self._body, self._body.label()
        body.branch(body.let(f"icmp ne ptr {value}, null"), made, self.failed)
        body.begin(made)
        body.store("ptr", value, slot)

    def _single(self, kind: FieldType, at: str) -> str:
        body = self._body
        if isinstance(kind, Number):
            return self._number(kind, at)
        if isinstance(kind, Text | Blob):
            start, size = body.at(at, LENGTH), count32(body, at)
        elif isinstance(kind, Bytes):
            start = body.at(at, len(head(kind)) + 2)
            size = body.let(f"zext i16 {body.load('i16', at, len(head(kind)))} to i64")
        else:
            assert isinstance(kind, Str)
            start = body.at(at, len(head(kind)))
            size = self._unpadded(start, kind.capacity)
        if isinstance(kind, Text | Str):
            return body.call("ptr", "@ev_PyUnicode_DecodeUTF8", f"ptr {start}", f"i64 {size}", "ptr null")
        return body.call("ptr", "@ev_PyBytes_FromStringAndSize", f"ptr {start}", f"i64 {size}")

    def _number(self, kind: Number, at: str) -> str:
        body, bits = self._body, 8 * kind.size
        raw = body.swap(bits, body.load(f"i{bits}", at, 1))
        if kind.kind == "f":
            value = body.let(f"bitcast i{bits} {raw} to {'double' if bits == 64 else 'float'}")
            value = value if bits == 64 else body.let(f"fpext float {value} to double")
            return body.call("ptr", "@ev_PyFloat_FromDouble", f"double {value}")
        widen = "sext" if kind.kind == "i" else "zext"
        value = raw if bits == 64 else body.let(f"{widen} i{bits} {raw} to i64")
        maker = "@ev_PyLong_FromLongLong" if kind.kind == "i" else "@ev_PyLong_FromUnsignedLongLong"
        return body.call("ptr", maker, f"i64 {value}")

    def _unpadded(self, start: str, capacity: int) -> str:
        """How long a text is before its padding."""
        body = self._body
        size = body.alloca("i64")
        body.put("i64", str(capacity), size)
        look, shorter, done = body.label(), body.label(), body.label()
        body.begin(look)
        found = body.get("i64", size)
        more = body.label()
        body.branch(body.let(f"icmp eq i64 {found}, 0"), done, more)
        body.begin(more)
        last = body.let(f"sub i64 {found}, 1")
        body.branch(body.let(f"icmp eq i8 {body.load('i8', start, last)}, 0"), shorter, done)
        body.begin(shorter)
        body.put("i64", last, size)
        body.jump(look)
        body.begin(done)
        return body.get("i64", size)

    def _list(self, kind: ListOf, at: str, slot: str) -> None:
        body = self._body
        count = count32(body, at)
        made = body.call("ptr", "@ev_PyList_New", f"i64 {count}")
        self._put_new(made, slot)
        items, cursor = body.load("ptr", made, LIST_ITEMS), body.alloca("ptr")
        body.put("ptr", body.at(at, LENGTH), cursor)

        def put(i: str) -> None:
            here = body.get("ptr", cursor)
            body.put("ptr", end(body, here, kind.element), cursor)
            self.put(kind.element, here, body.at(items, body.let(f"shl i64 {i}, 3")))

        body.loop(count, put)

    def _array(self, kind: Array, at: str, slot: str) -> None:
        """An array that shows the bytes where they are, and can be read only."""
        body, rank = self._body, len(kind.shape)
        shape = body.alloca(f"[{rank} x i64]")
        for axis, known in enumerate(kind.shape):
            n = str(known)
            if known is None or not kind.static:
                n = body.let(f"zext i32 {body.load('i32', at, Array.HEAD + 1 + 4 * axis)} to i64")
            body.store("i64", n, shape, 8 * axis)
        dtype = pointer(kind.element.dtype)
        body.do(f"call void @ev_Py_IncRef(ptr {dtype})")
        arguments = (
            f"ptr {pointer(self._numpy.kind)}, ptr {dtype}, i32 {rank}, ptr {shape}, ptr null, "
            f"ptr {body.at(at, kind.data_offset)}, i32 0, ptr null"
        )
        made = body.let(f"call ptr inttoptr (i64 {self._numpy.new} to ptr)({arguments})")
        self._put_new(made, slot)
        body.do(f"call void @ev_Py_IncRef(ptr {self._holder})")
        set_base = f"inttoptr (i64 {self._numpy.set_base} to ptr)"
        wrong = body.let(f"call i32 {set_base}(ptr {made}, ptr {self._holder})")
        right = body.label()
        body.branch(body.let(f"icmp eq i32 {wrong}, 0"), right, self.failed)
        body.begin(right)
