"""A node's memory for large events: encoded into it once, and sent from there.

``submit`` copies a large event in here; peers on this host map the memory and are told where a block
is (``evflow.net.node.mapping``), others get the bytes over the network, from the same place. A block lasts as
long as an array, view or message refers to it, so it may be with several peers at the same time. The lowest
room that is large enough is taken, so that few blocks in use stay in few pages, which the caches then hold.

The memory is a file without a name in any folder: nothing is left when the process is killed. Whoever knows
the name that ``offer`` tells and belongs to the same user can read all of it. It is sealed against being cut,
and, where the system can, against being written to by others.
A connection over which memory was lent may end while its peer lives on and reads. So each connection has a
lease, one byte of the file that the reader locks for as long as it reads; also a killed process leaves it.
What was lent over a connection stays as long as its lease is held.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import mmap
import os
import secrets
import struct
from bisect import bisect
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from threading import Lock
from typing import Any, NamedTuple

import numpy as np

from evflow.disk import advice
from evflow.errors import LinkError
from evflow.events.gather import ByteArray, Place, address_of, interface_of, write_parts
from evflow.forked import renew

PREFIX = "evflow-"
"""How names begin; see ``Offer``."""

NONCE_BYTES = 16
"""Bytes of the nonce, with which the memory begins."""

HEADER = 64
"""Bytes before the first block: the nonce, and zeros."""

DEFAULT_SIZE = 96 << 20
"""Bytes of an arena, unless told otherwise. What is never used takes no memory."""

SEALS = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW
"""What can never happen to the memory: readers rely on its size."""

_SEAL_FUTURE_WRITE = 0x10
"""F_SEAL_FUTURE_WRITE, from Linux 5.1 on: nobody but who has the memory mapped already can write to it."""

PACE = 32 << 20
"""Bytes in use from which a submitter lets others go first: more would no longer be in the caches."""

_PAUSE = 0.01
"""Seconds that it waits at most for a block to become free."""

_PATIENCE = 1.0
"""Seconds to wait for other threads that take room, which is done in microseconds."""

_LOCK = struct.Struct("hhqqi4x")
"""Kind, whence, start, length, process; as ``fcntl`` has it."""

Part = bytes | bytearray | memoryview | np.ndarray[Any, Any]

_log = logging.getLogger("evflow.node")


class Offer(NamedTuple):
    """What a peer must know to map an arena.

    Attributes:
        name: ``evflow-<process id>-<file descriptor>-<lease>-<32 hexadecimal digits>``.
        size: bytes of the memory.
        nonce: the 16 bytes it begins with.
    """

    name: str
    size: int
    nonce: bytes


class FreeList:
    """The free list of an arena: regions in ascending order that never touch each other.

    Args:
        start: first free byte.
        end: the byte behind the last one.
    """

    def __init__(self, start: int, end: int) -> None:
        self._starts = [start] if end > start else []
        self._ends = [end] if end > start else []

    @property
    def free(self) -> int:
        """Bytes that are free."""
        return sum(self._ends) - sum(self._starts)

    @property
    def regions(self) -> list[tuple[int, int]]:
        """Start and end of each free region."""
        return list(zip(self._starts, self._ends, strict=True))

    def take(self, length: int) -> int | None:
        """Takes the lowest ``length`` bytes that are free in one piece; None if there are none."""
        starts, ends = self._starts, self._ends
        for position, start in enumerate(starts):
            left = ends[position] - start - length
            if left > 0:
                starts[position] = start + length
                return start
            if left == 0:
                del starts[position], ends[position]
                return start
        return None

    def give(self, start: int, length: int) -> None:
        """Gives back what was taken."""
        starts, ends = self._starts, self._ends
        end = start + length
        position = bisect(starts, start)
        joins_before = position > 0 and ends[position - 1] == start
        joins_after = position < len(starts) and starts[position] == end
        if joins_before and joins_after:
            ends[position - 1] = ends[position]
            del starts[position], ends[position]
        elif joins_before:
            ends[position - 1] = end
        elif joins_after:
            starts[position] = start
        else:
            starts.insert(position, start)
            ends.insert(position, end)


class Arena:
    """Memory of a node that its peers on this host can map. For any number of threads.

    Args:
        size: bytes of the memory, which is made when first used.

    Raises:
        LinkError: ``size`` is less than 4096.
    """

    def __init__(self, size: int = DEFAULT_SIZE) -> None:
        self._file: int | None = None
        if size < 4096:
            raise LinkError(f"shared memory of {size} bytes: expected a size of 4096 or more")
        self._size = size
        self._tried = self._told = False
        self._digits, self._nonce = secrets.token_hex(16), secrets.token_bytes(NONCE_BYTES)
        self._leases = 0
        self._left: list[tuple[int, list[ByteArray]]] = []
        self._bytes: ByteArray | None = None
        self._address = 0
        self._free_list = FreeList(0, 0)
        self._taken = 0
        self._used = 0
        self._parked = 0
        # Places given back, by whatever thread; whoever takes room next puts them together.
        self._returned: deque[tuple[int, int]] = deque()
        self._freed = Lock()
        self._freed.acquire()
        self._lock = Lock()

    def offer(self) -> Offer | None:
        """What to tell a peer, each time with a new lease; makes the memory if need be.

        Returns:
            None where memory cannot be shared, or after ``close``.
        """
        with self._lock:
            self._make_once()
            if self._file is None:
                return None
            self._leases += 1
            name = f"{PREFIX}{os.getpid()}-{self._file}-{self._leases}-{self._digits}"
            return Offer(name, self._size, self._nonce)

    def leave(self, offer: Offer, blocks: list[ByteArray]) -> None:
        """The connection of an offer has ended while its peer has blocks; they stay until it is done."""
        lease = int(offer.name.split("-")[3])
        with self._lock:
            self._left.append((lease, blocks))
            self._forget_left()

    def _forget_left(self) -> None:
        file = self._file
        self._left = [] if file is None else [left for left in self._left if is_leased(file, left[0])]

    def _make_once(self) -> None:
        if self._tried:
            return
        try:
            mapped = self._shared()
        except OSError as error:
            if not self._told:
                self._told = True
                _log.warning(
                    "there is no memory to share, so large events go over the connections: %s; %s",
                    error, advice(error),
                )  # fmt: skip
            if error.errno in (errno.EMFILE, errno.ENFILE):
                # Whoever asks next tries again.
                return
            mapped = mmap.mmap(-1, self._size)
        self._tried = True
        self._bytes = np.frombuffer(mapped, np.uint8)
        self._address = self._bytes.ctypes.data
        self._bytes[:NONCE_BYTES] = np.frombuffer(self._nonce, np.uint8)
        self._free_list = FreeList(HEADER, self._size)

    def _shared(self) -> mmap.mmap:
        self._file = os.memfd_create(PREFIX + self._digits, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(self._file, self._size)
            mapped = mmap.mmap(self._file, self._size, flags=mmap.MAP_SHARED)
            with suppress(OSError):
                # Older systems do not have it.
                fcntl.fcntl(self._file, fcntl.F_ADD_SEALS, _SEAL_FUTURE_WRITE)
            fcntl.fcntl(self._file, fcntl.F_ADD_SEALS, SEALS)
            return mapped
        except OSError:
            self._close_file()
            raise

    def hold(self, parts: Sequence[Part]) -> ByteArray | None:
        """Copies buffers back to back into a free place; other threads run meanwhile.

        Args:
            parts: anything contiguous that exports its bytes, arrays of any dtype included.

        Returns:
            uint8, 1-D, not writeable. The place is free again when nothing refers to it any more. None if
            there is no room, or no memory.
        """
        sources = [np.frombuffer(part, np.uint8) for part in parts]
        place = self.reserve(sum(map(len, sources)))
        if place is None:
            return None
        write_parts(place.target, sources)
        return place.held

    def reserve(self, length: int) -> Place | None:
        """A free place of so many bytes, to be written into.

        Returns:
            None if there is no room, or no memory.
        """
        # Without a gap between, since then several blocks make one frame as they are.
        taken = max(1, length)
        place = self._take(taken)
        if place is None:
            return None
        memory, offset = place
        held = np.asarray(
            _Held(memory, self._address + offset, length, (offset, taken), self._returned, self._freed)
        )
        return Place(memory[offset : offset + length], held)

    def spare(self, length: int) -> Place | None:
        """A free place to be kept for a while, as ``reserve`` gives it; half of the memory is left to others.

        Returns:
            None if there is no such room, or no memory.
        """
        place = self.reserve(length)
        return place if self._used <= self._size // 2 else None

    def pace(self, length: int) -> None:
        """Waits a moment if much is in use before so many bytes are reserved, so that pages are used again
        while they are in the caches; not for the thread that sends."""
        while self._used + length > self._parked + PACE:
            if not self._lock.acquire(timeout=_PATIENCE):
                return
            self._collect()
            self._lock.release()
            if self._used + length <= max(self._parked + PACE, 2 * length):
                return
            if not self._freed.acquire(timeout=_PAUSE):
                # It is kept somewhere, or a peer is slow: no use in waiting for that again.
                self._parked = self._used
                return

    def _take(self, length: int) -> tuple[ByteArray, int] | None:
        # The thread may have the lock: the garbage collector can run anything, even while room is taken.
        if not self._lock.acquire(timeout=_PATIENCE):
            return None
        try:
            if not self._tried:
                self._make_once()
            target = self._bytes
            if target is None:
                return None
            if self._returned:
                self._collect()
            offset = self._free_list.take(length)
            if offset is None and self._left:
                self._forget_left()
                self._collect()
                offset = self._free_list.take(length)
            if offset is None:
                return None
            self._taken += 1
            self._used += length
            return target, offset
        finally:
            self._lock.release()

    def _collect(self) -> None:
        while self._returned:
            offset, length = self._returned.popleft()
            self._free_list.give(offset, length)
            self._taken -= 1
            self._used -= length
        self._parked = min(self._parked, self._used)

    def offset_of(self, block: ByteArray) -> int | None:
        """Where bytes that ``hold`` has given, or a part of them, stand; None if they are elsewhere."""
        offset = address_of(block) - self._address
        inside = self._bytes is not None and offset >= HEADER and offset + len(block) <= self._size
        return offset if inside else None

    @property
    def held(self) -> int:
        """Blocks in use."""
        with self._lock:
            self._forget_left()
            self._collect()
            return self._taken

    @property
    def free(self) -> int:
        """Bytes that are free, in one piece or several; 0 if there is no memory (yet)."""
        with self._lock:
            self._collect()
            return self._free_list.free

    def forsake(self) -> None:
        """In a fork: the memory is the parent's, so there is none to write to."""
        renew(self._lock, self._freed)
        self._freed.acquire()
        self.close()

    def close(self) -> None:
        """No more blocks. Those there are stay as they are, also with peers that have mapped the memory."""
        with self._lock:
            self._tried = True
            self._left = []
            self._bytes = None
            self._free_list = FreeList(0, 0)
            self._returned = deque()
            self._taken = self._used = self._parked = 0
            self._close_file()

    def _close_file(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def __del__(self) -> None:
        self._close_file()


class _Held:
    """What everything that refers to a block keeps alive. It ends in whatever thread lets go last, perhaps
    inside of the garbage collector, so it takes no lock and calls no one."""

    __slots__ = ("__array_interface__", "_freed", "_memory", "_place", "_returned")

    def __init__(
        self,
        memory: ByteArray,
        address: int,
        length: int,
        place: tuple[int, int],
        returned: deque[tuple[int, int]],
        freed: Lock,
    ) -> None:
        self._memory, self._place, self._returned, self._freed = memory, place, returned, freed
        self.__array_interface__ = interface_of(address, length)

    def __del__(self) -> None:
        self._returned.append(self._place)
        # Locked means that somebody may wait; releasing never waits.
        if self._freed.locked():
            with suppress(RuntimeError):
                self._freed.release()


class Lease:
    """A lease of a reader, held until this object is gone.

    Args:
        descriptor: the open file; from now on it is this object's.
        number: the number of the lease.

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


def is_leased(descriptor: int, number: int) -> bool:
    """True if a reader holds a lease of an open file."""
    asked = _LOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, number, 1, 0)
    try:
        answer: bytes = fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, asked)
    except OSError:
        # Where there are no locks nobody holds one.
        return False
    return int(_LOCK.unpack(answer)[0]) != fcntl.F_UNLCK
