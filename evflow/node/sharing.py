"""Shared memory with one peer: what it has of the node's arena, and a mapping of the peer's."""

from __future__ import annotations

from typing import Any

import numpy as np

from evflow.errors import LinkError
from evflow.events.gather import ByteArray
from evflow.node.arena import Arena, Offer
from evflow.node.mapping import Mapping

__all__ = ["Sharing"]


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
            LinkError: it is none that may be opened.
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
