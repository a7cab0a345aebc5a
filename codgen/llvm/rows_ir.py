"""Columns to encoded rows as LLVM IR: a few rows at a time, and in these one column after the other.

So both what is read and what is written stays in the innermost cache, also where all columns begin at the
same place of a page.
"""

from __future__ import annotations

from functools import partial

from evflow.codgen.llvm.ir import Body, Module
from evflow.codgen.llvm.writer_ir import Source, Writer, copy_array
from evflow.schema import Field, Schema
from evflow.schema.program import head, image
from evflow.schema.types import Array, Number, Str

_BLOCK = 8 << 10
"""Bytes of the rows that are written together."""


def can_encode_rows(schema: Schema) -> bool:
    """Whether ``write_rows_encoder`` takes a schema: one of numbers, arrays and text of fixed width."""
    return schema.width is not None and all(
        isinstance(field.type, Number | Str | Array) for field in schema.fields
    )


def write_rows_encoder(schema: Schema) -> str:
    """The function ``run(ptr words)`` that encodes rows back to back, with every text empty.

    The words are int64: how many rows, where they go, and of each field in the order of the wire the address
    of its first value, and bytes from one to the next. Values are as numpy has them: numbers in this
    machine's byte order, arrays with their elements in order. Those of text are not used.

    Args:
        schema: one that ``can_encode_rows`` takes.

    Returns:
        The module.
    """
    width = schema.width
    assert width is not None
    body = Body(Module(), "void @run(ptr %words) nounwind")
    body.module.declare("i64 @llvm.umin.i64(i64, i64)")
    rows, target = (body.load("i64", "%words", at) for at in (0, 8))
    columns = [
        [body.load("i64", "%words", 16 * number + at) for at in (16, 24)] for number in range(len(schema))
    ]
    writer = Writer(body, _Column(body))
    block = max(1, _BLOCK // width)

    def write_block(start: str) -> None:
        end = body.call(
            "i64", "@llvm.umin.i64", f"i64 {body.let(f'add i64 {start}, {block}')}", f"i64 {rows}"
        )
        for field, column in zip(schema.wire_fields, columns, strict=True):
            body.loop(end, partial(write_one, field, *column), start)

    def write_one(field: Field, address: str, step: str, number: str) -> None:
        kind = field.type
        out = body.at(
            _pointer(body, target, width, number), 0 if field.wire_index == 0 else field.offset or 0
        )
        # An empty text is constant, too.
        constant = image(kind) if isinstance(kind, Str) else head(kind)
        if field.wire_index == 0:
            constant = schema.header + constant
        if constant:
            body.copy(out, body.module.constant(constant), len(constant))
        if not isinstance(kind, Str):
            writer.content(kind, _pointer(body, address, step, number), out, len(constant))

    body.loop(rows, write_block, step=block)
    body.ret()
    body.finish()
    return body.module.text()


def _pointer(body: Body, start: str, step: str | int, number: str) -> str:
    address = body.let(f"add i64 {start}, {body.let(f'mul i64 {number}, {step}')}")
    return body.let(f"inttoptr i64 {address} to ptr")


class _Column(Source):
    """Columns of numpy, of which a value is its address."""

    def __init__(self, body: Body) -> None:
        self._body = body

    def number(self, kind: Number, value: str) -> str:
        number = self._body.load(f"i{8 * max(kind.size, 1)}", value)
        if kind.kind != "b":
            return number
        return self._body.let(f"zext i1 {self._body.let(f'icmp ne i8 {number}, 0')} to i8")

    def shape(self, kind: Array, value: str) -> list[str]:
        return [str(n) for n in kind.shape]

    def copy_elements(self, kind: Array, value: str, size: str, target: str) -> None:
        copy_array(self._body, kind, value, size, target)
