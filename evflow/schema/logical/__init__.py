"""Logical types: times, decimals, UUIDs and enumerations, one file each."""

from __future__ import annotations

from evflow.schema.logical.decimal import Decimal, WideDecimal
from evflow.schema.logical.duration import Duration, DurationType
from evflow.schema.logical.enum import Enum
from evflow.schema.logical.timestamp import Timestamp, TimestampType
from evflow.schema.logical.uuid import UUID, UUIDType
from evflow.schema.types import FieldType, Logical

__all__ = ["UUID", "Decimal", "Duration", "Enum", "Timestamp", "parse_logical"]

_KINDS: tuple[type[Logical], ...] = (TimestampType, DurationType, Decimal, WideDecimal, UUIDType, Enum)


def parse_logical(text: str) -> FieldType | None:
    """The logical type whose canonical text this is; None if it is not one.

    Raises:
        SchemaError: the text has the form of one, but what it says cannot be.
    """
    found: FieldType | None = next((made for kind in _KINDS if (made := kind.parse(text)) is not None), None)
    return found
