"""What a steward keeps over restarts: keys and their values, written all or none."""

from __future__ import annotations

import fcntl
import os
import sqlite3
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Protocol

from evflow.errors import DeployError

__all__ = ["FileStore", "Store"]

_TABLES = """
CREATE TABLE IF NOT EXISTS bytes (id INTEGER PRIMARY KEY, value BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS kept (key TEXT PRIMARY KEY, id INTEGER NOT NULL) WITHOUT ROWID;
"""
"""Keys and values apart, so that a value of megabytes gets another key without being written again."""


_NOTHING: Mapping[str, str] = MappingProxyType({})

_CHECKPOINT = 64 << 20
"""Bytes of the write-ahead log from which it is folded into the file, when there is time."""


class Store(Protocol):
    """Keeps bytes by key."""

    def load(self) -> dict[str, bytes]:
        """All that is kept.

        Raises:
            DeployError: it is damaged.
        """

    def save(self, values: Mapping[str, bytes | None], renamed: Mapping[str, str] = _NOTHING) -> None:
        """Sets these values, and forgets those that are None; all of it or, after a crash, nothing.

        Args:
            values: by key.
            renamed: old key → new key, of values that are kept; first of all.

        Raises:
            DeployError: it cannot be written.
        """


class FileStore:
    """A store in an SQLite file, ``deployments.db`` of a folder; the folder is this process's alone.

    Args:
        folder: made if it is not there.

    Raises:
        DeployError: it cannot be used, or another process uses it.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self._path = Path(folder) / "deployments.db"
        self._lock = _locked(Path(folder))
        try:
            self._db = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)
            # The largest pages: a snapshot of megabytes is written five times faster.
            self._db.execute("PRAGMA page_size = 65536")
            # A kill of the process loses nothing in this mode; a power cut may lose the last moments.
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = NORMAL")
            # Folding the log into the file takes long, so it is done when nobody waits.
            self._db.execute("PRAGMA wal_autocheckpoint = 0")
            self._db.executescript(_TABLES)
        except sqlite3.Error as error:
            os.close(self._lock)
            raise self._damaged(error) from error

    def _damaged(self, error: object) -> DeployError:
        found = " ".join(str(error).split())
        return DeployError(
            f"{self._path} is damaged or cannot be used: {found}; move it away, and the node starts with "
            f"nothing deployed and learns from the other nodes what is placed on it"
        )

    def load(self) -> dict[str, bytes]:
        """All that is kept; see ``Store``."""
        found: dict[str, bytes] = {}
        try:
            state = self._db.execute("PRAGMA quick_check(1)").fetchone()
            if state != ("ok",):
                raise self._damaged(state[0])
            for key, value in self._db.execute("SELECT key, value FROM kept JOIN bytes USING (id)"):
                if type(key) is not str or type(value) is not bytes:
                    raise self._damaged(f"{key!r:.100} is no key of bytes")
                found[key] = value
        except (sqlite3.Error, ValueError) as error:
            raise self._damaged(error) from error
        return found

    def save(self, values: Mapping[str, bytes | None], renamed: Mapping[str, str] = _NOTHING) -> None:
        """Sets, renames and forgets values; see ``Store``."""
        try:
            self._db.execute("BEGIN IMMEDIATE")
            for old, new in renamed.items():
                self._forget(new)
                self._db.execute("UPDATE kept SET key = ? WHERE key = ?", (new, old))
            for key, value in values.items():
                self._forget(key)
                if value is not None:
                    self._db.execute("INSERT INTO bytes (value) VALUES (?)", (value,))
                    self._db.execute("INSERT INTO kept VALUES (?, last_insert_rowid())", (key,))
            self._db.execute("COMMIT")
        except sqlite3.Error as error:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise DeployError(f"{self._path} cannot be written: {error}; is the disk full?") from error

    def _forget(self, key: str) -> None:
        self._db.execute("DELETE FROM bytes WHERE id = (SELECT id FROM kept WHERE key = ?)", (key,))
        self._db.execute("DELETE FROM kept WHERE key = ?", (key,))

    def tidy(self) -> None:
        """Folds what was written into the file, if it is much; to be called when there is time."""
        log = self._path.with_name(f"{self._path.name}-wal")
        if log.exists() and log.stat().st_size > _CHECKPOINT:
            self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def close(self) -> None:
        """Closes the file; another process may use the folder."""
        self._db.close()
        os.close(self._lock)


def _locked(folder: Path) -> int:
    """A lock on a folder, held until its file is closed or the process ends in whatever way."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise DeployError(f"storage folder {folder} cannot be used: {error.strerror}") from error
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(file)
        raise DeployError(
            f"storage folder {folder} is used by another process; give each node a folder of its own"
        ) from error
    return file
