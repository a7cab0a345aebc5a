"""Where Spark finds the format ``evflow``: it imports every top-level module named ``pyspark_…``.

That happens in many short processes, also of sessions that never use it: so nothing else is imported here,
and nothing can fail.
"""

from __future__ import annotations

import importlib
from typing import Any

try:
    from pyspark.sql.datasource import DataSource
except ImportError:
    # Without PySpark there is nobody to find it.
    DataSource = object  # type: ignore[assignment,misc]

__all__ = ["DefaultSource"]


class DefaultSource(DataSource):
    """The format ``evflow``: DataFrames to a stone, and events of a stone as DataFrames.

    Args:
        options: as ``.option(…)`` was given them.
    """

    options: Any

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "evflow"

    def writer(self, schema: Any, overwrite: bool) -> Any:
        """Writes a DataFrame."""
        return _loaded("writing").BatchWriter(self.options, schema, overwrite)

    def streamWriter(self, schema: Any, overwrite: bool) -> Any:
        """Writes the micro-batches of a query."""
        return _loaded("writing").StreamWriter(self.options, schema, overwrite)

    def schema(self) -> Any:
        """The schema of the events that are read."""
        return _loaded("reading").schema(self.options)

    def reader(self, schema: Any) -> Any:
        """Reads the events that are there."""
        return _loaded("reading").BatchReader(self.options, schema)

    def streamReader(self, schema: Any) -> Any:
        """Reads events as they come."""
        return _loaded("reading").StreamReader(self.options, schema)


def _loaded(module: str) -> Any:
    """A module of the format. Another version of Spark is told, rather than fail at what it does not have."""
    importlib.import_module("evflow.spark.session").require_pyspark()
    return importlib.import_module(f"evflow.spark.format.{module}")
