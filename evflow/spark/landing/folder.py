"""Where a Spark source keeps its files: in a folder that was given, or in one that goes with it.

Beside the ledger there are files of rows: those that came together are in one, which never changes.

One at a time has the folder, held by a lock that ends with the process however that ends. So a temporary
folder whose lock is free is what a killed process has left, and the next that makes one clears it away.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from evflow.disk import Blobs, Lock, advice, private_folder, size_of, unusable
from evflow.errors import FlowError, SchemaError
from evflow.events.batch import EventBatch
from evflow.schema import Schema

LEDGER = "ledger"
"""The name of the ledger in the folder."""

_PREFIX = "evflow-spark-"
_LOCK, _ROWS = "lock", "rows"
_LATE = 3600.0
"""Seconds after which a temporary folder that was never locked is left."""

_BLOCK = 4096
"""Bytes that a file takes on the disk at least, and of which it takes whole multiples."""


class Folder:
    """A folder for a ledger and files of rows, which nobody else has.

    Args:
        path: the folder, made if it is not there; None for a temporary one, which ``close`` removes.

    Raises:
        FlowError: it cannot be made, or another flow has it.

    Attributes:
        path: the folder.
        ledger: the path of the ledger.
        keeps: whether it stays when it is closed.
        used: bytes that files of rows take on the disk.
    """

    def __init__(self, path: Path | None) -> None:
        self.keeps = path is not None
        self.used = 0
        self._lock: Lock | None = None
        try:
            if path is None:
                _clear_left()
                self.path = self._new()
            else:
                self.path = path
                private_folder(path)
                self._lock = Lock(path / _LOCK)
            self._files = Blobs(self.path / _ROWS)
        except BlockingIOError:
            raise FlowError(
                f"folder {path} is in use by another flow or process; give each Spark source one of its own"
            ) from None
        except OSError as error:
            self.close()
            raise FlowError(f"rows of Spark cannot be kept: {error}; {advice(error)}") from error
        self.ledger = self.path / LEDGER

    def _new(self) -> Path:
        """A temporary folder; it has its name only once it is locked, or another would take it for left."""
        made = Path(tempfile.mkdtemp(prefix=f".{_PREFIX}"))
        self._lock = Lock(made / _LOCK)
        return made.rename(made.with_name(made.name[1:]))

    def write(self, batch: EventBatch) -> str:
        """Writes rows to a file, whose name it gives; their attributes are not kept.

        Raises:
            UnwrittenError: they cannot be written now; there is no such file.
        """
        try:
            name = self._files.write(batch.compact().data.data)
        except OSError as error:
            raise unusable(f"folder {self.path} for rows of Spark", error) from error
        self.used += _taken(name)
        return name

    def read(self, name: str, schema: Schema, rows: int) -> EventBatch:
        """The rows in a file, in memory that is the file's own: they stay when it is removed.

        Raises:
            FlowError: they cannot be read, or are not those that were written.
        """
        try:
            return EventBatch.from_bytes(schema, self._files.mapped(name), rows)
        except (OSError, ValueError, SchemaError) as error:
            raise unusable(f"rows of Spark in {self.path_of(name)}", error) from error

    def path_of(self, name: str) -> Path:
        """Where a file is."""
        return self.path / _ROWS / name

    def remove(self, names: Collection[str]) -> None:
        """Removes files; one that cannot be removed is cleared away at the next start."""
        self._files.remove(names)
        self.used -= sum(map(_taken, names))

    def whole(self) -> set[str]:
        """The files that are there, and as long as they should be.

        Raises:
            FlowError: the folder cannot be read.
        """
        try:
            return self._files.whole()
        except OSError as error:
            raise unusable(f"folder {self.path} for rows of Spark", error) from error

    def keep_only(self, names: Collection[str]) -> None:
        """Removes all files but these."""
        self._files.keep_only(names)
        self.used = sum(map(_taken, names))

    def free(self) -> int:
        """Bytes free on its disk."""
        return shutil.disk_usage(self.path).free

    def close(self) -> None:
        """Gives it up."""
        if self._lock is not None and self._lock.held:
            if not self.keeps:
                shutil.rmtree(self.path, ignore_errors=True)
            self._lock.close()


def _taken(name: str) -> int:
    """Bytes that a file takes on the disk."""
    return -(-size_of(name) // _BLOCK) * _BLOCK


def _clear_left() -> None:
    """Removes temporary folders whose process is gone."""
    for folder in Path(tempfile.gettempdir()).glob(f"*{_PREFIX}*"):
        # Another process may clear it at the same time.
        with suppress(OSError):
            found = folder.stat()
            new = folder.name.startswith(".") and found.st_mtime > time.time() - _LATE
            if new or found.st_uid != os.getuid() or not folder.name.lstrip(".").startswith(_PREFIX):
                continue
            lock = Lock(folder / _LOCK)
            shutil.rmtree(folder, ignore_errors=True)
            lock.close()
