"""Snapshots on their way from the nodes that stones leave to those they go to, in pieces."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from evflow.deploy.messages import PIECE, Decision, Fetch, Piece
from evflow.disk import Growing
from evflow.engine.snapshot import Parts

_WINDOW = 8
"""Pieces that are under way at a time."""

_AGAIN = 0.5
_STALLED = 1.0

Tell = Callable[[str, Fetch], None]


Keep = Callable[[str, Growing], None]


def _offsets(total: int) -> Sequence[int]:
    """Where the pieces of a snapshot begin; there is one at least."""
    return range(0, max(1, total), PIECE)


class Departure:
    """A snapshot that leaves.

    Args:
        at, change: what it is for.
        stone: whose it is.
        parts: the snapshot.
        digest: 16 bytes that tell it from all others of the stone, such as one of the node's life before.
    """

    def __init__(self, at: Decision, change: str, stone: str, parts: Parts, digest: bytes) -> None:
        self._of = at, change, stone
        self._parts = [memoryview(part) for part in parts]
        self._starts = [0, *accumulate(map(len, self._parts))]
        self._digest = digest

    @property
    def _total(self) -> int:
        return self._starts[-1]

    def piece(self, offset: int) -> Piece:
        """The piece that begins at an offset."""
        end = min(offset + PIECE, self._total)
        first, last = bisect_right(self._starts, offset) - 1, bisect_left(self._starts, end)
        cuts = [
            part[max(0, offset - start) : end - start]
            for part, start in zip(self._parts[first:last], self._starts[first:last], strict=True)
        ]
        return Piece(*self._of, offset, self._total, self._digest, b"".join(cuts))

    def asked(self, offset: int = 0) -> Iterator[Piece]:
        """What is sent to who asks for the piece at an offset; to who has none yet, as many as may be under
        way."""
        offsets = _offsets(self._total)
        # Who asks for more than there is has begun with the snapshot of this node's life before.
        # One after the other, so that the first is on its way while the next is cut off.
        return map(self.piece, [offset] if offset and offset in offsets else offsets[:_WINDOW])


@dataclass
class _Arrival:
    """A snapshot that has not come yet; its pieces are taken in order only.

    Attributes:
        source: the node it comes from.
        digest: its digest.
        whole: what has come; None while nothing has.
        asked: the offset up to which all that has not come was asked for.
        again: when to ask for it again, if nothing comes before.
    """

    source: str
    digest: bytes = b""
    whole: Growing | None = None
    asked: int = 0
    again: float = 0.0

    @property
    def come(self) -> int:
        """Bytes that have come."""
        return 0 if self.whole is None else self.whole.size

    @property
    def total(self) -> int:
        """Bytes that it has; 0 while nothing has come."""
        return 0 if self.whole is None else len(self.whole.data)

    def wanted(self, now: float) -> Iterator[int]:
        """The offsets to ask for now."""
        if now >= self.again:
            self.asked = self.come
            self.again = now + (_AGAIN if self.whole is None else _STALLED)
        # The first piece tells how many there are.
        while self.asked < max(1, self.total) and self.asked < self.come + _WINDOW * PIECE:
            yield self.asked
            self.asked += PIECE

    def take(self, piece: Piece, now: float, begin: Callable[[int], Growing]) -> Growing | None:
        """Takes a piece; gives the whole once all is there."""
        if self.whole is None or (piece.total, piece.digest) != (self.total, self.digest):
            # The source has begun again, so what came from its life before does not fit.
            self.whole, self.digest = begin(piece.total), piece.digest
            # It sends the first ones unasked.
            self.asked = _WINDOW * PIECE
        self.again = now + _STALLED
        if piece.offset != self.whole.size:
            return None
        self.whole.add(piece.part)
        if self.whole.size < self.total:
            return None
        # Should it not be possible to keep it, all is asked for again, but not at once.
        whole, self.whole, self.asked = self.whole, None, PIECE
        return whole


class Arrivals:
    """The snapshots that come to a node by one change.

    Args:
        at, change: what it is for.
        sources: stone → the node it leaves.
        tell: says something to a node.
        begin: gives what a snapshot of so many bytes can grow in.
        keep: keeps a stone's snapshot, for good; it has come when that returns.
    """

    def __init__(
        self,
        at: Decision,
        change: str,
        sources: Mapping[str, str],
        tell: Tell,
        begin: Callable[[int], Growing],
        keep: Keep,
    ) -> None:
        self._at = at
        self._change = change
        self._tell = tell
        self._begin = begin
        self._keep = keep
        self._open = {stone: _Arrival(source) for stone, source in sources.items()}

    @property
    def waiting(self) -> str:
        """What it waits for; "" once all has come."""
        for stone, arrival in self._open.items():
            part = f", {arrival.come} of {arrival.total} bytes have come" if arrival.total else ""
            return f"stone {stone!r}: its snapshot has not come from node {arrival.source}{part}"
        return ""

    def tick(self, now: float) -> float | None:
        """Asks for what has not come; gives when to be called again."""
        for stone, arrival in self._open.items():
            for offset in arrival.wanted(now):
                self._tell(arrival.source, Fetch(self._at, self._change, stone, offset))
        return min((arrival.again for arrival in self._open.values()), default=None)

    def take(self, peer: str, piece: Piece, now: float) -> None:
        """Takes a piece that came, unless it is not waited for."""
        arrival = self._open.get(piece.stone)
        if arrival is None or arrival.source != peer or (piece.at, piece.change) != (self._at, self._change):
            return
        whole = arrival.take(piece, now, self._begin)
        if whole is not None:
            self._keep(piece.stone, whole)
            del self._open[piece.stone]
