"""Views: events read where they lie.

A view is an offset into a batch's buffer. Each field is a property that decodes when it is asked for:
those of fixed width at their constant offset, the others by walking there once. Arrays are numpy views of
the buffer, nested records are views, lists are lazy. Nothing can be changed through a view.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import repeat
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, cast, overload

import numpy as np

from evflow.events.encode import encoder
from evflow.events.event import Event, event_class
from evflow.events.fields import Put, copied, has_fields, parts, same, show, to_dict
from evflow.events.numeric import AnyArray
from evflow.schema import Schema, array_dtype
from evflow.schema.program import LENGTH, NIL, varying
from evflow.schema.types import (
    MAX_DIMENSIONS,
    NUMBERS,
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

if TYPE_CHECKING:
    from evflow.events.attributes import AttributeValue
    from evflow.events.batch import EventBatch

_Reader = Callable[[Any, int], Any]
_Skipper = Callable[[Any, int], int]
"""A function from a buffer and the offset of a value to the offset behind the value."""

_u32 = struct.Struct(">I").unpack_from
_u16 = struct.Struct(">H").unpack_from

_SIZES = {0xC0: 1, 0xC2: 1, 0xC3: 1, **{number.marker: number.width for number in NUMBERS.values()}}
_shapes = [struct.Struct(f"<{n}I").unpack_from for n in range(MAX_DIMENSIONS + 1)]


class View:
    """A read-only event, decoded field by field when a field is asked for.

    Args:
        buffer: bytes or a memoryview of bytes that holds the event, validated.
        at: offset of the event's first byte.
        batch: the batch that the event belongs to, for its attributes.
        row: its position among the batch's (selected) events.

    Attributes:
        schema: the event's schema.
    """

    __slots__ = ("_at", "_batch", "_buffer", "_row")

    schema: ClassVar[Schema]
    # Reads all fields at once, where they are numbers and text of fixed width.
    _flat: ClassVar[Callable[[Any, int], dict[str, Any]] | None] = None

    def __init__(self, buffer: Any, at: int = 0, batch: EventBatch | None = None, row: int = 0) -> None:
        self._buffer = buffer
        self._at = at
        self._batch = batch
        self._row = row

    @property
    def attrs(self) -> dict[str, AttributeValue]:
        """The event's attributes (a copy)."""
        batch = self._batch
        return {} if batch is None or batch.attributes is None else batch.attributes.of(self._row)

    def to_event(self) -> Event:
        """A mutable copy."""
        event: Event = copied(self, _new_event)
        return event

    def to_dict(self) -> dict[str, Any]:
        """The fields by name, copied; records within are dicts, arrays numpy arrays."""
        flat = type(self)._flat
        return to_dict(self) if flat is None else flat(self._buffer, self._at)

    def __eq__(self, other: object) -> bool:
        return same(self, other) if has_fields(other) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return show(self)

    # What ``evflow.outside.shown`` shows the beginning of.
    _shown = parts

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"a view of {self.schema.name} cannot be pickled or copied; use to_event()")


def _new_event(value: Any) -> tuple[Event, Put | None]:
    event = object.__new__(event_class(value.schema))
    flat = getattr(type(value), "_flat", None)
    if flat is None:
        return event, partial(setattr, event)
    for name, content in flat(value._buffer, value._at).items():
        setattr(event, name, content)
    return event, None


def position_of(view: View) -> int:
    """Which of its batch's (selected) events it is."""
    return view._row


def encoded(view: View) -> bytes:
    """An event as it is encoded, copied."""
    width = view.schema.width
    if width is None:
        return encoder(view.schema)(view)
    return bytes(view._buffer[view._at : view._at + width])


class _WalkingView(View):
    """A view of an event with fields of variable width, whose places it finds in order and remembers."""

    __slots__ = ("_starts",)

    _skippers: ClassVar[list[_Skipper]]

    def __init__(self, buffer: Any, at: int = 0, batch: EventBatch | None = None, row: int = 0) -> None:
        self._buffer = buffer
        self._at = at
        self._batch = batch
        self._row = row
        self._starts: list[int] | None = None

    def _start(self, index: int) -> int:
        """Where the variable field of this number starts."""
        starts = self._starts
        if starts is None or len(starts) <= index:
            # Another list each time: two threads may read the same view.
            starts = [self._at + self.schema.fixed_width] if starts is None else starts.copy()
            while len(starts) <= index:
                starts.append(self._skippers[len(starts) - 1](self._buffer, starts[-1]))
            self._starts = starts
        return starts[index]


class ListView(Sequence[Any]):
    """A list of an event, read-only, whose elements are decoded when asked for."""

    __slots__ = ("_buffer", "_count", "_read", "_skip", "_starts", "_width")

    def __init__(self, read: _Reader, skip: _Skipper, width: int | None, buffer: Any, at: int) -> None:
        self._read = read
        self._skip = skip
        self._width = width
        self._buffer = buffer
        self._count: int = _u32(buffer, at + 1)[0]
        self._starts = [at + 5]

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> list[Any]: ...
    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(self._count))]
        i = index + self._count if index < 0 else index
        if not 0 <= i < self._count:
            raise IndexError(f"list index {index} is out of range: the list has {self._count} elements")
        return self._read(self._buffer, self._start(i))

    def __iter__(self) -> Iterator[Any]:
        if self._width is None:
            self._start(self._count - 1)
            return map(self._read, repeat(self._buffer), self._starts[: self._count])
        start = self._starts[0]
        places = range(start, start + self._count * self._width, self._width)
        return map(self._read, repeat(self._buffer), places)

    def _start(self, index: int) -> int:
        starts = self._starts
        if self._width is not None:
            return starts[0] + index * self._width
        while len(starts) <= index:
            starts.append(self._skip(self._buffer, starts[-1]))
        return starts[index]

    def __eq__(self, other: object) -> bool:
        return same(self, other) if isinstance(other, Sequence) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(list(self))


def _skipper(kind: FieldType) -> _Skipper:
    """The function that walks over a value of this type."""
    width = kind.width
    if width is not None:
        return partial(_skip_fixed, width)
    if isinstance(kind, (Text, Blob)):
        return partial(_skip_sized, LENGTH)
    if isinstance(kind, Array):
        return partial(_skip_sized, Array.HEAD)
    if isinstance(kind, ListOf) and kind.element.width is not None:
        return partial(_skip_list, kind.element.width)
    if isinstance(kind, Maybe):
        return partial(_skip_maybe, skip if kind.element.width is None else _skipper(kind.element))
    return skip


def skip(buffer: Any, at: int) -> int:
    """Walks over one value of any type, by the markers alone."""
    waiting = 1
    while waiting:
        waiting -= 1
        marker = buffer[at]
        if marker in _SIZES:
            at += _SIZES[marker]
        elif marker == 0xD9 or marker == 0xC4:
            at += 2 + buffer[at + 1]
        elif marker == 0xDA or marker == 0xC5:
            at += 3 + _u16(buffer, at + 1)[0]
        elif marker == 0xDB or marker == 0xC6:
            at += 5 + _u32(buffer, at + 1)[0]
        elif marker == 0xC9:
            at += 6 + _u32(buffer, at + 1)[0]
        elif marker == 0xDC:
            waiting += _u16(buffer, at + 1)[0]
            at += 3
        elif marker == 0xDD:
            waiting += _u32(buffer, at + 1)[0]
            at += 5
        else:
            waiting += marker & 0x0F
            at += 1
    return at


def _skip_fixed(width: int, buffer: Any, at: int) -> int:
    return at + width


def _skip_sized(head: int, buffer: Any, at: int) -> int:
    size: int = _u32(buffer, at + 1)[0]
    return at + head + size


def _skip_list(width: int, buffer: Any, at: int) -> int:
    count: int = _u32(buffer, at + 1)[0]
    return at + 5 + width * count


def _skip_maybe(inner: _Skipper, buffer: Any, at: int) -> int:
    return at + 1 if buffer[at] == NIL else inner(buffer, at)


def view_class(schema: Schema) -> type[View]:
    """The class of views of a schema's events, made once."""
    made = schema.made.get("view class")
    if made is None:
        made = schema.made.setdefault("view class", _make_class(schema))
    return cast("type[View]", made)


def _make_class(schema: Schema) -> type[View]:
    namespace: dict[str, Any] = {"__slots__": (), "schema": schema, "__module__": __name__}
    variable = varying(schema)
    namespace["_flat"] = _flat_reader(schema)
    namespace["_skippers"] = [_skipper(f.type) for f in variable]
    for i, field in enumerate(variable):
        # The first starts right behind the fixed part.
        at = "self._start(at)" if i else "self._at + at"
        namespace[field.name] = _property(
            field.name, f"read(self._buffer, {at})", read=_reader(field.type), at=i or schema.fixed_width
        )
    for field in schema.fields:
        if field.offset is not None:
            namespace[field.name] = _fixed_property(field.name, field.type, field.offset)
    return type(f"{schema.name}View", (_WalkingView if len(variable) > 1 else View,), namespace)


def _flat_reader(schema: Schema) -> Callable[[Any, int], dict[str, Any]] | None:
    form = f">{len(schema.header)}x"
    values: dict[str, str] = {}
    scope: dict[str, Any] = {"NUL": b"\0"}
    for field in schema.wire_fields:
        kind, name = field.type, f"v{field.index}"
        if isinstance(kind, Number):
            form += "B" if kind.kind == "b" else f"x{kind.letter}"
            values[field.name] = f"{name} == 0xC3" if kind.kind == "b" else name
            if isinstance(kind, Logical):
                scope[f"load{field.index}"] = kind.load
                values[field.name] = f"load{field.index}({name})"
        elif isinstance(kind, Str):
            form += f"{kind.head}x{kind.capacity}s"
            values[field.name] = f'str({name}.rstrip(NUL), "utf-8")'
        else:
            return None
    names = ", ".join(f"v{field.index}" for field in schema.wire_fields)
    fields = ", ".join(f"{field.name!r}: {values[field.name]}" for field in schema.fields)
    text = f"def quick(data, at):\n    {names}, = unpack(data, at)\n    return {{{fields}}}\n"
    scope["unpack"] = struct.Struct(form).unpack_from
    exec(compile(text, f"<decoder of {schema.name}>", "exec"), scope)
    made: Callable[[Any, int], dict[str, Any]] = scope["quick"]
    return made


def _fixed_property(name: str, kind: FieldType, at: int) -> property:
    if isinstance(kind, Logical):
        return _property(name, "read(self._buffer, self._at + at)", read=_reader(kind), at=at)
    if isinstance(kind, Number) and kind.kind == "b":
        return _property(name, "self._buffer[self._at + at] == 0xC3", at=at)
    if isinstance(kind, Number):
        return _property(name, "read(self._buffer, self._at + at)[0]", read=_number_struct(kind), at=at + 1)
    if isinstance(kind, Str):
        read = struct.Struct(f"{kind.capacity}s").unpack_from
        text = 'str(read(self._buffer, self._at + at)[0].rstrip(NUL), "utf-8")'
        return _property(name, text, read=read, at=at + kind.head, NUL=b"\0")
    return _property(name, "read(self._buffer, self._at + at)", read=_reader(kind), at=at)


def _property(name: str, expression: str, **names: Any) -> property:
    """A read-only property; the names its expression uses are its defaults, which Python finds fastest."""
    text = f"lambda self, {', '.join(f'{key}={key}' for key in names)}: {expression}"
    code = compile(text, f"<view of {name}>", "eval")
    return property(eval(code, names), partial(_refuse, name), partial(_refuse, name))


def _refuse(name: str, view: View, *value: object) -> NoReturn:
    raise AttributeError(
        f"views are read-only: {view.schema.name}.{name} cannot be changed; to_event() gives a copy that can"
    )


def _number_struct(kind: Number) -> _Reader:
    return struct.Struct(f">{kind.letter}").unpack_from


def _reader(kind: FieldType) -> _Reader:
    """The function that reads a value of this type at an offset, without copying more than it must."""
    if isinstance(kind, Logical):
        return partial(_read_logical, kind.load, _reader(kind.stored))
    if isinstance(kind, Number):
        return _read_bool if kind.kind == "b" else partial(_read_number, _number_struct(kind))
    if isinstance(kind, Str):
        return partial(_read_str, kind.head, kind.capacity)
    if isinstance(kind, Bytes):
        return partial(_read_bytes, kind.head)
    if isinstance(kind, Text):
        return _read_text
    if isinstance(kind, Blob):
        return _read_blob
    if isinstance(kind, Array):
        return partial(_array_at, kind)
    if isinstance(kind, Maybe):
        return partial(_read_maybe, _reader(kind.element))
    if isinstance(kind, ListOf):
        return partial(ListView, _reader(kind.element), _skipper(kind.element), kind.element.width)
    if isinstance(kind, Record):
        return partial(_read_record, kind)
    raise AssertionError(kind)


def _read_bool(buffer: Any, at: int) -> bool:
    return bool(buffer[at] == 0xC3)


def _read_number(read: _Reader, buffer: Any, at: int) -> int | float:
    number: int | float = read(buffer, at + 1)[0]
    return number


def _read_logical(load: Callable[[Any], Any], read: _Reader, buffer: Any, at: int) -> Any:
    return load(read(buffer, at))


def _read_str(head: int, capacity: int, buffer: Any, at: int) -> str:
    return bytes(buffer[at + head : at + head + capacity]).rstrip(b"\0").decode()


def _read_bytes(head: int, buffer: Any, at: int) -> bytes:
    size = buffer[at + head] | buffer[at + head + 1] << 8
    return bytes(buffer[at + head + 2 : at + head + 2 + size])


def _read_text(buffer: Any, at: int) -> str:
    return str(buffer[at + 5 : at + 5 + _u32(buffer, at + 1)[0]], "utf-8")


def _read_blob(buffer: Any, at: int) -> bytes:
    return bytes(buffer[at + 5 : at + 5 + _u32(buffer, at + 1)[0]])


def _read_maybe(read: _Reader, buffer: Any, at: int) -> Any:
    return None if buffer[at] == 0xC0 else read(buffer, at)


def _read_record(kind: Record, buffer: Any, at: int) -> View:
    return view_class(kind.schema)(buffer, at)


def _array_at(kind: Array, data: Any, at: int) -> AnyArray:
    """The array at an offset as a view of the bytes, which is read-only if they are."""
    n = len(kind.shape)
    shape: Any = _shapes[n](data, at + 7) if None in kind.shape else kind.shape
    return np.ndarray(shape, array_dtype(kind), data, at + 7 + 4 * n)
