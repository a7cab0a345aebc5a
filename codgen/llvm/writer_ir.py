"""Values to bytes on the wire, as LLVM IR: one writer for objects of Python, columns of numpy and of Arrow.

Where values come from is a ``Source``; how they lie on the wire is here. A writer that measures says how many
bytes a value takes, and writes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from evflow.codgen.llvm.ir import Body
from evflow.schema import Field, Schema
from evflow.schema.program import LENGTH, NIL, head, steps, varying
from evflow.schema.types import Array, Blob, Bytes, FieldType, ListOf, Maybe, Number, Record, Str, Text

Piece = tuple[str, str, str]
"""Text or bytes: where they are, how many (i64), and how many may be read from there on (i64)."""


class Source:
    """Where values come from. A value is whatever the source takes for one; operands are of LLVM.

    A source has those methods that the types of its schemas need.
    """

    def reach(self, end: str) -> None:
        """Goes on only where what is written may reach up to an address; asked where widths vary."""

    def field(self, holder: Any, field: Field) -> Any:
        """The value of a field of a record."""
        raise NotImplementedError

    def holder(self, kind: Record, value: Any) -> Any:
        """What holds the fields of a record."""
        raise NotImplementedError

    def require(self, condition: str, value: Any, reason: str) -> None:
        """Goes on only where a condition (i1) holds; else a value is wrong: ``null``, ``long``, ``nul`` or
        ``shape``."""
        raise NotImplementedError

    def present(self, value: Any) -> str:
        """True if an optional has a value (i1)."""
        raise NotImplementedError

    def number(self, kind: Number, value: Any) -> str:
        """A number as an integer of its size, in this machine's byte order; of a bool 0 or 1 (i8)."""
        raise NotImplementedError

    def piece(self, kind: FieldType, value: Any) -> Piece:
        """A text as UTF-8, or bytes."""
        raise NotImplementedError

    def shape(self, kind: Array, value: Any) -> list[str]:
        """The dimensions of an array (i64), which are right."""
        raise NotImplementedError

    def size(self, kind: Array, value: Any) -> str:
        """Bytes of the elements of an array (i64)."""
        raise NotImplementedError

    def items(self, kind: ListOf, value: Any) -> tuple[str, Callable[[str], Any]]:
        """How many elements a list has (i64), and the one at an index."""
        raise NotImplementedError

    def copy_elements(self, kind: Array, value: Any, size: str, target: str) -> None:
        """Copies the elements of an array to where they belong."""
        raise NotImplementedError

    def copy(self, value: Any, piece: Piece, target: str) -> None:
        """Copies text or bytes to where nothing behind them is written yet."""
        raise NotImplementedError

    def copy_short(self, piece: Piece, target: str, capacity: int) -> None:
        """Copies at most so many bytes over zeros."""
        raise NotImplementedError


def copy_array(body: Body, kind: Array, source: str, size: str, target: str) -> None:
    """Copies the elements of an array of numpy, of which a true one may be any byte but 0.

    Args:
        body: where the instructions go.
        kind: the type of the array.
        source: the address of the first element, behind which the others lie in order.
        size: bytes of the elements (i64).
        target: where they go.
    """
    if kind.element.kind != "b":
        body.copy(target, source, size)
        return

    def copy_one(at: str) -> None:
        true = body.let(f"icmp ne i8 {body.load('i8', source, at)}, 0")
        body.store("i8", body.let(f"zext i1 {true} to i8"), target, at)

    body.loop(size, copy_one)


class Writer:
    """Writes into a function what puts values on the wire.

    Args:
        body: the function.
        source: where values come from.
        measuring: True to measure only: what is said to be an address then is a number of bytes (i64).
    """

    def __init__(self, body: Body, source: Source, *, measuring: bool = False) -> None:
        self._body = body
        self._source = source
        self._measuring = measuring

    def _behind(self, out: str, size: int | str) -> str:
        if self._measuring:
            return self._body.let(f"add i64 {out}, {size}")
        return self._body.at(out, size)

    def record(self, schema: Schema, holder: Any, out: str) -> str:
        """Writes a record; returns where it ends.

        Args:
            schema: the record's.
            holder: what holds its fields.
            out: where it starts.
        """
        behind = self._behind(out, schema.fixed_width)
        if not self._measuring:
            self._source.reach(behind)
            self._constants(schema, out)
            self._contents(schema, holder, out)
        out = behind
        for field in varying(schema):
            self._body.split()
            out = self.value(field.type, self._source.field(holder, field), out)
        return out

    def _constants(self, schema: Schema, out: str) -> None:
        """Writes all that is the same in each event, and zeros where text and bytes follow."""
        for at, data in _runs(schema):
            self._body.copy(self._body.at(out, at), self._body.module.constant(data), len(data))

    def _contents(self, schema: Schema, holder: Any, out: str) -> None:
        for field in schema.wire_fields:
            if field.offset is None:
                continue
            self._body.split()
            kind, value = field.type, self._source.field(holder, field)
            if isinstance(kind, Record):
                inner = self._body.at(out, field.offset)
                self._contents(kind.schema, self._source.holder(kind, value), inner)
            else:
                self.content(kind, value, out, field.offset + len(head(kind)))

    def content(self, kind: FieldType, value: Any, out: str, at: int) -> None:
        """Writes a value of fixed width, which is not missing, over zeros.

        Args:
            kind: its type.
            value: the value.
            out: an address.
            at: bytes from there to where the value's head ends.
        """
        # An address that is found where it is used takes no register until then.
        body, source = self._body, self._source
        if isinstance(kind, Number) and kind.kind == "b":
            marker = body.let(f"add i8 {source.number(kind, value)}, {kind.marker - 256}")
            body.store("i8", marker, out, at)
        elif isinstance(kind, Number):
            bits = 8 * kind.size
            body.store(f"i{bits}", body.swap(bits, source.number(kind, value)), out, at)
        elif isinstance(kind, Array):
            source.shape(kind, value)
            size = str((kind.width or 0) - kind.data_offset)
            source.copy_elements(kind, value, size, body.at(out, at))
        else:
            assert isinstance(kind, Str | Bytes)
            self._short(kind, value, out, at)

    def _short(self, kind: Str | Bytes, value: Any, out: str, at: int) -> None:
        body, source = self._body, self._source
        piece = source.piece(kind, value)
        size = piece[1]
        source.require(body.let(f"icmp ule i64 {size}, {kind.capacity}"), value, "long")
        if isinstance(kind, Bytes):
            body.store("i16", body.let(f"trunc i64 {size} to i16"), out, at)
            source.copy_short(piece, body.at(out, at + 2), kind.capacity)
            return
        source.copy_short(piece, body.at(out, at), kind.capacity)
        # Of an empty text it is the byte before: the end of the head.
        last = body.load("i8", out, body.let(f"add i64 {size}, {at - 1}"))
        filled, empty = body.let(f"icmp ne i8 {last}, 0"), body.let(f"icmp eq i64 {size}, 0")
        source.require(body.let(f"or i1 {filled}, {empty}"), value, "nul")

    def value(self, kind: FieldType, value: Any, out: str) -> str:
        """Writes a value of any type; returns where it ends."""
        if isinstance(kind, Maybe):
            return self._optional(kind.element, value, out)
        if isinstance(kind, Record):
            return self.record(kind.schema, self._source.holder(kind, value), out)
        if kind.width is not None:
            behind = self._behind(out, kind.width)
            if not self._measuring:
                self._source.reach(behind)
                constant = head(kind)
                zeros = kind.width - len(constant) if isinstance(kind, Str | Bytes) else 0
                self._put(constant + bytes(zeros), out)
                self.content(kind, value, out, len(constant))
            return behind
        if isinstance(kind, ListOf):
            return self._list(kind, value, out)
        if isinstance(kind, Array):
            return self._array(kind, value, out)
        assert isinstance(kind, Text | Blob)
        piece = self._source.piece(kind, value)
        target = self._behind(out, LENGTH)
        behind = self._behind(target, piece[1])
        if not self._measuring:
            self._source.reach(behind)
            self._length(kind, piece[1], out)
            self._source.copy(value, piece, target)
        return behind

    def _put(self, data: bytes, out: str) -> None:
        self._body.copy(out, self._body.module.constant(data), len(data))

    def _optional(self, kind: FieldType, value: Any, out: str) -> str:
        body = self._body
        there = self._source.present(value)
        if self._measuring and kind.width is not None:
            return self._behind(out, body.let(f"select i1 {there}, i64 {kind.width}, i64 1"))
        some, nil, done = body.label(), body.label(), body.label()
        body.branch(there, some, nil)
        body.begin(nil)
        behind_nil = self._behind(out, 1)
        if not self._measuring:
            self._source.reach(behind_nil)
            body.store("i8", str(NIL - 256), out)
        nil = body.block
        body.jump(done)
        body.begin(some)
        behind = self.value(kind, value, out)
        written = body.block
        body.begin(done)
        return body.phi("i64" if self._measuring else "ptr", [(behind_nil, nil), (behind, written)])

    def _length(self, kind: FieldType, length: str, out: str) -> None:
        """Writes a marker, and a length (i64) behind it."""
        body = self._body
        self._put(head(kind), out)
        body.store("i32", body.swap(32, body.let(f"trunc i64 {length} to i32")), out, 1)

    def _list(self, kind: ListOf, value: Any, out: str) -> str:
        body, element = self._body, kind.element
        count, item = self._source.items(kind, value)
        target = self._behind(out, LENGTH)
        if not self._measuring:
            self._source.reach(target)
            self._length(kind, count, out)
        if self._measuring and element.width is not None:
            return self._behind(target, body.let(f"mul i64 {count}, {element.width}"))
        word = "i64" if self._measuring else "ptr"
        cursor = body.alloca(word)
        body.do(f"store {word} {target}, ptr {cursor}")

        def put(index: str) -> None:
            here = body.let(f"load {word}, ptr {cursor}")
            body.do(f"store {word} {self.value(element, item(index), here)}, ptr {cursor}")

        body.loop(count, put)
        return body.let(f"load {word}, ptr {cursor}")

    def _array(self, kind: Array, value: Any, out: str) -> str:
        """An array of varying shape."""
        body, rank = self._body, len(kind.shape)
        size = self._source.size(kind, value)
        target = self._behind(out, kind.data_offset)
        behind = self._behind(target, size)
        if not self._measuring:
            self._source.reach(behind)
            self._length(kind, body.let(f"add i64 {size}, {1 + 4 * rank}"), out)
            self._put(bytes([kind.element.code, rank]), body.at(out, LENGTH))
            for axis, n in enumerate(self._source.shape(kind, value)):
                at = Array.HEAD + 1 + 4 * axis
                body.store("i32", body.let(f"trunc i64 {n} to i32"), out, at)
            self._source.copy_elements(kind, value, size, target)
        return behind


def _runs(schema: Schema) -> list[tuple[int, bytes]]:
    """What is the same in all events of a schema, and zeros for text and bytes, by offset.

    Numbers and elements of arrays lie between.
    """
    found: list[tuple[int, bytes]] = []
    run, start = b"", 0
    for at, _, what in steps(schema):
        if isinstance(what, bytes):
            run += what
            continue
        size = (what.width or 0) - len(head(what))
        if isinstance(what, Str | Bytes):
            run += bytes(size)
        else:
            found.append((start, run))
            run, start = b"", at + size
    return [(at, data) for at, data in (*found, (start, run)) if data]
