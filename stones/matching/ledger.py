"""The ledger of a match stone: what has changed since its graph was written, as a file that survives a kill.

Not a log but the latest of each: a row for each subscription that came or went, and one for each area that
moved. So it needs no compaction, and what is applied to it twice is as if it had been once. It lies over what
the graph itself says of subscriptions, which is not in it.
"""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import msgpack

from evflow.database import connect, making, sync, transaction
from evflow.disk import OwnFile, unusable
from evflow.errors import FlowError
from evflow.outside import from_msgpack, shown

__all__ = ["ALL", "Entry", "Ledger", "Moved", "unpack"]

ALL = -1
"""Stands for all filters of a subscription that have an area."""

_TABLES = """
CREATE TABLE subscriptions (id INTEGER PRIMARY KEY, port INTEGER NOT NULL, filters BLOB);
CREATE TABLE areas (
    id INTEGER NOT NULL, filter INTEGER NOT NULL, x REAL NOT NULL, y REAL NOT NULL, radius REAL,
    PRIMARY KEY (id, filter)
) WITHOUT ROWID;
"""
_VERSION = 1
_MOST_ID = (1 << 31) - 2
_MOST_PORT = (1 << 31) - 1


class Entry(NamedTuple):
    """A subscription that came or was replaced, as ``packing`` has it; or that went: ``filters`` is None."""

    id: int
    port: int
    filters: bytes | None


class Moved(NamedTuple):
    """An area that moved, of one filter or of ``ALL``; a radius of None has not changed."""

    id: int
    filter: int
    x: float
    y: float
    radius: float | None


class Ledger:
    """A ledger in an SQLite file, which is made when there is something to write.

    Args:
        path: the file; until ``close`` nobody else has it.

    Raises:
        FlowError: it cannot be used, or another has it; each method raises it too.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._db: sqlite3.Connection | None = None
        with self._naming():
            self._own = OwnFile(path)
        try:
            if path.exists():
                self._db = self._open(path)
        except BaseException:
            self.close()
            raise

    def _open(self, path: Path) -> sqlite3.Connection:
        with self._naming():
            db = connect(path, ("subscriptions", "areas"))
            if db.execute("PRAGMA user_version").fetchone() not in ((0,), (_VERSION,)):
                raise FlowError(f"subscriptions file {path} is of another version of evflow")
            db.execute("SELECT id, port, filters FROM subscriptions LIMIT 1")
            db.execute("SELECT id, filter, x, y, radius FROM areas LIMIT 1")
        return db

    def _begun(self) -> sqlite3.Connection:
        if self._db is None:
            self._make((), ())
            self._db = self._open(self._path)
        return self._db

    def _make(self, entries: Iterable[Entry], moves: Iterable[Moved]) -> None:
        with self._naming(), making(self._path, _TABLES, _VERSION) as db:
            db.executemany("INSERT INTO subscriptions VALUES (?, ?, ?)", entries)
            db.executemany("INSERT INTO areas VALUES (?, ?, ?, ?, ?)", moves)

    def subscribed(self, entries: Sequence[Entry]) -> None:
        """Subscriptions came, or took the place of those with their ids, or went."""
        with self._transaction() as db:
            db.executemany("INSERT OR REPLACE INTO subscriptions VALUES (?, ?, ?)", entries)
            db.executemany("DELETE FROM areas WHERE id = ?", [(entry.id,) for entry in entries])

    def moved(self, moves: Iterable[Moved]) -> None:
        """Areas have moved; a later one of the same filter wins."""
        with self._transaction() as db:
            for move in moves:
                _move(db, move)

    def read(self) -> tuple[list[Entry], list[Moved]]:
        """All that is in it; what moved all filters of a subscription comes before what moved one."""
        if self._db is None:
            return [], []
        with self._naming():
            entries = self._db.execute("SELECT id, port, filters FROM subscriptions ORDER BY id").fetchall()
            moves = self._db.execute(
                "SELECT id, filter, x, y, radius FROM areas ORDER BY id, filter"
            ).fetchall()
            return list(map(_entry, entries)), list(map(_moved, moves))

    def pack(self) -> bytes:
        """All that is in it, as bytes that ``unpack`` takes."""
        packed: bytes = msgpack.packb([_VERSION, *self.read()])
        return packed

    def take(self, entries: Sequence[Entry], moves: Sequence[Moved]) -> None:
        """From now on exactly this is in it."""
        self._close_file()
        if entries or moves or self._path.exists():
            self._make(entries, moves)
            self._db = self._open(self._path)

    def sync(self) -> None:
        """Brings what was written to the disk itself."""
        if self._db is not None:
            with self._naming():
                sync(self._db, self._path)

    def close(self) -> None:
        """Closes the file."""
        self._close_file()
        self._own.close()

    def _close_file(self) -> None:
        if self._db is not None:
            self._db.close()
            self._db = None

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
        except (sqlite3.Error, OSError, ValueError) as error:
            raise unusable(f"subscriptions file {self._path}", error) from error


def _move(db: sqlite3.Connection, move: Moved) -> None:
    if move.filter == ALL and move.radius is not None:
        db.execute("DELETE FROM areas WHERE id = ?", (move.id,))
    elif move.filter == ALL:
        # Each filter that moved by itself keeps its own radius.
        db.execute("UPDATE areas SET x = ?, y = ? WHERE id = ?", (move.x, move.y, move.id))
    db.execute(
        "INSERT INTO areas VALUES (?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET x = excluded.x, y = excluded.y, "
        "radius = coalesce(excluded.radius, radius)",
        move,
    )


def unpack(data: bytes) -> tuple[list[Entry], list[Moved]]:
    """What ``Ledger.pack`` made.

    Raises:
        FlowError: it is malformed.
    """
    try:
        version, entries, moves = from_msgpack(data)
        if version != _VERSION:
            raise ValueError(f"version {shown(version)}")
        return list(map(_entry, entries)), list(map(_moved, moves))
    except (ValueError, TypeError) as error:
        raise FlowError(f"the subscriptions of a snapshot are malformed: {shown(error)}") from None


def _entry(row: Sequence[Any]) -> Entry:
    id, port, filters = row
    known = type(id) is int and type(port) is int and (filters is None or type(filters) is bytes)
    if not known or not 0 <= id <= _MOST_ID or not 0 <= port <= _MOST_PORT:
        raise ValueError(f"{shown(row)} is no subscription")
    return Entry(id, port, filters)


def _moved(row: Sequence[Any]) -> Moved:
    id, filter, x, y, radius = row
    known = type(id) is int and type(filter) is int and 0 <= id <= _MOST_ID and ALL <= filter <= _MOST_ID
    place = type(x) is float and type(y) is float and (radius is None or type(radius) is float)
    if not known or not place or not math.isfinite(x) or not math.isfinite(y):
        raise ValueError(f"{shown(row)} is no area that moved")
    return Moved(id, filter, x, y, radius)
