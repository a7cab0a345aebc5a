"""Values of megabytes, each in a file of its own, which are written as they come.

The name of a file says what is in it, so whoever keeps the name can tell whether the file is whole. A kill of
the process loses nothing that was written; against a power cut there is ``sync``.
"""

from __future__ import annotations

import mmap
import os
import re
import zlib
from collections.abc import Collection
from contextlib import suppress
from io import FileIO
from pathlib import Path
from weakref import finalize

import numpy as np

from evflow.disk.lock import private_folder
from evflow.disk.log import sync_file
from evflow.outside import shown

_NAME = re.compile("[0-9a-f]{16}-([0-9]{1,18})-([0-9a-f]{8})")
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC


class Growing:
    """A value that comes bit by bit, in memory and in a file that goes with this object until it is kept.

    Args:
        total: its bytes.
        folder: where its file is; None for no file.

    Attributes:
        size: bytes that have come.

    Example:
        >>> value = Growing(5)
        >>> value.add(b"abc")
        >>> value.add(b"de")
        >>> bytes(value.data), value.size
        (b'abcde', 5)
    """

    def __init__(self, total: int, folder: Path | None = None) -> None:
        self.size = 0
        # Unlike that of a bytearray its memory is not touched before something comes.
        self._data = np.empty(total, np.uint8).data
        self._sum = 0
        self._file: FileIO | None = None
        if folder is not None:
            self._path = folder / os.urandom(8).hex()
            # Who keeps the value will write it, and be told why that cannot be.
            with suppress(OSError):
                self._file = FileIO(os.open(self._path, _NEW, 0o600), "w")
                self._drop = finalize(self, _remove, self._file, self._path)

    @property
    def data(self) -> memoryview:
        """All of it; what has not come yet is anything."""
        return self._data.toreadonly()

    def add(self, part: bytes | memoryview) -> None:
        """Takes what comes next; there must be room for it."""
        end = self.size + len(part)
        self._data[self.size : end] = part
        self.size = end
        if self._file is not None:
            try:
                self._write(self._file, memoryview(part))
            except OSError:
                self._file = None

    def _write(self, file: FileIO, rest: memoryview) -> None:
        self._sum = zlib.crc32(rest, self._sum)
        while rest:
            rest = rest[file.write(rest) :]

    def keep(self) -> str | None:
        """Keeps the file of a value that is whole.

        Returns:
            The name that it has from now on; None if there is no whole file.

        Raises:
            OSError: it cannot be kept.
        """
        if self._file is None:
            return None
        name = f"{self._path.name}-{self.size}-{self._sum:08x}"
        self._path.rename(self._path.with_name(name))
        self._drop.detach()
        self._file.close()
        return name


def _remove(file: FileIO, path: Path) -> None:
    file.close()
    path.unlink(missing_ok=True)


def size_of(name: str) -> int:
    """The bytes of the value in a file of this name.

    Raises:
        ValueError: it is not the name of such a file.

    Example:
        >>> size_of("0123456789abcdef-5-8587d865")
        5
    """
    said = _NAME.fullmatch(name)
    if said is None:
        raise ValueError(f"{shown(name)} is not a file of a value")
    return int(said[1])


class Blobs:
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

    def growing(self, total: int) -> Growing:
        """A value of so many bytes that comes bit by bit."""
        return Growing(total, self._folder)

    def write(self, value: bytes | memoryview | Growing) -> str:
        """Writes a value to a new file, if it has none yet; gives its name.

        Raises:
            OSError: it cannot be written; then there is no such file.
        """
        name = value.keep() if isinstance(value, Growing) else None
        if name is None:
            data = value.data if isinstance(value, Growing) else memoryview(value)
            name = f"{os.urandom(8).hex()}-{len(data)}-{zlib.crc32(data):08x}"
            try:
                with FileIO(os.open(self._folder / name, _NEW, 0o600), "w") as file:
                    while data:
                        data = data[file.write(data) :]
            except OSError:
                self.remove([name])
                raise
        self._unsure.add(name)
        return name

    def read(self, name: str) -> bytes:
        """The value in a file.

        Raises:
            OSError: it cannot be read.
            ValueError: it is none of these files, or not what was written.
        """
        return bytes(self.mapped(name))

    def mapped(self, name: str) -> memoryview:
        """The value in a file, in memory that is the file's own; it stays when the file is removed.

        Raises:
            OSError: it cannot be read.
            ValueError: it is none of these files, or not what was written.
        """
        size = size_of(name)
        with (self._folder / name).open("rb") as file:
            whole = size and os.fstat(file.fileno()).st_size == size
            value = memoryview(mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) if whole else b"")
        if (len(value), f"{zlib.crc32(value):08x}") != (size, name[-8:]):
            raise ValueError(f"file {self._folder / name} is not what was written")
        return value

    def whole(self) -> set[str]:
        """The files that are there, and as long as they should be.

        Raises:
            OSError: the folder cannot be read.
        """
        found = ((file, _NAME.fullmatch(file.name)) for file in os.scandir(self._folder))
        return {file.name for file, said in found if said and file.stat().st_size == int(said[1])}

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
                sync_file(path)
