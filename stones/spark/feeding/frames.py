"""What of a DataFrame becomes events of a schema."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evflow.errors import SchemaError
from evflow.schema import Schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["fitting"]


def fitting(df: DataFrame, schema: Schema, what: str) -> DataFrame:
    """The columns of a DataFrame that are fields of a schema; Spark then reads no others.

    Args:
        df: the rows; none is looked at.
        schema: what they are to become.
        what: what they are to become it for, for the message.

    Raises:
        SchemaError: a field has no column and no default, or a column has another type.
    """
    import pyarrow as pa
    from pyspark.sql.pandas.types import to_arrow_schema

    from evflow.stones.spark.columns.arrow import encode

    known = {field.name for field in schema.fields}
    chosen = df.select(*(f"`{name.replace('`', '``')}`" for name in df.columns if name in known))
    try:
        encode(schema, pa.RecordBatch.from_pylist([], to_arrow_schema(chosen.schema, timezone="UTC")))
    except SchemaError as error:
        raise SchemaError(f"{what}: {error}") from None
    return chosen
