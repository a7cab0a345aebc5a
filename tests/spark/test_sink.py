"""A Spark sink: what comes is held, asked for and committed; it blocks or drops, outlives kills, moves."""

from __future__ import annotations

import time
from pathlib import Path
from random import Random
from typing import Any

import pytest

import evflow as ev
from evflow.engine.snapshot import restore, take
from evflow.errors import FlowError, GraphError, SchemaError
from evflow.spark.sink import SparkSink
from tests.engine.rig import Rig
from tests.node.processes import NodeProcess, free_port, wait_for
from tests.spark import sinks
from tests.spark.sinks import LEAST, SINK, Reader, Row, local, reading, rows, sending


class Wide(Row):
    text: str = ""


def rig_of(sink: SparkSink) -> Rig:
    graph = ev.Graph()
    graph.source("here", Row) >> sink
    return Rig(graph)


def send(rig: Rig, *seqs: int) -> None:
    rig.engine.submit(rig.slot("here"), rows(*seqs))
    rig.engine.run()


def asked(rig: Rig, **question: Any) -> Any:
    actor = rig.slot(SINK).actor
    assert actor is not None
    return actor.answer(question)


def test_rows_are_held_in_order_and_read_by_their_offsets() -> None:
    with local() as (flow, reader):
        for start in range(0, 300, 100):
            flow["here"].submit_batch(rows(*range(start, start + 100)))
        flow.drain()
        assert reader.range() == (0, 300)
        assert reader.rows() == [(n, 0) for n in range(300)]
        assert reader.rows(120, 130) == [(n, 0) for n in range(120, 130)]
        assert reader.rows(0, 7, most=1) == [(n, 0) for n in range(7)]
        stats = flow.stats()[SINK]
        assert (stats["in"], stats["queued"], stats["errors"]) == (300, 300, 0)
        description = reader.ask(ask="range")["schema"]
        assert ev.Schema.from_description(description) == Row.schema
    letters = list(flow.dead_letters())
    assert [letter.event.seq for letter in letters] == list(range(300))
    assert {letter.reason for letter in letters} == {"the flow was closed while the stone held the event"}


@pytest.mark.slow
def test_rows_go_when_all_queries_that_were_heard_of_have_committed_them() -> None:
    with local(patience=0.4) as (flow, reader):
        flow["here"].submit_batch(rows(*range(1000)))
        flow.drain()
        assert reader.range() == (0, 1000)
        assert reader.range("one", 0) == reader.range("two", 0) == (0, 1000)
        assert reader.commit("one", 900) == 0
        assert reader.commit("two", 400) == 400
        # What comes late changes nothing.
        assert reader.commit("two", 100) == 400
        with pytest.raises(
            FlowError, match="rows 399 to 500 are not there: the sink has those from 400 to 1000"
        ):
            reader.rows(399, 500)
        assert reader.rows(400, 402) == [(400, 0), (401, 0)]
        # A query that goes on from an older checkpoint holds back again.
        assert reader.range("one", 500) == (400, 1000)
        assert reader.commit("two", 1000) == 500
        assert flow.stats()[SINK]["queued"] == 500
        # One that was not heard of for long does not.
        time.sleep(0.5)
        assert reader.range("two", 1000) == (1000, 1000)
        with pytest.raises(FlowError, match="cannot be committed: the sink has those up to 1000"):
            reader.commit("two", 1001)


def test_questions_that_are_wrong_are_refused_and_cost_nothing() -> None:
    with local() as (flow, reader):
        flow["here"].submit_batch(rows(1, 2))
        flow.drain()
        spool = reader.ask(ask="range")["spool"]
        for question, told in (
            ({"ask": "what"}, "question 'what' of Spark: expected one of range, rows, commit"),
            ({}, "question None of Spark"),
            ({"ask": "rows", "spool": spool, "from": -1, "to": 2, "most": 9}, r"`int` >= 0 - at `\$.from`"),
            ({"ask": "rows", "spool": spool, "from": 0, "to": "2", "most": 9}, r"got `str` - at `\$.to`"),
            ({"ask": "rows", "spool": "x", "from": 0, "to": 2, "most": 9}, "that one was lost or deleted"),
            ({"ask": "range", "query": 7, "spool": spool, "at": 0}, r"got `int` - at `\$.query`"),
            ({"ask": "commit", "query": "q", "spool": spool}, "missing required field `to`"),
        ):
            with pytest.raises(FlowError, match=told):
                reader.ask(**question)
        assert reader.rows() == [(1, 0), (2, 0)]


@pytest.mark.slow
def test_full_sink_makes_its_source_wait_until_rows_were_committed() -> None:
    with local(limit=LEAST) as (flow, reader):
        batch = rows(*range(1000))
        sent = 0
        with pytest.raises(FlowError):
            while sent < 1000:
                flow["here"].submit_batch(batch, timeout=0.3)
                sent += 1
        first, next = reader.range()
        held = (next - first) * batch.nbytes // 1000
        assert LEAST <= held <= LEAST + batch.nbytes
        found = read_all(reader, sent * 1000)
        assert found == [n % 1000 for n in range(sent * 1000)]
        flow.drain(10)
        assert reader.range() == (len(found), len(found))


def read_all(reader: Reader, count: int) -> list[int]:
    """The numbers of so many rows, committed as they come."""
    found: list[int] = []

    def more() -> int:
        _, next = reader.range("q", len(found))
        return next if next > len(found) else 0

    while len(found) < count:
        next = wait_for(more, "more rows")
        found.extend(seq for seq, _ in reader.rows(len(found), next))
        reader.commit("q", next)
    return found


def test_sink_that_drops_lets_the_oldest_rows_go_and_counts_them() -> None:
    with local(limit=LEAST, policy="drop oldest") as (flow, reader):
        for start in range(0, 20_000, 500):
            flow["here"].submit_batch(rows(*range(start, start + 500)))
        flow.drain()
        first, next = reader.range()
        assert next == 20_000 and first > 10_000
        assert reader.rows() == [(n, 0) for n in range(first, 20_000)]
        stats = flow.stats()[SINK]
        assert (stats["in"], stats["dropped"], stats["queued"]) == (20_000, first, 20_000 - first)
        assert LEAST // 2 < (next - first) * Row.schema.width <= LEAST


@pytest.mark.slow
def test_full_sink_makes_nodes_wait_and_nothing_is_lost() -> None:
    with local(limit=LEAST) as (flow, reader):
        assert flow.node is not None
        with sending(flow.node.contact, "far", limit=LEAST).run(max_bytes=LEAST) as sender:
            sent = 0
            with pytest.raises(FlowError):
                while True:
                    sender["far"].submit_batch(rows(*range(sent, sent + 1000)), timeout=0.5)
                    sent += 1000
            assert sent < 100_000
            assert read_all(reader, sent) == list(range(sent))
            sender.drain(10)


def test_schema_is_that_of_the_first_events_where_none_is_declared() -> None:
    graph = ev.Graph()
    sink = SparkSink(name=SINK)
    graph.source("here", Row) >> sink
    graph.source("wide", Wide) >> graph[SINK]
    rig = Rig(graph)
    assert asked(rig, ask="range")["schema"] is None
    send(rig, 1)
    wide = ev.EventBatch.from_columns(Wide, {"seq": [2], "text": ["x"]})
    rig.engine.submit(rig.slot("wide"), wide)
    rig.engine.run()
    assert asked(rig, ask="range")["next"] == 1
    assert [(letter.event.seq, "found" in letter.reason) for letter in rig.box.letters()] == [(2, True)]
    rig.engine.stop()


def test_events_are_converted_to_the_declared_schema() -> None:
    graph = ev.Graph()
    graph.source("wide", Wide) >> SparkSink(Row, name=SINK)
    rig = Rig(graph)
    wide = ev.EventBatch.from_columns(Wide, {"seq": [2, 3], "source": [4, 5], "text": ["x", "y"]})
    rig.engine.submit(rig.slot("wide"), wide)
    rig.engine.run()
    spool = asked(rig, ask="range")["spool"]
    answer = asked(rig, ask="rows", spool=spool, to=2, most=100, **{"from": 0})
    assert answer == {"rows": 2, "data": rows(2).to_bytes()[:-9] + answer["data"][10:]}
    assert ev.EventBatch.from_bytes(Row, answer["data"])["source"].tolist() == [4, 5]
    rig.engine.stop()


def test_rows_in_a_file_are_there_again_with_their_offsets_and_queries(tmp_path: Path) -> None:
    path = tmp_path / "kept"
    with local(path=path) as (flow, reader):
        flow["here"].submit_batch(rows(*range(100)))
        flow.drain()
        reader.range()
        reader.range("slow", 0)
        reader.commit("quick", 60)
        assert reader.commit("slow", 40) == 40
    assert not list(flow.dead_letters())
    with local(path=path) as (flow, reader):
        assert reader.range() == (40, 100)
        flow["here"].submit_batch(rows(100))
        flow.drain()
        assert reader.rows() == [(n, 0) for n in range(40, 101)]
        assert reader.commit("quick", 101) == 40
        assert reader.commit("slow", 100) == 100


def test_sink_moves_with_its_rows_offsets_queries_and_frames(tmp_path: Path) -> None:
    first = rig_of(SparkSink(Row, path=tmp_path / "first", name=SINK))
    send(first, *range(10))
    spool = asked(first, ask="range")["spool"]
    asked(first, ask="range", query="q", at=3, spool=spool)
    asked(first, ask="commit", query="q", to=4, spool=spool)
    data = take(first.engine, first.slot(SINK))
    second = rig_of(SparkSink(Row, path=tmp_path / "second", name=SINK))
    send(second, 77, 78)
    restore(second.engine, second.slot(SINK), data)
    for _ in range(2):
        there = asked(second, ask="range")
        assert (there["spool"], there["first"], there["next"]) == (spool, 4, 10)
        answer = asked(second, ask="rows", spool=spool, to=10, most=1000, **{"from": 5})
        assert ev.EventBatch.from_bytes(Row, answer["data"])["seq"].tolist() == [5, 6, 7, 8, 9]
        assert second.slot(SINK).queued == 6
        second.engine.stop()
        second = rig_of(SparkSink(Row, path=tmp_path / "second", name=SINK))
    send(second, 10)
    assert asked(second, ask="commit", query="q", to=11, spool=spool) == {"first": 11}
    # Without a file, and before anything has come.
    third = rig_of(SparkSink(name=SINK))
    restore(third.engine, third.slot(SINK), take(second.engine, second.slot(SINK)))
    assert asked(third, ask="range")["next"] == 11
    fourth, fifth = rig_of(SparkSink(name=SINK)), rig_of(SparkSink(name=SINK))
    restore(fourth.engine, fourth.slot(SINK), take(fifth.engine, fifth.slot(SINK)))
    assert asked(fourth, ask="range")["next"] == 0
    for rig in (first, second, third, fourth, fifth):
        rig.engine.stop()


@pytest.mark.slow
def test_sink_goes_on_under_other_settings_with_all_it_holds() -> None:
    with local(limit=LEAST) as (flow, reader):
        with pytest.raises(FlowError):
            while True:
                flow["here"].submit_batch(rows(*range(1000)), timeout=0.3)
        spool = reader.ask(ask="range")["spool"]
        flow.replace(SINK, SparkSink(Row, limit=1 << 30, patience=3, name=SINK))
        flow.drain(10)
        there = reader.ask(ask="range")
        assert there["spool"] == spool and there["bytes"] > LEAST


def test_settings_describe_the_sink(tmp_path: Path) -> None:
    sink = SparkSink(Row, path="kept", limit=1 << 20, policy="drop oldest", patience=5)
    again = SparkSink.from_settings(sink.settings())
    assert again.settings() == sink.settings() and again.schema == Row.schema
    again.keep_in(tmp_path)
    assert again.files == (tmp_path / "kept",)
    assert SparkSink().files == () and SparkSink.from_settings(SparkSink().settings()).schema is None
    for wrong, told in (
        ({"limit": 100}, "limit 100: expected an integer of 65536 or more"),
        ({"policy": "drop"}, "policy 'drop': expected one of 'block', 'drop oldest'"),
        ({"patience": 0}, r"patience 0 \(int\): expected seconds"),
        ({"path": 7}, "path 7: expected a file's name"),
    ):
        with pytest.raises(GraphError, match=told):
            SparkSink(**wrong)  # type: ignore[arg-type]
    with pytest.raises(SchemaError):
        SparkSink("no schema")


@pytest.mark.slow
def test_node_killed_again_and_again_has_each_row_once_and_in_order(tmp_path: Path) -> None:
    """It dies with rows in its file of which nobody was told, and has no journal: they come again."""
    contact = f"tcp://127.0.0.1:{free_port()}"
    settings = {"path": str(tmp_path / "kept"), "limit": 1 << 26, "dies_after": 7}
    random, sent = Random(1), 0
    with (
        NodeProcess("holding", "there", module=sinks.__name__, settings=settings, listen=contact) as there,
        sending(contact, "a", "b").run() as flow,
    ):
        for _ in range(3):
            while not there.ended:
                step = random.choice((1, 10, 300))
                for source, name in enumerate("ab"):
                    flow[name].submit_batch(rows(*range(sent, sent + step), source=source))
                sent += step
                time.sleep(0.05)
            there.kill()
            there.restart()
        while not _drained(flow):
            if there.ended:
                there.kill()
                there.restart()
        with reading(contact) as reader:
            found = reader.rows()
    for source in range(2):
        assert [seq for seq, of in found if of == source] == list(range(sent))


def _drained(flow: ev.Flow) -> bool:
    try:
        flow.drain(0.2)
    except FlowError:
        return False
    return True
