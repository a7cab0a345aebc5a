"""Staging: rows of tasks that are not committed, one row file a task, and what is known of each task."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from weakref import WeakValueDictionary

from evflow.errors import EvflowError, FlowError
from evflow.events.batch import EventBatch
from evflow.schema import Schema
from evflow.spark.questions import MOST_TASKS
from evflow.spark.rowfile import RowFile
from evflow.spark.staging.folder import Folder
from evflow.spark.staging.ledger import Ledger, TaskEntry

_MOST_SCHEMAS = 16 << 20
"""Bytes of descriptions of schemas; what is made of these takes many times as much."""

_log = logging.getLogger("evflow.spark")


@dataclass(eq=False)
class Task:
    """A task that has begun and whose epoch is not decided.

    Attributes:
        entry: which it is.
        file: its rows.
        heard: when something was last heard of it.
        ended: whether it has sent all of its rows.
    """

    entry: TaskEntry
    file: RowFile
    heard: float
    ended: bool = False

    @property
    def rows(self) -> int:
        """Rows staged."""
        return self.file.rows

    def __str__(self) -> str:
        return f"partition {self.entry.partition} of job {self.entry.job!r}"


class Staging:
    """The tasks that are not decided, and their rows.

    Args:
        folder: where row files are.
        ledger: what knows the tasks over a restart.
        now: the time.

    Raises:
        FlowError: a file cannot be used.

    Attributes:
        arrived: rows that came, but for those of tasks that came to nothing.
    """

    def __init__(self, folder: Folder, ledger: Ledger, now: float) -> None:
        self._folder, self._ledger = folder, ledger
        self._tasks: dict[int, Task] = {}
        self.arrived = 0
        self._schemas: WeakValueDictionary[str, Schema] = WeakValueDictionary()
        self._sizes: dict[str, int] = {}
        lost = []
        for entry in ledger.tasks():
            try:
                file = RowFile(folder.file(entry.task))
                file.close()
                file.schema = self.shared(file.schema, file.header)
                self._tasks[entry.task] = Task(entry, file, now)
                self._folder.used += file.size
                self.arrived += file.rows
            except EvflowError as error:
                _log.warning("rows of a task are lost, which Spark will try again: %s", error)
                lost.append(entry.task)
        ledger.drop(lost)

    def __len__(self) -> int:
        return len(self._tasks)

    def get(self, task: int) -> Task | None:
        """A task by its number; None if it is not known."""
        return self._tasks.get(task)

    def __getitem__(self, task: int) -> Task:
        """A task by its number.

        Raises:
            FlowError: it is not known.
        """
        found = self._tasks.get(task)
        if found is None:
            raise FlowError(
                f"task {task} is not known: what was staged of it is lost, its epoch was decided, or nothing "
                "came of it for too long; Spark has to try it again"
            )
        return found

    def begin(self, job: str, epoch: int, partition: int, attempt: int, schema: Schema, now: float) -> int:
        """A task begins; returns its number, which is random.

        Raises:
            FlowError: there are too many, or its file cannot be made.
        """
        if len(self._tasks) >= MOST_TASKS:
            self._make_room()
        entry = TaskEntry(secrets.randbits(62), job, epoch, partition, attempt)
        file = RowFile(self._folder.file(entry.task), schema)
        try:
            self._ledger.begin(entry)
        except FlowError:
            file.delete()
            raise
        file.close()
        self._tasks[entry.task] = Task(entry, file, now)
        self._folder.used += file.size
        return entry.task

    def _make_room(self) -> None:
        """Gives up some of the tasks that have only begun, those that have been quiet longest."""
        begun = [task for task in self._tasks.values() if not task.rows and not task.ended]
        if not begun:
            raise FlowError(
                f"{MOST_TASKS} tasks are under way and their epochs are not decided; expected fewer"
            )
        begun.sort(key=lambda task: task.heard)
        _log.warning("of %d tasks that are under way some that have sent nothing are given up", MOST_TASKS)
        self.drop(begun[: max(MOST_TASKS // 100, 1)])

    def shared(self, schema: Schema, size: int) -> Schema:
        """The schema, or the same one that another task has already.

        Args:
            schema: the schema.
            size: bytes of its description.

        Raises:
            FlowError: there are too many others.
        """
        known = self._schemas.get(schema.fingerprint)
        if known is not None:
            return known
        self._sizes = {one: size for one, size in self._sizes.items() if one in self._schemas}
        if sum(self._sizes.values()) + size > _MOST_SCHEMAS:
            raise FlowError(
                f"tasks of {len(self._sizes)} schemas are under way, whose descriptions have "
                f"{_MOST_SCHEMAS} bytes; expected less: wait for their jobs, or give the source a schema"
            )
        self._schemas[schema.fingerprint] = schema
        self._sizes[schema.fingerprint] = size
        return schema

    def append(self, task: Task, batch: EventBatch) -> None:
        """Stages rows behind those of the task that there are.

        Raises:
            FlowError: they cannot be written; none of them was.
        """
        before = task.file.size
        try:
            task.file.append(batch)
        finally:
            # There may be more tasks than a process may have open files.
            task.file.close()
        self._folder.used += task.file.size - before
        self.arrived += len(batch)

    def of(self, job: str, epoch: int) -> list[Task]:
        """The tasks of an epoch."""
        return [t for t in self._tasks.values() if t.entry.job == job and t.entry.epoch == epoch]

    def drop(self, tasks: Iterable[Task]) -> None:
        """Forgets tasks, and what was staged of them."""
        tasks = list(tasks)
        self._ledger.drop([task.entry.task for task in tasks])
        for task in tasks:
            self.forget(task)

    def forget(self, task: Task, keep: bool = False) -> None:
        """Forgets a task that the ledger has forgotten; ``keep`` if what was staged of it is to stay."""
        del self._tasks[task.entry.task]
        if not keep:
            self._folder.remove(task.entry.task)
            self.arrived -= task.rows

    def idle(self, now: float, patience: float) -> list[Task]:
        """The tasks of which nothing was heard for so long; one that ended waits for others of its epoch."""
        alive = {(t.entry.job, t.entry.epoch) for t in self._tasks.values() if now < t.heard + patience}
        return [
            t
            for t in self._tasks.values()
            if now >= t.heard + patience and not (t.ended and (t.entry.job, t.entry.epoch) in alive)
        ]

    def clear(self) -> None:
        """Forgets all tasks."""
        self.drop(list(self._tasks.values()))
