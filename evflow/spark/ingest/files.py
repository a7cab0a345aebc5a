"""The schema in which Spark is to read files of text, of which each stone says what it takes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark.errors import AnalysisException
from pyspark.sql.types import StringType, StructField, StructType

from evflow.schema import Schema
from evflow.spark.columns.kept import column_of
from evflow.spark.columns.schemas import struct_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def schema_of_files(
    spark: SparkSession,
    path: str,
    format: str,
    options: Mapping[str, str],
    declared: Schema | None,
    stream: bool,
) -> tuple[StructType | None, dict[str, str]]:
    """The schema to read files in, and further options; None to let Spark find it.

    Columns of the declared schema get its types, so that it does not depend on what the first files hold. CSV
    has a header line unless the options say otherwise.

    Raises:
        PySparkException: the files cannot be read.
    """
    csv = format == "csv"
    more = {"header": "true"} if csv else {}
    given = {**more, **options}
    if declared is None:
        if csv:
            more["inferSchema"] = "true"
        # A stream does not look into files by itself.
        return (_found(spark, path, format, {**more, **options}) if stream else None), more
    if format == "json" or (csv and given["header"].lower() != "true"):
        return _nullable(declared), more
    if not (csv or stream):
        return None, more
    try:
        found = _found(spark, path, format, given)
    except AnalysisException as error:
        if not stream or error.getCondition() != "UNABLE_TO_INFER_SCHEMA":
            raise
        # No file has come yet. What comes has to have the fields in their order, which is checked for CSV.
        return _nullable(declared), {**more, **({"enforceSchema": "false"} if csv else {})}
    return (_typed(found, declared) if csv else found), more


def _found(spark: SparkSession, path: str, format: str, options: Mapping[str, str]) -> StructType:
    return spark.read.format(format).options(**options).load(path).schema


def _typed(found: StructType, declared: Schema) -> StructType:
    """Each column with the type of its field, and those that are not fields as text."""
    fields = _nullable(declared)
    columns = []
    for name in found.fieldNames():
        field = column_of(fields, name)
        columns.append(StructField(name, StringType() if field is None else field.dataType))
    return StructType(columns)


def _nullable(declared: Schema) -> StructType:
    """What files of text may hold: each value may be missing."""
    return StructType([StructField(field.name, field.dataType) for field in struct_of(declared).fields])
