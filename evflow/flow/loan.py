"""Loans: events whose arrays lie from the start where they will be sent from.

The arrays of an event are copied when it is submitted, since it may be changed afterwards. Those of a loaned
event are views of a place for all of it, with room around them for its other bytes, which are all that is
written when it is submitted. Beside that it is an event as any other. Whether it is in its place is told by
where its arrays are in memory; if they are not, since one gave way to another of other length, it is copied.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from evflow.errors import SchemaError
from evflow.events.encode import Piece, encoder_parts
from evflow.events.event import Event, make_event
from evflow.events.gather import (
    ByteArray,
    Place,
    address_of,
    interface_of,
    nbytes_of,
    own_place,
    write_parts,
)
from evflow.events.numeric import AnyArray
from evflow.schema import Schema, array_dtype
from evflow.schema.types import Array
from evflow.schema.values import describe

_LEAST = 1 << 20
"""Bytes of an event from which a place is worth what it costs; a smaller one is copied in less time."""

_LINE = 64
_MOST_LAYOUTS = 64

_Reserve = Callable[[int], Place | None]
_Shape = tuple[int, ...]


class _Field(NamedTuple):
    """A field that is an array; its ``shape`` if it need not be told.

    The dtype ``lent`` is not numpy's own object of that type: those arrays would be copied by machine code
    (``evflow.codgen.objects``), these are left to who takes them up.
    """

    kind: Array
    lent: np.dtype[Any]
    shape: _Shape | None


class _Layout(NamedTuple):
    """The bytes of an event, and where in it arrays start; none does where it has to be copied."""

    size: int
    starts: dict[str, int]


class _Loan:
    """What the arrays of a loaned event keep alive.

    Attributes:
        place: where the event is.
        open: whether it was not submitted yet.
    """

    __slots__ = ("__array_interface__", "open", "place")

    def __init__(self, place: Place) -> None:
        self.place = place
        self.open = True
        target = place.target
        self.__array_interface__ = interface_of(address_of(target), len(target), writeable=True)


def lend(schema: Schema, fields: Mapping[str, Any], reserve: _Reserve) -> Event:
    """An event whose arrays are to be filled, in a place for all of it if it is large.

    Args:
        schema: the event's schema.
        fields: the fields' values; of an array its shape, or an array that is there already.
        reserve: gives a place for so many bytes; None for memory of its own.

    Raises:
        SchemaError: a field is missing, or a shape or value does not fit.
    """
    known = _fields(schema)
    shapes = {}
    for name, field in known.items():
        given = fields.get(name, field.shape)
        if given is not None and not isinstance(given, np.ndarray):
            shapes[name] = _shape(f"{schema.name}: field {name}", field.kind, given)
    size, starts = _layout(schema, fields, shapes)
    memory = np.asarray(_Loan(_place(size, min(starts.values()), reserve))) if starts else None
    arrays: dict[str, AnyArray] = {}
    for name, shape in shapes.items():
        dtype = known[name].lent if starts else known[name].kind.element.dtype
        array = np.ndarray(shape, dtype, memory, starts.get(name, 0))
        if array.dtype == bool:
            # No byte is a wrong number, but most are wrong here.
            array[...] = False
        arrays[name] = array
    return make_event(schema, {**fields, **arrays})


def _fields(schema: Schema) -> dict[str, _Field]:
    """The fields of a schema that are arrays."""
    found: dict[str, _Field] | None = schema.made.get("loan fields")
    if found is None:
        found = schema.made["loan fields"] = {}
        for field in schema.fields:
            kind = field.type.held
            if isinstance(kind, Array):
                shape = tuple(n or 0 for n in kind.shape) if kind is field.type and kind.static else None
                found[field.name] = _Field(kind, array_dtype(kind), shape)
    return found


def _shape(where: str, kind: Array, given: Any) -> _Shape:
    shape: _Shape = given if isinstance(given, tuple) else (given,)
    if all(isinstance(n, int | np.integer) and n >= 0 for n in shape) and kind.takes(shape):
        return shape
    raise SchemaError(
        f"loan of {where}: expected an array, or the shape of one ({kind.text}), found {describe(given)}"
    )


def _layout(schema: Schema, fields: Mapping[str, Any], shapes: dict[str, _Shape]) -> _Layout:
    """How an event with these arrays is encoded, told by one that is."""
    layouts: dict[Any, _Layout] = schema.made.setdefault("loan layouts", {})
    key = tuple(shapes.items())
    layout = layouts.get(key)
    if layout is not None:
        return layout
    known = _fields(schema)
    empty = {name: np.zeros(shape, known[name].lent) for name, shape in shapes.items()}
    parts = encoder_parts(schema)(make_event(schema, {**fields, **empty}))
    starts, size = {}, 0
    for part in parts:
        starts[id(_array_of(part))] = size
        size += nbytes_of((part,))
    layout = _Layout(size, {})
    if size >= _LEAST and all(id(array) in starts for array in empty.values()):
        layout = _Layout(size, {name: starts[id(array)] for name, array in empty.items()})
    if all(field.offset is not None or field.name in shapes for field in schema.fields):
        if len(layouts) >= _MOST_LAYOUTS:
            layouts.clear()
        layouts[key] = layout
    return layout


def _place(size: int, start: int, reserve: _Reserve) -> Place:
    """A place for an event of which an array starts at an offset; that array is aligned."""
    place = reserve(size + _LINE) or own_place(size + _LINE)
    shift = -(address_of(place.target) + start) % _LINE
    return Place(place.target[shift : shift + size], place.held[shift : shift + size])


def taken_up(parts: Sequence[Piece]) -> ByteArray | None:
    """The place of a loaned event, completed; its arrays are read-only from now on.

    Args:
        parts: the event, encoded.

    Returns:
        uint8, 1-D, not writeable; None where the event has to be copied: it was not loaned, was submitted
        before, or its arrays are not where they were.
    """
    arrays = [_array_of(part) for part in parts]
    loan = next(filter(None, map(_loan_of, arrays)), None)
    if loan is None or not loan.open:
        return None
    target, at, others, lent = loan.place.target, 0, [], []
    first, end = address_of(target), len(target)
    for part, array in zip(parts, arrays, strict=True):
        size = len(part) if array is None else array.nbytes
        start = end if array is None else address_of(array) - first
        if start >= end or start + size <= 0:
            others.append((at, part))
        elif start == at:
            lent.append(array)
        else:
            return None
        at += size
    if at != end:
        return None
    loan.open = False
    for at, part in others:
        write_parts(target[at:], (part,))
    for array in lent:
        array.flags.writeable = False
    return loan.place.held


def _array_of(part: Piece) -> Any:
    """The array whose memory a part is; None if it is none."""
    return part.obj if isinstance(part, memoryview) else None


def _loan_of(array: Any) -> _Loan | None:
    while isinstance(array, np.ndarray):
        array = array.base
    return array if isinstance(array, _Loan) else None
