"""What a fork leaves to the process that it was forked from: flows, sockets, files.

A fork has copies of all objects, but none of the threads behind them, and its files and shared memory are the
parent's. So each owner of such things is told in the fork, forsakes them, and is never taken down there:
closing a socket would reach the parent's.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import shutil
import tempfile
import weakref
from pathlib import Path
from typing import Any, Protocol


class Owner(Protocol):
    """What has something that forks must not touch."""

    def forsake(self) -> None:
        """Called in a fork, which has no other thread: from now on nothing of the parent's is touched."""


_owners: weakref.WeakSet[Any] = weakref.WeakSet()


def leave_to_parent(owner: Owner) -> None:
    """From now on an object is told when it finds itself in a fork."""
    _owners.add(owner)


def renew(*locks: Any) -> None:
    """Makes locks free in a fork: who held one may not be there."""
    for lock in locks:
        # As Python's own modules do it. A condition has it of its lock.
        getattr(lock, "_lock", lock)._at_fork_reinit()


_folders: set[Path] = set()


def temporary_folder(prefix: str) -> Path:
    """A new folder that goes when this process ends, and stays when a fork of this process does.

    Args:
        prefix: how its name begins.

    Raises:
        OSError: it cannot be made.
    """
    folder = Path(tempfile.mkdtemp(prefix=prefix))
    _folders.add(folder)
    return folder


def remove_folder(folder: Path) -> None:
    """Removes a temporary folder before this process ends; a fork's copy of it is left alone."""
    if folder in _folders:
        _folders.discard(folder)
        shutil.rmtree(folder, ignore_errors=True)


@atexit.register
def _remove_folders() -> None:
    for folder in list(_folders):
        remove_folder(folder)


def _in_fork() -> None:
    _folders.clear()
    owners = list(_owners)
    _owners.clear()
    for owner in owners:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(owner))
        owner.forsake()


os.register_at_fork(after_in_child=_in_fork)
