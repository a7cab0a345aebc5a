"""Terminals whose handlers run beside the flow: what runs at once, in which order, and what becomes of it."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import evflow as ev
from tests.flow.gates import Gate, Rec, Small, columns_of, handled, opened, terminal_graph
from tests.node.processes import wait_for

# --- at once, and in order


@pytest.mark.parametrize("settings", [{"key": "key"}, {}])
def test_two_handlers_run_at_the_same_time(settings: dict[str, Any]) -> None:
    """Each waits for the other, of another key or another source."""
    both = threading.Barrier(2, timeout=30)
    with terminal_graph(lambda event: both.wait(), "a", "b", workers=2, **settings).run() as flow:
        flow["a"].submit(Rec(key=1, seq=1))
        flow["b"].submit(Rec(key=2, seq=2))
        flow.drain(30)
        assert handled(flow) == (2, 0, 0)


def test_a_slow_handler_does_not_hold_up_the_stones_beside_it() -> None:
    gate, seen = Gate(), []
    g = ev.Graph()
    recs = g.source("recs", Rec) >> ev.Split(name="both")
    recs >> ev.Terminal(gate, workers=1, name="slow")
    recs >> ev.Terminal(lambda event: seen.append(event.seq), name="quick")
    with opened(gate), g.run() as flow:
        for seq in range(100):
            flow["recs"].submit(Rec(key=0, seq=seq))
        wait_for(lambda: len(seen) == 100, "the quick stone")
        assert len(gate.ended) == 0
        gate.open()


_ROWS = st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 4)), max_size=20)


@given(_ROWS, st.sampled_from([None, "key"]), st.booleans(), st.integers(1, 4), st.integers(1, 5))
def test_order_is_kept_for_each_key_or_source(
    rows: list[tuple[str, int]], key: str | None, batch: bool, workers: int, size: int
) -> None:
    """Against lists: what was submitted of each key, or at each source, is what its handler saw."""
    seen: defaultdict[object, list[int]] = defaultdict(list)
    expected: defaultdict[object, list[int]] = defaultdict(list)
    lists: defaultdict[str, list[Rec]] = defaultdict(list)
    for seq, (source, value) in enumerate(rows):
        expected[value if key else source].append(seq)
        # In which order two sources come is not known.
        lists["a" if key else source].append(Rec(key=value, seq=seq, word=source))

    def note(event: Any) -> None:
        seen[event.key if key else event.word].append(event.seq)

    def note_all(events: ev.EventBatch) -> None:
        for event in events:
            note(event)

    with terminal_graph(
        note_all if batch else note, "a", "b", workers=workers, key=key, batch=batch
    ).run() as flow:
        for source, events in lists.items():
            for at in range(0, len(events), size):
                flow[source].submit_batch(events[at : at + size])
        flow.drain(30)
        assert handled(flow) == (len(rows), 0, 0)
    assert seen == expected


@pytest.mark.parametrize("key", ["key", "word", "text", "data", "sure"])
def test_a_key_may_be_of_these_types(key: str) -> None:
    seen: defaultdict[object, list[int]] = defaultdict(list)
    with terminal_graph(
        lambda event: seen[getattr(event, key)].append(event.seq), workers=3, key=key
    ).run() as flow:
        for seq in range(60):
            value = seq % 2
            flow["recs"].submit(
                Rec(
                    key=value,
                    seq=seq,
                    word=f"w{value}",
                    text=f"t{value}",
                    data=b"\0" * value,
                    sure=bool(value),
                )
            )
        flow.drain(30)
    assert sorted(seen.values()) == [list(range(0, 60, 2)), list(range(1, 60, 2))]


def test_events_of_one_source_keep_their_order_past_a_storage_stone() -> None:
    """What a storage lets go cannot be told by its source, so all that comes to the terminal is in order."""
    seen: list[int] = []
    g = ev.Graph()
    end = g.add(ev.Terminal(lambda event: seen.append(event.seq), workers=4, name="end"))
    for name in ("a", "b"):
        g.source(name, Rec) >> ev.Storage(3, name=f"held {name}") >> end
    with g.run() as flow:
        for seq in range(0, 40, 2):
            flow["a"].submit(Rec(key=0, seq=seq))
            flow["b"].submit(Rec(key=0, seq=seq + 1))
        flow.drain(30)
        for name in ("held a", "held b"):
            flow.send_stored(name)
        flow.drain(30)
    assert [seq for seq in seen if seq % 2 == 0] == list(range(0, 40, 2))
    assert [seq for seq in seen if seq % 2] == list(range(1, 40, 2))
    assert len(seen) == 40


def test_what_waited_at_a_frozen_stone_does_not_overtake() -> None:
    gate = Gate()
    g = ev.Graph()
    passing = g.source("recs", Rec) >> ev.Filter("input.seq >= 0", name="all")
    passing >> ev.Terminal(gate, workers=3, name="end")
    with opened(gate), g.run() as flow:
        flow["recs"].submit_batch(columns_of([0, 0]))
        wait_for(lambda: gate.begun, "the first")
        flow.freeze("all")
        flow["recs"].submit_batch(columns_of([0, 0], 2))
        flow.unfreeze("all")
        flow["recs"].submit_batch(columns_of([0, 0], 4))
        flow.call(lambda: None)
        gate.open()
        flow.drain(30)
        assert gate.ended == list(range(6))
        assert gate.most == 1


def test_a_change_of_the_graph_lets_nothing_overtake() -> None:
    """Events that take another way from then on wait for those before."""
    gate = Gate()
    g = terminal_graph(gate, workers=3)
    with opened(gate), g.run() as flow:
        flow["recs"].submit_batch(columns_of([0]))
        wait_for(lambda: gate.begun, "the first")
        with flow.change() as changed:
            changed.source("more", Rec) >> changed["end"]
        flow["more"].submit(Rec(key=0, seq=1))
        flow.call(lambda: None)
        assert gate.begun == [0]
        gate.open()
        flow.drain(30)
        assert gate.ended == [0, 1]


# --- batches, raw events, several schemas


def test_handlers_of_batches_get_what_belongs_together() -> None:
    """Never events of two keys, and what waits of one key as one batch."""
    got: list[list[tuple[int, int]]] = []
    hold = threading.Event()

    def note(batch: ev.EventBatch) -> None:
        got.append([(event.key, event.seq) for event in batch])
        assert hold.wait(30)

    with terminal_graph(note, batch=True, workers=1, key="key").run() as flow:
        flow["recs"].submit(Rec(key=9, seq=99))
        wait_for(lambda: got, "the first batch")
        flow["recs"].submit_batch(columns_of([1, 2, 1]))
        flow.call(lambda: None)
        flow["recs"].submit_batch(columns_of([2, 1], 3))
        flow.call(lambda: None)
        hold.set()
        flow.drain(30)
    assert got == [[(9, 99)], [(1, 0), (1, 2), (1, 4)], [(2, 1), (2, 3)]]


def test_attributes_come_along() -> None:
    seen: list[tuple[int, dict[str, Any]]] = []
    with terminal_graph(
        lambda event: seen.append((event.seq, event.attrs)), workers=1, key="key"
    ).run() as flow:
        for seq in range(3):
            flow["recs"].submit(Rec(key=seq % 2, seq=seq), attrs={"hops": seq} if seq else None)
        flow.drain(30)
    assert sorted(seen) == [(0, {}), (1, {"hops": 1}), (2, {"hops": 2})]


def test_raw_events_without_the_key_are_handled_in_order() -> None:
    seen: list[int] = []
    raw: list[tuple[int, str]] = []
    g = ev.Graph()
    handlers = {Rec: lambda event: seen.append(event.seq)}
    end = g.add(
        ev.Terminal(
            handlers, raw=lambda data, schema: raw.append((len(data), schema.name)), workers=2, key="key"
        )
    )
    g.source("recs", Rec) >> end
    g.source("small", Small) >> end
    with g.run() as flow:
        flow["recs"].submit_batch(columns_of([1, 2]))
        flow["small"].submit_batch({"seq": [1, 2, 3]})
        flow.drain(30)
    assert sorted(seen) == [0, 1]
    assert raw == [(10, "Small")] * 3


# --- errors, drain and close


def _failing(event: Any) -> None:
    if event.seq % 3 == 0:
        raise SystemExit(event.seq)


@pytest.mark.parametrize("settings", [{}, {"key": "key"}])
def test_events_whose_handler_raises_are_dead_letters(settings: dict[str, Any]) -> None:
    """Counts are exact after a drain: what came is what was handled and what failed."""
    with terminal_graph(_failing, workers=3, **settings).run() as flow:
        flow["recs"].submit_batch(columns_of([0, 1, 2, 3] * 25))
        flow.drain(30)
        assert handled(flow) == (100, 34, 0)
        letters = flow.dead_letters()
    assert sorted(letter.event.seq for letter in letters) == list(range(0, 100, 3))
    assert {letter.reason for letter in letters} == {f"SystemExit: {seq}" for seq in range(0, 100, 3)}
    assert {letter.stone for letter in letters} == {"end"}


def test_a_batch_whose_handler_raises_fails_as_a_whole() -> None:
    def fail(batch: ev.EventBatch) -> None:
        if batch["key"][0] == 1:
            raise ValueError("one")

    with terminal_graph(fail, batch=True, workers=2, key="key").run() as flow:
        flow["recs"].submit_batch(columns_of([1, 2, 1, 2, 1]))
        flow.drain(30)
        assert handled(flow) == (5, 3, 0)
        letters = flow.dead_letters()
    assert [(letter.event.seq, letter.reason) for letter in letters] == [
        (n, "ValueError: one") for n in (0, 2, 4)
    ]


def test_a_drain_waits_for_workers_and_says_so() -> None:
    gate = Gate()
    with opened(gate), terminal_graph(gate, workers=2).run() as flow:
        flow["recs"].submit_batch(columns_of([0, 0, 0]))
        with pytest.raises(ev.FlowError, match=r"stone 'end': 3 events wait for its workers"):
            flow.drain(0.2)
        gate.open()
        flow.drain(30)
        assert handled(flow) == (3, 0, 0)


def test_a_drain_does_not_wait_for_what_comes_after_it() -> None:
    gate = Gate()
    with opened(gate), terminal_graph(gate, "a", "b", workers=2).run() as flow:
        flow["a"].submit(Rec(key=0, seq=0))
        wait_for(lambda: gate.begun == [0], "the first")
        drained = threading.Thread(target=lambda: flow.drain(30))
        drained.start()
        flow.call(lambda: None)
        flow["b"].submit(Rec(key=0, seq=1))
        wait_for(lambda: gate.begun == [0, 1], "the second")
        gate.let(1)
        drained.join(30)
        assert not drained.is_alive()
        assert gate.ended == [0]
        gate.open()


def test_close_finishes_all() -> None:
    seen: list[int] = []
    with terminal_graph(lambda event: seen.append(event.seq), workers=4, key="key", queue=10).run() as flow:
        for at in range(0, 500, 50):
            flow["recs"].submit_batch(columns_of(list(range(50)), at))
    assert sorted(seen) == list(range(500))
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("evflow end")]


@pytest.mark.slow
def test_close_waits_as_long_as_workers_get_on() -> None:
    """Not for so many seconds in all, but for so many without an event that is done."""
    gate, closed = Gate(), threading.Event()
    flow = terminal_graph(gate, workers=1).run()
    with opened(gate):
        flow["recs"].submit_batch(columns_of([0] * 8))
        thread = threading.Thread(target=lambda: (flow.close(2.0), closed.set()))
        thread.start()
        for passed in range(7):
            wait_for(lambda passed=passed: len(gate.begun) == passed + 1, "the next")
            assert not closed.wait(0.4)
            gate.let(1)
        gate.let(1)
        assert closed.wait(30)
    assert gate.ended == list(range(8))
    assert len(flow.dead_letters()) == 0


def test_a_handler_that_never_returns_does_not_keep_a_flow_from_closing() -> None:
    """What it has in hand, and what waits for it, are dead letters."""
    gate = Gate()
    flow = terminal_graph(gate, workers=1).run()
    with opened(gate):
        flow["recs"].submit_batch(columns_of([0, 0, 0]))
        wait_for(lambda: gate.begun, "the first")
        flow.close(0.1)
        letters = {letter.event.seq: letter.reason for letter in flow.dead_letters()}
    assert letters == {
        0: "its handler had not returned when the stone ended",
        1: "the flow was closed while the stone held the event",
        2: "the flow was closed while the stone held the event",
    }


# --- back-pressure


def test_a_terminal_that_is_full_holds_up_who_submits() -> None:
    gate = Gate()
    with opened(gate), terminal_graph(gate, workers=2, queue=5).run(max_events=3) as flow:
        sent = 0
        with pytest.raises(ev.FlowError, match=r"'recs' is full.*'end' is full"):
            while sent < 1000:
                flow["recs"].submit_batch(columns_of([0], sent), timeout=0.2)
                sent += 1
        assert handled(flow)[2] <= 5 + 1
        gate.open()
        flow["recs"].submit_batch(columns_of([0], sent), timeout=30)
        flow.drain(30)
    assert gate.ended == list(range(sent + 1))


def test_a_terminal_is_full_by_bytes_too() -> None:
    gate = Gate()
    with opened(gate), terminal_graph(gate, workers=1).run(max_bytes=1 << 20) as flow:
        sent = 0
        with pytest.raises(ev.FlowError, match="full"):
            while sent < 100:
                flow["recs"].submit(Rec(key=0, seq=sent, data=b"x" * (8 << 20)), timeout=0.2)
                sent += 1
        assert 8 <= handled(flow)[2] <= 9
        gate.open()
        flow.drain(30)


@pytest.mark.parametrize("workers", [1, 3])
def test_a_handler_that_would_wait_for_itself_gets_an_error(workers: int) -> None:
    """Each event makes two, until the terminal is full; then it fails, and nothing hangs."""
    flow: ev.Flow

    def twice(event: Any) -> None:
        for _ in range(2):
            flow["recs"].submit(Rec(key=event.key + 1, seq=event.seq))

    with terminal_graph(twice, workers=workers, queue=4, key="key").run(max_events=2) as flow:
        flow["recs"].submit(Rec(key=0, seq=0))
        letters = wait_for(flow.dead_letters, "an error")
        assert "a handler of stone 'end' that submits to it would wait for its own stone" in letters[0].reason
        flow.freeze("end")
        flow.close(0.0)


def test_handlers_of_two_terminals_that_wait_for_each_other_get_an_error() -> None:
    flow: ev.Flow
    g = ev.Graph()

    def onward(target: str) -> Callable[[Any], None]:
        def submit(event: Any) -> None:
            for _ in range(2):
                flow[target].submit(Rec(key=0, seq=event.seq))

        return submit

    g.source("a", Rec) >> ev.Terminal(onward("b"), workers=1, queue=2, name="first")
    g.source("b", Rec) >> ev.Terminal(onward("a"), workers=1, queue=2, name="second")
    with g.run(max_events=2) as flow:
        flow["a"].submit(Rec(key=0, seq=0))
        letters = wait_for(flow.dead_letters, "an error")
        assert "would wait for its own stone" in letters[0].reason
        flow.freeze("first")
        flow.freeze("second")
        flow.close(0.0)


def test_what_a_handler_submits_is_handled() -> None:
    flow: ev.Flow
    seen: list[int] = []
    g = ev.Graph()
    g.source("recs", Rec) >> ev.Terminal(lambda e: flow["more"].submit(Small(e.seq)), workers=3, key="key")
    g.source("more", Small) >> ev.Terminal(lambda e: seen.append(e.seq), workers=2, name="end")
    with g.run() as flow:
        flow["recs"].submit_batch(columns_of([0, 1, 2] * 20))
        wait_for(lambda: len(seen) == 60, "what handlers submit")
        flow.drain(30)
    assert sorted(seen) == list(range(60))


def test_a_handler_does_not_wait_for_its_own_flow() -> None:
    """``drain`` returns, ``close`` raises, and a change is made after the handler's event."""
    flow: ev.Flow
    said: list[str] = []

    def handle(event: Any) -> None:
        flow.drain()
        with pytest.raises(ev.FlowError, match="a handler cannot close its own flow"):
            flow.close()
        flow.replace("end", ev.Terminal(lambda event: said.append("other")))
        said.append("done")

    with terminal_graph(handle, workers=1).run() as flow:
        flow["recs"].submit(Rec(key=0, seq=0))
        wait_for(lambda: not flow.graph.stones["end"].workers, "the change")
        flow["recs"].submit(Rec(key=0, seq=1))
        flow.drain(30)
    assert said == ["done", "other"]


# --- freezing, and changes of the graph


def test_a_frozen_terminal_begins_nothing() -> None:
    gate = Gate()
    with opened(gate), terminal_graph(gate, workers=1).run() as flow:
        flow["recs"].submit_batch(columns_of([0, 0, 0]))
        wait_for(lambda: gate.begun, "the first")
        flow.freeze("end")
        gate.open()
        wait_for(lambda: handled(flow)[2] == 2, "what it had begun")
        flow["recs"].submit_batch(columns_of([0], 3))
        flow.drain(30)
        assert gate.begun == [0]
        assert handled(flow)[2] == 3
        flow.unfreeze("end")
        flow.drain(30)
        assert gate.ended == [0, 1, 2, 3]


def test_a_terminal_that_another_replaces_hands_over_what_it_has_not_begun() -> None:
    before, after = Gate(), Gate(shut=False)
    with opened(before), terminal_graph(before, workers=2, key="key").run() as flow:
        flow["recs"].submit_batch(columns_of([1, 2, 1, 2]))
        wait_for(lambda: len(before.begun) == 2, "both")
        changed = threading.Thread(target=lambda: flow.replace("end", ev.Terminal(after, workers=2)))
        changed.start()
        changed.join(0.2)
        assert changed.is_alive()
        before.open()
        changed.join(30)
        flow["recs"].submit_batch(columns_of([1, 2], 4))
        flow.drain(30)
        assert sorted(before.ended) == [0, 1]
        assert after.ended == [2, 3, 4, 5]
        assert handled(flow) == (6, 0, 0)


def test_a_change_gives_up_on_a_handler_that_does_not_return() -> None:
    gate = Gate()
    with opened(gate), terminal_graph(gate, workers=1).run() as flow:
        flow["recs"].submit_batch(columns_of([0, 0]))
        wait_for(lambda: gate.begun, "the first")
        with pytest.raises(ev.FlowError, match=r"stone 'end': 1 of its handlers have not returned"):
            flow.replace("end", ev.Terminal(print), timeout=0.1)
        gate.open()
        flow.drain(30)
        assert gate.ended == [0, 1]


def test_what_is_extracted_is_not_handled() -> None:
    gate = Gate()
    with opened(gate), terminal_graph(gate, workers=1).run() as flow:
        flow["recs"].submit_batch(columns_of([0, 0, 0]))
        wait_for(lambda: gate.begun, "the first")
        (left,) = flow.extract("end")
        assert left["seq"].tolist() == [1, 2]
        gate.open()
        flow.drain(30)
        assert gate.ended == [0]
        with pytest.raises(ev.FlowError, match="stores nothing"):
            flow.send_stored("end")


# --- wrong use


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"workers": -1}, r"terminal end: workers -1: expected an integer of 0 or more"),
        ({"workers": 1.5}, r"workers 1.5: expected an integer of 0 or more"),
        ({"workers": True}, r"workers True: expected an integer of 0 or more"),
        ({"workers": "2"}, r"workers '2': expected an integer of 0 or more"),
        ({"workers": 1001}, r"workers 1001: expected at most 1000"),
        ({"workers": 1, "queue": 0}, r"queue 0: expected an integer of 1 or more"),
        ({"workers": 1, "key": 3}, r"key 3: expected the name of a field"),
        ({"key": "key"}, r"key 'key': expected workers=1 or more with a key"),
        ({"workers": 1, "key": "none"}, r"key 'none': schema Rec has no field 'none'"),
        (
            {"workers": 1, "key": "price"},
            r"key 'price': schema Rec has it as f64; expected an integer, a bool",
        ),
        ({"workers": 1, "key": "maybe"}, r"key 'maybe': schema Rec has it as .*; expected an integer"),
        ({"workers": 1, "key": "values"}, r"key 'values': schema Rec has it as .*; expected an integer"),
    ],
)
@pytest.mark.parametrize("declared", [True, False])
def test_wrong_settings_are_refused(settings: dict[str, Any], said: str, declared: bool) -> None:
    with pytest.raises(ev.GraphError, match=said):
        terminal_graph(print, input=Rec if declared else None, **settings).check()


def test_events_without_the_key_that_nobody_expected_are_dead_letters() -> None:
    """A terminal that nothing is linked to takes whatever is submitted to it."""
    seen: list[int] = []
    g = ev.Graph()
    g.add(ev.Terminal(lambda event: seen.append(event.seq), workers=1, key="key", name="end"))
    with g.run() as flow:
        flow["end"].submit(Small(1))
        flow["end"].submit(Rec(key=0, seq=2))
        flow.drain(30)
        letters = flow.dead_letters()
        assert handled(flow) == (2, 1, 0)
    assert seen == [2]
    assert [letter.reason for letter in letters] == [
        "key 'key': schema Small has no field 'key'; its fields are seq"
    ]


def test_a_description_tells_workers_and_key() -> None:
    """Also one that was written before there were any."""
    stone = ev.Terminal("tests.flow.alerts:alert", workers=3, key="seq", queue=7, input=Small)
    told = ev.Terminal.from_settings(stone.settings())
    assert (told.workers, told.key, told.queue) == (3, "seq", 7)
    settings = ev.Terminal("tests.flow.alerts:alert").settings()
    for name in ("workers", "key", "queue"):
        del settings[name]
    assert ev.Terminal.from_settings(settings).workers == 0
    with pytest.raises(ev.GraphError, match="workers"):
        ev.Terminal.from_settings({**settings, "workers": 1 << 40})
