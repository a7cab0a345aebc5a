"""Where Spark finds the format ``evflow``: it imports every top-level module named ``pyspark_…``.

That happens in many short processes, also of sessions that never use it: so nothing else is imported here,
and nothing can fail.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

try:
    from pyspark.sql.datasource import DataSource
except ImportError:
    # Without PySpark there is nobody to find it.
    DataSource = object  # type: ignore[assignment,misc]

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from evflow.spark.format.reading import BatchReader, StreamReader
    from evflow.spark.format.writing import BatchWriter, StreamWriter

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

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        """What writes a DataFrame."""
        _check()
        from evflow.spark.format.writing import BatchWriter

        return BatchWriter(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:
        """What writes the micro-batches of a query."""
        _check()
        from evflow.spark.format.writing import StreamWriter

        return StreamWriter(self.options, schema, overwrite)

    def schema(self) -> StructType:
        """The schema of the events that are read."""
        _check()
        from evflow.spark.format.reading import schema

        return schema(self.options)

    def reader(self, schema: StructType) -> BatchReader:
        """What reads the events that are there."""
        _check()
        from evflow.spark.format.reading import BatchReader

        return BatchReader(self.options, schema)

    def streamReader(self, schema: StructType) -> StreamReader:
        """What reads events as they come."""
        _check()
        from evflow.spark.format.reading import StreamReader

        return StreamReader(self.options, schema)


def _check() -> None:
    """Has another version of Spark say so, rather than fail at what it does not have."""
    from evflow.spark.session import require_pyspark

    require_pyspark()
