"""What was flushed is in its file, whatever becomes of the process; and who waits in vain is told why."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import evflow as ev
from evflow.disk import log
from tests.flow.test_full_disk import full_disk, in_file, keeping, stored
from tests.node.processes import wait_for

PROGRAM = """
import sys, threading
import evflow as ev

class Ping(ev.Event):
    number: int
    text: str

g = ev.Graph()
store = g.source("pings", Ping) >> ev.Storage(10_000_000, path=sys.argv[1], name="store")
_ = store >> ev.Terminal(lambda event: None)
flow = g.run()

def more():
    for number in range(1_000_000, 1_100_000):
        flow["pings"].submit(Ping(number, "of another thread"))

threading.Thread(target=more, daemon=True).start()
for start in range(0, 1_000_000, 100):
    for number in range(start, start + 100):
        flow["pings"].submit(Ping(number, "x"))
    flow["pings"].flush(timeout=30)
    print(start + 100, flush=True)
"""


class Ping(ev.Event):
    number: int
    text: str


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The names of the files that were brought to the disk itself, in order."""
    names: list[str] = []
    real = os.fsync

    def fsync(file: int) -> None:
        names.append(Path(os.readlink(f"/proc/self/fd/{file}")).name)
        real(file)

    monkeypatch.setattr(os, "fsync", fsync)
    yield names


@pytest.mark.slow
def test_a_kill_right_after_a_flush_loses_no_flushed_event(tmp_path: Path) -> None:
    path = tmp_path / "kept"
    command = [sys.executable, "-c", PROGRAM, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, encoding="utf-8") as process:
        assert process.stdout is not None
        flushed = 0
        for line in process.stdout:
            flushed = int(line)
            if flushed >= 1000:
                break
        os.kill(process.pid, signal.SIGKILL)
    assert flushed >= 1000
    assert [number for number in stored(path) if number < flushed] == list(range(flushed))


def test_what_was_flushed_is_seen_by_another_reader_of_the_file(tmp_path: Path, synced: list[str]) -> None:
    """A second reader is the judge of what the file has, and the calls of ``fsync`` of where it is."""
    path = tmp_path / "kept"
    with keeping(path).run() as flow:
        for round in range(1, 4):
            flow["pings"].submit_batch({"number": range(10), "text": ["x"] * 10})
            before = len(synced)
            flow["pings"].flush(timeout=10)
            assert in_file(path) == 10 * round
            assert "kept" in synced[before:] and tmp_path.name in synced[before:]


@pytest.mark.slow
@pytest.mark.usefixtures("soon")
def test_a_flush_waits_for_a_full_disk_and_says_so_after_its_timeout(tmp_path: Path) -> None:
    path = tmp_path / "kept"
    with keeping(path).run() as flow:
        flow["pings"].submit(Ping(0, "before"))
        flow["pings"].flush(timeout=10)
        done = threading.Event()
        with full_disk(path.stat().st_size):
            flow["pings"].submit(Ping(1, "x" * 9000))
            wait_for(lambda: "trouble" in flow.attributes("store"), "the stone to stall")
            with pytest.raises(ev.FlowError, match=rf"(?s)not done within 0.3 s.*storage file {path}"):
                flow["pings"].flush(timeout=0.3)
            waiting = threading.Thread(target=lambda: (flow["pings"].flush(timeout=60), done.set()))
            waiting.start()
        waiting.join(60)
        assert done.is_set()
    assert stored(path) == [0, 1]


def test_a_flush_waits_for_stones_on_the_way_that_keep_events_in_memory(tmp_path: Path) -> None:
    path = tmp_path / "kept"
    g = ev.Graph()
    first = g.source("pings", Ping) >> ev.Storage(100, name="first") >> ev.Storage(100, name="second")
    _ = first >> ev.Storage(100, path=path, name="kept") >> ev.Terminal(lambda event: None)
    with g.run() as flow:
        flow["pings"].submit(Ping(1, ""))
        with pytest.raises(ev.FlowError, match="'first' keeps 1 events in memory"):
            flow["pings"].flush(timeout=0.1)
        flow.send_stored("first")
        with pytest.raises(ev.FlowError, match="'second' keeps 1 events in memory"):
            flow["pings"].flush(timeout=0.1)
        flow.send_stored("second")
        flow["pings"].flush(timeout=10)
        assert flow.stats()["kept"]["queued"] == 1
        flow.freeze("kept")
        flow["pings"].submit(Ping(2, ""))
        flow.send_stored("first")
        flow.send_stored("second")
        with pytest.raises(ev.FlowError, match="'kept' keeps 2 events in memory, since it is frozen"):
            flow["pings"].flush(timeout=0.1)
        flow.unfreeze("kept")
        flow["pings"].flush(timeout=10)


def test_a_flush_does_not_wait_for_what_leads_to_no_file(tmp_path: Path) -> None:
    """A side branch that keeps its events for good has nothing to do with the file."""
    path = tmp_path / "kept"
    g = ev.Graph()
    pings = g.source("pings", Ping)
    _ = pings >> ev.Storage(100, path=path, name="kept") >> ev.Terminal(lambda event: None)
    _ = pings >> ev.Storage(100, name="last") >> ev.Terminal(lambda event: None)
    with g.run() as flow:
        flow["pings"].submit(Ping(1, ""))
        flow["pings"].flush(timeout=10)
        assert flow.stats()["kept"]["queued"] == flow.stats()["last"]["queued"] == 1


def test_a_flush_over_a_bridge_waits_for_the_file_of_the_other_node(tmp_path: Path) -> None:
    path = tmp_path / "kept"
    g = ev.Graph()
    there = g.source("pings", Ping, on="a") >> ev.Storage(100, path=path, name="kept", on="b")
    _ = there >> ev.Terminal(lambda event: None, on="b")
    receiver = ev.Node("b", listen="tcp://127.0.0.1:0")
    with g.run(node=receiver), g.run(node=ev.Node("a", peers={"b": receiver.contact})) as flow:
        flow["pings"].submit(Ping(1, ""))
        flow["pings"].flush(timeout=20)
        assert in_file(path) == 1


@pytest.mark.parametrize("width", ["fixed", "varying"])
def test_the_rows_of_a_sink_are_flushed(tmp_path: Path, synced: list[str], width: str) -> None:
    kind = ev.Schema("ping", {"number": int} if width == "fixed" else {"text": str})
    g = ev.Graph()
    _ = g.source("pings", kind) >> ev.SparkSink(kind, path=tmp_path / "rows", name="rows")
    with g.run() as flow:
        flow["pings"].submit_batch({"number": [1]} if width == "fixed" else {"text": ["x"]})
        flow["pings"].flush(timeout=10)
    # The first file is made under another name.
    assert set(synced) == {"rows.new", "rows", tmp_path.name}


def test_a_disk_that_fails_to_flush_is_told_to_who_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(path: Path) -> None:
        raise OSError(5, "planted")

    with keeping(tmp_path / "kept").run() as flow:
        flow["pings"].submit(Ping(1, ""))
        flow.drain(timeout=10)
        with monkeypatch.context() as patch:
            patch.setattr(log, "sync_file", broken)
            with pytest.raises(ev.FlowError, match=r"'store' cannot bring its file to the disk: .*planted"):
                flow["pings"].flush(timeout=10)
        flow["pings"].flush(timeout=10)
    assert stored(tmp_path / "kept") == [1]


def test_a_flush_that_could_mean_nothing_is_refused(tmp_path: Path) -> None:
    g = ev.Graph()
    _ = g.source("pings", Ping) >> ev.Terminal(lambda event: None, name="shown")
    with g.run() as flow:
        with pytest.raises(ev.FlowError, match="'pings' leads to no stone that keeps events in a file"):
            flow["pings"].flush()
        with pytest.raises(ev.FlowError, match="timeout 'soon': expected seconds, or None"):
            flow["pings"].flush(timeout="soon")  # type: ignore[arg-type]
    with pytest.raises(ev.FlowError, match="closed"):
        flow["pings"].flush()


def test_a_handler_cannot_wait_for_a_flush(tmp_path: Path) -> None:
    told: list[str] = []

    def handler(event: Ping) -> None:
        try:
            flow["log"].flush()
        except ev.FlowError as error:
            told.append(str(error))

    g = ev.Graph()
    _ = g.source("pings", Ping) >> ev.Terminal(handler, name="asking")
    _ = g.source("log", Ping) >> ev.Storage(10, path=tmp_path / "log") >> ev.Terminal(lambda event: None)
    with g.run() as flow:
        flow["pings"].submit(Ping(1, ""))
        flow.drain(timeout=10)
    assert len(told) == 1 and "a handler cannot wait" in told[0]


def test_a_stone_that_is_removed_before_its_events_are_kept_is_told_of(tmp_path: Path) -> None:
    g = ev.Graph()
    held = g.source("pings", Ping) >> ev.Storage(10, name="held")
    _ = held >> ev.Storage(10, path=tmp_path / "kept", name="kept") >> ev.Terminal(lambda event: None)
    told: list[str] = []

    def flush() -> None:
        try:
            flow["pings"].flush(timeout=30)
        except ev.FlowError as error:
            told.append(str(error))

    with g.run() as flow:
        flow["pings"].submit(Ping(1, ""))
        flow.drain(timeout=10)
        waiting = threading.Thread(target=flush)
        waiting.start()
        wait_for(lambda: bool(flow._worker._drains), "the flush to begin")
        with flow.change() as change:
            change.remove("pings")
        waiting.join(30)
    assert told == ["stone 'pings' was removed before its events were on the disk"]
