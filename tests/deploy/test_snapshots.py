"""Snapshots in pieces: whatever is lost, late or of an earlier life of the source, the whole is of one."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from evflow.deploy import messages as m
from evflow.deploy.messages import PIECE
from evflow.deploy.snapshots import _WINDOW as WINDOW
from evflow.deploy.snapshots import Arrivals, Departure
from evflow.disk import Growing
from evflow.errors import DeployError

AT, CHANGE, DIGEST = m.Decision("x", "0" * 32, 2), "1" * 32, b"d" * 16


class Taker:
    """Who waits for the snapshot of stone s from node A."""

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.kept: dict[str, bytes] = {}
        self.full = False
        self.arrivals = Arrivals(AT, CHANGE, {"s": "A"}, self._tell, Growing, self._keep)

    def _keep(self, stone: str, snapshot: Growing) -> None:
        if self.full:
            raise DeployError("the disk is full")
        self.kept[stone] = bytes(snapshot.data)

    def _tell(self, peer: str, fetch: m.Fetch) -> None:
        assert (peer, fetch.at, fetch.change, fetch.stone) == ("A", AT, CHANGE, "s")
        self.asked.append(fetch.offset)


@given(st.integers(0, 3 * PIECE), st.floats(0, 0.6), st.integers(0, 100))
def test_snapshot_comes_whole_though_pieces_are_lost(size: int, lost: float, seed: int) -> None:
    random, taker = Random(seed), Taker()
    data = random.randbytes(size)
    cuts = sorted(random.randint(0, size) for _ in range(random.randint(0, 20)))
    parts = [data[start:end] for start, end in pairwise([0, *cuts, size])]
    departure, now = Departure(AT, CHANGE, "s", parts, DIGEST), 0.0
    for _ in range(200):
        taker.arrivals.tick(now)
        asked, taker.asked = taker.asked, []
        for offset in asked:
            for piece in departure.asked(offset):
                if random.random() >= lost:
                    taker.arrivals.take("A", piece, now)
        if not taker.arrivals.waiting:
            break
        now += 0.5
    assert taker.kept == {"s": data}
    assert taker.arrivals.tick(now) is None


def test_few_pieces_are_under_way_at_a_time() -> None:
    taker = Taker()
    departure = Departure(AT, CHANGE, "s", [bytes(20 * PIECE)], DIGEST)
    unasked = list(departure.asked())
    assert [piece.offset for piece in unasked] == [PIECE * n for n in range(WINDOW)]
    taker.arrivals.tick(0.0)
    assert taker.asked == [0]
    taker.arrivals.take("A", unasked[0], 0.0)
    taker.arrivals.tick(0.0)
    assert taker.asked == [0, PIECE * WINDOW]
    taker.arrivals.take("A", departure.piece(PIECE), 0.1)
    taker.arrivals.tick(0.1)
    assert taker.asked == [0, PIECE * WINDOW, PIECE * (WINDOW + 1)]


def test_who_asks_for_what_there_is_not_gets_the_first_pieces() -> None:
    departure = Departure(AT, CHANGE, "s", [bytes(2 * PIECE)], DIGEST)
    first = [departure.piece(0), departure.piece(PIECE)]
    assert list(departure.asked(PIECE)) == first[1:]
    for offset in (0, 1, PIECE - 1, 2 * PIECE, 20 * PIECE):
        assert list(departure.asked(offset)) == first
    empty = Departure(AT, CHANGE, "s", [b""], DIGEST)
    assert list(empty.asked(PIECE)) == [empty.piece(0)]


def test_source_that_begins_again_gives_the_whole_again() -> None:
    taker = Taker()
    before = Departure(AT, CHANGE, "s", [b"1" * 2 * PIECE], b"1" * 16)
    after = Departure(AT, CHANGE, "s", [b"2" * 2 * PIECE], b"2" * 16)
    taker.arrivals.take("A", before.piece(0), 0.0)
    taker.arrivals.take("A", after.piece(0), 0.1)
    assert taker.arrivals.waiting.endswith(f"{PIECE} of {2 * PIECE} bytes have come")
    taker.arrivals.take("A", before.piece(PIECE), 0.2)
    taker.arrivals.take("A", after.piece(0), 0.3)
    taker.arrivals.take("A", after.piece(PIECE), 0.4)
    assert taker.kept == {"s": b"2" * 2 * PIECE}


def test_snapshot_that_cannot_be_kept_is_asked_for_again() -> None:
    taker = Taker()
    piece = Departure(AT, CHANGE, "s", [b"good"], DIGEST).piece(0)
    taker.full = True
    with pytest.raises(DeployError, match="full"):
        taker.arrivals.take("A", piece, 0.0)
    taker.full = False
    taker.arrivals.tick(0.1)
    assert taker.asked == []
    taker.arrivals.tick(2.0)
    assert taker.asked == [0]
    taker.arrivals.take("A", piece, 2.1)
    assert taker.kept == {"s": b"good"}


def test_piece_of_another_node_change_or_stone_is_not_taken() -> None:
    taker = Taker()
    piece = Departure(AT, CHANGE, "s", [b"x"], DIGEST).piece(0)
    taker.arrivals.take("B", piece, 0.0)
    taker.arrivals.take("A", replace(piece, change="2" * 32), 0.0)
    taker.arrivals.take("A", replace(piece, stone="t"), 0.0)
    taker.arrivals.take("A", replace(piece, at=AT._replace(version=3)), 0.0)
    assert taker.kept == {}
    assert taker.arrivals.waiting == "stone 's': its snapshot has not come from node A"
