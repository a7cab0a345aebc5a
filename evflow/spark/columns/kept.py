"""Types of Spark that have no field type of their own, such as timestamps: how a column has them again.

Events hold such values as something else (``schemas``): a timestamp as microseconds, a decimal as its digits.
"""

from __future__ import annotations

from pyspark.sql import types as spark

from evflow.spark.columns.names import indices_of

_MOMENTS = (
    spark.TimestampType,
    spark.TimestampNTZType,
    spark.TimeType,
    spark.DayTimeIntervalType,
    spark.DateType,
)

# Decimal digits of the largest value.
_DIGITS: dict[type[spark.DataType], int] = {
    spark.ByteType: 3,
    spark.ShortType: 5,
    spark.IntegerType: 10,
    spark.LongType: 19,
}
_WIDER: dict[type[spark.DataType], tuple[type[spark.DataType], ...]] = {
    spark.ByteType: (spark.ShortType, spark.IntegerType, spark.LongType, spark.FloatType, spark.DoubleType),
    spark.ShortType: (spark.IntegerType, spark.LongType, spark.FloatType, spark.DoubleType),
    spark.IntegerType: (spark.LongType, spark.DoubleType),
    spark.FloatType: (spark.DoubleType,),
}


def with_types(own: spark.StructType, wanted: spark.StructType) -> spark.StructType:
    """Columns of events with the types that the same columns have in a DataFrame, where events hold such.

    Args:
        own: the columns of the events, as ``struct_of`` gives them; names, order and nulls stay theirs.
        wanted: the columns of the DataFrame.

    Example:
        >>> from pyspark.sql.types import DateType, DecimalType, IntegerType, StringType, StructType
        >>> own = StructType().add("day", IntegerType()).add("price", StringType())
        >>> with_types(own, StructType().add("price", DecimalType(9, 2))).simpleString()
        'struct<day:int,price:decimal(9,2)>'
    """
    fields = []
    for field in own.fields:
        found = column_of(wanted, field.name)
        kind = field.dataType if found is None else _kept(field.dataType, found.dataType)
        fields.append(spark.StructField(field.name, kind, field.nullable))
    return spark.StructType(fields)


def column_of(struct: spark.StructType, name: str) -> spark.StructField | None:
    """The column of a name, also one written in other cases; None if there is none, or several."""
    at = indices_of(struct.names, name)
    return struct.fields[at[0]] if len(at) == 1 else None


def _kept(own: spark.DataType, wanted: spark.DataType) -> spark.DataType:
    if isinstance(wanted, spark.UserDefinedType):
        return _kept(own, wanted.sqlType())
    if isinstance(own, spark.ArrayType):
        entry = _entry(own)
        if isinstance(wanted, spark.MapType) and entry is not None:
            key, value = entry
            return spark.MapType(
                _kept(key.dataType, wanted.keyType), _kept(value.dataType, wanted.valueType), value.nullable
            )
        if isinstance(wanted, spark.ArrayType):
            return spark.ArrayType(_kept(own.elementType, wanted.elementType), own.containsNull)
    if isinstance(own, spark.StructType) and isinstance(wanted, spark.StructType):
        return with_types(own, wanted)
    return wanted if _stands_for(own, wanted) else own


def _entry(own: spark.ArrayType) -> tuple[spark.StructField, spark.StructField] | None:
    """The key and the value of a list of records that a map became."""
    held = own.elementType
    if isinstance(held, spark.StructType) and held.names == ["key", "value"] and not own.containsNull:
        return held.fields[0], held.fields[1]
    return None


def _stands_for(own: spark.DataType, wanted: spark.DataType) -> bool:
    """Whether a field of events holds what a type of Spark holds."""
    if isinstance(own, spark.LongType):
        return isinstance(wanted, _MOMENTS)
    if isinstance(own, spark.IntegerType):
        return isinstance(wanted, spark.DateType)
    if isinstance(own, spark.StringType):
        # Strings differ in their collations.
        return isinstance(wanted, (spark.StringType, spark.DecimalType))
    return False


def can_give(own: spark.DataType, wanted: spark.DataType) -> bool:
    """Whether a column of events can be read as a type of Spark without loss.

    Args:
        own: the type that ``struct_of`` gives the column.
        wanted: the type to read it as. Whether nulls may be within is not compared.
    """
    if isinstance(own, spark.ArrayType) and isinstance(wanted, spark.ArrayType):
        return can_give(own.elementType, wanted.elementType)
    if isinstance(own, spark.ArrayType) and isinstance(wanted, spark.MapType):
        entry = _entry(own)
        return (
            entry is not None
            and can_give(entry[0].dataType, wanted.keyType)
            and can_give(entry[1].dataType, wanted.valueType)
        )
    if isinstance(own, spark.StructType) and isinstance(wanted, spark.StructType):
        found = [(column_of(own, field.name), field.dataType) for field in wanted.fields]
        return all(one is not None and can_give(one.dataType, kind) for one, kind in found)
    return own == wanted or _stands_for(own, wanted) or _widens(own, wanted)


def _widens(own: spark.DataType, wanted: spark.DataType) -> bool:
    digits = _DIGITS.get(type(own))
    if isinstance(wanted, spark.DecimalType):
        if isinstance(own, spark.DecimalType):
            return own.scale <= wanted.scale and own.precision - own.scale <= wanted.precision - wanted.scale
        return digits is not None and digits <= wanted.precision - wanted.scale
    return isinstance(wanted, _WIDER.get(type(own), ()))
