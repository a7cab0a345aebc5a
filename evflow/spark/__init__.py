"""Spark: rows into overlays and out of them, and matching, tiles and stones on executors.

``docs/spark.md`` tells the rest. PySpark is loaded when something is used, not before; then a ``SparkError``
says so if it is missing or of a version that does not fit.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from evflow.spark.applying import apply
    from evflow.spark.columns.schemas import schema_of, struct_of
    from evflow.spark.matching import explain, index, match
    from evflow.spark.registering import register
    from evflow.spark.replay.trajectories import tiles
    from evflow.spark.session import active_session, configure_spark_with_evflow

__all__ = [
    "active_session",
    "apply",
    "configure_spark_with_evflow",
    "explain",
    "index",
    "match",
    "register",
    "schema_of",
    "struct_of",
    "tiles",
]

_WHERE = {
    "active_session": "session",
    "apply": "applying",
    "configure_spark_with_evflow": "session",
    "explain": "matching",
    "index": "matching",
    "match": "matching",
    "register": "registering",
    "schema_of": "columns.schemas",
    "struct_of": "columns.schemas",
    "tiles": "replay.trajectories",
}


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # What follows imports PySpark, and from another version not all is there to import.
    importlib.import_module("evflow.spark.session").require_pyspark()
    return getattr(importlib.import_module(f"evflow.spark.{_WHERE[name]}"), name)


def __dir__() -> list[str]:
    return list(__all__)
