"""A filter behind a source, asked where events are submitted one by one."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import evflow as ev
from evflow.codgen.gate import gate
from evflow.codgen.llvm.append_ir import WORDS
from evflow.codgen.objects import append_event
from evflow.engine.gate import Gate
from evflow.engine.topology import DROPPED, IN, Slot
from evflow.flow import entry, submit_buffer
from evflow.flow.source_queue import SourceQueue


class Rec(ev.Event):
    key: int
    price: float = 0.0
    small: ev.i8 = 0
    name: ev.Str[4] = "abc"


ALL = range(1000)


@pytest.fixture(autouse=True)
def _few_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entry, "_MANY", 1)
    monkeypatch.setattr(submit_buffer, "_MANY", 10)


@pytest.mark.parametrize(
    ("code", "passes"),
    [
        ("input.key * 37 % 100 >= 50", lambda e: e.key * 37 % 100 >= 50),
        ("input.price > 1.5 && input.small < 3", lambda e: e.price > 1.5 and e.small < 3),
        ("return input.key > 500 ? input.small != 0 : 1;", lambda e: e.key <= 500 or e.small != 0),
        ("double d; d = input.price * 2; return d <= 7.0;", lambda e: e.price * 2 <= 7.0),
        ("1", lambda e: True),
        ("0", lambda e: False),
    ],
)
def test_a_gate_keeps_what_the_filter_passes(code: str, passes: Callable[[Any], bool]) -> None:
    events = [Rec(i, i % 7 / 2, i % 5) for i in ALL]
    code_of = gate(ev.Filter(code).function(Rec.schema, Rec.schema))
    assert code_of is not None
    data = np.zeros(len(events) * (Rec.schema.width or 0), np.uint8)
    start = data.ctypes.data
    words = np.zeros(len(WORDS), np.int64)
    words[:4] = start, start + len(data), 0, code_of.address
    append = append_event(Rec.schema, words)
    assert append is not None
    assert all(append(event) for event in events)
    kept = [event for event in events if passes(event)]
    assert words[4] == len(events) - len(kept)
    assert bytes(data[: words[0] - start]) == ev.EventBatch.from_events(kept, Rec).to_bytes()


@pytest.mark.parametrize(
    "code",
    [
        "100 / input.key > 3",  # may fault
        'input.name == "abc"',
        'attr_ivalue(event_attrs, "hops") < 3',
        "static int n = 0; n = n + 1; return n % 2;",
        "int i; int n = 0; for (i = 0; i < 10; i++) { n = n + i; } return n > input.key;",
        "return bandwidth() > 3.0;",
    ],
)  # fmt: skip
def test_a_filter_that_may_fault_or_looks_at_more_is_no_gate(code: str) -> None:
    assert gate(ev.Filter(code).function(Rec.schema, Rec.schema)) is None


class Small(ev.Event):
    before: ev.Array[ev.f64, 5]
    key: int
    behind: ev.Array[ev.i16, 3]


class Large(ev.Event):
    """So large that other threads run while an array of it is copied."""

    before: ev.Array[ev.f64, 40_000]
    key: int
    behind: ev.Array[ev.i16, 3]


@pytest.mark.parametrize(("kind", "length"), [(Small, 5), (Large, 40_000)])
def test_events_with_arrays_are_whole_behind_a_gate(kind: Any, length: int) -> None:
    """The gate is asked before arrays are copied, whether they lie before or behind what it looks at."""
    events = [kind(np.arange(length) + 10.0 * i, i, np.arange(3, dtype=np.int16) + i) for i in range(12)]
    kept = [event for event in events if event.key % 3 == 1]
    code = gate(ev.Filter("input.key % 3 == 1").function(kind.schema, kind.schema))
    assert code is not None
    data = np.zeros(len(kept) * (kind.schema.width or 0), np.uint8)
    words = np.zeros(len(WORDS), np.int64)
    words[:4] = data.ctypes.data, data.ctypes.data + len(data), 0, code.address
    append = append_event(kind.schema, words)
    assert append is not None
    # There is no room for the last one, whatever the gate says.
    assert [append(event) for event in events] == [True] * 11 + [False]
    assert bytes(data) == ev.EventBatch.from_events(kept, kind).to_bytes()
    assert words[4] == 7


def test_a_filter_that_looks_into_an_array_is_no_gate() -> None:
    assert gate(ev.Filter("input.before[1] > 3").function(Small.schema, Small.schema)) is None


def test_an_event_that_a_gate_would_reject_is_checked_all_the_same() -> None:
    g = ev.Graph()
    g.source("recs", Small) >> ev.Filter("input.key == 0") >> ev.Terminal(lambda event: None)
    right, short = np.zeros(3, np.int16), np.zeros(2, np.int16)
    with g.run() as flow:
        for _ in range(3):
            for _ in range(50):
                flow["recs"].submit(Small(np.zeros(5), 0, right))
            flow.drain()
        assert gated(flow)
        flow["recs"].submit(Small(np.zeros(5), 1, right))
        with pytest.raises(ev.SchemaError, match="behind"):
            flow["recs"].submit(Small(np.zeros(5), 1, short))


def warm(flow: ev.Flow, events: int = 50) -> None:
    """Submits events that pass, until the gate is there if there can be one."""
    for _ in range(3):
        for _ in range(events):
            flow["recs"].submit(Rec(0))
        flow.drain()


def gated(flow: ev.Flow) -> bool:
    return flow["recs"]._queue.buffer.gate is not None


def filtered(code: str = "input.key % 2 == 0") -> tuple[ev.Graph, list[int]]:
    seen: list[int] = []
    g = ev.Graph()
    even = g.source("recs", Rec) >> ev.Filter(code, name="even")
    even >> ev.Terminal(lambda event: seen.append(event.key), name="end")
    return g, seen


def test_events_that_a_gate_rejects_are_counted_as_if_the_filter_had_seen_them() -> None:
    g, seen = filtered()
    with g.run() as flow:
        warm(flow)
        assert gated(flow)
        for i in ALL:
            flow["recs"].submit(Rec(i))
        flow["recs"].submit_batch({"key": [1, 2, 3]})
        flow.drain()
        stats = flow.stats()
    total = 150 + len(ALL) + 3
    assert seen == [0] * 150 + [i for i in ALL if i % 2 == 0] + [2]
    assert (stats["recs"]["in"], stats["recs"]["out"]) == (total, total)
    passed = len(seen)
    assert [stats["even"][k] for k in ("in", "out", "dropped", "errors")] == [
        total,
        passed,
        total - passed,
        0,
    ]
    assert stats["end"]["in"] == passed


def test_a_change_of_the_graph_takes_effect_for_the_next_event() -> None:
    """No event that is submitted after a change is judged by the filter that was there before."""
    g, seen = filtered()
    with g.run() as flow:
        warm(flow)
        for turn in range(6):
            assert gated(flow) == (turn % 3 < 2)
            rest = turn % 2
            code = (
                f"input.key % 2 != {rest}"
                if turn % 3 != 1
                else f"100 / (1 + input.key % 2) > {50 * rest + 10}"
            )
            with flow.change() as change:
                change.replace("even", ev.Filter(code, name="even"))
            assert not gated(flow)
            seen.clear()
            for i in range(100):
                flow["recs"].submit(Rec(i))
            flow.drain()
            expected = {
                True: [i for i in range(100) if i % 2 != rest],
                False: [i for i in range(100) if 100 // (1 + i % 2) > 50 * rest + 10],
            }[turn % 3 != 1]
            assert seen == expected
            warm(flow)


def test_what_a_gate_has_rejected_is_counted_when_the_flow_is_closed() -> None:
    g, seen = filtered()
    with g.run() as flow:
        warm(flow)
        for i in ALL:
            flow["recs"].submit(Rec(i))
    assert flow.stats()["even"]["in"] == 150 + len(ALL)
    assert flow.stats()["even"]["dropped"] == 150 + len(ALL) - len(seen)


def test_what_a_gate_has_rejected_last_is_counted_though_nothing_waits() -> None:
    """A queue that is asked for the last time, as when a flow ends, has nothing to give but this count."""
    slot = Slot("none", ev.Filter("0"))
    code = gate(ev.Filter("0").function(Rec.schema, Rec.schema))
    assert code is not None
    queue = SourceQueue(slot, 100, 1 << 20)
    queue.begin(Rec.schema, 0, lambda length: None)
    queue.buffer.set_gate(Gate(code, (), slot))
    append = append_event(Rec.schema, queue.buffer.words)
    assert append is not None
    assert append(Rec(1))
    assert not queue.waiting
    assert not list(queue.take())
    assert (slot.counts[IN], slot.counts[DROPPED]) == (1, 1)


def test_what_a_gate_has_rejected_before_it_goes_is_counted_by_its_own_filter() -> None:
    slots = [Slot(name, ev.Filter("0")) for name in ("first", "second")]
    code = gate(ev.Filter("0").function(Rec.schema, Rec.schema))
    assert code is not None
    queue = SourceQueue(slots[0], 100, 1 << 20)
    queue.begin(Rec.schema, 0, lambda length: None)
    append = append_event(Rec.schema, queue.buffer.words)
    assert append is not None
    for count, slot in enumerate(slots, 1):
        queue.buffer.set_gate(Gate(code, (), slot))
        assert all(append(Rec(number)) for number in range(count))
        queue.ungate()
        assert slot.counts == [count, 0, count, 0]
    assert append(Rec(1)) and [len(batch) for batch in queue.take()] == [1]


def test_a_frozen_filter_queues_what_a_gate_would_have_rejected() -> None:
    g, seen = filtered()
    with g.run() as flow:
        warm(flow)
        flow.freeze("even")
        assert not gated(flow)
        for i in range(10):
            flow["recs"].submit(Rec(i))
        flow.drain()
        assert flow.stats()["even"]["queued"] == 10
        flow.unfreeze("even")
        flow.drain()
    assert seen[150:] == [0, 2, 4, 6, 8]


def test_a_source_that_leads_elsewhere_too_has_no_gate() -> None:
    g, _ = filtered()
    everything: list[int] = []
    with g.run() as flow:
        warm(flow)
        assert gated(flow)
        with flow.change() as change:
            change.add(ev.Terminal(lambda event: everything.append(event.key), name="all"))
            change.link("recs", "all")
        for i in range(100):
            flow["recs"].submit(Rec(i))
        flow.drain()
        warm(flow)
        assert not gated(flow)
    assert everything[:100] == list(range(100))


@pytest.mark.slow
def test_gates_come_and_go_while_threads_submit() -> None:
    """Each event is counted once, whatever gate it met; what passes every filter arrives."""
    g, seen = filtered("input.key % 10 != 1")
    stop = threading.Event()
    submitted = [0] * 3

    def submit(thread: int) -> None:
        while not stop.is_set():
            for key in range(10):
                flow["recs"].submit(Rec(key, thread))
            submitted[thread] += 10

    with g.run() as flow:
        threads = [threading.Thread(target=submit, args=(n,)) for n in range(3)]
        for thread in threads:
            thread.start()
        deadline = time.monotonic() + 1
        while time.monotonic() < deadline:
            with flow.change() as change:
                change.replace(
                    "even", ev.Filter(f"input.key % 10 != {1 + int(deadline * 7) % 3}", name="even")
                )
            time.sleep(0.02)
        stop.set()
        for thread in threads:
            thread.join()
        flow.drain()
        stats = flow.stats()
    total = sum(submitted)
    assert stats["recs"]["in"] == total
    assert stats["end"]["in"] == len(seen)
    assert sum(seen.count(key) for key in (0, 4, 5, 6, 7, 8, 9)) == 7 * total // 10
