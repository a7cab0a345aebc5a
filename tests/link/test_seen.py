"""What was seen over bridges: as it is kept, as it moves along with a stone, and in the journal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

import evflow as ev
from evflow.errors import LinkError
from evflow.net.link import delivery as delivery_module
from evflow.net.link import messages as m
from evflow.net.link import provenance
from evflow.net.link.delivery import Delivery, Paths
from evflow.net.link.downstream import Downstream
from evflow.net.link.provenance import Known, Provenance, Seen, pack_seen, unpack_seen
from evflow.net.node.journal import FileJournal
from tests.examples import tried
from tests.link.pair import DESCRIPTION, Network, Peer, Raw, chain, frame, receiver

R, S, T = (bytes([number]) * 16 for number in (1, 2, 3))


def tracking(journal: Any = None) -> Delivery:
    return Delivery({}, Downstream({}), journal)


class Kept:
    """A journal in memory."""

    def __init__(self) -> None:
        self.rows: Paths = {}

    def load(self) -> dict[tuple[str, str], list[Provenance]]:
        return {}

    def save(self, safe: Paths, gone: Sequence[tuple[str, bytes]]) -> None:
        self.rows = {key: path for key, path in self.rows.items() if (key[0], key[2]) not in gone} | safe

    def forget(self, stone: str) -> None:
        self.rows = {key: path for key, path in self.rows.items() if key[1] != stone}


def test_frame_is_new_only_behind_the_last_of_its_route() -> None:
    seen = Seen()
    assert seen.is_new(Provenance(R, (4, 1)), "a", "end")
    assert not seen.is_new(Provenance(R, (4, 1)), "b", "end")
    assert not seen.is_new(Provenance(R, (4,)), "a", "end")
    assert seen.is_new(Provenance(R, (4, 1, 0)), "b", "end") and seen.is_new(
        Provenance(S, (1,)), "a", "other"
    )
    assert seen.known("end") == [Known(R, (4, 1, 0), ())]
    seen.forget("end")
    assert seen.known("end") == [] and len(seen) == 1 and seen.is_new(Provenance(R, (1,)))


def test_safe_is_noted_of_what_was_seen_and_never_falls() -> None:
    seen = Seen()
    assert not seen.make_safe(R, (1,))
    seen.is_new(Provenance(R, (5,)), "a", "end")
    assert [seen.make_safe(R, (n,)) for n in (3, 3, 2)] == [True, False, False]
    assert seen.known("end") == [Known(R, (5,), (3,))]


def test_routes_that_were_quiet_longest_are_forgotten_of_one_peer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provenance, "_ROUTES", 2)
    seen = Seen()
    seen.is_new(Provenance(R, (1,)), "a")
    for number, route in enumerate((S, T, S, R[:15] + b"x", R[:15] + b"y")):
        seen.is_new(Provenance(route, (number,)), "b")
    assert [seen.has(Provenance(route, (0,))) for route in (R, S, T)] == [True, False, False]
    # It comes from another peer now: there it counts.
    seen.is_new(Provenance(R, (2,)), "b")
    seen.is_new(Provenance(S, (2,)), "b")
    seen.is_new(Provenance(T, (2,)), "b")
    assert not seen.has(Provenance(R, (0,)))
    assert len(seen) == 2


def test_frame_that_comes_again_is_known_although_its_route_is_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Frames of many routes come over one bridge; its own numbers tell those that come again."""
    monkeypatch.setattr(provenance, "_ROUTES", 3)
    _, _, raw, arrived = receiver()
    frames = [replace(frame(n, n), route=bytes([n]) * 16, path=[0]) for n in range(1, 7)]
    raw.say(*frames)
    assert arrived == [1, 2, 3, 4, 5, 6]
    # The channel begins anew, as if nothing had come.
    raw.say(m.Close(0), m.Open(1, "bridge", "end", "", b"s" * 16, 1, 0))
    raw.say(*(replace(each, channel=1) for each in frames), frame(7, 7, channel=1))
    assert arrived == [1, 2, 3, 4, 5, 6, 7]


def test_of_peers_that_come_and_go_what_was_quiet_longest_is_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each may be a process that ran for a moment: they would be kept for ever."""
    monkeypatch.setattr(provenance, "_ALL_ROUTES", 3)
    forgotten: list[bytes] = []
    seen = Seen(forgotten.append)
    for number in range(1000):
        assert seen.is_new(Provenance(R, (number,)), "lasting")
        assert seen.is_new(Provenance(number.to_bytes(16, "big"), (1,)), f"peer {number}")
    assert len(seen) == 3 and seen.has(Provenance(R, (999,)))
    assert forgotten == [number.to_bytes(16, "big") for number in range(998)]
    # Nothing is left of the others, nor of their names.
    assert sum(map(len, (seen._paths, seen._ends, seen._routes, seen._safe))) == 9


def test_a_peer_that_hands_its_last_route_over_is_forgotten() -> None:
    seen = Seen()
    for number in range(100):
        assert seen.is_new(Provenance(R, (number,)), f"peer {number}")
    assert list(seen._routes) == ["peer 99"]


def test_what_was_seen_moves_along() -> None:
    old, journal = tracking(), Kept()
    old.learn("end", {"x": [Known(R, (4, 2), (4, 1)), Known(S, (1,), ())], "y": [Known(T, (9,), (9,))]})
    old.learn("other", {"z": [Known(T, (1,), (1,))]})
    data = pack_seen("end", old.seen("end"))
    assert msgpack.unpackb(data) == [
        "end",
        [["x", [[R, [4, 2], [4, 1]], [S, [1], []]]], ["y", [[T, [9], [9]]]]],
    ]
    moved = tracking(journal)
    moved.learn(*unpack_seen(data))
    assert moved.seen("end") == old.seen("end") and moved.seen("other") == {}
    # What was not safe is held by the stone: it must be handled again if this node's memory is lost.
    assert journal.rows == {("x", "end", R): (4, 1), ("y", "end", T): (9,)}
    moved.learn(*unpack_seen(pack_seen("end", {"x": [Known(R, (3,), (2,))]})))
    assert moved.seen("end") == old.seen("end") and journal.rows["x", "end", R] == (4, 1)
    moved.forget("end")
    assert moved.seen("end") == {} and journal.rows == {}


MALFORMED = [
    b"", b"\xc1", b"\x92", msgpack.packb(7), msgpack.packb([]), msgpack.packb(["end", [], 1]),
    msgpack.packb([b"end", []]), msgpack.packb(["x" * 5000, []]), msgpack.packb(["end", {}]),
    msgpack.packb(["end", [["x"]]]), msgpack.packb(["end", [[7, []]]]), msgpack.packb(["end", [["x", 7]]]),
    msgpack.packb(["end", [["x", [[R, [1]]]]]]), msgpack.packb(["end", [["x", [[R[1:], [1], []]]]]]),
    msgpack.packb(["end", [["x", [["r" * 16, [1], []]]]]]), msgpack.packb(["end", [["x", [[R, [], []]]]]]),
    msgpack.packb(["end", [["x", [[R, [-1], []]]]]]), msgpack.packb(["end", [["x", [[R, [True], []]]]]]),
    msgpack.packb(["end", [["x", [[R, [1 << 63], []]]]]]),
    msgpack.packb(["end", [["x", [[R, [0] * 65, []]]]]]),
    msgpack.packb(["end", [["x", [[R, [1], [2]]]]]]), msgpack.packb(["end", [["x", [[R, [1], None]]]]]),
    msgpack.packb(["end", []]) + b"\0", b"\x92\xa3end\xdd\x7f\xff\xff\xff", b"\x91" * 5000,
]  # fmt: skip


@pytest.mark.parametrize("data", MALFORMED, ids=range(len(MALFORMED)))
def test_what_was_seen_is_refused_if_it_is_malformed(data: bytes) -> None:
    with pytest.raises(LinkError, match="what a stone has seen: expected"):
        unpack_seen(data)


paths = st.lists(st.integers(0, 2**63 - 1), min_size=1, max_size=64).map(tuple)
routes = st.builds(
    lambda route, path, cut: Known(route, path, path[:cut]),
    st.binary(min_size=16, max_size=16),
    paths,
    st.integers(0, 9),
)
WELL_MADE = st.dictionaries(st.text(max_size=20), st.lists(routes, max_size=4), max_size=4)


@given(st.text(max_size=20), WELL_MADE)
def test_what_was_seen_is_the_same_on_both_sides(stone: str, known: dict[str, list[Known]]) -> None:
    assert unpack_seen(pack_seen(stone, known)) == (stone, known)


@given(WELL_MADE, st.data())
def test_bytes_that_are_damaged_are_refused_or_well_made(
    known: dict[str, list[Known]], draw: st.DataObject
) -> None:
    data = bytearray(pack_seen("end", known))
    for _ in range(draw.draw(st.integers(1, 3))):
        data[draw.draw(st.integers(0, len(data) - 1))] = draw.draw(st.integers(0, 255))
    try:
        stone, found = unpack_seen(bytes(data[: draw.draw(st.integers(0, len(data)))]))
    except LinkError:
        return
    learner = tracking(Kept())
    learner.learn(stone, found)
    assert unpack_seen(pack_seen(stone, learner.seen(stone)))[0] == stone


@settings(max_examples=tried(30), deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2), st.sampled_from([R, S]), st.integers(0, 3)), max_size=12))
def test_journal_has_the_last_safe_frame_of_each_route(frames: list[tuple[int, bytes, int]]) -> None:
    """Frames of two routes come over three channels; a storage lets the oldest go now and then."""
    network, journal = Network(), Kept()
    b = Peer(network, "b", chain([], between=ev.Storage(20, name="store", on="b")), journal=journal)
    raw = Raw(network, "a")
    raw.hello("b")
    for channel in range(3):
        stream = bytes([10 + channel]) * 16
        raw.say(m.Open(channel, "bridge", "store", "", stream, 1, 0), m.SchemaText(channel, DESCRIPTION))
    came: list[list[tuple[bytes, int]]] = []
    numbers: Counter[int] = Counter()
    left = 0
    for path, (channel, route, leaving) in enumerate(frames, 1):
        numbers[channel] += 1
        said = frame(numbers[channel], path, channel=channel)
        raw.say(replace(said, route=route, path=[path]))
        came.append([(route, path), (bytes([10 + channel]) * 16, numbers[channel])])
        left += b.engine.send_stored(b.slots["store"], leaving)
        b.engine.run()
        network.run(0.02)
        safe = {known: (last,) for pair in came[:left] for known, last in pair}
        assert {route: path for (_, _, route), path in journal.rows.items()} == safe


def test_journal_keeps_what_was_safe_and_forgets_a_stone(tmp_path: Path) -> None:
    journal = FileJournal(tmp_path / "journal")
    journal.save({("x", "end", R): (4, 1), ("x", "end", S): (1,), ("y", "other", R): (2,)}, [])
    journal.save({("x", "end", T): (7,), ("x", "end", R): (4, 2)}, [])
    # What is gone and came again is kept.
    journal.save({("x", "end", R): (5,)}, [("x", T), ("x", R), ("y", S)])
    journal.close()
    journal = FileJournal(tmp_path / "journal")
    assert journal.load() == {
        ("x", "end"): [Provenance(S, (1,)), Provenance(R, (5,))],
        ("y", "other"): [Provenance(R, (2,))],
    }
    journal.forget("end")
    assert journal.load() == {("y", "other"): [Provenance(R, (2,))]}
    known = tracking(journal).seen("other")
    assert known == {"y": [Known(R, (2,), (2,))]}
    journal.close()


def test_journal_has_no_more_than_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provenance, "_ALL_ROUTES", 5)
    monkeypatch.setattr(delivery_module, "_MAX_BRIDGES", 2)
    for life in range(4):
        journal = FileJournal(tmp_path / "journal")
        known = tracking(journal)
        known.learn("end", {f"old {life}": [Known(R, (2,), (1,))]})
        for number in range(20):
            route = bytes([life, number]) * 8
            known.learn("end", {bridge: [Known(route, (2,), (1,))] for bridge in ("x", "y")})
        # More at one time than are known afterwards.
        many = [Known(bytes([life, number]) * 8, (2,), (1,)) for number in range(100, 120)]
        known.learn("end", {"x": many})
        rows = journal.load()
        assert {stone for _, stone in rows} == {"end"}
        assert {bridge: len(paths) for (bridge, _), paths in rows.items()} == {"x": 5, "y": 5}
        journal.close()


def test_journal_that_is_closed_cannot_be_written(tmp_path: Path) -> None:
    journal = FileJournal(tmp_path / "journal")
    journal.close()
    for write in (lambda: journal.save({("x", "end", R): (1,)}, []), lambda: journal.forget("end")):
        with pytest.raises(LinkError, match="journal cannot be used: it is closed"):
            write()
