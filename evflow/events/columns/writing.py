"""Tables in: columns of numbers, text and records as encoded rows.

What all rows have in common, the markers, is written once and repeated; each column of fixed width is then
one strided assignment into the rows, or machine code writes whole rows. Columns of variable width become
pieces, and the pieces of a row are put behind its fixed part. Only lists and arrays of varying shape take a
Python step for each row.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from evflow.errors import SchemaError
from evflow.events.careful import encode_scalar
from evflow.events.columns.direct import laid_out, table_encoder
from evflow.events.columns.intake import (
    Constant,
    Kept,
    fitting_column,
    member_columns,
    required_values,
    split_missing,
)
from evflow.events.columns.plain import fill_plain, fill_rows, plain_length
from evflow.events.columns.texts import bytes_pieces, text_pieces
from evflow.events.encode import LARGE, value_encoder
from evflow.events.gather import (
    ByteArray,
    Offsets,
    Ragged,
    Room,
    expand,
    frozen,
    interleave,
    join,
    own_place,
    put_into_rows,
    repeat,
)
from evflow.events.numeric import AnyArray, array_of, convert_array
from evflow.schema import Schema, array_dtype
from evflow.schema.description import held_record
from evflow.schema.program import NIL, fixed_image, image
from evflow.schema.types import Array, Blob, Bytes, FieldType, Logical, Maybe, Number, Record, Str, Text
from evflow.schema.values import Misfit, describe


def encode_columns(
    schema: Schema, columns: Mapping[str, Any], room: Room
) -> tuple[ByteArray | bytes, int, Offsets | None]:
    """Encoded rows: the bytes, not writeable, how many rows, and their offsets where their width varies.

    Args:
        schema: the schema of the rows.
        columns: field name → column: a numpy array, a sequence, a column of pandas or pyarrow, for a
            nested record a mapping of columns (or columns named ``record.field``). Columns that are no
            field are ignored.
        room: gives a place for so many bytes; None for memory of their own. Asked where they are many, and
            of one width.

    Raises:
        SchemaError: a column is missing and the field has no default, columns differ in length, or a value
            does not fit; names the column and the first row.
    """
    n = plain_length(schema, columns)
    if n is None:
        n = _common_length(schema, columns)
    place = f"schema {schema.name}: column "
    given = member_columns(schema, columns)
    size = n * (schema.width or 0)
    target, held = (room(size) or own_place(size)) if size >= LARGE else (None, None)
    if target is not None and held is not None and fill_rows(target, schema, given, n):
        return held, n, None
    direct = _directly(schema, given, n, target)
    if direct is not None:
        return direct[0] if held is None else held, n, direct[1]
    if schema.width is None:
        data, offsets = interleave(_record_parts(schema, given, n, place))
        return frozen(data), n, offsets
    if target is None or held is None:
        return frozen(_fixed_rows(schema, given, n, place).reshape(-1)), n, None
    repeat(target, _template(schema))
    _fill_record(target.reshape(n, schema.width), 0, schema, given, place)
    return held, n, None


def _directly(
    schema: Schema, given: Mapping[str, Any], n: int, target: ByteArray | None
) -> tuple[ByteArray | bytes, Offsets | None] | None:
    """The rows by machine code; None if there is none yet, numpy is faster, or a value leaves a doubt."""
    if schema.width is not None and any(map(_suits_numpy, given.values())):
        return None
    encoder = table_encoder(schema, n) if n else None
    columns = laid_out(schema, given, n) if encoder is not None else None
    return None if encoder is None or columns is None else encoder.encode(columns, n, target)


def _suits_numpy(column: Any) -> bool:
    """Whether numpy converts a column, which it can assign to rows of one width: one of texts or times."""
    if isinstance(column, Mapping):
        return any(map(_suits_numpy, column.values()))
    return isinstance(column, np.ndarray) and column.dtype.kind in "SUmM"


def _common_length(schema: Schema, columns: Mapping[str, Any]) -> int:
    fields = {name: column for name, column in columns.items() if str(name).partition(".")[0] in schema}
    lengths = dict(_lengths(schema, "", fields))
    if len(set(lengths.values())) > 1:
        listed = ", ".join(f"{name} {n}" for name, n in lengths.items())
        raise SchemaError(f"schema {schema.name}: columns of different length: {listed}")
    return next(iter(lengths.values()), 0)


def _lengths(schema: Schema, prefix: str, columns: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    for key, column in columns.items():
        name = f"{prefix}{key}"
        if isinstance(column, Mapping):
            yield from _lengths(schema, name + ".", column)
        else:
            yield name, _length(f"schema {schema.name}: column {name}", column)


def _length(place: str, column: Any) -> int:
    if not isinstance(column, (str, bytes)):
        with contextlib.suppress(TypeError):
            return len(column)
    raise SchemaError(f"{place}: expected a column, found {describe(column)}")


def _named(place: str, error: Misfit) -> SchemaError:
    """A misfit as an error that names column and row."""
    row = "" if error.index is None else f"row {error.index}: "
    return SchemaError(f"{place}: {row}{error}")


def _fixed_rows(schema: Schema, given: Mapping[str, Any], n: int, place: str) -> ByteArray:
    """The fixed parts of n records, one a row."""
    rows = np.frombuffer(bytearray(_template(schema)) * n, np.uint8).reshape(n, schema.fixed_width)
    if n:
        _fill_record(rows, 0, schema, given, place)
    return rows


def _record_parts(schema: Schema, given: Mapping[str, Any], n: int, place: str) -> list[Ragged]:
    """The fixed parts of n records, then the pieces of each variable field."""
    parts = [Ragged.even(_fixed_rows(schema, given, n, place))]
    for field in schema.wire_fields:
        if field.offset is None:
            try:
                parts += _pieces(field.type, given[field.name], n, place + field.name)
            except Misfit as error:
                raise _named(place + field.name, error) from None
    return parts


def _pieces(kind: FieldType, given: Any, n: int, place: str) -> list[Ragged]:
    """A column of any type as pieces, of which those of one row belong behind each other."""
    if isinstance(given, Constant):
        piece = np.frombuffer(value_encoder(kind)(given.value), np.uint8)
        return [Ragged.even(np.broadcast_to(piece, (n, len(piece))))]
    record, _ = held_record(kind)
    if isinstance(kind, Maybe) and record is not None and record.schema.recursive:
        # Columns of columns without end; such records are rare enough to be taken one by one.
        values = fitting_column(kind, given, n).values
        if not isinstance(values, (list, np.ndarray)):
            raise Misfit(f"a list of records ({kind.text})", values)
        return [_one_by_one(kind, values)]
    if isinstance(kind, Maybe):
        present, column = split_missing(kind, given, n)
        inner = join(_pieces(kind.element, column, int(present.sum()), place))
        return [expand(inner, present, bytes([NIL]))]
    if isinstance(kind, Record):
        return _record_parts(
            kind.schema, member_columns(kind.schema, required_values(kind, given, n)), n, place + "."
        )
    if kind.width is not None:
        rows = np.frombuffer(bytearray(image(kind)) * n, np.uint8).reshape(n, kind.width)
        if n:
            _fill(rows, 0, kind, given, place)
        return [Ragged.even(rows)]
    content: Any = required_values(kind, given, n)
    if isinstance(kind, (Text, Blob)):
        body = text_pieces(kind, content) if isinstance(kind, Text) else bytes_pieces(kind, content)
        heads = np.empty((n, 5), np.uint8)
        heads[:, 0] = 0xDB if isinstance(kind, Text) else 0xC6
        heads[:, 1:] = body.lengths.astype(">u4").view(np.uint8).reshape(n, 4)
        return [Ragged.even(heads), body]
    return [_one_by_one(kind, content)]


def _one_by_one(kind: FieldType, values: Any) -> Ragged:
    encode = value_encoder(kind)
    pieces = []
    for row, value in enumerate(values):
        try:
            pieces.append(encode(value))
        except SchemaError as error:
            raise Misfit(f"a value of type {kind.text} ({error})", value, row) from None
    return Ragged.of(pieces)


def _fill_record(rows: ByteArray, at: int, schema: Schema, given: Mapping[str, Any], place: str) -> None:
    for field in fill_plain(rows, at, schema, given):
        assert field.offset is not None
        try:
            _fill(rows, at + field.offset, field.type, given[field.name], place + field.name)
        except Misfit as error:
            raise _named(place + field.name, error) from None


def _fill(rows: ByteArray, at: int, kind: FieldType, given: Any, place: str) -> None:
    """Writes a column of fixed width into the rows, behind the markers that stand there."""
    if isinstance(given, Constant):
        encoded = encode_scalar(kind, given.value)
        rows[:, at : at + len(encoded)] = np.frombuffer(encoded, np.uint8)
        return
    values: Any = required_values(kind, given, len(rows))
    if isinstance(kind, Logical):
        values = values.values if isinstance(values, Kept) else kind.store_column(values)
    if isinstance(kind, Number):
        numbers = convert_array(kind, _one_dimensional(kind, values))
        if kind.kind == "b":
            rows[:, at] = numbers.view(np.uint8) + 0xC2
        else:
            _cells(rows, at + 1, kind.dtype.newbyteorder(">"), ())[...] = numbers
    elif isinstance(kind, Str):
        put_into_rows(rows, at + kind.head, text_pieces(kind, values))
    elif isinstance(kind, Bytes):
        pieces = bytes_pieces(kind, values)
        _cells(rows, at + kind.head, np.dtype("<u2"), ())[...] = pieces.lengths
        put_into_rows(rows, at + kind.head + 2, pieces)
    elif isinstance(kind, Array):
        _fill_arrays(rows, at, kind, values)
    elif isinstance(kind, Record):
        _fill_record(rows, at, kind.schema, member_columns(kind.schema, values), place + ".")


def _fill_arrays(rows: ByteArray, at: int, kind: Array, values: Any) -> None:
    shape = tuple(n or 0 for n in kind.shape)
    if isinstance(values, np.ndarray) and values.dtype.kind != "O":
        if values.shape[1:] != shape:
            raise Misfit(f"a column of shape {(len(rows), *shape)} ({kind.text})", values.shape)
        try:
            numbers = convert_array(kind.element, values)
        except Misfit as error:
            size = math.prod(shape) or 1
            raise Misfit(
                error.expected, error.found, None if error.index is None else error.index // size
            ) from None
        _cells(rows, at + kind.data_offset, array_dtype(kind), shape)[...] = numbers
    else:
        width = kind.width or 0
        rows[:, at : at + width] = _one_by_one(kind, values).data.reshape(len(rows), width)


def _one_dimensional(kind: Number, values: Any) -> AnyArray:
    array = values if isinstance(values, np.ndarray) else array_of(values)
    if array.ndim != 1:
        raise Misfit(f"a column of single numbers ({kind.text})", array.shape)
    return array


def _cells(rows: ByteArray, at: int, dtype: np.dtype[Any], shape: tuple[int, ...]) -> AnyArray:
    """What stands at ``at`` in each row, as an array that can be assigned to."""
    cells: AnyArray = rows[:, at : at + dtype.itemsize * math.prod(shape)]
    if not cells.size:
        return np.empty((len(rows), *shape), dtype)
    inner = np.empty(shape, dtype).strides
    return np.ndarray((len(rows), *shape), dtype, rows, at, (rows.strides[0], *inner))


def _template(schema: Schema) -> bytes:
    """The fixed part of an event whose values are all zero."""
    made: bytes | None = schema.made.get("template")
    if made is None:
        made = schema.made["template"] = fixed_image(schema)
    return made
