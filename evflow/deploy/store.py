"""What a controller keeps over restarts: keys and their values, written all or none.

A node must not go on with less than it has promised to others, so damage of any file is found where the store
is opened or loaded: a guard knows how many changes there have to be.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from evflow.disk import Blobs, Growing, Guard, Lock, Store, Trouble, advice, private_folder
from evflow.errors import DeployError, FlowError, UnwrittenError
from evflow.outside import shown, shown_path

_log = logging.getLogger("evflow.deploy")

_LARGE = 64 << 10
"""Bytes from which a value has a file of its own."""

Value = bytes | Growing

_NOTHING: Mapping[str, str] = MappingProxyType({})


class FileStore:
    """A store in ``deployments.db`` of a folder, with large values in files beside it; the folder is this
    process's alone.

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
        self._store: Store | None = None
        try:
            self._blobs = Blobs(Path(folder) / "values")
            self._guard = Guard(self._path.with_name("deployments.generation"))
            self._store = self._opened()
        except (OSError, ValueError, FlowError, DeployError) as error:
            self.close()
            if isinstance(error, OSError):
                raise DeployError(f"{self._path} cannot be used: {error}; {advice(error)}") from error
            if isinstance(error, UnwrittenError):
                raise DeployError(str(error)) from error
            raise self._damaged(error) from error

    def _opened(self) -> Store:
        """The store, which has the latest change."""
        guarded = self._guard.read()
        # A node must not forget a promise in a power cut.
        store = Store(self._path, "file", "deployments 1", own=False, synced=True)
        try:
            # A large value is text: the name of its file.
            self._kept: dict[str, bytes | str] = store.load()
            if guarded and not store.begun:
                raise ValueError("it is gone or empty, and was not before")
            if guarded is None and store.number:
                raise ValueError(f"file {self._guard.path}, which belongs to it, is gone")
            if guarded is None:
                self._guard.begin()
            elif store.number < guarded:
                raise ValueError(
                    f"the latest change that it has is {store.number}, and {guarded} were made: it has lost "
                    "what was written last"
                )
            for key, value in self._kept.items():
                if not isinstance(key, str) or not isinstance(value, bytes | str):
                    raise ValueError(f"{shown(key)} is not a key of bytes")
        except BaseException:
            store.close()
            raise
        return store

    def _damaged(self, error: object) -> DeployError:
        found = " ".join(str(error).split())
        return DeployError(
            f"{self._path} is damaged or cannot be used: {found}; move {self._path.parent}/deployments.* "
            "away, and the node starts with nothing deployed and learns from the other nodes what is placed "
            "on it"
        )

    def load(self) -> dict[str, bytes]:
        """All that is kept.

        Raises:
            DeployError: it is damaged.
        """
        files = {value for value in self._kept.values() if isinstance(value, str)}
        try:
            found = {
                key: self._blobs.read(value) if isinstance(value, str) else value
                for key, value in self._kept.items()
            }
        except (OSError, ValueError) as error:
            raise self._damaged(error) from error
        self._blobs.keep_only(files)
        return found

    def growing(self, total: int) -> Growing:
        """A value of so many bytes that is yet to come, and to be saved."""
        return Growing(total) if total < _LARGE else self._blobs.growing(total)

    def save(self, values: Mapping[str, Value | None], renamed: Mapping[str, str] = _NOTHING) -> None:
        """Sets these values, and forgets those that are None; all of it or, after a crash, nothing.

        Args:
            values: by key; what grows is whole.
            renamed: old key → new key, of values that are kept; first of all.

        Raises:
            DeployError: it cannot be written.
        """
        assert self._store is not None
        written: list[str] = []
        kept = dict(self._kept)
        changes: dict[str, bytes | str | None] = {}
        for old, new in renamed.items():
            changes[new] = kept.pop(old, None)
            changes[old] = None
            kept |= {new: value} if (value := changes[new]) is not None else {}
        try:
            for key, given in values.items():
                changes[key] = None if given is None else self._written(given, written)
            self._store.save(changes)
        except (OSError, FlowError) as error:
            self._blobs.remove(written)
            told = f"{error}" if isinstance(error, FlowError) else f"{self._path}: {error}; {advice(error)}"
            found = DeployError(f"deployments cannot be written: {told}")
            self.trouble.failed(str(found))
            raise found from error
        before = {name for name in self._kept.values() if isinstance(name, str)}
        for key, value in changes.items():
            self._kept.pop(key, None)
            if value is not None:
                self._kept[key] = value
        self._blobs.remove(before - set(self._kept.values()))
        try:
            self._guard.write(self._store.number)
        except OSError as error:
            # What was saved is saved; the next one may be noted.
            self.trouble.failed(f"{self._guard.path} cannot be written: {error}; {advice(error)}")
        else:
            self.trouble.over()

    def _written(self, value: Value, written: list[str]) -> bytes | str:
        """What the store has of a value: of a large one the name of its file, which ``written`` gets."""
        data = value.data if isinstance(value, Growing) else value
        if len(data) < _LARGE:
            return bytes(data)
        written.append(self._blobs.write(value))
        return written[-1]

    def tidy(self) -> None:
        """Does for what was written what takes long; to be called when there is time."""
        self._blobs.sync()

    def close(self) -> None:
        """Closes the files; another process may use the folder."""
        if self._store is not None:
            self._blobs.sync()
            self._store.close()
        self._lock.close()


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
