"""Columns out of a batch: one field of every event as an array, without a copy where the layout allows."""

from __future__ import annotations

import importlib
from collections.abc import Collection
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from evflow.errors import SchemaError
from evflow.events.gather import gather
from evflow.events.view import ListView
from evflow.schema import Schema
from evflow.schema.program import cell
from evflow.schema.types import Bytes, FieldType, Logical, Maybe, Number, Record, Str

if TYPE_CHECKING:
    from evflow.events.batch import EventBatch

AnyArray = np.ndarray[Any, np.dtype[Any]]

_MANY = 1_000
"""Values of a schema after which it pays to have machine code made."""


@cache
def _machine_code() -> Any:
    """The module that makes machine code, imported once a batch needs it."""
    return importlib.import_module("evflow.codgen.reading")


def raw_column(batch: EventBatch, name: str) -> AnyArray:
    """A field of each selected event, as it stands on the wire where that is what numpy can show.

    Numbers are big-endian, ``Str`` is ``S`` (UTF-8), static arrays have their shape, nested records are
    structured; times are ``datetime64`` and ``timedelta64``; other logical types, ``Bytes`` and everything of
    variable width are object arrays.

    Args:
        batch: the events.
        name: a field, or a field of a nested record: ``position.x``.

    Raises:
        SchemaError: there is no such field.
    """
    kind, at = find_field(batch.schema, name)
    if at is None or isinstance(kind, Bytes):
        found = _read_directly(batch, name, kind)
        if found is not None:
            return found
    if at is None:
        return _read_each(batch, name)
    if isinstance(kind, Logical):
        return kind.load_column(_fixed(batch, kind.stored, at))
    return _fixed(batch, kind, at)


def _read_directly(batch: EventBatch, name: str, kind: FieldType) -> AnyArray | None:
    """The field as objects by machine code, once so many were read that it pays; else None."""
    schema, n = batch.schema, len(batch)
    kept = kind.held if isinstance(kind.held, Logical) else None
    if ("reader", name) not in schema.made:
        if not _pays(schema, n):
            return None
        if kept is not None:
            kind = Maybe(kept.stored) if isinstance(kind, Maybe) else kept.stored
        _machine_code().field_reader(schema, name, kind)
    reader = schema.made["reader", name]
    if reader is None:
        return None
    column: AnyArray = reader.read(batch.data, batch.places(), schema.width or 0, n)
    if kept is not None:
        load = kept.load
        column[:] = [None if value is None else load(value) for value in column.tolist()]
    return column


def _pays(schema: Schema, rows: int) -> bool:
    """Whether so many values of a schema were read that it pays to have machine code made; counts them."""
    seen: int = schema.made.get("rows read", 0)
    if seen < _MANY:
        seen = schema.made["rows read"] = seen + rows
    return seen >= _MANY


def _fixed(batch: EventBatch, kind: FieldType, at: int) -> AnyArray:
    behind, dtype = cell(kind)
    if isinstance(kind, Bytes):
        lengths = cells(batch, at + behind - 2, np.dtype("<u2")).tolist()
        values = cells(batch, at + behind, np.dtype(f"V{kind.capacity}")).tolist()
        return _objects([value[:length] for value, length in zip(values, lengths, strict=True)])
    column = cells(batch, at + behind, dtype)
    return np.equal(column, 0xC3) if isinstance(kind, Number) and kind.kind == "b" else column


def stored_column(batch: EventBatch, name: str) -> AnyArray:
    """What a field of a logical type is kept as in each selected event."""
    kind, at = find_field(batch.schema, name)
    assert isinstance(kind, Logical) and at is not None
    return _fixed(batch, kind.stored, at)


def decoded_columns(batch: EventBatch, without: Collection[str] = ()) -> dict[str, AnyArray]:
    """Every field of the selected events but some: numbers in native byte order, text as object arrays of
    str."""
    columns: dict[str, AnyArray] = {}
    views = None
    for field in batch.schema.fields:
        if field.name in without:
            continue
        if isinstance(field.type, Str):
            texts = _read_directly(batch, field.name, field.type)
            columns[field.name] = _decode_text(raw_column(batch, field.name)) if texts is None else texts
            continue
        if not isinstance(field.type, Record):
            raw = raw_column(batch, field.name)
            columns[field.name] = raw.astype(raw.dtype.newbyteorder("="))
            continue
        views = list(batch) if views is None else views
        values = [getattr(view, field.name) for view in views]
        if isinstance(field.type, Record):
            values = [value.to_dict() for value in values]
        columns[field.name] = _objects(values)
    return columns


def structured(batch: EventBatch) -> AnyArray:
    """The events as a structured array of ``schema.dtype``, without a copy where nothing is selected; with
    objects, copied, where there are decimals, UUIDs or enumerations.

    Raises:
        SchemaError: the events are of variable width.
    """
    if batch.schema.width is None:
        variable = ", ".join(f.name for f in batch.schema.fields if f.offset is None)
        raise SchemaError(
            f"schema {batch.schema.name} has no structured type: {variable} vary in width; use to_columns()"
        )
    rows = cells(batch, 0, batch.schema.dtype)
    if not any(_needs_objects(field.type) for field in batch.schema.fields):
        return rows
    return _with_objects(batch.schema, rows, batch)


def _needs_objects(kind: FieldType) -> bool:
    """True if numpy has no type for the values, or for some within them."""
    if isinstance(kind, Record):
        return any(_needs_objects(field.type) for field in kind.schema.fields)
    return isinstance(kind, Logical) and not kind.plain


def _with_objects(schema: Schema, rows: AnyArray, batch: EventBatch, prefix: str = "") -> AnyArray:
    """The rows with objects in place of what values are kept as: that has another meaning as numbers."""
    columns: dict[str, AnyArray] = {}
    for field in schema.fields:
        name = prefix + field.name
        if isinstance(field.type, Record) and _needs_objects(field.type):
            columns[field.name] = _with_objects(field.type.schema, rows[field.name], batch, f"{name}.")
        elif _needs_objects(field.type):
            columns[field.name] = raw_column(batch, name)
        else:
            columns[field.name] = rows[field.name]
            if isinstance(field.type, Bytes):
                columns[f"{field.name}#"] = rows[f"{field.name}#"]
    kinds = [(name, column.dtype, column.shape[1:]) for name, column in columns.items()]
    made = np.empty(len(rows), kinds)
    for name, column in columns.items():
        made[name] = column
    return made


def cells(batch: EventBatch, at: int, dtype: np.dtype[Any]) -> AnyArray:
    """What stands ``at`` bytes behind the start of each selected event."""
    width, size = batch.schema.width, dtype.itemsize
    shape, base = dtype.shape, dtype.base
    if batch.rows == 0 or size == 0:
        return np.empty((len(batch), *shape), base)
    if width is not None:
        column: AnyArray = np.ndarray(
            (batch.rows, *shape), base, batch.data, at, (width, *_strides(shape, base.itemsize))
        )
        return column if batch.selection is None else column[batch.selection]
    starts = batch.places()
    assert starts is not None
    found = None
    if _pays(batch.schema, len(starts)):
        found = _machine_code().copied_cells(batch.data, starts, at, size)
    if found is None:
        found = gather(batch.data, starts + at, np.full(len(starts), size, np.int64))
    return found.view(base).reshape(len(starts), *shape)


def _strides(shape: tuple[int, ...], size: int) -> tuple[int, ...]:
    strides = [size]
    for n in reversed(shape[1:]):
        strides.append(strides[-1] * n)
    return tuple(reversed(strides[: len(shape)]))


def find_field(schema: Schema, name: str) -> tuple[FieldType, int | None]:
    """The type and, if it is fixed, the offset of a field, by its dotted name."""
    known: tuple[FieldType, int | None] | None = schema.made.get(("field", name))
    if known is None:
        known = schema.made["field", name] = _find_field(schema, name)
    return known


def _find_field(schema: Schema, name: str) -> tuple[FieldType, int | None]:
    first, *rest = name.split(".")
    field = schema[first]
    kind, at = field.type, field.offset
    for step in rest:
        if not isinstance(kind, Record):
            raise SchemaError(f"schema {schema.name}: {name!r}: {kind.text} has no field {step}")
        inner = kind.schema[step]
        at = None if at is None or inner.offset is None else at + inner.offset
        kind = inner.type
    return kind, at


def _read_each(batch: EventBatch, name: str) -> AnyArray:
    values: list[Any] = list(batch)
    for step in name.split("."):
        values = [getattr(value, step) for value in values]
    return _objects(list(map(_listed, values)))


def _listed(value: Any) -> Any:
    """A list in place of what shows one."""
    return list(map(_listed, value)) if isinstance(value, ListView) else value


def _objects(values: list[Any]) -> AnyArray:
    # Element by element, since numpy would make one array of equally long lists.
    column = np.empty(len(values), object)
    for i, value in enumerate(values):
        column[i] = value
    return column


def _decode_text(raw: AnyArray) -> AnyArray:
    column = np.ascontiguousarray(raw)
    if not len(column) or column.view(np.uint8).max() < 0x80:
        return column.astype(np.str_).astype(object)
    return _objects([value.decode() for value in column.tolist()])
