"""The Spark source in flows, among nodes and on daemons."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import evflow as ev
from evflow.flow.flow import Flow
from tests.deploy.yard import Yard
from tests.node.processes import running, wait_for
from tests.spark.landing import Desk, Note, Row, appending, rows


class Sender:
    """A node of its own that sends rows to a stone, and asks it, as a task does."""

    def __init__(self, flow: ev.Flow, there: str, stone: str) -> None:
        self._flow, self._there, self._stone = flow, there, stone

    def ask(self, ask: str, **question: Any) -> Any:
        return self._flow.ask(self._there, self._stone, {"ask": ask, **question})

    def begin(self, schema: ev.Schema, job: str = "job", epoch: int = 0, partition: int = 0) -> int:
        where = {"job": job, "epoch": epoch, "partition": partition, "attempt": 0}
        return int(self.ask("begin", **where, schema=schema.description)["task"])

    def send(self, task: int, batch: ev.EventBatch, first: int = 0) -> None:
        self._flow.ask(self._there, self._stone, appending(batch, task, first))

    def end(self, task: int, count: int) -> None:
        assert self.ask("end", task=task)["rows"] == count

    def whole(self, batch: ev.EventBatch, job: str = "job", epoch: int = 0) -> None:
        """Sends and commits a job of one task."""
        task = self.begin(batch.schema, job, epoch)
        self.send(task, batch)
        self.end(task, len(batch))
        self.ask("commit", job=job, epoch=epoch, tasks=[[0, task, len(batch)]])


@contextmanager
def sending(contact: str, stone: str) -> Iterator[Sender]:
    with Flow.empty("sending", node=ev.Node("sender")) as flow:
        yield Sender(flow, contact, stone)


def _collecting(source: ev.SparkSource, seen: list[Any], gate: threading.Event | None = None) -> ev.Graph:
    def note(batch: ev.EventBatch) -> None:
        if gate is not None:
            gate.wait(20)
        seen.extend(batch.to_events())

    graph = ev.Graph("landing")
    graph.add(source) >> ev.Terminal(note, batch=True, name="end")
    return graph


def test_a_drain_waits_for_committed_rows_and_what_is_no_row_is_refused() -> None:
    seen: list[Any] = []
    with _collecting(ev.SparkSource(Row, name="rows"), seen).run() as flow:
        assert flow.node is not None
        with sending(flow.node.contact, "rows") as sender:
            sender.whole(rows(0, 3000))
            flow.drain(10)
            assert seen == rows(0, 3000).to_events()
            with pytest.raises(ev.SchemaError, match="rows of Spark do not fit"):
                sender.begin(Note.schema, "other")
            task = sender.begin(Row.schema, "other")
            with pytest.raises(ev.SchemaError):
                sender.send(task, rows(0, 10, Note))
    assert flow.attributes("rows")["jobs"] == 1
    assert flow.stats()["rows"]["in"] == flow.stats()["rows"]["out"] == 3000


def test_a_source_that_declares_nothing_takes_rows_as_they_are() -> None:
    seen: list[Any] = []
    with _collecting(ev.SparkSource(name="rows"), seen).run() as flow:
        assert flow.node is not None
        with sending(flow.node.contact, "rows") as sender:
            sender.whole(rows(0, 100, Note), "notes")
            sender.whole(rows(0, 100, Row), "rows")
            flow.drain(10)
    assert seen == [*rows(0, 100, Note).to_events(), *rows(0, 100, Row).to_events()]


def test_a_daemon_runs_a_job_of_spark_only_if_it_was_told_so(tmp_path: Path) -> None:
    g = ev.Graph("jobs")
    with g.on("here"):
        source = ev.SparkSource(Row, sql="SELECT 1 AS seq", name="rows")
        g.add(source) >> ev.Terminal("desk:take", name="end")
    handlers = {"desk:take": print}
    with (
        ev.Daemon("here", "tcp://127.0.0.1:0", storage=tmp_path, handlers=handlers) as daemon,
        pytest.raises(ev.DeployError, match=r"/rows'.*--allow evflow.spark.ingest.job"),
    ):
        g.deploy({"here": daemon.contact})


def test_events_of_no_task_become_dead_letters() -> None:
    seen: list[Any] = []
    with _collecting(ev.SparkSource(name="rows"), seen).run() as flow:
        flow["rows"].submit_batch(rows(0, 3))
        flow.drain(10)
        letters = [(letter.event.seq, letter.reason) for letter in flow.dead_letters()]
    reason = "a Spark source takes rows of Spark's tasks only; submit other events to a source"
    assert seen == [] and letters == [(number, reason) for number in range(3)]


def test_a_terminal_that_stands_still_stops_the_tasks_at_the_limit_and_nothing_is_lost() -> None:
    seen: list[Any] = []
    gate = threading.Event()
    there = ev.Node("there", listen="tcp://127.0.0.1:0")
    far, near = ev.Graph("far"), ev.Graph("near")
    with far.on("there"):
        far.source("in", Row) >> ev.Terminal(_gated(seen, gate), batch=True)
    source = ev.SparkSource(Row, name="rows", limit=1 << 20)
    near.add(source) >> ev.Bridge(there.contact, "in", limit=1 << 16)
    with running(far, there), near.run() as flow:
        assert flow.node is not None
        with sending(flow.node.contact, "rows") as sender:
            sender.whole(rows(0, 50_000))
            task, sent = sender.begin(Row.schema, "more"), 0
            with pytest.raises(ev.UnwrittenError, match="bytes of rows have landed"):
                while sent < 1_000_000:
                    sender.send(task, rows(sent, 2000), sent)
                    sent += 2000
            assert seen == []
            gate.set()
            sender.end(task, sent)
            sender.ask("commit", job="more", epoch=0, tasks=[[0, task, sent]])
        flow.drain(20)
    assert seen == [*range(50_000), *range(sent)]


def _gated(seen: list[Any], gate: threading.Event) -> Any:
    def note(batch: ev.EventBatch) -> None:
        gate.wait(20)
        seen.extend(batch["seq"].tolist())

    return note


def test_what_is_committed_leaves_after_a_restart_and_a_job_is_remembered(tmp_path: Path) -> None:
    seen: list[Any] = []
    source = ev.SparkSource(Row, name="rows", folder=tmp_path / "kept")
    flow = _collecting(source, seen).run()
    assert flow.node is not None
    where = {"job": "job", "partition": 0, "attempt": 0, "schema": Row.schema.description}
    with sending(flow.node.contact, "rows") as sender:
        task = sender.begin(Row.schema)
        sender.send(task, rows(0, 100))
        sender.end(task, 100)
        flow.freeze("rows")
        sender.ask("commit", job="job", epoch=0, tasks=[[0, task, 100]])
        flow.drain(5)
        assert seen == [] and flow.stats()["rows"]["queued"] == 100
        flow.stop()
    with _collecting(source, seen).run() as flow:
        assert flow.node is not None
        flow.drain(5)
        assert seen == rows(0, 100).to_events()
        with sending(flow.node.contact, "rows") as sender:
            assert sender.ask("begin", epoch=0, **where) == {"task": 0, "done": True}
            assert not sender.ask("begin", epoch=1, **where)["done"]
    assert len(seen) == 100


def test_memory_does_not_grow_with_the_rows() -> None:
    desk, batch = Desk(), rows(0, 10_000)
    task = desk.begin()

    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    desk.append(task, 0, batch)
    before = resident()
    for number in range(1, 200):
        desk.append(task, number * 10_000, batch)
    assert desk.landed(task) == 2_000_000
    desk.commit([(0, task, 2_000_000)])
    count = 0
    while desk.actor.busy:
        desk.notes.emitted.clear()
        desk.actor.wake(0.0)
        count += sum(len(seqs) for _, seqs in desk.notes.emitted)
        desk.actor.settled(desk.actor.mark())
        assert resident() - before < 20 << 20
    assert count == 2_000_000
    desk.actor.close()


_HOLDER = """
import sys, time
from tests.spark.landing import Desk
desk = Desk()
task = desk.begin()
desk.send(task, 0, 10)
print(desk.actor._store.folder.path, flush=True)
time.sleep(60)
"""


@pytest.mark.slow
def test_what_a_killed_process_has_left_is_cleared_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    with subprocess.Popen(
        [sys.executable, "-c", _HOLDER],
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[2],
        env=environment,
    ) as holder:
        assert holder.stdout is not None
        left = Path(holder.stdout.readline().decode().strip())
        assert left.parent == tmp_path
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
        first = Desk()
        assert left.exists()
        holder.send_signal(signal.SIGKILL)
        holder.wait()
    second = Desk()
    folders = {desk.actor._store.folder.path for desk in (first, second)}
    assert set(tmp_path.iterdir()) == folders
    for desk in (first, second):
        desk.actor.close()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_source_goes_from_daemon_to_daemon_with_what_it_holds(tmp_path: Path) -> None:
    graph = ev.Graph("spark")
    graph.add(ev.SparkSource(Row, name="rows", on="a")) >> ev.Terminal(
        "desk:note", batch=True, name="end", on="c"
    )
    with Yard(tmp_path, "abc") as yard, graph.deploy(yard.hosts) as handle:
        with sending(yard.hosts["a"], "spark/rows") as sender:
            sender.whole(rows(0, 1000), "first")
            wait_for(lambda: len(yard.seen) == 1000, "the rows of the first job")
            task = sender.begin(Row.schema, "second")
            sender.send(task, rows(1000, 1000))
            sender.end(task, 1000)
            handle.freeze("rows")
            sender.ask("commit", job="second", epoch=0, tasks=[[0, task, 1000]])
        handle.move("rows", "b")
        time.sleep(0.1)
        assert len(yard.seen) == 1000
        handle.unfreeze("rows")
        wait_for(lambda: len(yard.seen) == 2000, "the rows of the second job")
        with sending(yard.hosts["b"], "spark/rows") as sender:
            for job in ("first", "second"):
                schema = Row.schema.description
                begun = sender.ask("begin", job=job, epoch=0, partition=0, attempt=0, schema=schema)
                assert begun["done"]
            sender.whole(rows(2000, 500), "third")
            wait_for(lambda: len(yard.seen) == 2500, "the rows of the third job")
        assert handle.attributes("rows")["jobs"] == 3
        contact = yard.daemons["b"].contact
        yard.daemons["b"].close(5.0)
        yard.start("b", listen=contact)
        with sending(yard.hosts["b"], "spark/rows") as sender:
            sender.whole(rows(2500, 500), "fourth")
        wait_for(lambda: len(yard.seen) == 3000, "the rows of the fourth job")
    assert yard.seen == list(range(3000))


def test_the_description_of_a_source_goes_round() -> None:
    source = ev.SparkSource(Row, folder="kept", limit=1 << 30, patience=60, name="rows")
    again = ev.SparkSource.from_settings(source.settings())
    assert again.settings() == source.settings() and again.schema == Row.schema
    source.keep_in(Path("/daemon"))
    assert source.keeper == Path("/daemon/kept") and source.files == (Path("/daemon/kept/ledger"),)
    plain = ev.SparkSource(name="a/b.c")
    assert plain.keeper is None
    plain.keep_in(Path("/daemon"))
    assert plain.keeper == Path("/daemon/a%2Fb%2Ec.rows")
    for wrong in ({"limit": 10}, {"patience": 0}, {"patience": True}, {"folder": 3}, {"schema": Note}):
        with pytest.raises(ev.GraphError, match="spark source"):
            ev.SparkSource(Row, **wrong)  # type: ignore[arg-type]
    with pytest.raises(ev.SchemaError):
        ev.SparkSource(7)
