"""Changes of a running flow: what they do to entries, handlers and waiting events, and what is refused."""

from __future__ import annotations

import logging
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import evflow as ev
from evflow.engine.change import Difference
from evflow.engine.check import check_graph
from evflow.stone import Acting, Actor, Context


class Rec(ev.Event):
    seq: int


def keep(into: list[int]) -> ev.Terminal:
    return ev.Terminal(lambda event: into.append(event.seq))


def running(seen: list[int], **settings: Any) -> ev.Flow:
    """recs → gate → end."""
    g = ev.Graph("g")
    end = g.source("recs", Rec) >> ev.Filter("1", name="gate") >> ev.Terminal(
        lambda event: seen.append(event.seq), name="end"
    )  # fmt: skip
    assert end.name == "end"
    return g.run(**settings)


def shape(flow: ev.Flow) -> tuple[list[str], list[Any]]:
    return list(flow.graph.stones), list(flow.graph.links)


def test_single_steps_change_the_flow() -> None:
    seen: list[int] = []
    other: list[int] = []
    with running(seen) as flow:
        recs = flow["recs"]
        recs.submit(Rec(1))
        assert flow.insert(ev.Filter("input.seq != 2", name="new"), after="gate", before="end") == "new"
        recs.submit_batch({"seq": [2, 3]})
        flow.replace("new", ev.Filter("input.seq != 3"))
        recs.submit_batch({"seq": [2, 3]})
        assert flow.link("gate", ev.Terminal(lambda e: other.append(e.seq), name="other")) == "other"
        recs.submit_batch({"seq": [3]})
        flow.unlink("gate", "new")
        recs.submit_batch({"seq": [4]})
        flow.remove("gate")
        recs.submit_batch({"seq": [5]})
        flow.drain()
        assert "gate" not in flow.stats() and flow.graph.stones.keys() == flow.stats().keys()
    assert (seen, other) == ([1, 3, 2], [3, 4, 5])


def test_a_block_of_edits_is_one_change() -> None:
    """Events never see a part of it."""
    seen: list[int] = []
    with running(seen) as flow:
        with flow.change() as graph:
            graph.replace("gate", ev.Filter("input.seq > 1"))
            graph.insert(ev.Filter("input.seq < 3"), after="gate", before="end")
            flow["recs"].submit_batch({"seq": [1, 2, 3]})
        flow["recs"].submit_batch({"seq": [1, 2, 3]})
    assert seen == [1, 2, 3, 2]


def test_a_router_gets_another_way() -> None:
    seen: list[int] = []
    g = ev.Graph()
    router = g.source("recs", Rec) >> ev.Router("return input.seq % 2;", name="router")
    router[0] >> ev.Terminal(lambda e: None, name="even")
    with g.run() as flow:
        flow["recs"].submit(Rec(1))
        flow.link("router", keep(seen), port=1)
        flow["recs"].submit(Rec(3))
        flow.drain()
        assert flow.stats()["router"]["dropped"] == 1
    assert seen == [3]


def test_a_source_that_is_added_can_be_submitted_to() -> None:
    seen: list[int] = []
    with running(seen) as flow:
        with flow.change() as graph:
            graph.source("more", Rec) >> graph["gate"]
        flow["more"].submit(Rec(7))
    assert seen == [7]


def test_a_source_that_is_removed_takes_no_more() -> None:
    """What was submitted before goes its way; then the entry and the flow say what happened."""
    seen: list[int] = []
    with running(seen) as flow:
        with flow.change() as graph:
            graph.source("more", Rec) >> graph["gate"]
        more = flow["more"]
        more.submit(Rec(1))
        flow.remove("more")
        for submit in (lambda: more.submit(Rec(2)), lambda: more.submit_batch({"seq": [2]})):
            with pytest.raises(ev.FlowError, match="stone 'more': it was removed from the flow"):
                submit()
        with pytest.raises(ev.FlowError, match="stone 'more' was removed from flow g"):
            flow["more"]
        with pytest.raises(ev.FlowError, match="has no stone 'never'"):
            flow["never"]
        flow["recs"].submit(Rec(3))
        with flow.change() as graph:
            graph.source("more", Rec) >> graph["gate"]
        flow["more"].submit(Rec(4))
        assert len(flow.dead_letters()) == 0
    assert seen == [1, 3, 4]


def test_what_waits_for_a_stone_that_goes_is_not_lost() -> None:
    """Threads submit as fast as they can while the source goes: each event is handled, refused or a dead
    letter."""
    seen: list[int] = []
    accepted: list[int] = []
    with running(seen, dead_letters=1 << 20) as flow:
        with flow.change() as graph:
            graph.source("more", Rec) >> graph["gate"]
        entry, begun = flow["more"], threading.Event()

        def submit() -> None:
            for seq in range(1_000_000):
                try:
                    entry.submit(Rec(seq))
                except ev.FlowError:
                    return
                accepted.append(seq)
                if seq == 2000:
                    begun.set()

        thread = threading.Thread(target=submit)
        thread.start()
        begun.wait()
        flow.remove("more")
        thread.join()
        flow.drain()
        letters = flow.dead_letters()
        assert all(
            letter.stone == "more" and "before the event was taken" in letter.reason for letter in letters
        )
        assert seen + [letter.event.seq for letter in letters] == accepted


def test_a_waiting_submitter_is_refused_when_its_source_goes() -> None:
    """Whoever waits for room hears that the stone is gone, at once."""
    go, full = threading.Event(), threading.Event()
    g = ev.Graph("g")
    g.source("recs", Rec) >> ev.Terminal(lambda e: (full.set(), go.wait()), name="end")
    g.source("other", Rec) >> g["end"]
    refused: list[str] = []
    with g.run(max_events=4) as flow:
        entry = flow["other"]
        flow["recs"].submit(Rec(0))
        full.wait()

        def submit() -> None:
            try:
                for seq in range(1000):
                    entry.submit(Rec(seq))
            except ev.FlowError as error:
                refused.append(str(error))

        thread, remover = (
            threading.Thread(target=submit),
            threading.Thread(target=flow.remove, args=("other",)),
        )
        thread.start()
        remover.start()
        go.set()
        thread.join()
        remover.join()
    assert refused in ([], ["stone 'other': it was removed from the flow"])


def test_a_handler_changes_the_flow_after_its_event() -> None:
    """It does not wait; the event at hand goes through the graph as it was."""
    seen: list[int] = []

    def handler(event: Any) -> None:
        seen.append(event.seq)
        if event.seq == 1:
            assert flow.insert(ev.Filter("input.seq != 2"), after="recs", before="end") == ""
            with flow.change() as graph:
                graph.source("more", Rec) >> graph["end"]
        if event.seq == 3:
            flow.unlink("end", "recs")

    g = ev.Graph()
    g.source("recs", Rec) >> ev.Terminal(handler, name="end")
    with g.run() as flow:
        flow["recs"].submit(Rec(1))
        flow.drain()
        flow["recs"].submit_batch({"seq": [2, 3]})
        flow.drain()
        assert set(flow.stats()) == {"recs", "end", "filter"}
    assert seen == [1, 3]


def test_what_is_wrong_with_a_change_by_a_handler_goes_to_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """Also that another change came between."""

    def handler(event: Any) -> None:
        flow.remove("nobody")
        with flow.change() as graph:
            graph.replace("gate", ev.Filter("0"))
        flow.insert(ev.Filter("1"), after="gate", before="end")
        with flow.change() as graph:
            graph.replace("gate", ev.Filter("input.seq > 0"))
        flow.replace("gate", ev.Filter("input.nothing"))

    g = ev.Graph("g")
    g.source("recs", Rec) >> ev.Filter("1", name="gate") >> ev.Terminal(handler, name="end")
    with caplog.at_level(logging.ERROR, "evflow.flow"), g.run() as flow:
        flow["recs"].submit(Rec(1))
        flow.drain()
        flow.drain()
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 3
    assert "no stone 'nobody'" in said[0]
    assert "a handler changed the graph meanwhile" in said[1]
    assert "'gate'" in said[2] and "nothing" in said[2]


WRONG: list[tuple[Callable[[ev.Flow], Any], str]] = [
    (
        lambda f: f.insert(ev.Filter("1"), after="nope", before="end"),
        "no stone 'nope'; it has recs, gate, end",
    ),
    (lambda f: f.insert(ev.Filter("1"), after="recs", before="end"), "'end' is not a target of 'recs'"),
    (lambda f: f.insert(ev.Filter("input.nope"), after="gate", before="end"), "nope"),
    (lambda f: f.remove("nope"), "no stone 'nope'"),
    (lambda f: f.remove("end"), "'gate' .filter.: its output leads nowhere"),
    (lambda f: f.replace("gate", ev.Filter("input.nope")), "'gate' .filter.*nope"),
    (lambda f: f.replace("gate", ev.Terminal(print)), "has no output, but is linked"),
    (lambda f: f.replace("gate", 5), "expected a stone"),  # type: ignore[arg-type]
    (lambda f: f.link("gate", "end"), "'end' is a target of 'gate' already"),
    (lambda f: f.link("end", "recs"), "source takes no links"),
    (lambda f: f.link("gate", "nope"), "no stone 'nope'"),
    (lambda f: f.link("gate", ev.Filter("1")), "leads nowhere"),
    (lambda f: f.link("gate", keep([]), port=2), "port 0 only; port 2 is linked"),
    (lambda f: f.unlink("recs", "end"), "'end' is not a target of 'recs'; its targets are gate"),
    (lambda f: f.unlink("gate", "end"), "leads nowhere"),
    (lambda f: f.link("gate", ev.Bridge("tcp://127.0.0.1:9", "x")), "and this flow has none; start it with"),
    (lambda f: f.link("gate", ev.Storage(2, path="/proc/none/x.db")), "leads nowhere"),
]


@pytest.mark.parametrize(("change", "words"), WRONG)
def test_a_wrong_change_is_refused_and_changes_nothing(change: Callable[[ev.Flow], Any], words: str) -> None:
    seen: list[int] = []
    with running(seen) as flow:
        before = shape(flow)
        with pytest.raises(ev.EvflowError, match=words):
            change(flow)
        assert shape(flow) == before and list(flow.stats()) == before[0]
        flow["recs"].submit(Rec(1))
    assert seen == [1]


def test_what_a_block_raises_undoes_it() -> None:
    seen: list[int] = []
    with running(seen) as flow:
        before = shape(flow)
        with pytest.raises(ZeroDivisionError), flow.change() as graph:
            graph.replace("gate", ev.Filter("0"))
            raise ZeroDivisionError
        assert shape(flow) == before
        flow["recs"].submit(Rec(1))
        flow.replace("gate", ev.Filter("0"))
        flow["recs"].submit(Rec(2))
    assert seen == [1]


def test_a_stone_that_cannot_be_opened_undoes_the_change(tmp_path: Path) -> None:
    (tmp_path / "bad.db").write_bytes(b"no database" * 100)
    seen: list[int] = []
    with running(seen) as flow:
        before = shape(flow)
        with pytest.raises(ev.FlowError, match=r"bad\.db"), flow.change() as graph:
            graph.replace("gate", ev.Filter("0"))
            graph.insert(ev.Storage(3, path=tmp_path / "bad.db"), after="gate", before="end")
        assert shape(flow) == before
        flow["recs"].submit(Rec(1))
    assert seen == [1]


def test_a_change_of_a_closed_flow_is_refused() -> None:
    flow = running([])
    flow.close()
    with pytest.raises(ev.FlowError, match="closed"):
        flow.remove("gate")


def test_a_split_may_lose_its_last_target() -> None:
    """What comes then is dropped and counted, until it has one again."""
    seen: list[int] = []
    g = ev.Graph()
    g.source("recs", Rec) >> ev.Split(name="fan") >> ev.Terminal(lambda e: seen.append(e.seq), name="end")
    with g.run() as flow:
        flow.remove("end")
        flow["recs"].submit_batch({"seq": [1, 2]})
        flow.link("fan", keep(seen))
        flow["recs"].submit(Rec(3))
        flow.drain()
        assert flow.stats()["fan"]["dropped"] == 2
    assert seen == [3]


def test_a_frozen_stone_keeps_what_it_queued_through_changes() -> None:
    seen: list[int] = []
    with running(seen) as flow:
        flow.freeze("gate")
        flow["recs"].submit_batch({"seq": [1, 2]})
        flow.insert(ev.Filter("input.seq != 3", name="new"), after="recs", before="gate")
        flow["recs"].submit_batch({"seq": [3, 4]})
        flow.replace("gate", ev.Filter("input.seq != 1"))
        flow.insert(ev.Filter("1"), after="gate", before="end")
        flow.drain()
        assert (flow.stats()["gate"]["queued"], seen) == (3, [])
        flow.unfreeze("gate")
        flow["recs"].submit(Rec(5))
    assert seen == [2, 4, 5]


def test_storages_hold_on_while_the_graph_changes(tmp_path: Path) -> None:
    for path in (None, tmp_path / "held.db"):
        seen: list[int] = []
        g = ev.Graph()
        g.source("recs", Rec) >> ev.Storage(3, path=path, name="held") >> ev.Terminal(
            lambda e, seen=seen: seen.append(e.seq), name="end"
        )  # fmt: skip
        with g.run() as flow:
            flow["recs"].submit_batch({"seq": [1, 2, 3, 4]})
            flow.insert(ev.Filter("input.seq != 2"), after="held", before="end")
            flow.insert(ev.Filter("input.seq != 6"), after="recs", before="held")
            flow["recs"].submit_batch({"seq": [5, 6]})
            flow.drain()
            flow.send_stored("held")
        assert seen == [1, 3, 4, 5]


def test_what_a_removed_stone_held_cannot_be_resubmitted_to_it() -> None:
    """The dead letters stay, and say why."""
    seen: list[int] = []
    with running(seen) as flow:
        flow.insert(ev.Storage(3, name="held"), after="gate", before="end")
        flow["recs"].submit(Rec(1))
        flow.remove("held")
        (letter,) = flow.dead_letters()
        assert (letter.stone, letter.reason) == ("held", "the stone was removed while it held the event")
        with pytest.raises(ev.FlowError, match="'held' was removed"):
            letter.resubmit()
        assert len(flow.dead_letters()) == 1


def test_two_threads_change_the_flow_one_after_the_other() -> None:
    seen: list[int] = []
    with running(seen) as flow:
        with flow.change() as graph:
            graph.source("other", Rec) >> graph["gate"]
        threads = [
            threading.Thread(target=lambda: [flow.link("recs", keep(seen)) for _ in range(10)]),
            threading.Thread(target=lambda: [flow.link("other", keep(seen)) for _ in range(10)]),
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        flow["recs"].submit(Rec(1))
        flow["other"].submit(Rec(2))
    assert sorted(seen) == [1] * 11 + [2] * 11


def test_a_drain_ends_although_its_source_goes() -> None:
    go = threading.Event()
    g = ev.Graph()
    g.source("recs", Rec) >> ev.Terminal(lambda e: go.wait(), name="end")
    g.source("other", Rec) >> g["end"]
    with g.run() as flow:
        flow["other"].submit(Rec(1))
        remover = threading.Thread(target=flow.remove, args=("other",))
        drainer = threading.Thread(target=flow.drain)
        remover.start()
        drainer.start()
        go.set()
        remover.join()
        drainer.join()


def test_an_empty_flow_is_filled_by_alterations() -> None:
    """As a daemon does it: step by step, in the engine's thread."""
    seen: list[int] = []
    g = ev.Graph()
    g.source("recs", Rec) >> ev.Terminal(lambda e: seen.append(e.seq), name="end")
    made: list[Difference] = []
    with ev.Flow.empty("daemon", max_events=100) as flow:
        assert flow.stats() == {}
        flow.drain()
        alteration = flow.alteration(check_graph(g), done=made.append)

        def step() -> str:
            alteration.begin()
            waiting = alteration.waiting()
            alteration.commit()
            return waiting

        assert flow.call(step) == ""
        assert made[0].new == {"recs", "end"}
        flow["recs"].submit(Rec(1))
        stale, later = flow.alteration(check_graph(g)), ev.Graph()
        later.source("other", Rec) >> keep(seen)
        flow.call(flow.alteration(check_graph(later)).commit)
        with pytest.raises(ev.FlowError, match="'recs' was removed"):
            flow["recs"]
        with pytest.raises(ev.FlowError, match="changed by another change meanwhile"):
            flow.call(stale.commit)
        flow.call(lambda: stale.commit(check_graph(g)))
        flow["recs"].submit(Rec(2))
        cancelled = flow.alteration(check_graph(later))
        flow.call(cancelled.begin)
        flow.call(cancelled.cancel)
        flow["recs"].submit(Rec(3))
    assert seen == [1, 2, 3]


def test_the_thread_calls_back_each_turn() -> None:
    """At once, when it is due, and no more once it was ended."""
    calls: list[float] = []
    third = threading.Event()

    def call(now: float) -> float | None:
        calls.append(now)
        if len(calls) >= 3:
            third.set()
            return None
        return now + 0.001

    with running([]) as flow:
        end = flow.each_turn(call)
        assert third.wait(10)
        end()
        flow.call(lambda: None)
        count = len(calls)
        flow["recs"].submit(Rec(1))
        flow.drain()
        assert len(calls) == count
    assert calls == sorted(calls) and calls[1] - calls[0] >= 0.001


class Slow(Acting):
    """A stone that is removed while its actor is at work."""

    kind = "terminal"
    linked_ports = "none"

    def emits(self, schema: object) -> tuple[None, ...]:
        return ()

    def open(self, context: Context) -> Actor:
        return _Slow(context)


class _Slow(Actor):
    def receive(self, batch: ev.EventBatch, input: str) -> None:
        self.context.drop(len(batch))


def test_a_stone_of_ones_own_can_come_and_go() -> None:
    seen: list[int] = []
    with running(seen) as flow:
        name = flow.link("gate", Slow())
        flow["recs"].submit(Rec(1))
        flow.drain()
        assert flow.stats()[name]["dropped"] == 1
        flow.remove(name)
        flow["recs"].submit(Rec(2))
    assert seen == [1, 2]


def test_a_change_within_a_change_is_refused_and_the_outer_one_made() -> None:
    with running([]) as flow:
        with flow.change() as graph:
            with pytest.raises(ev.FlowError, match=r"a change within a change; edit the graph that"):
                flow.insert(ev.Filter("1", name="a"), after="recs", before="gate")
            with pytest.raises(ev.FlowError, match="a change within a change"), flow.change():
                pass
            graph.remove("gate")
        assert "gate" not in flow.stats()
        assert flow.insert(ev.Filter("1", name="b"), after="recs", before="end") == "b"


def test_what_would_never_run_is_not_a_handler() -> None:
    async def waits(event: Rec) -> None: ...

    def yields(event: Rec) -> Iterator[None]:
        yield

    async def streams(event: Rec) -> AsyncIterator[None]:
        yield

    class Waits:
        async def __call__(self, event: Rec) -> None: ...

    for handler in (waits, Waits(), yields, streams):
        what = "generator" if handler in (yields, streams) else "coroutine"
        with pytest.raises(ev.GraphError, match=f"terminal end: handler .* is a {what}"):
            ev.Terminal(handler, name="end")
