"""What a steward keeps over restarts: keys and their values, written all or none."""

from __future__ import annotations

import logging
import os
import sqlite3
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Protocol

from evflow.database import connect, transaction
from evflow.deploy.growing import Growing
from evflow.deploy.large import LargeValues
from evflow.errors import DeployError
from evflow.outside import shown
from evflow.ownfile import lock, private_folder
from evflow.trouble import Trouble, advice

__all__ = ["FileStore", "Store"]

_log = logging.getLogger("evflow.deploy")

_TABLES = """
CREATE TABLE IF NOT EXISTS bytes (id INTEGER PRIMARY KEY, value BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS kept (key TEXT PRIMARY KEY, id INTEGER NOT NULL) WITHOUT ROWID;
"""
"""Keys and values apart, so that a value gets another key without being written again. A value that is text
is the name of the file that has it."""

_LARGE = 64 << 10
"""Bytes from which a value has a file of its own."""

Value = bytes | Growing

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

    def growing(self, total: int) -> Growing:
        """A value of so many bytes that is yet to come, and to be saved."""

    def save(self, values: Mapping[str, Value | None], renamed: Mapping[str, str] = _NOTHING) -> None:
        """Sets these values, and forgets those that are None; all of it or, after a crash, nothing.

        Args:
            values: by key; what grows is whole.
            renamed: old key → new key, of values that are kept; first of all.

        Raises:
            DeployError: it cannot be written.
        """


class FileStore:
    """A store in an SQLite file, ``deployments.db`` of a folder, with large values in files beside it; the
    folder is this process's alone.

    Args:
        folder: made if it is not there.

    Raises:
        DeployError: it cannot be used, or another process uses it.

    Attributes:
        trouble: of writing it.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self._path = Path(folder) / "deployments.db"
        self._lock = _locked(Path(folder))
        self.trouble = Trouble(_log)
        try:
            self._large = LargeValues(Path(folder) / "values")
            self._db = connect(self._path, ("bytes", "kept"))
            # Folding the log into the file takes long, so it is done when nobody waits.
            self._db.execute("PRAGMA wal_autocheckpoint = 0")
            self._db.executescript(_TABLES)
        except (sqlite3.Error, OSError) as error:
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
        files: set[str] = set()
        try:
            state = self._db.execute("PRAGMA quick_check(1)").fetchone()
            if state != ("ok",):
                raise self._damaged(state[0])
            for key, value in self._db.execute("SELECT key, value FROM kept JOIN bytes USING (id)"):
                if type(key) is not str or type(value) not in (bytes, str):
                    raise self._damaged(f"{shown(key)} is no key of bytes")
                if type(value) is str:
                    files.add(value)
                    value = self._large.read(value)
                found[key] = value
        except (sqlite3.Error, OSError, ValueError) as error:
            raise self._damaged(error) from error
        self._large.keep_only(files)
        return found

    def growing(self, total: int) -> Growing:
        """A value that is yet to come; see ``Store``."""
        if total < _LARGE:
            return Growing(total)
        try:
            return Growing(total, self._large.begin())
        except OSError:
            # That it cannot be written is told when it is saved.
            return Growing(total)

    def save(self, values: Mapping[str, Value | None], renamed: Mapping[str, str] = _NOTHING) -> None:
        """Sets, renames and forgets values; see ``Store``."""
        written: list[str] = []
        gone: list[str] = []
        try:
            kept = {key: self._written(value, written) for key, value in values.items()}
            with transaction(self._db) as db:
                for old, new in renamed.items():
                    gone += self._forget(new)
                    db.execute("UPDATE kept SET key = ? WHERE key = ?", (new, old))
                for key, value in kept.items():
                    gone += self._forget(key)
                    if value is not None:
                        db.execute("INSERT INTO bytes (value) VALUES (?)", (value,))
                        db.execute("INSERT INTO kept VALUES (?, last_insert_rowid())", (key,))
        except (sqlite3.Error, OSError) as error:
            self._large.remove(written)
            found = DeployError(f"{self._path} cannot be written: {error}; {advice(error)}")
            self.trouble.failed(str(found))
            raise found from error
        self.trouble.over()
        self._large.remove(gone)

    def _written(self, value: Value | None, written: list[str]) -> bytes | memoryview | str | None:
        """What the database has of a value: of a large one the name of its file, which ``written`` gets."""
        if isinstance(value, Growing) and value.draft is not None:
            name = self._large.end(value.draft)
        else:
            data = value.data if isinstance(value, Growing) else value
            if data is None or len(data) < _LARGE:
                return data
            name = self._large.write(data)
        written.append(name)
        return name

    def _forget(self, key: str) -> list[str]:
        """Forgets a value; gives the name of its file, which is to be removed once that is for good."""
        value = "SELECT id FROM kept WHERE key = ?"
        files = self._db.execute(
            f"SELECT value FROM bytes WHERE id = ({value}) AND typeof(value) = 'text'", (key,)
        ).fetchall()
        self._db.execute(f"DELETE FROM bytes WHERE id = ({value})", (key,))
        self._db.execute("DELETE FROM kept WHERE key = ?", (key,))
        return [name for (name,) in files]

    def tidy(self) -> None:
        """Does for what was written what takes long; to be called when there is time."""
        self._large.sync()
        log = self._path.with_name(f"{self._path.name}-wal")
        try:
            if log.exists() and log.stat().st_size > _CHECKPOINT:
                self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        except (sqlite3.Error, OSError) as error:
            # It is tried again when there is time, and the next write says whether all is well.
            self.trouble.failed(f"{self._path} cannot be folded: {error}; {advice(error)}")

    def close(self) -> None:
        """Closes the files; another process may use the folder."""
        self._large.sync()
        self._db.close()
        os.close(self._lock)


def _locked(folder: Path) -> int:
    """A lock on a folder, held until its file is closed or the process ends in whatever way."""
    try:
        private_folder(folder)
        return lock(folder / "lock")
    except BlockingIOError as error:
        raise DeployError(
            f"storage folder {folder} is used by another process; give each node a folder of its own"
        ) from error
    except OSError as error:
        raise DeployError(f"storage folder {folder} cannot be used: {error.strerror}") from error
