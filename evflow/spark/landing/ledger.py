"""The ledger of a Spark source: what has landed, what was committed, and how far that was released.

It is a file beside a folder of files of rows, and decides which of these count. A commit is one change of it,
made before anything is released.

A kill of the process loses nothing; a power cut may lose the last moments.
"""

from __future__ import annotations

import os
import secrets
import time
from bisect import bisect_right, insort
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from msgspec import Meta, convert, msgpack

from evflow.disk import Store
from evflow.errors import FlowError
from evflow.outside import shown
from evflow.schema import Schema

MOST_JOBS = 100_000
"""Batch jobs that are remembered, the newest."""

MOST_RUNS = 100_000
"""Runs of micro-batches that are remembered, the newest: a query has one, unless it leaves some out."""

_MOST_SCHEMAS = 16 << 20
"""Bytes of descriptions of schemas; what is made of these takes many times as much."""

Count = Annotated[int, Meta(ge=0, lt=1 << 62)]
Stream = Annotated[bytes, Meta(min_length=16, max_length=16)]


class Place(NamedTuple):
    """How far rows were released: the next emission's ``number``, and the ``row`` of its file with which it
    begins. What has a lower number was released whole."""

    number: Count = 0
    row: Count = 0


class Part(NamedTuple):
    """A file of rows, and how many there are."""

    file: str
    rows: Count


class Waiting(NamedTuple):
    """Committed rows: the number under which they leave, their file, how many there are, and of what."""

    number: int
    file: str
    rows: int
    job: str
    epoch: int
    schema: Schema


@dataclass(eq=False)
class Task:
    """A task that has begun and whose epoch is not decided.

    Attributes:
        number: its number, which is random.
        job, epoch, partition: what it is of.
        schema: of its rows.
        parts: its rows that have landed, in order.
        rows: how many these are.
        heard: when something was last heard of it, also before a restart.
        ended: whether it has sent all of its rows.
    """

    number: int
    job: str
    epoch: int
    partition: int
    schema: Schema
    parts: list[Part] = field(default_factory=list)
    rows: int = 0
    heard: float = field(default_factory=lambda: time.monotonic())
    ended: bool = False

    def __str__(self) -> str:
        return f"partition {self.partition} of job {self.job!r}"


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
        tasks: those that are not decided, by their numbers.
        waiting: committed rows that are not settled, by their numbers, which follow one another.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.stream = os.urandom(16)
        self.place = Place()
        super().__init__(path, "ledger", "ledger of Spark 3", own=False)
        try:
            self._take()
        except BaseException:
            self.close()
            raise

    def _take(self) -> None:
        """Reads what is in the file."""
        self.tasks: dict[int, Task] = {}
        self.waiting: dict[int, Waiting] = {}
        # By their fingerprints, with the bytes of their descriptions; some may not be used any more.
        self._schemas: dict[str, tuple[Schema, int]] = {}
        # By job where its runs begin; and of batch jobs and of queries the runs, the newest last.
        self._begins: dict[str, list[int]] = {}
        self._runs: tuple[_Runs, _Runs] = ({}, {})
        found = self.load()
        with self._log.naming():
            if found and "state" not in found:
                raise ValueError("its state is gone")
            try:
                for key, value in found.items():
                    self._take_one(key, value)
            except KeyError as error:
                raise ValueError(f"it lacks {error}, which something in it is of; it is damaged") from None
            place, numbers = self.place, list(self.waiting)
            first = numbers[0] if numbers else place.number
            behind = first + len(numbers)
            lacks = numbers != list(range(first, behind)) or not first <= place.number <= behind
            if lacks or place.row >= (self.waiting[place.number].rows if place.number < behind else 1):
                raise ValueError("it says that rows were released which it does not have; it is damaged")

    def _take_one(self, key: Any, value: Any) -> None:
        match key, value:
            case "state", [stream, *place]:
                self.stream = convert(stream, Stream)
                self.place = convert(place, Place)
            case ("schema", str(fingerprint)), dict():
                self._schemas[fingerprint] = Schema.from_description(value), len(msgpack.encode(value))
            case ("task", number), [job, epoch, partition, schema]:
                said = convert([number, job, epoch, partition], tuple[Count, str, Count, Count])
                self.tasks[number] = Task(*said, self._schemas[schema][0])
            case ("part", task, _), [*_]:
                self._add(self.tasks[task], [convert(value, Part)])
            case ("waiting", number), [*_, schema]:
                rows = convert([number, *value[:-1]], tuple[Count, str, Count, str, Count])
                self.waiting[number] = Waiting(*rows, self._schemas[schema][0])
            case ("run", job, first), [*_]:
                self._note(convert([job, first, *value], Epochs))
            case _:
                raise ValueError(f"{shown([key, value])} is not what a ledger has")

    @staticmethod
    def _add(task: Task, parts: Sequence[Part]) -> None:
        task.parts += parts
        task.rows += sum(part.rows for part in parts)

    def _note(self, run: Epochs) -> None:
        insort(self._begins.setdefault(run.job, []), run.first)
        self._runs[run.last > 0][run.job, run.first] = run

    def _state(self, place: Place) -> list[Any]:
        return [self.stream, *place]

    def _write(self, values: dict[Any, Any]) -> None:
        self.save(values if self.begun else {"state": self._state(self.place), **values})

    def make(self, epochs: Iterable[Epochs], waiting: Sequence[Waiting], place: Place, stream: bytes) -> None:
        """From now on exactly this is in it."""
        schemas = {("schema", one.schema.fingerprint): one.schema.description for one in waiting}
        runs = {("run", one.job, one.first): [one.last, one.rows] for one in epochs}
        self.replace({"state": [stream, *place], **schemas, **runs, **_described(waiting)})
        self._take()

    # --- tasks

    def shared(self, schema: Schema) -> Schema:
        """The schema, or the same one that is known already."""
        return self._schemas.get(schema.fingerprint, (schema, 0))[0]

    def begin(self, job: str, epoch: int, partition: int, schema: Schema) -> Task:
        """A task begins.

        Raises:
            FlowError: there are too many schemas.
        """
        task = Task(secrets.randbits(62), job, epoch, partition, schema)
        entry = {("task", task.number): [job, epoch, partition, schema.fingerprint]}
        if schema.fingerprint in self._schemas:
            self._write(entry)
        else:
            used = {one.schema.fingerprint for one in self.tasks.values()}
            used |= {one.schema.fingerprint for one in self.waiting.values()}
            kept = {one: known for one, known in self._schemas.items() if one in used}
            size = len(msgpack.encode(schema.description))
            if size + sum(size for _, size in kept.values()) > _MOST_SCHEMAS:
                raise FlowError(
                    f"tasks of {len(kept)} schemas are under way, whose descriptions have {_MOST_SCHEMAS} "
                    "bytes; expected less: wait for their jobs, or give the source a schema"
                )
            gone = {("schema", one): None for one in self._schemas if one not in kept}
            self._write({**gone, ("schema", schema.fingerprint): schema.description, **entry})
            self._schemas = {**kept, schema.fingerprint: (schema, size)}
        self.tasks[task.number] = task
        return task

    def land(self, task: Task, parts: Sequence[Part]) -> None:
        """Further rows of a task have landed."""
        self._write({("part", task.number, at): part for at, part in enumerate(parts, len(task.parts))})
        self._add(task, parts)

    def of(self, job: str, epoch: int) -> list[Task]:
        """The tasks of an epoch."""
        return [one for one in self.tasks.values() if (one.job, one.epoch) == (job, epoch)]

    def drop(self, tasks: Sequence[Task]) -> None:
        """Forgets tasks."""
        if tasks:
            self._write(_forgotten(tasks))
            for task in tasks:
                del self.tasks[task.number]

    # --- epochs

    def committed(self, job: str, epoch: int) -> Epochs | None:
        """The run of epochs, one after the other, that a committed epoch belongs to; None if it is not."""
        begins = self._begins.get(job, [])
        at = bisect_right(begins, epoch) - 1
        run = self._run(job, begins[at]) if at >= 0 else None
        return run if run is not None and epoch <= run.last else None

    def _run(self, job: str, first: int) -> Epochs | None:
        return next((runs[job, first] for runs in self._runs if (job, first) in runs), None)

    def commit(self, job: str, epoch: int, tasks: Sequence[Task]) -> None:
        """An epoch is committed: the rows of these tasks are to be released in this order; they, and all
        others of the epoch, are forgotten."""
        over = self.of(job, epoch)
        parts = ((part, task.schema) for task in tasks for part in task.parts)
        waiting = [
            Waiting(number, *part, job, epoch, of) for number, (part, of) in enumerate(parts, self._next)
        ]
        rows = sum(task.rows for task in tasks)
        before, behind = self.committed(job, epoch - 1), self._run(job, epoch + 1)
        run = Epochs(job, epoch, epoch, rows) if behind is None else behind._replace(first=epoch)
        run = run if before is None else run._replace(first=before.first)
        gone = [one for one in (before, behind) if one is not None]
        if not gone and len(runs := self._runs[run.last > 0]) >= (MOST_RUNS if run.last else MOST_JOBS):
            # A query goes on, and takes one run however long it does; only what is not a query has many.
            gone.append(next(iter(runs.values())))
        self._write(
            _forgotten(over)
            | _described(waiting)
            | {("run", one.job, one.first): None for one in gone}
            | {("run", run.job, run.first): run[2:]}
        )
        for task in over:
            del self.tasks[task.number]
        self.waiting.update((one.number, one) for one in waiting)
        for one in gone:
            self._begins[one.job].remove(one.first)
            if not self._begins[one.job]:
                del self._begins[one.job]
            del self._runs[one.last > 0][one.job, one.first]
        self._note(run)

    def settle(self, place: Place) -> list[Waiting]:
        """What was released before a place has been handled; returns what is not needed any more."""
        # Their numbers follow one another; the front of a dictionary is slow to find once much of it went.
        first = self._next - len(self.waiting)
        done = [self.waiting[number] for number in range(first, min(place.number, self._next))]
        self._write({"state": self._state(place)} | {("waiting", one.number): None for one in done})
        self.place = place
        for one in done:
            del self.waiting[one.number]
        return done

    def settle_late(self, place: Place) -> None:
        """Like ``settle``, after ``close``: the files are seen to when it is opened again. What cannot be
        written is released once more at the worst."""
        if place.number > self.place.number:
            self.save({"state": self._state(place)}, late=True)
            self.place = place

    @property
    def _next(self) -> int:
        """The number that the next committed rows get."""
        return next(reversed(self.waiting), self.place.number - 1) + 1

    def epochs(self) -> list[Epochs]:
        """All committed epochs it remembers, those of older batch jobs and of older queries first."""
        return [run for runs in self._runs for run in runs.values()]

    def __repr__(self) -> str:
        return f"ledger {self.path}"


def _forgotten(tasks: Sequence[Task]) -> dict[Any, Any]:
    """What is written where tasks are forgotten."""
    keys: list[Any] = [("task", task.number) for task in tasks]
    keys += [("part", task.number, at) for task in tasks for at in range(len(task.parts))]
    return dict.fromkeys(keys)


def _described(waiting: Iterable[Waiting]) -> dict[Any, Any]:
    """What is written of committed rows."""
    return {("waiting", one.number): [*one[1:5], one.schema.fingerprint] for one in waiting}
