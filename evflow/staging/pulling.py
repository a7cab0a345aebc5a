"""What a staging node pulls next, without sockets: steps of writers, in pieces, as a scheduler allows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from evflow.staging.messages import Ready, layout
from evflow.staging.schedulers import Hold, Scheduler


@dataclass(eq=False)
class Transfer:
    """A step of one writer that is pulled from its source: an offer, to a scheduler.

    Attributes:
        since: when it was announced, in seconds.
        phases: rank → whether its application is communicating.
        place: number of the block that is pulled next, and how much of it has been.
        moving: pieces under way.
        data: where the blocks are copied to, one buffer each; made with the first piece.
        stays: whether ``data`` is where the writer has put them: its one piece has no bytes to copy.
    """

    rank: int
    life: int
    ready: Ready
    source: Any
    since: float
    phases: dict[int, bool]
    place: tuple[int, int] = (0, 0)
    moving: int = 0
    begun: bool = False
    cancelled: bool = False
    data: list[Any] = field(default_factory=list)
    stays: bool = False

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
    """The transfers of a staging node, by step and rank, until ``release``; settings as of ``Stage``.

    Attributes:
        phases: rank → whether its application is communicating.
        copies: whether each step has to be copied.
    """

    def __init__(self, scheduler: Scheduler, piece: int, memory: int) -> None:
        self.transfers: dict[tuple[int, int], Transfer] = {}
        self.phases: dict[int, bool] = {}
        self._scheduler, self._piece, self.memory = scheduler, piece, memory
        self.copies = scheduler.times

    def offer(self, rank: int, life: int, ready: Ready, source: Any, now: float) -> None:
        """A writer, in one of its lives, offers a step. One that is complete stays as it is; any other begins
        anew."""
        if self.drop(ready.step, rank):
            made = self.transfers[ready.step, rank] = Transfer(rank, life, ready, source, now, self.phases)
            made.data = [] if self.copies else source.blocks(made)
            made.stays = bool(made.data)

    def drop(self, step: int, rank: int) -> bool:
        """A writer gives a step up. False if all of it has been copied: then it is kept."""
        known = self.transfers.get((step, rank))
        if known is None or known.done:
            return known is None
        known.cancelled = True
        del self.transfers[step, rank]
        return True

    def release(self, step: int) -> None:
        """Forgets a step."""
        for key in [key for key in self.transfers if key[0] == step]:
            self.transfers.pop(key).cancelled = True

    @property
    def used(self) -> int:
        """Bytes of steps that the node holds."""
        return sum(transfer.nbytes for transfer in self.transfers.values() if transfer.begun)

    def next(self, behind: Sequence[tuple[int, int]], now: float) -> Piece | Hold | None:
        """A piece to copy next; why none may be copied now; None if nothing is offered. Writers that may
        announce more are in ``behind``, with their newest steps."""
        offers = [transfer for transfer in self.transfers.values() if not transfer.begun or transfer.left]
        if not offers:
            return None
        used, oldest = self.used, min(step for step, _ in self.transfers)
        fit = [one for one in offers if one.begun or one.step == oldest or used + one.nbytes <= self.memory]
        if not fit:
            return Hold(f"the staging node holds {used} bytes, of {self.memory} that it may")
        holds: list[Hold] = []
        for offer in sorted(fit, key=self._scheduler.order):
            earlier = [rank for rank, step in behind if (step + 1, rank) < (offer.step, offer.rank)]
            hold = self._scheduler.hold(offer, fit, earlier, now)
            if hold is None:
                return self._cut(offer, now)
            holds.append(hold)
        # The first reason, until the soonest of the times.
        return Hold(holds[0].reason, min((h.until for h in holds if h.until is not None), default=None))

    def _cut(self, transfer: Transfer, now: float) -> Piece:
        transfer.begun = True
        number, offset = transfer.place
        blocks: Sequence[Any] = () if transfer.stays else transfer.ready.blocks
        while number < len(blocks) and offset == blocks[number].nbytes:
            number, offset = number + 1, 0
        size = min(self._piece, blocks[number].nbytes - offset) if number < len(blocks) else 0
        start = transfer.ready.start + (transfer.starts[number] if size else 0) + offset
        transfer.place = (number, offset + size)
        transfer.left = 0 if transfer.stays else transfer.left - size
        transfer.moving += 1
        self._scheduler.pulled(transfer, size, now)
        return Piece(transfer, number, start, offset, size)

    def moved(self, piece: Piece, valid: bool) -> bool:
        """A piece has been copied; the step is forgotten if it was not there any more (``valid``). Whether
        all of the transfer is complete now."""
        transfer = piece.transfer
        transfer.moving -= 1
        if valid or transfer.cancelled:
            return transfer.done and not transfer.cancelled
        transfer.cancelled = True
        del self.transfers[transfer.step, transfer.rank]
        return False
