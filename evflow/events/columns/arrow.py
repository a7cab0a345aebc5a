"""Columns from and to pyarrow; imported only where a pyarrow object is at hand or asked for."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from evflow.errors import SchemaError
from evflow.events.columns.intake import Column, Kept
from evflow.events.columns.reading import decoded_columns, stored_column
from evflow.events.gather import Ragged
from evflow.schema import Schema
from evflow.schema.logical import logical_of
from evflow.schema.types import (
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
from evflow.schema.values import Misfit

if TYPE_CHECKING:
    from evflow.events.batch import EventBatch

_NUMBERS = {name: pa.from_numpy_dtype(number.dtype) for name, number in NUMBERS.items()}


def read_table(table: Any) -> dict[str, Any]:
    """The columns of a Table or RecordBatch by name.

    Raises:
        SchemaError: two columns have one name.
    """
    columns = dict(zip(table.schema.names, table.columns, strict=True))
    if len(columns) < table.num_columns:
        twice = next(name for name in columns if table.schema.names.count(name) > 1)
        raise SchemaError(f"two columns of the table are named {twice!r}; rename or drop one")
    return columns


def read_column(kind: FieldType, given: Any) -> Column:
    """An Array or ChunkedArray as a column; text and bytes without a Python object for each."""
    array = given.combine_chunks() if isinstance(given, pa.ChunkedArray) else given
    if isinstance(array, pa.ChunkedArray):  # too long for one array of its type
        array = pa.concat_arrays([chunk.cast(pa.large_string()) for chunk in array.chunks])
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    present = None if not array.null_count else array.is_valid().to_numpy(zero_copy_only=False)
    kind_of = array.type
    held = kind.held
    if isinstance(held, Logical):
        return Column(_kept(held, array), present)
    if pa.types.is_string_view(kind_of) or pa.types.is_binary_view(kind_of):
        array = array.cast(pa.large_string() if pa.types.is_string_view(kind_of) else pa.large_binary())
        kind_of = array.type
    if _is_text(kind_of):
        return Column(_read_pieces(array, present), present)
    if pa.types.is_boolean(kind_of) or pa.types.is_integer(kind_of) or pa.types.is_floating(kind_of):
        filled = (
            array
            if present is None
            else array.fill_null(pa.scalar(0, kind_of) if kind_of != pa.bool_() else False)
        )
        return Column(filled.to_numpy(zero_copy_only=False), present)
    if pa.types.is_timestamp(kind_of) or pa.types.is_duration(kind_of):
        # Of a table that a matcher gets.
        return Column(array.to_numpy(zero_copy_only=False), present)
    if pa.types.is_struct(kind_of) and present is None:
        return Column({kind_of.field(i).name: part for i, part in enumerate(array.flatten())})
    if pa.types.is_fixed_size_list(kind_of) and present is None and isinstance(kind, Array):
        return Column(_read_even_lists(array, kind_of))
    return Column(array.to_pylist(), present)


def _kept(kind: Logical, array: Any) -> Kept | list[Any]:
    """What the values are kept as, or else the values, one of which does not fit."""
    try:
        kept = kind.from_arrow(array)
    except (TypeError, Misfit, pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return [_value(scalar) for scalar in array]
    if pa.types.is_integer(kept.type):
        numbers = kept.fill_null(0).to_numpy(zero_copy_only=False)
        # NaT, without a null in its place.
        if isinstance(kind, Number) and len(numbers) and numbers.min() < kind.bounds[0]:
            return [_value(scalar) for scalar in array]
        return Kept(numbers)
    return Kept(kept.to_pylist())


def _value(scalar: Any) -> Any:
    """The value of a scalar: a time without a zone in UTC, a text of one that Python has no object for."""
    try:
        value = scalar.as_py()
    except (OverflowError, ValueError):
        return f"{scalar.value} {scalar.type}"
    naive = isinstance(value, datetime) and value.tzinfo is None
    return value.replace(tzinfo=UTC) if naive and value == value else value


def _is_text(kind: pa.DataType) -> bool:
    return kind in (pa.string(), pa.large_string(), pa.binary(), pa.large_binary())


def _read_pieces(array: Any, present: np.ndarray[Any, Any] | None) -> Ragged:
    if present is not None:
        array = array.fill_null(b"" if "binary" in str(array.type) else "")
    large = "large" in str(array.type)
    _, places, content = array.buffers()
    offsets = np.frombuffer(places, np.int64 if large else np.int32)[
        array.offset : array.offset + len(array) + 1
    ]
    if not len(offsets) or content is None:
        return Ragged(np.zeros(len(array), np.int64), np.empty(0, np.uint8))
    data = np.frombuffer(content, np.uint8)[int(offsets[0]) : int(offsets[-1])]
    return Ragged(np.diff(offsets).astype(np.int64), data)


def _read_even_lists(array: Any, kind: Any) -> Any:
    """Lists of lists of one size as an array of more dimensions, or as lists if they hold nulls."""
    shape = [len(array)]
    inner = array
    while pa.types.is_fixed_size_list(inner.type):
        shape.append(inner.type.list_size)
        inner = inner.flatten()
        varies = pa.types.is_nested(inner.type) and not pa.types.is_fixed_size_list(inner.type)
        if inner.null_count or varies:
            return array.to_pylist()
    return inner.to_numpy(zero_copy_only=False).reshape(shape)


def arrow_type(kind: FieldType) -> pa.DataType:
    """The type of Arrow that holds a field's values."""
    if isinstance(kind, Logical):
        return kind.arrow_type()
    if isinstance(kind, Number):
        return _NUMBERS[kind.name]
    if isinstance(kind, (Str, Text)):
        return pa.string()
    if isinstance(kind, (Bytes, Blob)):
        return pa.binary()
    if isinstance(kind, Maybe):
        return arrow_type(kind.element)
    if isinstance(kind, ListOf):
        return pa.list_(arrow_type(kind.element))
    if isinstance(kind, Record):
        return pa.struct([pa.field(f.name, arrow_type(f.type)) for f in kind.schema.fields])
    assert isinstance(kind, Array)
    held = _NUMBERS[kind.element.name]
    for n in reversed(kind.shape):
        held = pa.list_(held) if n is None else pa.list_(held, n)
    return held


def arrow_schema(schema: Schema) -> pa.Schema:
    """The Arrow schema of a table of events."""
    return pa.schema([pa.field(f.name, arrow_type(f.type), isinstance(f.type, Maybe)) for f in schema.fields])


def write_table(batch: EventBatch) -> pa.Table:
    """A Table of the selected events."""
    schema = batch.schema
    kept = {f.name for f in schema.fields if isinstance(f.type, Logical)}
    columns = decoded_columns(batch, kept)
    arrays = [
        _logical(batch, f.name, f.type)
        if isinstance(f.type, Logical)
        else pa.array(_plain(columns[f.name]), arrow_type(f.type))
        for f in schema.fields
    ]
    return pa.Table.from_arrays(arrays, schema=arrow_schema(schema))


def _logical(batch: EventBatch, name: str, kind: Logical) -> Any:
    """A column of a logical type, made of what it is kept as."""
    stored = stored_column(batch, name)
    values: Any = (
        stored.tolist() if stored.dtype.kind == "O" else stored.astype(stored.dtype.newbyteorder("="))
    )
    made = kind.to_arrow(pa.array(values))
    return made.cast(kind.arrow_type())


def _plain(column: np.ndarray[Any, np.dtype[Any]]) -> Any:
    if column.ndim == 1 and column.dtype.kind != "O":
        return column
    return [plain_value(value) for value in column]


def plain_value(value: Any) -> Any:
    """A value as pyarrow takes it."""
    kind = logical_of(type(value))
    if kind is not None:
        return kind.as_arrow(value)
    if hasattr(value, "to_dict"):
        value = value.to_dict()
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, dict):
        return {name: plain_value(inner) for name, inner in value.items()}
    if isinstance(value, (str, bytes)) or not hasattr(value, "__len__"):
        return value
    return [plain_value(inner) for inner in value]
