"""What stones answer, checked before it is used: the node may be of another version, or hostile."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NoReturn

from pyspark.errors import PySparkException
from pyspark.sql.types import StructType

from evflow.errors import SparkError
from evflow.schema import Schema
from evflow.schema.values import describe

__all__ = ["answered", "count", "data", "described", "listed", "origin", "text"]

_END = 1 << 62
_MOST_NAME = 1000


def answered(answer: object) -> dict[str, Any]:
    """An answer as a dict; each function here raises SparkError if it is not what it should be."""
    if not isinstance(answer, dict):
        _refuse("a dict", answer)
    return answer


def count(answer: Mapping[str, Any], key: str) -> int:
    """A count or an offset in an answer."""
    value = answer.get(key)
    if type(value) is not int or not 0 <= value < _END:
        _refuse(f"a count in {key!r}", value)
    return value


def data(answer: Mapping[str, Any], key: str) -> bytes:
    """Bytes in an answer."""
    value = answer.get(key)
    if not isinstance(value, bytes):
        _refuse(f"bytes in {key!r}", value)
    return value


def text(answer: Mapping[str, Any], key: str) -> str:
    """A name in an answer."""
    value = answer.get(key)
    if not isinstance(value, str) or len(value) > _MOST_NAME:
        _refuse(f"a name in {key!r}", value)
    return value


def listed(answer: Mapping[str, Any], key: str) -> list[Any]:
    """A list in an answer."""
    value = answer.get(key)
    if not isinstance(value, list):
        _refuse(f"a list in {key!r}", value)
    return value


def described(answer: Mapping[str, Any], key: str) -> Schema | None:
    """A schema that an answer describes; None if it says that there is none.

    Raises:
        SchemaError: it describes none.
    """
    value = answer.get(key)
    return None if value is None else Schema.from_description(value)


def origin(schema: Schema) -> StructType:
    """The types of Spark that fields of a schema from outside had as columns; of the others nothing."""
    if not schema.origin:
        return StructType()
    try:
        found = StructType.fromJson(json.loads(schema.origin, object_hook=_without_classes))
    except (
        PySparkException,
        ArithmeticError,
        AttributeError,
        LookupError,
        RecursionError,
        TypeError,
        ValueError,
    ):
        _refuse(f"columns of Spark as the origin of schema {schema.name}", schema.origin)
    return found


def _without_classes(read: dict[str, Any]) -> dict[str, Any]:
    """What was read of JSON; a user-defined type would have Spark import, or unpickle, what it names."""
    if read.get("type") == "udt":
        raise ValueError("a user-defined type")
    return read


def _refuse(expected: str, found: object) -> NoReturn:
    raise SparkError(
        f"answer of a stone: expected {expected}, found {describe(found)}; is it a Spark source or sink of "
        "this version of evflow?"
    )
