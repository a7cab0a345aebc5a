"""A stone's file is its own: no other stone, flow or process has it meanwhile, and it is nobody else's."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, nullcontext
from pathlib import Path
from typing import Any

import pytest

import evflow as ev
from evflow.disk import OwnFile
from evflow.stone import Stone


class Rec(ev.Event):
    seq: int


def storage(path: Path) -> ev.Storage:
    return ev.Storage(100, path=path, name="held")


KINDS: dict[str, Callable[[Path], Stone]] = {
    "storage": storage,
    "match": lambda path: ev.Match(["seq == 1"], path=path, engine="reference", name="held"),
    "sink": lambda path: ev.SparkSink(Rec, path=path, name="held"),
    "source": lambda path: ev.SparkSource(Rec, folder=path, name="held"),
}
IN_USE = r"held\.db.*(another stone, flow|another flow or process)"

PROGRAM = """
import sys
import evflow as ev

class Rec(ev.Event):
    seq: int

g = ev.Graph()
g.source("recs", Rec) >> ev.Storage(100, path=sys.argv[1], name="held") >> ev.Terminal(print)
flow = g.run()
flow["recs"].submit_batch({"seq": [1, 2, 3]})
flow.drain()
print("stored", flush=True)
sys.stdin.read()
"""


def graph(stone: Stone, seen: list[int] | None = None) -> ev.Graph:
    taken: list[int] = [] if seen is None else seen
    g = ev.Graph("g")
    if stone.kind == "spark source":
        g.add(stone) >> ev.Terminal(lambda e: None)
    elif stone.kind == "spark sink":
        g.source("recs", Rec) >> stone
    else:
        g.source("recs", Rec) >> stone >> ev.Terminal(lambda e: taken.append(e.seq), name="end")
    return g


@pytest.fixture
def held_elsewhere(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that has the file, with events 1, 2 and 3 in it."""
    command = [sys.executable, "-c", PROGRAM, str(tmp_path / "held.db")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8") as other:
        assert other.stdout is not None and other.stdout.readline() == "stored\n"
        yield other
        other.kill()


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("kind", KINDS)
def test_a_second_flow_is_refused_until_the_first_is_closed(tmp_path: Path, kind: str) -> None:
    make, path = KINDS[kind], tmp_path / "held.db"
    with graph(make(path)).run(), pytest.raises(ev.FlowError, match=IN_USE):
        graph(make(path)).run()
    for _ in range(2):
        graph(make(path)).run().close()
    assert not list(tmp_path.glob("*-lock"))


@pytest.mark.usefixtures("impatient")
@pytest.mark.slow
def test_what_was_refused_has_not_touched_the_file(tmp_path: Path) -> None:
    seen: list[int] = []
    (tmp_path / "same.db").symlink_to(tmp_path / "held.db")
    with graph(storage(tmp_path / "held.db"), seen).run() as flow:
        flow["recs"].submit_batch({"seq": [1, 2, 3]})
        for name in ("held.db", "same.db", "../" + tmp_path.name + "/held.db"):
            with pytest.raises(ev.FlowError, match="give each a file of its own"):
                graph(storage(tmp_path / name)).run()
        flow.send_stored("held")
    assert seen == [1, 2, 3]


@pytest.mark.parametrize("kind", ["storage", "match", "sink"])
def test_a_graph_with_one_file_for_two_stones_is_refused(tmp_path: Path, kind: str) -> None:
    g = graph(KINDS[kind](tmp_path / "held.db"))
    other = storage(tmp_path / "held.db")
    other.name = "other"
    g.source("more", Rec) >> other >> ev.Terminal(print)
    with pytest.raises(ev.GraphError, match=r"'other': file .*held\.db: stone 'held' has it already"):
        g.check()


def test_stones_on_different_nodes_have_files_of_the_same_name() -> None:
    g = ev.Graph()
    for node in ("a", "b"):
        with g.on(node):
            g.source(f"recs {node}", Rec) >> ev.Storage(9, path="held.db") >> ev.Terminal(print)
    g.check()


@pytest.mark.slow
def test_a_file_of_another_process_is_refused_until_that_is_killed(
    tmp_path: Path, held_elsewhere: subprocess.Popen[str]
) -> None:
    seen: list[int] = []
    with pytest.raises(ev.FlowError, match=IN_USE):
        graph(storage(tmp_path / "held.db")).run()
    os.kill(held_elsewhere.pid, signal.SIGKILL)
    with graph(storage(tmp_path / "held.db"), seen).run() as flow:
        flow.send_stored("held")
    assert seen == [1, 2, 3]


@pytest.mark.parametrize("kind", ["storage", "match", "sink"])
def test_a_database_of_something_else_is_refused_and_stays_as_it_is(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "held.db"
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("CREATE TABLE people (name TEXT)")
    before = path.read_bytes()
    with pytest.raises(ev.FlowError, match=r"held\.db.*(table people|SQLite database).*take another file"):
        graph(KINDS[kind](path)).run()
    assert path.read_bytes() == before


def test_a_stone_that_cannot_be_opened_leaves_the_files_of_the_others(tmp_path: Path) -> None:
    (tmp_path / "bad.db").write_bytes(b"something else" * 100)
    g = graph(storage(tmp_path / "held.db"))
    g.source("more", Rec) >> ev.Storage(9, path=tmp_path / "bad.db") >> ev.Terminal(print)
    with pytest.raises(ev.FlowError, match=r"bad\.db"):
        g.run()
    with graph(storage(tmp_path / "held.db")).run() as flow:
        with pytest.raises(ev.FlowError, match=r"bad\.db"):
            flow.replace("held", ev.Storage(9, path=tmp_path / "bad.db"))
        flow["recs"].submit(Rec(1))
        flow.drain()
        assert flow.stats()["held"]["queued"] == 1


def test_a_stone_takes_over_the_file_of_one_that_goes_with_the_same_change(tmp_path: Path) -> None:
    seen: list[int] = []
    with graph(storage(tmp_path / "held.db"), seen).run() as flow:
        flow["recs"].submit_batch({"seq": [1, 2]})
        for bad in (True, False):
            with pytest.raises(ev.EvflowError) if bad else nullcontext(), flow.change() as change:
                change.remove("held")
                change.insert(
                    ev.Storage(100, path=tmp_path / "held.db", name="next"), after="recs", before="end"
                )
                if bad:
                    change.insert(ev.Storage(9, path="/proc/none/x.db"), after="next", before="end")
            flow["recs"].submit(Rec(3 if bad else 4))
            flow.drain()
        assert (flow.stats()["next"]["queued"], seen) == (4, [])
        flow.send_stored("next")
    assert seen == [1, 2, 3, 4]


def test_who_is_told_late_leaves_a_file_that_another_has_by_then(tmp_path: Path) -> None:
    seen: list[int] = []
    first = graph(storage(tmp_path / "held.db")).run()
    first["recs"].submit_batch({"seq": [1, 2, 3]})
    first.drain()
    actor: Any = first.engine.topology.slots["held"].actor
    first.call(lambda: actor.extract(2))
    mark = actor.mark()
    first.close()
    with graph(storage(tmp_path / "held.db"), seen).run() as second:
        actor.settled(mark)
        second.send_stored("held")
    assert seen == [1, 2, 3]


def test_a_file_is_had_by_one_at_a_time(tmp_path: Path) -> None:
    """Also where each removes the lock that another waits for."""
    path = tmp_path / "any"
    first = OwnFile(path)
    with pytest.raises(BlockingIOError, match="another stone, flow, node or process"):
        OwnFile(path, patience=0)
    first.close()
    first.close()
    second = OwnFile(path, patience=0)
    with pytest.raises(BlockingIOError):
        OwnFile(path, patience=0)
    second.close()
    assert list(tmp_path.iterdir()) == []


COUNTING = """
import sys
from pathlib import Path
from evflow.disk import OwnFile

number = Path(sys.argv[1])
for _ in range(200):
    own = OwnFile(number, patience=60)
    number.write_text(str(int(number.read_text()) + 1))
    own.close()
"""


@pytest.mark.slow
def test_processes_that_take_turns_never_have_a_file_at_once(tmp_path: Path) -> None:
    (tmp_path / "number").write_text("0")
    command = [sys.executable, "-c", COUNTING, str(tmp_path / "number")]
    processes = [subprocess.Popen(command) for _ in range(3)]
    assert [process.wait() for process in processes] == [0, 0, 0]
    assert (tmp_path / "number").read_text() == "600"


@pytest.mark.usefixtures("impatient")
def test_a_journal_of_another_node_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.journal"
    with ev.Node("a", journal=path), pytest.raises(ev.LinkError, match=r"a\.journal.*another stone, flow"):
        ev.Node("b", journal=path)
    ev.Node("b", journal=path).close()
