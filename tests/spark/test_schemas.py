"""Schemas of Spark as schemas of evflow and back."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given

from evflow.errors import SchemaError
from evflow.schema import Schema
from evflow.schema.types import Array, Bytes, FieldType, ListOf, Maybe, Number, Record, Str, f32, f64, i16
from evflow.stones.matching.output import matched_schema
from tests.data.strategies import schemas, some

pytest.importorskip("pyspark")

from pyspark.sql import types as spark

from evflow.spark.columns.kept import can_give, with_types
from evflow.spark.columns.schemas import schema_of, struct_of
from evflow.spark.format.reading import origin


def struct(**columns: Any) -> spark.StructType:
    """A struct of columns that are not null."""
    return spark.StructType([spark.StructField(name, kind, False) for name, kind in columns.items()])


class Point(spark.UserDefinedType):
    @classmethod
    def sqlType(cls) -> spark.DataType:
        return spark.ArrayType(spark.DoubleType(), False)


COUNTERPARTS = [
    (spark.BooleanType(), "bool"),
    (spark.ByteType(), "i8"),
    (spark.ShortType(), "i16"),
    (spark.IntegerType(), "i32"),
    (spark.LongType(), "i64"),
    (spark.FloatType(), "f32"),
    (spark.DoubleType(), "f64"),
    (spark.StringType(), "str"),
    (spark.StringType("UNICODE_CI"), "str"),
    (spark.CharType(5), "str"),
    (spark.VarcharType(5), "str"),
    (spark.BinaryType(), "bytes"),
    (spark.DecimalType(38, 18), "str"),
    (spark.DateType(), "i32"),
    (spark.TimestampType(), "i64"),
    (spark.TimestampNTZType(), "i64"),
    (spark.TimeType(6), "i64"),
    (spark.DayTimeIntervalType(), "i64"),
    (spark.ArrayType(spark.LongType(), False), "array(i64,?)"),
    (spark.ArrayType(spark.LongType(), True), "list(optional(i64))"),
    (spark.ArrayType(spark.StringType(), False), "list(str)"),
    (spark.ArrayType(spark.ArrayType(spark.ByteType(), False), True), "list(optional(array(i8,?)))"),
    (spark.MapType(spark.StringType(), spark.DateType(), True), "list(record(row_x))"),
    (struct(y=spark.LongType()), "record(row_x)"),
    (Point(), "array(f64,?)"),
]


@pytest.mark.parametrize(("kind", "text"), COUNTERPARTS, ids=lambda value: str(value))
def test_spark_type_becomes_a_field(kind: spark.DataType, text: str) -> None:
    assert schema_of(struct(x=kind))["x"].type.text == text
    nullable = spark.StructType([spark.StructField("x", kind, True)])
    assert schema_of(nullable)["x"].type.text == f"optional({text})"


def test_records_are_named_after_where_they_stand() -> None:
    inner = struct(z=spark.LongType())
    schema = schema_of(
        struct(a_b=inner, a=struct(b=inner), m=spark.MapType(spark.StringType(), inner)), "trip"
    )
    assert {key: value for key, value in schema.description.items() if key != "origin"} == {
        "name": "trip",
        "fields": [["a_b", "record(trip_a_b)"], ["a", "record(trip_a)"], ["m", "list(record(trip_m))"]],
        "records": {
            "trip_a": [["b", "record(trip_a_b_2)"]],
            "trip_a_b": [["z", "i64"]],
            "trip_a_b_2": [["z", "i64"]],
            "trip_m": [["key", "str"], ["value", "optional(record(trip_m_value))"]],
            "trip_m_value": [["z", "i64"]],
        },
    }


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (struct(x=spark.NullType()), r"schema row: column x: void has no counterpart in an event; cast it"),
        (struct(x=spark.VariantType()), r"column x: variant .* to_json"),
        (struct(x=spark.CalendarIntervalType()), r"column x: interval .* make_dt_interval"),
        (struct(x=spark.YearMonthIntervalType()), r"column x: interval.* cast it to months"),
        (struct(x=spark.GeometryType(4326)), r"column x: geometry.* st_asbinary"),
        (struct(x=struct(y=spark.ArrayType(spark.VariantType()))), r"column x\.y\[\]: variant"),
        (struct(x=spark.MapType(spark.StringType(), spark.NullType())), r"column x\.value: void"),
        (
            spark.StructType([*struct(x=spark.LongType()), *struct(x=spark.LongType())]),
            r"column x: two columns",
        ),
        (struct(**{"dep delay": spark.LongType()}), r"column dep delay: no name .*withColumnRenamed"),
        (struct(**{"class": spark.LongType()}), r"column class: no name .*keyword"),
        (struct(x=struct(_id=spark.LongType())), r"column x\._id: no name"),
        (struct(schema=spark.LongType()), r"column schema: .*taken by every event"),
        (spark.StructType(), r"no columns"),
        (struct(x=spark.StructType()), r"column x: a struct without fields"),
        ("x long", r"expected the schema of a DataFrame"),
    ],
)
def test_what_has_no_counterpart_is_refused(columns: Any, message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        schema_of(columns)


@pytest.mark.parametrize(
    ("field", "kind", "nullable"),
    [
        ("u8", "smallint", False),
        ("u16", "int", False),
        ("u32", "bigint", False),
        ("u64", "decimal(20,0)", False),
        (Str[8], "string", False),
        (Bytes[8], "binary", False),
        (Maybe(Str(8)), "string", True),
        (Array[f32, 2, None], "array<array<float>>", False),
        (Array(i16, (3,)), "array<smallint>", False),
        (list[float], "array<double>", False),
        (ListOf(Maybe(f64)), "array<double>", False),
    ],
)
def test_field_becomes_a_spark_type(field: Any, kind: str, nullable: bool) -> None:
    found = struct_of(Schema("s", {"x": field}))["x"]
    assert (found.dataType.simpleString(), found.nullable) == (kind, nullable)


def test_record_that_holds_itself_is_refused() -> None:
    tree = Schema("tree", {"label": str, "branches": "list(record(tree))"})
    with pytest.raises(SchemaError, match=r"schema tree\.branches: record tree holds itself"):
        struct_of(tree)
    with pytest.raises(SchemaError, match="expected a Schema"):
        struct_of(struct(x=spark.LongType()))  # type: ignore[arg-type]


def kept(kind: FieldType) -> bool:
    """Whether a field comes back from Spark as what it was."""
    if isinstance(kind, Maybe):
        return kept(kind.element)
    if isinstance(kind, ListOf):
        return kept(kind.element) and not isinstance(kind.element, Number)
    if isinstance(kind, Record):
        return all(kept(field.type) for field in kind.schema.fields)
    if isinstance(kind, Array):
        return kind.shape == (None,) and kept(kind.element)
    return not isinstance(kind, (Str, Bytes)) and not (isinstance(kind, Number) and kind.kind == "u")


def shape(kind: FieldType) -> Any:
    """A type without the names of records."""
    if isinstance(kind, (Maybe, ListOf)):
        return type(kind), shape(kind.element)
    return [(f.name, shape(f.type)) for f in kind.schema.fields] if isinstance(kind, Record) else kind


FLAT = schemas(logical=False).filter(lambda schema: not schema.recursive)


@some
@given(FLAT)
def test_schemas_come_back_as_the_table_says(schema: Schema) -> None:
    there = struct_of(schema)
    back = schema_of(there, schema.name)
    for field in schema.fields:
        if kept(field.type):
            assert shape(back[field.name].type) == shape(field.type)
    assert struct_of(back).names == there.names
    assert shape_of_struct(struct_of(back)) == shape_of_struct(there)


def shape_of_struct(found: spark.StructType) -> str:
    return found.simpleString().replace("decimal(20,0)", "string")


TIMES = spark.StructType(
    [
        spark.StructField("at", spark.TimestampType()),
        spark.StructField("prices", spark.ArrayType(spark.DecimalType(9, 2), False), False),
        spark.StructField("days", spark.MapType(spark.DateType(), spark.TimeType(6)), False),
        spark.StructField(
            "legs", struct(wait=spark.DayTimeIntervalType(), name=spark.StringType("UNICODE_CI"))
        ),
        spark.StructField("marks", spark.ArrayType(spark.TimestampNTZType(), False)),
    ]
)


def test_types_without_a_field_type_are_had_again() -> None:
    assert with_types(struct_of(schema_of(TIMES)), TIMES) == TIMES
    # The schema alone knows them, also where it has come from elsewhere, and a match stone has added to it.
    there = Schema.from_description(json.loads(json.dumps(schema_of(TIMES).description)))
    assert with_types(struct_of(there), origin(there)) == TIMES
    matched = matched_schema(there, "who")
    assert with_types(struct_of(matched), origin(matched)).fields[:-1] == TIMES.fields


def test_schemas_differ_whose_columns_had_other_types_and_only_those() -> None:
    cents, texts = struct(price=spark.DecimalType(9, 2)), struct(price=spark.StringType())
    assert schema_of(texts).origin == "" and origin(schema_of(texts)) == spark.StructType()
    assert schema_of(cents) != schema_of(texts) == Schema("row", {"price": str})
    assert schema_of(cents) == schema_of(cents) != schema_of(struct(price=spark.DecimalType(9, 3)))


def test_only_fields_that_hold_a_type_get_it() -> None:
    own = struct(at=spark.DoubleType(), day=spark.LongType(), more=spark.StringType(), size=spark.LongType())
    wanted = struct(size=spark.IntegerType(), day=spark.DateType(), at=spark.TimestampType())
    assert with_types(own, wanted).simpleString() == "struct<at:double,day:date,more:string,size:bigint>"


@pytest.mark.parametrize(
    ("own", "wanted", "can"),
    [
        (spark.LongType(), spark.TimestampType(), True),
        (spark.LongType(), spark.DateType(), True),
        (spark.LongType(), spark.IntegerType(), False),
        (spark.LongType(), spark.DoubleType(), False),
        (spark.LongType(), spark.DecimalType(21, 2), True),
        (spark.LongType(), spark.DecimalType(20, 2), False),
        (spark.LongType(), spark.StringType(), False),
        (spark.IntegerType(), spark.DateType(), True),
        (spark.IntegerType(), spark.TimestampType(), False),
        (spark.IntegerType(), spark.DoubleType(), True),
        (spark.DoubleType(), spark.TimestampType(), False),
        (spark.DoubleType(), spark.FloatType(), False),
        (spark.FloatType(), spark.DoubleType(), True),
        (spark.StringType(), spark.DecimalType(9, 2), True),
        (spark.StringType(), spark.BinaryType(), False),
        (spark.DecimalType(20, 0), spark.DecimalType(22, 2), True),
        (spark.DecimalType(20, 0), spark.DecimalType(21, 2), False),
        (struct(a=spark.LongType()), struct(a=spark.TimestampType()), True),
        (struct(a=spark.LongType()), struct(b=spark.LongType()), False),
    ],
    ids=lambda value: value.simpleString() if isinstance(value, spark.DataType) else str(value),
)
def test_column_is_read_as_what_holds_each_of_its_values(
    own: spark.DataType, wanted: spark.DataType, can: bool
) -> None:
    assert can_give(own, wanted) == can
    assert can_give(spark.ArrayType(own), spark.ArrayType(wanted, False)) == can
