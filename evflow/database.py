"""What SQLite files of stones and nodes have in common: how they are opened, made whole, and written to."""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Collection, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from evflow.disk import private_file
from evflow.forked import leave_to_parent

__all__ = ["beside", "connect", "making", "sync", "sync_file", "transaction"]

_PATIENCE = 0.2
"""Seconds to wait for another program that has a file locked: links are silent meanwhile."""


class _Connection(sqlite3.Connection):
    """A connection that a fork leaves open: closing it there could end the parent's locks."""

    _forsaken = False
    opened: tuple[Path, os.stat_result] | None = None
    """The file, and which one it was."""

    def forsake(self) -> None:
        """It is the parent's."""
        self._forsaken = True

    def close(self) -> None:
        if not self._forsaken:
            super().close()


def connect(path: Path, tables: Collection[str], synchronous: str = "NORMAL") -> sqlite3.Connection:
    """Opens a file, for transactions that are begun by hand.

    A new file can be read by this user alone. By default a kill of the process loses nothing, but a power cut
    may lose the last moments.

    Args:
        path: the file.
        tables: those that it may have.
        synchronous: SQLite's mode of that name.

    Raises:
        sqlite3.Error: it cannot be used, or has other tables.
    """
    # What cannot be made SQLite refuses in its words.
    with suppress(OSError):
        private_file(path)
    # One engine drives a graph, but it may be started in one thread and run in another.
    db = sqlite3.connect(
        path, timeout=_PATIENCE, isolation_level=None, check_same_thread=False, factory=_Connection
    )
    leave_to_parent(db)
    try:
        _check_tables(db, tables)
        db.execute(f"PRAGMA synchronous = {synchronous}")
        db.execute("PRAGMA journal_mode = WAL")
        db.opened = path, path.stat()
    except BaseException:
        db.close()
        raise
    return db


def require(db: sqlite3.Connection) -> None:
    """Sees to it that a database is where it was opened: what is written to a deleted file is lost.

    Raises:
        FileNotFoundError: it is not.
    """
    if not isinstance(db, _Connection) or db.opened is None:
        return
    path, opened = db.opened
    with suppress(FileNotFoundError, NotADirectoryError):
        if os.path.samestat(path.stat(), opened):
            return
    raise FileNotFoundError(errno.ENOENT, "it was deleted, moved or replaced while it was open")


def sync(db: sqlite3.Connection, path: Path) -> None:
    """Brings what was committed to a database to the disk itself.

    Args:
        db: the connection, made by ``connect``.
        path: the file.

    Raises:
        OSError: the disk refuses, or the file is not where it was opened.
    """
    require(db)
    # What is in the database itself was brought there when its log was folded into it. It must not be opened
    # here: closing it again would end the locks that SQLite has on it.
    sync_file(path.with_name(f"{path.name}-wal"))
    sync_file(path.parent)


def sync_file(path: Path) -> None:
    """Has the disk write a file, or a folder's entries; one that is not there needs nothing.

    Raises:
        OSError: the disk refuses.
    """
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        os.fsync(file)
    finally:
        os.close(file)


def _check_tables(db: sqlite3.Connection, ours: Collection[str]) -> None:
    """Sees to it that a database has no tables but ours; it may lack some.

    Raises:
        sqlite3.Error: it has others, or cannot be read.
    """
    found = {name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type IN ('table', 'view')")}
    others = sorted(name for name in found - set(ours) if not name.startswith("sqlite_"))
    if others:
        raise sqlite3.DatabaseError(
            f"it is a database of something else, with table {', '.join(others):.100}; take another file"
        )


@contextmanager
def making(path: Path, tables: str, version: int) -> Iterator[sqlite3.Connection]:
    """A new file in place of one that nobody has open: where it is, it has what it should have.

    Args:
        path: the file, which appears when all that is written within it stands in another one.
        tables: the statements that make them.
        version: of the tables, as ``user_version``.

    Raises:
        sqlite3.Error: it cannot be written.
        OSError: it cannot be put in its place.
    """
    made = path.with_name(f"{path.name}.new")
    made.unlink(missing_ok=True)
    private_file(made)
    with closing(sqlite3.connect(made, isolation_level=None)) as db:
        db.execute("PRAGMA synchronous = OFF")
        db.executescript(f"{tables} PRAGMA user_version = {version}; BEGIN")
        yield db
        db.execute("COMMIT")
    # They must not be taken for the new one's.
    for left in beside(path):
        left.unlink(missing_ok=True)
    made.replace(path)


def beside(path: Path) -> list[Path]:
    """The files that SQLite may keep beside a database."""
    return [path.with_name(f"{path.name}{end}") for end in ("-wal", "-shm")]


@contextmanager
def transaction(db: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
    """All that is written within it, or nothing.

    Args:
        db: a connection on which transactions are begun by hand.

    Raises:
        sqlite3.Error: the file cannot be written.
        FileNotFoundError: it is not where it was opened.
    """
    require(db)
    db.execute("BEGIN IMMEDIATE")
    try:
        yield db
        db.execute("COMMIT")
    except BaseException:
        # Where the disk is full SQLite has taken it back by itself.
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise
