"""Columns of Arrow to encoded events, as LLVM IR.

One function of a schema goes over the rows twice: first it says where each event begins, then it writes them.
Where all events have one width the first turn is left out. What cannot be written ends the second turn, and
is noted as the number of a ``Site`` and a row.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from evflow.codgen.llvm.ir import Body, Module
from evflow.codgen.llvm.writer_ir import Piece, Source, Writer
from evflow.schema import Field
from evflow.schema.types import Array, FieldType, ListOf, Maybe, Number, Record
from evflow.spark.columns.bytes_ir import copy_bytes, copy_short
from evflow.spark.columns.forms import WORDS, Form, Forms

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
    module, schema = Module(), forms.schema
    body = Body(module, "void @run(ptr noalias %ctx) nounwind")
    measure, rows, out, offsets = (body.load("i64", "%ctx", 8 * at) for at in range(4))
    out, offsets = (body.let(f"inttoptr i64 {address} to ptr") for address in (out, offsets))
    columns = _Columns(body, forms)
    if schema.width is None:
        measuring, writing = body.label(), body.label()
        body.branch(body.let(f"icmp ne i64 {measure}, 0"), measuring, writing)
        body.begin(measuring)
        total = body.alloca("i64", "0")

        def measure_row(row: str) -> None:
            columns.row = row
            before = body.let(f"load i64, ptr {total}")
            behind = Writer(body, columns, measuring=True).record(schema, (forms.fields, row), before)
            body.do(f"store i64 {behind}, ptr {total}")
            body.store("i64", behind, offsets, body.let(f"shl i64 {body.let(f'add i64 {row}, 1')}, 3"))

        columns.checking = False
        body.loop(rows, measure_row)
        columns.checking = True
        body.ret()
        body.begin(writing)
    cursor = body.alloca("ptr")
    body.do(f"store ptr {out}, ptr {cursor}")

    def write_row(row: str) -> None:
        columns.row = row
        start = body.let(f"load ptr, ptr {cursor}")
        behind = Writer(body, columns).record(schema, (forms.fields, row), start)
        body.do(f"store ptr {behind}, ptr {cursor}")

    body.loop(rows, write_row)
    body.ret()
    body.finish()
    return module.text(), columns.sites


_Value = tuple[Form, str]
_Holder = tuple[tuple[Form, ...], str]


class _Columns(Source):
    """Columns of Arrow: a value is its form, and its index (i64) there.

    Attributes:
        sites: what can be wrong.
        row: the row that is being written.
        checking: whether to look for what is wrong.
    """

    def __init__(self, body: Body, forms: Forms) -> None:
        self.sites: list[Site] = []
        self.row = "0"
        self.checking = True
        self._body = body
        self._words: dict[tuple[int, str], str] = {}
        for form in (form for field in forms.fields for form in field.walk()):
            for at, word in enumerate(WORDS):
                where = 8 * (len(HEAD) + len(WORDS) * form.number + at)
                self._words[form.number, word] = body.load("i64", "%ctx", where)

    def _word(self, form: Form, name: str) -> str:
        """A word of a form (i64)."""
        return self._words[form.number, name]

    def _pointer(self, form: Form, name: str) -> str:
        """A word of a form that is an address."""
        return self._body.let(f"inttoptr i64 {self._word(form, name)} to ptr")

    def _bit(self, address: str, first: str, index: str) -> str:
        """Bit ``first + index`` of those at an address (i1)."""
        body = self._body
        at = body.let(f"add i64 {index}, {first}")
        byte = body.load("i8", address, body.let(f"lshr i64 {at}, 3"))
        shift = body.let(f"trunc i64 {body.let(f'and i64 {at}, 7')} to i8")
        return body.let(f"trunc i8 {body.let(f'lshr i8 {byte}, {shift}')} to i1")

    def _range(self, form: Form, index: str) -> tuple[str, str]:
        """Where the bytes or elements of a value begin, and how many they are."""
        body = self._body
        at = body.let(f"add i64 {index}, {self._word(form, 'first')}")
        place = self._pointer(form, "values")
        scaled = body.let(f"shl i64 {at}, 2")
        start = body.let(f"sext i32 {body.load('i32', place, scaled)} to i64")
        behind = body.load("i32", place, body.let(f"add i64 {scaled}, 4"))
        end = body.let(f"sext i32 {behind} to i64")
        return start, body.let(f"sub i64 {end}, {start}")

    def require(self, condition: str, value: _Value, reason: str) -> None:
        if not self.checking:
            return
        body = self._body
        bad, on = body.label(), body.label()
        body.branch(condition, on, bad)
        body.begin(bad)
        self.sites.append(Site(value[0], reason))
        body.do(f"call void {_fail(body.module)}(ptr %ctx, i64 {len(self.sites) - 1}, i64 {self.row})")
        body.ret()
        body.begin(on)

    def _there(self, kind: FieldType, form: Form, index: str) -> _Value:
        """A value that is there, unless it is optional."""
        value = form, index
        if self.checking and not isinstance(kind, Maybe):
            self.require(self.present(value), value, "null")
        return value

    def field(self, holder: _Holder, field: Field) -> _Value:
        forms, index = holder
        return self._there(field.type, forms[field.index], index)

    def holder(self, kind: Record, value: _Value) -> _Holder:
        form, index = value
        return form.children, index

    def items(self, kind: ListOf, value: _Value) -> tuple[str, Callable[[str], _Value]]:
        start, count = self._range(*value)
        element = value[0].children[0]
        return count, lambda i: self._there(kind.element, element, self._body.let(f"add i64 {start}, {i}"))

    def present(self, value: _Value) -> str:
        form, index = value
        body = self._body
        look, done = body.label(), body.label()
        before = body.block
        body.branch(body.let(f"icmp eq i64 {self._word(form, 'validity')}, 0"), done, look)
        body.begin(look)
        bit = self._bit(self._pointer(form, "validity"), self._word(form, "bits"), index)
        looked = body.block
        body.begin(done)
        return body.phi("i1", [("true", before), (bit, looked)])

    def number(self, kind: Number, value: _Value) -> str:
        form, index = value
        body, values = self._body, self._pointer(form, "values")
        if kind.kind == "b":
            return body.let(f"zext i1 {self._bit(values, self._word(form, 'first'), index)} to i8")
        at = body.let(f"add i64 {index}, {self._word(form, 'first')}")
        return body.load(f"i{8 * kind.size}", values, body.let(f"mul i64 {at}, {kind.size}"))

    def piece(self, kind: FieldType, value: _Value) -> Piece:
        form, index = value
        start, size = self._range(form, index)
        source = self._body.at(self._pointer(form, "content"), start)
        return source, size, self._body.let(f"sub i64 {self._word(form, 'size')}, {start}")

    def copy(self, value: _Value, piece: Piece, target: str) -> None:
        copy_bytes(self._body, target, *piece)

    def copy_short(self, piece: Piece, target: str, capacity: int) -> None:
        copy_short(self._body, target, *piece, capacity)

    def size(self, kind: Array, value: _Value) -> str:
        _, count = self._elements(*value)
        return self._body.let(f"mul i64 {count}, {kind.item_size}")

    def shape(self, kind: Array, value: _Value) -> list[str]:
        """The lengths of lists in lists, of which those of one depth have one length."""
        inner, index = value
        start, count = self._range(inner, index)
        lengths = [count]
        if kind.shape[0] is not None:
            self.require(self._body.let(f"icmp eq i64 {count}, {kind.shape[0]}"), value, "shape")
        for wanted in kind.shape[1:]:
            inner = inner.children[0]
            start, count, length = self._even(value, inner, start, count, wanted)
            lengths.append(length)
        return lengths

    def _even(
        self, value: _Value, inner: Form, start: str, count: str, wanted: int | None
    ) -> tuple[str, str, str]:
        """Requires ``count`` lists from ``start`` on to be of one length; gives the first of all their
        elements, how many there are, and the length."""
        body = self._body
        some, done = body.label(), body.label()
        before = body.block
        body.branch(body.let(f"icmp eq i64 {count}, 0"), done, some)
        body.begin(some)
        first, length = self._range(inner, start)
        if wanted is not None:
            self.require(body.let(f"icmp eq i64 {length}, {wanted}"), value, "shape")

        def check(i: str) -> None:
            at = body.let(f"add i64 {start}, {i}")
            self.require(self.present((inner, at)), value, "null")
            _, found = self._range(inner, at)
            self.require(body.let(f"icmp eq i64 {found}, {length}"), value, "shape")

        body.loop(count, check)
        whole = body.let(f"mul i64 {count}, {length}")
        after = body.block
        body.begin(done)
        none = "0" if wanted is None else str(wanted)
        return (
            body.phi("i64", [("0", before), (first, after)]),
            body.phi("i64", [("0", before), (whole, after)]),
            body.phi("i64", [(none, before), (length, after)]),
        )

    def _elements(self, form: Form, index: str) -> tuple[str, str]:
        """The first element of an array of numbers, and how many there are."""
        body = self._body
        first, count = self._range(form, index)
        inner = form.children[0]
        while inner.children:
            behind = body.let(f"add i64 {first}, {count}")
            empty = body.let(f"icmp eq i64 {count}, 0")
            some, done = body.label(), body.label()
            before = body.block
            body.branch(empty, done, some)
            body.begin(some)
            start, _ = self._range(inner, first)
            last, size = self._range(inner, body.let(f"sub i64 {behind}, 1"))
            whole = body.let(f"sub i64 {body.let(f'add i64 {last}, {size}')}, {start}")
            after = body.block
            body.begin(done)
            first = body.phi("i64", [("0", before), (start, after)])
            count = body.phi("i64", [("0", before), (whole, after)])
            inner = inner.children[0]
        return first, count

    def copy_elements(self, kind: Array, value: _Value, size: str, target: str) -> None:
        body, leaf = self._body, value[0].leaf
        first, _ = self._elements(*value)
        values = self._pointer(leaf, "values")
        if kind.element.kind != "b":
            at = body.let(f"add i64 {first}, {self._word(leaf, 'first')}")
            source = body.at(values, body.let(f"mul i64 {at}, {kind.item_size}"))
            body.copy(target, source, size)
            return

        def put(i: str) -> None:
            bit = self._bit(values, self._word(leaf, "first"), body.let(f"add i64 {first}, {i}"))
            body.store("i8", body.let(f"zext i1 {bit} to i8"), target, i)

        body.loop(size, put)


def _fail(module: Module) -> str:
    def write(_: str) -> None:
        body = Body(module, "internal void @e.fail(ptr %ctx, i64 %site, i64 %row) noinline cold nounwind")
        body.store("i64", "%site", "%ctx", 8 * HEAD.index("site"))
        body.store("i64", "%row", "%ctx", 8 * HEAD.index("row"))
        body.ret()
        body.finish()

    return module.routine("@e.fail", write)
