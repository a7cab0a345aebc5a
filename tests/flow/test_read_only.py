"""A folder that nobody can write to, at the beginning and later: a file system that is read-only, or full."""

from __future__ import annotations

import logging
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import evflow as ev
from evflow.matching import Matcher
from evflow.net.node.keyfile import generate
from evflow.spark.landing.folder import Folder
from evflow.tools.watch.recording import Recorder
from tests.node.processes import wait_for


class Ping(ev.Event):
    number: int


class Disk:
    """A small file system of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def remount(self, mode: str) -> None:
        subprocess.run(["mount", "-o", f"remount,{mode}", str(self.folder)], check=True)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    folder = tmp_path / "disk"
    folder.mkdir()
    made = ["mount", "-t", "tmpfs", "-o", "size=32m,mode=0700", "evflow-test", str(folder)]
    try:
        subprocess.run(made, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no file system can be mounted here: {error}")
    try:
        yield Disk(folder)
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def run(stone: ev.Storage | ev.Match | ev.SparkSink) -> ev.Flow:
    g = ev.Graph()
    some = g.source("pings", Ping) >> stone
    if not isinstance(stone, ev.SparkSink):
        _ = some >> ev.Terminal(lambda event: None)
    return g.run()


BEGIN: dict[str, Callable[[Path], object]] = {
    "storage": lambda folder: run(ev.Storage(10, path=folder / "file")),
    "match": lambda folder: run(ev.Match([], path=folder / "file")),
    "sink": lambda folder: run(ev.SparkSink(Ping, path=folder / "file", name="rows")),
    "landing": lambda folder: Folder(folder / "file"),
    "journal": lambda folder: ev.Node("a", journal=folder / "file"),
    "daemon": lambda folder: ev.Daemon("a", "tcp://127.0.0.1:0", storage=folder / "file"),
    "daemon on its mount": lambda folder: ev.Daemon("a", "tcp://127.0.0.1:0", storage=folder),
    "recording": lambda folder: Recorder(folder / "file"),
    "keys": lambda folder: generate(folder / "file", "a"),
    "matcher": lambda folder: Matcher().save(folder / "file"),
}


@pytest.mark.parametrize("what", BEGIN)
def test_what_begins_says_which_folder_and_what_to_do(disk: Disk, what: str) -> None:
    disk.remount("ro")
    with pytest.raises(ev.EvflowError) as raised:
        BEGIN[what](disk.folder)
    text = str(raised.value)
    assert str(disk.folder) in text
    assert "Read-only file system" in text
    assert "make the file and its folder writable" in text


@pytest.mark.slow
def test_what_needs_a_new_file_waits_while_its_folder_is_read_only(
    disk: Disk, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    disk.remount("ro")
    g = ev.Graph()
    pings = g.source("pings", Ping)
    _ = pings >> ev.SparkSink(Ping, path=folder / "rows", name="rows")
    matched = pings >> ev.Match([], path=folder / "subscriptions", name="match")
    _ = matched >> ev.Terminal(lambda event: None)
    with g.run() as flow, caplog.at_level(logging.INFO, "evflow.flow"):
        # A file system where somebody writes cannot be made read-only, but be hidden by one that is.
        subprocess.run(["mount", "--bind", str(disk.folder), str(folder)], check=True)
        try:
            for number in range(100):
                flow["pings"].submit(Ping(number))
            wait_for(lambda: "trouble" in flow.attributes("rows"), "the sink to stall")
            assert "make the file and its folder writable" in str(flow.attributes("rows")["trouble"])
            with pytest.raises(ev.FlowError, match=r"(?s)sink file .*rows.*writable"):
                flow.drain(timeout=0.3)
            with pytest.raises(ev.FlowError, match=r"subscriptions cannot be used: .*writable"):
                flow["match"].subscribe("number > 50")
        finally:
            subprocess.run(["umount", "-l", str(folder)], check=True)
        flow.drain(timeout=30)
        assert "trouble" not in flow.attributes("rows")
        assert flow.stats()["rows"]["queued"] == 100
        assert not flow.dead_letters()
        flow["match"].subscribe("number > 50")
        flow["pings"].submit(Ping(100))
        flow.drain(timeout=30)
        assert flow.stats()["match"]["out"] == 1
    told = [record.getMessage() for record in caplog.records if "rows" in record.getMessage()]
    assert len(told) == 2 and "written again" in told[1]


@pytest.mark.slow
def test_a_daemon_begins_on_a_full_disk(disk: Disk) -> None:
    with ev.Daemon("a", "tcp://127.0.0.1:0", storage=disk.folder):
        pass
    with (disk.folder / "filled").open("wb", buffering=0) as file, pytest.raises(OSError, match="No space"):
        while True:
            file.write(bytes(4096))
    for _ in range(2):
        with ev.Daemon("a", "tcp://127.0.0.1:0", storage=disk.folder):
            pass
        (disk.folder / "filled").unlink(missing_ok=True)
