"""What a staging node pulls next, without sockets: steps of writers, in pieces, as a scheduler allows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from evflow.staging.messages import Ready, layout
from evflow.staging.schedulers import Hold, Scheduler

LEAST_PIECE = 4096


@dataclass(eq=False)
class Transfer:
    """A step of one writer that is pulled.

    Attributes:
        source: whatever the bytes are read from.
        left: bytes that no piece has been taken of.
        moving: pieces under way.
        data: where the blocks are copied to, one buffer each; made with the first piece.
    """

    rank: int
    ready: Ready
    source: Any
    since: float
    phases: dict[int, bool]
    place: tuple[int, int] = (0, 0)
    moving: int = 0
    begun: bool = False
    cancelled: bool = False
    data: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.step = self.ready.step
        self.starts, _ = layout(self.ready.blocks)
        self.nbytes = self.left = sum(block.nbytes for block in self.ready.blocks)

    @property
    def communicating(self) -> bool:
        """Whether the application of the writer is communicating."""
        return self.phases.get(self.rank, False)

    @property
    def done(self) -> bool:
        """Whether all of it has been copied."""
        return self.begun and not self.left and not self.moving


class Piece(NamedTuple):
    """Bytes to copy: from ``start`` of the source to ``offset`` of the buffer of block number ``block``."""

    transfer: Transfer
    block: int
    start: int
    offset: int
    size: int


class Pulling:
    """The transfers of a staging node.

    Args:
        scheduler: orders and holds them.
        piece: bytes that are copied at a time, at most.
        memory: bytes of steps that the node may hold; the oldest step is pulled even beyond that.

    Attributes:
        transfers: (step, rank) → what is pulled or was pulled, until ``release``.
        phases: rank → whether its application is communicating.
        memory: as given.
    """

    def __init__(self, scheduler: Scheduler, piece: int, memory: int) -> None:
        self.transfers: dict[tuple[int, int], Transfer] = {}
        self.phases: dict[int, bool] = {}
        self._scheduler, self._piece, self.memory = scheduler, piece, memory

    def offer(self, rank: int, ready: Ready, source: Any, now: float) -> bool:
        """A writer offers a step. One that is complete stays as it is; any other begins anew.

        Returns:
            Whether the source is used.
        """
        known = self.transfers.get((ready.step, rank))
        if known is not None and known.done:
            return False
        if known is not None:
            known.cancelled = True
        self.transfers[ready.step, rank] = Transfer(rank, ready, source, now, self.phases)
        return True

    def drop(self, step: int, rank: int) -> bool:
        """A writer gives a step up. False if all of it has been copied: then it is kept."""
        known = self.transfers.get((step, rank))
        if known is None or known.done:
            return known is None
        known.cancelled = True
        del self.transfers[step, rank]
        return True

    def release(self, step: int) -> list[Transfer]:
        """Forgets a step; gives what was there of it."""
        found = [self.transfers.pop(key) for key in [key for key in self.transfers if key[0] == step]]
        for transfer in found:
            transfer.cancelled = True
        return found

    @property
    def used(self) -> int:
        """Bytes of steps that the node holds."""
        return sum(transfer.nbytes for transfer in self.transfers.values() if transfer.begun)

    def next(self, behind: Iterable[tuple[int, int]], now: float) -> Piece | Hold | None:
        """What to copy next.

        Args:
            behind: rank and newest step of the writers that may announce more.
            now: seconds on a clock that only goes forward.

        Returns:
            A piece; why none may be copied now; or None if nothing is offered.
        """
        offers = [transfer for transfer in self.transfers.values() if not transfer.begun or transfer.left]
        if not offers:
            return None
        used, oldest = self.used, min(step for step, _ in self.transfers)
        fit = [one for one in offers if one.begun or one.step == oldest or used + one.nbytes <= self.memory]
        if not fit:
            return Hold(f"the staging node holds {used} bytes, of {self.memory} that it may")
        last = dict(behind)
        first: Hold | None = None
        for offer in sorted(fit, key=self._scheduler.key):
            hold = self._scheduler.hold(
                offer, fit, [rank for rank, step in last.items() if step < offer.step], now
            )
            if hold is None:
                return self._cut(offer, now)
            first = _sooner(first, hold)
        return first

    def _cut(self, transfer: Transfer, now: float) -> Piece:
        transfer.begun = True
        number, offset = transfer.place
        blocks: Sequence[Any] = transfer.ready.blocks
        while number < len(blocks) and offset == blocks[number].nbytes:
            number, offset = number + 1, 0
        size = min(self._piece, blocks[number].nbytes - offset) if number < len(blocks) else 0
        start = transfer.ready.start + (transfer.starts[number] if size else 0) + offset
        transfer.place = (number, offset + size)
        transfer.left -= size
        transfer.moving += 1
        self._scheduler.pulled(transfer, size, now)
        return Piece(transfer, number, start, offset, size)

    def moved(self, piece: Piece, valid: bool) -> Transfer | None:
        """A piece has been copied.

        Args:
            piece: as ``next`` gave it.
            valid: whether the step was still there when the copy was complete.

        Returns:
            The transfer, if all of it has been copied now. One that is not valid is forgotten.
        """
        transfer = piece.transfer
        transfer.moving -= 1
        if transfer.cancelled:
            return None
        if not valid:
            transfer.cancelled = True
            del self.transfers[transfer.step, transfer.rank]
            return None
        return transfer if transfer.done else None


def _sooner(one: Hold | None, other: Hold) -> Hold:
    """The first reason, until the sooner of two times; any may end before, if one has no time."""
    if one is None:
        return other
    times = [hold.until for hold in (one, other) if hold.until is not None]
    return Hold(one.reason, min(times, default=None))
