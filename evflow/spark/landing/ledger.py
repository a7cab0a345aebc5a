"""The ledger of a Spark source: what is staged, what was committed, and how far that was released.

It is an SQLite file beside a folder of row files, and decides which of these count. A commit is one
transaction in it, made before anything is released.

A kill of the process loses nothing; a power cut may lose the last moments.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from evflow.database import connect, making, transaction
from evflow.disk import unusable
from evflow.errors import FlowError
from evflow.outside import shown

__all__ = ["MOST_JOBS", "Epochs", "Ledger", "Place", "TaskEntry", "Waiting"]

MOST_JOBS = 100_000
"""Batch jobs that are remembered, the newest."""

MOST_RUNS = 100_000
"""Runs of micro-batches that are remembered, the newest: a query has one, unless it leaves some out."""

MOST_CHUNK = 1 << 30
"""Bytes of an emission, at most."""

_END = 1 << 62

_TABLES = """
CREATE TABLE state (
    id INTEGER PRIMARY KEY CHECK (id = 0), stream BLOB NOT NULL, chunk INTEGER NOT NULL,
    number INTEGER NOT NULL, file INTEGER NOT NULL, row INTEGER NOT NULL
);
CREATE TABLE tasks (
    task INTEGER PRIMARY KEY, job TEXT NOT NULL, epoch INTEGER NOT NULL, partition INTEGER NOT NULL,
    attempt INTEGER NOT NULL
);
CREATE INDEX tasks_of_jobs ON tasks (job, epoch);
CREATE TABLE epochs (
    job TEXT NOT NULL, first INTEGER NOT NULL, last INTEGER NOT NULL, rows INTEGER NOT NULL,
    age INTEGER NOT NULL, PRIMARY KEY (job, first)
) WITHOUT ROWID;
CREATE INDEX batch_jobs ON epochs (age) WHERE last = 0;
CREATE INDEX queries ON epochs (age) WHERE last > 0;
CREATE TABLE files (
    id INTEGER PRIMARY KEY AUTOINCREMENT, task INTEGER NOT NULL, rows INTEGER NOT NULL, job TEXT NOT NULL,
    epoch INTEGER NOT NULL
);
"""
_NAMES = ("state", "tasks", "epochs", "files")
_VERSION = 1


class Place(NamedTuple):
    """How far rows were released: the next emission's ``number``, and the ``row`` of the ``file`` it begins
    with. Files before that one were released whole."""

    number: int = 0
    file: int = 1
    row: int = 0


class TaskEntry(NamedTuple):
    """A task whose rows are staged."""

    task: int
    job: str
    epoch: int
    partition: int
    attempt: int


class Waiting(NamedTuple):
    """A file of committed rows: where it stands among all, the task that sent it, and its rows."""

    id: int
    task: int
    rows: int
    job: str
    epoch: int


class Epochs(NamedTuple):
    """Epochs of a job that were committed, from ``first`` to ``last``, and the rows of the last one."""

    job: str
    first: int
    last: int
    rows: int


_Kind = TypeVar("_Kind", Place, TaskEntry, Waiting, Epochs)


class Ledger:
    """A ledger in an SQLite file, which is made when there is something to write.

    Args:
        path: the file.
        chunk: bytes of an emission; a file that is there has its own.
        passing: whether it goes with the process, so that nobody waits for the disk.

    Raises:
        FlowError: it is there and cannot be used; each method raises it too.

    Attributes:
        stream: 16 bytes that no other ledger has; numbers of emissions mean something together with them.
        chunk: bytes of an emission.
    """

    def __init__(self, path: Path, chunk: int, passing: bool = False) -> None:
        self._path = path
        self._synchronous = "OFF" if passing else "NORMAL"
        self._db: sqlite3.Connection | None = None
        self.stream, self.chunk = os.urandom(16), chunk
        self._place = Place()
        if path.exists():
            self._db = self._open()
            try:
                self._read_state()
            except FlowError:
                self.close()
                raise

    def _read_state(self) -> None:
        rows = self._rows("SELECT stream, chunk, number, file, row FROM state")
        with self._naming():
            ((stream, chunk, *place),) = rows
            if type(stream) is not bytes or len(stream) != 16 or not 0 < _whole(chunk) <= MOST_CHUNK:
                raise ValueError("its state is damaged")
            self.stream, self.chunk, self._place = stream, chunk, _made(Place, place)

    def _open(self) -> sqlite3.Connection:
        with self._naming(), ExitStack() as stack:
            db = stack.enter_context(closing(connect(self._path, _NAMES, self._synchronous)))
            if db.execute("PRAGMA user_version").fetchone() != (_VERSION,):
                raise FlowError(f"ledger {self._path} is no ledger of this version of evflow")
            stack.pop_all()
        return db

    def _begun(self) -> sqlite3.Connection:
        if self._db is None and self._path.exists():
            self._db = self._open()
        elif self._db is None:
            self.make((), ())
        assert self._db is not None
        return self._db

    def make(
        self, epochs: Iterable[Epochs], files: Iterable[Waiting], number: int = 0, stream: bytes = b""
    ) -> None:
        """From now on exactly this is in it."""
        stream = stream or self.stream
        self.close()
        try:
            with self._naming(), making(self._path, _TABLES, _VERSION) as db:
                db.execute("INSERT INTO state VALUES (0, ?, ?, ?, 1, 0)", (stream, self.chunk, number))
                aged = ((*one, age) for age, one in enumerate(epochs))
                db.executemany("INSERT INTO epochs VALUES (?, ?, ?, ?, ?)", aged)
                db.executemany("INSERT INTO files VALUES (?, ?, ?, ?, ?)", files)
            self.stream, self._place = stream, Place(number)
        finally:
            # Where that failed, what was there still counts.
            if self._path.exists():
                self._db = self._open()

    @property
    def place(self) -> Place:
        """Up to where all that was released is settled."""
        return self._place

    def tasks(self) -> list[TaskEntry]:
        """The tasks whose rows are staged."""
        return self._found(TaskEntry, "SELECT * FROM tasks ORDER BY task")

    def begin(self, entry: TaskEntry) -> None:
        """A task has begun."""
        with self._transaction() as db:
            db.execute("INSERT INTO tasks VALUES (?, ?, ?, ?, ?)", entry)

    def drop(self, tasks: Iterable[int]) -> None:
        """Forgets tasks."""
        if self._db is not None:
            with self._transaction() as db:
                db.executemany("DELETE FROM tasks WHERE task = ?", [(task,) for task in tasks])

    def committed(self, job: str, epoch: int) -> Epochs | None:
        """The run of epochs, one after the other, that a committed epoch belongs to; None if it is not."""
        found = self._found(
            Epochs,
            "SELECT job, first, last, rows FROM epochs WHERE job = ? AND first <= ? AND last >= ?",
            (job, epoch, epoch),
        )
        return found[0] if found else None

    def commit(self, job: str, epoch: int, rows: int, files: Sequence[tuple[int, int]]) -> None:
        """An epoch is committed: these files, (task, rows) each, are to be released in this order; all other
        tasks of the epoch are forgotten."""
        with self._transaction() as db:
            db.execute("DELETE FROM tasks WHERE job = ? AND epoch = ?", (job, epoch))
            db.executemany(
                "INSERT INTO files (task, rows, job, epoch) VALUES (?, ?, ?, ?)",
                [(task, count, job, epoch) for task, count in files],
            )
            _remember(db, job, epoch, rows)

    def file_from(self, id: int) -> Waiting | None:
        """The first of the files to be released that stands at ``id`` or later."""
        found = self._found(
            Waiting, "SELECT id, task, rows, job, epoch FROM files WHERE id >= ? ORDER BY id LIMIT 1", (id,)
        )
        return found[0] if found else None

    def files(self) -> list[Waiting]:
        """The files that are not settled, in order."""
        return self._found(Waiting, "SELECT id, task, rows, job, epoch FROM files ORDER BY id")

    def settle(self, place: Place) -> list[Waiting]:
        """What was released before a place has been handled; returns the files that were, whole, and are
        forgotten."""
        with self._transaction() as db:
            rows = db.execute(
                "SELECT id, task, rows, job, epoch FROM files WHERE id < ? ORDER BY id", (place.file,)
            ).fetchall()
            if rows:
                db.execute("DELETE FROM files WHERE id < ?", (place.file,))
            _set_place(db, place)
        self._place = place
        with self._naming():
            return [_made(Waiting, row) for row in rows]

    def settle_late(self, place: Place) -> None:
        """Like ``settle``, after ``close``: the files are seen to when it is opened again. What cannot be
        written is released once more at the worst."""
        if self._path.exists():
            with suppress(sqlite3.Error), closing(sqlite3.connect(self._path)) as db, db:
                _set_place(db, place)

    def epochs(self) -> list[Epochs]:
        """All committed epochs it remembers, those of older jobs first."""
        return self._found(Epochs, "SELECT job, first, last, rows FROM epochs ORDER BY age")

    def close(self) -> None:
        """Closes the file."""
        if self._db is not None:
            self._db.close()
            self._db = None

    def _found(self, kind: type[_Kind], query: str, values: tuple[object, ...] = ()) -> list[_Kind]:
        rows = self._rows(query, values)
        with self._naming():
            return [_made(kind, row) for row in rows]

    def _rows(self, query: str, values: tuple[object, ...] = ()) -> list[tuple[Any, ...]]:
        if self._db is None:
            return []
        with self._naming():
            return self._db.execute(query, values).fetchall()

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """All or nothing."""
        begun = self._begun()
        with self._naming(), transaction(begun) as db:
            yield db

    @contextmanager
    def _naming(self) -> Iterator[None]:
        """An error of the file names it."""
        try:
            yield
        except (sqlite3.Error, OSError, ValueError, TypeError, OverflowError) as error:
            raise unusable(f"ledger {self._path}", error) from error

    def __repr__(self) -> str:
        return f"ledger {self._path}"


def _made(kind: type[_Kind], row: Sequence[object]) -> _Kind:
    """A row of a table; SQLite does not see to it that a column has values of one type."""
    for name, value in zip(kind._fields, row, strict=True):
        if name != "job":
            _whole(value)
        elif type(value) is not str:
            raise ValueError(f"{shown(value)} is no job")
    return kind(*row)  # type: ignore[arg-type]


def _whole(value: object) -> int:
    if type(value) is not int or not 0 <= value < _END:
        raise ValueError(f"{shown(value)} is no count")
    return value


def _set_place(db: sqlite3.Connection, place: Place) -> None:
    # Another flow may have come further meanwhile, after this one was closed.
    db.execute("UPDATE state SET number = ?, file = ?, row = ? WHERE number < ?", (*place, place.number))


def _remember(db: sqlite3.Connection, job: str, epoch: int, rows: int) -> None:
    """Notes a committed epoch, as one run with those right before and behind it."""
    before = db.execute("SELECT first FROM epochs WHERE job = ? AND last = ?", (job, epoch - 1)).fetchone()
    behind = db.execute(
        "SELECT last, rows FROM epochs WHERE job = ? AND first = ?", (job, epoch + 1)
    ).fetchone()
    first = epoch if before is None else before[0]
    last, rows = (epoch, rows) if behind is None else behind
    kind = "last = 0" if last == 0 else "last > 0"
    age = db.execute(f"SELECT coalesce(max(age), 0) + 1 FROM epochs WHERE {kind}").fetchone()[0]
    db.execute("DELETE FROM epochs WHERE job = ? AND first = ?", (job, epoch + 1))
    db.execute("INSERT OR REPLACE INTO epochs VALUES (?, ?, ?, ?, ?)", (job, first, last, rows, age))
    if last == 0:
        # Of a batch job there is only epoch 0; a query goes on, and takes one row however long it runs.
        db.execute("DELETE FROM epochs WHERE last = 0 AND age <= ?", (age - MOST_JOBS,))
    elif before is None and behind is None:
        # Only what is no query has many runs.
        db.execute(
            "DELETE FROM epochs WHERE (job, first) IN (SELECT job, first FROM epochs WHERE last > 0 "
            "ORDER BY age DESC LIMIT -1 OFFSET ?)",
            (MOST_RUNS,),
        )
