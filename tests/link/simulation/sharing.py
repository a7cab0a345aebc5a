"""Simulated shared memory: bytes that a sender writes and a receiver reads in place.

A block that is released is overwritten at once, so whoever reads it still finds other bytes.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

import numpy as np

from evflow.errors import LinkError
from evflow.net.node.arena import FreeList

if TYPE_CHECKING:
    from tests.link.simulation.network import Network

__all__ = ["Sharing"]

_NOBODYS = 0xEE


class Arena:
    """The memory for what one end sends: uint8, with the blocks in use by number."""

    def __init__(self, size: int) -> None:
        self.bytes = np.full(size, _NOBODYS, np.uint8)
        self.room = FreeList(0, size)
        self.blocks: dict[int, tuple[int, int]] = {}
        self.last = 0


class Sharing:
    """Shared memory of one connection, one end of it; as ``evflow.net.node.mapping``."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self._arena: Arena | None = None
        self._usable = False
        self._mapped: Arena | None = None
        self._live: set[int] = set()
        self._released: deque[int] = deque()

    def offer(self) -> tuple[str, int, bytes] | None:
        size = self._network.manner.shared_memory
        if not size:
            return None
        name = f"arena {self._network.number()}"
        self._arena = self._network.arenas[name] = Arena(size)
        self._usable = False
        return name, size, bytes(16)

    def opened(self, usable: bool) -> None:
        self._usable = usable and self._arena is not None

    def place(self, body: memoryview) -> list[int] | None:
        arena = self._arena
        if not self._usable or arena is None:
            return None
        offset = arena.room.take(len(body))
        if offset is None:
            return None
        arena.last += 1
        arena.blocks[arena.last] = (offset, len(body))
        arena.bytes[offset : offset + len(body)] = np.frombuffer(body, np.uint8)
        return [arena.last, offset, len(body)]

    def release(self, blocks: list[int]) -> None:
        for number in blocks:
            place = None if self._arena is None else self._arena.blocks.pop(number, None)
            if place is not None and self._arena is not None:
                offset, length = place
                self._arena.bytes[offset : offset + length] = _NOBODYS
                self._arena.room.give(offset, length)

    def open(self, name: str) -> bool:
        if self._mapped is not None or self._network.random.random() >= self._network.manner.opens:
            return False
        self._mapped = self._network.arenas[name]
        return True

    def view(self, place: list[int]) -> Any:
        number, offset, length = place
        if self._mapped is None:
            raise LinkError("a frame in shared memory: there is none with this peer")
        if number in self._live:
            raise LinkError(f"block {number} came again while it is in use")
        self._live.add(number)
        return np.asarray(_Held(self._mapped.bytes, number, offset, length, self._live, self._released))

    def released(self) -> list[int]:
        numbers = list(self._released)
        self._released.clear()
        return numbers

    def close(self) -> None:
        self._arena = self._mapped = None
        self._usable = False


class _Held:
    """What every view of a block keeps alive; when the last is gone the block is released."""

    def __init__(
        self, memory: Any, number: int, offset: int, length: int, live: set[int], released: deque[int]
    ) -> None:
        self._memory, self._number = memory, number
        self._live, self._released = live, released
        self.__array_interface__ = {
            "version": 3,
            "shape": (length,),
            "typestr": "|u1",
            "data": (memory.ctypes.data + offset, True),
        }

    def __del__(self) -> None:
        self._live.discard(self._number)
        self._released.append(self._number)
