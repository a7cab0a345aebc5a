"""All that a Spark source keeps, opened, closed and taken along as one."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from msgspec import msgpack

from evflow.errors import EvflowError, FlowError
from evflow.events.batch import EventBatch
from evflow.outside import shown
from evflow.spark.rowfile import RowFile
from evflow.spark.staging.folder import Folder
from evflow.spark.staging.ledger import Count, Epochs, Ledger, Stream, Waiting
from evflow.spark.staging.releasing import Releasing
from evflow.spark.staging.tasks import Staging

_VERSION = 2


class Store:
    """The folder, the ledger, what is staged, and what is being released.

    Args:
        path: where the ledger is; None for what goes with the process.
        now: the time.

    Raises:
        FlowError: it cannot be used.
    """

    def __init__(self, path: Path | None, now: float) -> None:
        self.folder = Folder(path)
        try:
            self._open(now)
        except BaseException:
            self.folder.close()
            raise

    def _open(self, now: float) -> None:
        self.folder.used = 0
        self.ledger = Ledger(self.folder.ledger)
        try:
            self.staging = Staging(self.folder, self.ledger, now)
            self.releasing = Releasing(self.folder, self.ledger)
        except BaseException:
            self.ledger.close()
            raise
        tasks = {entry.task for entry in self.ledger.tasks()} | {one.task for one in self.ledger.files()}
        self.folder.clear_others(tasks)
        self.folder.found = tasks

    def commit(self, job: str, epoch: int, tasks: Sequence[int]) -> int:
        """Commits an epoch: what these tasks have staged is released in this order, and what others of the
        epoch have is deleted. Returns the rows."""
        files = [(task, rows) for task in tasks if (rows := self.staging[task].rows)]
        total = sum(rows for _, rows in files)
        self.ledger.commit(job, epoch, total, files)
        kept = {task for task, _ in files}
        for task in self.staging.of(job, epoch):
            self.staging.forget(task, keep=task.entry.task in kept)
        self.releasing.committed([rows for _, rows in files])
        return total

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

    def take(self, batches: Sequence[EventBatch], state: bytes, now: float) -> None:
        """From now on it has exactly what another one has packed.

        Raises:
            FlowError: that is malformed, or cannot be written; nothing has changed.
        """
        _, stream, number, epochs, jobs = _unpacked(state)
        if len(jobs) != len(batches):
            raise FlowError(f"a Spark source's snapshot has {len(batches)} batches, expected {len(jobs)}")
        files: list[Waiting] = []
        before = self.folder.used
        try:
            for batch, (job, epoch) in zip(batches, jobs, strict=True):
                if not len(batch):
                    continue
                files.append(Waiting(len(files) + 1, secrets.randbits(62), len(batch), job, epoch))
                # A file each, so that the same rows leave together under the same numbers.
                file = RowFile(self.folder.file(files[-1].task), batch.schema)
                file.append(batch)
                file.close()
            self.releasing.close()
            self.ledger.make(epochs, files, number, stream)
        except EvflowError:
            for one in files:
                self.folder.remove(one.task)
            self.folder.used = before
            raise
        self.ledger.close()
        self._open(now)

    def close(self) -> None:
        """Closes all."""
        self.releasing.close()
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
