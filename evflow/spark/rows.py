"""Rows of DataFrames: the columns that become events, and batches of a suitable size."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from evflow.errors import SchemaError
from evflow.schema import Schema
from evflow.spark.columns.names import indices_of, quoted

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame


def fitting(df: DataFrame, schema: Schema, what: str) -> DataFrame:
    """The columns of a DataFrame that are fields of a schema, under the fields' names; Spark reads no others.

    Upper and lower case are one, as in Spark, unless a column has the very name of the field.

    Args:
        df: the rows; none is looked at.
        schema: what they are to become.
        what: what they are to become it for, for the message.

    Raises:
        SchemaError: a field has no column and no default, or several; or a column has another type.
    """
    import pyarrow as pa
    from pyspark.sql import functions as F
    from pyspark.sql.pandas.types import to_arrow_schema

    from evflow.spark.columns.encoder import encode

    found = {}
    for field in schema.fields:
        at = indices_of(df.columns, field.name)
        if len(at) > 1:
            names = " and ".join(df.columns[index] for index in at)
            raise SchemaError(f"{what}: columns {names} are both {field.name}; rename or drop one")
        if at:
            found[at[0]] = field.name
        elif field.required:
            there = ", ".join(df.columns) or "none"
            raise SchemaError(
                f"{what}: schema {schema.name}: no column for {field.name}; the columns are: {there}"
            )
    chosen = df.select(*(F.col(quoted(df.columns[at])).alias(found[at]) for at in sorted(found)))
    try:
        encode(schema, pa.RecordBatch.from_pylist([], to_arrow_schema(chosen.schema, timezone="UTC")))
    except SchemaError as error:
        raise SchemaError(f"{what}: {error}") from None
    return chosen


def together(batches: Iterator[pa.RecordBatch], rows: int, nbytes: int) -> Iterator[pa.RecordBatch]:
    """Small batches put together, in order; none that is given is empty.

    Args:
        batches: the batches.
        rows: rows from which a batch is large enough.
        nbytes: bytes likewise.
    """
    import pyarrow as pa

    held: list[pa.RecordBatch] = []
    count = size = 0
    for batch in batches:
        held.append(batch)
        count, size = count + batch.num_rows, size + batch.nbytes
        if count >= rows or size >= nbytes:
            yield from pa.Table.from_batches(held).combine_chunks().to_batches()
            held, count, size = [], 0, 0
    if count:
        yield from pa.Table.from_batches(held).combine_chunks().to_batches()
