"""Who still has shared memory mapped: a lock for each reader, which the system takes back when it ends.

A connection over which memory was lent may end while the reader lives on and reads. So each connection has a
seat, one byte of the file that the reader locks for as long as it reads; also a killed process leaves it.
"""

from __future__ import annotations

import fcntl
import os
import struct

__all__ = ["Seat", "seat_taken"]

_LOCK = struct.Struct("hhqqi4x")
"""Kind, whence, start, length, process; as ``fcntl`` has it."""


class Seat:
    """A seat that is taken until this object is gone.

    Args:
        descriptor: the open file; from now on it is this object's.
        number: the seat's.

    Raises:
        OSError: locks are not to be had here; the file is closed.
    """

    def __init__(self, descriptor: int, number: int) -> None:
        self._descriptor = descriptor
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _LOCK.pack(fcntl.F_RDLCK, os.SEEK_SET, number, 1, 0))

    def read(self, into: memoryview, offset: int) -> int:
        """Copies bytes of the file from an offset on; returns how many.

        Raises:
            OSError: the system refuses.
        """
        return os.preadv(self._descriptor, [into], offset)

    def __del__(self) -> None:
        os.close(self._descriptor)


def seat_taken(descriptor: int, number: int) -> bool:
    """Whether somebody has a seat of an open file."""
    asked = _LOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, number, 1, 0)
    try:
        answer: bytes = fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, asked)
    except OSError:
        # Where there are no locks nobody has been seated.
        return False
    return int(_LOCK.unpack(answer)[0]) != fcntl.F_UNLCK
