"""The ledger of a Spark source: what is staged, what was committed, and how far that was released.

It is a file beside a folder of row files, and decides which of these count. A commit is one change of it,
made before anything is released.

A kill of the process loses nothing; a power cut may lose the last moments.
"""

from __future__ import annotations

import os
from bisect import bisect_right, insort
from collections.abc import Iterable, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from msgspec import Meta, convert

from evflow.disk import Store
from evflow.outside import shown

MOST_JOBS = 100_000
"""Batch jobs that are remembered, the newest."""

MOST_RUNS = 100_000
"""Runs of micro-batches that are remembered, the newest: a query has one, unless it leaves some out."""

Count = Annotated[int, Meta(ge=0, lt=1 << 62)]
Stream = Annotated[bytes, Meta(min_length=16, max_length=16)]


class Place(NamedTuple):
    """How far rows were released: the next emission's ``number``, and the ``row`` of the ``file`` it begins
    with. Files before that one were released whole."""

    number: Count = 0
    file: Count = 1
    row: Count = 0


class TaskEntry(NamedTuple):
    """A task whose rows are staged."""

    task: Count
    job: str
    epoch: Count
    partition: Count
    attempt: Count


class Waiting(NamedTuple):
    """A file of committed rows: where it stands among all, the task that sent it, and its rows."""

    id: Count
    task: Count
    rows: Count
    job: str
    epoch: Count


class Epochs(NamedTuple):
    """Epochs of a job that were committed, from ``first`` to ``last``, and the rows of the last one."""

    job: str
    first: Count
    last: Count
    rows: Count


_Runs = dict[tuple[str, int], Epochs]


class Ledger(Store):
    """A ledger in a file, which is made when there is something to write.

    Args:
        path: the file; its folder is locked.

    Raises:
        FlowError: it is there and cannot be used; each method raises it too.

    Attributes:
        stream: 16 bytes that no other ledger has; numbers of emissions mean something together with them.
        place: up to where all that was released is settled.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.stream = os.urandom(16)
        self.place = Place()
        super().__init__(path, "ledger", "ledger of Spark 2", own=False)
        try:
            self._take()
        except BaseException:
            self.close()
            raise

    def _take(self) -> None:
        """Reads what is in the file."""
        self._tasks: dict[int, TaskEntry] = {}
        self._files: dict[int, Waiting] = {}
        # By job where its runs begin; and of batch jobs and of queries the runs, the newest last.
        self._begins: dict[str, list[int]] = {}
        self._runs: tuple[_Runs, _Runs] = ({}, {})
        found = self.load()
        with self._log.naming():
            if found and "state" not in found:
                raise ValueError("its state is gone")
            for key, value in found.items():
                match key, value:
                    case "state", [stream, *place]:
                        self.stream = convert(stream, Stream)
                        self.place = convert(place, Place)
                    case ("task", task), [*said]:
                        self._tasks[task] = convert([task, *said], TaskEntry)
                    case ("file", id), [*said]:
                        self._files[id] = convert([id, *said], Waiting)
                    case ("run", job, first), [*said]:
                        self._note(convert([job, first, *said], Epochs))
                    case _:
                        raise ValueError(f"{shown([key, value])} is not what a ledger has")

    def _note(self, run: Epochs) -> None:
        insort(self._begins.setdefault(run.job, []), run.first)
        self._runs[run.last > 0][run.job, run.first] = run

    def _state(self, place: Place) -> list[Any]:
        return [self.stream, *place]

    def _write(self, values: dict[Any, Any]) -> None:
        self.save(values if self.begun else {"state": self._state(self.place), **values})

    def make(
        self, epochs: Iterable[Epochs], files: Iterable[Waiting], number: int = 0, stream: bytes = b""
    ) -> None:
        """From now on exactly this is in it."""
        state = [stream or self.stream, *Place(number)]
        runs = {("run", one.job, one.first): [one.last, one.rows] for one in epochs}
        self.replace({"state": state, **runs, **{("file", one.id): list(one[1:]) for one in files}})
        self._take()

    def tasks(self) -> list[TaskEntry]:
        """The tasks whose rows are staged."""
        return sorted(self._tasks.values())

    def begin(self, entry: TaskEntry) -> None:
        """A task has begun."""
        self._write({("task", entry.task): entry[1:]})
        self._tasks[entry.task] = entry

    def drop(self, tasks: Iterable[int]) -> None:
        """Forgets tasks."""
        known = [task for task in tasks if task in self._tasks]
        if known:
            self._write({("task", task): None for task in known})
            for task in known:
                del self._tasks[task]

    def committed(self, job: str, epoch: int) -> Epochs | None:
        """The run of epochs, one after the other, that a committed epoch belongs to; None if it is not."""
        begins = self._begins.get(job, [])
        at = bisect_right(begins, epoch) - 1
        run = self._run(job, begins[at]) if at >= 0 else None
        return run if run is not None and epoch <= run.last else None

    def _run(self, job: str, first: int) -> Epochs | None:
        return next((runs[job, first] for runs in self._runs if (job, first) in runs), None)

    def commit(self, job: str, epoch: int, rows: int, files: Sequence[tuple[int, int]]) -> None:
        """An epoch is committed: these files, (task, rows) each, are to be released in this order; all other
        tasks of the epoch are forgotten."""
        tasks = [one.task for one in self._tasks.values() if (one.job, one.epoch) == (job, epoch)]
        start = max(next(reversed(self._files), 0) + 1, self.place.file)
        waiting = [Waiting(id, *one, job, epoch) for id, one in enumerate(files, start)]
        before, behind = self.committed(job, epoch - 1), self._run(job, epoch + 1)
        run = Epochs(job, epoch, epoch, rows) if behind is None else behind._replace(first=epoch)
        run = run if before is None else run._replace(first=before.first)
        gone = [one for one in (before, behind) if one is not None]
        if not gone and len(runs := self._runs[run.last > 0]) >= (MOST_RUNS if run.last else MOST_JOBS):
            # A query goes on, and takes one run however long it does; only what is not a query has many.
            gone.append(next(iter(runs.values())))
        self._write(
            {("task", task): None for task in tasks}
            | {("file", one.id): one[1:] for one in waiting}
            | {("run", one.job, one.first): None for one in gone}
            | {("run", run.job, run.first): run[2:]}
        )
        for task in tasks:
            del self._tasks[task]
        self._files.update((one.id, one) for one in waiting)
        for one in gone:
            self._begins[one.job].remove(one.first)
            if not self._begins[one.job]:
                del self._begins[one.job]
            del self._runs[one.last > 0][one.job, one.first]
        self._note(run)

    def file_from(self, id: int) -> Waiting | None:
        """The first of the files to be released that stands at ``id`` or later."""
        return next((one for one in self._files.values() if one.id >= id), None)

    def files(self) -> list[Waiting]:
        """The files that are not settled, in order."""
        return list(self._files.values())

    def settle(self, place: Place) -> list[Waiting]:
        """What was released before a place has been handled; returns the files that were, whole, and are
        forgotten."""
        done = list(takewhile(lambda one: one.id < place.file, self._files.values()))
        self._write({"state": self._state(place)} | {("file", one.id): None for one in done})
        self.place = place
        for one in done:
            del self._files[one.id]
        return done

    def settle_late(self, place: Place) -> None:
        """Like ``settle``, after ``close``: the files are seen to when it is opened again. What cannot be
        written is released once more at the worst."""
        if place.number > self.place.number:
            self.save({"state": self._state(place)}, late=True)
            self.place = place

    def epochs(self) -> list[Epochs]:
        """All committed epochs it remembers, those of older batch jobs and of older queries first."""
        return [run for runs in self._runs for run in runs.values()]

    def __repr__(self) -> str:
        return f"ledger {self.path}"
