"""Where a Spark source keeps its files: in a folder that was given, or in one that goes with it.

One at a time has it, held by a lock that ends with the process however that ends. So a temporary folder whose
lock is free is what a killed process has left, and the next that makes one clears it away.
"""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from evflow.disk import Lock, advice, private_folder
from evflow.errors import FlowError
from evflow.spark.rowfile import RowFile

LEDGER = "ledger"
"""The name of the ledger in the folder."""

_log = logging.getLogger("evflow.spark")

_PREFIX = "evflow-spark-"
_LOCK, _ROWS = "lock", "rows"
_LATE = 3600.0
"""Seconds after which a temporary folder that was never locked is left."""


class Folder:
    """A folder for a ledger and row files, which nobody else has.

    Args:
        path: the folder, made if it is not there; None for a temporary one, which ``close`` removes.

    Raises:
        FlowError: it cannot be made, or another flow has it.

    Attributes:
        path: the folder.
        ledger: the path of the ledger.
        keeps: whether it stays when it is closed.
        used: bytes that row files take on the disk.
        found: tasks whose row files were there before; what is in them may be damaged.
    """

    def __init__(self, path: Path | None) -> None:
        self.keeps = path is not None
        self.used = 0
        self.found: set[int] = set()
        self._lock: Lock | None = None
        try:
            if path is None:
                _clear_left()
                self.path = self._new()
            else:
                self.path = path
                private_folder(path)
                self._lock = Lock(path / _LOCK)
            self._rows = self.path / _ROWS
            private_folder(self._rows)
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

    def file(self, task: int) -> Path:
        """The row file of a task."""
        return self._rows / f"{task:016x}"

    def remove(self, task: int) -> None:
        """Removes the row file of a task; one that cannot be removed is cleared away at the next start."""
        try:
            self.used -= RowFile.remove(self.file(task))
        except FlowError as error:
            _log.warning("%s", error)

    def clear_others(self, tasks: set[int]) -> None:
        """Removes the row files that are of none of these tasks."""
        known = {self.file(task) for task in tasks}
        for path in sorted(set(self._rows.iterdir()) - known):
            try:
                RowFile.remove(path)
            except FlowError as error:
                _log.warning("%s", error)

    def free(self) -> int:
        """Bytes free on its disk."""
        return shutil.disk_usage(self._rows).free

    def close(self) -> None:
        """Gives it up."""
        if self._lock is not None and self._lock.held:
            if not self.keeps:
                shutil.rmtree(self.path, ignore_errors=True)
            self._lock.close()


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
