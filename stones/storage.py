"""Storage: holds events back, in memory or in a file."""

from __future__ import annotations

import json
import logging
import sqlite3
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import msgpack
import numpy as np

from evflow.database import connect, sync, transaction
from evflow.disk import OwnFile, Trouble, unusable
from evflow.errors import GraphError, UnwrittenError
from evflow.events.attributes import Attributes
from evflow.events.batch import EventBatch
from evflow.events.joining import MANY, join_last, joined
from evflow.outside import from_json, from_msgpack
from evflow.schema import Schema
from evflow.stone import Acting, Actor, Checkpoint, Context, Held, Stone, arrivals, checked_integer, titled

__all__ = ["Storage"]

MOST_EVENT = 1_000_000_000
"""Bytes of an event in a file: what SQLite takes as one value."""
MOST_ROW = 64 << 20
"""Bytes of a row of several events."""

_log = logging.getLogger("evflow.flow")


class Storage(Acting):
    """Holds up to ``limit`` events, oldest first; those beyond it flow on in order.

    ``flow.send_stored(name, count)`` lets held events go. With a ``path`` the events are in a file (SQLite)
    and are there again when a graph is started over it, also after the process was killed; without, what
    is held when the flow closes goes to the dead letters.

    Args:
        limit: the number of events to hold, 1 or more.
        path: the file to keep them in; made if it is not there, and its own while it runs.
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
            raise GraphError(f"{titled('storage', name)}: path {path!r}: expected a file's name")
        self.limit = checked_integer(f"{titled('storage', name)}: limit", limit)
        self.path = None if path is None else Path(path)

    def open(self, context: Context) -> Actor:
        store = _Memory() if self.path is None else _File(self.path)
        return _Keeper(context, self, store)

    @property
    def files(self) -> tuple[Path, ...]:
        return () if self.path is None else (self.path,)

    def keep_in(self, folder: Path) -> None:
        self.path = None if self.path is None else folder / self.path

    def settings(self) -> dict[str, Any]:
        return {"limit": self.limit, "path": None if self.path is None else str(self.path)}


class _Keeper(Actor):
    def __init__(self, context: Context, stone: Storage, store: _Memory | _File) -> None:
        super().__init__(context)
        self._limit = stone.limit
        self._path = stone.path
        self._store = store
        self._taken = 0
        self._reading = Trouble(_log)

    def receive(self, batch: EventBatch, input: str) -> None:
        refused: list[int] = []
        kept = batch
        if self.keeps and batch.nbytes > MOST_EVENT:
            refused = _too_large(batch, 0, len(batch))
            kept = batch.select(np.delete(np.arange(len(batch)), refused))
        if len(kept):
            self._store.append(kept)
        self._taken += len(kept)
        # Not before the others are in the file: if they cannot be, the whole batch comes again.
        for position in refused:
            large = batch.slice(position, position + 1)
            self.context.fault(
                large,
                f"an event of {large.nbytes} bytes; storage file {self._path} takes at most {MOST_EVENT}",
            )
        excess = self._store.count - self._limit
        if excess > 0:
            self._let_go(excess)

    def _let_go(self, count: int) -> None:
        try:
            freed = self._store.take(count)
        except UnwrittenError as error:
            # They are in the file, and flow on with the next event.
            self._reading.failed(str(error))
            return
        self._reading.over()
        for batch in freed:
            self.context.emit(batch)

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

    def sync(self) -> None:
        self._store.sync()

    def close(self) -> None:
        self._store.close()

    def checkpoint(self) -> Checkpoint:
        return Checkpoint(tuple(Held("input", batch) for batch in self._store.held()))

    def restore(self, checkpoint: Checkpoint) -> bool:
        self._store.hold([batch for _, batch in arrivals(checkpoint.held)])
        self._taken += self._store.count
        return True

    def become(self, stone: Stone) -> bool:
        if not isinstance(stone, Storage) or stone.path != self._path:
            return False
        # What is too much for a lower limit flows on with the next event.
        self._limit = stone.limit
        return True


def _too_large(batch: EventBatch, start: int, stop: int) -> list[int]:
    """The positions of events between two positions that are too large for a file."""
    if batch.slice(start, stop).nbytes <= MOST_EVENT:
        return []
    if stop - start == 1:
        return [start]
    middle = (start + stop) // 2
    return _too_large(batch, start, middle) + _too_large(batch, middle, stop)


class _Memory:
    def __init__(self) -> None:
        self.count = 0
        self.position = None
        self._batches: deque[tuple[str, EventBatch]] = deque()
        self._loose = 0

    def append(self, batch: EventBatch) -> None:
        self._batches.append(("", batch))
        self.count += len(batch)
        self._loose += 1
        if self._loose >= MANY:
            join_last(self._batches, self._loose)
            self._loose = 0

    def take(self, count: int) -> list[EventBatch]:
        self.count -= count
        taken: list[EventBatch] = []
        while count:
            _, batch = self._batches.popleft()
            if len(batch) > count:
                self._batches.appendleft(("", batch.slice(count, len(batch))))
                batch = batch.slice(0, count)
            count -= len(batch)
            taken.append(batch)
        return taken

    def held(self) -> list[EventBatch]:
        """What it holds, in order."""
        return [batch for _, batch in joined(self._batches)]

    def hold(self, batches: list[EventBatch]) -> None:
        """Holds these, and nothing else."""
        self._batches = deque(("", batch) for batch in batches)
        self.count = sum(map(len, batches))

    def forget(self, position: object) -> None:
        """Nothing is kept of what was taken."""

    def sync(self) -> None:
        """There is no file."""

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
        self._closed = False
        self._first, self._start = 0, 0  # the row and the event in it that are the oldest not taken
        try:
            with ExitStack() as opened:
                opened.enter_context(closing(OwnFile(path)))
                self._db = opened.enter_context(closing(connect(path, ("schemas", "batches"))))
                self._db.executescript(_TABLES)
                self._schemas = {
                    key: Schema.from_description(from_json(text))
                    for key, text in self._db.execute("SELECT id, description FROM schemas")
                }
                left = self._db.execute("SELECT coalesce(sum(count - taken), 0) FROM batches")
                (self.count,) = left.fetchone()
                self._opened = opened.pop_all()
        except (sqlite3.Error, OSError, ValueError) as error:
            raise unusable(f"storage file {path}", error) from error

    def append(self, batch: EventBatch) -> None:
        with self._transaction():
            self._insert(batch)
        self.count += len(batch)

    def _insert(self, batch: EventBatch) -> None:
        if batch.nbytes > MOST_ROW and len(batch) > 1:
            middle = len(batch) // 2
            self._insert(batch.slice(0, middle))
            self._insert(batch.slice(middle, len(batch)))
            return
        key = batch.schema.fingerprint
        attributes = (
            None
            if batch.attributes is None
            else msgpack.packb([batch.attributes.of(i) for i in range(len(batch))])
        )
        if key not in self._schemas:
            text = json.dumps(batch.schema.description)
            self._db.execute("INSERT OR IGNORE INTO schemas VALUES (?, ?)", (key, text))
            self._schemas[key] = batch.schema
        self._db.execute(
            "INSERT INTO batches (schema, count, data, attributes) VALUES (?, ?, ?, ?)",
            (key, len(batch), batch.to_bytes(), attributes),
        )

    def take(self, count: int) -> list[EventBatch]:
        taken, self._first, self._start = self._oldest(count)
        self.count -= count
        return taken

    def held(self) -> list[EventBatch]:
        """What it holds, in order."""
        return self._oldest(self.count)[0]

    def hold(self, batches: list[EventBatch]) -> None:
        """Holds these, and nothing else."""
        with self._transaction():
            self._db.execute("DELETE FROM batches")
            for batch in batches:
                self._insert(batch)
        self.count = sum(map(len, batches))

    def _oldest(self, count: int) -> tuple[list[EventBatch], int, int]:
        """The oldest events that have not gone, and the row and the event in it that are behind them."""
        with self._naming():
            return self._read_oldest(count)

    def _read_oldest(self, count: int) -> tuple[list[EventBatch], int, int]:
        found: list[EventBatch] = []
        first, begin = self._first, self._start
        rows = self._db.execute(
            "SELECT id, schema, count, taken, data, attributes FROM batches WHERE id >= ? ORDER BY id",
            (first,),
        )
        while count:
            id_, key, size, start, data, attributes = rows.fetchone()
            start = max(start, begin) if id_ == first else start
            stop = min(size, start + count)
            found.append(self._read(key, data, attributes).slice(start, stop))
            count -= stop - start
            first, begin = (id_ + 1, 0) if stop == size else (id_, stop)
        rows.close()
        return found, first, begin

    @property
    def position(self) -> tuple[int, int]:
        """The row and the event in it that are the oldest not taken."""
        return self._first, self._start

    def forget(self, position: object) -> None:
        """Removes from the file what was taken before a position."""
        assert isinstance(position, tuple)
        if not self._closed:
            with self._transaction():
                _forget(self._db, *position)
        elif self._path.exists():
            # Other nodes have handled it only now. What cannot be removed is sent once more at the worst, and
            # so is what another flow has found there meanwhile.
            with (
                suppress(sqlite3.Error, OSError),
                closing(OwnFile(self._path, patience=0)),
                closing(sqlite3.connect(self._path)) as db,
                db,
            ):
                _forget(db, *position)

    def _read(self, key: str, data: bytes, attributes: bytes | None) -> EventBatch:
        batch = EventBatch.from_bytes(self._schemas[key], data)
        if attributes is not None:
            batch = batch.with_attributes(Attributes.from_rows(from_msgpack(attributes)))
        return batch

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """All or nothing."""
        known = dict(self._schemas)
        try:
            with self._naming(), transaction(self._db):
                yield
        except BaseException:
            # What was taken back is to be written with the next event.
            self._schemas = known
            raise

    @contextmanager
    def _naming(self) -> Iterator[None]:
        """An error of the file names it."""
        try:
            yield
        except (sqlite3.Error, OSError, ValueError) as error:
            raise unusable(f"storage file {self._path}", error) from error

    def sync(self) -> None:
        """Brings what it holds to the disk itself."""
        with self._naming():
            sync(self._db, self._path)

    def close(self) -> None:
        self._closed = True
        self._opened.close()


def _forget(db: sqlite3.Connection, row: int, start: int) -> None:
    db.execute("DELETE FROM batches WHERE id < ?", (row,))
    db.execute("UPDATE batches SET taken = ? WHERE id = ? AND taken < ?", (start, row, start))
