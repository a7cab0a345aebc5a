"""Values of megabytes, each in a file of its own: a database would copy and sum up every byte on its way.

The name of a file says what is in it, so whoever keeps the name can tell whether the file is whole. A kill of
the process loses nothing that was written; against a power cut there is ``sync``.
"""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Collection
from contextlib import suppress
from io import FileIO
from pathlib import Path
from weakref import finalize

from evflow.disk import private_folder
from evflow.outside import shown

__all__ = ["Draft", "LargeValues"]

_NAME = re.compile("[0-9a-f]{16}-([0-9]{1,18})-([0-9a-f]{8})")


_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC


class Draft:
    """A file of a value that is not whole yet. One that is given up is removed with this object.

    Args:
        path: the file, which is made.

    Raises:
        OSError: it cannot be made.

    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._sum = 0
        self._size = 0
        self._file = FileIO(os.open(path, _NEW, 0o600), "w")
        self._drop = finalize(self, _remove, self._file, path)

    def add(self, data: bytes | memoryview) -> None:
        """Writes what comes next.

        Raises:
            OSError: it cannot be written.
        """
        rest = memoryview(data)
        self._sum = zlib.crc32(rest, self._sum)
        self._size += len(rest)
        while rest:
            rest = rest[self._file.write(rest) :]

    def end(self) -> str:
        """It is whole: gives the name that the file has from now on.

        Raises:
            OSError: it cannot have it.
        """
        name = f"{self._path.name}-{self._size}-{self._sum:08x}"
        self._path.rename(self._path.with_name(name))
        self._drop.detach()
        self._file.close()
        return name


def _remove(file: FileIO, path: Path) -> None:
    file.close()
    path.unlink(missing_ok=True)


class LargeValues:
    """Files of a folder, one for each value.

    Args:
        folder: made if it is not there; there is nothing else in it.

    Raises:
        OSError: it cannot be used.
    """

    def __init__(self, folder: Path) -> None:
        private_folder(folder)
        self._folder = folder
        self._unsure: set[str] = set()

    def begin(self) -> Draft:
        """A file that a value is written to bit by bit.

        Raises:
            OSError: it cannot be made.
        """
        return Draft(self._folder / os.urandom(8).hex())

    def end(self, draft: Draft) -> str:
        """Makes what was written a value; gives its name.

        Raises:
            OSError: that cannot be; then there is no such value.
        """
        name = draft.end()
        self._unsure.add(name)
        return name

    def write(self, value: bytes | memoryview) -> str:
        """Writes a value to a new file; gives its name.

        Raises:
            OSError: it cannot be written; then there is no such file.
        """
        draft = self.begin()
        draft.add(value)
        return self.end(draft)

    def read(self, name: str) -> bytes:
        """The value in a file.

        Raises:
            OSError: it cannot be read.
            ValueError: it is none of these files, or not what was written.
        """
        said = _NAME.fullmatch(name)
        if said is None:
            raise ValueError(f"{shown(name)} is no file of a value")
        value = (self._folder / name).read_bytes()
        if (len(value), zlib.crc32(value)) != (int(said[1]), int(said[2], 16)):
            raise ValueError(f"file {self._folder / name} is not what was written")
        return value

    def remove(self, names: Collection[str]) -> None:
        """Removes files; one that cannot be removed is left for ``keep_only``."""
        self._unsure.difference_update(names)
        for name in names:
            with suppress(OSError):
                (self._folder / name).unlink()

    def keep_only(self, names: Collection[str]) -> None:
        """Removes all others, as one that was written just before the process was killed."""
        self.remove({file.name for file in self._folder.iterdir()} - set(names))

    def sync(self) -> None:
        """Sees to it, as far as the disk does, that a power cut loses nothing of what was written so far."""
        unsure, self._unsure = self._unsure, set()
        for path in [self._folder / name for name in unsure] + [self._folder] * bool(unsure):
            with suppress(OSError):
                file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
                try:
                    os.fsync(file)
                finally:
                    os.close(file)
