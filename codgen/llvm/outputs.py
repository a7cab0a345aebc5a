"""Records that a function fills: where their fields are meanwhile, and how they become bytes.

The fixed part of a record is written in place, into the buffer that the record will be part of. A field
of variable width is an address and a length until the record is finished; then it is appended. Texts are
views of the event they came from, every other such field a slice of an event, or its empty form. A nested
record of variable width is a ``part`` of its own: its fixed bytes wait in memory of the function.
"""

from __future__ import annotations

import re

from msgspec import Struct, field

from evflow.codgen.llvm import layout
from evflow.codgen.llvm.emitter import Emitter, Place, Text
from evflow.codgen.llvm.expressions import read_number, write_number
from evflow.codgen.llvm.ir import Body
from evflow.codgen.tree import Fault, Path, Pos
from evflow.schema import Schema
from evflow.schema.program import default_image, fixed_image, head
from evflow.schema.types import Blob, Bytes, FieldType, Maybe, Number, Record, Str
from evflow.schema.types import Text as TextType

MAX_OUTPUT = 64 << 20
"""Bytes that one event may produce in one output; beyond it is a LIMIT fault."""

_COPIED_WHOLE = 256
_RUN = re.compile(rb"[^\0](?:\0{0,15}[^\0])*", re.DOTALL)


class _Slot(Struct):
    """A field of variable width: variables that hold its address and length.

    A text's bytes are held without marker and length. The length of an optional text is -1 where it is nil.
    """

    type: FieldType
    pointer: str
    size: str
    cell: str | None = None

    @property
    def is_text(self) -> bool:
        return isinstance(self.type.held, (TextType, Blob))

    @property
    def marker(self) -> int:
        return (0xDB if isinstance(self.type.held, TextType) else 0xC6) - 256


class _Part(Struct):
    """A record: its fixed bytes, and its variable fields in wire order."""

    schema: Schema
    image: str | None
    variable: list[tuple[str, _Slot | _Part]] = field(default_factory=list)


class Output:
    """One output of a function while it is compiled."""

    def __init__(self, e: Emitter, slot: int, schema: Schema) -> None:
        self._e = e
        self._slot = slot
        self._root = self._part(schema, outer=True)
        self.reset()

    def _part(self, schema: Schema, *, outer: bool = False) -> _Part:
        body = self._e.body
        part = _Part(schema, None if outer else self._e.host.scratch(self._e, schema.fixed_width))
        for f in schema.wire_fields:
            if f.offset is None and isinstance(f.type, Record):
                part.variable.append((f.name, self._part(f.type.schema)))
            elif f.offset is None:
                part.variable.append((f.name, _Slot(f.type, body.alloca("ptr"), body.alloca("i64"))))
        return part

    def _image(self, part: _Part) -> str:
        return self._e.host.image(self._e, self._slot) if part.image is None else part.image

    def reset(self) -> None:
        """Gives every field its default, else zero."""
        self._reset(self._root)

    def _reset(self, part: _Part) -> None:
        body, image = self._e.body, self._image(part)
        template = fixed_image(part.schema, defaults=True)
        if len(template) <= _COPIED_WHOLE:
            body.copy(image, body.module.constant(template), len(template))
        else:
            body.zero(image, len(template))
            for run in _RUN.finditer(template):
                body.copy(body.at(image, run.start()), body.module.constant(run.group()), len(run.group()))
        for name, held in part.variable:
            if isinstance(held, _Part):
                self._reset(held)
            else:
                default = default_image(part.schema[name])
                # Nil is one byte; the bytes of a text stand behind a head of five.
                head = min(len(default), 5) if held.is_text else 0
                size = len(default) - 5 if head == 5 else -1 if head else len(default)
                self._set(held, (body.module.constant(default[head:]), str(size)))

    def _set(self, slot: _Slot, value: Text) -> None:
        self._e.body.put("ptr", value[0], slot.pointer)
        self._e.body.put("i64", value[1], slot.size)

    def _get(self, slot: _Slot) -> Text:
        return self._e.body.get("ptr", slot.pointer), self._e.body.get("i64", slot.size)

    def _held(self, part: _Part, name: str) -> _Slot | _Part | None:
        return next((held for n, held in part.variable if n == name), None)

    def place(self, path: Path, pos: Pos) -> Place:
        """The place of a number, or of a field of fixed width; an ABSENT fault in an optional that is nil."""
        part, steps = self._root, list(path.steps)
        name = self._e.function.outputs[path.root.slot][0]
        while steps and isinstance(held := self._held(part, steps[0].field), _Part):
            part = held
            name += f".{steps.pop(0).field}"
        held = self._held(part, steps[0].field) if len(steps) == 1 else None
        if isinstance(held, _Slot):
            return layout.enter(self._e, Place(self._get(held)[0], 0, held.type), pos)
        start = Place(self._image(part), 0, Record(part.schema.name, {part.schema.name: part.schema}))
        return layout.walk(self._e, Path(path.root, tuple(steps), path.type), pos, start, name)

    def _find(self, path: Path) -> _Slot | _Part | None:
        """What holds the end of a path, if that has variable width."""
        held: _Slot | _Part | None = self._root
        for step in path.steps:
            if not isinstance(held, _Part):
                return None
            held = self._held(held, step.field)
        return held

    def assign_number(self, path: Path, value: str, pos: Pos, *, old: bool) -> str:
        """Sets a number; gives the value, or with ``old`` the one before."""
        before = read_number(self._e, self.place(path, pos)) if old else value
        held = self._find(path)
        if isinstance(held, _Slot):
            inner = held.type.held
            assert isinstance(inner, Number)
            cell = self._cell(held, inner.width)
            self._e.body.store("i8", str(inner.marker - 256), cell)
            self._set(held, (cell, str(inner.width)))
            write_number(self._e, Place(cell, 0, inner), value)
        else:
            write_number(self._e, self.place(path, pos), value)
        return before

    def _cell(self, slot: _Slot, size: int) -> str:
        """Memory for the value of an optional of fixed width."""
        if slot.cell is None:
            slot.cell = self._e.host.scratch(self._e, size)
        return slot.cell

    def assign_text(self, path: Path, value: Text, pos: Pos) -> None:
        """Sets a text field; a TEXT fault where the text does not fit it."""
        held = self._find(path)
        if not isinstance(held, _Slot):
            self._write_padded(self.place(path, pos), value, pos)
        elif held.is_text:
            self._set(held, value)
        else:
            inner = held.type.held
            assert isinstance(inner, (Str, Bytes))
            cell = self._cell(held, inner.width)
            self._e.body.copy(cell, self._e.body.module.constant(head(inner)), inner.head)
            self._write_padded(Place(cell, 0, inner), value, pos)
            self._set(held, (cell, str(inner.width)))

    def _write_padded(self, place: Place, value: Text, pos: Pos) -> None:
        e, body, kind = self._e, self._e.body, place.type
        assert isinstance(kind, (Str, Bytes))
        pointer, size = value
        e.fault_if(body.let(f"icmp ugt i64 {size}, {kind.capacity}"), Fault.TEXT, pos)
        start = body.at(place.base, place.offset + kind.head)
        if isinstance(kind, Str):
            self._refuse_nul(value, pos)
        else:
            body.store("i16", body.let(f"trunc i64 {size} to i16"), start)
            start = body.at(start, 2)
            if e.loops:
                e.charge(str(kind.capacity // 4), pos)
        body.copy(start, pointer, size)
        body.zero(body.at(start, size), body.let(f"sub i64 {kind.capacity}, {size}"))

    def _refuse_nul(self, value: Text, pos: Pos) -> None:
        e, body = self._e, self._e.body
        if value[1] == "0":
            return
        with body.when(body.let(f"icmp ne i64 {value[1]}, 0")):
            last = body.load("i8", body.at(value[0], body.let(f"sub i64 {value[1]}, 1")))
            e.fault_if(body.let(f"icmp eq i8 {last}, 0"), Fault.TEXT, pos)

    def copy(self, path: Path, source: Place, pos: Pos) -> None:
        """Copies a value of the same type from an event."""
        held = self._find(path)
        if isinstance(held, _Part):
            self._copy_part(held, source, pos)
        elif held is not None:
            self._copy_slot(held, source, pos)
        else:
            target = self.place(path, pos)
            width = source.type.width
            assert width is not None
            size = width if not source.element else width - 1
            body = self._e.body
            body.copy(body.at(target.base, target.offset), body.at(source.base, source.offset), size)

    def _copy_slot(self, slot: _Slot, source: Place, pos: Pos) -> None:
        body = self._e.body
        start = body.at(source.base, source.offset)
        if slot.is_text and isinstance(slot.type, Maybe):
            # Behind a nil stands whatever comes next, so the length is read only where there is a text.
            body.put("i64", "-1", slot.size)
            with body.when(body.let(f"icmp ne i8 {body.load('i8', start)}, {layout.NIL - 256}")):
                self._set(slot, (body.at(start, 5), layout.count32(body, start)))
        elif slot.is_text:
            self._set(slot, (body.at(start, 5), layout.count32(body, start)))
        else:
            behind = layout.end(body, start, slot.type)
            if layout.skip_steps(slot.type) is None:
                layout.charge_walk(self._e, start, behind, pos)
            self._set(slot, (start, layout.distance(body, start, behind)))

    def _copy_part(self, part: _Part, source: Place, pos: Pos) -> None:
        body = self._e.body
        start = body.at(source.base, source.offset)
        if self._e.loops:
            self._e.charge(str(part.schema.fixed_width // 4), pos)
        body.copy(self._image(part), start, part.schema.fixed_width)
        at = body.at(start, part.schema.fixed_width)
        for name, held in part.variable:
            inner = Place(at, 0, part.schema[name].type)
            if isinstance(held, _Part):
                self._copy_part(held, inner, pos)
            else:
                self._copy_slot(held, inner, pos)
            at = layout.end(body, at, inner.type)

    def finish(self, pos: Pos) -> str:
        """Completes the record in its buffer; gives its size (i64)."""
        e, body = self._e, self._e.body
        if not self._root.variable:
            return str(self._root.schema.fixed_width)
        size = self._size(self._root)
        e.charge_bytes(size, 4, pos)
        e.fault_if(body.let(f"icmp ugt i64 {size}, {MAX_OUTPUT}"), Fault.LIMIT, pos)
        image = e.host.reserve(e, self._slot, size, pos)
        self._append(self._root, body.at(image, self._root.schema.fixed_width))
        return size

    def _size(self, part: _Part) -> str:
        body = self._e.body
        total = str(part.schema.fixed_width)
        for _, held in part.variable:
            more = self._size(held) if isinstance(held, _Part) else self._slot_size(held)
            total = body.let(f"add i64 {total}, {more}")
        return total

    def _slot_size(self, slot: _Slot) -> str:
        body, size = self._e.body, self._get(slot)[1]
        if not slot.is_text:
            return size
        whole = body.let(f"add i64 {size}, 5")
        if not isinstance(slot.type, Maybe):
            return whole
        return body.let(f"select i1 {_is_nil(body, size)}, i64 1, i64 {whole}")

    def _append(self, part: _Part, at: str) -> str:
        body = self._e.body
        for _, held in part.variable:
            if isinstance(held, _Part):
                assert held.image is not None
                body.copy(at, held.image, held.schema.fixed_width)
                at = self._append(held, body.at(at, held.schema.fixed_width))
                continue
            at = self._append_slot(held, at)
        return at

    def _append_slot(self, slot: _Slot, at: str) -> str:
        body = self._e.body
        pointer, size = self._get(slot)
        if not slot.is_text:
            body.copy(at, pointer, size)
            return body.at(at, size)

        def nil() -> list[str]:
            body.store("i8", str(layout.NIL - 256), at)
            return [body.at(at, 1)]

        def text() -> list[str]:
            body.store("i8", str(slot.marker), at)
            body.store("i32", body.swap(32, body.let(f"trunc i64 {size} to i32")), at, 1)
            start = body.at(at, 5)
            body.copy(start, pointer, size)
            return [body.at(start, size)]

        if not isinstance(slot.type, Maybe):
            return text()[0]
        return body.choose(_is_nil(body, size), ("ptr",), nil, text)[0]


def _is_nil(body: Body, size: str) -> str:
    return body.let(f"icmp slt i64 {size}, 0")
