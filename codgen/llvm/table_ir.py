"""Tables to encoded rows as LLVM IR, row by row: a function that Python calls with all columns, or with a
list of events, and that puts their bytes where the words of ``self`` say.

A column is a list of Python objects, an array of numpy of just the field's type, or ``Laid``. What is not
certain to be right is refused, as in ``object_ir``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from evflow.codgen.llvm.append_ir import (
    ARRAY_DATA,
    ARRAY_DTYPE,
    ARRAY_NDIM,
    ARRAY_SHAPE,
    ARRAY_STRIDES,
    DTYPE_NUMBER,
    DTYPE_ORDER,
    LIST_ITEMS,
    LIST_SIZE,
    Checks,
    pointer,
)
from evflow.codgen.llvm.object_ir import Layout, Objects
from evflow.codgen.llvm.writer_ir import Piece, Source, Writer, copy_array
from evflow.schema import Field, Schema
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

ROWS = 4096
"""The most rows that are taken in one call, in which no other thread of Python runs."""

WHOLE = 64 << 10
"""Bytes of the largest table that is taken whole, of rows of one width: more go faster column by column
(``rows_ir``)."""


class Laid:
    """A column that was brought into the one form that machine code reads, with nothing wrong in it.

    Args:
        values: numbers of the field's type in this machine's byte order, one a row; arrays of them, with the
            elements of a row in order; or the bytes of all pieces, uint8.
        ends: of pieces int64, one more than rows: where each begins and the last ends; else None.
        present: uint8, which rows have a value; None for all.
    """

    __slots__ = ("ends", "present", "values")

    def __init__(self, values: Any, ends: Any = None, present: Any = None) -> None:
        self.values = values
        self.ends = ends
        self.present = present


class Leaf(NamedTuple):
    """A field that has a column of its own.

    Attributes:
        path: its dotted name.
        kind: its type.
    """

    path: str
    kind: FieldType


def leaves(schema: Schema, prefix: str = "") -> Iterator[Leaf]:
    """The columns of a schema, in declared order; those of a record within stand where the record does."""
    for field in schema.fields:
        if isinstance(field.type, Record):
            yield from leaves(field.type.schema, f"{prefix}{field.name}.")
        else:
            yield Leaf(prefix + field.name, field.type)


def can_encode_table(schema: Schema, classed: Callable[[Schema], bool]) -> bool:
    """Whether ``write_table_encoder`` takes a schema.

    Args:
        schema: the schema.
        classed: whether a schema has a class whose layout is known.
    """
    return not schema.recursive and all(_can_encode(leaf.kind, classed) for leaf in leaves(schema))


def _can_encode(kind: FieldType, classed: Callable[[Schema], bool]) -> bool:
    """Whether a value can come as an object, or, of a column, be laid."""
    if isinstance(kind, Maybe):
        return not isinstance(kind.element, Record) and _can_encode(kind.element, classed)
    if isinstance(kind, ListOf):
        return _can_come(kind.element, classed)
    return True


def _can_come(kind: FieldType, classed: Callable[[Schema], bool]) -> bool:
    if isinstance(kind, Record):
        held = [field.type for field in kind.schema.fields]
        return classed(kind.schema) and all(_can_come(inner, classed) for inner in held)
    if isinstance(kind, Maybe | ListOf):
        return _can_come(kind.element, classed)
    return not is_kept(kind)


def is_kept(kind: FieldType) -> bool:
    """Whether values are kept as something that is not a value itself, so that only Python can make it."""
    return isinstance(kind, Logical) and not kind.plain


def can_encode_events(schema: Schema, classed: Callable[[Schema], bool]) -> bool:
    """Whether ``write_table_encoder`` takes lists of the schema's events; see ``can_encode_table``."""
    return not schema.recursive and _can_come(Record(schema.name, {schema.name: schema}), classed)


def write_table_encoder(
    schema: Schema, layouts: Mapping[Schema, Layout], slots: Mapping[str, int], *, events: bool
) -> str:
    """The function that takes rows and puts their bytes where the words of ``self`` say.

    It gives True once it has taken all rows. Where the word ``row`` is not negative it goes on with that row,
    takes at most ``ROWS``, and notes in the words how far it came; also where it refuses a row. Where it
    lacks room for one, it sets the word ``end`` to 0.

    Args:
        schema: the schema, one that ``can_encode_table`` takes, or ``can_encode_events``.
        layouts: of the classes of records that come as objects.
        slots: bytes from the beginning of a ``Laid`` to each of its fields.
        events: True for a function that is given a list of events; else it is given a list of columns, one
            for each of ``leaves(schema)``.

    Returns:
        A module whose entry ``run`` is a ``PyCFunction``.
    """
    return _Table(schema, layouts, slots, events).write()


class _Column(NamedTuple):
    """Where the values of a leaf are, as variables of the function.

    Attributes:
        objects: the address of the objects; null where there are none.
        data: the address of the first value, or of all pieces.
        step: bytes from one value to the next (i64).
        ends: the address of where pieces begin and end.
        present: the address of which rows have a value; null for all.
        shape: the address of the shape of an array of arrays.
    """

    kind: FieldType
    objects: str
    data: str
    step: str
    ends: str
    present: str
    shape: str


class _Cell(NamedTuple):
    """The value of a column in the current row; of a column of optional values that of the type within."""

    column: _Column
    kind: FieldType


class _Table:
    """Writes the function."""

    def __init__(
        self, schema: Schema, layouts: Mapping[Schema, Layout], slots: Mapping[str, int], events: bool
    ) -> None:
        self._schema = schema
        self._layouts = layouts
        self._slots = slots
        self._events = events
        self._checks = Checks()
        self._body = self._checks.body

    def write(self) -> str:
        body, schema = self._body, self._schema
        self._checks.load_words()
        start = self._checks.word("at")
        self._end = body.let(f"inttoptr i64 {self._checks.word('end')} to ptr")
        first_row = self._checks.word("row")
        whole = body.let(f"icmp slt i64 {first_row}, 0")
        first = body.let(f"select i1 {whole}, i64 0, i64 {first_row}")
        # What is done so far: where the next row goes, its end is noted, and which row it is.
        self._cursor, self._mark, self._row = (body.alloca(kind) for kind in ("ptr", "i64", "i64"))
        self._rejected = body.alloca("i64", "0")
        body.put("ptr", body.let(f"inttoptr i64 {start} to ptr"), self._cursor)
        body.put("i64", self._checks.word("mark"), self._mark)
        body.put("i64", first, self._row)
        here = body.call("i64", "@ev_PyThread_get_thread_ident")
        self._checks.require(body.let(f"icmp ne i64 {here}, {self._checks.word('thread')}"))
        self._checks.require(body.let(f"icmp eq i64 {self._checks.word('writing')}, 0"))
        full = body.label()
        source = _Rows(self._checks, self._layouts, self._end, full)
        if self._events:
            rows, items = self._list("%event", None)
            holder: Callable[[str], Any] = lambda row: source.event(schema, items, row)  # noqa: E731
        else:
            rows = self._columns(source)
            holder = lambda row: source.top(schema, row)  # noqa: E731
        most = body.let(f"add i64 {first}, {ROWS}")
        enough = body.let(f"icmp sle i64 {rows}, {most}")
        few = body.let(f"icmp sle i64 {rows}, {min(ROWS, WHOLE // (schema.width or 1))}")
        self._checks.require(body.let(f"or i1 {few}, {body.let(f'xor i1 {whole}, true')}"))
        stop = body.let(f"select i1 {enough}, i64 {rows}, i64 {most}")
        if schema.width is None:
            left = body.let(f"sub i64 {self._checks.word('marks')}, {self._checks.word('mark')}")
            wanted = body.let(f"shl i64 {body.let(f'sub i64 {stop}, {first}')}, 3")
            self._checks.require(body.let(f"icmp sle i64 {wanted}, {left}"))
        gate = self._checks.word("gate", "ptr")
        body.loop(stop, lambda row: self._write_row(Writer(body, source), holder(row), row, gate), first)
        self._note()
        done = body.call("ptr", "@ev_PyBool_FromLong", f"i64 {body.let(f'zext i1 {enough} to i64')}")
        body.ret(f"ptr {done}")
        body.begin(full)
        with body.when(body.let(f"xor i1 {whole}, true")):
            self._checks.set_word("end", "0")
        body.begin(self._checks.refuse)
        with body.when(body.let(f"xor i1 {whole}, true")):
            self._note()
        body.ret("ptr " + body.call("ptr", "@ev_PyBool_FromLong", "i64 0"))
        body.finish()
        return body.module.text()

    def _write_row(self, writer: Writer, holder: Any, row: str, gate: str) -> None:
        body, schema = self._body, self._schema
        out = body.get("ptr", self._cursor)
        behind = writer.record(schema, holder, out)
        body.put("i64", body.let(f"add i64 {row}, 1"), self._row)
        ask, reject, keep, done = (body.label() for _ in range(4))
        body.branch(body.let(f"icmp eq ptr {gate}, null"), keep, ask)
        body.begin(ask)
        passed = body.call("i64", gate, f"ptr {out}")
        body.branch(body.let(f"icmp eq i64 {passed}, 0"), reject, keep)
        body.begin(reject)
        body.put("i64", body.let(f"add i64 {body.get('i64', self._rejected)}, 1"), self._rejected)
        body.jump(done)
        body.begin(keep)
        body.put("ptr", behind, self._cursor)
        if schema.width is None:
            mark = body.get("i64", self._mark)
            end = body.let(f"ptrtoint ptr {behind} to i64")
            body.store("i64", end, body.let(f"inttoptr i64 {mark} to ptr"))
            body.put("i64", body.let(f"add i64 {mark}, 8"), self._mark)
        body.begin(done)

    def _note(self) -> None:
        """Notes what was done."""
        body = self._body
        at = body.let(f"ptrtoint ptr {body.get('ptr', self._cursor)} to i64")
        rejected = body.let(f"add i64 {self._checks.word('rejected')}, {body.get('i64', self._rejected)}")
        known = self._checks.word("row")
        whole = body.let(f"icmp slt i64 {known}, 0")
        row = body.let(f"select i1 {whole}, i64 {known}, i64 {body.get('i64', self._row)}")
        for name, value in (("at", at), ("rejected", rejected), ("row", row)):
            self._checks.set_word(name, value)
        self._checks.set_word("mark", body.get("i64", self._mark))

    def _list(self, value: str, rows: str | None) -> tuple[str, str]:
        """Requires a list, of so many elements; gives how many, and where they are."""
        body = self._body
        self._checks.require_type(value, list)
        size, items = body.load("i64", value, LIST_SIZE), body.load("ptr", value, LIST_ITEMS)
        if rows is not None:
            self._checks.require(body.let(f"icmp eq i64 {size}, {rows}"))
        return size, items

    def _columns(self, source: _Rows) -> str:
        """Finds out where the columns are, all of one length, which it gives."""
        body, found = self._body, list(leaves(self._schema))
        _, given = self._list("%event", str(len(found)))
        rows = ""
        for number, leaf in enumerate(found):
            value = body.load("ptr", given, 8 * number)
            size = self._find(source, leaf, value)
            if rows:
                self._checks.require(body.let(f"icmp eq i64 {size}, {rows}"))
            rows = rows or size
        return rows

    def _find(self, source: _Rows, leaf: Leaf, value: str) -> str:
        """Finds out where a column is; gives its length."""
        body, kind = self._body, leaf.kind
        names = ("objects", "data", "ends", "present", "shape")
        words = {name: body.alloca("ptr", "null") for name in names}
        step, size = body.alloca("i64", "0"), body.alloca("i64", "0")
        source.columns[leaf.path] = _Column(kind, step=step, **words)
        done = body.label()
        held = kind.held
        if not is_kept(held):
            objects, other = body.label(), body.label()
            body.branch(self._checks.is_type(value, list), objects, other)
            body.begin(objects)
            body.put("i64", body.load("i64", value, LIST_SIZE), size)
            body.put("ptr", body.load("ptr", value, LIST_ITEMS), words["objects"])
            body.jump(done)
            body.begin(other)
            if isinstance(held, ListOf):
                body.jump(self._checks.refuse)
                body.begin(done)
                return body.get("i64", size)
            if isinstance(held, Number | Array) and not isinstance(held, Logical):
                array, other = body.label(), body.label()
                body.branch(self._checks.is_type(value, np.ndarray), array, other)
                body.begin(array)
                self._plain(held, value, words, step, size)
                body.jump(done)
                body.begin(other)
        self._checks.require_type(value, Laid)
        values = body.load("ptr", value, self._slots["values"])
        body.put("ptr", body.load("ptr", values, ARRAY_DATA), words["data"])
        if isinstance(held, Str | Text | Bytes | Blob):
            ends = body.load("ptr", value, self._slots["ends"])
            body.put("ptr", body.load("ptr", ends, ARRAY_DATA), words["ends"])
            more = body.load("i64", body.load("ptr", ends, ARRAY_SHAPE))
            body.put("i64", body.let(f"sub i64 {more}, 1"), size)
        else:
            self._take_array(values, words, step, size)
        present = body.load("ptr", value, self._slots["present"])
        with body.when(body.let(f"icmp ne ptr {present}, {pointer(None)}")):
            body.put("ptr", body.load("ptr", present, ARRAY_DATA), words["present"])
        body.begin(done)
        return body.get("i64", size)

    def _plain(self, kind: Number | Array, value: str, words: dict[str, str], step: str, size: str) -> None:
        """Requires an array of numbers of the very type and shape, whose elements lie in order."""
        body, require = self._body, self._checks.require
        number = kind.element if isinstance(kind, Array) else kind
        rank = len(kind.shape) if isinstance(kind, Array) else 0
        # Numpy may have several objects for one dtype, so what is in them is compared.
        dtype = body.load("ptr", value, ARRAY_DTYPE)
        require(body.let(f"icmp eq i32 {body.load('i32', dtype, DTYPE_NUMBER)}, {number.dtype.num}"))
        require(body.let(f"icmp ne i8 {body.load('i8', dtype, DTYPE_ORDER)}, {ord('>')}"))
        require(body.let(f"icmp eq i32 {body.load('i32', value, ARRAY_NDIM)}, {rank + 1}"))
        if isinstance(kind, Array):
            shape, strides = (body.load("ptr", value, at) for at in (ARRAY_SHAPE, ARRAY_STRIDES))
            between = str(kind.item_size)
            for axis in range(rank, 0, -1):
                n, wanted = body.load("i64", shape, 8 * axis), kind.shape[axis - 1]
                limit = f"icmp ule i64 {n}, {1 << 31}" if wanted is None else f"icmp eq i64 {n}, {wanted}"
                require(body.let(limit))
                stride = body.load("i64", strides, 8 * axis)
                require(body.let(f"icmp eq i64 {stride}, {between}"))
                between = body.let(f"mul i64 {between}, {n}")
            require(body.let(f"icmp ult i64 {between}, {1 << 31}"))
        body.put("ptr", body.load("ptr", value, ARRAY_DATA), words["data"])
        self._take_array(value, words, step, size)

    def _take_array(self, value: str, words: dict[str, str], step: str, size: str) -> None:
        body = self._body
        shape, strides = (body.load("ptr", value, at) for at in (ARRAY_SHAPE, ARRAY_STRIDES))
        body.put("i64", body.load("i64", strides), step)
        body.put("i64", body.load("i64", shape), size)
        body.put("ptr", body.at(shape, 8), words["shape"])


class _Rows(Source):
    """Values of rows: of a column its ``_Cell``, of an object its address.

    Attributes:
        columns: by the path of the field.
    """

    def __init__(self, checks: Checks, layouts: Mapping[Schema, Layout], end: str, full: str) -> None:
        self.columns: dict[str, _Column] = {}
        self._body = checks.body
        self._require = checks.require
        self._end, self._full = end, full
        # A value is written once, so what is known of its shape holds wherever it is asked for.
        self._shapes: dict[_Column, list[str]] = {}
        self._row = ""
        self._objects = Objects(checks, layouts)

    def top(self, schema: Schema, row: str) -> Any:
        """What holds the fields of a row of columns."""
        self._row = row
        return schema, ""

    def event(self, schema: Schema, items: str, row: str) -> Any:
        """What holds the fields of an event in a list."""
        event = self._body.load("ptr", items, self._body.let(f"shl i64 {row}, 3"))
        return self._objects.holder(Record(schema.name, {schema.name: schema}), event)

    def reach(self, end: str) -> None:
        fits = self._body.label()
        self._body.branch(self._body.let(f"icmp ule ptr {end}, {self._end}"), fits, self._full)
        self._body.begin(fits)

    def require(self, condition: str, value: Any, reason: str) -> None:
        self._require(condition)

    def field(self, holder: tuple[Schema, str], field: Field) -> Any:
        _, where = holder
        if where.startswith("%"):
            return self._objects.field(holder, field)
        path = f"{where}{field.name}"
        column = self.columns.get(path)
        return f"{path}." if column is None else _Cell(column, column.kind)

    def holder(self, kind: Record, value: str) -> tuple[Schema, str]:
        return self._objects.holder(kind, value) if value.startswith("%") else (kind.schema, value)

    def _object(self, cell: _Cell) -> str:
        """The object in the current row."""
        body = self._body
        objects = body.get("ptr", cell.column.objects)
        return body.load("ptr", objects, body.let(f"shl i64 {self._row}, 3"))

    def _choose(self, cell: _Cell, kinds: tuple[str, ...], objects: Any, laid: Any) -> list[str]:
        """What one writes where the column is of objects, else the other; of what is kept there are none."""
        if is_kept(cell.kind):
            return list(laid())
        held = self._body.get("ptr", cell.column.objects)
        there = self._body.let(f"icmp ne ptr {held}, null")
        return self._body.choose(there, kinds, lambda: objects(self._object(cell)), laid)

    def _place(self, cell: _Cell) -> str:
        """The address of a number, or of the first element of an array."""
        body = self._body
        ahead = body.let(f"mul i64 {body.get('i64', cell.column.step)}, {self._row}")
        return body.at(body.get("ptr", cell.column.data), ahead)

    def present(self, value: _Cell | str) -> str:
        if isinstance(value, str):
            return self._objects.present(value)
        body = self._body

        def laid() -> list[str]:
            known = body.get("ptr", value.column.present)
            return body.choose(
                body.let(f"icmp eq ptr {known}, null"),
                ("i1",),
                lambda: ["true"],
                lambda: [body.let(f"icmp ne i8 {body.load('i8', known, self._row)}, 0")],
            )

        inner = _Cell(value.column, value.kind.held)
        return self._choose(inner, ("i1",), lambda given: [self._objects.present(given)], laid)[0]

    def number(self, kind: Number, value: _Cell | str) -> str:
        if isinstance(value, str):
            return self._objects.number(kind, value)
        body, word = self._body, f"i{8 * max(kind.size, 1)}"

        def laid() -> list[str]:
            found = body.load(word, self._place(value))
            # A byte that numpy takes for a bool may be any.
            return [
                body.let(f"zext i1 {body.let(f'icmp ne i8 {found}, 0')} to i8") if kind.kind == "b" else found
            ]

        cell = _Cell(value.column, kind)
        return self._choose(cell, (word,), lambda given: [self._objects.number(kind, given)], laid)[0]

    def piece(self, kind: FieldType, value: _Cell | str) -> Piece:
        if isinstance(value, str):
            return self._objects.piece(kind, value)
        body = self._body

        def laid() -> list[str]:
            ends, scaled = body.get("ptr", value.column.ends), body.let(f"shl i64 {self._row}, 3")
            start = body.load("i64", ends, scaled)
            behind = body.load("i64", ends, body.let(f"add i64 {scaled}, 8"))
            return [
                body.at(body.get("ptr", value.column.data), start),
                body.let(f"sub i64 {behind}, {start}"),
            ]

        where, size = self._choose(
            _Cell(value.column, kind),
            ("ptr", "i64"),
            lambda given: list(self._objects.piece(kind, given)[:2]),
            laid,
        )
        return where, size, size

    def shape(self, kind: Array, value: _Cell | str) -> list[str]:
        if isinstance(value, str):
            return self._objects.shape(kind, value)
        if value.column in self._shapes:
            return self._shapes[value.column]
        body, rank = self._body, len(kind.shape)

        def laid() -> list[str]:
            known = body.get("ptr", value.column.shape)
            return [body.load("i64", known, 8 * axis) for axis in range(rank)]

        shape = self._shapes[value.column] = self._choose(
            _Cell(value.column, kind),
            ("i64",) * rank,
            lambda given: self._objects.shape(kind, given),
            laid,
        )
        return shape

    def size(self, kind: Array, value: _Cell | str) -> str:
        if isinstance(value, str):
            return self._objects.size(kind, value)
        size = str(kind.item_size)
        for n in self.shape(kind, value):
            size = self._body.let(f"mul i64 {size}, {n}")
        self._require(self._body.let(f"icmp ult i64 {size}, {1 << 31}"))
        return size

    def items(self, kind: ListOf, value: _Cell | str) -> tuple[str, Callable[[str], str]]:
        return self._objects.items(kind, self._object(value) if isinstance(value, _Cell) else value)

    def copy_elements(self, kind: Array, value: _Cell | str, size: str, target: str) -> None:
        if isinstance(value, str):
            self._objects.copy_elements(kind, value, size, target)
            return
        source = self._choose(
            _Cell(value.column, kind),
            ("ptr",),
            lambda given: [self._body.load("ptr", given, ARRAY_DATA)],
            lambda: [self._place(value)],
        )[0]
        copy_array(self._body, kind, source, size, target)

    def copy_short(self, piece: Piece, target: str, capacity: int) -> None:
        self._body.copy(target, piece[0], piece[1])

    def copy(self, value: Any, piece: Piece, target: str) -> None:
        self._body.copy(target, piece[0], piece[1])
