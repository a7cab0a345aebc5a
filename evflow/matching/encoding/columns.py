"""Rows out of tables: dicts of columns, structured arrays, DataFrames of pandas, tables of pyarrow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evflow.errors import SchemaError
from evflow.events.columns.intake import Column, Kept, as_column
from evflow.events.columns.tables import columns_of
from evflow.events.gather import Ragged, starts_of
from evflow.matching import kernels
from evflow.matching.encoding.builder import RowBuilder
from evflow.matching.encoding.values import NUMBER_KINDS, coordinate_of, dig, seen_by_itself, unmasked
from evflow.matching.encoding.workspace import Workspace
from evflow.matching.names import Names
from evflow.matching.rows import EventRows
from evflow.matching.space import Space
from evflow.matching.strings import Strings
from evflow.schema import Schema
from evflow.schema.types import TEXT as TEXT_FIELD
from evflow.schema.values import Misfit

__all__ = ["encode_columns"]

_ANY = Schema("events", {"value": float})


def encode_columns(
    table: Any,
    names: Names,
    strings: Strings,
    space: Space,
    location: tuple[str, str],
    workspace: Workspace,
) -> EventRows:
    """The rows of a table.

    In an array of numpy every number is there, NaN too, unless it is masked; None, nulls of pyarrow and what
    pandas calls missing in columns that are no floats of numpy are missing. ``S`` is text in UTF-8,
    as in the columns of a batch.

    Raises:
        SchemaError: it is no table, or a column is no column or of another length than the first.
    """
    columns = {name: _column(name, given) for name, given in columns_of(_ANY, table).items()}
    n = _length(columns)
    builder = RowBuilder(n, strings, workspace)
    for name, column in columns.items():
        number = names.numbers.get(name)
        if number is not None:
            _add(builder, number, column)
        for rest, inner in names.inner.get(name, ()):
            held = None if f"{name}.{rest}" in columns else _within(column, rest)
            if held is not None:
                _add(builder, inner, held)
    first, second = (_numbers(columns, name, n) for name in location)
    return builder.build(space.places(first, second))


def _column(name: str, given: Any) -> Column:
    try:
        column = as_column(TEXT_FIELD, given)
    except Misfit as error:
        raise SchemaError(f"column {name}: {error}") from None
    values = column.values
    if isinstance(values, np.ndarray) and values.dtype.names is not None:
        return Column({field: values[field] for field in values.dtype.names}, column.present)
    binary = "binary" in str(getattr(given, "type", getattr(given, "dtype", "")))
    if isinstance(values, Ragged) and binary:
        return Column(np.zeros((len(column), 1)), column.present)
    return column


def _length(columns: Mapping[str, Column]) -> int:
    n = None
    for name, column in columns.items():
        if n is None:
            n = len(column)
        elif len(column) != n:
            raise SchemaError(f"column {name}: expected {n} rows as in the first column, found {len(column)}")
    return n or 0


def _within(column: Column, path: str) -> Column | None:
    """A column of records as a column of one of their fields."""
    values = column.values
    if isinstance(values, Mapping):
        first, _, rest = path.partition(".")
        if path in values:
            first, rest = path, ""
        if first not in values:
            return None
        inner = _column(first, values[first])
        inner = _both(inner, column.present)
        return _within(inner, rest) if rest else inner
    if isinstance(values, np.ndarray) and values.dtype.kind == "O":
        values = values.tolist()
    return Column([dig(value, path) for value in values]) if isinstance(values, list) else None


def _both(column: Column, present: NDArray[np.bool_] | None) -> Column:
    if present is None:
        return column
    return Column(column.values, present if column.present is None else column.present & present)


def _add(builder: RowBuilder, number: int, column: Column) -> None:
    values, present = column.values, column.present
    assert not isinstance(values, Kept), "only fields have logical types"
    if isinstance(values, Ragged):
        start = starts_of(values.lengths)[:-1]
        builder.add_texts(number, values.data, start, values.lengths.astype(np.int32), present)
    elif isinstance(values, Mapping):
        builder.add_others(number, present)
    elif isinstance(values, list):
        builder.add_objects(number, [seen_by_itself(value) for value in unmasked(values, present)])
    elif values.ndim > 1:
        builder.add_others(number, present)
    elif values.dtype.kind in NUMBER_KINDS:
        builder.add_numbers(number, values, present)
    elif values.dtype.kind == "S":
        _add_padded(builder, number, values, present)
    elif values.dtype.kind in "UT":
        builder.add_objects(number, unmasked(values.tolist(), present))
    elif values.dtype.kind in "OmM":
        # Not as a list of numpy's: that has integers for times.
        builder.add_objects(number, [seen_by_itself(value) for value in unmasked(list(values), present)])
    else:
        builder.add_others(number, present)


def _add_padded(
    builder: RowBuilder, number: int, values: NDArray[np.bytes_], present: NDArray[np.bool_] | None
) -> None:
    """A column of ``S``, which is how batches show text."""
    size = values.dtype.itemsize
    chars = np.ascontiguousarray(values).view(np.uint8) if size else np.empty(0, np.uint8)
    start = np.arange(len(values), dtype=np.int64) * size
    length = np.zeros(len(values), np.int32)
    kernels.padded_lengths(chars, start, size, length)
    builder.add_texts(number, chars, start, length, present)


def _numbers(columns: Mapping[str, Column], name: str, n: int) -> NDArray[np.float64]:
    """A column as numbers; NaN where it is missing or no number."""
    column = columns.get(name)
    at = name.find(".")
    while column is None and at >= 0:
        if name[:at] in columns:
            column = _within(columns[name[:at]], name[at + 1 :])
        at = name.find(".", at + 1)
    numbers = np.full(n, np.nan)
    if column is None:
        return numbers
    values, present = column.values, column.present
    if isinstance(values, np.ndarray) and values.ndim == 1 and values.dtype.kind in NUMBER_KINDS:
        numbers[:] = values
    elif isinstance(values, list | np.ndarray):
        listed = values if isinstance(values, list) else list(values)
        numbers[:] = [coordinate_of(value) for value in listed]
    if present is not None:
        numbers[~present] = np.nan
    return numbers
