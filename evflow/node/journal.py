"""A file that keeps which frames were safe, so that a node that starts again knows what it has handled."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import msgpack

from evflow.errors import LinkError
from evflow.link.tags import Tag

__all__ = ["FileJournal"]

_TABLE = """
CREATE TABLE IF NOT EXISTS safe (
    peer TEXT NOT NULL, bridge TEXT NOT NULL, route BLOB NOT NULL, path BLOB NOT NULL,
    PRIMARY KEY (peer, bridge, route)
) WITHOUT ROWID;
"""


class FileJournal:
    """The latest safe frame of each route, in an SQLite file.

    Args:
        path: the file; made if it is not there.

    Raises:
        LinkError: it cannot be used.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            # A kill of the process loses nothing in this mode; a power cut may lose the last moments.
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = NORMAL")
            self._db.executescript(_TABLE)
        except sqlite3.Error as error:
            raise LinkError(f"journal {path} cannot be used: {error}") from error

    def load(self) -> dict[tuple[str, str], list[Tag]]:
        """By peer and bridge, the latest frame of each route.

        Raises:
            LinkError: the file is damaged.
        """
        found: dict[tuple[str, str], list[Tag]] = {}
        try:
            for peer, bridge, route, path in self._db.execute("SELECT peer, bridge, route, path FROM safe"):
                found.setdefault((peer, bridge), []).append(Tag(route, tuple(msgpack.unpackb(path))))
        except (sqlite3.Error, ValueError, TypeError) as error:
            raise LinkError(f"journal {self._path} is damaged: {error}") from error
        return found

    def save(self, safe: dict[tuple[str, str, bytes], tuple[int, ...]]) -> None:
        """Sets the paths of the latest safe frames.

        Raises:
            LinkError: the file cannot be written.
        """
        rows = [(*key, msgpack.packb(path)) for key, path in safe.items()]
        try:
            self._db.execute("BEGIN IMMEDIATE")
            self._db.executemany("INSERT OR REPLACE INTO safe VALUES (?, ?, ?, ?)", rows)
            self._db.execute("COMMIT")
        except sqlite3.Error as error:
            raise LinkError(f"journal {self._path} cannot be written: {error}") from error

    def close(self) -> None:
        """Closes the file."""
        self._db.close()
