"""What a ``SparkSource`` reads by a job of its own: a description, and the DataFrame that it becomes."""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evflow.errors import GraphError
from evflow.schema import Schema
from evflow.spark.session import is_remote, require_pyspark, require_spark, spark_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_WRITER = ("contact", "jobid", "keys", "name", "plain", "timeout")
"""Options of the format evflow; all others are the reader's."""

_ENDINGS = {".parquet": "parquet", ".csv": "csv", ".json": "json", ".jsonl": "json", ".orc": "orc"}
_PACKED = (".gz", ".bz2", ".zst", ".snappy")


def is_dataframe(thing: object) -> bool:
    """Whether it is a DataFrame of Spark; imports nothing."""
    kind = type(thing)
    return kind.__module__.startswith("pyspark.sql.") and kind.__name__ == "DataFrame"


@dataclass(frozen=True)
class Feed:
    """What a stone has Spark read.

    Attributes:
        df: a DataFrame, which may stream.
        sql: a query.
        table: a table or view.
        path: a file or folder.
        format: of the files at ``path``.
        stream: read a table, or files that come by and by, as a stream.
        checkpoint: the folder of a stream's checkpoint; None for one beside the stone's files.
        master: where Spark runs, or the URL of a Connect server; None for the active session, or here.
        config: settings of a session that is started.
        options: of the reader; but ``contact``, ``jobid``, ``keys``, ``name``, ``plain`` and ``timeout`` are
            those of the format evflow.
        progress: show how far the job is on the terminal.
    """

    df: DataFrame | None = None
    sql: str | None = None
    table: str | None = None
    path: str | None = None
    format: str | None = None
    stream: bool = False
    checkpoint: str | None = None
    master: str | None = None
    config: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, str] = field(default_factory=dict)
    progress: bool = False

    @property
    def read(self) -> list[str]:
        """Which of the things to read were given."""
        return [name for name in ("df", "sql", "table", "path") if getattr(self, name) is not None]

    def checked(self, where: str) -> Feed | None:
        """Itself; None if it names nothing to read.

        Args:
            where: the stone, for messages.

        Raises:
            GraphError: its settings contradict each other, or something is missing.
        """
        for name in ("sql", "table", "path", "format", "master"):
            value = getattr(self, name)
            if value is not None and not (isinstance(value, str) and value):
                raise GraphError(f"{where}: {name} {value!r}: expected a text")
        if self.df is not None and not is_dataframe(self.df):
            raise GraphError(
                f"{where}: expected a DataFrame of Spark, found {type(self.df).__name__}; "
                "spark.createDataFrame(…) makes one"
            )
        if len(self.read) > 1:
            raise GraphError(f"{where}: {' and '.join(self.read)} are given; expected one of them")
        given = list(self._given)
        if not self.read and given:
            raise GraphError(
                f"{where}: {given[0]}= needs something to read: a DataFrame, sql=, table= or path="
            )
        if self.path is not None and self.files_format is None:
            known = ", ".join(_ENDINGS)
            raise GraphError(f"{where}: path {self.path}: expected one of {known} at its end, or format=")
        if self.format is not None and self.path is None:
            raise GraphError(f"{where}: format= is of the files at path=, which is not given")
        return self if self.read else None

    @property
    def _given(self) -> dict[str, Any]:
        """The settings that are not as they are by default."""
        nothing = vars(Feed())
        return {name: value for name, value in vars(self).items() if value != nothing[name]}

    @property
    def files_format(self) -> str | None:
        """The format of the files at ``path``; None if nothing tells."""
        if self.format is not None:
            return self.format
        name = Path(self.path or "").name.lower()
        for packed in _PACKED:
            name = name.removesuffix(packed)
        return _ENDINGS.get(Path(name).suffix)

    def settings(self, where: str) -> dict[str, Any]:
        """Itself as plain data.

        Raises:
            GraphError: it is a DataFrame, which is not data.
        """
        if self.df is not None:
            raise GraphError(
                f"{where}: a DataFrame belongs to the session of this program, so it cannot be saved or "
                "deployed with the graph; give what it reads instead: sql=, table= or path="
            )
        return self._given

    def schema(self) -> Schema | None:
        """That of the rows, as far as it is known before anything is read."""
        if self.df is None:
            return None
        require_pyspark()
        from evflow.spark.columns.schemas import schema_of

        return schema_of(self.df.schema)

    def prepare(self) -> None:
        """Checks that there is a Spark, for what is to start one.

        Raises:
            SparkError: something is not installed; says what.
        """
        if self.df is None and not is_remote(self.master):
            require_spark()
        else:
            require_pyspark()

    def session(self) -> SparkSession:
        """The session that reads: that of the DataFrame, the active one, or else one that is started.

        Raises:
            SparkError: a session of another master is active, or Spark cannot be started.
        """
        return spark_session(self.master, self.config) if self.df is None else self.df.sparkSession

    def frame(self, spark: SparkSession, declared: Schema | None) -> DataFrame:
        """The rows to read.

        Args:
            spark: the session.
            declared: what the stone takes, if that is one schema: then files of text are read as such.

        Raises:
            PySparkException: they cannot be read.
        """
        if self.df is not None:
            return self.df
        if self.sql is not None:
            return spark.sql(self.sql)
        reader = spark.readStream if self.stream else spark.read
        options = {key: value for key, value in self.options.items() if key not in _WRITER}
        if self.table is not None:
            return reader.options(**options).table(self.table)
        from evflow.spark.ingest.files import schema_of_files

        assert self.path is not None
        format_ = self.files_format or ""
        # Java may have been started in another folder.
        here = "://" not in self.path and Path(self.path).exists()
        path = str(Path(self.path).absolute()) if here else self.path
        struct, more = schema_of_files(spark, path, format_, options, declared, self.stream)
        if struct is not None:
            reader = reader.schema(struct)
        return reader.format(format_).options(**{**more, **options}).load(path)

    @property
    def writer_options(self) -> dict[str, str]:
        """Options of the format evflow, as far as they were given."""
        return {key: value for key, value in self.options.items() if key in _WRITER}

    @property
    def jobid(self) -> str:
        """What a batch job is known by: the same again for what reads the same, so that a stone that keeps
        files takes its rows once; for a DataFrame another one each time."""
        if self.df is not None:
            return uuid.uuid4().hex
        read = [self.sql, self.table, self.path, self.format, sorted(self.options.items())]
        return hashlib.sha256(json.dumps(read).encode()).hexdigest()[:32]


def texts(where: str, what: str, given: Mapping[str, object] | None) -> dict[str, str]:
    """Settings of Spark as it takes them.

    Args:
        where: the stone, for messages.
        what: the argument's name.
        given: the settings.

    Raises:
        GraphError: they are not a mapping.
    """
    if given is not None and not isinstance(given, Mapping):
        raise GraphError(f"{where}: {what}={given!r}: expected a mapping from name to value")
    # Spark spells true and false so.
    return {
        str(key): str(value).lower() if isinstance(value, bool) else str(value)
        for key, value in (given or {}).items()
    }
