"""What a storage stone's file takes: batches of any size, and events up to a limit."""

from __future__ import annotations

from pathlib import Path

import pytest

import evflow as ev


class Blob(ev.Event):
    seq: int
    data: bytes


class Other(ev.Event):
    seq: int
    other: bytes


def test_a_batch_may_be_larger_than_a_value_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its events are kept in order; one that is too large itself is a dead letter, and the reason says so."""
    monkeypatch.setattr("evflow.stones.storage.MOST_EVENT", 1000)
    monkeypatch.setattr("evflow.stones.storage.MOST_PIECE", 300)
    seen: list[int] = []

    def graph() -> ev.Graph:
        g = ev.Graph()
        store = g.source("blobs", Blob) >> ev.Storage(100, path=tmp_path / "blobs.db", name="store")
        _ = store >> ev.Terminal(lambda blob: seen.append(blob.seq))
        return g

    with graph().run() as flow:
        flow["blobs"].submit_batch([Blob(seq, bytes(100)) for seq in range(20)])
        flow["blobs"].submit(Blob(20, bytes(2000)))
        flow["blobs"].submit(Blob(21, bytes(100)))
        flow.drain(timeout=10)
        (letter,) = flow.dead_letters()
        assert letter.event.seq == 20
        assert "blobs.db takes at most 1000" in letter.reason
    assert seen == []
    with graph().run() as flow:
        assert flow.send_stored("store", 100) == 21
        flow.drain(timeout=10)
    assert seen == [*range(20), 21]


def test_what_is_held_in_several_files_comes_back_and_they_go_with_what_was_let_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("evflow.stones.storage.SEGMENT", 2000)
    seen: list[int] = []

    def graph() -> ev.Graph:
        g = ev.Graph()
        blobs = g.source("blobs", Blob, Other)
        store = blobs >> ev.Storage(1000, path=tmp_path / "held", name="store")
        _ = store >> ev.Terminal(lambda blob: seen.append(blob.seq))
        return g

    number = 0
    for _ in range(4):
        with graph().run() as flow:
            for _ in range(30):
                kind = Blob if number % 3 else Other
                flow["blobs"].submit(kind(number, bytes(100)), attrs={"n": number} if number % 2 else None)
                number += 1
            flow.send_stored("store", 25)
            flow.drain(timeout=10)
            assert len(list(tmp_path.glob("held.*"))) <= 5
        assert seen == list(range(len(seen)))
    assert len(seen) == 100
    with graph().run() as flow:
        assert flow.stats()["store"]["queued"] == 20
        flow.send_stored("store")
        flow.drain(timeout=10)
    assert seen == list(range(120))
