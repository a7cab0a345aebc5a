"""All that a Spark source keeps, opened, closed and taken along as one: the rows of tasks that are not
committed, what is committed, and how far that has left.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from msgspec import msgpack

from evflow.errors import EvflowError, FlowError
from evflow.events.batch import EventBatch
from evflow.events.joining import pieces
from evflow.outside import shown
from evflow.schema import Schema
from evflow.spark.landing.folder import Folder
from evflow.spark.landing.ledger import Count, Epochs, Ledger, Part, Place, Stream, Task, Waiting
from evflow.spark.landing.releasing import Releasing
from evflow.spark.questions import MOST_TASKS

_VERSION = 2
_FRAME = 1 << 20
"""Bytes of rows in a file, at most, unless one row alone has more."""

_log = logging.getLogger("evflow.spark")


class Store:
    """The folder, the ledger, what has landed, and what is being released.

    Args:
        path: where the ledger is; None for what goes with the process.

    Raises:
        FlowError: it cannot be used; so each method.

    Attributes:
        arrived: rows that came, but for those of tasks that came to nothing.
    """

    def __init__(self, path: Path | None) -> None:
        self.folder = Folder(path)
        try:
            self._open()
        except BaseException:
            self.folder.close()
            raise

    def _open(self) -> None:
        self.ledger = Ledger(self.folder.ledger)
        try:
            whole = self.folder.whole()
            lost = [t for t in self.ledger.tasks.values() if any(p.file not in whole for p in t.parts)]
            for task in lost:
                _log.warning("rows of %s are lost, which Spark will try again", task)
            self.ledger.drop(lost)
            self.releasing = Releasing(self.folder, self.ledger, whole)
            self.folder.keep_only(self._files())
        except BaseException:
            self.ledger.close()
            raise
        self.arrived = sum(task.rows for task in self.ledger.tasks.values())

    def _files(self) -> list[str]:
        landed = [part.file for task in self.ledger.tasks.values() for part in task.parts]
        return landed + [one.file for one in self.ledger.waiting.values()]

    # --- tasks that are not decided

    def task(self, number: int) -> Task:
        """A task by its number.

        Raises:
            FlowError: it is not known.
        """
        found = self.ledger.tasks.get(number)
        if found is None:
            raise FlowError(
                f"task {number} is not known: what had landed of it is lost, its epoch was decided, or "
                "nothing came of it for too long; Spark has to try it again"
            )
        return found

    def begin(self, job: str, epoch: int, partition: int, schema: Schema) -> int:
        """A task begins; returns its number, which is random.

        Raises:
            FlowError: there are too many, or it cannot be noted.
        """
        if len(self.ledger.tasks) >= MOST_TASKS:
            self._make_room()
        return self.ledger.begin(job, epoch, partition, schema).number

    def _make_room(self) -> None:
        """Gives up some of the tasks that have only begun, those that have been quiet longest."""
        begun = [task for task in self.ledger.tasks.values() if not task.rows and not task.ended]
        if not begun:
            raise FlowError(
                f"{MOST_TASKS} tasks are under way and their epochs are not decided; expected fewer"
            )
        begun.sort(key=lambda task: task.heard)
        _log.warning("of %d tasks that are under way some that have sent nothing are given up", MOST_TASKS)
        self.drop(begun[: max(MOST_TASKS // 100, 1)])

    def append(self, task: Task, batch: EventBatch) -> None:
        """Lets rows land behind those of the task that there are.

        Raises:
            FlowError: they cannot be written; none of them was.
        """
        parts: list[Part] = []
        try:
            for piece in pieces(batch, _FRAME):
                parts.append(Part(self.folder.write(piece), len(piece)))
            self.ledger.land(task, parts)
        except EvflowError:
            self.folder.remove([part.file for part in parts])
            raise
        self.arrived += len(batch)

    def drop(self, tasks: Sequence[Task]) -> None:
        """Forgets tasks, and what has landed of them."""
        self.ledger.drop(tasks)
        self._remove(tasks)

    def _remove(self, tasks: Sequence[Task]) -> None:
        self.folder.remove([part.file for task in tasks for part in task.parts])
        self.arrived -= sum(task.rows for task in tasks)

    def idle(self, now: float, patience: float) -> list[Task]:
        """The tasks of which nothing was heard for so long; one that ended waits for others of its epoch."""
        tasks = self.ledger.tasks.values()
        alive = {(t.job, t.epoch) for t in tasks if now < t.heard + patience}
        return [t for t in tasks if now >= t.heard + patience and not (t.ended and (t.job, t.epoch) in alive)]

    def commit(self, job: str, epoch: int, numbers: Sequence[int]) -> int:
        """Commits an epoch: what has landed of these tasks is released in this order, and what others of the
        epoch have is deleted. Returns the rows."""
        tasks = [self.task(number) for number in numbers]
        chosen = set(numbers)
        others = [task for task in self.ledger.of(job, epoch) if task.number not in chosen]
        self.ledger.commit(job, epoch, tasks)
        self._remove(others)
        rows = sum(task.rows for task in tasks)
        self.releasing.rows += rows
        return rows

    # --- all of it elsewhere

    def pack(self) -> tuple[list[EventBatch], bytes]:
        """What is committed and not released, a batch an emission, and all else that has to be known
        elsewhere."""
        left = list(self.releasing.left())
        state = [
            _VERSION,
            self.ledger.stream,
            self.releasing.place.number,
            self.ledger.epochs(),
            [[one.job, one.epoch] for one, _ in left],
        ]
        return [batch for _, batch in left], msgpack.encode(state)

    def take(self, batches: Sequence[EventBatch], state: bytes) -> None:
        """From now on it has exactly what another one has packed.

        Raises:
            FlowError: that is malformed, or cannot be written; nothing has changed.
        """
        _, stream, number, epochs, jobs = _unpacked(state)
        if len(jobs) != len(batches):
            raise FlowError(f"a Spark source's snapshot has {len(batches)} batches, expected {len(jobs)}")
        waiting: list[Waiting] = []
        try:
            for batch, (job, epoch) in zip(batches, jobs, strict=True):
                if len(batch):
                    # A file each, so that the same rows leave together under the same numbers.
                    at, file = number + len(waiting), self.folder.write(batch)
                    waiting.append(Waiting(at, file, len(batch), job, epoch, batch.schema))
            self.ledger.make(epochs, waiting, Place(number), stream)
        except EvflowError:
            self.folder.remove([one.file for one in waiting])
            raise
        self.ledger.close()
        self._open()

    def close(self) -> None:
        """Closes all."""
        self.ledger.close()
        self.folder.close()


class _Packed(NamedTuple):
    version: Literal[2]
    stream: Stream
    number: Count
    epochs: list[Epochs]
    jobs: list[tuple[str, Count]]


def _unpacked(state: bytes) -> _Packed:
    try:
        found = msgpack.decode(state, type=_Packed)
        runs = {(one.job, one.first) for one in found.epochs if one.first <= one.last}
        if len(runs) < len(found.epochs):
            raise ValueError("its runs of epochs end before they begin, or begin twice")
    except (ValueError, RecursionError) as error:
        raise FlowError(f"a Spark source's snapshot is malformed: {shown(error)}") from None
    return found
