"""A file that cannot be written: events wait, nothing ends, and all goes on once the file can be written."""

from __future__ import annotations

import errno
import logging
import resource
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

import evflow as ev
from evflow.disk import log
from evflow.errors import UnwrittenError
from evflow.stone import Acting, Actor, Context
from evflow.stones import storage
from tests.engine.rig import Rig
from tests.node.processes import wait_for

pytestmark = pytest.mark.usefixtures("soon")


class Ping(ev.Event):
    number: int
    text: str


@contextmanager
def full_disk(free: int) -> Iterator[None]:
    """No file of this process grows beyond so many bytes: what a full disk is to whoever writes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (free, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def stored(path: Path) -> list[int]:
    """The numbers in a storage file, as a flow that starts over it finds them."""
    seen: list[int] = []
    g = ev.Graph()
    _ = (
        g.source("pings", Ping)
        >> ev.Storage(1_000_000, path=path, name="store")
        >> ev.Terminal(lambda event: seen.append(event.number))
    )
    with g.run() as flow:
        flow.send_stored("store")
        flow.drain()
    return seen


def in_file(path: Path) -> int:
    """How many events a storage file has, also while it is in use."""
    shutil.copy(path, path.with_name("copy"))
    with closing(storage._File(path.with_name("copy"))) as file:
        return file.count


def keeping(path: Path) -> ev.Graph:
    g = ev.Graph("keeping")
    store = g.source("pings", Ping) >> ev.Storage(1_000_000, path=path, name="store")
    _ = store >> ev.Terminal(lambda event: None)
    return g


@pytest.mark.slow
def test_events_wait_for_a_file_that_was_moved_away(tmp_path: Path) -> None:
    """``flush`` says so, and no event is taken for kept that would be gone with the file."""
    folder = tmp_path / "kept"
    folder.mkdir()
    with keeping(folder / "events.db").run() as flow:
        flow["pings"].submit(Ping(0, "x"))
        flow["pings"].flush(20)
        folder.rename(tmp_path / "away")
        with pytest.raises(ev.FlowError, match="was deleted, moved or replaced while it was open"):
            flow["pings"].flush(20)
        flow["pings"].submit(Ping(1, "x"))
        with pytest.raises(ev.FlowError, match="was deleted, moved or replaced while it was open"):
            flow["pings"].flush(0.5)
        (tmp_path / "away").rename(folder)
        flow["pings"].flush(20)
    assert stored(folder / "events.db") == [0, 1]


def test_events_wait_for_a_full_disk_and_none_is_given_up(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "kept"
    with keeping(path).run() as flow, caplog.at_level(logging.INFO):
        flow["pings"].submit(Ping(0, "before"))
        flow.drain(timeout=10)
        with full_disk(path.stat().st_size + 20_000):
            for number in range(1, 300):
                flow["pings"].submit(Ping(number, "x" * 1000))
            wait_for(lambda: "trouble" in flow.attributes("store"), "the stone to stall")
            with pytest.raises(ev.FlowError, match=f"(?s)stone 'store': storage file {path}.*disk"):
                flow.drain(timeout=0.3)
        flow.drain(timeout=30)
        assert "trouble" not in flow.attributes("store")
        assert flow.stats()["store"]["in"] == flow.stats()["store"]["queued"] == 300
        assert len(flow.dead_letters()) == 0
    told = [record.getMessage() for record in caplog.records if str(path) in record.getMessage()]
    assert len(told) == 2 and "written again" in told[1]
    assert stored(path) == list(range(300))


def test_submit_waits_while_the_disk_is_full(tmp_path: Path) -> None:
    path = tmp_path / "kept"
    with keeping(path).run(max_events=10) as flow:
        flow["pings"].submit(Ping(0, ""))
        flow.drain(timeout=10)
        submitted = 0
        with full_disk(path.stat().st_size):
            flow["pings"].submit(Ping(1, "x" * 9000))
            wait_for(lambda: "trouble" in flow.attributes("store"), "the stone to stall")
            with pytest.raises(ev.FlowError, match=r"storage file .* cannot be used"):
                for submitted in range(2, 100):
                    flow["pings"].submit(Ping(submitted, ""), timeout=0.2)
        flow.drain(timeout=30)
        assert submitted < 50
    assert stored(path) == list(range(submitted))


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO, errno.EROFS, errno.EDQUOT])
def test_errors_of_the_file_that_pass_give_up_no_event(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    failing = threading.Event()
    write = log._write

    def unsure(file: int, parts: list[Any], at: int) -> int:
        end = write(file, parts, at)
        if failing.is_set():
            raise OSError(code, "planted")
        return end

    monkeypatch.setattr(log, "_write", unsure)
    path = tmp_path / "kept"
    with keeping(path).run() as flow:
        failing.set()
        flow["pings"].submit(Ping(1, ""))
        wait_for(lambda: "planted" in str(flow.attributes("store").get("trouble")), "the stone to stall")
        flow["pings"].submit(Ping(2, ""))
        failing.clear()
        flow.drain(timeout=10)
        assert len(flow.dead_letters()) == 0
    assert stored(path) == [1, 2]


def test_what_was_let_go_is_forgotten_once_the_file_can_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing = threading.Event()
    forget = storage._File.forget

    def unsure(file: storage._File, position: object) -> None:
        if failing.is_set():
            raise UnwrittenError("planted")
        forget(file, position)

    monkeypatch.setattr(storage._File, "forget", unsure)
    path = tmp_path / "kept"
    with keeping(path).run() as flow:
        flow["pings"].submit_batch({"number": [1, 2, 3], "text": ["", "", ""]})
        flow.drain(timeout=10)
        failing.set()
        flow.send_stored("store", 2)
        flow["pings"].submit(Ping(4, ""))
        wait_for(lambda: flow.stats()["store"]["queued"] == 2, "two events to go")
        failing.clear()
        shutil.copy(path, tmp_path / "meanwhile")
        wait_for(lambda: in_file(path) == 2, "these to be forgotten")
    assert in_file(tmp_path / "meanwhile") == 4
    assert stored(path) == [3, 4]


@pytest.mark.slow
def test_a_flow_that_is_closed_tells_what_a_full_disk_kept_waiting(
    tmp_path: Path,
) -> None:
    path = tmp_path / "kept"
    flow = keeping(path).run()
    flow["pings"].submit(Ping(0, ""))
    flow.drain(timeout=10)
    with full_disk(path.stat().st_size):
        flow["pings"].submit(Ping(1, "x" * 9000))
        wait_for(lambda: "trouble" in flow.attributes("store"), "the stone to stall")
        flow.close(timeout=0.5)
    (letter,) = flow.dead_letters()
    assert letter.event.number == 1 and str(path) in letter.reason
    assert stored(path) == [0]


class Shelf(Acting):
    """Keeps so many events as it has room for."""

    kind = "shelf"
    linked_ports = "none"
    wakes = False

    def open(self, context: Context) -> ShelfActor:
        return ShelfActor(context)


class ShelfActor(Actor):
    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.kept: list[int] = []
        self.room = 2

    def receive(self, batch: ev.EventBatch, input: str) -> None:
        numbers = [event.number for event in batch]
        more = self.room - len(self.kept)
        self.kept += numbers[:more]
        if more < len(numbers):
            raise UnwrittenError("the shelf is full", taken=more)


def test_what_a_stone_could_keep_of_a_batch_does_not_come_again() -> None:
    g = ev.Graph()
    g.source("pings", Ping) >> Shelf(name="shelf")
    rig = Rig(g)
    slot, batch = rig.slot("shelf"), ev.EventBatch.from_events([Ping(number, "") for number in range(5)])
    rig.engine.submit(rig.slot("pings"), batch)
    rig.engine.run()
    assert isinstance(slot.actor, ShelfActor)
    assert slot.actor.kept == [0, 1] and slot.queued == 3 and slot.stalled
    slot.actor.room = 10
    rig.engine.stalls.retry(time.monotonic() + 10)
    rig.engine.run()
    assert slot.actor.kept == [0, 1, 2, 3, 4] and not slot.stalled
    assert slot.counts == [5, 0, 0, 0] and not rig.letters()
