"""Files that evflow 0.1 wrote before it had one log: each is opened, or refused with what to do.

``fixtures/before.zip`` has one of each, made by the flows, stores and recorders of that time.
"""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

import evflow as ev
from evflow.deploy.store import FileStore
from evflow.matching import Matcher
from evflow.tools.watch.recording import Recorder, Recording


class Ping(ev.Event):
    number: int
    text: str


def run(stone: ev.Storage | ev.Match | ev.SparkSink | ev.SparkSource) -> None:
    g = ev.Graph()
    if stone.kind == "spark source":
        g.add(stone) >> ev.Terminal(print)
    elif stone.kind == "spark sink":
        g.source("pings", Ping) >> stone
    else:
        g.source("pings", Ping) >> stone >> ev.Terminal(print)
    g.run().close()


OPEN: dict[str, Callable[[Path], object]] = {
    "storage": lambda path: run(ev.Storage(9, path=path)),
    "match": lambda path: run(ev.Match([], path=path, engine="reference")),
    "sink": lambda path: run(ev.SparkSink(Ping, path=path, name="rows")),
    "source": lambda path: run(ev.SparkSource(folder=path, name="rows")),
    "journal": lambda path: ev.Node("a", journal=path).close(),
    "daemon": lambda path: FileStore(path).close(),
    "recording": lambda path: [len(recorded.batch) for recorded in Recording(path)],
    "recording that is continued": lambda path: Recorder(path.with_name("recording")).close(),
    "matcher": lambda path: Matcher.load(path),
}

DATABASE = "cannot be used: .*SQLite database, which an earlier evflow or .* wrote; use up .* or move it away"
MATCHER = "has format 3, this evflow reads 7; make the matcher again from its subscriptions"
RECORDING = "cannot be used: it is a recording of an earlier evflow; replay it with that"
REFUSED = {
    "storage": DATABASE,
    "journal": DATABASE,
    "match": DATABASE,
    "sink": DATABASE,
    "source": DATABASE,
    "daemon": DATABASE + r".*; move /.*/deployments\.\* away, and the node starts with nothing deployed",
    "recording": RECORDING,
    "recording that is continued": RECORDING,
    "matcher": MATCHER,
}


@pytest.mark.parametrize("name", OPEN)
def test_a_file_from_before_is_opened_or_refused_with_what_to_do(tmp_path: Path, name: str) -> None:
    with zipfile.ZipFile(Path(__file__).with_name("fixtures") / "before.zip") as kept:
        kept.extractall(tmp_path)
    path = tmp_path / "before" / name
    before = {file: file.read_bytes() for file in path.parent.rglob("*") if file.is_file()}
    if name not in REFUSED:
        OPEN[name](path)
        return
    with pytest.raises(ev.EvflowError, match=f"{path.parent}/.*{REFUSED[name]}"):
        OPEN[name](path)
    assert {file: file.read_bytes() for file in path.parent.rglob("*") if file.is_file()} == before
