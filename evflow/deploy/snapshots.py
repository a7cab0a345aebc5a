"""Snapshots on their way from the nodes that stones leave to those they go to, in pieces."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from evflow.deploy.messages import PIECE, Decision, Fetch, Piece

__all__ = ["Arrivals", "Departure"]

_WINDOW = 8
"""Pieces that are under way at a time."""

_AGAIN = 0.5
_STALLED = 1.0

Tell = Callable[[str, Fetch], None]


def _digest(data: bytes) -> bytes:
    # It tells one snapshot of a stone from another; links keep bytes as they are.
    return zlib.crc32(data).to_bytes(16, "big")


def _offsets(total: int) -> Sequence[int]:
    """Where the pieces of a snapshot begin; there is one at least."""
    return range(0, max(1, total), PIECE)


class Departure:
    """A snapshot that leaves.

    Args:
        at, change: what it is for.
        stone: whose it is.
        data: the snapshot.
    """

    def __init__(self, at: Decision, change: str, stone: str, data: bytes) -> None:
        self._of = at, change, stone
        self._data = data
        self._digest = _digest(data)

    def piece(self, offset: int) -> Piece:
        """The piece that begins at an offset."""
        data = self._data
        return Piece(*self._of, offset, len(data), self._digest, data[offset : offset + PIECE])

    def asked(self, offset: int = 0) -> Iterator[Piece]:
        """What is sent to who asks for the piece at an offset; to who has none yet, as many as may be under
        way."""
        offsets = _offsets(len(self._data))
        # Who asks for more than there is has begun with the snapshot of this node's life before.
        # One after the other, so that the first is on its way while the next is cut off.
        return map(self.piece, [offset] if offset and offset in offsets else offsets[:_WINDOW])


@dataclass
class _Arrival:
    """A snapshot that has not come yet.

    Attributes:
        source: the node it comes from.
        total, digest: its bytes and their digest; None while nothing has come.
        parts: what has come, by offset.
        asked: offsets that are under way.
        again: when to ask again, if nothing comes before.
    """

    source: str
    total: int | None = None
    digest: bytes = b""
    parts: dict[int, bytes] = field(default_factory=dict)
    asked: set[int] = field(default_factory=set)
    again: float = 0.0

    def wanted(self, now: float) -> Iterator[int]:
        """The offsets to ask for now."""
        if now >= self.again:
            self.asked.clear()
            self.again = now + (_AGAIN if self.total is None else _STALLED)
        # The first piece tells how many there are.
        for offset in _offsets(self.total or 0):
            if len(self.asked) >= _WINDOW:
                return
            if offset not in self.parts and offset not in self.asked:
                self.asked.add(offset)
                yield offset

    def take(self, piece: Piece, now: float) -> bytes | None:
        """Takes a piece; gives the whole once all is there."""
        if (piece.total, piece.digest) != (self.total, self.digest):
            # The source has begun again, so what came from its life before does not fit.
            self.total, self.digest = piece.total, piece.digest
            self.parts.clear()
            # It sends the first ones unasked.
            self.asked = set(_offsets(piece.total)[:_WINDOW])
        self.parts[piece.offset] = piece.part
        self.asked.discard(piece.offset)
        self.again = now + _STALLED
        if sum(map(len, self.parts.values())) < piece.total:
            return None
        whole = b"".join(self.parts[offset] for offset in sorted(self.parts))
        if _digest(whole) != piece.digest:
            self.parts.clear()
            return None
        return whole


class Arrivals:
    """The snapshots that come to a node by one change.

    Args:
        at, change: what it is for.
        sources: stone → the node it leaves.
        tell: says something to a node.
        keep: keeps a stone's snapshot, for good; it has come when that returns.
    """

    def __init__(
        self,
        at: Decision,
        change: str,
        sources: Mapping[str, str],
        tell: Tell,
        keep: Callable[[str, bytes], None],
    ) -> None:
        self._at = at
        self._change = change
        self._tell = tell
        self._keep = keep
        self._open = {stone: _Arrival(source) for stone, source in sources.items()}

    @property
    def waiting(self) -> str:
        """What it waits for; "" once all has come."""
        for stone, arrival in self._open.items():
            come = sum(map(len, arrival.parts.values()))
            part = f", {come} of {arrival.total} bytes have come" if arrival.total else ""
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
        whole = arrival.take(piece, now)
        if whole is not None:
            self._keep(piece.stone, whole)
            del self._open[piece.stone]
