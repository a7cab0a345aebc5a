"""Tables in by machine code: each column as a list, an array of the field's very type, or laid out for it.

Whatever leaves a doubt is left to the careful way (``writing.py``), which also finds the words for what is
wrong.
"""

from __future__ import annotations

import functools
import importlib
import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from evflow.errors import SchemaError
from evflow.events.columns.intake import (
    Constant,
    Kept,
    member_columns,
    required_values,
    split_missing,
)
from evflow.events.columns.plain import plain_length
from evflow.events.columns.texts import bytes_pieces, text_pieces
from evflow.events.encode import LARGE
from evflow.events.gather import starts_of
from evflow.events.numeric import AnyArray, array_of, convert_array
from evflow.schema import Schema, array_dtype
from evflow.schema.types import (
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
from evflow.schema.values import Misfit

if TYPE_CHECKING:
    from evflow.codgen.tables import TableEncoder

_MANY = 1_000
"""Rows of a schema after which it pays to have machine code made; a table counts as ``TABLE`` at least."""

TABLE = 20
"""Rows that a table counts as at least."""

_FEW = 1_000
"""Rows up to which a table is small."""

_DOUBTS = (Misfit, SchemaError, TypeError, ValueError, OverflowError)

_LONGEST = 1 << 31
"""Bytes of the longest piece, or of the largest array, that is laid out."""


@functools.cache
def _tables() -> Any:
    """The module that makes machine code, imported once a table needs it."""
    return importlib.import_module("evflow.codgen.tables")


def table_encoder(schema: Schema, rows: int) -> TableEncoder | None:
    """The encoder of a schema's columns, once so many rows have come that it pays; None before.

    Args:
        schema: the schema.
        rows: how many come now.
    """
    return _encoder(schema, "table_encoder", rows)


def events_encoder(schema: Schema, rows: int) -> TableEncoder | None:
    """The same for lists of events."""
    return _encoder(schema, "events_encoder", rows)


def _encoder(schema: Schema, name: str, rows: int) -> TableEncoder | None:
    if name not in schema.made:
        seen = schema.made[name, "rows"] = schema.made.get((name, "rows"), 0) + max(rows, TABLE)
        if seen < _MANY:
            return None
        getattr(_tables(), name)(schema)
    made: TableEncoder | None = schema.made[name]
    return made


def laid_out(schema: Schema, given: Mapping[str, Any], n: int) -> list[Any] | None:
    """A column for each of ``table_ir.leaves``, as machine code takes it.

    Args:
        schema: the schema.
        given: of each field a column or a ``Constant``, as ``member_columns`` gives them.
        n: the length of every column.

    Returns:
        None if a column leaves a doubt.
    """
    try:
        return list(_laid_out(schema, given, n))
    except _DOUBTS:
        return None


def small_table(schema: Schema, columns: dict[str, Any]) -> list[Any] | None:
    """``laid_out`` for columns as a user gave them; None also where there are many rows, or none.

    Args:
        schema: the schema.
        columns: field name → column.
    """
    n = plain_length(schema, columns)
    if not n or n > _FEW or n * (schema.width or 0) > LARGE:
        return None
    try:
        given = member_columns(schema, columns)
    except _DOUBTS:
        return None
    return laid_out(schema, given, n)


def _laid_out(schema: Schema, given: Mapping[str, Any], n: int) -> Iterator[Any]:
    for field in schema.fields:
        column, kind = given[field.name], field.type
        if isinstance(kind, Record):
            inner = member_columns(kind.schema, required_values(kind, column, n))
            yield from _laid_out(kind.schema, inner, n)
        elif isinstance(column, Constant):
            yield _laid(kind, [column.value] * n, n)
        else:
            yield _laid(kind, column, n)


def _laid(kind: FieldType, column: Any, n: int) -> Any:
    """A column as machine code takes it.

    Raises:
        Misfit: it does not fit.
    """
    held = kind.held
    kept = isinstance(held, Logical)
    if type(column) is list and not kept:
        return column
    if type(column) is np.ndarray and isinstance(held, Number) and not kept:
        dtype = column.dtype
        if dtype.num == held.dtype.num:
            return column if dtype.isnative else column.astype(held.dtype)
    if type(column) is np.ndarray and column.ndim == 1 and n <= _FEW:
        # To make lists of few texts costs less than numpy takes to set out.
        listed = _listed(held, column)
        if listed is not None:
            return listed
    if isinstance(kind, Maybe):
        present, some = split_missing(kind, column, n)
        if isinstance(held, ListOf) or (isinstance(some.values, list) and not kept):
            return _with_none(some.values, present)
        return _values(held, some.values, present)
    return _values(held, required_values(kind, column, n), None)


def _listed(kind: FieldType, column: AnyArray) -> list[Any] | None:
    """A column of text or bytes as objects."""
    if isinstance(kind, Str | Text) and column.dtype.kind == "U":
        return list(column.tolist())
    if isinstance(kind, Str | Text) and column.dtype.kind == "S":
        return [text.decode() for text in column.tolist()]
    if isinstance(kind, Bytes | Blob) and not isinstance(kind, Logical) and column.dtype.kind == "S":
        return list(column.tolist())
    return None


def _with_none(values: Any, present: AnyArray) -> list[Any]:
    found = iter(values)
    return [next(found) if there else None for there in present.tolist()]


def _values(kind: FieldType, values: Any, present: AnyArray | None) -> Any:
    """The values that are there, in the rows that are present."""
    if isinstance(kind, Logical):
        values = values.values if isinstance(values, Kept) else kind.store_column(values)
    shown = None if present is None or present.all() else np.ascontiguousarray(present).view(np.uint8)
    if isinstance(kind, Number):
        array = values if isinstance(values, np.ndarray) else array_of(values)
        if array.ndim != 1:
            raise Misfit(kind.text, array.shape)
        return _tables().Laid(_spread(convert_array(kind, array), shown), None, shown)
    if isinstance(kind, Array):
        if isinstance(values, list):
            return values
        if not isinstance(values, np.ndarray) or values.dtype.kind == "O" or not kind.takes(values.shape[1:]):
            raise Misfit(kind.text, values)
        shape = values.shape[1:]
        if max(kind.item_size * math.prod(shape), *shape) >= _LONGEST:
            raise Misfit(kind.text, shape)
        elements = np.ascontiguousarray(convert_array(kind.element, values), array_dtype(kind))
        return _tables().Laid(_spread(elements, shown), None, shown)
    if isinstance(kind, Str | Text | Bytes | Blob):
        if isinstance(values, list) and shown is None and not isinstance(kind, Logical):
            return values
        pieces = text_pieces(kind, values) if isinstance(kind, Str | Text) else bytes_pieces(kind, values)
        lengths = pieces.lengths
        if shown is not None:
            lengths = np.zeros(len(shown), np.int64)
            lengths[shown != 0] = pieces.lengths
        if len(lengths) and int(lengths.max()) >= _LONGEST:
            raise Misfit(kind.text, "more")
        return _tables().Laid(np.ascontiguousarray(pieces.data), starts_of(lengths), shown)
    if isinstance(values, np.ndarray):
        return values.tolist()
    if not isinstance(values, list):
        raise Misfit(kind.text, values)
    return values


def _spread(values: AnyArray, shown: AnyArray | None) -> AnyArray:
    """The values in the rows that are shown, zeros in the others."""
    if shown is None:
        return values
    spread = np.zeros((len(shown), *values.shape[1:]), values.dtype)
    spread[shown != 0] = values
    return spread
