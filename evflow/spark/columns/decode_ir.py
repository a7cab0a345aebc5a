"""Encoded events to columns of Arrow, as LLVM IR.

One function of a schema goes over the events twice: first it counts what the columns will hold, then it
writes them. Where that follows from the number of events alone the first turn is left out. The events are
valid, so nothing can be wrong with them.
"""

from __future__ import annotations

from evflow.codgen.llvm.ir import Body, Module
from evflow.schema import Schema
from evflow.schema.types import Array, Blob, Bytes, FieldType, ListOf, Number, Record, Str, Text
from evflow.spark.columns.bytes_ir import copy_bytes, padded_size
from evflow.spark.columns.forms import Form, Forms

HEAD = ("count", "rows", "data", "size", "offsets", "selection")
"""The words before those of the forms: whether to count (else: to write), how many events are meant, where
the bytes are and how many, where the offsets of the events (0: they have one width), where the numbers of the
events that are meant (0: all are)."""

COLUMN = ("validity", "values", "content", "nulls", "items")
"""The words of a form: addresses of the bitmap, of the values or offsets, of the bytes of text; then, as
found, how many nulls there are, and how many bytes of text or elements."""

_SHORT = 32
"""Bytes that are copied all at once rather than as many as there are."""


def counts(forms: Forms) -> bool:
    """Whether the events have to be counted before they are written."""
    return any(_varies(form.kind) for field in forms.fields for form in field.walk())


def _varies(kind: FieldType) -> bool:
    return isinstance(kind, (Text, Blob, ListOf)) or (isinstance(kind, Array) and not kind.static)


def write_decoder(forms: Forms) -> str:
    """The module of a schema, whose entry is ``void run(ptr context)``."""
    module = Module()
    _Decoder(Body(module, "void @run(ptr noalias %ctx) nounwind"), forms).write()
    return module.text()


class _Decoder:
    """Writes the function. An index is that of a value in its column, as an i64 operand."""

    def __init__(self, body: Body, forms: Forms) -> None:
        self._body = body
        self._forms = forms
        self._all = [form for field in forms.fields for form in field.walk()]
        self._words: dict[tuple[int, str], str] = {}
        self._used: dict[int, str] = {}
        self._nulls: dict[int, str] = {}
        self._end = ""
        self._counting = False

    def write(self) -> None:
        """Writes the whole."""
        body = self._body
        head = {name: body.load("i64", "%ctx", 8 * at) for at, name in enumerate(HEAD)}
        for form in self._all:
            for word in COLUMN[:3]:
                address = body.load("i64", "%ctx", self._at(form, word))
                self._words[form.number, word] = body.let(f"inttoptr i64 {address} to ptr")
            self._used[form.number] = body.alloca("i64", "0")
            self._nulls[form.number] = body.alloca("i64", "0")
        data = body.let(f"inttoptr i64 {head['data']} to ptr")
        self._end = body.at(data, head["size"])
        count, write, done = body.label(), body.label(), body.label()
        if counts(self._forms):
            body.branch(body.let(f"icmp ne i64 {head['count']}, 0"), count, write)
            body.begin(count)
            self._counting = True
            self._rows(head, data)
            self._counting = False
            body.jump(done)
            body.begin(write)
        self._rows(head, data)
        body.begin(done)
        for form in self._all:
            for word, found in (("nulls", self._nulls), ("items", self._used)):
                value = body.let(f"load i64, ptr {found[form.number]}")
                body.store("i64", value, "%ctx", self._at(form, word))
        body.ret()
        body.finish()

    @staticmethod
    def _at(form: Form, word: str) -> int:
        return 8 * (len(HEAD) + len(COLUMN) * form.number + COLUMN.index(word))

    def _rows(self, head: dict[str, str], data: str) -> None:
        body, schema = self._body, self._forms.schema
        offsets, selection = (body.let(f"inttoptr i64 {head[n]} to ptr") for n in ("offsets", "selection"))
        chosen = body.let(f"icmp ne i64 {head['selection']}, 0")

        def turn(index: str) -> None:
            pick, go = body.label(), body.label()
            before = body.block
            body.branch(chosen, pick, go)
            body.begin(pick)
            picked = body.load("i32", selection, body.let(f"shl i64 {index}, 2"))
            wide = body.let(f"sext i32 {picked} to i64")
            body.begin(go)
            row = body.phi("i64", [(index, before), (wide, pick)])
            if schema.width is None:
                start = body.load("i64", offsets, body.let(f"shl i64 {row}, 3"))
            else:
                start = body.let(f"mul i64 {row}, {schema.width}")
            self._record(schema, self._forms.fields, index, body.at(data, start))

        body.loop(head["rows"], turn)

    # Small things.

    def _word(self, form: Form, name: str) -> str:
        return self._words[form.number, name]

    def _take(self, form: Form, more: str) -> tuple[str, str]:
        """How much of a form's content was used before, and is with ``more``."""
        body, used = self._body, self._used[form.number]
        before = body.let(f"load i64, ptr {used}")
        behind = body.let(f"add i64 {before}, {more}")
        body.do(f"store i64 {behind}, ptr {used}")
        return before, behind

    def _ends(self, form: Form, index: str, end: str) -> None:
        """Writes where the bytes or elements of a value end."""
        body = self._body
        where = body.let(f"shl i64 {body.let(f'add i64 {index}, 1')}, 2")
        body.store("i32", body.let(f"trunc i64 {end} to i32"), self._word(form, "values"), where)

    def _big32(self, at: str, offset: int) -> str:
        body = self._body
        return body.let(f"zext i32 {body.swap(32, body.load('i32', at, offset))} to i64")

    # Values.

    def _record(self, schema: Schema, forms: tuple[Form, ...], index: str, at: str) -> str:
        """Reads a record; gives where it ends."""
        self._fixed_fields(schema, forms, index, at)
        at = self._body.at(at, schema.fixed_width)
        for field in schema.wire_fields:
            if field.offset is None:
                self._body.split()
                at = self._value(forms[field.index], index, at)
        return at

    def _fixed_fields(self, schema: Schema, forms: tuple[Form, ...], index: str, at: str) -> None:
        for field in schema.wire_fields:
            if field.offset is not None:
                self._body.split()
                self._fixed(forms[field.index], index, self._body.at(at, field.offset))

    def _value(self, form: Form, index: str, at: str) -> str:
        """Reads a value of any type; gives where it ends."""
        if not form.optional:
            return self._held(form, index, at)
        body = self._body
        nil, some, done = body.label(), body.label(), body.label()
        marker = body.load("i8", at)
        body.branch(body.let(f"icmp eq i8 {marker}, {0xC0 - 256}"), nil, some)
        body.begin(nil)
        if not self._counting:
            self._nothing(form, index)
        behind_nil, empty = body.at(at, 1), body.block
        body.jump(done)
        body.begin(some)
        behind, held = self._held(form, index, at), body.block
        body.begin(done)
        return body.phi("ptr", [(behind_nil, empty), (behind, held)])

    def _held(self, form: Form, index: str, at: str) -> str:
        body, kind = self._body, form.kind
        if isinstance(kind, Record):
            return self._record(kind.schema, form.children, index, at)
        if kind.width is not None:
            self._fixed(form, index, at)
            return body.at(at, kind.width)
        if isinstance(kind, ListOf):
            return self._list(form, index, at)
        if isinstance(kind, Array):
            return self._array(form, index, at)
        size, start = self._big32(at, 1), body.at(at, 5)
        before, behind = self._take(form, size)
        if not self._counting:
            self._ends(form, index, behind)
            ends = [body.let(f"ptrtoint ptr {p} to i64") for p in (self._end, start)]
            room = body.let(f"sub i64 {ends[0]}, {ends[1]}")
            copy_bytes(body, body.at(self._word(form, "content"), before), start, size, room)
        return body.at(start, size)

    def _list(self, form: Form, index: str, at: str) -> str:
        body, element = self._body, form.children[0]
        count, cursor = self._big32(at, 1), body.alloca("ptr")
        before, behind = self._take(form, count)
        if not self._counting:
            self._ends(form, index, behind)
        elif element.kind.width is not None and not element.optional:
            return body.at(body.at(at, 5), body.let(f"mul i64 {count}, {element.kind.width}"))
        body.do(f"store ptr {body.at(at, 5)}, ptr {cursor}")

        def take(i: str) -> None:
            here = body.let(f"load ptr, ptr {cursor}")
            behind = self._value(element, body.let(f"add i64 {before}, {i}"), here)
            body.do(f"store ptr {behind}, ptr {cursor}")

        body.loop(count, take)
        return body.let(f"load ptr, ptr {cursor}")

    def _array(self, form: Form, index: str, at: str) -> str:
        """Reads an array of numbers; gives where it ends."""
        body, kind = self._body, form.kind
        assert isinstance(kind, Array)
        number, lists, where = form, "1", index
        for axis, known in enumerate(kind.shape):
            size = str(known)
            if known is None:
                size = body.let(f"zext i32 {body.load('i32', at, Array.HEAD + 1 + 4 * axis)} to i64")
            total = body.let(f"mul i64 {lists}, {size}")
            before, _ = self._take(number, total)
            if not self._counting:
                self._even_ends(number, where, lists, before, size)
            number, lists, where = number.children[0], total, before
        start = body.at(at, kind.data_offset)
        if not self._counting:
            self._numbers(number, where, lists, start)
        return body.at(start, body.let(f"mul i64 {lists}, {kind.item_size}"))

    def _even_ends(self, form: Form, index: str, lists: str, before: str, size: str) -> None:
        body = self._body

        def put(i: str) -> None:
            elements = body.let(f"mul i64 {body.let(f'add i64 {i}, 1')}, {size}")
            end = body.let(f"add i64 {before}, {elements}")
            self._ends(form, body.let(f"add i64 {index}, {i}"), end)

        body.loop(lists, put)

    def _numbers(self, form: Form, index: str, count: str, at: str) -> None:
        """Elements of an array, which stand little-endian without markers."""
        body, kind = self._body, form.kind
        assert isinstance(kind, Number)
        if form.stored == kind and kind.kind != "b":
            where = body.at(self._word(form, "values"), body.let(f"mul i64 {index}, {kind.size}"))
            body.copy(where, at, body.let(f"mul i64 {count}, {kind.size}"))
            return
        bits = 8 * max(kind.size, 1)

        def put(i: str) -> None:
            value = body.load(f"i{bits}", at, body.let(f"mul i64 {i}, {bits // 8}"))
            self._put(form, kind, body.let(f"add i64 {index}, {i}"), value)

        body.loop(count, put)

    def _fixed(self, form: Form, index: str, at: str) -> None:
        """Reads a value of fixed width that is there."""
        body, kind = self._body, form.kind
        if isinstance(kind, Record):
            self._fixed_fields(kind.schema, form.children, index, at)
        elif isinstance(kind, Array):
            self._array(form, index, at)
        elif self._counting:
            return
        elif isinstance(kind, Number) and kind.kind == "b":
            self._put(form, kind, index, body.let(f"and i8 {body.load('i8', at)}, 1"))
        elif isinstance(kind, Number):
            bits = 8 * kind.size
            self._put(form, kind, index, body.swap(bits, body.load(f"i{bits}", at, 1)))
        elif isinstance(kind, Bytes):
            size = body.let(f"zext i16 {body.load('i16', at, kind.head)} to i64")
            self._short(form, index, body.at(at, kind.head + 2), kind.capacity, size)
        else:
            assert isinstance(kind, Str)
            start = body.at(at, kind.head)
            self._short(form, index, start, kind.capacity, padded_size(self._body, start, kind.capacity))

    def _short(self, form: Form, index: str, start: str, capacity: int, size: str) -> None:
        before, behind = self._take(form, size)
        self._ends(form, index, behind)
        # The content has room for the capacity of every value.
        copied = capacity if capacity <= _SHORT else size
        self._body.copy(self._body.at(self._word(form, "content"), before), start, copied)

    def _put(self, form: Form, kind: Number, index: str, value: str) -> None:
        """Writes a number, given as an integer of its size, or as 0 or 1."""
        body, values = self._body, self._word(form, "values")
        if kind.kind == "b":
            place = body.at(values, body.let(f"lshr i64 {index}, 3"))
            shift = body.let(f"trunc i64 {body.let(f'and i64 {index}, 7')} to i8")
            bit = body.let(f"shl i8 {value}, {shift}")
            body.store("i8", body.let(f"or i8 {body.load('i8', place)}, {bit}"), place)
            return
        assert form.stored is not None
        bits, size = 8 * kind.size, form.stored.size
        if size != kind.size:
            value = body.let(f"zext i{bits} {value} to i{8 * size}")
        body.store(f"i{8 * size}", value, values, body.let(f"mul i64 {index}, {size}"))

    def _nothing(self, form: Form, index: str) -> None:
        """Writes what stands for a null, there and in all that is within."""
        body, kind = self._body, form.kind
        if form.optional:
            place = body.at(self._word(form, "validity"), body.let(f"lshr i64 {index}, 3"))
            shift = body.let(f"trunc i64 {body.let(f'and i64 {index}, 7')} to i8")
            bit = body.let(f"xor i8 {body.let(f'shl i8 1, {shift}')}, -1")
            body.store("i8", body.let(f"and i8 {body.load('i8', place)}, {bit}"), place)
            nulls = self._nulls[form.number]
            body.do(f"store i64 {body.let(f'add i64 {body.let(_load(nulls))}, 1')}, ptr {nulls}")
        if isinstance(kind, Record):
            for child in form.children:
                self._nothing(child, index)
        elif isinstance(kind, Number):
            size = form.stored.size if form.stored else 0
            if kind.kind != "b":
                where = body.let(f"mul i64 {index}, {size}")
                body.store(f"i{8 * size}", "0", self._word(form, "values"), where)
        else:
            self._ends(form, index, body.let(_load(self._used[form.number])))


def _load(variable: str) -> str:
    return f"load i64, ptr {variable}"
