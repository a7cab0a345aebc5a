"""Schemas of Spark as schemas of evflow, and back.

A row of a DataFrame becomes an event; each column is a field of the same name. A column in which nulls may
stand is an optional field. What a Spark type becomes, and which type the field becomes again:

| Spark | evflow | and back |
| --- | --- | --- |
| boolean, byte, short, int, long | ``bool``, ``i8``, ``i16``, ``i32``, ``i64`` | the same |
| float, double | ``f32``, ``f64`` | the same |
| string, char(n), varchar(n), any collation | ``str`` | string |
| binary | ``bytes`` | the same |
| decimal(p, s) | ``str``, its digits: ``"-12.50"``, or ``"1.50E-9"`` | string |
| date | ``i32``, days since 1970-01-01 | int |
| timestamp | ``i64``, microseconds since 1970-01-01 00:00 UTC | long |
| timestamp_ntz | ``i64``, microseconds since 1970-01-01 00:00 of the same, unnamed zone | long |
| time(n) | ``i64``, nanoseconds since midnight | long |
| day-time interval | ``i64``, microseconds | long |
| array of numbers, without nulls | ``Array[number, None]`` | the same |
| array of anything else | ``list`` of the element, which is optional where nulls may stand | the same |
| map | ``list`` of records with fields ``key`` and ``value`` | array of structs |
| struct | a record | the same |
| a user-defined type | what its SQL type becomes | its SQL type |

Types that stand for themselves ("the same") also come from wider or narrower fields of evflow's:

| evflow | Spark |
| --- | --- |
| ``u8``, ``u16``, ``u32``, ``u64`` | short, int, long, decimal(20, 0) |
| ``Str[n]``, ``Bytes[n]`` | string, binary |
| ``Array[number, …]`` | arrays in arrays, one for each dimension |
| ``Timestamp``, ``Duration`` | timestamp, day-time interval: nanoseconds of a microsecond are cut off |
| ``Decimal[p, s]``, ``UUID``, ``Enum[…]`` | decimal(p, s), binary, string |

So ``struct_of(schema_of(struct)) == struct`` where every type is "the same" and columns have no metadata, and
``schema_of(struct_of(schema))`` has the same fields as ``schema`` where no field is of the second table and
no list holds plain numbers; but records within are named anew, after where they stand, and defaults are gone.
Rows come back as they were all the same: ``decode`` gives them the types of Spark that it is asked for, and
``kept`` tells which these may be.

Without a counterpart are void, variant, geometry, geography, the calendar interval, and the year-month
interval, which pyarrow cannot read: cast or convert such a column before. Nor does Spark have records that
hold themselves.
"""

from __future__ import annotations

from collections.abc import Iterator

from pyspark.sql import types as spark

from evflow.errors import SchemaError
from evflow.schema import Schema
from evflow.schema.specs import check_field_name
from evflow.schema.types import (
    BLOB,
    TEXT,
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
    boolean,
    f32,
    f64,
    i8,
    i16,
    i32,
    i64,
    u8,
    u16,
    u32,
    u64,
)
from evflow.schema.values import describe
from evflow.spark.columns.kept import with_types

# The first that fits counts, since some of these are subclasses of others.
_FIELDS: tuple[tuple[type[spark.DataType], FieldType], ...] = (
    (spark.BooleanType, boolean),
    (spark.ByteType, i8),
    (spark.ShortType, i16),
    (spark.IntegerType, i32),
    (spark.LongType, i64),
    (spark.FloatType, f32),
    (spark.DoubleType, f64),
    (spark.StringType, TEXT),
    (spark.CharType, TEXT),
    (spark.VarcharType, TEXT),
    (spark.BinaryType, BLOB),
    (spark.DecimalType, TEXT),
    (spark.DateType, i32),
    (spark.TimestampType, i64),
    (spark.TimestampNTZType, i64),
    (spark.TimeType, i64),
    (spark.DayTimeIntervalType, i64),
)

_NUMBERS: dict[Number, spark.DataType] = {
    boolean: spark.BooleanType(),
    i8: spark.ByteType(),
    i16: spark.ShortType(),
    i32: spark.IntegerType(),
    i64: spark.LongType(),
    u8: spark.ShortType(),
    u16: spark.IntegerType(),
    u32: spark.LongType(),
    u64: spark.DecimalType(20, 0),
    f32: spark.FloatType(),
    f64: spark.DoubleType(),
}

_ADVICE: tuple[tuple[type[spark.DataType], str], ...] = (
    (spark.YearMonthIntervalType, "cast it to months, as in col.cast('interval month').cast('int')"),
    (spark.NullType, "cast it to the type that is meant, as in col.cast('string')"),
    (spark.VariantType, "turn it into text with to_json(col), or take out what is needed with variant_get"),
    (spark.CalendarIntervalType, "make an interval of days and seconds of it, with make_dt_interval"),
    (spark.GeometryType, "turn it into binary with st_asbinary(col)"),
    (spark.GeographyType, "turn it into binary with st_asbinary(col)"),
)


def schema_of(struct: spark.StructType, name: str = "row") -> Schema:
    """The schema of the events that rows of a DataFrame become.

    Its ``origin`` has the types of Spark that no field has, as Spark's JSON, so that a sink of unchanged
    events can give them back.

    Args:
        struct: the DataFrame's ``schema``.
        name: of the schema; records within are named after it and where they stand: ``row_position``.

    Raises:
        SchemaError: a column has a type without counterpart, a name that no field can have, or the name of
            another; names the column and says what to do.

    Example:
        >>> from pyspark.sql.types import DateType, DoubleType, StructType
        >>> schema_of(StructType().add("price", DoubleType()).add("day", DateType(), False), "trade")
        Schema(trade: price optional(f64), day i32)
    """
    if not isinstance(struct, spark.StructType):
        raise SchemaError(f"expected the schema of a DataFrame (StructType), found {describe(struct)}")
    if isinstance(name, str) and not len(struct):
        raise SchemaError(f"schema {name}: the DataFrame has no columns; expected at least one")
    made = _Records(name).schema(struct, name, ())
    own = struct_of(made)
    kept = [
        typed
        for typed, plain in zip(with_types(own, struct), own, strict=True)
        if typed.dataType != plain.dataType
    ]
    if not kept:
        return made
    origin = spark.StructType(kept).json()
    return Schema(name, {field.name: field.type for field in made.fields}, origin=origin)


class _Records:
    """Makes the schemas of one struct and of those that it holds, each with a name of its own."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._taken = {name}

    def schema(self, struct: spark.StructType, name: str, path: tuple[str, ...]) -> Schema:
        fields: dict[str, FieldType] = {}
        for column in struct.fields:
            here = (*path, column.name)
            self._check_name(column.name, fields, here)
            fields[column.name] = self._optional(column.dataType, column.nullable, here)
        return Schema(name, fields)

    def _check_name(self, name: str, fields: dict[str, FieldType], path: tuple[str, ...]) -> None:
        rename = "rename it, as in df.withColumnRenamed(…)" if len(path) == 1 else "rename it"
        if name in fields:
            raise SchemaError(f"{self._place(path)}: two columns have this name; {rename} or drop one")
        try:
            check_field_name(name, self._name)
        except SchemaError as error:
            raise SchemaError(f"{self._place(path)}: no name of a field ({error}); {rename}") from None

    def _optional(self, kind: spark.DataType, nullable: bool, path: tuple[str, ...]) -> FieldType:
        found = self._field(kind, path)
        return Maybe(found) if nullable else found

    def _field(self, kind: spark.DataType, path: tuple[str, ...]) -> FieldType:
        if isinstance(kind, spark.UserDefinedType):
            return self._field(kind.sqlType(), path)
        for spark_type, field in _FIELDS:
            if isinstance(kind, spark_type):
                return field
        if isinstance(kind, spark.ArrayType):
            element = self._optional(kind.elementType, kind.containsNull, (*path, "[]"))
            return Array(element, (None,)) if isinstance(element, Number) else ListOf(element)
        if isinstance(kind, spark.MapType):
            value = spark.StructField("value", kind.valueType, kind.valueContainsNull)
            return ListOf(self._record(spark.StructType([_key(kind), value]), path))
        if isinstance(kind, spark.StructType):
            return self._record(kind, path)
        raise self._no_counterpart(kind, path)

    def _record(self, struct: spark.StructType, path: tuple[str, ...]) -> Record:
        if not struct.fields:
            raise SchemaError(f"{self._place(path)}: a struct without fields; drop the column")
        words = "_".join((self._name, *(step for step in path if step != "[]")))
        name, more = words, 2
        while name in self._taken:
            name, more = f"{words}_{more}", more + 1
        self._taken.add(name)
        schema = self.schema(struct, name, path)
        return Record(name, {name: schema})

    def _no_counterpart(self, kind: spark.DataType, path: tuple[str, ...]) -> SchemaError:
        advice = next((text for known, text in _ADVICE if isinstance(kind, known)), "cast or drop it")
        found = kind.simpleString()
        return SchemaError(f"{self._place(path)}: {found} has no counterpart in an event; {advice}")

    def _place(self, path: tuple[str, ...]) -> str:
        return f"schema {self._name}: column {'.'.join(path).replace('.[]', '[]')}"


def _key(kind: spark.MapType) -> spark.StructField:
    return spark.StructField("key", kind.keyType, nullable=False)


def struct_of(schema: Schema) -> spark.StructType:
    """The schema of the DataFrame whose rows events become.

    Args:
        schema: the schema of the events.

    Raises:
        SchemaError: ``schema`` is not a schema, or a record holds itself, which no Spark type can; names the
            field.

    Example:
        >>> from evflow import Schema, Str, u8
        >>> struct_of(Schema("seat", {"row": u8, "letter": Str[1], "note": str | None})).simpleString()
        'struct<row:smallint,letter:string,note:string>'
    """
    if not isinstance(schema, Schema):
        raise SchemaError(f"expected a Schema, found {describe(schema)}; Schema.of gives that of a class")
    return _struct(schema, schema.name, ())


def _struct(schema: Schema, path: str, around: tuple[str, ...]) -> spark.StructType:
    if schema.name in around:
        raise SchemaError(
            f"schema {path}: record {schema.name} holds itself, which no type of Spark can; "
            "give it a list of the others' numbers instead"
        )
    return spark.StructType(list(_columns(schema, path, (*around, schema.name))))


def _columns(schema: Schema, path: str, around: tuple[str, ...]) -> Iterator[spark.StructField]:
    for field in schema.fields:
        kind, nullable = _column(field.type, f"{path}.{field.name}", around)
        yield spark.StructField(field.name, kind, nullable)


def _column(kind: FieldType, path: str, around: tuple[str, ...]) -> tuple[spark.DataType, bool]:
    """The type of a column, and whether nulls may stand in it."""
    if isinstance(kind, Maybe):
        return _column(kind.element, path, around)[0], True
    if isinstance(kind, Logical):
        found: spark.DataType = kind.spark_type()
        return found, False
    if isinstance(kind, Number):
        return _NUMBERS[kind], False
    if isinstance(kind, (Str, Text)):
        return spark.StringType(), False
    if isinstance(kind, (Bytes, Blob)):
        return spark.BinaryType(), False
    if isinstance(kind, ListOf):
        return spark.ArrayType(*_column(kind.element, path, around)), False
    if isinstance(kind, Record):
        return _struct(kind.schema, path, around), False
    assert isinstance(kind, Array)
    held: spark.DataType = _NUMBERS[kind.element]
    for _ in kind.shape:
        held = spark.ArrayType(held, containsNull=False)
    return held, False
