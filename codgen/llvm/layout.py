"""Walking events in native code: a path to a place, and the end of a value of variable width.

A field of fixed width is at a constant offset. One of variable width is reached by skipping those before
it; each type has a function ``skip`` that gives the address behind a value. The bytes were validated
before, so no length is checked here; indexes are.
"""

from __future__ import annotations

from collections.abc import Callable

from evflow.codgen.llvm.emitter import Emitter, Place
from evflow.codgen.llvm.ir import Body, Module
from evflow.codgen.tree import Expr, Fault, Path, Pos, Variable
from evflow.schema import Schema
from evflow.schema.types import NUMBERS, Array, Blob, FieldType, ListOf, Maybe, Record, Text

NIL = 0xC0

_SKIP, _SKIP_BYTE = 3, 5
"""Steps to skip a value whose length stands in it, and for each byte where what is in it must be skipped."""


def statics_layout(statics: tuple[Variable, ...]) -> tuple[tuple[int, ...], int]:
    """Offsets of static variables in their block, and its size; a function of their types and shapes
    alone."""
    offsets: list[int] = []
    at = 0
    for variable in statics:
        size = max(NUMBERS[variable.type].size, 1)
        at = -(-at // size) * size
        offsets.append(at)
        for n in variable.shape:
            size *= n
        at += size
    return tuple(offsets), max(at, 8)


def walk(e: Emitter, path: Path, pos: Pos, start: Place, name: str, *, inside: bool = True) -> Place:
    """The place that a path leads to from the record at ``start``.

    Args:
        name: what that record is called.
        inside: whether an optional at the path's end is entered as well (ABSENT fault when it is nil).
    """
    place = start
    for step in path.steps:
        if isinstance(place.type, Maybe):
            place = enter(e, place, pos)
        place = step_field(e, place, step.field, pos)
        name = f"{name}.{step.field}"
        if step.indexes:
            place = step_indexes(e, place, step.indexes, pos, name)
    return enter(e, place, pos) if inside and isinstance(place.type, Maybe) else place


def step_field(e: Emitter, place: Place, name: str, pos: Pos) -> Place:
    """The field ``name`` of the record at ``place``."""
    assert isinstance(place.type, Record)
    schema = place.type.schema
    field = schema[name]
    if field.offset is not None:
        return Place(place.base, place.offset + field.offset, field.type)
    first = e.body.at(place.base, place.offset + schema.fixed_width)
    skipped = [f.type for f in schema.wire_fields[: field.wire_index] if f.offset is None]
    if not skipped:
        return Place(first, 0, field.type)
    if not e.loops:
        return Place(_behind(e, first, skipped, pos), 0, field.type)
    return Place(_behind_again(e, first, skipped, pos), 0, field.type)


def _behind(e: Emitter, first: str, skipped: list[FieldType], pos: Pos) -> str:
    """The address behind values of these types, which is paid for."""
    pointer = first
    for kind in skipped:
        pointer = end(e.body, pointer, kind)
    known = [skip_steps(kind) for kind in skipped]
    if None in known:
        charge_walk(e, first, pointer, pos)
    elif e.loops:
        e.charge(str(sum(steps or 0 for steps in known)), pos)
    return pointer


def _behind_again(e: Emitter, first: str, skipped: list[FieldType], pos: Pos) -> str:
    """The same, remembered from the last time that this place in the code started at the same address."""
    body = e.body
    known_first, known = body.alloca("ptr", "null"), body.alloca("ptr", "null")
    walk_on, done = body.label(), body.label()
    same = body.let(f"icmp eq ptr {body.let(f'load ptr, ptr {known_first}')}, {first}")
    body.branch(same, done, walk_on)
    body.begin(walk_on)
    pointer = _behind(e, first, skipped, pos)
    body.do(f"store ptr {first}, ptr {known_first}")
    body.do(f"store ptr {pointer}, ptr {known}")
    body.begin(done)
    return body.let(f"load ptr, ptr {known}")


def charge_walk(e: Emitter, first: str, behind: str, pos: Pos) -> None:
    """Pays for going from value to value over these bytes."""
    size = distance(e.body, first, behind)
    e.charge(e.body.let(f"mul i64 {size}, {_SKIP_BYTE}"), pos)


def skip_steps(kind: FieldType, within: tuple[Schema, ...] = ()) -> int | None:
    """The steps that it takes to skip a value; None where that depends on how much is in it."""
    if kind.width is not None:
        return 1
    if isinstance(kind, (Text, Blob, Array)):
        return _SKIP
    if isinstance(kind, ListOf):
        return _SKIP if kind.element.width is not None else None
    if isinstance(kind, Maybe):
        inner = skip_steps(kind.element, within)
        return None if inner is None else inner + _SKIP
    assert isinstance(kind, Record)
    if kind.schema in within:
        return None
    parts = [skip_steps(f.type, (*within, kind.schema)) for f in kind.schema.wire_fields if f.offset is None]
    return None if None in parts else _SKIP + sum(steps or 0 for steps in parts)


def enter(e: Emitter, place: Place, pos: Pos) -> Place:
    """The value within an optional; an ABSENT fault when there is none."""
    if not isinstance(place.type, Maybe):
        return place
    marker = e.body.load("i8", place.base, place.offset)
    e.fault_if(e.body.let(f"icmp eq i8 {marker}, {NIL - 256}"), Fault.ABSENT, pos)
    return Place(place.base, place.offset, place.type.element)


def step_indexes(e: Emitter, place: Place, indexes: tuple[Expr, ...], pos: Pos, name: str) -> Place:
    """The element that indexes lead to, of an array or a list; each is checked before the next is
    evaluated."""
    place = enter(e, place, pos)
    if isinstance(place.type, Array):
        return _array_element(e, place, place.type, indexes, pos, name)
    assert isinstance(place.type, ListOf)
    return _list_element(e, place, place.type, indexes[0], pos, name)


def item_count(body: Body, place: Place, axis: int) -> str:
    """Elements of the list, or of dimension ``axis`` of the array, at ``place`` (i64)."""
    if isinstance(place.type, Array):
        known = place.type.shape[axis]
        if known is not None:
            return str(known)
        size = body.load("i32", place.base, place.offset + Array.HEAD + 1 + 4 * axis)
        return body.let(f"zext i32 {size} to i64")
    return count32(body, body.at(place.base, place.offset))


def linear_index(
    e: Emitter, indexes: tuple[Expr, ...], sizes: Callable[[int], str], pos: Pos, name: str
) -> str:
    """The position in C order of an element of an array with ``sizes(axis)`` elements a dimension (i64)."""
    linear = "0"
    for axis, expr in enumerate(indexes):
        size, index = sizes(axis), e.value(expr)
        check_index(e, index, size, pos, f"dimension {axis + 1} of {name}" if len(indexes) > 1 else name)
        if axis:
            index = e.body.let(f"add i64 {e.body.let(f'mul i64 {linear}, {size}')}, {index}")
        linear = index
    return linear


def check_index(e: Emitter, index: str, size: str, pos: Pos, name: str) -> None:
    """An INDEX fault where ``index`` is not below ``size`` (both i64), the elements of what has this name."""
    if index.isdecimal() and size.isdecimal() and int(index) < int(size):
        return
    e.fault_if(e.body.let(f"icmp uge i64 {index}, {size}"), Fault.INDEX, pos, index, size, name)


def _array_element(
    e: Emitter, place: Place, kind: Array, indexes: tuple[Expr, ...], pos: Pos, name: str
) -> Place:
    linear = linear_index(e, indexes, lambda axis: item_count(e.body, place, axis), pos, name)
    offset = place.offset + kind.data_offset
    if linear.isdecimal():
        return Place(place.base, offset + int(linear) * kind.item_size, kind.element, element=True)
    scaled = e.body.let(f"mul i64 {linear}, {kind.item_size}")
    return Place(e.body.at(place.base, scaled), offset, kind.element, element=True)


def _list_element(e: Emitter, place: Place, kind: ListOf, expr: Expr, pos: Pos, name: str) -> Place:
    body, index = e.body, e.value(expr)
    pointer = body.at(place.base, place.offset)
    check_index(e, index, count32(body, pointer), pos, name)
    width = kind.element.width
    if width is not None:
        first = body.at(pointer, body.let(f"mul i64 {index}, {width}"))
        return Place(first, 5, kind.element)
    first = body.at(pointer, 5)
    if not e.loops:
        return Place(_skipped(e, kind.element, first, index, pos), 0, kind.element)
    return Place(_found_again(e, kind.element, first, index, pos), 0, kind.element)


def _found_again(e: Emitter, kind: FieldType, first: str, index: str, pos: Pos) -> str:
    """The address of an item of variable width, from where this place in the code found one last."""
    body = e.body
    known_first, known_item = body.alloca("ptr", "null"), body.alloca("ptr", "null")
    known_index = body.alloca("i64", "0")
    last = body.let(f"load i64, ptr {known_index}")
    same = body.let(f"icmp eq ptr {body.let(f'load ptr, ptr {known_first}')}, {first}")
    ahead = body.let(f"icmp ule i64 {last}, {index}")
    useful = body.let(f"and i1 {same}, {ahead}")
    start = body.let(f"select i1 {useful}, ptr {body.let(f'load ptr, ptr {known_item}')}, ptr {first}")
    steps = body.let(f"sub i64 {index}, {body.let(f'select i1 {useful}, i64 {last}, i64 0')}")
    item = _skipped(e, kind, start, steps, pos)
    body.do(f"store ptr {first}, ptr {known_first}")
    body.do(f"store ptr {item}, ptr {known_item}")
    body.do(f"store i64 {index}, ptr {known_index}")
    return item


def _skipped(e: Emitter, kind: FieldType, start: str, count: str, pos: Pos) -> str:
    """The address behind so many items (i64) of variable width, which is paid for."""
    item = e.body.call("ptr", _skip_items(e.body.module, kind), f"ptr {start}", f"i64 {count}")
    each = skip_steps(kind)
    if each is None:
        charge_walk(e, start, item, pos)
    else:
        e.charge(e.body.let(f"mul i64 {count}, {each + _SKIP}"), pos)
    return item


def count32(body: Body, pointer: str) -> str:
    """The big-endian 32-bit count or length behind a marker, as i64."""
    return body.let(f"zext i32 {body.swap(32, body.load('i32', pointer, 1))} to i64")


def end(body: Body, pointer: str, kind: FieldType) -> str:
    """The address behind the value of type ``kind`` at ``pointer``."""
    if kind.width is not None:
        return body.at(pointer, kind.width)
    if isinstance(kind, (Text, Blob)):
        return body.at(body.at(pointer, count32(body, pointer)), 5)
    if isinstance(kind, Array):
        return body.at(body.at(pointer, count32(body, pointer)), Array.HEAD)
    if isinstance(kind, ListOf):
        if kind.element.width is not None:
            size = body.let(f"mul i64 {count32(body, pointer)}, {kind.element.width}")
            return body.at(body.at(pointer, size), 5)
        skip = _skip_items(body.module, kind.element)
        return body.call("ptr", skip, f"ptr {body.at(pointer, 5)}", f"i64 {count32(body, pointer)}")
    return body.call("ptr", _skip(body.module, kind), f"ptr {pointer}")


def distance(body: Body, start: str, behind: str) -> str:
    """Bytes from one address to another (i64)."""
    first, last = (body.let(f"ptrtoint ptr {p} to i64") for p in (start, behind))
    return body.let(f"sub i64 {last}, {first}")


def type_name(kind: FieldType) -> str:
    """A name for a type in a module; records of different schemas may be spelled alike."""
    if isinstance(kind, Record):
        return f"record.{kind.schema.fingerprint}"
    if isinstance(kind, (ListOf, Maybe)):
        return f"{'list' if isinstance(kind, ListOf) else 'optional'}.{type_name(kind.element)}"
    return kind.text


def _skip(module: Module, kind: FieldType) -> str:
    """The function ``ptr (ptr)`` that skips an optional or a record of variable width."""
    return module.routine(f'@"skip.{type_name(kind)}"', lambda name: _write_skip(module, name, kind))


def _write_skip(module: Module, name: str, kind: FieldType) -> None:
    body = Body(module, f"internal ptr {name}(ptr %p) nounwind")
    if isinstance(kind, Maybe):
        nil, some = body.label(), body.label()
        body.branch(body.let(f"icmp eq i8 {body.load('i8', '%p')}, {NIL - 256}"), nil, some)
        body.begin(nil)
        body.ret(f"ptr {body.at('%p', 1)}")
        body.begin(some)
        body.ret(f"ptr {end(body, '%p', kind.element)}")
    else:
        assert isinstance(kind, Record)
        body.ret(f"ptr {_record_end(body, kind.schema)}")
    body.finish()


def _record_end(body: Body, schema: Schema) -> str:
    pointer = body.at("%p", schema.fixed_width)
    for field in schema.wire_fields:
        if field.offset is None:
            pointer = end(body, pointer, field.type)
    return pointer


def _skip_items(module: Module, kind: FieldType) -> str:
    """The function ``ptr (ptr, i64 n)`` that skips ``n`` values of variable width."""
    return module.routine(f'@"items.{type_name(kind)}"', lambda name: _write_skip_items(module, name, kind))


def _write_skip_items(module: Module, name: str, kind: FieldType) -> None:
    body = Body(module, f"internal ptr {name}(ptr %p, i64 %n) nounwind")
    at = body.alloca("ptr", "%p")

    def skip(_: str) -> None:
        behind = end(body, body.let(f"load ptr, ptr {at}"), kind)
        body.do(f"store ptr {behind}, ptr {at}")

    body.loop("%n", skip)
    body.ret(f"ptr {body.let(f'load ptr, ptr {at}')}")
    body.finish()
