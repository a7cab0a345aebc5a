"""Shared memory, the receiver's side: a peer's arena is mapped read-only, and its blocks are viewed in place.

What numpy makes of a view, and of that, refers to one object for each block. When the last of them is gone
that object is too, and the block's number waits to be told to the sender, who may then write there again.
Views outlive everything: the mapping, the arena and the sender.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import mmap
import os
import re
from collections import deque
from typing import Any

import numpy as np

from evflow.errors import LinkError
from evflow.events.gather import ByteArray, interface_of
from evflow.node.arena import HEADER, NONCE_BYTES, PREFIX, SEALS
from evflow.node.seats import Seat

__all__ = ["Mapping"]

_NAME = re.compile(
    PREFIX + "([1-9][0-9]{0,9})-(0|[1-9][0-9]{0,9})-([1-9][0-9]{0,15})-([0-9a-f]{32})", re.ASCII
)

PROCESSES = "/proc"
"""Where the processes' open files are."""

_log = logging.getLogger("evflow.node")


class Mapping:
    """A peer's arena, mapped; made by ``Mapping.open``. ``view`` and ``released`` are for one thread.

    Args:
        memory: all of it, read-only.
        name: its name, for errors.
        seat: tells the sender that this memory is read, until the last view is gone.
    """

    def __init__(self, memory: ByteArray, name: str, seat: Seat) -> None:
        self._memory: tuple[ByteArray, Seat] | None = (memory, seat)
        self._name = name
        self._size = len(memory)
        self._address: int = memory.ctypes.data
        self._live: set[int] = set()
        self._released: deque[int] = deque()

    @classmethod
    def open(cls, name: str, size: int, nonce: bytes) -> Mapping | None:
        """Maps what a peer offers; the arguments may be anything that a peer could say.

        Args:
            name: process, file, seat and digits; see ``Offer``.
            size: bytes of the memory.
            nonce: the 16 bytes it must begin with.

        Returns:
            None if that process has no such arena, belongs to another user, or the arena cannot be mapped for
            lack of something: the peer runs on another host, in another container or as another user, and
            shared memory is not for this link. The reason is logged.

        Raises:
            LinkError: no honest peer offers this: a name that no arena has, an arena that is too small or can
                be cut, or one that does not begin with the nonce.
        """
        parts = _NAME.fullmatch(name)
        if parts is None or size <= HEADER or len(nonce) != NONCE_BYTES:
            raise LinkError(
                f"shared memory {name[:80]!r} of {size} bytes with a nonce of {len(nonce)}: expected a name "
                f"{PREFIX}<process>-<file>-<seat>-<32 hexadecimal digits>, more than {HEADER} bytes "
                f"and a nonce of {NONCE_BYTES}; refuse the peer"
            )
        process, file, number, digits = parts.groups()
        path, title = f"{PROCESSES}/{process}/fd/{file}", f"/memfd:{PREFIX}{digits} (deleted)"
        try:
            # First by its title: merely opening some other file of that process could do something.
            _check_title(path, title)
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
        except OSError as error:
            _log.info("shared memory is not used: %s", error)
            return None
        try:
            seat = Seat(descriptor, int(number))
            _check_title(f"{PROCESSES}/self/fd/{descriptor}", title)
            _check(descriptor, name, size, nonce)
            memory = mmap.mmap(descriptor, size, flags=mmap.MAP_SHARED, prot=mmap.PROT_READ)
        except (OSError, ValueError) as error:
            _log.info("shared memory %s is not used: %s", name, error)
            return None
        return cls(np.frombuffer(memory, np.uint8), name, seat)

    def view(self, number: int, offset: int, length: int) -> ByteArray:
        """The bytes of a block, without a copy.

        Args:
            number: names the block to the sender.
            offset: of its first byte in the memory.
            length: bytes.

        Returns:
            uint8, 1-D, not writeable. The block counts as released when nothing refers to it any more.

        Raises:
            LinkError: it is not all within the memory behind the header; the number's block is in use; or the
                mapping is closed. Nothing is released then.
        """
        memory = self._memory
        if memory is None:
            raise LinkError(f"shared memory {self._name} is closed; map it again")
        if offset < HEADER or length < 0 or offset + length > self._size:
            raise LinkError(
                f"block {number} of shared memory {self._name}: expected bytes from {HEADER} to "
                f"{self._size}, found {length} bytes from {offset}; refuse the peer"
            )
        if number in self._live:
            raise LinkError(
                f"block {number} of shared memory {self._name} came again while it is in use: expected each "
                "number once; refuse the peer"
            )
        self._live.add(number)
        address = self._address + offset
        return np.asarray(_Held(memory, number, address, length, self._live, self._released))

    def released(self) -> list[int]:
        """Takes out the numbers of the blocks that were released since the last call, in order."""
        numbers = []
        while self._released:
            numbers.append(self._released.popleft())
        return numbers

    @property
    def held(self) -> int:
        """Blocks that are in use."""
        return len(self._live)

    def close(self) -> None:
        """No more views; those there are stay valid, and the memory stays mapped until the last is gone."""
        self._memory = None


class _Held:
    """What every view of a block keeps alive. It ends in whatever thread drops the last view, perhaps inside
    of the garbage collector, so it takes no lock and calls no one."""

    __slots__ = ("_address", "_length", "_live", "_memory", "_number", "_released")

    def __init__(
        self,
        memory: tuple[ByteArray, Seat],
        number: int,
        address: int,
        length: int,
        live: set[int],
        released: deque[int],
    ) -> None:
        self._memory = memory
        self._number, self._address, self._length = number, address, length
        self._live, self._released = live, released

    @property
    def __array_interface__(self) -> dict[str, Any]:
        return interface_of(self._address, self._length)

    def __del__(self) -> None:
        self._live.discard(self._number)
        self._released.append(self._number)


def _check_title(path: str, expected: str) -> None:
    title = os.readlink(path)
    if title != expected:
        raise FileNotFoundError(errno.ENOENT, f"expected {expected}, found {title}", path)


def _check(descriptor: int, name: str, size: int, nonce: bytes) -> None:
    status = os.fstat(descriptor)
    if status.st_uid != os.geteuid():
        raise PermissionError(errno.EPERM, f"it belongs to user {status.st_uid}")
    if status.st_size < size:
        raise _refusal(name, f"at least {size} bytes", f"{status.st_size}")
    # Reading behind the end of a memory that was cut would kill the process.
    if fcntl.fcntl(descriptor, fcntl.F_GET_SEALS) & SEALS != SEALS:
        raise _refusal(name, "seals against cutting", "none")
    if os.pread(descriptor, NONCE_BYTES, 0) != nonce:
        raise _refusal(name, "the nonce that the peer told", "another")


def _refusal(name: str, expected: str, found: str) -> LinkError:
    return LinkError(f"shared memory {name}: expected {expected}, found {found}; refuse the peer")
