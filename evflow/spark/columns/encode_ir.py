"""Columns of Arrow to encoded events, as LLVM IR.

One function of a schema goes over the rows twice: first it says where each event begins, then it writes them.
Where all events have one width the first turn is left out. What cannot be written ends the second turn, and
is noted as the number of a ``Site`` and a row.
"""

from __future__ import annotations

from dataclasses import dataclass

from evflow.codgen.llvm.ir import Body, Module
from evflow.schema import Schema
from evflow.schema.program import fixed_image, image
from evflow.schema.types import Array, Blob, Bytes, ListOf, Number, Record, Str, Text
from evflow.spark.columns.bytes_ir import copy_bytes, copy_short
from evflow.spark.columns.columns_ir import Columns
from evflow.spark.columns.forms import Form, Forms
from evflow.spark.columns.measure_ir import record_size
from evflow.spark.columns.native import loop

__all__ = ["HEAD", "Site", "write_encoder"]

HEAD = ("measure", "rows", "out", "offsets", "site", "row")
"""The words before those of the forms: whether to measure (else: to write), how many rows, where the events
go and where their offsets; then what was found: the site of what cannot be written (-1: nothing), its row."""


@dataclass(frozen=True, slots=True)
class Site:
    """What can be wrong with a value: the form, and why: ``null``, ``long``, ``nul`` or ``shape``."""

    form: Form
    reason: str


def write_encoder(forms: Forms) -> tuple[str, list[Site]]:
    """The module of a schema, whose entry is ``void run(ptr context)``, and what can be wrong by number."""
    module = Module()
    body = Body(module, "void @run(ptr noalias %ctx) nounwind")
    writer = _Encoder(body, forms)
    writer.write()
    return module.text(), writer.sites


class _Encoder:
    """Writes the function. An index is that of a row or element, as an i64 operand; so are sizes."""

    def __init__(self, body: Body, forms: Forms) -> None:
        self.sites: list[Site] = []
        self._body = body
        self._forms = forms
        self._row = "0"
        self._columns = Columns(body, forms, len(HEAD))

    def write(self) -> None:
        """Writes the whole."""
        body, schema = self._body, self._forms.schema
        head = {name: body.load("i64", "%ctx", 8 * at) for at, name in enumerate(HEAD)}
        out, offsets = (body.let(f"inttoptr i64 {head[name]} to ptr") for name in ("out", "offsets"))
        total = body.alloca("i64", "0")
        if schema.width is None:
            measure, writing = body.label(), body.label()
            body.branch(body.let(f"icmp ne i64 {head['measure']}, 0"), measure, writing)
            body.begin(measure)
            loop(body, head["rows"], lambda row: self._measure_row(row, total, offsets))
            body.ret()
            body.begin(writing)
        cursor = body.alloca("ptr")
        body.do(f"store ptr {out}, ptr {cursor}")
        loop(body, head["rows"], lambda row: self._write_row(row, cursor))
        body.ret()
        body.finish()

    def _measure_row(self, row: str, total: str, offsets: str) -> None:
        body = self._body
        size = record_size(self._columns, body, self._forms.schema, self._forms.fields, row)
        behind = body.let(f"add i64 {body.let(f'load i64, ptr {total}')}, {size}")
        body.do(f"store i64 {behind}, ptr {total}")
        body.store("i64", behind, offsets, body.let(f"shl i64 {body.let(f'add i64 {row}, 1')}, 3"))

    def _write_row(self, row: str, cursor: str) -> None:
        self._row = row
        start = self._body.let(f"load ptr, ptr {cursor}")
        behind = self._record(self._forms.schema, self._forms.fields, row, start)
        self._body.do(f"store ptr {behind}, ptr {cursor}")

    def _require(self, condition: str, form: Form, reason: str) -> None:
        body = self._body
        bad, on = body.label(), body.label()
        body.branch(condition, on, bad)
        body.begin(bad)
        self.sites.append(Site(form, reason))
        body.do(f"call void {_fail(body.module)}(ptr %ctx, i64 {len(self.sites) - 1}, i64 {self._row})")
        body.ret()
        body.begin(on)

    def _record(self, schema: Schema, forms: tuple[Form, ...], index: str, out: str) -> str:
        """Writes a record; gives where it ends."""
        self._put_image(schema, out)
        self._fill_record(schema, forms, index, out)
        out = self._body.at(out, schema.fixed_width)
        for field in schema.wire_fields:
            if field.offset is None:
                out = self._value(forms[field.index], index, out)
        return out

    def _put_image(self, schema: Schema, out: str) -> None:
        self._body.copy(out, self._body.module.constant(fixed_image(schema)), schema.fixed_width)

    def _fill_record(self, schema: Schema, forms: tuple[Form, ...], index: str, out: str) -> None:
        for field in schema.wire_fields:
            if field.offset is not None:
                self._body.split()
                self._require(self._columns.present(forms[field.index], index), forms[field.index], "null")
                self._fill(forms[field.index], index, self._body.at(out, field.offset))

    def _value(self, form: Form, index: str, out: str) -> str:
        """Writes a value of any type; gives where it ends."""
        body = self._body
        there = self._columns.present(form, index)
        if not form.optional:
            self._require(there, form, "null")
            return self._held(form, index, out)
        some, nil, done = body.label(), body.label(), body.label()
        body.branch(there, some, nil)
        body.begin(nil)
        body.store("i8", str(0xC0 - 256), out)
        behind_nil = body.at(out, 1)
        body.jump(done)
        body.begin(some)
        behind = self._held(form, index, out)
        written = body.block
        body.begin(done)
        return body.phi("ptr", [(behind_nil, nil), (behind, written)])

    def _held(self, form: Form, index: str, out: str) -> str:
        body, kind = self._body, form.kind
        if isinstance(kind, Record):
            return self._record(kind.schema, form.children, index, out)
        if kind.width is not None:
            zeros = image(kind)
            body.copy(out, body.module.constant(zeros), len(zeros))
            self._fill(form, index, out)
            return body.at(out, kind.width)
        if isinstance(kind, ListOf):
            return self._list(form, index, out)
        if isinstance(kind, Array):
            return self._array(form, index, out)
        assert isinstance(kind, (Text, Blob))
        start, size = self._columns.range(form, index)
        self._head(0xDB if isinstance(kind, Text) else 0xC6, size, out)
        target = body.at(out, 5)
        source, room = self._content(form, start)
        copy_bytes(body, target, source, size, room)
        return body.at(target, size)

    def _head(self, marker: int, size: str, out: str) -> None:
        body = self._body
        body.store("i8", str(marker - 256), out)
        body.store("i32", body.swap(32, body.let(f"trunc i64 {size} to i32")), out, 1)

    def _list(self, form: Form, index: str, out: str) -> str:
        body = self._body
        start, count = self._columns.range(form, index)
        self._head(0xDD, count, out)
        cursor = body.alloca("ptr")
        body.do(f"store ptr {body.at(out, 5)}, ptr {cursor}")

        def put(i: str) -> None:
            here = body.let(f"load ptr, ptr {cursor}")
            behind = self._value(form.children[0], body.let(f"add i64 {start}, {i}"), here)
            body.do(f"store ptr {behind}, ptr {cursor}")

        loop(body, count, put)
        return body.let(f"load ptr, ptr {cursor}")

    def _array(self, form: Form, index: str, out: str) -> str:
        """An array of varying shape."""
        body, kind = self._body, form.kind
        assert isinstance(kind, Array)
        first, size = self._columns.elements(form, index)
        self._check_shape(form, index, out)
        rank = len(kind.shape)
        self._head(0xC9, body.let(f"add i64 {size}, {1 + 4 * rank}"), out)
        body.store("i8", str(kind.element.code), out, 5)
        body.store("i8", str(rank), out, 6)
        target = body.at(out, kind.data_offset)
        self._copy_numbers(form.leaf, first, size, target)
        return body.at(target, size)

    def _check_shape(self, form: Form, index: str, out: str) -> None:
        """Requires that lists of one depth have one length; writes the lengths as the array's dimensions."""
        body, kind = self._body, form.kind
        assert isinstance(kind, Array)
        start, count = self._columns.range(form, index)
        inner = form
        for axis, wanted in enumerate(kind.shape):
            if axis:
                inner = inner.children[0]
                start, count = self._even(form, inner, start, count, wanted)
            elif wanted is not None:
                self._require(body.let(f"icmp eq i64 {count}, {wanted}"), form, "shape")
            size = count if not axis else self._last
            body.store("i32", body.let(f"trunc i64 {size} to i32"), out, Array.HEAD + 1 + 4 * axis)

    _last = "0"

    def _even(self, form: Form, inner: Form, start: str, count: str, wanted: int | None) -> tuple[str, str]:
        """Requires ``count`` lists from ``start`` on to be of one length; gives the first of all their
        elements, and how many there are."""
        body = self._body
        some, done = body.label(), body.label()
        before = body.block
        body.branch(body.let(f"icmp eq i64 {count}, 0"), done, some)
        body.begin(some)
        first, length = self._columns.range(inner, start)
        if wanted is not None:
            self._require(body.let(f"icmp eq i64 {length}, {wanted}"), form, "shape")

        def check(i: str) -> None:
            at = body.let(f"add i64 {start}, {i}")
            self._require(self._columns.present(inner, at), form, "null")
            _, found = self._columns.range(inner, at)
            self._require(body.let(f"icmp eq i64 {found}, {length}"), form, "shape")

        loop(body, count, check)
        whole = body.let(f"mul i64 {count}, {length}")
        after = body.block
        body.begin(done)
        none = "0" if wanted is None else str(wanted)
        self._last = body.phi("i64", [(none, before), (length, after)])
        return (
            body.phi("i64", [("0", before), (first, after)]),
            body.phi("i64", [("0", before), (whole, after)]),
        )

    def _fill(self, form: Form, index: str, out: str) -> None:
        """Writes a value of fixed width behind the markers that stand there; it is no null."""
        body, kind = self._body, form.kind
        if isinstance(kind, Record):
            self._fill_record(kind.schema, form.children, index, out)
        elif isinstance(kind, Number) and kind.kind == "b":
            bit = self._columns.bit(
                self._columns.pointer(form, "values"), self._columns.word(form, "first"), index
            )
            marker = body.let(f"add i8 {body.let(f'zext i1 {bit} to i8')}, {0xC2 - 256}")
            body.store("i8", marker, out)
        elif isinstance(kind, Number):
            at = body.let(f"add i64 {index}, {self._columns.word(form, 'first')}")
            where = body.let(f"mul i64 {at}, {kind.size}")
            bits = 8 * kind.size
            value = body.load(f"i{bits}", self._columns.pointer(form, "values"), where)
            body.store(f"i{bits}", body.swap(bits, value), out, 1)
        elif isinstance(kind, Array):
            first, size = self._columns.elements(form, index)
            self._check_shape(form, index, out)
            self._copy_numbers(form.leaf, first, size, body.at(out, kind.data_offset))
        else:
            assert isinstance(kind, (Str, Bytes))
            self._fill_bytes(form, kind, index, out)

    def _fill_bytes(self, form: Form, kind: Str | Bytes, index: str, out: str) -> None:
        body = self._body
        start, size = self._columns.range(form, index)
        self._require(body.let(f"icmp ule i64 {size}, {kind.capacity}"), form, "long")
        source, room = self._content(form, start)
        if isinstance(kind, Bytes):
            body.store("i16", body.let(f"trunc i64 {size} to i16"), out, kind.head)
            copy_short(body, body.at(out, kind.head + 2), source, size, room, kind.capacity)
            return
        copy_short(body, body.at(out, kind.head), source, size, room, kind.capacity)
        # Of an empty text it is the byte before, which is never zero: the head.
        last = body.let(f"sub i64 {body.let(f'add i64 {size}, {kind.head}')}, 1")
        byte = body.load("i8", out, last)
        filled = body.let(f"icmp ne i8 {byte}, 0")
        empty = body.let(f"icmp eq i64 {size}, 0")
        self._require(body.let(f"or i1 {filled}, {empty}"), form, "nul")

    def _content(self, form: Form, start: str) -> tuple[str, str]:
        """Where bytes are, and how many there are from there on."""
        source = self._body.at(self._columns.pointer(form, "content"), start)
        return source, self._body.let(f"sub i64 {self._columns.word(form, 'size')}, {start}")

    def _copy_numbers(self, leaf: Form, first: str, size: str, target: str) -> None:
        body = self._body
        assert isinstance(leaf.kind, Number)
        if leaf.kind.kind != "b":
            at = body.let(f"add i64 {first}, {self._columns.word(leaf, 'first')}")
            source = body.at(
                self._columns.pointer(leaf, "values"), body.let(f"mul i64 {at}, {leaf.kind.size}")
            )
            body.copy(target, source, size)
            return

        def put(i: str) -> None:
            at = body.let(f"add i64 {first}, {i}")
            bit = self._columns.bit(
                self._columns.pointer(leaf, "values"), self._columns.word(leaf, "first"), at
            )
            body.store("i8", body.let(f"zext i1 {bit} to i8"), target, i)

        loop(body, size, put)


def _fail(module: Module) -> str:
    def write(_: str) -> None:
        body = Body(module, "internal void @e.fail(ptr %ctx, i64 %site, i64 %row) noinline cold nounwind")
        body.store("i64", "%site", "%ctx", 8 * HEAD.index("site"))
        body.store("i64", "%row", "%ctx", 8 * HEAD.index("row"))
        body.ret()
        body.finish()

    return module.routine("@e.fail", write)
