"""Columns of Arrow brought into the forms that the encoder reads, with all that is in them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from evflow.events.columns.arrow import arrow_type, plain_value
from evflow.schema import Schema
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
from evflow.spark.columns.converting import (
    Stored,
    Unfit,
    store_logical,
    store_memory,
    store_numbers,
    store_pieces,
    unfit_type,
)
from evflow.spark.columns.names import indices_of


def store(kind: FieldType, array: Any, shift: int = 0) -> Stored:
    """An array of Arrow for a field of ``kind``.

    Args:
        kind: the field's type.
        array: its values.
        shift: what is added to the index of a value to find it in ``array``.

    Raises:
        Unfit: a value does not fit, or the array is of another type altogether.
    """
    array = _flat(kind, array)
    held = kind.held
    try:
        if isinstance(held, Logical):
            array, held = store_logical(held, array), held.stored
        if isinstance(held, Number):
            return store_numbers(held, array, shift)
        if isinstance(held, (Str, Text, Bytes, Blob)):
            return store_pieces(held, array, shift)
    except Misfit as misfit:
        raise Unfit("", str(misfit), misfit.index) from None
    if isinstance(held, Record):
        return _record(held.schema, array, shift)
    assert isinstance(held, (ListOf, Array))
    return _list(held, array, shift)


def _flat(kind: FieldType, array: Any) -> Any:
    """The array without what only some columns have: chunks, a dictionary, views, runs."""
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if pa.types.is_run_end_encoded(array.type):
        array = pc.run_end_decode(array)
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if pa.types.is_null(array.type):
        array = pa.nulls(len(array), arrow_type(kind))
    return array


def _record(schema: Schema, array: Any, shift: int) -> Stored:
    if not pa.types.is_struct(array.type):
        raise unfit_type(f"a column of structs (record {schema.name})", array.type)
    stored = store_memory(array, shift)
    names = [array.type.field(i).name for i in range(array.type.num_fields)]
    # Under a null there may be anything, which then is a null as well.
    parts = array.flatten() if array.null_count else [array.field(i) for i in range(len(names))]
    for member in schema.fields:
        at = indices_of(names, member.name)
        if len(at) == 1:
            part = parts[at[0]]
        elif not at and not member.required:
            part = constant(member.type, member.default, len(array))
        else:
            raise unfit_type(f"structs with one field {member.name}", array.type)
        try:
            stored.children.append(store(member.type, part, shift))
        except Unfit as error:
            raise Unfit(f".{member.name}{error.path}", error.words, error.row) from None
    return stored


def constant(kind: FieldType, value: Any, rows: int) -> Any:
    """A column that has the default of a field in each row."""
    held = kind.held
    if isinstance(held, ListOf):
        return pa.nulls(rows, arrow_type(held)) if value is None else pa.array([[]] * rows, arrow_type(held))
    return pa.array([plain_value(value)], arrow_type(held)).take(pa.array(np.zeros(rows, np.int64)))


def _list(kind: ListOf | Array, array: Any, shift: int) -> Stored:
    array = _as_list(kind, array)
    wide = pa.types.is_large_list(array.type)
    element = _element(kind)
    if array.null_count and not isinstance(array, pa.MapArray):
        array = _without_hidden(array)
    stored = store_memory(array, shift, wide=wide)
    if not len(array):
        stored.children.append(store(element, array.values.slice(0, 0)))
        return stored
    offsets = np.frombuffer(array.buffers()[1], np.int64 if wide else np.int32)
    offsets = offsets[array.offset : array.offset + len(array) + 1]
    first, last = int(offsets[0]), int(offsets[-1])
    values = array.values.slice(first, last - first)
    try:
        if isinstance(kind, Array) and values.null_count and len(kind.shape) == 1:
            null = int(np.argmin(values.is_valid().to_numpy(zero_copy_only=False)))
            raise Unfit("", "expected an array without nulls, found one", null)
        stored.children.append(store(element, values, -first))
    except Unfit as error:
        row = error.row
        if row is not None:
            row = int(np.searchsorted(offsets, first + row, "right")) - 1
        raise Unfit("[]" + error.path, error.words, row) from None
    return stored


def _element(kind: ListOf | Array) -> FieldType:
    if isinstance(kind, ListOf):
        return kind.element
    # Nulls among the numbers are looked for apart, so that they are reported by their row.
    return Maybe(kind.element) if len(kind.shape) == 1 else Array(kind.element, kind.shape[1:])


def _as_list(kind: ListOf | Array, array: Any) -> Any:
    found = array.type
    if pa.types.is_list(found) or pa.types.is_large_list(found):
        return array
    if pa.types.is_map(found) and isinstance(kind, ListOf) and isinstance(kind.element.held, Record):
        return array
    if pa.types.is_fixed_size_list(found):
        return array.cast(pa.list_(found.value_field))
    raise unfit_type(f"a column of arrays ({kind.text})", found)


def _without_hidden(array: Any) -> Any:
    """Lists of which those that are null have no elements."""
    wide = pa.types.is_large_list(array.type)
    offsets = np.frombuffer(array.buffers()[1], np.int64 if wide else np.int32)
    counts = np.diff(offsets[array.offset : array.offset + len(array) + 1])
    missing = ~array.is_valid().to_numpy(zero_copy_only=False)
    if not counts[missing].any():
        return array
    return array.take(pa.array(np.arange(len(array))))
