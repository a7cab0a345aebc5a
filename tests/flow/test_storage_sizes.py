"""What a storage stone's file takes: batches of any size, and events as large as SQLite takes them."""

from __future__ import annotations

from pathlib import Path

import pytest

import evflow as ev


class Blob(ev.Event):
    seq: int
    data: bytes


def test_a_batch_may_be_larger_than_a_value_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its events are kept in order; one that is too large itself is a dead letter, and the reason says so."""
    monkeypatch.setattr("evflow.stones.storage.MOST_EVENT", 1000)
    monkeypatch.setattr("evflow.stones.storage.MOST_ROW", 300)
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
