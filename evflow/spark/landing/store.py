"""All that a Spark source keeps, opened, closed and taken along as one."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from pathlib import Path

import msgpack

from evflow.errors import EvflowError, FlowError
from evflow.events.batch import EventBatch
from evflow.outside import from_msgpack, shown
from evflow.spark.landing.folder import Folder
from evflow.spark.landing.ledger import Epochs, Ledger, Waiting
from evflow.spark.landing.releasing import Releasing
from evflow.spark.landing.staging import Staging
from evflow.spark.rowfile import RowFile

__all__ = ["CHUNK", "Store"]

CHUNK = 1 << 20
"""Bytes of an emission."""

_VERSION = 1
_END = 1 << 62


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
        self.ledger = Ledger(self.folder.ledger, CHUNK)
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
        """What is committed and not released, a batch a file, and all else that has to be known elsewhere."""
        left = list(self.releasing.left())
        state = [
            _VERSION,
            self.ledger.stream,
            self.ledger.chunk,
            self.releasing.place.number,
            [list(one) for one in self.ledger.epochs()],
            [[one.job, one.epoch] for one, _ in left],
        ]
        packed: bytes = msgpack.packb(state)
        return [batch for _, batch in left], packed

    def take(self, batches: Sequence[EventBatch], state: bytes, now: float) -> None:
        """From now on it has exactly what another one has packed.

        Raises:
            FlowError: that is malformed, or cannot be written; nothing has changed.
        """
        stream, chunk, number, epochs, jobs = _unpacked(state)
        if len(jobs) != len(batches):
            raise FlowError(f"a Spark source's snapshot has {len(batches)} batches, expected {len(jobs)}")
        files: list[Waiting] = []
        before = self.folder.used, self.ledger.chunk
        try:
            for batch, (job, epoch) in zip(batches, jobs, strict=True):
                if not len(batch):
                    continue
                files.append(Waiting(len(files) + 1, secrets.randbits(62), len(batch), job, epoch))
                file = RowFile(self.folder.file(files[-1].task), batch.schema)
                file.append(batch)
                file.close()
            self.close_files()
            self.ledger.chunk = chunk
            self.ledger.make(epochs, files, number, stream)
        except EvflowError:
            for one in files:
                self.folder.remove(one.task)
            self.folder.used, self.ledger.chunk = before
            raise
        self.ledger.close()
        self._open(now)

    def close_files(self) -> None:
        """Closes row files, until they are used again."""
        self.staging.close()
        self.releasing.close()

    def close(self) -> None:
        """Closes all."""
        self.close_files()
        self.ledger.close()
        self.folder.close()


def _unpacked(state: bytes) -> tuple[bytes, int, int, list[Epochs], list[tuple[str, int]]]:
    try:
        version, stream, chunk, number, epochs, jobs = from_msgpack(state)
        if version != _VERSION:
            raise ValueError(f"version {shown(version)}")
        if type(stream) is not bytes or len(stream) != 16:
            raise ValueError("no stream")
        if not 0 < _whole(chunk) <= 1 << 30:
            raise ValueError("no size of emissions")
        known = [_epochs(*row) for row in epochs]
        return stream, chunk, _whole(number), known, [(_text(job), _whole(epoch)) for job, epoch in jobs]
    except (ValueError, TypeError) as error:
        raise FlowError(f"a Spark source's snapshot is malformed: {shown(error)}") from None


def _epochs(job: object, first: object, last: object, rows: object) -> Epochs:
    found = Epochs(_text(job), _whole(first), _whole(last), _whole(rows))
    if found.first > found.last:
        raise ValueError(f"{shown(found)} are no epochs")
    return found


def _whole(value: object) -> int:
    if type(value) is not int or not 0 <= value < _END:
        raise ValueError(f"{shown(value)} is no count")
    return value


def _text(value: object) -> str:
    if type(value) is not str:
        raise ValueError(f"{shown(value)} is no text")
    return value
