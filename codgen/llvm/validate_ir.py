"""A validator of one schema's bytes as LLVM IR: it believes nothing that it has not checked.

A record, and each type of variable width, is a function ``i64 (ptr context, ptr data, i64 at, i64 end, i64
depth)`` that gives where the value ends, or -1. Where something is wrong is noted once, as the number of a
``Site``, and the functions that are left on the way out add which field or element they were in.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct, field

from evflow.codgen.llvm.ir import Body, Module
from evflow.codgen.llvm.layout import type_name
from evflow.codgen.llvm.utf8_ir import utf8
from evflow.schema import Schema
from evflow.schema.program import LENGTH, NIL, head, steps, varying
from evflow.schema.types import (
    MAX_DEPTH,
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

HEAD = ("data", "size", "count", "offsets", "rows", "site", "at", "steps")
"""The words of the context: the data, its size, how many events (-1: till the end), where offsets go; then
what was found: how many events are right, the site of what is wrong (-1: nothing), where it is, and how many
steps of the path follow."""

PATH = 2 * MAX_DEPTH + 8
"""Words behind ``HEAD`` for the path, innermost step first: a name's number, or -1 - index of an element."""

_BAD = "bad"


class Site(Struct, frozen=True):
    """What can be wrong: the field within its record, and what was expected."""

    name: str
    expected: str


class ValidatorText(Struct):
    """A validator before it is compiled; its entry is ``void run(ptr context)``.

    Attributes:
        ir: the module.
        sites: what can be wrong, by number.
        names: the names that steps of a path refer to.
    """

    ir: str = ""
    sites: dict[Site, int] = field(default_factory=dict)
    names: dict[str, int] = field(default_factory=dict)


def write_validator(schema: Schema) -> ValidatorText:
    """Writes the module of a schema."""
    text, module = ValidatorText(), Module()
    record = _routine(module, text, Record(schema.name, {schema.name: schema}))
    _write_run(module, text, record, schema.width is None)
    text.ir = module.text()
    return text


def _write_run(module: Module, text: ValidatorText, record: str, indexed: bool) -> None:
    body = Body(module, "void @run(ptr noalias %ctx) nounwind")
    data, size, count, offsets = (
        body.load("ptr" if name in ("data", "offsets") else "i64", "%ctx", 8 * HEAD.index(name))
        for name in HEAD[:4]
    )
    at, row = body.alloca("i64", "0"), body.alloca("i64", "0")
    open_ = body.let(f"icmp slt i64 {count}, 0")
    test, turn, right, ended, wrong, done = (body.label() for _ in range(6))
    body.begin(test)
    here, n = body.let(f"load i64, ptr {at}"), body.let(f"load i64, ptr {row}")
    at_end, enough = body.let(f"icmp eq i64 {here}, {size}"), body.let(f"icmp eq i64 {n}, {count}")
    body.branch(body.let(f"select i1 {open_}, i1 {at_end}, i1 {enough}"), ended, turn)
    body.begin(turn)
    behind = body.call("i64", record, "ptr %ctx", f"ptr {data}", f"i64 {here}", f"i64 {size}", "i64 0")
    body.branch(body.let(f"icmp slt i64 {behind}, 0"), done, right)
    body.begin(right)
    next_row = body.let(f"add i64 {n}, 1")
    if indexed:
        body.store("i64", behind, offsets, body.let(f"shl i64 {next_row}, 3"))
    body.do(f"store i64 {behind}, ptr {at}")
    body.do(f"store i64 {next_row}, ptr {row}")
    body.jump(test)
    body.begin(ended)
    body.branch(at_end, done, wrong)
    body.begin(wrong)
    site = text.sites.setdefault(Site("", "the end of the bytes"), len(text.sites))
    body.do(f"call void {_fail(module)}(ptr %ctx, i64 {site}, i64 {here})")
    body.begin(done)
    body.store("i64", body.let(f"load i64, ptr {row}"), "%ctx", 8 * HEAD.index("rows"))
    body.ret()
    body.finish()


def _fail(module: Module) -> str:
    def write(_: str) -> None:
        body = Body(module, "internal void @v.fail(ptr %ctx, i64 %site, i64 %at) noinline cold nounwind")
        body.store("i64", "%site", "%ctx", 8 * HEAD.index("site"))
        body.store("i64", "%at", "%ctx", 8 * HEAD.index("at"))
        body.ret()
        body.finish()

    return module.routine("@v.fail", write)


def _under(module: Module) -> str:
    """Adds a step to the path of what is wrong."""

    def write(_: str) -> None:
        body = Body(module, "internal void @v.under(ptr %ctx, i64 %step) noinline cold nounwind")
        steps = body.load("i64", "%ctx", 8 * HEAD.index("steps"))
        add, done = body.label(), body.label()
        body.branch(body.let(f"icmp ult i64 {steps}, {PATH}"), add, done)
        body.begin(add)
        path = body.at("%ctx", 8 * len(HEAD))
        body.store("i64", "%step", path, body.let(f"shl i64 {steps}, 3"))
        body.store("i64", body.let(f"add i64 {steps}, 1"), "%ctx", 8 * HEAD.index("steps"))
        body.begin(done)
        body.ret()
        body.finish()

    return module.routine("@v.under", write)


def _routine(module: Module, text: ValidatorText, kind: FieldType) -> str:
    """The function that validates a value of a type."""

    def write(name: str) -> None:
        parameters = "ptr %ctx, ptr %data, i64 %at, i64 %end, i64 %depth"
        checks = _Checks(Body(module, f"internal i64 {name}({parameters}) nounwind"), text)
        checks.write(kind)

    return module.routine(f'@"v.{type_name(kind)}"', write)


class _Checks:
    """Writes one function. Inside, positions are i64 operands, and ``name`` is the field being checked."""

    def __init__(self, body: Body, text: ValidatorText) -> None:
        self._body = body
        self._text = text
        self._bad: list[tuple[str, str, str]] = []
        self._name = ""

    def write(self, kind: FieldType) -> None:
        """Writes the function of a type."""
        body = self._body
        if isinstance(kind, Record):
            behind = self._record(kind.schema)
        elif isinstance(kind, ListOf):
            behind = self._list(kind)
        else:
            behind = self._value(kind, "%at")
        body.ret(f"i64 {behind}")
        if self._bad:
            body.begin(_BAD)
            site = body.phi("i64", [(s, label) for s, _, label in self._bad])
            at = body.phi("i64", [(p, label) for _, p, label in self._bad])
            body.do(f"call void {_fail(body.module)}(ptr %ctx, i64 {site}, i64 {at})")
            body.ret("i64 -1")
        body.finish()

    def _require(self, condition: str, at: str, expected: str) -> None:
        site = self._text.sites.setdefault(Site(self._name, expected), len(self._text.sites))
        self._bad.append((str(site), at, self._body.block))
        on = self._body.label()
        self._body.branch(condition, on, _BAD)
        self._body.begin(on)

    def _need(self, at: str, size: int | str) -> None:
        """Requires ``size`` more bytes behind ``at``, which is not behind the end."""
        left = self._body.let(f"sub i64 %end, {at}")
        wanted = f"{size} bytes" if isinstance(size, int) else "as many bytes as its length says"
        self._require(self._body.let(f"icmp ule i64 {size}, {left}"), at, wanted)

    def _bytes(self, at: str, expected: bytes) -> None:
        """Requires constant bytes, which are within the data."""
        done = 0
        while done < len(expected):
            size = next(n for n in (8, 4, 2, 1) if n <= len(expected) - done)
            part = expected[done : done + size]
            where = self._plus(at, done)
            found = self._body.load(f"i{8 * size}", "%data", where)
            wanted = int.from_bytes(part, "little", signed=True)
            right = self._body.let(f"icmp eq i{8 * size} {found}, {wanted}")
            self._require(right, where, f"0x{part.hex()}")
            done += size

    def _plus(self, at: str, more: int | str) -> str:
        return at if more == 0 else self._body.let(f"add i64 {at}, {more}")

    def _pointer(self, at: str) -> str:
        return self._body.at("%data", at)

    def _call(self, kind: FieldType, at: str, step: Callable[[], str] | None) -> str:
        """Validates a value by its own function; adds ``step`` to the path where that finds something
        wrong."""
        body = self._body
        # An optional or a list hands its own depth on; a record is one deeper than the one that holds it.
        depth = body.let("add i64 %depth, 1") if isinstance(kind, Record) else "%depth"
        routine = _routine(body.module, self._text, kind)
        behind = body.call("i64", routine, "ptr %ctx", "ptr %data", f"i64 {at}", "i64 %end", f"i64 {depth}")
        wrong, on = body.label(), body.label()
        body.branch(body.let(f"icmp slt i64 {behind}, 0"), wrong, on)
        body.begin(wrong)
        if step is not None:
            body.do(f"call void {_under(body.module)}(ptr %ctx, i64 {step()})")
        body.ret("i64 -1")
        body.begin(on)
        return behind

    def _record(self, schema: Schema) -> str:
        shallow = self._body.let(f"icmp ult i64 %depth, {MAX_DEPTH - _inner_records(schema)}")
        self._require(shallow, "%at", f"at most {MAX_DEPTH} records within each other")
        self._need("%at", schema.fixed_width)
        for start, self._name, what in steps(schema):
            here = self._plus("%at", start)
            if isinstance(what, bytes):
                self._bytes(here, what)
            else:
                self._content(what, here)
        at = self._plus("%at", schema.fixed_width)
        for f in varying(schema):
            self._name = f.name
            at = self._field(f.type, at)
        return at

    def _field(self, kind: FieldType, at: str) -> str:
        """A field of variable width."""
        if isinstance(kind, (Text, Blob, Array)):
            return self._value(kind, at)
        name = self._text.names.setdefault(self._name, len(self._text.names))
        return self._call(kind, at, lambda: str(name))

    def _value(self, kind: FieldType, at: str) -> str:
        """A value that may be behind the end of the data; gives where it ends."""
        if isinstance(kind, Maybe):
            return self._optional(kind, at)
        if isinstance(kind, (Text, Blob)):
            return self._long(kind, at)
        if isinstance(kind, Array) and not kind.static:
            return self._array(kind, at)
        assert kind.width is not None
        self._need(at, kind.width)
        constant = head(kind)
        self._bytes(at, constant)
        self._content(kind, self._plus(at, len(constant)))
        return self._plus(at, kind.width)

    def _optional(self, kind: Maybe, at: str) -> str:
        body = self._body
        self._need(at, 1)
        nil, some = body.label(), body.label()
        marker = body.load("i8", self._pointer(at))
        body.branch(body.let(f"icmp eq i8 {marker}, {NIL - 256}"), nil, some)
        body.begin(nil)
        body.ret(f"i64 {self._plus(at, 1)}")
        body.begin(some)
        if isinstance(kind.element, (Record, ListOf)):
            return self._call(kind.element, at, None)
        return self._value(kind.element, at)

    def _length(self, kind: FieldType, at: str) -> str:
        """A marker and the big-endian length behind it (i64)."""
        self._need(at, LENGTH)
        self._bytes(at, head(kind))
        body = self._body
        return body.let(f"zext i32 {body.swap(32, body.load('i32', '%data', self._plus(at, 1)))} to i64")

    def _long(self, kind: Text | Blob, at: str) -> str:
        size = self._length(kind, at)
        start = self._plus(at, LENGTH)
        self._need(start, size)
        if isinstance(kind, Text):
            self._utf8(start, size)
        return self._plus(start, size)

    def _utf8(self, at: str, size: int | str) -> None:
        valid = self._body.call("i1", utf8(self._body.module), f"ptr {self._pointer(at)}", f"i64 {size}")
        self._require(valid, at, "text in UTF-8")

    def _list(self, kind: ListOf) -> str:
        body = self._body
        count = self._length(kind, "%at")
        first = self._plus("%at", LENGTH)
        left = body.let(f"sub i64 %end, {first}")
        fits = body.let(f"icmp ule i64 {count}, {left}")
        self._require(fits, self._plus("%at", 1), "no more elements than there are bytes")
        at = body.alloca("i64")
        body.do(f"store i64 {first}, ptr {at}")

        def turn(i: str) -> None:
            here = body.let(f"load i64, ptr {at}")
            behind = self._call(kind.element, here, lambda: body.let(f"sub i64 -1, {i}"))
            body.do(f"store i64 {behind}, ptr {at}")

        body.loop(count, turn)
        return body.let(f"load i64, ptr {at}")

    def _content(self, kind: FieldType, at: str) -> None:
        """What stands behind the head of a value of fixed width, and is within the data."""
        body = self._body
        if isinstance(kind, Number) and kind.kind == "b":
            marker = body.let(f"and i8 {body.load('i8', self._pointer(at))}, -2")
            self._require(body.let(f"icmp eq i8 {marker}, {0xC2 - 256}"), at, "0xc2 or 0xc3 (bool)")
        elif isinstance(kind, Number) and kind.narrowed:
            self._within(kind, at)
        elif isinstance(kind, Str):
            self._utf8(at, kind.capacity)
        elif isinstance(kind, Bytes):
            self._short(kind, at)
        elif isinstance(kind, Array) and kind.element.kind == "b":
            self._all_below(at, str((kind.width or 0) - kind.data_offset), 2)

    def _within(self, kind: Number, at: str) -> None:
        """Requires an integer to be one of those that are values."""
        body, bits = self._body, 8 * kind.size
        value = body.swap(bits, body.load(f"i{bits}", self._pointer(at)))
        sign = "s" if kind.kind == "i" else "u"
        for compare, bound in zip(("ge", "le"), kind.bounds, strict=True):
            right = body.let(f"icmp {sign}{compare} i{bits} {value}, {bound}")
            self._require(right, at, f"a value of {kind.text}")

    def _short(self, kind: Bytes, at: str) -> None:
        body = self._body
        size = body.let(f"zext i16 {body.load('i16', self._pointer(at))} to i64")
        fits = body.let(f"icmp ule i64 {size}, {kind.capacity}")
        self._require(fits, at, f"a length of at most {kind.capacity}")
        if isinstance(kind, Logical):
            whole = body.let(f"icmp eq i64 {size}, {kind.capacity}")
            self._require(whole, at, f"a length of {kind.capacity}")
        start = self._plus(at, 2)
        padding = body.let(f"sub i64 {kind.capacity}, {size}")
        self._all_below(self._plus(start, size), padding, 1)

    def _all_below(self, at: str, size: str, bound: int) -> None:
        """Requires bytes to be 0, or with a bound of 2 to be 0 or 1."""
        routine = self._body.module.routine("@v.below", lambda _: _write_below(self._body.module))
        right = self._body.call("i1", routine, f"ptr {self._pointer(at)}", f"i64 {size}", f"i8 {bound}")
        self._require(right, at, "zeros behind the value" if bound == 1 else "booleans of 0 or 1")

    def _array(self, kind: Array, at: str) -> str:
        body, rank = self._body, len(kind.shape)
        self._need(at, kind.data_offset)
        size = self._length(kind, at)
        self._bytes(self._plus(at, 5), bytes([kind.element.code, rank]))
        total, zero = str(kind.item_size), "false"
        for axis, known in enumerate(kind.shape):
            where = self._plus(at, Array.HEAD + 1 + 4 * axis)
            n = body.let(f"zext i32 {body.load('i32', self._pointer(where))} to i64")
            if known is not None:
                self._require(body.let(f"icmp eq i64 {n}, {known}"), where, f"a dimension of {known}")
            empty = body.let(f"icmp eq i64 {n}, 0")
            zero = body.let(f"or i1 {zero}, {empty}")
            # An empty array may not be of a shape whose other dimensions no array can have.
            total = self._product(total, body.let(f"select i1 {empty}, i64 1, i64 {n}"), where)
        content = body.let(f"select i1 {zero}, i64 0, i64 {total}")
        wanted = body.let(f"add i64 {content}, {1 + 4 * rank}")
        self._require(
            body.let(f"icmp eq i64 {size}, {wanted}"), self._plus(at, 1), "the length that its shape needs"
        )
        start = self._plus(at, kind.data_offset)
        self._need(start, content)
        if kind.element.kind == "b":
            self._all_below(start, content, 2)
        return self._plus(start, content)

    def _product(self, a: str, b: str, at: str) -> str:
        body = self._body
        body.module.declare("{i64, i1} @llvm.smul.with.overflow.i64(i64, i64)")
        both = body.call("{i64, i1}", "@llvm.smul.with.overflow.i64", f"i64 {a}", f"i64 {b}")
        over = body.let(f"extractvalue {{i64, i1}} {both}, 1")
        self._require(body.let(f"xor i1 {over}, true"), at, "dimensions that memory can hold")
        return body.let(f"extractvalue {{i64, i1}} {both}, 0")


def _inner_records(schema: Schema) -> int:
    """How deep records of fixed width stand in each other within a record."""
    inner = (f.type.schema for f in schema.wire_fields if f.offset is not None and isinstance(f.type, Record))
    return max((1 + _inner_records(s) for s in inner), default=0)


def _write_below(module: Module) -> None:
    body = Body(module, "internal i1 @v.below(ptr %p, i64 %n, i8 %bound) nounwind")
    no = body.label()

    def turn(i: str) -> None:
        on = body.label()
        body.branch(body.let(f"icmp ult i8 {body.load('i8', '%p', i)}, %bound"), on, no)
        body.begin(on)

    body.loop("%n", turn)
    body.ret("i1 true")
    body.begin(no)
    body.ret("i1 false")
    body.finish()
