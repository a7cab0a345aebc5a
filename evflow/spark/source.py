"""Spark source: where rows of Spark enter a graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evflow.errors import GraphError
from evflow.schema import Schema
from evflow.schema.values import describe
from evflow.spark.ingest.feed import Feed, is_dataframe, texts
from evflow.spark.landing.folder import LEDGER
from evflow.stone import Acting, Actor, Call, Context, checked_integer, titled
from evflow.stones.naming import file_name

if TYPE_CHECKING:
    from evflow.spark.ingest.progress import Progress

_LEAST = 1 << 20
_DAY = 86_400.0
_JOB = "evflow.spark.ingest.job:Job"


class SparkSource(Acting):
    """Takes rows of Spark, each exactly once, and lets them flow on when their job is committed.

    Rows come from any Spark program by ``df.write.format("evflow")`` and ``df.writeStream.format("evflow")``,
    with the options ``contact`` of the node and ``stone``, this stone's name there. Or it has Spark run a job
    itself: of a DataFrame, ``sql=``, ``table=`` or files at ``path=``.

    What a task sends lands in files. When the driver commits the job, or a micro-batch of a stream, the
    rows of the tasks that count flow on in the order of partitions; those of other attempts are deleted, and
    an aborted job leaves nothing. A job or micro-batch that was committed is remembered, and takes no rows
    again: the micro-batches of each query, and the newest 100,000 batch jobs.

    With a ``folder`` all that is there again when a graph is started over it, also after the process was
    killed (a power cut may lose the last moments), and other nodes know again what comes to them twice.
    Without, it is in a temporary folder and goes with the process; committed rows that have not flowed on
    when the flow closes go to the dead letters. On a daemon there always is a folder; and one that runs a job
    itself is admitted with ``--allow evflow.spark.ingest.job`` only.

    Events that are of no task become dead letters. The stone's attributes tell how many ``rows`` came (but
    for those of attempts that came to nothing), how many ``jobs`` were committed, each micro-batch counted,
    the bytes that ``landed`` rows take, and how many rows were ``released``.

    Args:
        given: a DataFrame, to have it run; and the schema (or ``Event`` class) that rows are to have: columns
            are fields by name, and are converted if they can be. Without one rows come as Spark has them.
        schema: the schema, by name.
        sql, table, path: what a job of its own reads.
        format: of the files at ``path``.
        stream: read a table, or files that come by and by, as a stream.
        checkpoint: the folder of a stream's checkpoint; by default one in ``folder``.
        master: where Spark runs; by default in the active session, or here.
        config: settings of a session that is started.
        options: of the reader and of the format evflow.
        progress: show how far the job is on the terminal.
        folder: the folder to keep rows in; made if it is not there.
        limit: bytes that landed rows may take on the disk, 1 MiB or more; or what is free there, if that is
            less. When they do, Spark waits while committed rows flow on; where there are none of these, tasks
            fail.
        patience: seconds after which a task is given up of which nothing is heard, if its job is neither
            committed nor aborted.
        name: the stone's name.
        on: the node it is placed on.

    Raises:
        GraphError: a setting is wrong.
        SchemaError: ``schema`` is none.

    Example:
        >>> import evflow as ev
        >>> class Flight(ev.Event):
        ...     carrier: ev.Str[2]
        ...     delay: float
        >>> g = ev.Graph()
        >>> rows = g.add(ev.SparkSource(Flight, name="flights"))
        >>> _ = rows >> ev.Filter("input.delay > 45") >> ev.Terminal(print)
        >>> g.check()
    """

    kind = "spark source"
    entrance = True
    exact = True
    wakes = True
    buffers = True
    listens = True

    def __init__(
        self,
        *given: Any,
        schema: Any = None,
        sql: str | None = None,
        table: str | None = None,
        path: str | Path | None = None,
        format: str | None = None,
        stream: bool = False,
        checkpoint: str | Path | None = None,
        master: str | None = None,
        config: Mapping[str, object] | None = None,
        options: Mapping[str, object] | None = None,
        progress: bool = False,
        folder: str | Path | None = None,
        limit: int = 64 << 30,
        patience: float = _DAY,
        name: str | None = None,
        on: str | None = None,
    ) -> None:
        super().__init__(name=name, on=on)
        where = titled("spark source", name)
        if folder is not None and not isinstance(folder, str | Path):
            raise GraphError(f"{where}: folder {folder!r}: expected a folder's name")
        if isinstance(patience, bool) or not isinstance(patience, int | float) or not patience > 0:
            raise GraphError(f"{where}: patience {describe(patience)}: expected seconds, more than 0")
        frames = [one for one in given if is_dataframe(one)]
        schemas = [one for one in (*given, schema) if one is not None and not is_dataframe(one)]
        if len(frames) > 1 or len(schemas) > 1:
            raise GraphError(
                f"{where}: expected one DataFrame and one schema at most, found {len(given)} things"
            )
        self.schema = Schema.of(schemas[0]) if schemas else None
        self.feed = Feed(
            df=frames[0] if frames else None,
            sql=sql,
            table=table,
            path=None if path is None else str(path),
            format=format,
            stream=stream,
            checkpoint=None if checkpoint is None else str(checkpoint),
            master=master,
            config=texts(where, "config", config),
            options=texts(where, "options", options),
            progress=progress,
        ).checked(where)
        self.folder = None if folder is None else Path(folder)
        self.limit = checked_integer(f"{where}: limit", limit, _LEAST)
        self.patience = float(patience)
        self._inside: Path | None = None

    @property
    def inputs(self) -> Mapping[str, Schema | None]:
        return {"rows": self.schema}

    def emits(self, schema: Schema | None) -> tuple[Schema | None, ...]:
        if self.schema is None and self.feed is not None:
            return (self.feed.schema(),)
        return (self.schema,)

    @property
    def imports(self) -> tuple[str, ...]:
        # A job reads whatever Spark can read where it runs, so a node admits it by name only.
        return () if self.feed is None else (_JOB,)

    @property
    def files(self) -> tuple[Path, ...]:
        return (self._kept / LEDGER,)

    @property
    def _kept(self) -> Path:
        """Where rows are kept on a daemon."""
        kept = self.folder or Path(f"{file_name(self.name or self.kind)}.rows")
        return kept if self._inside is None else self._inside / kept

    def keep_in(self, folder: Path) -> None:
        self._inside = folder

    @property
    def keeper(self) -> Path | None:
        """The folder that keeps rows over restarts; None if none does."""
        return self._kept if self._inside is not None or self.folder is not None else None

    def open(self, context: Context) -> Actor:
        from evflow.spark.landing.actor import SourceActor

        if self.feed is not None:
            self.feed.prepare()
        return SourceActor(context, self)

    def controls(self, call: Call) -> _Controls:
        return _Controls(call)

    def settings(self) -> dict[str, Any]:
        where = titled("spark source", self.name)
        return {
            "schema": None if self.schema is None else self.schema.description,
            "feed": None if self.feed is None else self.feed.settings(where),
            "folder": None if self.folder is None else str(self.folder),
            "limit": self.limit,
            "patience": self.patience,
        }

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> SparkSource:
        plain = {key: value for key, value in settings.items() if key not in ("schema", "feed")}
        described, feed = settings["schema"], settings["feed"]
        schema = None if described is None else Schema.from_description(described)
        return cls(schema=schema, **plain, **(feed or {}))


class _Controls:
    """What a program may do with a Spark source: the methods of ``flow[name]``."""

    def __init__(self, call: Call) -> None:
        self._call = call

    def progress(self) -> Progress:
        """How far the stone's job is; for any thread."""
        read: Callable[[], Progress] = self._call(lambda actor: actor.progress())
        return read()
