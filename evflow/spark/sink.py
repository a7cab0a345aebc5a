"""Spark sink: where events leave an overlay to be read by Spark."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from evflow.errors import GraphError
from evflow.schema import Schema
from evflow.schema.values import describe
from evflow.spark.sinklog.actor import DROP, SinkActor, segment_of
from evflow.spark.sinklog.log import RowLog
from evflow.stone import Acting, Actor, Context, checked_integer, titled

_POLICIES = ("block", DROP)
_LEAST = 1 << 16


class SparkSink(Acting):
    """Holds events, in files and in the order in which they came, until Spark has read them.

    Spark reads them as rows by ``spark.readStream.format("evflow")`` and ``spark.read.format("evflow")``,
    with the options ``contact`` of the node and ``stone``, this stone's name there. Each row has an offset,
    counted from 0, that it keeps for good. A streaming query that has done with rows commits them; what all
    queries have committed is deleted. A query that was not heard of for ``patience`` seconds is not waited
    for: it fails when rows are gone that it needs. A batch read deletes nothing.

    With a ``path`` the rows are there again when a graph is started over it, also after the process was
    killed (a power cut may lose the last moments): none is missing that was acknowledged to another node, and
    what other nodes send again is recognised, so each row is there once. That does not hold where its node
    does something else with what comes again: behind a stone that keeps events, as a queue or a storage, or
    was frozen, and for what handlers submit. Without a path the rows are in temporary files; nodes that send
    keep them until they were committed, and what is held when the flow closes goes to the dead letters.

    ``drain`` does not wait for Spark: what is held counts as handled. A query that begins behind the oldest
    row does not keep the rows before. Attributes of events are not kept.

    Args:
        schema: of the rows; events that can be converted to it are. Or the ``schema`` of a DataFrame. None
            for the schema of the first events that come; events of another are then dead letters. Events
            hold decimals as text, timestamps as microseconds and dates as days. Spark reads these with their
            own types again where the schema is a DataFrame's, given here or come unchanged from a
            ``SparkSource`` without a schema. Of an ``Event`` class, or made by a function, they come as text
            and numbers, unless the reader is told with ``.schema(…)``.
        path: the file of what is known of the rows; the files of the rows are beside it, and their names
            begin with its name.
        limit: bytes of rows to hold, 65536 or more. Files go as a whole, so an eighth of it may be of
            rows that were committed.
        policy: what happens at the limit: ``"block"``, and the sources and nodes wait from which events
            come, or ``"drop oldest"``, and the oldest rows go, counted as dropped.
        patience: seconds after which a query is not waited for.
        name: the stone's name.
        on: the node it is placed on.

    Raises:
        GraphError: a setting is wrong.
        SchemaError: ``schema`` is none.

    Example:
        >>> import evflow as ev
        >>> class Ping(ev.Event):
        ...     number: int
        >>> g = ev.Graph()
        >>> _ = g.source("pings", Ping) >> ev.SparkSink(Ping, name="rows")
        >>> with g.run(dead_letters=0) as flow:
        ...     flow["pings"].submit_batch({"number": [1, 2, 3]})
        ...     flow.drain()
        ...     flow.stats()["rows"]["queued"]
        3
    """

    kind = "spark sink"
    linked_ports = "none"
    entrance = True
    exact = True
    listens = True

    def __init__(
        self,
        schema: Any = None,
        *,
        path: str | Path | None = None,
        limit: int = 1 << 30,
        policy: str = "block",
        patience: float = 600.0,
        name: str | None = None,
        on: str | None = None,
    ) -> None:
        super().__init__(name=name, on=on)
        what = titled("spark sink", name)
        if path is not None and not isinstance(path, str | Path):
            raise GraphError(f"{what}: path {path!r}: expected a file's name")
        if policy not in _POLICIES:
            raise GraphError(f"{what}: policy {policy!r}: expected one of {', '.join(map(repr, _POLICIES))}")
        if isinstance(patience, bool) or not isinstance(patience, int | float) or not patience > 0:
            raise GraphError(f"{what}: patience {describe(patience)}: expected seconds, more than 0")
        if _is_struct(schema):
            from evflow.spark.session import require_pyspark

            require_pyspark()
            from evflow.spark.columns.schemas import schema_of

            schema = schema_of(schema)
        self.schema = None if schema is None else Schema.of(schema)
        self.path = None if path is None else Path(path)
        self.limit = checked_integer(f"{what}: limit", limit, _LEAST)
        self.policy = policy
        self.patience = float(patience)

    @property
    def inputs(self) -> Mapping[str, Schema | None]:
        return {"rows": self.schema}

    def emits(self, schema: Schema | None) -> tuple[Schema | None, ...]:
        return ()

    def open(self, context: Context) -> Actor:
        return SinkActor(context, self, RowLog(self.path, segment_of(self.limit), self.schema))

    @property
    def files(self) -> tuple[Path, ...]:
        return () if self.path is None else (self.path,)

    def keep_in(self, folder: Path) -> None:
        self.path = None if self.path is None else folder / self.path

    def settings(self) -> dict[str, Any]:
        return {
            "schema": None if self.schema is None else self.schema.description,
            "path": None if self.path is None else str(self.path),
            "limit": self.limit,
            "policy": self.policy,
            "patience": self.patience,
        }

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> SparkSink:
        described = settings["schema"]
        schema = None if described is None else Schema.from_description(described)
        return cls(**{**settings, "schema": schema})


def _is_struct(thing: object) -> bool:
    """Whether it is the schema of a DataFrame; imports nothing."""
    kind = type(thing)
    return kind.__module__ == "pyspark.sql.types" and kind.__name__ == "StructType"
