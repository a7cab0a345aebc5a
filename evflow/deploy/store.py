"""What a controller keeps over restarts: keys and their values, written all or none.

A node must not go on with less than it has promised to others, so damage of any file is found where the store
is loaded. The database has a sum over its keys and values, and the number of the latest commit, which a file
beside it has too (``generation.py``).
"""

from __future__ import annotations

import logging
import os
import sqlite3
from collections.abc import Mapping
from contextlib import ExitStack, closing
from hashlib import blake2b
from pathlib import Path
from types import MappingProxyType
from typing import Protocol

from evflow.database import connect, transaction
from evflow.deploy.generation import Generation
from evflow.deploy.growing import Growing
from evflow.deploy.large import LargeValues
from evflow.disk import Lock, private_folder
from evflow.disk.trouble import Trouble, advice, of_the_disk
from evflow.errors import DeployError
from evflow.outside import shown, shown_path

__all__ = ["FileStore", "Store"]

_log = logging.getLogger("evflow.deploy")

_TABLES = """
CREATE TABLE IF NOT EXISTS bytes (id INTEGER PRIMARY KEY, value BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS kept (key TEXT PRIMARY KEY, id INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS state (id INTEGER PRIMARY KEY, generation INTEGER NOT NULL, sum BLOB NOT NULL);
"""
"""Keys and values apart, so that a value gets another key without being written again. A value that is text
is the name of the file that has it. The only row of ``state`` has the number of the latest commit, and the
sum over that and all that is kept."""

_LARGE = 64 << 10
"""Bytes from which a value has a file of its own."""

_NAMES = "bytes", "kept", "state"

_ALL = "SELECT key, value FROM kept JOIN bytes USING (id)"
_ONE = "SELECT id, value FROM kept JOIN bytes USING (id) WHERE key = ?"

_SUM_BYTES = 16
_MODULUS = 1 << (8 * _SUM_BYTES)

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
            self._guard = Generation(self._path.with_name("deployments.generation"))
            with ExitStack() as opened:
                self._open(opened)
                opened.pop_all()
        except (sqlite3.Error, OSError, ValueError, DeployError) as error:
            self._lock.close()
            if isinstance(error, DeployError):
                raise
            if of_the_disk(error):
                raise DeployError(f"{self._path} cannot be used: {error}; {advice(error)}") from error
            raise self._damaged(error) from error

    def _open(self, opened: ExitStack) -> None:
        """Opens the database, and sees to it that it has the latest commit."""
        guarded = self._guard.read()
        if guarded and not (self._path.exists() and self._path.stat().st_size):
            raise self._damaged("it is gone or empty, and was not before")
        # A node must not forget a promise in a power cut.
        db = self._db = opened.enter_context(closing(connect(self._path, _NAMES, "FULL")))
        # Folding the log into the file takes long, so it is done when nobody waits.
        db.execute("PRAGMA wal_autocheckpoint = 0")
        named = db.execute("SELECT count(*) FROM sqlite_master WHERE name = 'state'").fetchone() != (0,)
        state = db.execute("SELECT generation, sum FROM state").fetchall() if named else []
        db.executescript(_TABLES)
        if not guarded and not state:
            # It is new, or of an evflow that had no guard.
            self._generation, self._sum = 0, sum(_sum(*row) for row in db.execute(_ALL)) % _MODULUS
            with transaction(db):
                db.execute("INSERT INTO state VALUES (0, 0, ?)", (self._total(0, self._sum),))
            self._guard.begin()
            return
        if guarded is None and state[0][0] == 0:
            # Its maker was killed before there was a guard.
            self._guard.begin()
        elif guarded is None:
            raise self._damaged(f"file {self._guard.path}, which belongs to it, is gone")
        if len(state) != 1 or type(state[0][0]) is not int or type(state[0][1]) is not bytes:
            raise self._damaged("the number of its latest commit is gone")
        self._generation = state[0][0]
        self._sum = (int.from_bytes(state[0][1]) - _sum("", self._generation)) % _MODULUS
        if self._generation < (guarded or 0):
            raise self._damaged(
                f"the latest commit that it has is {self._generation}, and {guarded} were made: its file or "
                f"{self._path.name}-wal has lost what was written last"
            )

    @staticmethod
    def _total(generation: int, content: int) -> bytes:
        """The sum that ``state`` has."""
        return ((content + _sum("", generation)) % _MODULUS).to_bytes(_SUM_BYTES)

    def _damaged(self, error: object) -> DeployError:
        found = " ".join(str(error).split())
        return DeployError(
            f"{self._path} is damaged or cannot be used: {found}; move {self._path.parent}/deployments.* "
            "away, and the node starts with nothing deployed and learns from the other nodes what is placed "
            "on it"
        )

    def load(self) -> dict[str, bytes]:
        """All that is kept; see ``Store``."""
        found: dict[str, bytes] = {}
        files: set[str] = set()
        content = 0
        try:
            state = self._db.execute("PRAGMA quick_check(1)").fetchone()
            if state != ("ok",):
                raise self._damaged(state[0])
            for key, value in self._db.execute(_ALL):
                content += _sum(key, value)
                if type(key) is not str or type(value) not in (bytes, str):
                    raise self._damaged(f"{shown(key)} is no key of bytes")
                if type(value) is str:
                    files.add(value)
                    value = self._large.read(value)
                found[key] = value
            if content % _MODULUS != self._sum:
                raise self._damaged("what is in it is not what was written")
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
            content, generation = self._sum, self._generation + 1
            with transaction(self._db) as db:
                for old, new in renamed.items():
                    content -= self._forget(new, gone)
                    for _, value in db.execute(_ONE, (old,)).fetchall():
                        content += _sum(new, value) - _sum(old, value)
                    db.execute("UPDATE kept SET key = ? WHERE key = ?", (new, old))
                for key, written_value in kept.items():
                    content -= self._forget(key, gone)
                    if written_value is not None:
                        content += _sum(key, written_value)
                        db.execute("INSERT INTO bytes (value) VALUES (?)", (written_value,))
                        db.execute("INSERT INTO kept VALUES (?, last_insert_rowid())", (key,))
                total = self._total(generation, content)
                db.execute("UPDATE state SET generation = ?, sum = ?", (generation, total))
        except (sqlite3.Error, OSError) as error:
            self._large.remove(written)
            found = DeployError(f"{self._path} cannot be written: {error}; {advice(error)}")
            self.trouble.failed(str(found))
            raise found from error
        self._generation, self._sum = generation, content % _MODULUS
        self._note()
        self._large.remove(gone)

    def _note(self) -> None:
        """Has the guard follow."""
        try:
            self._guard.write(self._generation)
        except OSError as error:
            # What was saved is saved; the next one may be noted.
            self.trouble.failed(f"{self._guard.path} cannot be written: {error}; {advice(error)}")
        else:
            self.trouble.over()

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

    def _forget(self, key: str, gone: list[str]) -> int:
        """Forgets a value; ``gone`` gets the name of its file, which is to be removed once that is for good.

        Returns:
            What it has added to the sum.
        """
        content = 0
        for id_, value in self._db.execute(_ONE, (key,)).fetchall():
            content += _sum(key, value)
            if isinstance(value, str):
                gone.append(value)
            self._db.execute("DELETE FROM bytes WHERE id = ?", (id_,))
        self._db.execute("DELETE FROM kept WHERE key = ?", (key,))
        return content

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
        self._lock.close()


def _sum(key: object, value: object) -> int:
    """What a key and its value, as the database has them, add to the sum over all."""
    head = str(key).encode(errors="surrogatepass")
    made = blake2b(b"%d %d %s" % (not isinstance(value, str | int), len(head), head), digest_size=_SUM_BYTES)
    made.update(value if isinstance(value, bytes | memoryview) else str(value).encode(errors="surrogatepass"))
    return int.from_bytes(made.digest())


def _locked(folder: Path) -> Lock:
    """A lock on a folder, held until it is closed or the process ends in whatever way."""
    try:
        private_folder(folder)
        return Lock(folder / "lock")
    except BlockingIOError as error:
        raise DeployError(
            f"storage folder {folder} is used by another process; give each node a folder of its own"
        ) from error
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise DeployError(
            f"storage folder {shown_path(folder)} cannot be used: {why}; {advice(error)}"
        ) from error
