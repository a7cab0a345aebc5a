"""A running graph: threads, order, faults, bounds, changes, and an end that loses nothing."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import evflow as ev
from evflow.codgen.objects import append_bytes
from evflow.engine.topology import Slot
from evflow.flow.source_queue import SourceQueue
from evflow.stone import Acting, Actor, Context
from evflow.stones.source import Source


class Rec(ev.Event):
    seq: int
    source: int = 0


class Text(ev.Event):
    words: str


def test_events_of_each_thread_stay_in_order() -> None:
    """Eight threads submit to one source; each one's events arrive complete and in order."""
    seen: list[tuple[int, int]] = []
    g = ev.Graph()
    g.source("recs", Rec) >> ev.Filter("1") >> ev.Terminal(lambda e: seen.append((e.source, e.seq)))

    def submit(source: int) -> None:
        for seq in range(500):
            flow["recs"].submit(Rec(seq, source))

    with g.run() as flow:
        threads = [threading.Thread(target=submit, args=(n,)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert [seq for source in range(8) for s, seq in seen if s == source] == list(range(500)) * 8


def test_single_events_and_batches_keep_their_order() -> None:
    """Events of two schemas, single and in batches, arrive as submitted."""
    seen: list[Any] = []
    g = ev.Graph()
    g.source("any") >> ev.Terminal({Rec: lambda e: seen.append(e.seq), Text: lambda e: seen.append(e.words)})
    with g.run() as flow:
        entry = flow["any"]
        entry.submit(Rec(1))
        entry.submit(Text("two"))
        entry.submit_batch({"seq": [3, 4]}, schema=Rec)
        entry.submit(Rec(5), attrs={"k": 1})
        entry.submit(Text("six" * 5000))
        entry.submit(Rec(7))
    assert seen == [1, "two", 3, 4, 5, "six" * 5000, 7]


def test_a_handler_that_raises_costs_its_event_only() -> None:
    """The event is counted and a dead letter; it can be submitted again when the handler is well."""
    seen, broken = [], True

    def handler(event: Any) -> None:
        if broken and event.seq == 1:
            raise ValueError("not today")
        seen.append(event.seq)

    g = ev.Graph()
    g.source("recs", Rec) >> ev.Terminal(handler, name="end")
    with g.run() as flow:
        for seq in range(3):
            flow["recs"].submit(Rec(seq))
        flow.drain()
        (letter,) = flow.dead_letters()
        assert (letter.stone, letter.event.seq, letter.reason) == ("end", 1, "ValueError: not today")
        assert isinstance(letter.error, ValueError)
        assert flow.stats()["end"]["errors"] == 1
        broken = False
        flow.dead_letters().resubmit()
        letter.resubmit()
        flow.drain()
        assert len(flow.dead_letters()) == 0
    assert seen == [0, 2, 1]


def test_a_batch_handler_that_raises_costs_its_batch() -> None:
    """All events of the batch are dead letters."""
    g = ev.Graph()
    g.source("recs", Rec) >> ev.Terminal(lambda batch: 1 / 0, batch=True)
    with g.run() as flow:
        flow["recs"].submit_batch({"seq": np.arange(5)})
        flow.drain()
        assert [letter.event.seq for letter in flow.dead_letters()] == list(range(5))


def test_a_handler_may_submit() -> None:
    """Events that handlers submit are handled before drain returns."""
    seen: list[int] = []

    def handler(event: Any) -> None:
        seen.append(event.seq)
        if event.seq > 0:
            flow["recs"].submit(Rec(event.seq - 1))

    g = ev.Graph()
    g.source("recs", Rec) >> ev.Terminal(handler)
    with g.run() as flow:
        flow["recs"].submit(Rec(2000))
        flow.drain()
        assert seen == list(range(2000, -1, -1))


def test_dead_letters_are_bounded() -> None:
    """The newest are kept, the others counted."""
    g = ev.Graph()
    g.source("recs", Rec) >> ev.Filter("input.seq / 0") >> ev.Terminal(print)
    with g.run(dead_letters=10) as flow:
        flow["recs"].submit_batch({"seq": np.arange(100)})
        flow.drain()
        letters = flow.dead_letters()
    assert [letter.event.seq for letter in letters] == list(range(90, 100))
    assert letters.lost == 90


def test_a_full_flow_makes_the_submitter_wait() -> None:
    """With a handler that does not come back, submit raises after its timeout, and loses nothing."""
    go = threading.Event()
    seen: list[int] = []
    g = ev.Graph()
    g.source("recs", Rec) >> ev.Terminal(lambda e: (go.wait(), seen.append(e.seq)))
    with g.run(max_events=8) as flow:
        taken = 0
        with pytest.raises(ev.FlowError, match="'recs' is full"):
            for seq in range(1000):
                flow["recs"].submit(Rec(seq), timeout=0.2)
                taken += 1
        assert 8 <= taken < 1000
        go.set()
    assert seen == list(range(taken))


def test_batches_are_bounded_by_their_bytes() -> None:
    """Large batches wait for room as well."""
    go = threading.Event()
    g = ev.Graph()
    g.source("recs", Rec) >> ev.Terminal(lambda b: go.wait(), batch=True)
    with g.run(max_bytes=100_000) as flow:
        with pytest.raises(ev.FlowError, match="full"):
            for _ in range(100):
                flow["recs"].submit_batch({"seq": np.arange(1000)}, timeout=0.2)
        go.set()


def test_close_handles_everything_and_then_refuses() -> None:
    """What was submitted before close arrives, also at stones that were frozen; afterwards submit is an
    error."""
    seen: list[int] = []
    g = ev.Graph()
    g.source("recs", Rec) >> ev.Filter("1", name="gate") >> ev.Terminal(lambda e: seen.append(e.seq))
    flow = g.run()
    flow.freeze("gate")
    entry = flow["recs"]
    for seq in range(100):
        entry.submit(Rec(seq))
    flow.close()
    flow.close()
    assert seen == list(range(100))
    with pytest.raises(ev.FlowError, match="closed"):
        entry.submit(Rec(1))
    with pytest.raises(ev.FlowError, match="closed"):
        flow.drain()


def test_close_gives_what_memory_holds_to_the_dead_letters() -> None:
    """A storage in memory cannot keep its events over the end; they are not lost without a word."""
    g = ev.Graph()
    g.source("recs", Rec) >> ev.Storage(10, name="held") >> ev.Terminal(print)
    with g.run() as flow:
        flow["recs"].submit_batch({"seq": np.arange(4)})
    assert [(d.stone, d.event.seq) for d in flow.dead_letters()] == [("held", n) for n in range(4)]


def test_a_storage_file_survives(tmp_path: Path) -> None:
    """A second flow over the same file finds the events, their attributes too, and sends them in order."""
    seen: list[tuple[int, dict[str, Any]]] = []

    def graph() -> ev.Graph:
        g = ev.Graph()
        store = g.source("recs", Rec) >> ev.Storage(5, path=tmp_path / "store.db", name="store")
        store >> ev.Terminal(lambda e: seen.append((e.seq, e.attrs)))
        return g

    with graph().run() as flow:
        flow["recs"].submit_batch({"seq": np.arange(4)})
        flow["recs"].submit(Rec(4), attrs={"k": 7})
    with graph().run() as flow:
        assert flow.stats()["store"]["queued"] == 5
        flow["recs"].submit(Rec(5))
        flow.drain()
        assert seen == [(0, {})]
        assert flow.send_stored("store", 2) == 2
        flow.drain()
        assert seen == [(0, {}), (1, {}), (2, {})]
    with graph().run() as flow:
        flow.send_stored("store")
    assert seen == [(0, {}), (1, {}), (2, {}), (3, {}), (4, {"k": 7}), (5, {})]


def test_a_damaged_storage_file_is_refused(tmp_path: Path) -> None:
    """A file that is not a storage is an error that names it."""
    path = tmp_path / "store.db"
    path.write_bytes(b"not a storage file" * 100)
    g = ev.Graph()
    g.source("recs", Rec) >> ev.Storage(5, path=path) >> ev.Terminal(print)
    with pytest.raises(ev.FlowError, match=r"store\.db"):
        g.run()


def test_split_targets_change_while_events_flow() -> None:
    """A target added to a split sees the events from then on, one taken off sees no more; none is lost."""
    left: list[int] = []
    right: list[int] = []
    g = ev.Graph()
    fan = g.source("recs", Rec) >> ev.Split(name="fan")
    fan >> ev.Terminal(lambda e: left.append(e.seq), name="left")
    with g.run() as flow:
        flow["recs"].submit(Rec(0))
        name = flow.link("fan", ev.Terminal(lambda e: right.append(e.seq), name="right"))
        flow["recs"].submit(Rec(1))
        with pytest.raises(ev.FlowError, match="already"):
            flow.link("fan", name)
        flow.unlink("fan", "left")
        flow["recs"].submit(Rec(2))
    assert (left, right) == ([0, 1], [1, 2])


def test_waiting_events_are_extracted_and_transferred() -> None:
    """What waits at a stone can be taken out, or moved to another in order."""
    seen: list[int] = []
    g = ev.Graph()
    (
        g.source("a", Rec)
        >> ev.Filter("1", name="first")
        >> ev.Terminal(lambda e: seen.append(e.seq), name="end")
    )
    (
        g.source("b", Rec)
        >> ev.Filter("input.seq != 1", name="second")
        >> ev.Terminal(lambda e: seen.append(-e.seq))
    )
    with g.run() as flow:
        flow.freeze("first")
        flow["a"].submit_batch({"seq": np.arange(3)})
        flow.drain()
        assert flow.stats()["first"]["queued"] == 3
        flow.transfer("first", "second")
        assert flow.stats()["first"]["queued"] == 0
        flow["a"].submit(Rec(9))
        flow.drain()
        assert [e.seq for batch in flow.extract("first") for e in batch] == [9]
    assert seen == [0, -2]


def test_counts_are_exact_along_a_fused_chain() -> None:
    """A chain that is one native pass still counts each stone."""
    g = ev.Graph()
    chain = g.source("recs", Rec) >> ev.Filter("input.seq % 2 == 0", name="two")
    chain = (
        chain
        >> ev.Filter("input.seq % 3 == 0", name="three")
        >> ev.Filter("10 / (input.seq - 6)", name="six")
    )
    router = chain >> ev.Router("return input.seq % 5;", name="five")
    router[0] >> ev.Terminal(lambda e: None, name="zero")
    fan = router[1] >> ev.Split(name="fan")
    fan >> ev.Terminal(lambda e: None, name="one")
    fan >> ev.Filter("0", name="never") >> ev.Terminal(lambda e: None, name="none")
    with g.run() as flow:
        flow["recs"].submit_batch({"seq": np.arange(60)})
        flow.drain()
        stats = flow.stats()
    sixes = [n for n in range(0, 60, 6) if n != 6 and int(10 / (n - 6)) != 0]
    expected = {
        "recs": (60, 60, 0, 0),
        "two": (60, 30, 30, 0),
        "three": (30, 10, 20, 0),
        "six": (10, len(sixes), 9 - len(sixes), 1),
        "five": (len(sixes), sum(n % 5 < 2 for n in sixes), sum(n % 5 > 1 for n in sixes), 0),
        "fan": (sum(n % 5 == 1 for n in sixes), 2 * sum(n % 5 == 1 for n in sixes), 0, 0),
        "never": (sum(n % 5 == 1 for n in sixes), 0, sum(n % 5 == 1 for n in sixes), 0),
        "none": (0, 0, 0, 0),
        "one": (sum(n % 5 == 1 for n in sixes), 0, 0, 0),
    }
    found = {name: tuple(stats[name][k] for k in ("in", "out", "dropped", "errors")) for name in expected}
    assert found == expected


def test_stone_attributes_are_read_by_functions() -> None:
    """A function reads its stone's attributes, which may be set while events flow."""
    seen: list[int] = []
    g = ev.Graph()
    high = g.source("recs", Rec) >> ev.Filter('input.seq > attr_ivalue(stone_attrs, "limit")', name="high")
    high >> ev.Terminal(lambda e: seen.append(e.seq))
    with g.run() as flow:
        flow["recs"].submit(Rec(1))
        flow.drain()
        flow.attributes("high")["limit"] = 5
        flow["recs"].submit(Rec(3))
        flow["recs"].submit(Rec(6))
    assert seen == [1, 6]


def test_submitting_to_a_stone_in_the_middle() -> None:
    """Events may be submitted to any stone, not to sources only."""
    seen: list[int] = []
    g = ev.Graph()
    (
        g.source("recs", Rec)
        >> ev.Filter("0", name="none")
        >> ev.Terminal(lambda e: seen.append(e.seq), name="end")
    )
    with g.run() as flow:
        flow["end"].submit(Rec(4))
        with pytest.raises(ev.FlowError, match="no stone 'nowhere'; it has recs, none, end"):
            flow["nowhere"]
    assert seen == [4]


@pytest.mark.parametrize("event", [3, None, {"seq": 1}, Rec, "text"])
def test_what_is_no_event_is_refused(event: Any) -> None:
    """Submitting something else is an error at once."""
    g = ev.Graph()
    g.source("recs", Rec) >> ev.Terminal(print)
    with g.run() as flow, pytest.raises(ev.SchemaError, match=r"'recs'.*expected an event"):
        flow["recs"].submit(event)


def test_a_bad_value_is_refused_at_submission() -> None:
    """A value that does not fit its field is an error of submit, and nothing is submitted."""
    seen: list[int] = []
    g = ev.Graph()
    g.source("recs", Rec) >> ev.Terminal(lambda e: seen.append(e.seq))
    with g.run() as flow:
        for value in (2**63, "1", 1.5, None):
            with pytest.raises(ev.SchemaError, match="seq"):
                flow["recs"].submit(Rec(value))  # type: ignore[arg-type]
        with pytest.raises(ev.SchemaError, match="seq"):
            flow["recs"].submit_batch({"source": [1]})
        flow["recs"].submit(Rec(8))
    assert seen == [8]


class NewRec(ev.Event):
    number: int
    source: int


class RecPlus(ev.Event):
    extra: float
    source: ev.i16
    seq: ev.u64


def test_a_larger_event_passes_whole() -> None:
    """A filter takes an event that has more fields, in another order and of other types, and passes it on
    whole."""
    seen: list[Any] = []
    g = ev.Graph()
    g.source("recs", Rec) >> ev.Filter("input.seq > 1") >> ev.Terminal(lambda e: seen.append(e.to_event()))
    with g.run() as flow:
        flow["recs"].submit(RecPlus(0.5, 7, 1))
        flow["recs"].submit(RecPlus(0.5, 7, 2))
        flow["recs"].submit(RecPlus(1.5, 7, 2**63))
        flow.drain()
        assert ["does not fit" in letter.reason for letter in flow.dead_letters()] == [True]
    assert seen == [RecPlus(0.5, 7, 2)]


def test_a_morph_lets_new_events_reach_old_stones() -> None:
    """A stone that wants the older schema gets new events through the registered morph."""
    seen: list[int] = []
    g = ev.Graph()
    g.morph(NewRec, Rec, "output.seq = input.number * 2; output.source = input.source; return 1;")
    recs = g.source("recs", Rec, NewRec)
    recs >> ev.Filter("input.seq > 2", input=Rec) >> ev.Terminal(lambda e: seen.append(e.seq), input=Rec)
    recs >> ev.Terminal(lambda e: seen.append(-e.seq), input=Rec)
    with g.run() as flow:
        flow["recs"].submit(NewRec(1, 0))
        flow["recs"].submit(NewRec(5, 0))
        flow["recs"].submit(Rec(3))
    assert sorted(seen) == [-10, -3, -2, 3, 10]


def test_a_closed_flow_tells_its_counts() -> None:
    """Statistics and dead letters can be read after the end."""
    g = ev.Graph()
    g.source("recs", Rec) >> ev.Terminal(lambda e: None, name="end")
    with g.run() as flow:
        flow["recs"].submit(Rec(1))
    assert flow.stats()["end"]["in"] == 1
    assert len(flow.dead_letters()) == 0


def test_a_handler_cannot_close_its_flow() -> None:
    """It would wait for itself; it gets an error instead, and the flow goes on."""
    g = ev.Graph()
    g.source("recs", Rec) >> ev.Terminal(lambda e: flow.close())
    with g.run() as flow:
        flow["recs"].submit(Rec(1))
        flow.drain()
        assert "cannot close its own flow" in flow.dead_letters()[0].reason


def test_what_a_frozen_stone_queues_is_bounded() -> None:
    """With a stone frozen, submit waits in the end; what was taken arrives when it goes on."""
    seen: list[int] = []
    g = ev.Graph()
    g.source("recs", Rec) >> ev.Terminal(lambda b: seen.extend(b["seq"].tolist()), batch=True, name="end")
    with g.run(max_bytes=50_000) as flow:
        flow.freeze("end")
        taken = 0
        with pytest.raises(ev.FlowError, match="full"):
            for n in range(100):
                flow["recs"].submit_batch({"seq": np.full(1000, n)}, timeout=0.2)
                taken += 1
        assert 2 <= taken < 20
        flow.drain(timeout=5)
        flow.unfreeze("end")
    assert seen == [n for n in range(taken) for _ in range(1000)]


def test_a_view_is_submitted_with_its_attributes() -> None:
    """An event that a handler got may be submitted on, as often as wanted, and keeps its attributes."""
    seen: list[tuple[int, dict[str, Any]]] = []
    g = ev.Graph()
    g.source("first", Rec) >> ev.Terminal(lambda e: (flow["second"].submit(e), flow["second"].submit(e)))
    g.source("second", Rec) >> ev.Terminal(lambda e: seen.append((e.seq, e.attrs)))
    with g.run() as flow:
        flow["first"].submit(Rec(1), attrs={"k": 1})
        flow["first"].submit(Rec(2))
        flow["first"].submit(Rec(3), attrs={"k": 3})
    assert seen == [(1, {"k": 1})] * 2 + [(2, {})] * 2 + [(3, {"k": 3})] * 2


@pytest.mark.slow
def test_a_flow_that_is_not_closed_is_closed_at_the_end(tmp_path: Path) -> None:
    """A program that ends without closing its flow has its events handled first."""
    program = tmp_path / "program.py"
    program.write_text(
        "import evflow as ev\n"
        "class Rec(ev.Event):\n"
        "    seq: int\n"
        "g = ev.Graph()\n"
        "g.source('recs', Rec) >> ev.Terminal(lambda e: print(e.seq, flush=True))\n"
        "entry = g.run()['recs']\n"
        "for seq in range(3):\n"
        "    entry.submit(Rec(seq))\n"
    )
    environment = os.environ | {"PYTHONPATH": str(Path(ev.__file__).parents[1])}
    ran = subprocess.run(
        [sys.executable, program],
        capture_output=True,
        encoding="utf-8",
        env=environment,
        timeout=60,
        check=True,
    )
    assert (ran.stdout, ran.stderr) == ("0\n1\n2\n", "")


class _Broken(Acting):
    """A stone whose running half fails at every second batch."""

    kind = "terminal"
    linked_ports = "none"

    def open(self, context: Context) -> Actor:
        return _BrokenActor(context)


class _BrokenActor(Actor):
    def receive(self, batch: ev.EventBatch, input: str) -> None:
        if batch[0].seq % 2:
            raise OSError("disk full")


def test_a_stone_that_fails_costs_its_events_only() -> None:
    """Whatever an acting stone raises, its events become dead letters and the flow goes on."""
    g = ev.Graph()
    g.source("recs", Rec) >> _Broken(name="disk")
    with g.run() as flow:
        for seq in range(4):
            flow["recs"].submit(Rec(seq))
            flow.drain()
        letters = flow.dead_letters()
        assert flow.stats()["disk"]["errors"] == 2
    reason = "OSError: disk full"
    assert [(d.event.seq, d.reason) for d in letters] == [(1, reason), (3, reason)]


def test_a_source_queue_that_is_sealed_takes_nothing_more() -> None:
    """What went in before the seal can be taken; what comes later is refused on both ways in."""
    queue = SourceQueue(Slot("recs", Source()), 10, 1000)
    queue.begin(Rec.schema, 0, lambda length: None)
    append = append_bytes(queue.buffer.words, varying=False)
    assert append is not None
    one = ev.EventBatch.from_events([Rec(1)])
    assert append(one.to_bytes())
    queue.seal()
    assert not append(one.to_bytes())
    with pytest.raises(ev.FlowError, match="closed"):
        queue.put(one)
    assert [event.seq for batch in queue.take() for event in batch] == [1]
    assert not queue.waiting


@pytest.mark.slow
def test_close_loses_no_event_that_was_accepted() -> None:
    """Threads submit while the flow closes: each event is handled, or its submission raises."""
    handled, accepted = [0], [0] * 8

    def count(batch: ev.EventBatch) -> None:
        handled[0] += len(batch)

    def submit(source: int) -> None:
        with contextlib.suppress(ev.FlowError):
            while True:
                flow["recs"].submit(Rec(source))
                accepted[source] += 1

    g = ev.Graph()
    g.source("recs", Rec) >> ev.Terminal(count, batch=True)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(10):
            flow = g.run()
            threads = [threading.Thread(target=submit, args=(n,)) for n in range(8)]
            for thread in threads:
                thread.start()
            while sum(accepted) < 1000:
                time.sleep(0.001)
            flow.close()
            for thread in threads:
                thread.join()
            assert handled[0] == sum(accepted)
            handled[0], accepted[:] = 0, [0] * 8
    finally:
        sys.setswitchinterval(interval)


def test_a_handler_that_exits_costs_its_event_only() -> None:
    """An exception that is not an ``Exception``, such as that of ``sys.exit``, does not end the flow."""
    seen: list[int] = []

    def handle(event: Any) -> None:
        if event.seq == 1:
            sys.exit(3)
        seen.append(event.seq)

    g = ev.Graph()
    g.source("recs", Rec) >> ev.Terminal(handle)
    with g.run() as flow:
        for seq in range(3):
            flow["recs"].submit(Rec(seq))
        flow.drain()
        assert [letter.event.seq for letter in flow.dead_letters()] == [1]
    assert seen == [0, 2]


def test_a_list_of_events_is_a_table() -> None:
    """``submit_batch`` takes events as they are, also none."""
    seen: list[int] = []
    g = ev.Graph()
    g.source("recs", Rec) >> ev.Terminal(lambda event: seen.append(event.seq))
    with g.run() as flow:
        flow["recs"].submit_batch([Rec(1), Rec(2)])
        flow["recs"].submit_batch([])
    assert seen == [1, 2]
