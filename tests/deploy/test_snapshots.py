"""Snapshots in pieces: whatever is lost, late or of an earlier life of the source, the whole is of one."""

from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from evflow.deploy import messages as m
from evflow.deploy.messages import PIECE
from evflow.deploy.snapshots import _WINDOW as WINDOW
from evflow.deploy.snapshots import Arrivals, pieces

AT, CHANGE = m.Decision("x", "0" * 32, 2), "1" * 32


class Taker:
    """Who waits for the snapshot of stone s from node A."""

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.kept: dict[str, bytes] = {}
        self.arrivals = Arrivals(AT, CHANGE, {"s": "A"}, self._tell, self.kept.__setitem__)

    def _tell(self, peer: str, fetch: m.Fetch) -> None:
        assert (peer, fetch.at, fetch.change, fetch.stone) == ("A", AT, CHANGE, "s")
        self.asked.append(fetch.offset)


@given(st.integers(0, 3 * PIECE), st.floats(0, 0.6), st.integers(0, 100))
def test_snapshot_comes_whole_though_pieces_are_lost(size: int, lost: float, seed: int) -> None:
    random, taker = Random(seed), Taker()
    data = random.randbytes(size)
    piece, now = pieces(AT, CHANGE, "s", data), 0.0
    for _ in range(200):
        taker.arrivals.tick(now)
        asked, taker.asked = taker.asked, []
        for offset in asked:
            if random.random() >= lost:
                taker.arrivals.take("A", piece(offset), now)
        if not taker.arrivals.waiting:
            break
        now += 0.5
    assert taker.kept == {"s": data}
    assert taker.arrivals.tick(now) is None


def test_few_pieces_are_under_way_at_a_time() -> None:
    taker = Taker()
    piece = pieces(AT, CHANGE, "s", bytes(20 * PIECE))
    taker.arrivals.take("A", piece(0), 0.0)
    taker.arrivals.tick(0.0)
    assert taker.asked == [PIECE * n for n in range(1, 1 + WINDOW)]
    taker.arrivals.take("A", piece(PIECE), 0.1)
    taker.arrivals.tick(0.1)
    assert taker.asked[WINDOW:] == [PIECE * (1 + WINDOW)]


def test_source_that_begins_again_gives_the_whole_again() -> None:
    taker = Taker()
    before = pieces(AT, CHANGE, "s", b"1" * 2 * PIECE)
    after = pieces(AT, CHANGE, "s", b"2" * 2 * PIECE)
    taker.arrivals.take("A", before(0), 0.0)
    taker.arrivals.take("A", after(PIECE), 0.1)
    assert taker.arrivals.waiting.endswith(f"{PIECE} of {2 * PIECE} bytes have come")
    taker.arrivals.take("A", after(0), 0.2)
    assert taker.kept == {"s": b"2" * 2 * PIECE}


def test_snapshot_that_is_not_what_its_digest_says_is_asked_for_again() -> None:
    taker = Taker()
    piece = pieces(AT, CHANGE, "s", b"good")(0)
    taker.arrivals.take("A", piece._replace(part=b"evil"), 0.0)
    assert taker.kept == {}
    taker.arrivals.tick(0.1)
    assert taker.asked == [0]
    taker.arrivals.take("A", piece, 0.2)
    assert taker.kept == {"s": b"good"}


def test_piece_of_another_node_change_or_stone_is_not_taken() -> None:
    taker = Taker()
    piece = pieces(AT, CHANGE, "s", b"x")(0)
    taker.arrivals.take("B", piece, 0.0)
    taker.arrivals.take("A", piece._replace(change="2" * 32), 0.0)
    taker.arrivals.take("A", piece._replace(stone="t"), 0.0)
    taker.arrivals.take("A", piece._replace(at=AT._replace(version=3)), 0.0)
    assert taker.kept == {}
    assert taker.arrivals.waiting == "stone 's': its snapshot has not come from node A"
