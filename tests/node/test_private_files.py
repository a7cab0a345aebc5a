"""What evflow writes to disk is for its own user alone, whatever the umask is."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import evflow as ev
from evflow.deploy.store import FileStore
from evflow.matching.matcher import Matcher
from evflow.net.node.journal import FileJournal
from evflow.net.node.keyfile import generate
from evflow.spark.landing.folder import Folder
from evflow.stones.match import Match
from evflow.tools.watch.recording import Recorder


class Ping(ev.Event):
    number: int
    text: str


@pytest.fixture(autouse=True)
def open_to_all() -> Iterator[None]:
    """The umask that hides nothing."""
    before = os.umask(0)
    try:
        yield
    finally:
        os.umask(before)


def exposed(folder: Path) -> list[str]:
    """What others can reach beneath a folder, with its mode."""
    found: list[str] = []
    for entry in sorted(folder.iterdir()):
        mode = entry.lstat().st_mode & 0o777
        if mode & 0o077:
            found.append(f"{entry.relative_to(folder)} {mode:04o}")
            if entry.is_dir():
                found += [f"{entry.name}/{inner}" for inner in exposed(entry)]
    return found


def storage(folder: Path) -> None:
    _run(folder, ev.Storage(100, path=folder / "kept.db"))


def sink(folder: Path) -> None:
    _run(folder, ev.SparkSink(path=folder / "rows"))


def _run(folder: Path, stone: ev.Storage | ev.SparkSink) -> None:
    g = ev.Graph()
    end = g.source("pings", Ping) >> stone
    if isinstance(stone, ev.Storage):
        _ = end >> ev.Terminal(lambda event: None)
    with g.run(dead_letters=0) as flow:
        flow["pings"].submit(Ping(1, "a secret"))
        flow["pings"].flush(timeout=10)
        assert list(folder.iterdir()) and exposed(folder) == []


def match(folder: Path) -> None:
    g = ev.Graph()
    matching = Match([], path=folder / "subscriptions", name="matching")
    end = g.source("pings", Ping) >> matching
    _ = end >> ev.Terminal(lambda event: None)
    with g.run() as flow:
        flow["matching"].subscribe("number > 1")
        assert list(folder.iterdir()) and exposed(folder) == []


def journal(folder: Path) -> None:
    made = FileJournal(folder / "journal")
    made.save({("bridge", "stone", b"route"): (1,)}, [])
    assert exposed(folder) == []
    made.close()


def deployments(folder: Path) -> None:
    store = FileStore(folder / "new" / "store")
    store.save({"small": b"x", "large": b"x" * 100_000})
    growing = store.growing(100_000)
    assert len([entry for entry in (folder / "new/store").rglob("*") if entry.is_file()]) >= 4
    assert exposed(folder) == exposed(folder / "new") == []
    assert exposed(folder / "new/store") == exposed(folder / "new/store/values") == []
    del growing
    store.close()


def keys(folder: Path) -> None:
    secret, public = generate(folder / "new" / "keys", "edge")
    assert exposed(folder) == exposed(folder / "new") == []
    assert (secret.stat().st_mode & 0o777, public.stat().st_mode & 0o777) == (0o600, 0o644)


def recording(folder: Path) -> None:
    Recorder(folder / "taken").close()


def matcher(folder: Path) -> None:
    saved = Matcher()
    saved.subscribe("number > 1")
    saved.save(folder / "saved")
    assert exposed(folder / "saved") == []


def landing(folder: Path) -> None:
    Folder(folder / "new" / "rows").close()
    assert exposed(folder / "new") == exposed(folder / "new/rows") == []


@pytest.mark.parametrize(
    "write", [storage, sink, match, journal, deployments, keys, recording, matcher, landing]
)
def test_nothing_that_is_written_can_be_read_by_others(tmp_path: Path, write: Callable[[Path], None]) -> None:
    write(tmp_path)
    assert list(tmp_path.iterdir()), "the test writes nothing"
    assert exposed(tmp_path) == []


def test_what_is_there_keeps_its_mode_and_is_told_of_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "journal"
    path.touch(mode=0o644)
    folder = tmp_path / "store"
    folder.mkdir(mode=0o777)
    with caplog.at_level(logging.WARNING, "evflow"):
        for _ in range(2):
            FileJournal(path).close()
            FileStore(folder).close()
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == 2
    assert f"run: chmod 600 {path}" in told[0] and f"run: chmod 700 {folder}" in told[1]
    assert (path.stat().st_mode & 0o777, folder.stat().st_mode & 0o777) == (0o644, 0o777)
