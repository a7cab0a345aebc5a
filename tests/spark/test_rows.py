"""Rows of real DataFrames as events and back, on Spark's own workers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow

pytest.importorskip("pyspark")

COLUMNS = {
    "flag": "id % 3 = 0",
    "tiny": "cast(id - 100 as tinyint)",
    "small": "cast(id * 100 as smallint)",
    "whole": "cast(id * 100000 as int)",
    "big": "9007199254740993 + id",
    "narrow": "cast(id / 3 as float)",
    "wide": "id / 3",
    "nan": "double('NaN')",
    "text": "concat('ключ ', id)",
    "code": "cast(concat('ab', id) as string) collate UNICODE",
    "blob": "cast(concat('x', id) as binary)",
    "price": "cast(id / 7 as decimal(10, 2))",
    "huge": "cast(concat('-1234567890123456789012345678.', id) as decimal(38, 6))",
    "day": "date_add(date '1969-12-01', cast(id as int))",
    "moment": "timestamp '2013-01-01 00:00:00.000001 UTC' + make_dt_interval(0, 0, cast(id as int), 0)",
    "local": "timestamp_ntz '1960-01-01 00:00:00.000001' + make_dt_interval(0, 0, cast(id as int), 0)",
    "clock": "time '23:59:59.000001'",
    "span": "make_dt_interval(cast(id as int), 1, 2, 3.000004)",
    "numbers": "array(id, id + 1)",
    "holes": "array(id, null, id + 2)",
    "empty": "array_repeat(id, cast(id % 3 as int))",
    "grid": "array(array(id / 2), array(), null)",
    "words": "array('a', concat('b', id), null)",
    "table": "map('a', id, 'b', null)",
    "deep": "map(id, named_struct('days', array(date '2020-01-01', null), 'on', id % 2 = 0))",
    "place": "named_struct('x', id / 4, 'name', concat('p', id), 'at', named_struct('z', id))",
    "track": "array(named_struct('x', id, 'tag', if(id % 2 = 0, null, 'odd')), null)",
}
"""SQL for a column of each type, from ``id``."""


def all_types(spark: SparkSession) -> Any:
    """Rows of every type, each column also with nulls; the second of three partitions has none."""
    plain = [f"{sql} as {name}" for name, sql in COLUMNS.items()]
    holed = [f"if(id % 5 = {i % 5}, null, {sql}) as {name}_" for i, (name, sql) in enumerate(COLUMNS.items())]
    return spark.range(0, 90, 1, 3).where("id < 30 or id >= 60").selectExpr("id", *plain, *holed)


def as_events(schema: Any, *, plain: bool = False) -> Any:
    """A function for ``mapInArrow`` that makes events of rows, and rows of the events.

    Args:
        schema: of the events.
        plain: whether the rows have the fields' own types, instead of those they had before.
    """

    def there_and_back(batches: Iterator[Any]) -> Iterator[Any]:
        from evflow.spark.columns.decoder import decode
        from evflow.spark.columns.encoder import encode

        for batch in batches:
            yield decode(encode(schema, batch), None if plain else batch.schema)

    return there_and_back


def test_rows_of_every_type_come_back_as_they_were(spark: SparkSession) -> None:
    from evflow.spark.columns.schemas import schema_of

    spark.conf.set("spark.sql.timeType.enabled", "true")
    frame = all_types(spark)
    back = frame.mapInArrow(as_events(schema_of(frame.schema)), frame.schema)
    assert back.schema == frame.schema
    expected = [repr(row) for row in frame.collect()]
    assert len(expected) == 60
    assert sorted(map(repr, back.collect())) == sorted(expected)


STANDING = {
    "date_add(date '1969-12-01', cast(id as int)) as day": "unix_date(day)",
    "timestamp_micros(1357000000000001 + id) as moment": "1357000000000001 + id",
    "timestamp_ntz '1960-01-01 00:00:00.25' + make_dt_interval(cast(id as int)) as local": (
        "timestampdiff(MICROSECOND, timestamp_ntz '1970-01-01 00:00:00', local)"
    ),
    "make_dt_interval(cast(id as int), 1, 2, 3.000004) as span": "((id * 24 + 1) * 3600 + 123) * 1000000 + 4",
    "cast(id / 7 as decimal(10, 2)) as price": "cast(price as string)",
    "map('a', id, 'b', null) as table": "map_entries(table)",
}
"""SQL for a column, and SQL for what the field of an event becomes in Spark again."""


def test_rows_become_what_the_table_of_types_says(spark: SparkSession) -> None:
    from evflow.spark.columns.schemas import schema_of, struct_of

    frame = spark.range(0, 20, 1, 1).selectExpr("id", *STANDING)
    schema = schema_of(frame.schema)
    names = [sql.rpartition(" ")[2] for sql in STANDING]
    expected = frame.selectExpr(
        "id", *(f"{sql} as {n}" for sql, n in zip(STANDING.values(), names, strict=True))
    )
    found = frame.mapInArrow(as_events(schema, plain=True), struct_of(schema))
    assert found.schema.simpleString() == expected.schema.simpleString()
    assert list(map(repr, found.collect())) == list(map(repr, expected.collect()))


LOGICAL = {
    "moment": ("timestamp", "timestamp_micros(1357000000000001 + id)"),
    "span": ("duration", "make_dt_interval(cast(id as int), 1, 2, 3.000004)"),
    "price": ("decimal(10,2)", "cast(id / 7 as decimal(10, 2))"),
    "huge": ("decimal(38,6)", "cast(concat('-1234567890123456789012345678.', id) as decimal(38, 6))"),
    "id16": ("uuid", "unhex(lpad(hex(id), 32, '0'))"),
    "side": ("enum(buy,sell)", "if(id % 2 = 0, 'buy', 'sell')"),
    "days": ("list(optional(timestamp))", "array(timestamp '2020-01-01', null)"),
}
"""A field's type, and SQL for a column of it, from ``id``."""


def test_declared_times_decimals_and_names_are_what_spark_has(spark: SparkSession) -> None:
    from evflow.schema import Schema
    from evflow.spark.columns.schemas import struct_of

    columns = [f"if(id % 5 = 3, null, {sql}) as {name}" for name, (_, sql) in LOGICAL.items()]
    frame = spark.range(0, 20, 1, 2).selectExpr("id", *columns)
    schema = Schema(
        "row", {"id": "i64", **{name: f"optional({kind})" for name, (kind, _) in LOGICAL.items()}}
    )
    assert [f.dataType for f in struct_of(schema)] == [f.dataType for f in frame.schema]
    back = frame.mapInArrow(as_events(schema, plain=True), struct_of(schema))
    assert sorted(map(repr, back.collect())) == sorted(map(repr, frame.collect()))
