"""Files of one's own: no other process has one open, and no other user can read one."""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import stat
import time
from pathlib import Path

from evflow.forked import leave_to_parent

_log = logging.getLogger("evflow")

PATIENCE = 1.0
"""Seconds; one that is killed, or that writes for a moment after it was closed, may have a file that long."""


class Lock:
    """A lock on a file, until ``close`` or the end of the process; a fork of the process does not have it.

    Args:
        path: the file, made if it is not there.

    Raises:
        OSError: somebody has locked it (``BlockingIOError``), or it cannot be made.
    """

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self.forsake()
            raise
        leave_to_parent(self)

    @property
    def held(self) -> bool:
        """Whether this process has it."""
        return self._file >= 0

    def on(self, path: Path) -> bool:
        """Whether the locked file is the one that ``path`` leads to."""
        try:
            return os.path.samestat(os.fstat(self._file), path.stat())
        except FileNotFoundError:
            return False

    def forsake(self) -> None:
        """Lets go of the file; the lock ends when no process has the file open."""
        if self.held:
            os.close(self._file)
            self._file = -1

    def close(self) -> None:
        """Ends the lock. Closing twice does nothing."""
        if self.held:
            # A fork that has not run yet has the file open too.
            fcntl.flock(self._file, fcntl.LOCK_UN)
            self.forsake()


class OwnFile:
    """That nobody else has a file, in this process or another, until ``close`` or the end of the process.

    The lock is on a file beside it, with ``-lock`` behind its name: a new file may take its place.

    Args:
        path: the file, which need not be there.
        patience: seconds to wait for it; ``PATIENCE`` by default.

    Raises:
        OSError: somebody has it (``BlockingIOError``), or the file beside it cannot be made.
    """

    def __init__(self, path: Path, patience: float | None = None) -> None:
        file = Path(os.path.realpath(path))
        self._path = file.with_name(f"{file.name}-lock")
        self._lock: Lock | None = None
        end = time.monotonic() + (PATIENCE if patience is None else patience)
        while self._lock is None:
            try:
                self._lock = self._taken()
            except BlockingIOError:
                if time.monotonic() >= end:
                    raise BlockingIOError("another stone, flow, node or process has it open") from None
                time.sleep(0.01)

    def _taken(self) -> Lock | None:
        """The lock; None if who had it before has removed its file meanwhile."""
        lock = Lock(self._path)
        if lock.on(self._path):
            return lock
        lock.close()
        return None

    def close(self) -> None:
        """Gives it up. Closing twice does nothing."""
        if self._lock is not None and self._lock.held:
            self._path.unlink(missing_ok=True)
            self._lock.close()


_told: set[Path] = set()
"""What the log has a line about."""


def read_file(path: Path, most: int) -> tuple[int, bytes]:
    """The mode of a file, and its first bytes.

    Args:
        path: the file.
        most: how many bytes at most.

    Raises:
        OSError: it cannot be read, or is not a regular file: a pipe would let its reader wait.
    """
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        mode = os.fstat(file).st_mode
        if not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, "it is not a regular file", str(path))
        return stat.S_IMODE(mode), os.read(file, most)
    finally:
        os.close(file)


def private_folder(path: Path) -> None:
    """Makes a folder, and those above it that are missing, for this user alone, whatever the umask is.

    One that is there keeps its mode; the log has a line if others can write to it.

    Raises:
        OSError: it cannot be made, or something else is there.
    """
    try:
        path.mkdir(mode=0o700)
    except FileNotFoundError:
        private_folder(path.parent)
        path.mkdir(mode=0o700, exist_ok=True)
    except FileExistsError:
        if not path.is_dir():
            raise
        _tell_if_open(path, 0o022, "folder", "put other files in the place of", "700")


def private_file(path: Path) -> None:
    """Makes an empty file that this user alone can read, whatever the umask is, unless there is one.

    One that is there keeps its mode; the log has a line if others can read it.

    Raises:
        OSError: it cannot be made.
    """
    try:
        os.close(os.open(os.path.realpath(path), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        tell_if_open(path)


def tell_if_open(path: Path) -> None:
    """Has the log say so, once, if others can read or change a file."""
    _tell_if_open(path, 0o066, "file", "read or change", "600")


def _tell_if_open(path: Path, bits: int, what: str, may: str, mode: str) -> None:
    found = path.stat().st_mode & 0o777
    if found & bits and path not in _told:
        _told.add(path)
        _log.warning(
            "%s %s is open to others, its mode is %04o: they may %s what evflow keeps; run: chmod %s %s",
            what, path, found, may, mode, path,
        )  # fmt: skip
