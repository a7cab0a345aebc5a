"""The Spark source under an engine that only notes: what has landed, is committed, leaves, and is left."""

from __future__ import annotations

import shutil
from contextlib import closing
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test

import evflow as ev
from evflow.disk import Store
from evflow.spark.landing import ledger, store
from tests.examples import tried
from tests.spark.landing import Desk, Note, Row, appending, killed, rows


def test_rows_leave_once_their_job_is_committed_in_the_order_of_partitions(tmp_path: Path) -> None:
    desk = Desk(tmp_path / "kept")
    first, second, again, empty = (
        desk.begin(partition=p, attempt=a) for p, a in [(0, 0), (1, 1), (1, 2), (2, 3)]
    )
    for at in (0, 10):
        desk.send(second, at, 10, 100 + at)
        desk.send(again, at, 10, 100 + at)
        desk.send(first, at, 10, at)
    assert [desk.landed(task) for task in (first, second, again, empty)] == [20, 20, 20, 0]
    assert desk.actor.busy == "" and desk.release() == []
    assert desk.commit([(1, again, 20), (2, empty, 0), (0, first, 20)]) == 40
    assert "40 committed rows" in desk.actor.busy and desk.actor.queued == 40
    assert len(desk.files()) == 4
    assert desk.release() == [*range(20), *range(100, 120)]
    assert desk.actor.busy == "" and desk.files() == []
    assert {k: desk.notes.attributes[k] for k in ("rows", "jobs", "released", "landed")} == {
        "rows": 40, "jobs": 1, "released": 40, "landed": 0,
    }  # fmt: skip
    # Once more, and late: the same answers, and nothing leaves.
    assert desk.commit([(1, again, 20), (2, empty, 0), (0, first, 20)]) == 40
    assert desk.ask("abort", job="job", epoch=0) == {}
    schema = Row.schema.description
    late = desk.ask("begin", job="job", epoch=0, partition=1, attempt=9, schema=schema)
    assert late == {"task": 0, "done": True}
    with pytest.raises(ev.FlowError, match="is not known"):
        desk.send(again, 20, 5)
    assert desk.release() == []
    desk.actor.close()


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 60), st.integers(1, 30)), max_size=12))
def test_rows_that_come_again_are_skipped_also_in_part(sent: list[tuple[int, int]]) -> None:
    desk = Desk()
    task, known, dropped = desk.begin(), 0, 0
    for at, count in sent:
        at = min(at, known)
        dropped += min(count, known - at)
        known = max(known, at + count)
        desk.send(task, at, count)
    assert desk.landed(task) == known and desk.notes.dropped == dropped
    assert desk.notes.taken == sum(count for _, count in sent)
    desk.commit([(0, task, known)])
    assert desk.release() == list(range(known))
    desk.actor.close()


def test_rows_with_a_gap_before_them_and_rows_that_are_malformed_are_refused() -> None:
    desk = Desk()
    task = desk.begin()
    desk.send(task, 0, 10)
    with pytest.raises(ev.FlowError, match="partition 0 of job 'job': rows 10 to 11 have not come"):
        desk.send(task, 12, 10)
    good = appending(rows(10, 5), task, 10)
    for wrong in ({"rows": 4}, {"rows": 6}, {"data": good["data"][:-1]}, {"data": b"\xc1" * 40}):
        with pytest.raises(ev.SchemaError):
            desk.actor.answer(good | wrong)
    with pytest.raises(ev.FlowError, match="is not known"):
        desk.actor.answer(good | {"task": 12345})
    assert desk.landed(task) == 10
    desk.send(task, 10, 5)
    assert desk.commit([(0, task, 15)]) == 15
    desk.actor.close()


def test_events_of_no_task_are_faults() -> None:
    desk = Desk()
    desk.actor.receive(rows(40, 2), "rows")
    assert desk.notes.faults == [40, 41] and desk.notes.emitted == []
    desk.actor.close()


def test_a_commit_of_what_is_not_there_names_the_partitions_and_changes_nothing() -> None:
    desk = Desk()
    tasks = [desk.begin(partition=p) for p in range(3)]
    for task in tasks:
        desk.send(task, 0, 10)
    foreign = desk.begin(job="other")
    with pytest.raises(ev.FlowError) as error:
        desk.commit([(0, tasks[0], 10), (1, tasks[1], 11), (2, 77, 10), (3, foreign, 0), (4, tasks[2], 10)])
    text = str(error.value)
    assert "epoch 0 of job 'job'" in text and "partition 0" not in text
    assert "partition 1 has 10 rows, expected 11" in text and "partition 2 is missing" in text
    assert "partition 3 has a task of another" in text and "partition 4 has a task of another" in text
    with pytest.raises(ev.FlowError, match="and 2 more"):
        desk.commit([(p, 77, 1) for p in range(12)])
    assert desk.commit([(p, task, 10) for p, task in enumerate(tasks)]) == 30
    desk.actor.close()


def test_an_abort_leaves_nothing_and_the_job_may_begin_anew(tmp_path: Path) -> None:
    desk = Desk(tmp_path / "kept")
    other = desk.begin(epoch=1)
    task = desk.begin()
    desk.send(task, 0, 1000)
    assert desk.ask("abort", job="job", epoch=0) == {}
    assert desk.tasks() == [other] and desk.files() == []
    with pytest.raises(ev.FlowError, match="is not known"):
        desk.landed(task)
    task = desk.begin(attempt=1)
    desk.send(task, 0, 3)
    assert desk.commit([(0, task, 3)]) == 3 and desk.release() == [0, 1, 2]
    assert desk.commit([], epoch=1) == 0
    assert desk.tasks() == []
    desk.actor.close()


def test_a_question_that_is_malformed_is_refused() -> None:
    desk = Desk()
    schema = Row.schema.description
    begin = {"job": "job", "epoch": 0, "partition": 0, "attempt": 0, "schema": schema}
    wrong: list[tuple[str, dict[str, Any], str]] = [
        ("nothing", {}, "question 'nothing' of Spark: expected one of look, begin"),
        ("begin", begin | {"job": ""}, r"question 'begin' of Spark: Expected `str` of length >= 1 .*\$\.job"),
        ("begin", begin | {"job": "x" * 1001}, "job"),
        ("begin", begin | {"epoch": -1}, r"Expected `int` >= 0 .*\$\.epoch"),
        ("begin", begin | {"partition": True}, "partition"),
        ("begin", begin | {"attempt": 1 << 62}, "attempt"),
        ("end", {"task": "1"}, "task"),
        ("commit", {"job": "job", "epoch": 0}, "required field `tasks`"),
        ("commit", {"job": "job", "epoch": 0, "tasks": [[1, 2]]}, r"length 3, got 2 .*\$\.tasks\[0\]"),
        ("commit", {"job": "job", "epoch": 0, "tasks": [[1, 2, 3], [1, 3, 3]]}, "each partition once"),
        ("abort", {"job": None, "epoch": 0}, "job"),
    ]
    for ask, question, text in wrong:
        with pytest.raises(ev.FlowError, match=text):
            desk.ask(ask, **question)
    with pytest.raises(ev.FlowError, match="question None"):
        desk.actor.answer({})
    with pytest.raises(ev.SchemaError):
        desk.ask("begin", **begin | {"schema": {"name": "x"}})
    assert desk.tasks() == []
    desk.actor.close()


def test_rows_must_fit_the_declared_schema_when_a_task_begins() -> None:
    desk = Desk()
    begin = {"job": "job", "epoch": 0, "partition": 0, "attempt": 0}
    assert desk.ask("look") == {"schemas": [Row.schema.description]}
    for wrong in (ev.Schema("row", {"price": float}), ev.Schema("row", {"seq": str, "price": float})):
        with pytest.raises(ev.SchemaError, match="do not fit"):
            desk.ask("begin", **begin, schema=wrong.description)
    desk.actor.close()
    anything = Desk(kind=None)
    assert anything.ask("look") == {"schemas": []}
    task = int(anything.ask("begin", **begin, schema=Note.schema.description)["task"])
    anything.append(task, 0, rows(0, 5, Note))
    with pytest.raises(ev.SchemaError):
        anything.append(task, 5, rows(5, 5, Row))
    assert anything.landed(task) == 5
    anything.actor.close()


def test_rows_beyond_the_limit_wait_for_those_that_leave_or_fail_their_task() -> None:
    desk = Desk(limit=1 << 20)
    # 19 bytes a row, in files that take whole blocks of 4096 bytes.
    most = ((1 << 20) - 4096) // 19
    one = desk.begin()
    desk.send(one, 0, most)
    desk.commit([(0, one, most)])
    two, three = desk.begin(job="two"), desk.begin(job="three")
    desk.send(two, 0, 200)
    assert desk.actor._store.folder.used == 1 << 20
    # What is committed will leave, so there is something to wait for.
    full = r"bytes of rows have landed, expected less than 1048576 \(limit=\)"
    with pytest.raises(ev.UnwrittenError, match=full):
        desk.send(two, 200, 200)
    assert desk.landed(two) == 200
    assert len(desk.release(settle=False)) == most
    with pytest.raises(ev.UnwrittenError, match=full):
        desk.send(two, 200, 200)
    desk.actor.settled(desk.actor.mark())
    # Now nothing is, and nobody may wait for ever.
    desk.send(three, 0, most - 1000)
    with pytest.raises(
        ev.FlowError, match=r"would have landed, of jobs that are not committed, expected at most 1048576"
    ) as told:
        desk.send(two, 200, 2000)
    assert not isinstance(told.value, ev.UnwrittenError)
    assert desk.landed(two) == 200 and desk.landed(three) == most - 1000
    desk.ask("drop", task=two)
    desk.send(three, most - 1000, 950)
    assert desk.landed(three) == most - 50
    desk.actor.close()


def test_tasks_of_which_nothing_is_heard_are_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    desk = Desk(patience=100.0)
    ended, silent, other = desk.begin(partition=0), desk.begin(partition=1), desk.begin(job="other")
    desk.send(ended, 0, 10)
    desk.landed(ended)
    now = 1060.0
    assert desk.actor.wake(now) == 1085.0
    late = desk.begin(partition=2)
    now = 1151.0
    desk.actor.wake(now)
    # One that has ended waits for the others of its job; these are not all gone.
    assert len(desk.tasks()) == 2 and desk.landed(late) == 0
    for gone in (silent, other):
        with pytest.raises(ev.FlowError, match="nothing came of it for too long"):
            desk.landed(gone)
    now = 1400.0
    desk.actor.wake(now)
    assert desk.tasks() == [] and desk.files() == []
    desk.actor.close()


def test_a_query_takes_one_row_of_the_ledger_however_long_it_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger, "MOST_JOBS", 20)
    kept = ledger.Ledger(tmp_path / "ledger")
    for epoch in [*range(5, 100), 102, 101, 100, 200]:
        kept.commit("query", epoch, [ledger.Task(1, "query", epoch, 0, Row.schema, rows=epoch)])
    for job in range(50):
        kept.commit(f"batch {job}", 0, [])
    kept.commit("query", 0, [])
    assert [kept.committed("query", epoch) is not None for epoch in (0, 1, 4, 5, 102, 103, 200, 201)] == [
        True, False, False, True, True, False, True, False,
    ]  # fmt: skip
    found = kept.committed("query", 7)
    assert found == ("query", 5, 102, 102)
    assert [job for job in range(50) if kept.committed(f"batch {job}", 0)] == list(range(31, 50))
    kept.close()
    with closing(ledger.Ledger(tmp_path / "ledger")) as again:
        assert again.epochs() == kept.epochs()
        assert sorted(one.first for one in again.epochs() if one.job == "query") == [0, 5, 200]


def test_a_folder_has_one_source_at_a_time_and_is_refused_when_rows_are_gone(tmp_path: Path) -> None:
    desk = Desk(tmp_path / "kept")
    with pytest.raises(ev.FlowError, match="in use by another flow"):
        Desk(tmp_path / "kept")
    task = desk.begin()
    desk.send(task, 0, 10)
    desk.commit([(0, task, 10)])
    desk.actor.close()
    (file,) = desk.files()
    content = file.read_bytes()
    file.unlink()
    with pytest.raises(ev.FlowError, match="10 committed rows of job 'job', is gone"):
        Desk(tmp_path / "kept")
    file.write_bytes(content[:-1])
    with pytest.raises(ev.FlowError, match="is gone or cut"):
        Desk(tmp_path / "kept")
    file.write_bytes(content)
    (tmp_path / "kept" / "rows" / "left").write_bytes(b"whatever")
    desk = Desk(tmp_path / "kept")
    assert desk.files() == [file] and desk.release() == list(range(10))
    desk.actor.close()
    (tmp_path / "kept" / "ledger").write_bytes(b"no ledger" * 1000)
    with pytest.raises(ev.FlowError, match="cannot be used"):
        Desk(tmp_path / "kept")


def test_a_folder_of_an_earlier_version_is_refused_and_stays_as_it_is(tmp_path: Path) -> None:
    rows_of_it = tmp_path / "rows" / "0123456789abcdef"
    rows_of_it.parent.mkdir(mode=0o700)
    rows_of_it.write_bytes(b"evflow\x02\n")
    with closing(Store(tmp_path / "ledger", "ledger", "ledger of Spark 2")) as earlier:
        earlier.save({"state": [bytes(16), 0, 1, 0]})
    with pytest.raises(
        ev.FlowError, match=r"expected ledger of Spark 3, found 'ledger of Spark 2', .* version"
    ):
        Desk(tmp_path)
    assert rows_of_it.exists()


def test_rows_that_settle_after_the_close_do_not_leave_again(tmp_path: Path) -> None:
    desk = Desk(tmp_path / "kept")
    task = desk.begin()
    desk.send(task, 0, 10)
    desk.commit([(0, task, 10)])
    desk.release(settle=False)
    mark = desk.actor.mark()
    desk.actor.close()
    assert desk.actor.keeps
    desk.actor.settled(mark)
    desk = Desk(tmp_path / "kept")
    assert desk.release() == [] and desk.files() == []
    desk.actor.close()


def test_a_commit_of_one_epoch_keeps_the_tasks_of_other_epochs_and_jobs(tmp_path: Path) -> None:
    kept = ledger.Ledger(tmp_path / "ledger")
    began = [("q", 7), ("q", 7), ("q", 8), ("other", 7)]
    one, two, *other = (kept.begin(job, epoch, 0, Row.schema) for job, epoch in began)
    for task in (one, two, other[0]):
        kept.land(task, [ledger.Part("a file", 10), ledger.Part("another", 5)])
    kept.commit("q", 7, [one])
    kept.close()
    with closing(ledger.Ledger(tmp_path / "ledger")) as kept:
        assert list(map(vars, kept.tasks.values())) == [vars(one) | {"heard": ANY} for one in other]
        assert list(kept.waiting.values()) == [
            (0, "a file", 10, "q", 7, Row.schema), (1, "another", 5, "q", 7, Row.schema),
        ]  # fmt: skip
        kept.drop([kept.tasks[other[0].number]])
    with closing(ledger.Ledger(tmp_path / "ledger")) as kept:
        assert list(kept.tasks) == [other[1].number]


def test_a_ledger_that_cannot_be_written_for_a_while_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = Desk(tmp_path / "kept")
    one, two = desk.begin(), desk.begin(job="two")
    for task in (one, two):
        desk.send(task, 0, 10)
    desk.commit([(0, one, 10)])
    desk.release(settle=False)
    monkeypatch.setattr(ledger.Ledger, "save", _full_disk)
    for _ in range(2):
        with pytest.raises(ev.UnwrittenError, match="disk is full"):
            desk.actor.settled(desk.actor.mark())
    with pytest.raises(ev.FlowError, match="disk is full"):
        desk.commit([(0, two, 10)], job="two")
    assert len(desk.files()) == 2 and desk.landed(two) == 10
    later = desk.actor.wake(5.0)
    assert later is not None and later > 5.0
    monkeypatch.undo()
    desk.actor.wake(later)
    assert len(desk.files()) == 1
    assert desk.commit([(0, two, 10)], job="two") == 10 and desk.release() == list(range(10))
    desk.actor.close()


def _full_disk(*given: object) -> None:
    raise ev.UnwrittenError("the disk is full")


@pytest.mark.parametrize("kind", [Row, Note])
def test_a_source_that_moves_goes_on_with_the_same_numbers(
    tmp_path: Path, kind: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "_FRAME", 100)
    desk = Desk(tmp_path / "old", kind=kind)
    for epoch in range(3):
        tasks = [desk.begin(epoch=epoch, partition=p) for p in range(2)]
        for p, task in enumerate(tasks):
            desk.send(task, 0, 50, epoch * 100 + p * 50)
        desk.commit([(p, task, 50) for p, task in enumerate(tasks)], epoch=epoch)
    unfinished = desk.begin(epoch=3)
    desk.send(unfinished, 0, 10)
    for _ in range(7):
        desk.actor.wake(0.0)
    desk.actor.settled(desk.actor.mark())
    checkpoint = desk.actor.checkpoint()
    assert sum(len(held.batch) for held in checkpoint.held) == desk.actor.queued
    before = len(desk.notes.emitted)
    desk.release(settle=False)
    expected = desk.notes.emitted[before:]
    # What the new one had goes.
    moved = Desk(tmp_path / "new", kind=kind)
    task = moved.begin(job="own")
    moved.send(task, 0, 5)
    assert moved.actor.restore(checkpoint)
    assert moved.actor.stream == desk.actor.stream and moved.actor.queued == len(
        [seq for _, batch in expected for seq in batch]
    )
    moved.release(settle=False)
    assert moved.notes.emitted == expected
    assert moved.commit([], epoch=2) == 100
    with pytest.raises(ev.FlowError, match="not known"):
        moved.landed(unfinished)
    again = Desk(killed(tmp_path / "new", tmp_path / "copy"), kind=kind)
    again.release()
    assert again.notes.emitted == expected and again.files() == []
    for one in (desk, moved, again):
        one.actor.close()


def test_what_left_and_was_not_handled_leaves_under_its_number_after_a_move(tmp_path: Path) -> None:
    desk = Desk(tmp_path / "old")
    task = desk.begin()
    for seq in range(3):
        desk.send(task, seq, 1, seq)
    desk.commit([(0, task, 3)])
    desk.actor.wake(0.0)
    again = Desk(killed(tmp_path / "old", tmp_path / "copy"))
    moved = Desk(tmp_path / "new")
    assert moved.actor.restore(again.actor.checkpoint())
    moved.release()
    assert moved.notes.emitted == [(0, [0]), (1, [1]), (2, [2])]
    assert moved.notes.emitted[:1] == desk.notes.emitted
    for one in (desk, again, moved):
        one.actor.close()


def test_a_snapshot_that_is_malformed_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    desk = Desk(tmp_path / "kept")
    task = desk.begin()
    desk.send(task, 0, 5)
    good = desk.actor.checkpoint()
    assert good.state is not None
    for state in (good.state[:-1], good.state[::-1].copy(), good.state[:0]):
        with pytest.raises(ev.FlowError, match="malformed"):
            desk.actor.restore(ev.stone.Checkpoint((), state, good.layout))
    with pytest.raises(ev.FlowError, match="expected rows of Spark 1"):
        desk.actor.restore(ev.stone.Checkpoint((), good.state, "other"))
    held = ev.stone.Held("rows", rows(0, 3))
    with pytest.raises(ev.FlowError, match="1 batches, expected 0"):
        desk.actor.restore(ev.stone.Checkpoint((held,), good.state, good.layout))
    assert not desk.actor.restore(ev.stone.Checkpoint((held,)))
    assert desk.landed(task) == 5
    desk.actor.close()


def test_what_replaces_a_source_of_the_same_folder_goes_on_with_its_rows(tmp_path: Path) -> None:
    desk = Desk(tmp_path / "kept")
    tasks = [desk.begin(partition=p) for p in range(2)]
    desk.send(tasks[0], 0, 10)
    assert desk.actor.become(ev.SparkSource(Row, folder=tmp_path / "kept", limit=1 << 21, patience=5))
    assert desk.landed(tasks[0]) == 10
    assert not desk.actor.become(ev.SparkSource(Row, folder=tmp_path / "other"))
    assert not desk.actor.become(ev.Storage(1))
    assert desk.actor.become(ev.SparkSource(Note, folder=tmp_path / "kept"))
    with pytest.raises(ev.FlowError, match="not known"):
        desk.landed(tasks[0])
    assert desk.ask("look") == {"schemas": [Note.schema.description]} and desk.files() == []
    desk.actor.close()


def test_committed_rows_can_be_taken_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "_FRAME", 100)
    desk = Desk(tmp_path / "kept")
    task = desk.begin()
    desk.send(task, 0, 50)
    desk.commit([(0, task, 50)])
    desk.actor.wake(0.0)
    first = desk.notes.seen
    taken = [seq for batch in desk.actor.extract(7) for seq in batch["seq"].tolist()]
    again = Desk(killed(tmp_path / "kept", tmp_path / "copy"))
    assert first + taken + again.release() == list(range(50))
    rest = [seq for batch in desk.actor.extract() for seq in batch["seq"].tolist()]
    assert first + taken + rest == list(range(50)) and desk.files() == []
    for one in (desk, again):
        one.actor.close()


class Killed(RuleBasedStateMachine):
    """Spark and kills in any order: the same number always means the same rows, and each row has one."""

    kind: Any = Row

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.root = folder
        shutil.rmtree(folder, ignore_errors=True)
        self.turn = self.epoch = self.partition = self.seq = 0
        self.tasks: dict[int, tuple[int, int, list[int]]] = {}
        self.committed: list[int] = []
        self.numbers: dict[int, list[int]] = {}
        self.desk = Desk(folder / "0", kind=self.kind)

    @rule()
    def begin(self) -> None:
        task = self.desk.begin(epoch=self.epoch, partition=self.partition % 3)
        self.tasks[task] = (self.epoch, self.partition % 3, [])
        self.partition += 1

    @precondition(lambda self: self.tasks)
    @rule(which=st.integers(0, 9), back=st.integers(0, 5), count=st.integers(1, 12))
    def send(self, which: int, back: int, count: int) -> None:
        task = list(self.tasks)[which % len(self.tasks)]
        sent = self.tasks[task][2]
        again = min(back, len(sent))
        new = list(range(self.seq, self.seq + count))
        self.seq += count
        whole = sent[len(sent) - again :] + new
        batch = ev.EventBatch.concat([rows(seq, 1, self.kind) for seq in whole])
        self.desk.append(task, len(sent) - again, batch)
        sent += new
        assert self.desk.landed(task) == len(sent)

    @rule(which=st.integers(0, 9))
    def commit(self, which: int) -> None:
        chosen: dict[int, int] = {}
        for at, (task, (epoch, partition, _)) in enumerate(self.tasks.items()):
            if epoch == self.epoch and (partition not in chosen or at % 2 == which % 2):
                chosen[partition] = task
        parts = [(p, task, len(self.tasks[task][2])) for p, task in chosen.items()]
        total = self.desk.commit(parts, epoch=self.epoch)
        assert self.desk.commit(parts, epoch=self.epoch) == total
        for _, task, _ in sorted(parts):
            self.committed += self.tasks[task][2]
        self.tasks.clear()
        self.epoch += 1

    @rule()
    def abort(self) -> None:
        self.desk.ask("abort", job="job", epoch=self.epoch)
        self.tasks.clear()

    @rule(times=st.integers(1, 4), settle=st.booleans())
    def release(self, times: int, settle: bool) -> None:
        for _ in range(times):
            self.desk.actor.wake(0.0)
        if settle:
            self.desk.actor.settled(self.desk.actor.mark())
        self.note()

    def note(self) -> None:
        for number, batch in self.desk.notes.emitted:
            assert number is not None and self.numbers.setdefault(number, batch) == batch
        self.desk.notes.emitted.clear()

    @rule(kill=st.booleans())
    def restart(self, kill: bool) -> None:
        self.turn += 1
        folder = self.root / str(self.turn)
        if kill:
            killed(self.root / str(self.turn - 1), folder)
            self.desk.actor.close()
        else:
            self.desk.actor.close()
            shutil.copytree(self.root / str(self.turn - 1), folder)
        shutil.rmtree(self.root / str(self.turn - 1))
        self.desk = Desk(folder, kind=self.kind)
        for task, (_, _, sent) in self.tasks.items():
            assert self.desk.landed(task) == len(sent)

    @rule()
    def move(self) -> None:
        checkpoint = self.desk.actor.checkpoint()
        self.desk.actor.close()
        self.turn += 1
        self.desk = Desk(self.root / str(self.turn), kind=self.kind)
        assert self.desk.actor.restore(checkpoint)
        self.tasks.clear()

    def teardown(self) -> None:
        self.desk.release()
        self.note()
        assert sorted(self.numbers) == list(range(len(self.numbers)))
        assert [seq for number in sorted(self.numbers) for seq in self.numbers[number]] == self.committed
        assert self.desk.tasks() == sorted(self.tasks)
        assert bool(self.desk.files()) == any(sent for *_, sent in self.tasks.values())
        self.desk.actor.close()


@pytest.mark.parametrize("kind", [Row, Note])
def test_a_kill_at_any_moment_loses_nothing_and_changes_no_number(
    tmp_path: Path, kind: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "_FRAME", 100)

    class Machine(Killed):
        pass

    Machine.kind = kind

    def made() -> Killed:
        return Machine(tmp_path / "kept")

    run_state_machine_as_test(
        made, settings=settings(max_examples=tried(15), stateful_step_count=25, deadline=None)
    )
