"""The writers of Spark's format ``evflow``: tasks send rows to a stone, which keeps them until they count.

Spark runs a task again when it failed, twice where it seems slow, and a whole micro-batch after a restart. So
rows are not taken when they arrive, but when the driver says which attempts count: once a job and epoch.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from evflow.errors import EvflowError, SchemaError, SparkError
from evflow.schema import Schema
from evflow.spark.columns.encoder import encode
from evflow.spark.columns.schemas import schema_of
from evflow.spark.format.connection import Connection, shared
from evflow.spark.format.options import Options
from evflow.spark.format.sending import Sender
from evflow.spark.questions import Abort, Begin, Begun, Commit, Done, Landed, Look, Schemas

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

_log = logging.getLogger("evflow.spark")

_EARLY = 20.0
"""Seconds that a job waits at most for its stone before it begins."""

_QUERY, _EPOCH = "sql.streaming.queryId", "streaming.sql.batchId"


_schemas: dict[str, Schema] = {}
"""Those of this process, which runs one task after the other: what is compiled for one is kept with it."""


@dataclass(frozen=True)
class Sent(WriterCommitMessage):
    """What one task has sent.

    Attributes:
        job: the job, as the stone knows it.
        epoch: its micro-batch; 0 for a batch job.
        partition: the partition.
        task: the number that the stone has given this attempt.
        rows: how many rows the stone has of it.
    """

    job: str
    epoch: int
    partition: int
    task: int
    rows: int


class BatchWriter(DataSourceArrowWriter):
    """Writes a DataFrame. Made once for a job and pickled: it goes to each task, and back to the driver.

    Args:
        options: those of the format.
        struct: the schema of the DataFrame.
        overwrite: whether what is there is to be replaced.

    Raises:
        SparkError: an option is wrong, nobody answers, or rows there are cannot be replaced.
        FlowError: there is no such stone.
        SchemaError: the rows are not what the stone takes.
    """

    def __init__(self, options: Mapping[str, str], struct: StructType, overwrite: bool) -> None:
        self._options = Options.parse(options)
        _refuse_overwriting(overwrite)
        self._run = uuid.uuid4().hex
        self._job = self._options.jobid or self._run
        with Connection(self._options) as connection:
            self._schema = taken(connection, struct, min(self._options.timeout, _EARLY))

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Sends a task's rows, on the executor."""
        return _send(self._options, self._schema, self._job, 0, iterator, self._run)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Has the stone take the rows of these tasks.

        Raises:
            FlowError: it has not all of them any more.
            SparkError: it does not answer, or a task has not said what it sent.
        """
        _commit(self._options, self._job, 0, messages)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Has the stone throw away the rows of this job."""
        _abort(self._options, self._job, 0, self._run)


class StreamWriter(DataSourceStreamArrowWriter):
    """Writes the micro-batches of a streaming query; made twice for each of them, so it remembers nothing.

    Args:
        options: those of the format.
        struct: the schema of the rows.
        overwrite: whether each micro-batch is to replace what is there.

    Raises:
        EvflowError: see ``BatchWriter``.
    """

    def __init__(self, options: Mapping[str, str], struct: StructType, overwrite: bool) -> None:
        self._options = Options.parse(options)
        _refuse_overwriting(overwrite)
        if self._options.jobid:
            raise SparkError("option 'jobid' is for batch jobs; a query is known by its checkpointLocation")
        self._struct = struct

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Sends a task's rows, on the executor.

        Raises:
            SparkError: Spark does not say of which query and micro-batch it is.
        """
        job, epoch = _query_and_epoch()
        return _send(self._options, self._struct, job, epoch, iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Has the stone take the rows of these tasks; see ``BatchWriter.commit``."""
        for job in _jobs(_all_sent(messages)):
            _commit(self._options, job, batchId, messages)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Has the stone throw away the rows of this micro-batch.

        Where no task came to its end nobody knows the query here; then the stone does it in its own time.
        """
        for job in _jobs(messages):
            _abort(self._options, job, batchId)


def taken(connection: Connection, struct: StructType, timeout: float) -> Schema:
    """The schema that a stone takes rows as: its own, where it has one.

    Args:
        connection: to the stone's node.
        struct: the schema of the DataFrame.
        timeout: seconds to wait for the answer.

    Raises:
        EvflowError: the stone is not there, does not answer, or takes none of the rows.
    """
    found = connection.ask(Look(), Schemas, timeout).schemas
    if not found:
        return schema_of(struct)
    import pyarrow as pa
    from pyspark.sql.pandas.types import to_arrow_schema

    nothing = pa.RecordBatch.from_pylist([], to_arrow_schema(struct, timezone="UTC"))
    reasons = []
    for description in found:
        schema = Schema.from_description(description)
        try:
            encode(schema, nothing)
            return schema
        except SchemaError as error:
            reasons.append(str(error))
    raise SchemaError("\n".join(reasons))


def _send(
    options: Options,
    schema: Schema | StructType,
    job: str,
    epoch: int,
    batches: Iterator[pa.RecordBatch],
    run: str = "",
) -> Sent:
    """Sends the rows of a task; ``run`` tells a run of a batch job from those before under the same name."""
    context = TaskContext.get()
    assert context is not None
    partition, attempt = context.partitionId(), context.taskAttemptId()
    with shared(options) as connection:
        rows = schema if isinstance(schema, Schema) else taken(connection, schema, options.timeout)
        rows = _schemas.setdefault(rows.fingerprint, rows)
        begin = Begin(job, epoch, partition, attempt, rows.description, run)
        begun = connection.ask(begin, Begun)
        # Where the job was committed before, nothing is to be sent again.
        if begun.done:
            return Sent(job, epoch, partition, begun.task, 0)
        with Sender(connection, begun.task, rows) as sender:
            for batch in batches:
                sender.send(batch)
            sender.finish()
        return Sent(job, epoch, partition, begun.task, sender.rows)


def _query_and_epoch() -> tuple[str, int]:
    context = TaskContext.get()
    assert context is not None
    query, epoch = (context.getLocalProperty(key) for key in (_QUERY, _EPOCH))
    if not query or epoch is None:
        raise SparkError(
            f"this Spark does not tell a task the properties {_QUERY} and {_EPOCH} (found {query!r} and "
            f"{epoch!r}), without which rows may be delivered twice; use foreachBatch with a batch write and "
            "option 'jobid'"
        )
    return query, int(epoch)


def _jobs(messages: Sequence[WriterCommitMessage | None]) -> list[str]:
    return sorted({message.job for message in messages if isinstance(message, Sent)})


def _all_sent(messages: Sequence[WriterCommitMessage | None]) -> list[Sent]:
    """What all tasks have sent; to commit some of them would lose rows in silence."""
    found = [one for one in messages if isinstance(one, Sent)]
    if len(found) < len(messages):
        raise SparkError(
            f"{len(messages) - len(found)} of {len(messages)} tasks have not said what they sent; expected "
            "that of each, so nothing is committed"
        )
    return found


def _commit(options: Options, job: str, epoch: int, messages: Sequence[WriterCommitMessage | None]) -> None:
    tasks = [(one.partition, one.task, one.rows) for one in _all_sent(messages)]
    with Connection(options) as connection:
        connection.ask(Commit(job, epoch, tasks), Landed)


def _abort(options: Options, job: str, epoch: int, run: str = "") -> None:
    """Never raises an error of evflow's, which would hide the one for which the job is aborted."""
    try:
        with Connection(options) as connection:
            connection.ask(Abort(job, epoch, run), Done, min(options.timeout, _EARLY))
    except EvflowError as error:
        _log.warning("job %s, epoch %s: the stone was not told that it is aborted: %s", job, epoch, error)


def _refuse_overwriting(overwrite: bool) -> None:
    if overwrite:
        raise SparkError(
            "events that were sent cannot be replaced: use mode('append'), or outputMode('append') for a "
            "query"
        )
