"""Storage: holds events back, in memory or in a file."""

from __future__ import annotations

import json
import sqlite3
from collections import deque
from pathlib import Path
from typing import Any

import msgpack

from evflow.errors import FlowError, GraphError
from evflow.events.attributes import Attributes
from evflow.events.batch import EventBatch
from evflow.schema import Schema
from evflow.stone import Acting, Actor, Context, checked_integer

__all__ = ["Storage"]


class Storage(Acting):
    """Holds up to ``limit`` events, oldest first; those beyond it flow on in order.

    ``flow.send_stored(name, count)`` lets held events go. With a ``path`` the events are in a file (SQLite)
    and are there again when a graph is started over it, also after the process was killed; without, what
    is held when the flow closes goes to the dead letters.

    Args:
        limit: the number of events to hold, 1 or more.
        path: the file to keep them in; made if it is not there.
        name: the stone's name.
        on: the node it is placed on.

    Raises:
        GraphError: the limit is less than 1.

    Example:
        >>> import evflow as ev
        >>> class Ping(ev.Event):
        ...     number: int
        >>> seen = []
        >>> g = ev.Graph()
        >>> held = g.source("pings", Ping) >> ev.Storage(2, name="last two")
        >>> _ = held >> ev.Terminal(lambda event: seen.append(event.number))
        >>> with g.run() as flow:
        ...     flow["pings"].submit_batch({"number": [1, 2, 3]})
        ...     flow.drain()
        ...     before = list(seen)
        ...     _ = flow.send_stored("last two")
        >>> before, seen
        ([1], [1, 2, 3])
    """

    kind = "storage"

    def __init__(
        self,
        limit: int,
        *,
        path: str | Path | None = None,
        name: str | None = None,
        on: str | None = None,
    ) -> None:
        super().__init__(name=name, on=on)
        if path is not None and not isinstance(path, str | Path):
            raise GraphError(f"storage {name or ''}: path {path!r}: expected a file's name")
        self.limit = checked_integer(f"storage {name or ''}: limit", limit)
        self.path = None if path is None else Path(path)

    def open(self, context: Context) -> Actor:
        store = _Memory() if self.path is None else _File(self.path)
        return _Keeper(context, self.limit, store)

    def settings(self) -> dict[str, Any]:
        return {"limit": self.limit, "path": None if self.path is None else str(self.path)}


class _Keeper(Actor):
    def __init__(self, context: Context, limit: int, store: _Memory | _File) -> None:
        super().__init__(context)
        self._limit = limit
        self._store = store
        self._taken = 0

    def receive(self, batch: EventBatch, input: str) -> None:
        self._store.append(batch)
        self._taken += len(batch)
        excess = self._store.count - self._limit
        if excess > 0:
            for freed in self._store.take(excess):
                self.context.emit(freed)

    def mark(self) -> object:
        return self._store.position

    def settled(self, mark: object) -> None:
        self._store.forget(mark)

    @property
    def taken(self) -> int:
        return 0 if self.keeps else self._taken

    @property
    def oldest(self) -> int:
        return 0 if self.keeps else self._taken - self._store.count

    @property
    def queued(self) -> int:
        return self._store.count

    @property
    def keeps(self) -> bool:
        return isinstance(self._store, _File)

    def extract(self, count: int | None = None) -> list[EventBatch]:
        return self._store.take(self._store.count if count is None else min(count, self._store.count))

    def close(self) -> None:
        self._store.close()


class _Memory:
    def __init__(self) -> None:
        self.count = 0
        self.position = None
        self._batches: deque[EventBatch] = deque()

    def append(self, batch: EventBatch) -> None:
        self._batches.append(batch)
        self.count += len(batch)

    def take(self, count: int) -> list[EventBatch]:
        self.count -= count
        taken: list[EventBatch] = []
        while count:
            batch = self._batches.popleft()
            if len(batch) > count:
                self._batches.appendleft(batch.slice(count, len(batch)))
                batch = batch.slice(0, count)
            count -= len(batch)
            taken.append(batch)
        return taken

    def forget(self, position: object) -> None:
        """Nothing is kept of what was taken."""

    def close(self) -> None:
        self._batches.clear()


_TABLES = """
CREATE TABLE IF NOT EXISTS schemas (id TEXT PRIMARY KEY, description TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS batches (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    schema TEXT NOT NULL,
    count INTEGER NOT NULL,
    taken INTEGER NOT NULL DEFAULT 0,
    data BLOB NOT NULL,
    attributes BLOB
);
"""


class _File:
    """Batches as rows of an SQLite table; ``taken`` counts the events of a row that have gone.

    What was taken stays in the file until ``forget``: a process that is killed before finds it again.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._first, self._start = 0, 0  # the row and the event in it that are the oldest not taken
        try:
            # One engine drives a graph, but it may be started in one thread and run in another.
            self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            # A kill of the process loses nothing in this mode; a power cut may lose the last moments.
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = NORMAL")
            self._db.executescript(_TABLES)
            self._schemas = {
                key: Schema.from_description(json.loads(text))
                for key, text in self._db.execute("SELECT id, description FROM schemas")
            }
            (self.count,) = self._db.execute("SELECT coalesce(sum(count - taken), 0) FROM batches").fetchone()
        except (sqlite3.Error, ValueError) as error:
            raise FlowError(f"storage file {path} cannot be used: {error}") from error

    def append(self, batch: EventBatch) -> None:
        key = batch.schema.fingerprint
        attributes = (
            None
            if batch.attributes is None
            else msgpack.packb([batch.attributes.of(i) for i in range(len(batch))])
        )
        with self._transaction():
            if key not in self._schemas:
                text = json.dumps(batch.schema.description)
                self._db.execute("INSERT INTO schemas VALUES (?, ?)", (key, text))
                self._schemas[key] = batch.schema
            self._db.execute(
                "INSERT INTO batches (schema, count, data, attributes) VALUES (?, ?, ?, ?)",
                (key, len(batch), batch.to_bytes(), attributes),
            )
        self.count += len(batch)

    def take(self, count: int) -> list[EventBatch]:
        taken: list[EventBatch] = []
        self.count -= count
        rows = self._db.execute(
            "SELECT id, schema, count, taken, data, attributes FROM batches WHERE id >= ? ORDER BY id",
            (self._first,),
        )
        while count:
            id_, key, size, start, data, attributes = rows.fetchone()
            start = max(start, self._start) if id_ == self._first else start
            stop = min(size, start + count)
            taken.append(self._read(key, data, attributes).slice(start, stop))
            count -= stop - start
            self._first, self._start = (id_ + 1, 0) if stop == size else (id_, stop)
        rows.close()
        return taken

    @property
    def position(self) -> tuple[int, int]:
        """The row and the event in it that are the oldest not taken."""
        return self._first, self._start

    def forget(self, position: object) -> None:
        """Removes from the file what was taken before a position."""
        assert isinstance(position, tuple)
        row, start = position
        with self._transaction():
            self._db.execute("DELETE FROM batches WHERE id < ?", (row,))
            self._db.execute("UPDATE batches SET taken = ? WHERE id = ? AND taken < ?", (start, row, start))

    def _read(self, key: str, data: bytes, attributes: bytes | None) -> EventBatch:
        batch = EventBatch.from_bytes(self._schemas[key], data)
        if attributes is not None:
            batch = batch.with_attributes(Attributes.from_rows(msgpack.unpackb(attributes)))
        return batch

    def _transaction(self) -> _Transaction:
        return _Transaction(self._db, self._path)

    def close(self) -> None:
        self._db.close()


class _Transaction:
    """All or nothing; an error of the file names it."""

    def __init__(self, db: sqlite3.Connection, path: Path) -> None:
        self._db = db
        self._path = path

    def __enter__(self) -> None:
        self._db.execute("BEGIN IMMEDIATE")

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._db.execute("COMMIT" if error is None else "ROLLBACK")
        if isinstance(error, sqlite3.Error):
            raise FlowError(f"storage file {self._path}: {error}") from error
