"""A file of one's own: nobody else has it open."""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

__all__ = ["OwnFile", "lock"]

_PATIENCE = 1.0
"""Seconds; one that is killed, or that writes for a moment after it was closed, may have a file that long."""


class OwnFile:
    """That nobody else has a file, in this process or another, until ``close`` or the end of the process.

    The lock is on a file beside it, with ``-lock`` behind its name: SQLite has locks of its own on a
    database, and a new database may take its place.

    Args:
        path: the file, which need not be there.
        patience: seconds to wait for it.

    Raises:
        OSError: somebody has it (``BlockingIOError``), or the file beside it cannot be made.
    """

    def __init__(self, path: Path, patience: float = _PATIENCE) -> None:
        file = path.resolve()
        self._path = file.with_name(f"{file.name}-lock")
        self._file = -1
        end = time.monotonic() + patience
        while self._file < 0:
            try:
                self._file = self._taken()
            except BlockingIOError:
                if time.monotonic() >= end:
                    raise BlockingIOError(
                        "another stone, flow, node or process has it open; close that first, or give each a "
                        "file of its own"
                    ) from None
                time.sleep(0.01)

    def _taken(self) -> int:
        """The lock; -1 if who had it before has removed its file meanwhile."""
        file = lock(self._path)
        try:
            if os.path.samestat(os.fstat(file), self._path.stat()):
                return file
        except FileNotFoundError:
            pass
        os.close(file)
        return -1

    def close(self) -> None:
        """Gives it up. Closing twice does nothing."""
        if self._file >= 0:
            file, self._file = self._file, -1
            self._path.unlink(missing_ok=True)
            # A process that was forked may still have it open.
            fcntl.flock(file, fcntl.LOCK_UN)
            os.close(file)


def lock(path: Path) -> int:
    """A descriptor of a file, made if need be, that nobody else has locked; closing it ends the lock.

    Raises:
        OSError: somebody has (``BlockingIOError``), or the file cannot be made.
    """
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(file)
        raise
    return file
