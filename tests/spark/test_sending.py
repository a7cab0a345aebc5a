"""What tasks send, without Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import evflow as ev
from evflow.errors import EvflowError, FlowError, SparkError, UnwrittenError
from evflow.net.node.keys import generate
from evflow.spark.format.connection import Connection, shared
from evflow.spark.format.options import Options
from evflow.spark.format.sending import Sender
from evflow.spark.questions import Abort, Append, Begin, Begun, Commit, Done, End, Landed
from tests.spark.writes import STONE, Receiver, receiver

pa = pytest.importorskip("pyarrow")


class Row(ev.Event):
    id: int
    text: str = ""


def rows(first: int, stop: int) -> pa.RecordBatch:
    ids = range(first, stop)
    return pa.RecordBatch.from_pydict({"id": list(ids), "text": ["x" * (n % 9) for n in ids]})


def begin(connection: Connection, partition: int, job: str = "job", run: str = "") -> int:
    """The number of a task that begins; -1 if its job is done."""
    begun = connection.ask(Begin(job, 0, partition, 1, Row.schema.description, run), Begun)
    return -1 if begun.done else begun.task


def commit(connection: Connection, tasks: list[tuple[int, int, int]], job: str = "job") -> int:
    return connection.ask(Commit(job, 0, tasks), Landed).rows


def given(there: Receiver, **more: str) -> Options:
    return Options.parse({"timeout": "10", **there.options, **more})


def test_of_attempts_that_run_side_by_side_only_those_that_are_committed_count() -> None:
    with receiver(Row) as there, Connection(given(there)) as first, Connection(given(there)) as second:
        tasks = [begin(first, 0), begin(second, 0), begin(second, 1)]
        one, two = Sender(first, tasks[0], Row.schema), Sender(second, tasks[1], Row.schema)
        other = Sender(second, tasks[2], Row.schema)
        with one, two, other:
            for start in range(0, 30_000, 1000):
                for sender in (one, two):
                    sender.send(rows(start, start + 1000))
            other.send(rows(30_000, 30_010))
            for sender in (one, two, other):
                sender.finish()
        assert [sender.rows for sender in (one, two, other)] == [30_000, 30_000, 10]
        counted = [(1, tasks[2], 10), (0, tasks[1], 30_000)]
        assert commit(first, counted) == 30_010
        assert there.column("id") == list(range(30_010))
        # The answer was lost, and the driver asks again; then the job is run again.
        assert commit(second, counted) == 30_010
        assert begin(first, 0) == -1
        assert len(there.column("id")) == 30_010


def test_commit_of_rows_that_are_not_there_names_the_partition() -> None:
    with receiver(Row) as there, Connection(given(there)) as connection:
        task = begin(connection, 7)
        with Sender(connection, task, Row.schema) as sender:
            sender.send(rows(0, 10))
            sender.finish()
        with pytest.raises(FlowError, match="partition 7"):
            commit(connection, [(7, task, 11)])
        with pytest.raises(FlowError, match="partition 8"):
            commit(connection, [(7, task, 10), (8, task + 1, 10)])
        assert there.column("id") == []


def test_task_that_the_stone_does_not_know_any_more_fails_at_once() -> None:
    with receiver(Row) as there, Connection(given(there)) as connection:
        with (
            pytest.raises(FlowError, match="task"),
            Sender(connection, begin(connection, 0), Row.schema) as sender,
        ):
            sender.send(rows(0, 10))
            connection.ask(Abort("job", 0), Done)
            sender.finish()
        assert there.column("id") == []


def test_task_that_fails_leaves_nothing() -> None:
    with receiver(Row) as there, Connection(given(there)) as connection:
        task = begin(connection, 0)
        with pytest.raises(ZeroDivisionError), Sender(connection, task, Row.schema) as sender:
            sender.send(rows(0, 10))
            raise ZeroDivisionError
        with pytest.raises(FlowError, match="is not known"):
            connection.ask(End(task), Landed)
        assert there.flow.attributes(STONE)["landed"] == 0


@pytest.mark.slow
def test_task_waits_for_a_stone_that_is_full_and_gives_up_in_time() -> None:
    full = UnwrittenError("the disk is full")
    said: list[EvflowError | None] = [full, full, None]

    class Full(Connection):
        def ask(self, question: Any, kind: Any, timeout: float | None = None) -> Any:
            error = said.pop(0) if isinstance(question, Append) and said else None
            if error is not None:
                raise error
            return super().ask(question, kind, timeout)

    with receiver(Row) as there, Full(given(there, timeout="0.4")) as connection:
        with Sender(connection, begin(connection, 0), Row.schema) as sender:
            sender.send(rows(0, 10))
            sender.finish()
        assert said == []
        said += [full] * 100
        with (
            pytest.raises(SparkError, match=r"took no rows within 0.4 s: the disk is full"),
            Sender(connection, begin(connection, 1), Row.schema) as sender,
        ):
            sender.send(rows(0, 10))
            sender.finish()


def test_task_that_begins_after_its_run_was_aborted_is_refused() -> None:
    with receiver(Row) as there, Connection(given(there)) as connection:
        connection.ask(Abort("nightly", 0, "first"), Done)
        with pytest.raises(FlowError, match="job 'nightly' was aborted before its partition 0 began"):
            begin(connection, 0, "nightly", "first")
        assert begin(connection, 0, "nightly", "second") > 0


def test_connection_is_kept_for_the_next_task_unless_it_failed() -> None:
    with receiver(Row) as there:
        options = given(there)
        with shared(options) as first:
            begin(first, 0)
        with pytest.raises(FlowError), shared(options) as second:
            begin(second, -1)
        assert first is second
        with shared(options) as third:
            begin(third, 0)
        assert third is not first
        third.close()


def test_keys_are_used_by_one_task_at_a_time(tmp_path: Path) -> None:
    for name in ("there", "etl", "etl-2"):
        generate(tmp_path, name)
    batches: list[ev.EventBatch] = []
    graph = ev.Graph("receiver")
    graph.add(ev.SparkSource(Row, name=STONE, on="there")) >> ev.Terminal(
        batches.append, batch=True, on="there"
    )
    node = ev.Node("there", listen="tcp://127.0.0.1:0", keys=tmp_path)
    with graph.run(node=node) as flow:
        there = Receiver(flow, batches)
        contact = {"contact": f"there={node.contact}", "keys": str(tmp_path), "name": "etl"}
        options = Options.parse({"stone": STONE, "timeout": "10", **contact})
        with shared(options) as first, shared(options) as second:
            tasks = [begin(connection, partition) for partition, connection in enumerate((first, second))]
            with pytest.raises(SparkError, match="all 2 keys of 'etl' are in use"):
                Connection(Options.parse({"stone": STONE, "timeout": "0.1", **contact}))
            for number, connection in enumerate((first, second)):
                with Sender(connection, tasks[number], Row.schema) as sender:
                    sender.send(rows(number * 10, number * 10 + 10))
                    sender.finish()
        with Connection(options) as connection:
            assert commit(connection, [(0, tasks[0], 10), (1, tasks[1], 10)]) == 20
        assert there.column("id") == list(range(20))
        with pytest.raises(SparkError, match=r"this host has no other\.key there"):
            Connection(Options.parse({"stone": STONE, **contact, "name": "other"}))
