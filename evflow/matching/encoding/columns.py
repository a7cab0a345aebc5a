"""Rows out of tables: dicts of columns, structured arrays, DataFrames of pandas, tables of pyarrow."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sized
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evflow.errors import SchemaError
from evflow.events.columns.intake import Column, Kept, as_column, columns_of
from evflow.events.gather import Ragged, starts_of
from evflow.matching import kernels
from evflow.matching.encoding.builder import RowBuilder
from evflow.matching.encoding.values import (
    NUMBER_KINDS,
    Vocabulary,
    coordinate_of,
    dig,
    seen_by_itself,
    unmasked,
)
from evflow.matching.rows import EventRows
from evflow.outside import shown
from evflow.schema import Schema
from evflow.schema.types import TEXT as TEXT_FIELD
from evflow.schema.values import Misfit

_ANY = Schema("events", {"value": float})


@dataclass(frozen=True, slots=True)
class Pieces:
    """Texts that lie somewhere in an array.

    Attributes:
        chars: uint8: bytes in UTF-8.
        start: int64: where each text starts.
        length: int32: how many bytes each has.
    """

    chars: NDArray[np.uint8]
    start: NDArray[np.int64]
    length: NDArray[np.int32]


Found = tuple[Any, NDArray[np.bool_] | None]
"""The values of a column as ``Column`` has them, or ``Pieces``; and which rows have one, None for all."""


def encode_columns(table: Any, known: Vocabulary) -> EventRows:
    """The rows of a table.

    In an array of numpy every number is there, NaN too, unless it is masked; None, nulls of pyarrow and what
    pandas calls missing in columns that are not floats of numpy are missing. ``S`` is text in UTF-8,
    as in the columns of a batch.

    Raises:
        SchemaError: it is not a table, or a column is not a column or of another length than the first.
    """
    columns = {name: _column(name, given) for name, given in columns_of(_ANY, table).items()}

    def find(name: str) -> Found | None:
        column = _find(columns, name)
        return None if column is None else _values(column)

    return rows_of_columns(_length(columns), columns, find, known)


def found_of(name: str, given: Any) -> tuple[int, Found]:
    """A column as it is read, and how many values it has.

    Args:
        name: what errors call it.
        given: an array, a list, a column of pandas or pyarrow.

    Raises:
        SchemaError: it is not a column.
    """
    column = _column(name, given)
    return len(column), _values(column)


def rows_of_columns(
    n: int, names: Iterable[str], find: Callable[[str], Found | None], known: Vocabulary
) -> EventRows:
    """The rows of columns.

    Args:
        n: how many events there are.
        names: of the columns.
        find: gives the column of a name, dotted if it is within another one; None if there is none.
        known: what the events are read for.
    """
    builder, numbers, inner = RowBuilder(n, known.strings), known.names.numbers, known.names.inner
    added: set[int] = set()
    for name in names:
        wanted = [(number, f"{name}.{rest}") for rest, number in inner.get(name, ())]
        wanted += [(numbers[name], name)] if name in numbers else []
        for number, path in wanted:
            if number not in added and (found := find(path)) is not None:
                added.add(number)
                _add(builder, number, *found)
    first, second = (_numbers(find(name), n) for name in known.location)
    return builder.build(known.space.places(first, second))


def _find(columns: Mapping[str, Column], name: str) -> Column | None:
    """A column, or a field of a column of records."""
    column, at = columns.get(name), name.find(".")
    while column is None and at >= 0:
        if name[:at] in columns:
            column = _within(columns[name[:at]], name[at + 1 :])
        at = name.find(".", at + 1)
    return column


def _column(name: str, given: Any) -> Column:
    try:
        column = as_column(TEXT_FIELD, given)
    except Misfit as error:
        raise SchemaError(f"column {name}: {error}") from None
    values = column.values
    if isinstance(values, Mapping):
        for field, held in values.items():
            if not isinstance(held, Sized):
                raise SchemaError(f"column {name}.{field}: expected a column, found {shown(held)}")
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


def _values(column: Column) -> Found:
    values = column.values
    assert not isinstance(values, Kept), "only fields have logical types"
    if isinstance(values, Ragged):
        pieces = Pieces(values.data, starts_of(values.lengths)[:-1], values.lengths.astype(np.int32))
        return pieces, column.present
    if isinstance(values, np.ndarray) and values.ndim == 1 and values.dtype.kind == "S":
        return _padded(values), column.present
    return values, column.present


def _add(builder: RowBuilder, number: int, values: Any, present: NDArray[np.bool_] | None) -> None:
    if isinstance(values, Pieces):
        builder.add_texts(number, values.chars, values.start, values.length, present)
    elif isinstance(values, list):
        builder.add_objects(number, [seen_by_itself(value) for value in unmasked(values, present)])
    elif isinstance(values, Mapping) or values.ndim > 1:
        builder.add_others(number, present)
    elif values.dtype.kind in NUMBER_KINDS:
        builder.add_numbers(number, values, present)
    elif values.dtype.kind in "UT":
        builder.add_objects(number, unmasked(values.tolist(), present))
    elif values.dtype.kind in "OmM":
        # Not as a list of numpy's: that has integers for times.
        builder.add_objects(number, [seen_by_itself(value) for value in unmasked(list(values), present)])
    else:
        builder.add_others(number, present)


def _padded(values: NDArray[np.bytes_]) -> Pieces:
    """A column of ``S``, which is how batches show text."""
    size = values.dtype.itemsize
    chars = np.ascontiguousarray(values).view(np.uint8) if size else np.empty(0, np.uint8)
    start = np.arange(len(values), dtype=np.int64) * size
    length = np.zeros(len(values), np.int32)
    kernels.padded_lengths(chars, start, size, length)
    return Pieces(chars, start, length)


def _numbers(column: Found | None, n: int) -> NDArray[np.float64]:
    """A column as numbers; NaN where it is missing or no number."""
    numbers = np.full(n, np.nan)
    if column is None:
        return numbers
    values, present = column
    if isinstance(values, np.ndarray) and values.ndim == 1 and values.dtype.kind in NUMBER_KINDS:
        numbers[:] = values
    elif isinstance(values, list | np.ndarray):
        listed = values if isinstance(values, list) else list(values)
        numbers[:] = [coordinate_of(value) for value in listed]
    if present is not None:
        numbers[~present] = np.nan
    return numbers
