"""Columns from anywhere in the few forms that encoding works on."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from evflow.errors import SchemaError
from evflow.events.gather import Ragged
from evflow.events.numeric import AnyArray
from evflow.schema import Schema
from evflow.schema.types import Blob, Bytes, FieldType, Logical, Maybe, Number, Record, Str, Text
from evflow.schema.values import Misfit, describe

_READERS = {"pandas": "evflow.events.columns.frames", "pyarrow": "evflow.events.columns.arrow"}


def library_of(value: object) -> str | None:
    """The name of evflow's module that reads what pandas or pyarrow made; None for anything else."""
    return _READERS.get(type(value).__module__.partition(".")[0])


@dataclass(frozen=True, slots=True, eq=False)
class Kept:
    """What the values of a logical type are kept as, checked.

    Attributes:
        values: an array of numbers, or a list of bytes.
    """

    values: AnyArray | list[bytes]

    def __len__(self) -> int:
        return len(self.values)

    def where(self, present: np.ndarray[Any, np.dtype[np.bool_]]) -> Kept:
        """Those of some rows."""
        if isinstance(self.values, np.ndarray):
            return Kept(self.values[present])
        return Kept([value for value, there in zip(self.values, present.tolist(), strict=True) if there])


@dataclass(frozen=True, slots=True, eq=False)
class Column:
    """A column of one type of field.

    Attributes:
        values: an array whose first axis is the rows, pieces of text or bytes, a list of Python values,
            what values of a logical type are kept as, or, for a nested record, a mapping of columns.
        present: which rows have a value; None where the values themselves say it.
    """

    values: AnyArray | Ragged | list[Any] | Kept | Mapping[str, Any]
    present: np.ndarray[Any, np.dtype[np.bool_]] | None = None

    def __len__(self) -> int:
        if isinstance(self.values, Ragged):
            return len(self.values.lengths)
        if isinstance(self.values, Mapping):
            return max(map(len, self.values.values()), default=0)
        return len(self.values)


@dataclass(frozen=True, slots=True)
class Constant:
    """The default of a field that has no column."""

    value: Any


def as_column(kind: FieldType, given: Any) -> Column:
    """A column as it was given, for a field of ``kind``.

    Raises:
        Misfit: it is not a column.
    """
    if isinstance(given, Column):
        return given
    reader = library_of(given)
    if reader is not None:
        # The table's own library is loaded by now; evflow loads it for nobody else.
        module = importlib.import_module(reader)
        if hasattr(given, "columns"):
            return Column(module.read_table(given))
        read: Column = module.read_column(kind, given)
        return read
    if isinstance(given, memoryview):
        given = _viewed(given)
    if isinstance(given, np.ma.MaskedArray) and given.ndim:
        return _unmasked(given)
    if isinstance(given, Mapping):
        return Column(given)
    if isinstance(given, np.ndarray) and given.ndim:
        # A row of a matrix would be a matrix again.
        return Column(np.asarray(given))
    if isinstance(given, Sequence) and not isinstance(given, (str, bytes, bytearray)):
        return Column(list(given))
    if hasattr(given, "__array__") and np.ndim(given):
        return Column(np.asarray(given))
    raise Misfit("a column: an array, a list, a column of pandas or pyarrow", given)


def _viewed(given: memoryview) -> AnyArray:
    try:
        return np.asarray(given)
    except (TypeError, ValueError, NotImplementedError):
        raise Misfit("a column: an array, a list, a column of pandas or pyarrow", given) from None


def _unmasked(given: np.ma.MaskedArray[Any, Any]) -> Column:
    """A masked array as a column; a row is missing where all of it is masked.

    Raises:
        Misfit: a part of a row is masked.
    """
    mask = np.ascontiguousarray(np.ma.getmaskarray(given)).view(np.bool_)
    parts = mask.reshape(len(given), mask.size // max(len(given), 1))
    missing: Any = parts.any(axis=1)
    if (missing & ~parts.all(axis=1)).any():
        row = int(np.argmax(missing & ~parts.all(axis=1)))
        raise Misfit("rows of which all is masked, or nothing", given[row], row)
    values = np.asarray(given.data)
    if not missing.any():
        return Column(values)
    if values.dtype.kind in "OmM":
        # A value that is not masked may be missing as well.
        values = values.copy()
        values[missing] = None
        return Column(values)
    return Column(values, ~missing)


def fitting_column(kind: FieldType, given: Any, n: int) -> Column:
    """A column of n rows, in a form that values of ``kind`` can come in.

    Raises:
        Misfit: it is not such a column.
    """
    column = as_column(kind, given)
    values = column.values
    held = kind.held
    if isinstance(values, Mapping):
        if not isinstance(held, Record):
            raise Misfit(f"a column ({kind.text})", values)
    elif isinstance(values, Ragged) and not isinstance(held, (Str, Text, Bytes, Blob)):
        raise Misfit(f"a column of {kind.text}, not of text or bytes", values)
    elif len(column) != n:
        raise Misfit(f"a column of {n} rows ({kind.text})", len(column))
    return column


def required_values(
    kind: FieldType, given: Any, n: int
) -> AnyArray | Ragged | list[Any] | Kept | Mapping[str, Any]:
    """The values of a column of n rows, of which none may be missing.

    Raises:
        Misfit: a row is missing, or it is not such a column.
    """
    column = fitting_column(kind, given, n)
    if column.present is not None and not column.present.all():
        raise Misfit(
            "a value in every row, since the field is not optional", None, int(np.argmin(column.present))
        )
    return column.values


def split_missing(kind: Maybe, given: Any, n: int) -> tuple[np.ndarray[Any, np.dtype[np.bool_]], Column]:
    """Which of the n rows of an optional column have a value, and the column of those rows.

    Raises:
        Misfit: it is not such a column.
    """
    column = fitting_column(kind, given, n)
    values, present = column.values, column.present
    if isinstance(values, Mapping):
        return np.ones(n, np.bool_) if present is None else present, Column(values)
    if present is None:
        present = _present(kind.element, values, n)
    if isinstance(values, np.ndarray):
        return present, Column(values[present])
    if isinstance(values, Ragged):
        return present, Column(values.take(np.flatnonzero(present)))
    if isinstance(values, Kept):
        return present, Column(values.where(present))
    return present, Column([value for value, there in zip(values, present.tolist(), strict=True) if there])


def _present(kind: FieldType, values: Any, n: int) -> np.ndarray[Any, np.dtype[np.bool_]]:
    holds_nan = isinstance(kind, Number) and kind.kind == "f"
    if isinstance(values, np.ndarray) and values.ndim > 1:
        return np.ones(n, np.bool_)
    if isinstance(values, np.ndarray) and values.dtype.kind == "f" and not holds_nan:
        return ~np.isnan(values)
    if isinstance(values, np.ndarray) and values.dtype.kind in "mM":
        return ~np.isnat(values)
    if isinstance(values, list) or (isinstance(values, np.ndarray) and values.dtype.kind == "O"):
        listed = values if isinstance(values, list) else values.tolist()
        if isinstance(kind, Logical):
            return ~np.fromiter(map(kind.is_missing, listed), np.bool_, n)
        missing = (v is None or (not holds_nan and isinstance(v, float) and v != v) for v in listed)
        return ~np.fromiter(missing, np.bool_, n)
    return np.ones(n, np.bool_)


def member_columns(schema: Schema, given: Any) -> dict[str, Any]:
    """A column or a ``Constant`` for each field of a record.

    Args:
        schema: the record.
        given: a mapping of columns, a structured array, or a list of objects or mappings.

    Raises:
        SchemaError: a field has neither column nor default.
        Misfit: a row is not such a record.
    """
    if isinstance(given, np.ndarray) and given.dtype.names is not None:
        given = {name: given[name] for name in given.dtype.names}
    if isinstance(given, np.ndarray):
        given = given.tolist()
    if isinstance(given, list):
        return {
            f.name: [_member(schema, f.name, value, row) for row, value in enumerate(given)]
            for f in schema.fields
        }
    found: dict[str, Any] = {}
    for field in schema.fields:
        if field.name in given:
            found[field.name] = given[field.name]
        elif isinstance(field.type, Record) and (inner := _dotted(field.name, given)):
            found[field.name] = inner
        elif not field.required:
            found[field.name] = Constant(field.default)
    missing = [f.name for f in schema.fields if f.name not in found]
    if missing:
        there = ", ".join(map(str, given)) or "none"
        raise SchemaError(
            f"schema {schema.name}: no column for {', '.join(missing)}; the columns are: {there}"
        )
    return found


def _dotted(name: str, given: Mapping[str, Any]) -> dict[str, Any]:
    prefix = name + "."
    return {
        key[len(prefix) :]: column
        for key, column in given.items()
        if isinstance(key, str) and key.startswith(prefix)
    }


def _member(schema: Schema, name: str, value: Any, row: int) -> Any:
    default = schema[name].default
    found = value.get(name, default) if isinstance(value, Mapping) else getattr(value, name, default)
    if found is default and schema[name].required:
        raise Misfit(f"a {schema.name} with field {name}", value, row)
    return found


def owned_columns(schema: Schema, rows: AnyArray) -> dict[str, Any]:
    """The columns of an array of ``schema.dtype``: booleans are markers, bytes have their length beside, what
    numpy has no type for is as it is kept."""
    columns: dict[str, Any] = {}
    for field in schema.fields:
        values = rows[field.name]
        if isinstance(field.type, Number) and field.type.kind == "b":
            columns[field.name] = values == 0xC3
        elif field.name + "#" in (rows.dtype.names or ()):
            padded = np.ascontiguousarray(values).view(np.uint8).reshape(len(rows), values.dtype.itemsize)
            lengths = rows[field.name + "#"].astype(np.int64)
            pieces = Ragged(lengths, padded[np.arange(padded.shape[1]) < lengths[:, None]])
            columns[field.name] = Column(_loaded(field.type, pieces))
        elif isinstance(field.type, Record):
            columns[field.name] = owned_columns(field.type.schema, values)
        elif isinstance(field.type, Logical) and values.dtype.kind not in "mM":
            columns[field.name] = field.type.load_column(values)
        else:
            columns[field.name] = values
    return columns


def _loaded(kind: FieldType, pieces: Ragged) -> Ragged | AnyArray:
    """The values that are kept as pieces of bytes."""
    if not isinstance(kind, Logical):
        return pieces
    values = np.empty(len(pieces.lengths), object)
    values[:] = [bytes(piece) for piece in np.split(pieces.data, np.cumsum(pieces.lengths)[:-1])]
    return kind.load_column(values)


def columns_of(schema: Schema, table: Any) -> Mapping[str, Any]:
    """The columns of a table by name.

    Args:
        schema: the schema that they are for.
        table: a mapping of columns, a structured array, a DataFrame of pandas, a Table or RecordBatch of
            pyarrow.

    Raises:
        SchemaError: it is none of these.
    """
    if isinstance(table, Mapping):
        return table
    if isinstance(table, np.ndarray) and table.dtype.names is not None:
        if table.ndim != 1:
            raise SchemaError(
                f"schema {schema.name}: expected rows in one dimension, found shape {table.shape}"
            )
        if table.dtype == schema.dtype and schema.width is not None:
            return owned_columns(schema, table)
        return {name: table[name] for name in table.dtype.names}
    reader = library_of(table)
    if reader is not None and hasattr(table, "columns"):
        # The table's own library is loaded by now; evflow loads it for nobody else.
        columns: Mapping[str, Any] = importlib.import_module(reader).read_table(table)
        return columns
    raise SchemaError(
        f"schema {schema.name}: expected a table (dict of columns, structured array, pandas DataFrame, "
        f"pyarrow Table, list of events or EventBatch), found {describe(table)}"
    )
