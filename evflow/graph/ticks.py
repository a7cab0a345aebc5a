"""What a stone with a period gets each time it is due."""

from __future__ import annotations

from evflow.schema import Schema
from evflow.schema.types import f64, i64

TICK = Schema("Tick", {"count": i64, "time": f64})
"""The number of the tick, from 0, and seconds since 1970 (UTC)."""
