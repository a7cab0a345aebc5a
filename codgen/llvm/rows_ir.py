"""Columns to encoded rows as LLVM IR: a few rows at a time, and in these one column after the other.

So both what is read and what is written stays in the innermost cache, also where all columns begin at the
same place of a page.
"""

from __future__ import annotations

from collections.abc import Callable

from evflow.codgen.llvm.ir import Body, Module
from evflow.schema import Schema
from evflow.schema.program import head, image
from evflow.schema.types import Array, FieldType, Number, Str

__all__ = ["can_encode_rows", "write_rows_encoder"]

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
    columns = []
    offset, header = 0, schema.header
    for number, field in enumerate(schema.wire_fields):
        address, step = (body.load("i64", "%words", 16 * number + at) for at in (16, 24))
        columns.append(_Column(body, field.type, header, offset, address, step))
        offset += len(header) + (field.type.width or 0)
        header = b""
    block = max(1, _BLOCK // width)

    def write_block(start: str) -> None:
        last = body.let(f"add i64 {start}, {block}")
        end = body.let(f"call i64 @llvm.umin.i64(i64 {last}, i64 {rows})")
        for column in columns:
            column.write(start, end, target, width)

    _loop(body, "0", rows, block, write_block)
    body.ret()
    body.finish()
    return body.module.text()


def _loop(body: Body, start: str, end: str, step: int, write: Callable[[str], None]) -> None:
    """Does something for each number from ``start`` up to ``end``."""
    counter = body.alloca("i64")
    body.store("i64", start, counter)
    again, each, done = (body.label() for _ in range(3))
    body.begin(again)
    number = body.load("i64", counter)
    body.branch(body.let(f"icmp ult i64 {number}, {end}"), each, done)
    body.begin(each)
    write(number)
    body.store("i64", body.let(f"add i64 {number}, {step}"), counter)
    body.jump(again)
    body.begin(done)


def _pointer(body: Body, start: str, step: str | int, number: str) -> str:
    address = body.let(f"add i64 {start}, {body.let(f'mul i64 {number}, {step}')}")
    return body.let(f"inttoptr i64 {address} to ptr")


class _Column:
    """Writes the code for a column: of each value constant bytes before it, and its own.

    Args:
        body: the function.
        kind: the column's type.
        header: bytes of the event before the field, if it is the first.
        offset: bytes of the row before these.
        address: of the first value.
        step: bytes from one value to the next.
    """

    def __init__(
        self, body: Body, kind: FieldType, header: bytes, offset: int, address: str, step: str
    ) -> None:
        self._body, self._kind, self._offset = body, kind, offset
        self._address, self._step = address, step
        # An empty text is constant, too.
        constant = image(kind) if isinstance(kind, Str) else head(kind)
        self._size = (kind.width or 0) - len(constant)
        self._constant = header + constant

    def write(self, start: str, end: str, target: str, width: int) -> None:
        """Writes the values from one number up to another to rows of some width, of which the first begins at
        an address."""
        body = self._body

        def write_one(number: str) -> None:
            row = _pointer(body, target, width, number)
            self._write_one(_pointer(body, self._address, self._step, number), body.at(row, self._offset))

        _loop(body, start, end, 1, write_one)

    def _write_one(self, source: str, target: str) -> None:
        body, kind = self._body, self._kind
        if self._constant:
            body.copy(target, body.module.constant(self._constant), len(self._constant))
        place = body.at(target, len(self._constant))
        if isinstance(kind, Array):
            body.copy(place, source, self._size)
        elif isinstance(kind, Number):
            bits = 8 * self._size
            value = body.load(f"i{bits}", source)
            if kind.kind == "b":
                value = body.let(f"add i8 {value}, {kind.marker - 256}")
            body.store(f"i{bits}", body.swap(bits, value), place)
