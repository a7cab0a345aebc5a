"""An arena and what of it is lent to one peer, for the tests of shared memory."""

from __future__ import annotations

import random
from typing import Any, NamedTuple

from evflow.net.node.arena import Arena, Offer
from evflow.net.node.mapping import Mapping, Sharing

KIB = 1024


class Block(NamedTuple):
    """What a peer is told of a block."""

    number: int
    offset: int
    length: int


class Lender:
    """An arena, and what of it is lent to one peer."""

    def __init__(self, size: int) -> None:
        self.arena = Arena(size)
        self.sharing = Sharing(self.arena)
        offer = self.sharing.offer()
        assert offer is not None
        self.offer = Offer(*offer)

    def put(self, parts: list[Any]) -> Block | None:
        held = self.arena.hold(parts)
        place = None if held is None else self.sharing.place(held.data)
        return None if place is None else Block(*place)

    def release(self, *numbers: int) -> None:
        self.sharing.release(list(numbers))


def connected(size: int) -> tuple[Lender, Mapping]:
    lender = Lender(size)
    mapping = Mapping.open(*lender.offer)
    assert mapping is not None
    lender.sharing.opened(True)
    return lender, mapping


def bytes_of(seed: int, length: int) -> bytes:
    return random.Random(seed).randbytes(length)
