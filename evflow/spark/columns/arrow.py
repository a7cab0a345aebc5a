"""Rows of a DataFrame, as Arrow has them, become events, and events become such rows.

That is done by code compiled for the schema, which goes over a batch once (twice, where events vary in width:
first to measure): ``encode_ir.py`` and ``decode_ir.py``. What Arrow can have in several ways is brought into
one before: ``storing.py``.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from evflow.events.batch import EventBatch
from evflow.schema import Schema
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
from evflow.spark.columns.decoder import decode_rows, spark_form
from evflow.spark.columns.encoder import Reserve, encode_rows

_NUMBERS = {number: pa.from_numpy_dtype(number.dtype) for number in NUMBERS.values()}
# Spark has no unsigned integers.
_WIDER = {"u8": pa.int16(), "u16": pa.int32(), "u32": pa.int64(), "u64": pa.decimal128(20, 0)}
_SPARK_NUMBERS = {number: _WIDER.get(number.name, kind) for number, kind in _NUMBERS.items()}


def arrow_schema_of(schema: Schema) -> pa.Schema:
    """The Arrow types that Spark wants for rows of ``struct_of(schema)``.

    Example:
        >>> import evflow as ev
        >>> print(arrow_schema_of(ev.Schema("seat", {"row": ev.u8, "letter": str | None})))
        row: int16 not null
        letter: string
    """
    return pa.schema([_field(field.name, field.type) for field in schema.fields])


def _field(name: str, kind: FieldType) -> pa.Field:
    held = kind.held
    return pa.field(name, _type(held), isinstance(kind, Maybe))


def _type(kind: FieldType) -> pa.DataType:
    if isinstance(kind, Logical):
        return spark_form(kind.arrow_type())
    if isinstance(kind, Number):
        return _SPARK_NUMBERS[kind]
    if isinstance(kind, (Str, Text)):
        return pa.string()
    if isinstance(kind, (Bytes, Blob)):
        return pa.binary()
    if isinstance(kind, ListOf):
        return pa.list_(_field("element", kind.element))
    if isinstance(kind, Record):
        return pa.struct([_field(field.name, field.type) for field in kind.schema.fields])
    assert isinstance(kind, Array)
    held = _SPARK_NUMBERS[kind.element]
    for _ in kind.shape:
        held = pa.list_(pa.field("element", held, nullable=False))
    return held


def encode(schema: Schema, batch: pa.RecordBatch) -> EventBatch:
    """Rows as events, by native code: each value is copied once.

    A column goes to the field of its name. It may have any type of which the values that are there fit the
    field without loss: narrower and wider numbers, a dictionary, times (which become integers, see
    ``schemas``), decimals as their digits or as numbers that hold them. Columns that are no field are
    ignored; a field without a column takes its default.

    Args:
        schema: of the events.
        batch: the rows; slices of longer batches too.

    Raises:
        SchemaError: a column is missing or of a type that does not fit, or a value does not; names the
            column, the row within the batch, what was expected and found.

    Example:
        >>> import evflow as ev
        >>> import pyarrow as pa
        >>> trade = ev.Schema("trade", {"symbol": ev.Str[4], "price": float | None})
        >>> rows = pa.RecordBatch.from_pydict({"price": [80.5, None], "symbol": ["IBM", "SAP"]})
        >>> [(event.symbol, event.price) for event in encode(trade, rows)]
        [('IBM', 80.5), ('SAP', None)]
    """
    return encode_rows(schema, [batch], lambda length: None)


def encode_all(schema: Schema, batches: Sequence[pa.RecordBatch], reserve: Reserve) -> EventBatch:
    """The rows of several batches as one batch of events, written at once to where they are used.

    Args:
        schema: of the events.
        batches: the rows, in order.
        reserve: given a number of bytes, the place for them; None for memory of its own.

    Raises:
        SchemaError: see ``encode``; a row is told by its number within its own batch.
    """
    return encode_rows(schema, batches, reserve)


def decode(batch: EventBatch, arrow_schema: pa.Schema | None = None) -> pa.RecordBatch:
    """Events as rows, by native code: each value is copied once.

    Args:
        batch: the events; of a selection only those that are meant.
        arrow_schema: the columns wanted, in their order: fields of the events in the types of Arrow that they
            are to have, such as timestamps for integers; ``arrow_schema_of(batch.schema)`` where it is None.

    Raises:
        SchemaError: a column is no field, cannot be had as the type wanted, or has nulls where none may be.

    Example:
        >>> import evflow as ev
        >>> import pyarrow as pa
        >>> step = ev.Schema("step", {"day": ev.i32, "count": ev.u8})
        >>> events = ev.EventBatch.from_columns(step, {"day": [0, 365], "count": [7, 8]})
        >>> decode(events).to_pydict()
        {'day': [0, 365], 'count': [7, 8]}
        >>> decode(events, pa.schema({"day": pa.date32()}))["day"][1].as_py().isoformat()
        '1971-01-01'
    """
    return decode_rows(batch, arrow_schema_of(batch.schema) if arrow_schema is None else arrow_schema)
