"""A process whose files cannot be written: nothing ends, nothing is given up, all goes on later."""

from __future__ import annotations

import logging
import resource
from pathlib import Path
from typing import Any

import pytest

import evflow as ev
from evflow.net.node.journal import FileJournal
from tests.flow.test_full_disk import in_file
from tests.node import graphs
from tests.node.processes import NodeProcess, free_port, running, wait_for

pytestmark = pytest.mark.slow

BEAT = 0.1


def _limit(process: NodeProcess, free: int) -> None:
    """Lets no file of a process grow beyond so many bytes, as on a full disk."""
    _, most = resource.prlimit(process.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (free, most))


@pytest.mark.parametrize("killed", [False, True])
def test_a_node_on_a_full_disk_acknowledges_nothing_and_goes_on_when_there_is_room(
    tmp_path: Path, killed: bool
) -> None:
    path, total = tmp_path / "store", 40_000
    settings = {"path": str(path), "limit": 1_000_000}
    with NodeProcess(
        "stored", "middle", settings=settings, listen=f"tcp://127.0.0.1:{free_port()}", heartbeat=BEAT,
        peers={"last": "tcp://127.0.0.1:1"}, journal=str(tmp_path / "journal"), window=1 << 16,
    ) as middle:  # fmt: skip
        node = ev.Node("first", peers={"middle": middle.contact}, heartbeat=BEAT)
        with running(graphs.stored([], **settings), node, max_bytes=1 << 16) as flow:
            flow["recs"].submit_batch({"seq": [0]})
            flow.drain(20)
            _limit(middle, 300_000)
            for at in range(1, total, 100):
                flow["recs"].submit_batch({"seq": list(range(at, at + 100))}, timeout=20)
            with pytest.raises(ev.FlowError, match=r"to middle: \d+ events wait"):
                flow.drain(1)
            # Neither was anything given up, nor did a session end.
            assert middle.ask("stats")["store"]["errors"] == 0
            assert node.links()["middle"]["sessions"] == 1
            if killed:
                middle.kill()
                middle.restart()
            else:
                _limit(middle, resource.prlimit(middle.pid, resource.RLIMIT_FSIZE)[1])
            flow["recs"].submit_batch({"seq": list(range(at + 100, at + 200))}, timeout=30)
            flow.drain(60)
    rows = in_file(path)
    seen: list[Any] = []
    g = ev.Graph()
    store = g.source("recs", graphs.Rec) >> ev.Storage(1_000_000, path=path, name="store")
    _ = store >> ev.Terminal(lambda batch: seen.extend(batch["seq"].tolist()), batch=True)
    with g.run() as own:
        own.send_stored("store")
    assert sorted(set(seen)) == list(range(at + 200))
    assert rows == len(seen)
    if not killed:
        assert seen == list(range(at + 200))


@pytest.mark.usefixtures("soon")
def test_what_the_journal_cannot_keep_is_not_acknowledged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The next node has handled an event, and cannot note that: the first keeps the event until it can."""
    failing: list[int] = []
    save = FileJournal._save

    def unsure(journal: FileJournal, values: Any) -> None:
        if failing:
            failing.append(1)
            raise ev.LinkError("journal: planted")
        save(journal, values)

    monkeypatch.setattr(FileJournal, "_save", unsure)
    seen: list[int] = []
    there = ev.Node("there", listen="tcp://127.0.0.1:0", heartbeat=BEAT, journal=tmp_path / "journal")
    here = ev.Node("here", peers={"there": there.contact}, heartbeat=BEAT)
    graph = graphs.pair(seen)
    with (
        running(graph, there) as end,
        running(graphs.pair([]), here) as flow,
        caplog.at_level(logging.INFO, "evflow.link"),
    ):
        flow["recs"].submit_batch({"seq": [1]})
        flow.drain(10)
        failing.append(1)
        flow["recs"].submit_batch({"seq": [2]})
        wait_for(lambda: seen == [1, 2], "the event to be handled")
        wait_for(lambda: len(failing) > 2, "a second try")
        flow["recs"].submit_batch({"seq": [3]})
        with pytest.raises(ev.FlowError, match="not done within"):
            flow.drain(0.3)
        assert seen == [1, 2] and end.links is not None and "planted" in end.links.unwritten()
        failing.clear()
        flow.drain(10)
        assert seen == [1, 2, 3] and not end.links.unwritten()
    told = [record.getMessage() for record in caplog.records if "planted" in record.getMessage()]
    assert len(told) == 2 and told[1].startswith("written again")
    again = FileJournal(tmp_path / "journal")
    ((tag,),) = again.load().values()
    assert tag.path == (3,)
    again.close()
