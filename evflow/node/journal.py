"""A file that keeps which frames were safe, so that a node that starts again knows what it has handled."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import msgpack

from evflow.database import connect, transaction
from evflow.disk import OwnFile, advice
from evflow.errors import LinkError
from evflow.link.custody import Gone, Paths
from evflow.link.tags import Tag
from evflow.outside import from_msgpack, shown_path

__all__ = ["FileJournal"]

_TABLE = """
CREATE TABLE IF NOT EXISTS seen (
    bridge TEXT NOT NULL, stone TEXT NOT NULL, route BLOB NOT NULL, path BLOB NOT NULL,
    PRIMARY KEY (bridge, route)
) WITHOUT ROWID;
"""

_FORMER = """
BEGIN IMMEDIATE;
INSERT OR IGNORE INTO seen SELECT bridge, '', route, path FROM safe;
DROP TABLE safe;
COMMIT;
"""
"""Takes over what an older table has, by peer and bridge."""


class FileJournal:
    """The latest safe frame of each route, in an SQLite file.

    Args:
        path: the file; made if it is not there. Until ``close`` nobody else has it.

    Raises:
        LinkError: it cannot be used, or another has it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            with ExitStack() as opened:
                opened.enter_context(closing(OwnFile(path)))
                db = self._db = opened.enter_context(closing(connect(path, ("seen", "safe"))))
                db.executescript(_TABLE)
                if db.execute("SELECT 1 FROM sqlite_master WHERE name = 'safe'").fetchone():
                    db.executescript(_FORMER)
                self._opened = opened.pop_all()
        except (sqlite3.Error, OSError, ValueError) as error:
            raise LinkError(f"journal {shown_path(path)} cannot be used: {error}; {advice(error)}") from error

    def load(self) -> dict[tuple[str, str], list[Tag]]:
        """By bridge and the stone that it leads to, the latest frame of each route.

        Raises:
            LinkError: the file is damaged.
        """
        found: dict[tuple[str, str], list[Tag]] = {}
        try:
            for bridge, stone, route, path in self._db.execute("SELECT bridge, stone, route, path FROM seen"):
                found.setdefault((bridge, stone), []).append(Tag(route, tuple(from_msgpack(path))))
        except (sqlite3.Error, ValueError, TypeError) as error:
            raise LinkError(f"journal {self._path} is damaged: {error}") from error
        return found

    def save(self, safe: Paths, gone: Sequence[Gone]) -> None:
        """Forgets what is gone, then sets the paths of the latest safe frames.

        Raises:
            LinkError: the file cannot be written.
        """
        rows = [(*key, msgpack.packb(path)) for key, path in safe.items()]
        self._write(
            ("DELETE FROM seen WHERE bridge = ? AND route = ?", gone),
            ("INSERT OR REPLACE INTO seen VALUES (?, ?, ?, ?)", rows),
        )

    def forget(self, stone: str) -> None:
        """Forgets what came for a stone.

        Raises:
            LinkError: the file cannot be written.
        """
        self._write(("DELETE FROM seen WHERE stone = ?", [(stone,)]))

    def _write(self, *steps: tuple[str, Sequence[tuple[Any, ...]]]) -> None:
        """Executes statements, each with its rows, all or none."""
        try:
            with transaction(self._db) as db:
                for statement, rows in steps:
                    db.executemany(statement, rows)
        except (sqlite3.Error, OSError) as error:
            raise LinkError(f"journal {self._path} cannot be written: {error}; {advice(error)}") from error

    def close(self) -> None:
        """Closes the file."""
        self._opened.close()
