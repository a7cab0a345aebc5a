"""Answers what Spark's tasks and its driver ask a source about jobs: each question may come again, and then
changes nothing more.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import msgpack
from msgspec import Struct

from evflow.errors import FlowError, SchemaError, UnwrittenError
from evflow.events.batch import EventBatch
from evflow.schema import Schema
from evflow.schema.values import describe
from evflow.spark.landing.ledger import Task
from evflow.spark.landing.store import Store
from evflow.spark.questions import (
    Abort,
    Append,
    Begin,
    Begun,
    Commit,
    Done,
    Drop,
    End,
    Landed,
    Look,
    Schemas,
    SourceQuestion,
    asked,
    packed,
)

_MOST_TOLD = 10
_MOST_ABORTED = 1000
_MOST_SCHEMA = 1 << 18
"""Bytes of a schema's description; reading it takes the engine's thread."""


class Jobs:
    """Answers questions about jobs.

    Args:
        store: what has landed and what is committed.
        declared: the schema that rows are to have; None for any.
        limit: bytes that may have landed.
        committed: called when an epoch was committed.
        came: called with how many rows came, and how many of these the source had.
    """

    def __init__(
        self,
        store: Store,
        declared: Schema | None,
        limit: int,
        committed: Callable[[], None],
        came: Callable[[int, int], None],
    ) -> None:
        self._store = store
        self._declared = declared
        self._limit = limit
        self._committed = committed
        self._came = came
        self._aborted: dict[str, None] = {}
        self._answers: dict[type[Struct], Callable[[Any], Struct]] = {
            Look: self._look,
            Begin: self._begin,
            Append: self._append,
            End: self._end,
            Drop: self._drop,
            Commit: self._commit,
            Abort: self._abort,
        }

    def answer(self, question: Mapping[str, Any]) -> dict[str, Any]:
        """The answer to a question.

        Raises:
            EvflowError: there is none; the message says why.
        """
        found = asked(question, SourceQuestion)
        return packed(self._answers[type(found)](found))

    def _look(self, question: Look) -> Schemas:
        return Schemas([] if self._declared is None else [self._declared.description])

    def _begin(self, question: Begin) -> Begun:
        job, epoch, partition = question.job, question.epoch, question.partition
        if self._store.ledger.committed(job, epoch) is not None:
            return Begun(0, done=True)
        if question.run in self._aborted:
            raise FlowError(f"job {job!r} was aborted before its partition {partition} began")
        schema = self._fitting(question.schema)
        return Begun(self._store.begin(job, epoch, partition, schema), done=False)

    def _fitting(self, description: Any) -> Schema:
        """The schema that is described, if rows may have it."""
        try:
            size = len(msgpack.packb(description))
        except (ValueError, TypeError, OverflowError, RecursionError):
            raise FlowError(
                "question 'begin' of Spark: schema: expected the description of one, found "
                f"{describe(description)}"
            ) from None
        if size > _MOST_SCHEMA:
            raise FlowError(f"schema: expected a description of {_MOST_SCHEMA} bytes at most, found {size}")
        schema = Schema.from_description(description)
        if self._declared is None:
            return self._store.ledger.shared(schema)
        if schema != self._declared:
            raise SchemaError(f"rows of Spark do not fit: expected {self._declared!r}, found {schema!r}")
        return self._declared

    def _append(self, question: Append) -> Landed:
        task = self._store.task(question.task)
        task.heard = time.monotonic()
        known = task.rows - question.first
        if known < 0:
            raise FlowError(f"{task}: rows {task.rows} to {question.first - 1} have not come")
        batch = EventBatch.from_bytes(task.schema, question.data, question.rows)
        if known < len(batch):
            new = batch.slice(known, len(batch))
            self._check_room(task, new.nbytes)
            self._store.append(task, new)
        self._came(len(batch), min(known, len(batch)))
        return Landed(task.rows)

    def _check_room(self, task: Task, nbytes: int) -> None:
        used = self._store.folder.used
        if self._store.ledger.waiting:
            if used >= self._limit:
                raise UnwrittenError(
                    f"{used} bytes of rows have landed, expected less than {self._limit} (limit=)"
                )
        elif used + nbytes > self._limit:
            # Nothing will be freed by itself, so waiting would be for ever.
            raise FlowError(
                f"{task}: {used + nbytes} bytes of rows would have landed, of jobs that are not committed, "
                f"expected at most {self._limit}; wait for these jobs, or give the source a higher limit= or "
                "more disk"
            )

    def _end(self, question: End) -> Landed:
        task = self._store.task(question.task)
        task.ended, task.heard = True, time.monotonic()
        return Landed(task.rows)

    def _drop(self, question: Drop) -> Done:
        task = self._store.ledger.tasks.get(question.task)
        if task is not None:
            self._store.drop([task])
        return Done()

    def _commit(self, question: Commit) -> Landed:
        job, epoch = question.job, question.epoch
        parts = sorted(question.tasks)
        partitions = [partition for partition, *_ in parts]
        if len(set(partitions)) < len(partitions):
            raise FlowError("question 'commit' of Spark: tasks: expected each partition once")
        known = self._store.ledger.committed(job, epoch)
        if known is not None:
            # Of earlier epochs it is not kept how many rows they had.
            return Landed(known.rows if epoch == known.last else sum(rows for *_, rows in parts))
        wrong = [text for part in parts if (text := self._wrong(*part, job, epoch))]
        if wrong:
            more = f" and {len(wrong) - _MOST_TOLD} more" if len(wrong) > _MOST_TOLD else ""
            raise FlowError(
                f"epoch {epoch} of job {job!r} cannot be committed: {'; '.join(wrong[:_MOST_TOLD])}{more}"
            )
        rows = self._store.commit(job, epoch, [task for _, task, _ in parts])
        self._committed()
        return Landed(rows)

    def _wrong(self, partition: int, number: int, rows: int, job: str, epoch: int) -> str:
        """What keeps a partition from being committed; "" if nothing does."""
        where = f"partition {partition}"
        task = self._store.ledger.tasks.get(number)
        if task is None:
            return f"{where} is missing: its task is not known (any more)"
        if (task.job, task.epoch, task.partition) != (job, epoch, partition):
            return f"{where} has a task of another partition, epoch or job"
        return "" if task.rows == rows else f"{where} has {task.rows} rows, expected {rows}"

    def _abort(self, question: Abort) -> Done:
        job, epoch = question.job, question.epoch
        if self._store.ledger.committed(job, epoch) is None:
            self._store.drop(self._store.ledger.of(job, epoch))
            # A task that was started before, and is to be killed, may be yet to begin.
            if question.run:
                self._aborted[question.run] = None
                while len(self._aborted) > _MOST_ABORTED:
                    del self._aborted[next(iter(self._aborted))]
        return Done()
