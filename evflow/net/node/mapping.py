"""Shared memory with one peer: what it has of the node's arena, and the peer's arena, which is mapped.

What numpy makes of a view, and of that, refers to one object for each block. When the last of them is gone
that object is too, and the block's number waits to be told to the sender, who may then write there again.
Views outlive everything: the mapping, the arena and the sender.

The peer can write to its arena at any time. The mapping is a private one: a page that is written to here
becomes this process's own, and shows from then on what it showed then. ``keep`` does that to the pages of a
block that have to stay as they were checked; all others show what the peer has.
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
from evflow.events.gather import ByteArray, address_of, interface_of
from evflow.net.node.arena import HEADER, NONCE_BYTES, PREFIX, SEALS, Arena, Lease, Offer

_NAME = re.compile(
    PREFIX + "([1-9][0-9]{0,9})-(0|[1-9][0-9]{0,9})-([1-9][0-9]{0,15})-([0-9a-f]{32})", re.ASCII
)

PROCESSES = "/proc"
"""Where the processes' open files are."""

_PAGE = mmap.PAGESIZE

_MOST_OWN = 256
"""Pages from which those that no block keeps any more are given back."""

_Memory = tuple[mmap.mmap, memoryview, Lease]

_log = logging.getLogger("evflow.node")


class Mapping:
    """A peer's arena, mapped; made by ``Mapping.open``. ``view`` and ``released`` are for one thread.

    Args:
        memory: all of it, mapped so that what is written here is seen here only.
        name: its name, for errors.
        lease: tells the sender that this memory is read, until the last view is gone.
    """

    def __init__(self, memory: mmap.mmap, name: str, lease: Lease) -> None:
        self._memory: _Memory | None = (memory, memoryview(memory), lease)
        self._name = name
        self._size = len(memory)
        self._address = address_of(np.frombuffer(memory, np.uint8))
        self._live: dict[int, _Block] = {}
        self._released: deque[_Block] = deque()
        # By page that is this process's own, how many blocks keep it.
        self._own: dict[int, int] = {}

    @classmethod
    def open(cls, name: str, size: int, nonce: bytes) -> Mapping | None:
        """Maps what a peer offers; the arguments may be anything that a peer could say.

        Args:
            name: process, file, lease and digits; see ``Offer``.
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
                f"{PREFIX}<process>-<file>-<lease>-<32 hexadecimal digits>, more than {HEADER} bytes "
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
            lease = Lease(descriptor, int(number))
            _check_title(f"{PROCESSES}/self/fd/{descriptor}", title)
            _check(descriptor, name, size, nonce)
            memory = mmap.mmap(descriptor, size, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE)
        except (OSError, ValueError) as error:
            _log.info("shared memory %s is not used: %s", name, error)
            return None
        return cls(memory, name, lease)

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
        block = self._live[number] = _Block(number, offset, offset + length)
        if self._own:
            self._refresh(block)
        address = self._address + offset
        return np.asarray(_Held(memory, block, address, length, self._live, self._released))

    def _refresh(self, block: _Block) -> None:
        """Lets pages show what is in the block, where they show what was there before."""
        first, last = block.offset // _PAGE, max(block.offset, block.end - 1) // _PAGE
        # Another block may be on the outer ones.
        if first in self._own:
            self._keep(block, first, first + 1)
        if last != first and last in self._own:
            self._keep(block, last, last + 1)
        for page in self._own.keys() & range(first + 1, last):
            if not self._own[page]:
                self._give_up(page)

    def keep(self, number: int, start: int, stop: int) -> None:
        """From now on a part of a block stays as it is, whatever the peer does.

        Args:
            number: the block's, which is in use.
            start: offset in the block.
            stop: offset of the end; what is behind the block is left out.

        Raises:
            OSError: the system refuses; the part may change.
        """
        block = self._live[number]
        first = (block.offset + start) // _PAGE
        behind = (min(block.offset + stop, block.end) + _PAGE - 1) // _PAGE
        while first < behind:
            # What the block keeps already is never read again.
            if first in block.pages:
                first += 1
                continue
            last = next((page for page in range(first, behind) if page in block.pages), behind)
            self._keep(block, first, last)
            first = last

    def _keep(self, block: _Block, first: int, behind: int) -> None:
        if self._memory is None:
            return
        memory, lease = self._memory[1:]
        start = max(block.offset, first * _PAGE)
        size = min(block.end, behind * _PAGE) - start
        read = lease.read(memory[start : start + size], start)
        if read < size:
            raise OSError(errno.EIO, f"expected {size} bytes from {start}, found {read}", self._name)
        for page in range(first, behind):
            block.pages.add(page)
            self._own[page] = self._own.get(page, 0) + 1

    def released(self) -> list[int]:
        """Takes out the numbers of the blocks that were released since the last call, in order."""
        numbers = []
        while self._released:
            block = self._released.popleft()
            numbers.append(block.number)
            for page in block.pages:
                self._own[page] -= 1
        # To be this process's own again costs a page more than to be read again.
        if len(self._own) > _MOST_OWN:
            for page in [page for page, blocks in self._own.items() if not blocks]:
                self._give_up(page)
        return numbers

    def _give_up(self, page: int) -> None:
        del self._own[page]
        if self._memory is not None:
            self._memory[0].madvise(mmap.MADV_DONTNEED, page * _PAGE, _PAGE)

    @property
    def held(self) -> int:
        """Blocks that are in use."""
        return len(self._live)

    def close(self) -> None:
        """No more views; those there are stay valid, and the memory stays mapped until the last is gone."""
        self._memory = None


class _Block:
    """A block in use.

    Attributes:
        number: names it to the sender.
        offset: of its first byte in the memory.
        end: of the byte behind its last one.
        pages: those that it keeps.
    """

    __slots__ = ("end", "number", "offset", "pages")

    def __init__(self, number: int, offset: int, end: int) -> None:
        self.number, self.offset, self.end = number, offset, end
        self.pages: set[int] = set()


class _Held:
    """What every view of a block keeps alive. It ends in whatever thread drops the last view, perhaps inside
    of the garbage collector, so it takes no lock and calls no one."""

    __slots__ = ("_address", "_block", "_length", "_live", "_memory", "_released")

    def __init__(
        self,
        memory: _Memory,
        block: _Block,
        address: int,
        length: int,
        live: dict[int, _Block],
        released: deque[_Block],
    ) -> None:
        self._memory = memory
        self._block, self._address, self._length = block, address, length
        self._live, self._released = live, released

    @property
    def __array_interface__(self) -> dict[str, Any]:
        return interface_of(self._address, self._length)

    def __del__(self) -> None:
        self._live.pop(self._block.number, None)
        self._released.append(self._block)


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


class Sharing:
    """Shared memory of one connection.

    Args:
        arena: the node's; None to use none.
    """

    def __init__(self, arena: Arena | None) -> None:
        self._arena = arena
        self._usable = False
        # What the peer uses, by the number that it is told.
        self._lent: dict[int, ByteArray] = {}
        self._last = 0
        self._offer: Offer | None = None
        self._mapping: Mapping | None = None

    def offer(self) -> tuple[str, int, bytes] | None:
        """The memory for what is sent: name, size, nonce; None if there is none. A session begins."""
        self._leave()
        self._offer = None if self._arena is None else self._arena.offer()
        return self._offer

    def _leave(self) -> None:
        # Nobody releases any more what was lent, but the peer may be reading it.
        self._usable = False
        if self._arena is not None and self._offer is not None and self._lent:
            self._arena.leave(self._offer, list(self._lent.values()))
        self._lent.clear()

    def opened(self, usable: bool) -> None:
        """The peer has opened the memory, or cannot."""
        self._usable = usable

    def place(self, body: memoryview) -> list[int] | None:
        """Lends bytes to the peer, which are copied unless they lie in the arena: number, offset, length.

        Returns:
            None if the peer cannot see them, or there is no room.
        """
        if not self._usable or self._arena is None:
            return None
        block: ByteArray = np.frombuffer(body, np.uint8)
        offset = self._arena.offset_of(block)
        if offset is None:
            copied = self._arena.hold([body])
            if copied is None:
                return None
            block, offset = copied, self._arena.offset_of(copied)
        if offset is None:
            return None
        self._last += 1
        self._lent[self._last] = block
        return [self._last, offset, len(block)]

    def release(self, blocks: list[int]) -> None:
        """The peer does not use these blocks any more; it may name some that it does not have."""
        for number in blocks:
            self._lent.pop(number, None)

    @property
    def lent(self) -> int:
        """Blocks that the peer uses."""
        return len(self._lent)

    def open(self, name: str, size: int, nonce: bytes) -> bool:
        """Opens the peer's memory; False if there is none, as on another host.

        Raises:
            LinkError: it is not one that may be opened.
        """
        if self._arena is None:
            return False
        if self._mapping is not None:
            self._mapping.close()
        self._mapping = Mapping.open(name, size, nonce)
        return self._mapping is not None

    def view(self, place: list[int]) -> Any:
        """What the peer has placed.

        Raises:
            LinkError: there is no such place.
        """
        if self._mapping is None:
            raise LinkError("a frame in shared memory: there is none with this peer")
        return self._mapping.view(*place)

    def keep(self, number: int, start: int, stop: int) -> None:
        """From now on the peer cannot change a part of a block that is viewed; see ``Mapping.keep``.

        Raises:
            OSError: the system refuses.
        """
        if self._mapping is not None:
            self._mapping.keep(number, start, stop)

    def released(self) -> list[int]:
        """Blocks of the peer that are no longer used here."""
        return [] if self._mapping is None else self._mapping.released()

    def close(self) -> None:
        """Ends it; what is in use here stays readable."""
        self._leave()
        if self._mapping is not None:
            self._mapping.close()
