"""Columns that need no second look: arrays whose every value a field can hold, assigned as they are.

Most columns are numpy arrays of just the field's type, or of one that always fits. A structured array over
the encoded rows takes such a column with one assignment, byte order and all; if all columns are such ones,
and many rows have come, machine code writes whole rows. Whatever is not certain to fit is left to the careful
way, which also finds the words for what is wrong.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from evflow.events.gather import ByteArray
from evflow.events.numeric import AnyArray, always_fits, array_of, truth
from evflow.schema import Field, Schema, array_dtype
from evflow.schema.types import NUMBERS, Array, Logical, Number, Str
from evflow.schema.values import Misfit

_MANY = 20_000
"""Rows of a schema after which it pays to have machine code made."""

# The columns whose length is what len says, and which hold no columns themselves.
_SIZED = frozenset({np.ndarray, list, tuple})
# So many bytes are copied in less time than a reduction takes to set out.
_SMALL = 1 << 14
# The marker of False; that of True is one more.
_FALSE = np.uint8(0xC2)


def _fitting_dtypes(target: Number) -> frozenset[np.dtype[Any]]:
    """The dtypes, in either byte order, of which every value fits."""
    native = [n.dtype for n in NUMBERS.values() if always_fits(n.dtype, target.dtype)]
    return frozenset([*native, *(dtype.newbyteorder("S") for dtype in native)])


_FITTING = {number: _fitting_dtypes(number) for number in NUMBERS.values()}


class _Plain(NamedTuple):
    """What a plain column of a field of fixed width looks like.

    Attributes:
        field: the field.
        name: its name.
        shape: of the value in one row; None for a field that takes no plain column.
        dtypes: what a column of numbers may be of; None for text.
        exact: what a column of single numbers need not be converted from.
        single: whether the value is one number, so that a list of numbers is a column.
        marked: whether the value is the marker itself, as that of ``bool`` is.
        capacity: of text, in bytes.
        start: bytes from the start of the record to the text.
    """

    field: Field
    name: str
    shape: tuple[int, ...] | None
    dtypes: frozenset[np.dtype[Any]] | None = None
    exact: np.dtype[Any] | None = None
    single: bool = False
    marked: bool = False
    capacity: int = 0
    start: int = 0


def _plain(field: Field) -> _Plain:
    kind = field.type
    if isinstance(kind, Logical):
        return _Plain(field, field.name, None)
    if isinstance(kind, Number):
        marked = kind.kind == "b"
        return _Plain(field, field.name, (), _FITTING[kind], kind.dtype, single=True, marked=marked)
    if isinstance(kind, Array):
        shape = tuple(n for n in kind.shape if n is not None)
        return _Plain(field, field.name, shape, _FITTING[kind.element])
    if isinstance(kind, Str):
        return _Plain(field, field.name, (), capacity=kind.capacity, start=(field.offset or 0) + kind.head)
    return _Plain(field, field.name, None)


def plain_length(schema: Schema, columns: Mapping[str, Any]) -> int | None:
    """How many rows the columns have; None where that takes a closer look."""
    if type(columns) is not dict:
        return None
    names = schema.made.get("field names")
    if names is None:
        names = schema.made["field names"] = frozenset(f.name for f in schema.fields)
    if not columns.keys() <= names:
        # A column that belongs to no field may be of any length, one named record.field may not.
        columns = {name: c for name, c in columns.items() if str(name).partition(".")[0] in names}
        if not columns.keys() <= names:
            return None
    if not _SIZED.issuperset(map(type, columns.values())):
        return None
    try:
        lengths = set(map(len, columns.values()))
    except TypeError:  # an array without dimensions
        return None
    return lengths.pop() if len(lengths) == 1 else None


def _plan(schema: Schema) -> tuple[_Plain, ...]:
    """The fields of fixed width, in declared order."""
    plan: tuple[_Plain, ...] | None = schema.made.get("plain fields")
    if plan is None:
        fixed = [field for field in schema.fields if field.offset is not None]
        plan = schema.made["plain fields"] = tuple(map(_plain, fixed))
    return plan


def fill_rows(target: ByteArray, schema: Schema, given: Mapping[str, Any], n: int) -> bool:
    """Writes whole rows, if that takes no second look and many have come; else writes nothing.

    Other threads do not run meanwhile, unless they are very many: numpy lets them run at each assignment, and
    to have the interpreter back costs more than that.

    Args:
        target: uint8, 1-D, where the rows go.
        schema: of fixed width.
        given: a column of any kind for each of its fields.
        n: how many rows.

    Returns:
        Whether it has written them.
    """
    rows = schema.made["rows"] = schema.made.get("rows", 0) + n
    if rows < _MANY:
        return False
    encoder = importlib.import_module("evflow.codgen.rows").rows_encoder(schema)
    if encoder is None:
        return False
    columns, even = [], (n,)
    for plain in _plan(schema):
        column = given[plain.name]
        if type(column) is not np.ndarray or column.dtype is not plain.exact or column.shape != even:
            column = _as_in_rows(plain, column, n)
            if column is None:
                return False
        columns.append(column)
    encoder.encode(columns, n, target)
    width = schema.fixed_width
    for plain, column in zip(_plan(schema), columns, strict=True):
        if plain.dtypes is None:
            # Of the column's own width: zeros are behind it already.
            np.ndarray((n,), column.dtype, target, plain.start, (width,))[...] = column
    return True


def _as_in_rows(plain: _Plain, column: Any, n: int) -> AnyArray | None:
    """A column as machine code takes it; None if that takes a closer look."""
    if plain.single and type(column) is list:
        column = _listed(column)
    if type(column) is not np.ndarray or plain.shape is None or column.shape != (n, *plain.shape):
        return None
    if plain.dtypes is None:
        return _plain_text(column, plain.capacity)
    if column.dtype not in plain.dtypes:
        return None
    kind = plain.field.type
    if column.dtype.kind == "b":
        column = truth(column)
    if isinstance(kind, Array):
        elements = column.astype(array_dtype(kind), copy=False)
        return elements if elements[0].flags.c_contiguous else np.ascontiguousarray(elements)
    assert isinstance(kind, Number)
    numbers: AnyArray = column.astype(kind.dtype, copy=False)
    return numbers


def fill_plain(rows: ByteArray, at: int, schema: Schema, given: Mapping[str, Any]) -> list[Field]:
    """Writes the columns of a record that are certain to fit; returns the fields left, in declared order.

    Args:
        rows: uint8, one encoded row each, C-contiguous, where the markers stand already.
        at: where the record begins in each row.
        schema: the record's.
        given: a column of any kind for each of its fields.
    """
    plan = _plan(schema)
    n, width = rows.shape
    even = (n,)
    cells: AnyArray = np.ndarray(even, schema.dtype, rows, at, (width,))
    left: list[Field] = []
    for field, name, shape, dtypes, _, single, marked, capacity, start in plan:
        column = given[name]
        if single and type(column) is list:
            column = _listed(column)
        if type(column) is not np.ndarray or shape is None or column.shape != even + shape:
            left.append(field)
        elif dtypes is None:
            if not _put_text(rows, at + start, column, capacity):
                left.append(field)
        elif column.dtype not in dtypes:
            left.append(field)
        else:
            if column.dtype.kind == "b":
                column = truth(column)
            cells[name] = column.view(np.uint8) + _FALSE if marked else column
    return left


def _listed(values: list[Any]) -> AnyArray | None:
    try:
        return array_of(values)
    except Misfit:
        return None


def _put_text(rows: ByteArray, at: int, column: AnyArray, capacity: int) -> bool:
    """Writes a column of text into the rows; False if that takes a closer look."""
    text = _plain_text(column, capacity)
    if text is None:
        return False
    # Of the column's own width: what is behind it is zero already, and numpy need not pad.
    np.ndarray(text.shape, text.dtype, rows, at, rows.strides[:1])[...] = text
    return True


def _plain_text(column: AnyArray, capacity: int) -> AnyArray | None:
    """A column of ASCII that fits as dtype ``S``; None for any other."""
    dtype = column.dtype
    unit = 1 if dtype.kind == "S" else 4
    width = dtype.itemsize // unit
    if dtype.kind not in "SU" or not dtype.isnative or not width:
        return None
    if unit == 1 and width <= capacity:
        return column if _is_ascii(column) else None
    if not column.flags.c_contiguous:
        return None
    characters = column.view(np.uint8 if unit == 1 else np.uint32).reshape(len(column), width)
    if int(characters.max()) >= 0x80 or (width > capacity and characters[:, capacity:].any()):
        return None
    width = min(width, capacity)
    return characters[:, :width].astype(np.uint8).view(f"S{width}").reshape(-1)


def _is_ascii(column: AnyArray) -> bool:
    if column.nbytes <= _SMALL or not column.flags.c_contiguous:
        return column.tobytes().isascii()
    return int(column.view(np.uint8).max()) < 0x80
