"""What an event is: its fields, their types, and where each stands on the wire."""

from __future__ import annotations

from evflow.schema.program import array_dtype
from evflow.schema.schema import MAX_FIELDS, REQUIRED, Field, Schema

__all__ = ["MAX_FIELDS", "REQUIRED", "Field", "Schema", "array_dtype"]
