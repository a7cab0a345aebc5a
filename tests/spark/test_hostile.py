"""What comes from outside and is wrong harms only who has said it; ``tests.fuzz.spark`` tries more of it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import msgpack
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import evflow as ev
from evflow.disk import Log, Store
from evflow.errors import DeployError, EvflowError, FlowError, SparkError
from evflow.net.link.control import Answers
from evflow.spark import questions
from evflow.spark.format.connection import Connection
from evflow.spark.format.options import Options
from evflow.spark.format.sending import Sender
from evflow.spark.landing import ledger, store
from evflow.stone import Checkpoint
from tests.fuzz import spark
from tests.spark.landing import Desk, Note, Row, killed, rows
from tests.spark.writes import receiver

PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 64) - 1)
    | st.floats()
    | st.text()
    | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)
KEYS = "job epoch partition attempt schema run task tasks query at spool from to most first rows data".split()
ASKS = "look begin append end drop commit abort range rows".split()
DEEP = spark.nested(1000)
SCHEMA = Row.schema.fingerprint


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    made = Desk(tmp_path / "rows")
    yield made
    made.actor.close()


def sink(path: Path | None = None, **settings: Any) -> Any:
    return ev.SparkSink(Row, path=path, **settings).open(spark.SinkNotes())  # type: ignore[arg-type]


@given(st.sampled_from(ASKS), st.dictionaries(st.sampled_from(KEYS), PLAIN))
def test_stones_answer_every_question_or_refuse_it(ask: str, rest: dict[str, Any]) -> None:
    desk, actor = Desk(), sink()
    try:
        for one in (desk.actor, actor):
            msgpack.packb(spark.refused(lambda one=one: one.answer({"ask": ask, **rest})))
    finally:
        desk.actor.close()
        actor.close()


@given(PLAIN)
def test_answers_are_used_or_refused(answer: Any) -> None:
    for kind in (questions.Schemas, questions.Begun, questions.Landed, questions.There, questions.Page):
        spark.refused(lambda kind=kind: questions.answered(answer, kind))
        spark.refused(
            lambda kind=kind: questions.answered(dict.fromkeys(kind.__struct_fields__, answer), kind)
        )


@given(st.integers(0, 1 << 32))
def test_case_of_the_fuzzer_finds_nothing(seed: int) -> None:
    spark.check(Random(seed), lambda text: None)


def packed_deep(body: Any) -> bytes:
    """Msgpack of a value in which "deep" stands for a list that some versions do not pack."""
    packed: bytes = msgpack.packb(body)
    return packed.replace(msgpack.packb("deep"), b"\x91" * 1000 + b"\xc0")


@pytest.mark.parametrize("body", ["deep", [b"s", 1, "stone", {"stone": "deep"}], [b"s", 1, "deep", {}]])
def test_question_that_is_nested_deep_is_refused(body: Any) -> None:
    told: list[Any] = []

    def refuse(peer: str, arguments: dict[str, Any], reply: Any) -> None:
        raise FlowError(f"{arguments['stone']!r}")

    there = Answers({"stone": refuse}, lambda *_: "", lambda *sent: told.append(sent) is None)
    try:
        there.receive("peer", packed_deep(body))
    except DeployError as error:
        told.append(str(error))
    assert told


@pytest.mark.parametrize("key", ["ask", "job", "epoch", "schema", "tasks"])
def test_question_whose_values_are_nested_deep_is_refused(desk: Desk, key: str) -> None:
    for ask in ("begin", "commit", "end"):
        with pytest.raises(EvflowError):
            desk.actor.answer({"ask": ask, "job": "job", "epoch": 0, "partition": 0, "attempt": 0, key: DEEP})


def test_tasks_that_only_begin_make_way_for_others(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "MOST_TASKS", 50)
    healthy = desk.begin("healthy")
    desk.send(healthy, 0, 3)
    for partition in range(500):
        desk.begin("hostile", 0, partition)
    assert len(desk.tasks()) <= 50
    assert desk.commit([(0, healthy, 3)], "healthy") == 3
    assert desk.release() == [0, 1, 2]


def test_tasks_that_have_rows_do_not_make_way(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "MOST_TASKS", 3)
    for partition in range(3):
        desk.send(desk.begin("job", 0, partition), 0, 1)
    with pytest.raises(FlowError, match="3 tasks are under way"):
        desk.begin("job", 0, 3)


def test_schemas_of_tasks_are_kept_once_and_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "_MOST_SCHEMAS", 2000)
    desk = Desk()
    desk.stone.schema = None
    actor = desk.stone.open(desk.notes)  # type: ignore[arg-type]
    asked = {"ask": "begin", "job": "job", "epoch": 0, "partition": 0, "attempt": 0}

    def begin(number: int) -> Any:
        described = {"name": "R", "fields": [[f"column{number}", "i64"]]}
        return actor.answer({**asked, "schema": described})

    try:
        for _ in range(100):
            begin(0)
        with pytest.raises(FlowError, match="schemas are under way"):
            for number in range(100):
                begin(number)
        assert begin(0)["task"]
        actor.answer({"ask": "abort", "job": "job", "epoch": 0})
        assert begin(1000)["task"]
        large = {"name": "R", "fields": [[f"column{n}", "i64"] for n in range(20_000)]}
        with pytest.raises(FlowError, match="schema: expected a description of 262144 bytes at most"):
            actor.answer({**asked, "schema": large})
    finally:
        actor.close()
        desk.actor.close()


def test_commit_of_more_tasks_than_there_can_be_is_refused(desk: Desk) -> None:
    with pytest.raises(FlowError, match="length <= 100000"):
        desk.ask("commit", job="job", epoch=0, tasks=[[0, 0, 0]] * 100_001)


def test_epochs_that_nobody_goes_on_with_are_forgotten(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "MOST_RUNS", 10)
    for epoch in range(5):
        desk.commit([], "query", epoch)
    for number in range(100):
        desk.commit([], "hostile", 2 * number + 2)
        if number % 5 == 0:
            desk.commit([], "query", 5 + number // 5)
    assert len(desk.actor._store.ledger.epochs()) <= 12
    found = desk.ask("begin", job="query", epoch=0, partition=0, attempt=0, schema=Row.schema.description)
    assert found["done"]


def test_task_that_fails_gives_up_its_rows(desk: Desk) -> None:
    task, other = desk.begin(partition=0), desk.begin(partition=1)
    desk.send(task, 0, 10)
    desk.send(other, 0, 10)
    assert desk.ask("drop", task=task) == {} and desk.ask("drop", task=task) == {}
    assert desk.tasks() == [other] and len(desk.files()) == 1 and desk.landed(other) == 10
    with pytest.raises(FlowError, match="is not known"):
        desk.landed(task)


def test_snapshot_that_is_wrong_leaves_what_was_there(desk: Desk) -> None:
    task = desk.begin()
    desk.send(task, 0, 5)
    given = desk.actor.checkpoint()
    assert given.state is not None
    version, stream, number, _, jobs = msgpack.unpackb(given.state.tobytes())
    twice = [["job", 3, 4, 1], ["job", 3, 5, 1]]
    state = msgpack.packb([version, stream, number, twice, jobs])
    used = desk.actor._store.folder.used
    with pytest.raises(FlowError):
        desk.actor.restore(Checkpoint((), np.frombuffer(state, np.uint8), given.layout))
    assert desk.actor._store.folder.used == used
    assert desk.commit([(0, task, 5)]) == 5
    assert desk.release() == [0, 1, 2, 3, 4]


def test_offsets_that_a_sink_does_not_have_let_nothing_go(tmp_path: Path) -> None:
    actor = sink(tmp_path / "log")
    actor.receive(rows(0, 10), "rows")
    spool = actor.answer({"ask": "range"})["spool"]
    for at in (11, 1 << 40, 1 << 62, 1 << 63, (1 << 64) - 1, -1):
        for question in ({"ask": "range", "at": at}, {"ask": "commit", "to": at}):
            with pytest.raises(FlowError):
                actor.answer({"query": "q", "spool": spool, **question})
    found = actor.answer({"ask": "range"})
    assert (found["first"], found["next"]) == (0, 10)
    actor.close()


def test_queries_without_number_do_not_put_out_those_that_read(tmp_path: Path) -> None:
    actor = sink(tmp_path / "log")
    actor.receive(rows(0, 10), "rows")
    spool = actor.answer({"ask": "range"})["spool"]
    actor.answer({"ask": "range", "query": "healthy", "at": 2, "spool": spool})
    for ask, key in (("range", "at"), ("commit", "to")):
        with pytest.raises(FlowError, match="1000 queries read from the sink"):
            for number in range(1001):
                actor.answer({"ask": ask, "query": f"{ask}{number}", key: 10, "spool": spool})
    assert actor.answer({"ask": "range"})["first"] == 2
    actor._queries.patience = 0.0
    time.sleep(0.001)
    assert actor.answer({"ask": "range", "query": "late", "at": 5, "spool": spool})["next"] == 10
    actor.close()


@pytest.mark.parametrize("kind", [Row, Note])
def test_rows_that_are_damaged_on_the_disk_do_not_leave(tmp_path: Path, kind: Any) -> None:
    desk = Desk(tmp_path / "rows", kind)
    desk.send(task := desk.begin(), 0, 100)
    desk.commit([(0, task, 100)])
    (file,) = desk.files()
    content = file.read_bytes()
    for wrong in (content[:-50] + bytes(50), content[:-1], b""):
        file.write_bytes(wrong)
        desk.actor.wake(0.0)
        assert "not what was written" in desk.actor.busy and desk.notes.emitted == []
        with pytest.raises(FlowError, match="not what was written"):
            desk.actor.extract()
    file.write_bytes(content)
    assert desk.release() == list(range(100))
    desk.actor.close()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("state", ["x", 0, 0]),
        ("state", [bytes(16), -1, 0]),
        ("state", [bytes(16), "x", 0]),
        ("state", [bytes(16), 0, 3]),
        ("state", [bytes(16), 2, 0]),
        ("state", None),
        (("schema", "x"), 5),
        (("schema", "x"), {"name": "S"}),
        (("task", 5), ["job", "x", 0, SCHEMA]),
        (("task", 5), [b"", 0, 0, SCHEMA]),
        (("task", 5), ["job"]),
        (("task", 5), ["job", 0, 0, "x"]),
        (("task", 5), ["job", 0, 0, []]),
        (("task",), ["job", 0, 0, SCHEMA]),
        (("part", 5, 0), ["x", 3]),
        (("waiting", 0), [5, 3, "done", 0, SCHEMA]),
        (("waiting", 0), ["x", -1, "done", 0, SCHEMA]),
        (("waiting", 0), ["x", 3, "done", 0, "x"]),
        (("waiting", 7), ["x", 3, "done", 0, SCHEMA]),
        (("waiting", "x"), ["x", 3, "done", 0, SCHEMA]),
        (("waiting", 0), ["x", 3, "done", 0, SCHEMA]),
        (("run", "done", "x"), [0, 3]),
        (("run", "done", 0), []),
        ("other", 1),
        (1, 1),
    ],
)
def test_ledger_with_other_values_is_refused(desk: Desk, tmp_path: Path, key: Any, value: Any) -> None:
    desk.send(task := desk.begin("done"), 0, 3)
    desk.commit([(0, task, 3)], "done")
    desk.send(desk.begin("job"), 0, 3)
    left = killed(tmp_path / "rows", tmp_path / "left")
    with closing(Store(left / "ledger", "ledger", "ledger of Spark 3")) as kept:
        kept.save({key: value})
    with pytest.raises(FlowError):
        Desk(left)


@pytest.mark.parametrize(
    "meta",
    [
        ["state", 0, 10, b"", 0, {}, [], []],
        ["state", 0, 10, "spool", "x", Row.schema.description, [], []],
        ["state", 0, 10, "spool", -1, Row.schema.description, [], []],
        ["state", 0, 10, "spool", 0, [[[]]], [], []],
        ["state", 0, 10, "spool", 0, Row.schema.description, [["q", "x"]], []],
        ["state", 0, 10, "spool", 0, Row.schema.description, [], [[b"", [None], 0]]],
        ["state", 0, 10, "spool", 0, Row.schema.description, [], [[b"", [], "x"]]],
        ["state", 0, 9, "spool", 0, Row.schema.description, [], []],
        ["state"],
        ["things", -1],
        ["things", 1, b"", ["x"], 0],
        ["things", 1, b""],
        ["first", 11],
        ["query", "q", "x"],
        ["nothing"],
        [b""],
    ],
)
def test_sink_file_with_other_values_is_refused(tmp_path: Path, meta: list[Any]) -> None:
    actor = sink(tmp_path / "log")
    actor.receive(rows(0, 10), "rows")
    actor.close()
    with closing(Log(tmp_path / "log", "sink file", "sink 1")) as log:
        assert len(list(log.pieces())) == 2
        log.append(meta)
    with pytest.raises(FlowError, match=r"sink file .* cannot be used"):
        sink(tmp_path / "log")


def test_options_with_names_that_files_cannot_have_are_refused() -> None:
    good = {"contact": "a=tcp://h:1", "stone": "rows"}
    for name in ("../x", "/x", "**", "x" * 101, "a\0b", "é"):
        with pytest.raises(SparkError, match="option 'name'"):
            Options.parse({**good, "keys": "keys", "name": name})
    with pytest.raises(SparkError, match="option 'keys'"):
        Options.parse({**good, "keys": "a\0b"})
    for name in ("x" * 101, "tcp://h:1"):
        with pytest.raises(SparkError, match="option 'name'"):
            Options.parse({**good, "name": name})


def test_offsets_of_thousands_of_digits_are_refused() -> None:
    good = {"contact": "tcp://h:1", "stone": "rows"}
    for text in ("9" * 5000, "9" * 19, "x" * 100_000, "-1"):
        for name in ("from", "partitions"):
            with pytest.raises(SparkError, match=f"option {name!r}"):
                Options.parse({**good, name: text}, reads=True)


def test_commit_without_what_each_task_sent_is_refused() -> None:
    pytest.importorskip("pyspark")
    from evflow.spark.format import writing

    sent = writing.Sent("job", 0, 0, 7, 5)
    assert writing._all_sent([sent]) == [sent] and writing._all_sent([]) == []
    for other in (None, object()):
        with pytest.raises(SparkError, match="1 of 2 tasks have not said what they sent"):
            writing._all_sent([sent, other])  # type: ignore[list-item]


@pytest.mark.parametrize("kind", ['{"type": "udt", "pyClass": "os.nothing", "serializedClass": ""}', '"x"'])
def test_columns_that_would_have_spark_import_or_are_none_are_refused(kind: str) -> None:
    pytest.importorskip("pyspark")
    from evflow.spark.format import reading

    columns = f'{{"type": "struct", "fields": [{{"name": "a", "type": {kind}, "nullable": true}}]}}'
    for origin in (columns, "x", "[]", "9" * 5000):
        with pytest.raises(SparkError, match="expected columns of Spark as the origin of schema S"):
            reading.origin(ev.Schema("S", {"a": int}, origin=origin))


@pytest.mark.slow
def test_node_goes_on_after_questions_that_nobody_should_ask() -> None:
    desc = {"name": "R", "fields": [["x", "i64"]]}
    begin = {"ask": "begin", "job": "job", "epoch": 0, "partition": 0, "attempt": 0, "schema": desc}
    with receiver() as there:
        options = Options.parse({"timeout": "10", **there.options})
        with Connection(options) as connection:

            def put(question: Any) -> Any:
                return connection.flow.ask(options.there, options.stone, question)

            task = put(begin)["task"]
            for hostile in (DEEP, (1 << 64) - 1, "x" * 200_000, [[1, 2]] * 20_000):
                for key, verb in product(KEYS, ("begin", "commit", "end")):
                    asked = {**begin, "ask": verb, "task": -1, key: hostile}
                    spark.refused(partial(put, asked))
            for stone in ("x" * 100_000, "", "\ud83d", DEEP):
                with pytest.raises(EvflowError):
                    connection.flow.ask(options.there, stone, {"ask": "look"})
            with pytest.raises(EvflowError, match="what msgpack takes"):
                put({"ask": 1 << 70})
            assert put({"ask": "end", "task": task}) == {"rows": 0}
            with (
                pytest.raises(FlowError, match="is not known"),
                Sender(connection, task, ev.Schema.from_description(desc)) as sender,
            ):
                put({"ask": "drop", "task": task})
                sender.finish()
