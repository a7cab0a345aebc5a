"""What Spark's tasks and its driver ask a source: to begin, end or drop a task, to commit or abort an epoch.

Each question may come again, and then changes nothing more.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, NoReturn

import msgpack

from evflow.engine.fit import best_fit
from evflow.errors import FlowError, SchemaError
from evflow.schema import Schema
from evflow.schema.values import describe
from evflow.spark.landing.staging import MOST_TASKS
from evflow.spark.landing.store import Store

__all__ = ["Jobs"]

_END = 1 << 62
_MOST_NAME = 1000
_MOST_TOLD = 10
_MOST_ABORTED = 1000
_MOST_SCHEMA = 1 << 18
"""Bytes of a schema's description; reading it takes the engine's thread."""


class _Part(NamedTuple):
    """What a commit says of a partition: the task that sent it, and its rows."""

    partition: int
    task: int
    rows: int


class Jobs:
    """Answers questions about jobs.

    Args:
        store: what is staged and committed.
        declared: the schema that rows are to have; None for any.
        limit: bytes that may be staged.
        committed: called when an epoch was committed.
    """

    def __init__(
        self, store: Store, declared: Schema | None, limit: int, committed: Callable[[], None]
    ) -> None:
        self._store = store
        self._declared = declared
        self._limit = limit
        self._committed = committed
        self._aborted: dict[str, None] = {}
        self._verbs: dict[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
            "look": self._look,
            "begin": self._begin,
            "end": self._end,
            "drop": self._drop,
            "commit": self._commit,
            "abort": self._abort,
        }

    def answer(self, question: Mapping[str, Any]) -> dict[str, Any]:
        """The answer to a question.

        Raises:
            EvflowError: there is none; the message says why.
        """
        ask = question.get("ask")
        verb = self._verbs.get(ask) if isinstance(ask, str) else None
        if verb is None:
            _refuse("ask", f"one of {', '.join(self._verbs)}", ask)
        return verb(question)

    def _look(self, question: Mapping[str, Any]) -> dict[str, Any]:
        return {"schemas": [] if self._declared is None else [self._declared.description]}

    def _begin(self, question: Mapping[str, Any]) -> dict[str, Any]:
        job, epoch = _job(question)
        partition, attempt = _count(question, "partition"), _count(question, "attempt")
        if self._store.ledger.committed(job, epoch) is not None:
            return {"task": 0, "done": True}
        run = question.get("run")
        if isinstance(run, str) and run in self._aborted:
            raise FlowError(f"job {job!r} was aborted before its partition {partition} began")
        schema = self._fitting(question.get("schema"))
        used = self._store.folder.used
        if used >= self._limit and not self._store.releasing.files:
            raise FlowError(
                f"{used} bytes of rows are staged, of jobs that are not committed, expected less than "
                f"{self._limit}; wait for these jobs, or give the source a higher limit= or more disk"
            )
        task = self._store.staging.begin(job, epoch, partition, attempt, schema, time.monotonic())
        return {"task": task, "done": False}

    def _fitting(self, description: object) -> Schema:
        """The schema in which rows that are described arrive."""
        try:
            size = len(msgpack.packb(description))
        except (ValueError, TypeError, OverflowError, RecursionError):
            _refuse("schema", "the description of a schema", description)
        if size > _MOST_SCHEMA:
            _refuse("schema", f"a description of {_MOST_SCHEMA} bytes at most", size)
        schema = Schema.from_description(description)
        if self._declared is None:
            return self._store.staging.schemas.shared(schema, size)
        try:
            best_fit(schema, {"rows": (self._declared,)}, ())
        except SchemaError as error:
            raise SchemaError(f"rows of Spark do not fit {self._declared!r}: {error}") from None
        return self._declared

    def _end(self, question: Mapping[str, Any]) -> dict[str, Any]:
        task = self._store.staging[_count(question, "task")]
        if task.failed:
            raise FlowError(f"partition {task.entry.partition} of job {task.entry.job!r}: {task.failed}")
        task.ended, task.heard = True, time.monotonic()
        return {"rows": task.rows}

    def _drop(self, question: Mapping[str, Any]) -> dict[str, Any]:
        task = self._store.staging.get(_count(question, "task"))
        if task is not None:
            self._store.staging.drop([task])
        return {}

    def _commit(self, question: Mapping[str, Any]) -> dict[str, Any]:
        job, epoch = _job(question)
        parts = _parts(question.get("tasks"))
        known = self._store.ledger.committed(job, epoch)
        if known is not None:
            # Of earlier epochs it is not kept how many rows they had.
            return {"rows": known.rows if epoch == known.last else sum(part.rows for part in parts)}
        wrong = [text for part in parts if (text := self._wrong(part, job, epoch))]
        if wrong:
            more = f" and {len(wrong) - _MOST_TOLD} more" if len(wrong) > _MOST_TOLD else ""
            raise FlowError(
                f"epoch {epoch} of job {job!r} cannot be committed: {'; '.join(wrong[:_MOST_TOLD])}{more}"
            )
        rows = self._store.commit(job, epoch, [part.task for part in parts])
        self._committed()
        return {"rows": rows}

    def _wrong(self, part: _Part, job: str, epoch: int) -> str:
        """What keeps a partition from being committed; "" if nothing does."""
        where = f"partition {part.partition}"
        task = self._store.staging.get(part.task)
        if task is None:
            return f"{where} is missing: its task is not known (any more)"
        if (task.entry.job, task.entry.epoch, task.entry.partition) != (job, epoch, part.partition):
            return f"{where} has a task of another partition, epoch or job"
        if task.failed:
            return f"{where} failed: {task.failed}"
        return "" if task.rows == part.rows else f"{where} has {task.rows} rows, expected {part.rows}"

    def _abort(self, question: Mapping[str, Any]) -> dict[str, Any]:
        job, epoch = _job(question)
        if self._store.ledger.committed(job, epoch) is None:
            self._store.staging.drop(self._store.staging.of(job, epoch))
            # A task that was started before, and is to be killed, may be yet to begin.
            run = question.get("run")
            if isinstance(run, str) and len(run) <= _MOST_NAME:
                self._aborted[run] = None
                while len(self._aborted) > _MOST_ABORTED:
                    del self._aborted[next(iter(self._aborted))]
        return {}


def _job(question: Mapping[str, Any]) -> tuple[str, int]:
    job = question.get("job")
    if not isinstance(job, str) or not 0 < len(job) <= _MOST_NAME:
        _refuse("job", f"a text of 1 to {_MOST_NAME} characters", job)
    return job, _count(question, "epoch")


def _count(question: Mapping[str, Any], key: str) -> int:
    return _whole(key, question.get(key))


def _whole(key: str, value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < _END:
        _refuse(key, "an integer from 0 on, less than 2**62", value)
    return value


def _parts(tasks: object) -> list[_Part]:
    """What a commit lists, in the order of partitions."""
    if not isinstance(tasks, list | tuple) or len(tasks) > MOST_TASKS:
        _refuse("tasks", f"a list of [partition, task, rows], {MOST_TASKS} at most", tasks)
    found: dict[int, _Part] = {}
    for row in tasks:
        if not isinstance(row, list | tuple) or len(row) != 3:
            _refuse("tasks", "[partition, task, rows]", row)
        part = _Part(*(_whole(key, value) for key, value in zip(_Part._fields, row, strict=True)))
        if part.partition in found:
            _refuse("tasks", "each partition once", part.partition)
        found[part.partition] = part
    return [found[partition] for partition in sorted(found)]


def _refuse(key: str, expected: str, found: object) -> NoReturn:
    raise FlowError(f"question of Spark: {key}: expected {expected}, found {describe(found)}")
