"""What tasks send, without Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import evflow as ev
from evflow.errors import FlowError, SparkError
from evflow.node.keys import generate
from evflow.spark.format.options import Options
from evflow.spark.format.sending import Line, Way
from tests.spark.writes import STONE, Receiver, receiver

pa = pytest.importorskip("pyarrow")


class Row(ev.Event):
    id: int
    text: str = ""


def rows(first: int, stop: int) -> pa.RecordBatch:
    ids = range(first, stop)
    return pa.RecordBatch.from_pydict({"id": list(ids), "text": ["x" * (n % 9) for n in ids]})


def begin(way: Way, partition: int, job: str = "job") -> int:
    question = {"ask": "begin", "job": job, "epoch": 0, "partition": partition, "attempt": 1}
    answer = way.ask(question | {"schema": Row.schema.description})
    if answer["done"]:
        return -1
    way.begin(answer["task"], Row.schema)
    return int(answer["task"])


def commit(options: Options, tasks: list[list[int]], job: str = "job") -> Any:
    with Line(options) as line:
        return line.ask({"ask": "commit", "job": job, "epoch": 0, "tasks": tasks})


def given(there: Receiver, **more: str) -> Options:
    return Options.parse({"timeout": "10", **there.options, **more})


def test_of_attempts_that_run_side_by_side_only_those_that_are_committed_count() -> None:
    with receiver(Row) as there:
        options = given(there)
        with Way(options, "0-1") as first, Way(options, "0-2") as second, Way(options, "1-3") as other:
            tasks = [begin(way, partition) for way, partition in ((first, 0), (second, 0), (other, 1))]
            for start in range(0, 30_000, 1000):
                for way in (first, second):
                    way.send(rows(start, start + 1000))
            other.send(rows(30_000, 30_010))
            for way in (first, second, other):
                way.finish()
            assert [way.rows for way in (first, second, other)] == [30_000, 30_000, 10]
        answer = commit(options, [[1, tasks[2], 10], [0, tasks[1], 30_000]])
        assert answer == {"rows": 30_010}
        assert there.column("id") == list(range(30_010))
        # The answer was lost, and the driver asks again; then the job is run again.
        assert commit(options, [[1, tasks[2], 10], [0, tasks[1], 30_000]]) == answer
        with Way(options, "0-4") as again:
            assert begin(again, 0) == -1
        assert len(there.column("id")) == 30_010


def test_commit_of_rows_that_are_not_there_names_the_partition() -> None:
    with receiver(Row) as there:
        options = given(there)
        with Way(options, "0-1") as way:
            task = begin(way, 7)
            way.send(rows(0, 10))
            way.finish()
        with pytest.raises(FlowError, match="partition 7"):
            commit(options, [[7, task, 11]])
        with pytest.raises(FlowError, match="partition 8"):
            commit(options, [[7, task, 10], [8, task + 1, 10]])
        assert there.column("id") == []


def test_task_that_the_stone_does_not_know_any_more_fails_at_once() -> None:
    with receiver(Row) as there:
        with Way(given(there), "0-1") as way, Line(given(there)) as line:
            begin(way, 0)
            way.send(rows(0, 10))
            line.ask({"ask": "abort", "job": "job", "epoch": 0})
            with pytest.raises(FlowError, match="task"):
                way.finish()
        assert there.column("id") == []


def test_task_that_begins_after_its_run_was_aborted_is_refused() -> None:
    question = {"job": "nightly", "epoch": 0}
    with receiver(Row) as there, Line(given(there)) as line:
        line.ask({"ask": "abort", "run": "first", **question})
        begin = {"ask": "begin", "partition": 0, "attempt": 1, "schema": Row.schema.description, **question}
        with pytest.raises(FlowError, match="job 'nightly' was aborted before its partition 0 began"):
            line.ask({"run": "first", **begin})
        assert not line.ask({"run": "second", **begin})["done"]


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
        with Way(options, "0-1") as first, Way(options, "1-2") as second:
            tasks = [begin(way, partition) for partition, way in enumerate((first, second))]
            with pytest.raises(SparkError, match="all 2 keys of 'etl' are in use"):
                Line(Options.parse({"stone": STONE, "timeout": "0.1", **contact}))
            for number, way in enumerate((first, second)):
                way.send(rows(number * 10, number * 10 + 10))
                way.finish()
        assert commit(options, [[0, tasks[0], 10], [1, tasks[1], 10]]) == {"rows": 20}
        assert there.column("id") == list(range(20))
        with pytest.raises(SparkError, match=r"this host has no other\.key there"):
            Line(Options.parse({"stone": STONE, **contact, "name": "other"}))
