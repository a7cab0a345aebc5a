"""The ledger beside the files of a log: from which row on they count, of what they are, who reads, what came.

The rows themselves are not in it. What it says of the rows that came over links is written before these are
appended, so that after a kill either can be told from the other: see ``Origin``.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import msgpack

from evflow.database import beside, connect, making, require, sync
from evflow.disk import unusable
from evflow.errors import FlowError, SchemaError
from evflow.outside import from_json, from_msgpack
from evflow.schema import Schema

__all__ = ["END", "Book", "Logbook", "Origin", "check_version"]

END = 1 << 62
"""An offset is less."""

_VERSION = 1
_UNUSABLE = (sqlite3.Error, OSError, ValueError, TypeError, OverflowError)
_MOST_ORIGINS = 10_000
_PRUNE_EVERY = 1_000

_TABLES = """
CREATE TABLE facts (spool TEXT NOT NULL, first INTEGER NOT NULL, schema TEXT NOT NULL);
CREATE TABLE queries (id TEXT PRIMARY KEY, row INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE origins (
    route BLOB PRIMARY KEY, path BLOB NOT NULL, before INTEGER NOT NULL, first INTEGER NOT NULL,
    more INTEGER NOT NULL
) WITHOUT ROWID;
"""


class Origin(NamedTuple):
    """How much of the frames of a route has been appended.

    Attributes:
        path: of the newest frame.
        before: rows of that frame that were appended before.
        first: the offset at which the next ``more`` rows of it were to stand: if the log goes on behind them
            they were appended, and if it does not they were not.
        more: these rows.
    """

    path: tuple[int, ...]
    before: int
    first: int
    more: int

    def rows(self, next: int) -> int:
        """Rows of the frame that are in a log whose next offset is ``next``."""
        return self.before + (self.more if next >= self.first + self.more else 0)


class Book(NamedTuple):
    """All that a logbook says.

    Attributes:
        spool: which log this is; another one has another, also in its place.
        first: the offset of the first row that has not been let go.
        schema: of the rows.
        queries: query → the offset up to which it has committed.
        origins: route → how much of it was appended.
    """

    spool: str
    first: int
    schema: Schema
    queries: dict[str, int]
    origins: dict[bytes, Origin]

    def checked(self) -> Book:
        """Itself.

        Raises:
            ValueError: a value is not what it should be, as in what comes from outside.
        """
        good = (
            isinstance(self.spool, str)
            and _whole(self.first)
            and all(isinstance(query, str) and _whole(row) for query, row in self.queries.items())
            and all(
                isinstance(route, bytes) and all(map(_whole, (*path, *numbers)))
                for route, (path, *numbers) in self.origins.items()
            )
        )
        if not good:
            raise ValueError("expected names and offsets, found something else")
        return self


def _whole(value: object) -> bool:
    return type(value) is int and 0 <= value < END


class Logbook:
    """A ledger in an SQLite file.

    Args:
        path: the file, which is there.

    Attributes:
        path: the file.

    Raises:
        FlowError: it cannot be used; each method raises it too.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._since_pruned = 0
        with _naming(path):
            self._db = connect(path, ("facts", "queries", "origins"))
            try:
                check_version(self._db, path)
            except BaseException:
                self._db.close()
                raise

    @classmethod
    def make(cls, path: Path, book: Book) -> Logbook:
        """A new one."""
        with _naming(path), making(path, _TABLES, _VERSION) as db:
            described = json.dumps(book.schema.description)
            db.execute("INSERT INTO facts VALUES (?, ?, ?)", (book.spool, book.first, described))
            db.executemany("INSERT INTO queries VALUES (?, ?)", book.queries.items())
            db.executemany("INSERT INTO origins VALUES (?, ?, ?, ?, ?)", _rows(book.origins))
        return cls(path)

    def read(self) -> Book:
        """All that it says."""
        with _naming(self.path):
            spool, first, described = self._db.execute("SELECT spool, first, schema FROM facts").fetchone()
            queries = dict(self._db.execute("SELECT id, row FROM queries ORDER BY id"))
            rows = self._db.execute("SELECT route, path, before, first, more FROM origins").fetchall()
            origins = {route: Origin(tuple(from_msgpack(path)), *numbers) for route, path, *numbers in rows}
            schema = Schema.from_description(from_json(described))
            return Book(spool, first, schema, queries, origins).checked()

    def let_go(self, first: int) -> None:
        """From now on the rows before an offset do not count."""
        self._do("UPDATE facts SET first = ?", (first,))

    def committed(self, query: str, row: int) -> None:
        """A query has committed up to an offset."""
        self._do("INSERT OR REPLACE INTO queries VALUES (?, ?)", (query, row))

    def forget(self, query: str) -> None:
        """A query does not read any more."""
        self._do("DELETE FROM queries WHERE id = ?", (query,))

    def came(self, route: bytes, origin: Origin) -> None:
        """Rows of a frame are about to be appended; of the routes those that were quiet longest go."""
        self._do("INSERT OR REPLACE INTO origins VALUES (?, ?, ?, ?, ?)", *_rows({route: origin}))
        self._since_pruned += 1
        if self._since_pruned >= _PRUNE_EVERY:
            self._since_pruned = 0
            self._do(
                "DELETE FROM origins WHERE route NOT IN "
                "(SELECT route FROM origins ORDER BY first DESC LIMIT ?)",
                (_MOST_ORIGINS,),
            )

    def _do(self, statement: str, values: tuple[object, ...]) -> None:
        with _naming(self.path):
            require(self._db)
            self._db.execute(statement, values)

    def sync(self) -> None:
        """Brings it, and that there are the files beside it, to the disk itself."""
        with _naming(self.path):
            sync(self._db, self.path)

    def close(self) -> None:
        """Closes the file."""
        self._db.close()

    def delete(self) -> None:
        """Closes the file and removes it."""
        self._db.close()
        with _naming(self.path):
            for left in (self.path, *beside(self.path)):
                left.unlink(missing_ok=True)


def check_version(db: sqlite3.Connection, path: Path) -> None:
    """Sees to it that a database is a logbook of this version.

    Raises:
        FlowError: it is not.
    """
    (found,) = db.execute("PRAGMA user_version").fetchone()
    if found != _VERSION:
        raise FlowError(f"sink file {path}: expected a log of version {_VERSION}, found version {found}")


def _rows(origins: Mapping[bytes, Origin]) -> Iterable[tuple[bytes, bytes, int, int, int]]:
    return [
        (route, msgpack.packb(one.path), one.before, one.first, one.more) for route, one in origins.items()
    ]


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """An error of the file names it."""
    try:
        yield
    except (*_UNUSABLE, SchemaError) as error:
        raise unusable(f"sink file {path}", error) from error
