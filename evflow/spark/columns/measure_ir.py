"""How many bytes an event will take, measured by native code in Arrow memory."""

from __future__ import annotations

from evflow.codgen.llvm.ir import Body
from evflow.schema import Schema
from evflow.schema.types import Array, ListOf, Record
from evflow.spark.columns.columns_ir import Columns
from evflow.spark.columns.forms import Form
from evflow.spark.columns.native import loop

__all__ = ["record_size"]


def record_size(columns: Columns, body: Body, schema: Schema, forms: tuple[Form, ...], index: str) -> str:
    """Bytes of a record on the wire (i64).

    Args:
        columns: where the rows are.
        body: the function.
        schema: the record's.
        forms: those of its fields.
        index: of the record.
    """
    total = str(schema.fixed_width)
    for field in schema.wire_fields:
        if field.offset is None:
            total = body.let(f"add i64 {total}, {_size(columns, body, forms[field.index], index)}")
    return total


def _size(columns: Columns, body: Body, form: Form, index: str) -> str:
    """Bytes of a value on the wire."""
    if not form.optional:
        return _held_size(columns, body, form, index)
    there = columns.present(form, index)
    if form.kind.width is not None:
        return body.let(f"select i1 {there}, i64 {form.kind.width}, i64 1")
    some, done = body.label(), body.label()
    before = body.block
    body.branch(there, some, done)
    body.begin(some)
    size = _held_size(columns, body, form, index)
    measured = body.block
    body.begin(done)
    return body.phi("i64", [("1", before), (size, measured)])


def _held_size(columns: Columns, body: Body, form: Form, index: str) -> str:
    kind = form.kind
    if kind.width is not None:
        return str(kind.width)
    if isinstance(kind, Record):
        return record_size(columns, body, kind.schema, form.children, index)
    if isinstance(kind, Array):
        _, size = columns.elements(form, index)
        return body.let(f"add i64 {size}, {kind.data_offset}")
    start, count = columns.range(form, index)
    if isinstance(kind, ListOf):
        count = _list_size(columns, body, form.children[0], start, count)
    return body.let(f"add i64 {count}, 5")


def _list_size(columns: Columns, body: Body, element: Form, start: str, count: str) -> str:
    if element.kind.width is not None and not element.optional:
        return body.let(f"mul i64 {count}, {element.kind.width}")
    total = body.alloca("i64")
    body.do(f"store i64 0, ptr {total}")

    def add(i: str) -> None:
        size = _size(columns, body, element, body.let(f"add i64 {start}, {i}"))
        before = body.let(f"load i64, ptr {total}")
        body.do(f"store i64 {body.let(f'add i64 {before}, {size}')}, ptr {total}")

    loop(body, count, add)
    return body.let(f"load i64, ptr {total}")
