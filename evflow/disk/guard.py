"""A number beside a log that says how many changes the log has to have at least.

A log cannot tell that it has lost its end: that looks as after a kill. So who must never forget a change
notes its number here too. The file has two slots, which are written in turn, so that a slot that is torn or
damaged leaves the other.
"""

from __future__ import annotations

import os
import struct
import zlib
from pathlib import Path

from evflow.disk.lock import private_file, read_file

_SLOT = struct.Struct("<8sQ")
_SUM = struct.Struct("<I")
_MAGIC = b"evflowg1"
_STEP = 512
"""Bytes from slot to slot: a sector is written as a whole."""


class Guard:
    """The number of the latest change.

    Args:
        path: the file.

    Attributes:
        path: the file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> int | None:
        """The number; None if there is no file.

        Raises:
            ValueError: both slots are damaged.
            OSError: the file cannot be read.
        """
        try:
            data = read_file(self.path, 2 * _STEP)[1]
        except FileNotFoundError:
            return None
        found = [number for at in (0, _STEP) if (number := _number(data[at : at + _STEP])) is not None]
        if not found:
            raise ValueError(f"file {self.path} is not what was written")
        return max(found)

    def begin(self) -> None:
        """Makes the file, for a log that has no changes.

        Raises:
            OSError: it cannot be written.
        """
        made = self.path.with_name(f"{self.path.name}.new")
        made.unlink(missing_ok=True)
        private_file(made)
        made.write_bytes(_slot(0).ljust(_STEP, b"\0") + _slot(0))
        made.replace(self.path)

    def write(self, number: int) -> None:
        """Notes a change.

        Raises:
            OSError: it cannot be written.
        """
        # It needs no fsync: the log has the change on the disk by now, and may be ahead of this.
        file = os.open(self.path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.pwrite(file, _slot(number), number % 2 * _STEP)
        finally:
            os.close(file)


def _slot(number: int) -> bytes:
    slot = _SLOT.pack(_MAGIC, number)
    return slot + _SUM.pack(zlib.crc32(slot))


def _number(data: bytes) -> int | None:
    """What a slot says; None if it is damaged."""
    slot, end = data[: _SLOT.size], data[_SLOT.size : _SLOT.size + _SUM.size]
    if len(end) < _SUM.size or _SUM.unpack(end)[0] != zlib.crc32(slot):
        return None
    magic, number = _SLOT.unpack(slot)
    return int(number) if magic == _MAGIC else None
