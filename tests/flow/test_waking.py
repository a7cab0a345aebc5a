"""Stones that emit by themselves, that take no more for a while, and that answer questions."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import evflow as ev
from evflow.stone import Acting, Actor, Context, Later
from tests.engine.rig import Rig
from tests.node.processes import wait_for


class Number(ev.Event):
    value: int


def _numbers(first: int, count: int) -> ev.EventBatch:
    return ev.EventBatch.from_columns(Number, {"value": np.arange(first, first + count)})


class Counting(Acting):
    """Emits 0, 1, 2 … in tens, up to ``most``, numbered from ``start``."""

    kind = "counting"
    wakes = True
    listens = True

    def __init__(self, most: int, start: int = 0, *, name: str | None = None, on: str | None = None) -> None:
        super().__init__(name=name, on=on)
        self.most, self.start = most, start

    @property
    def inputs(self) -> dict[str, Any]:
        return {}

    def emits(self, schema: Any) -> tuple[Any, ...]:
        return (Number.schema,)

    def open(self, context: Context) -> Actor:
        return CountingActor(context, self)


class CountingActor(Actor):
    stream = b"sixteen bytes 01"

    def __init__(self, context: Context, stone: Counting) -> None:
        super().__init__(context)
        self.stone = stone
        self.at = stone.start
        self.woken = 0
        self.later = Later()

    def wake(self, now: float) -> float | None:
        self.woken += 1
        if self.at < self.stone.most:
            self.context.emit(_numbers(self.at, 10), number=self.at // 10)
            self.at += 10
        return now if self.at < self.stone.most else None

    @property
    def busy(self) -> str:
        return "it counts" if self.at < self.stone.most else ""

    def answer(self, question: dict[str, Any]) -> Any:
        if "most" in question:
            self.stone.most = question["most"]
            self.context.wake()
        if question.get("home"):
            return list(self.context.home)
        if question.get("later"):
            return self.later
        if "now" in question:
            self.later.give(question["now"])
            self.later.give("too late")
            self.later = Later()
        if question.get("wrong"):
            raise ev.GraphError("that is wrong")
        return {"at": self.at, "woken": self.woken}


class Bucket(Acting):
    """Takes events until it holds ``most``, and then no more until it is emptied."""

    kind = "bucket"
    linked_ports = "none"
    wakes = False

    def __init__(self, most: int, **settings: Any) -> None:
        super().__init__(**settings)
        self.most = most

    def open(self, context: Context) -> Actor:
        return BucketActor(context, self.most)

    def controls(self, call: Callable[[Callable[[Any], Any]], Any]) -> object:
        class Controls:
            def empty(self) -> int:
                return int(call(lambda actor: actor.empty()))

        return Controls()


class BucketActor(Actor):
    def __init__(self, context: Context, most: int) -> None:
        super().__init__(context)
        self.most, self.held = most, 0

    def receive(self, batch: ev.EventBatch, input: str) -> None:
        self.held += len(batch)

    @property
    def full(self) -> bool:
        return self.held >= self.most

    def empty(self) -> int:
        held, self.held = self.held, 0
        self.context.wake()
        return held


def _asking() -> ev.Flow:
    """A flow of a node of its own, which has nothing to do but to ask."""
    g = ev.Graph()
    with g.on("asking"):
        g.source("numbers", Number) >> ev.Terminal(print)
    return g.run(node=ev.Node("asking"))


def test_a_stone_emits_by_itself_and_a_drain_waits_for_it() -> None:
    seen: list[int] = []
    g = ev.Graph()
    g.add(Counting(1000, name="count")) >> ev.Terminal(lambda event: seen.append(event.value))
    with g.run() as flow:
        flow.drain(timeout=10)
        assert seen == list(range(1000))
        with _asking() as other:
            assert other.ask(flow.node.contact, "count", {}) == {"at": 1000, "woken": 100}
            other.ask(flow.node.contact, "count", {"most": 1020})
        flow.drain(timeout=10)
        assert seen == list(range(1020))


def _counting(wake: Callable[[float], float | None]) -> Counting:
    """A stone that holds events, and does this when it is woken."""

    class Own(Counting):
        def open(self, context: Context) -> Actor:
            actor = CountingActor(context, self)
            actor.wake = wake  # type: ignore[method-assign]
            return actor

    return Own(10, name="count")


def test_a_drain_that_is_late_says_which_stone_is_busy() -> None:
    g = ev.Graph()
    g.add(_counting(lambda now: None)) >> ev.Terminal(lambda event: None)
    with g.run() as flow:
        with pytest.raises(ev.FlowError, match=r"stone 'count': it counts"):
            flow.drain(timeout=0.2)
        flow.freeze("count")
        flow.drain(timeout=10)
        flow.close(timeout=0.0)


def test_a_drain_that_is_late_says_why_a_stone_fails_to_emit() -> None:
    """The stone is woken again and again, and keeps what it holds."""

    def fail(now: float) -> None:
        raise ValueError("no luck")

    g = ev.Graph()
    g.add(_counting(fail)) >> ev.Terminal(lambda event: None)
    with g.run() as flow:
        with pytest.raises(ev.FlowError, match=r"stone 'count': it counts; .*woken: ValueError: no luck"):
            flow.drain(timeout=0.2)
        flow.freeze("count")
        flow.close(timeout=0.0)


def test_why_a_stone_fails_to_emit_is_known_after_a_change_of_the_graph() -> None:
    """Before it is woken again, too."""

    def fail(now: float) -> None:
        raise ValueError("no luck")

    g = ev.Graph()
    g.add(_counting(fail)) >> ev.Terminal(lambda event: None)
    engine = Rig(g).engine
    assert len(list(engine.waking.due(0.0, lambda slot: False))) == 1
    engine.changed()
    assert engine.waking.busy() == [
        "stone 'count': it counts; it failed when it was woken: ValueError: no luck"
    ]


class Tapped(CountingActor):
    """Counts on by ten each time somebody drains, and fails at 30."""

    def draining(self) -> None:
        self.stone.most += 10
        self.context.wake()

    @property
    def failure(self) -> ev.EvflowError | None:
        return ev.FlowError("it can count no further") if self.at >= 30 else None


def test_a_drain_has_a_stone_bring_what_there_is_and_raises_why_it_failed() -> None:
    class Tap(Counting):
        def open(self, context: Context) -> Actor:
            return Tapped(context, self)

    seen: list[int] = []
    g = ev.Graph()
    g.add(Tap(0, name="tap")) >> ev.Terminal(lambda event: seen.append(event.value))
    with g.run() as flow:
        for most in (10, 20):
            flow.drain(timeout=10)
            assert seen == list(range(most))
        for _ in range(2):
            with pytest.raises(ev.FlowError, match="it can count no further"):
                flow.drain(timeout=10)
        flow.freeze("tap")
        with pytest.raises(ev.FlowError, match="it can count no further"):
            flow.drain(timeout=10)
        assert seen == list(range(40))


def test_a_stone_that_takes_no_more_holds_up_who_submits() -> None:
    g = ev.Graph()
    g.source("numbers", Number) >> ev.Filter("input.value >= 0") >> Bucket(100, name="bucket")
    with g.run(max_events=10) as flow:
        sent = 0
        with pytest.raises(ev.FlowError, match=r"'numbers' is full.*'bucket' is full"):
            while sent < 10_000:
                flow["numbers"].submit_batch(_numbers(sent, 10), timeout=0.2)
                sent += 10
        assert flow.stats()["bucket"]["in"] == 100
        while flow.stats()["bucket"]["in"] < sent:
            flow["bucket"].empty()
        flow["bucket"].empty()
        flow["numbers"].submit_batch(_numbers(sent, 10), timeout=5)
        flow.drain(timeout=10)
        assert flow.stats()["bucket"]["in"] == sent + 10


def test_a_stone_that_takes_no_more_holds_up_other_nodes() -> None:
    there = ev.Node("there", listen="tcp://127.0.0.1:0")
    far, near = ev.Graph("far"), ev.Graph("near")
    with far.on("there"):
        far.source("numbers", Number) >> Bucket(1000, name="bucket")
    near.source("numbers", Number) >> ev.Bridge(there.contact, "numbers", limit=1 << 16)
    sent = 0
    with far.run(node=there) as held, near.run(max_events=1) as flow:
        with pytest.raises(ev.FlowError, match="full"):
            while sent < 1_000_000:
                flow["numbers"].submit_batch(_numbers(sent, 10_000), timeout=0.3)
                sent += 10_000
        assert 1000 <= held.stats()["bucket"]["in"] < sent
        emptying = True

        def empty() -> None:
            while emptying:
                held["bucket"].empty()

        thread = threading.Thread(target=empty)
        thread.start()
        try:
            flow.drain(timeout=20)
        finally:
            emptying = False
            thread.join()
        assert held.stats()["bucket"]["in"] == sent


def test_a_stone_that_emits_by_itself_waits_for_one_that_takes_no_more() -> None:
    g = ev.Graph()
    g.add(Counting(10_000, name="count")) >> Bucket(50, name="bucket")
    with g.run() as flow:
        flow.call(lambda: None)
        with pytest.raises(ev.FlowError):
            flow.drain(timeout=0.1)
        assert flow.stats()["bucket"]["in"] == 50
        while flow.stats()["bucket"]["in"] < 10_000:
            flow["bucket"].empty()
        flow.drain(timeout=10)


class Tank(Acting):
    """Takes events until it holds ``most``, and lets them go on when it is woken."""

    kind = "tank"
    wakes = True

    def __init__(self, most: int, **settings: Any) -> None:
        super().__init__(**settings)
        self.most = most

    def open(self, context: Context) -> Actor:
        return TankActor(context, self.most)


class TankActor(Actor):
    def __init__(self, context: Context, most: int) -> None:
        super().__init__(context)
        self.most = most
        self.held: list[ev.EventBatch] = []

    def receive(self, batch: ev.EventBatch, input: str) -> None:
        self.held.append(batch)
        if self.full:
            self.context.wake()

    @property
    def full(self) -> bool:
        return sum(map(len, self.held)) >= self.most

    def wake(self, now: float) -> float | None:
        if self.held:
            self.context.emit(ev.EventBatch.concat(self.held))
            self.held.clear()
        return None


def test_a_stone_that_takes_no_more_is_woken_to_make_room() -> None:
    seen: list[int] = []
    g = ev.Graph()
    (
        g.source("numbers", Number)
        >> Tank(30, name="tank")
        >> ev.Terminal(lambda event: seen.append(event.value))
    )
    with g.run(max_events=4) as flow:
        for at in range(0, 300, 10):
            flow["numbers"].submit_batch(_numbers(at, 10), timeout=10)
        flow.drain(timeout=10)
        assert seen == list(range(300))


def test_what_is_numbered_is_known_again_by_other_nodes() -> None:
    """A node that emits again what it had emitted before it was restarted doubles nothing."""
    seen: list[int] = []
    there = ev.Node("there", listen="tcp://127.0.0.1:0")
    far = ev.Graph("far")
    far.source("numbers", Number, on="there") >> ev.Terminal(lambda e: seen.append(e.value), on="there")
    with far.run(node=there):
        for start, most in ((0, 100), (40, 150), (0, 200)):
            near = ev.Graph("near")
            with near.on("near"):
                near.add(Counting(most, start, name="count")) >> ev.Bridge(
                    there.contact, "numbers", name="way"
                )
            with near.run(node=ev.Node("near")) as flow:
                flow.drain(timeout=10)
        assert seen == list(range(200))


def test_questions_are_answered_or_refused_with_the_stones_own_error() -> None:
    there = ev.Node("there", listen="tcp://127.0.0.1:0")
    far, near = ev.Graph("far"), ev.Graph("near")
    with far.on("there"):
        far.add(Counting(20, name="count")) >> ev.Filter("1", name="all") >> ev.Terminal(print, name="end")
    near.source("numbers", Number) >> ev.Terminal(print)
    with far.run(node=there), _asking() as flow:
        assert flow.ask(there.contact, "count", {"home": True}) == [there.contact, "count"]
        with pytest.raises(ev.GraphError, match="that is wrong"):
            flow.ask(there.contact, "count", {"wrong": True})
        with pytest.raises(ev.FlowError, match="no questions"):
            flow.ask(there.contact, "end", {})
        with pytest.raises(ev.FlowError, match="stone 'all' is a filter, which takes no questions"):
            flow.ask(there.contact, "all", {})
        with pytest.raises(ev.FlowError, match="no stone 'nobody' on this node; it has count, all, end"):
            flow.ask(there.contact, "nobody", {})
    with _asking() as flow, pytest.raises(ev.LinkError, match="stone 'count' of tcp"):
        flow.ask(there.contact, "count", {}, timeout=0.3)
    with near.run() as flow, pytest.raises(ev.FlowError, match="has no node"):
        flow.ask(there.contact, "count", {})


def test_a_question_may_be_answered_later() -> None:
    there = ev.Node("there", listen="tcp://127.0.0.1:0")
    far = ev.Graph("far")
    with far.on("there"):
        far.add(Counting(20, name="count")) >> ev.Terminal(print)
    with far.run(node=there), _asking() as flow:
        said: list[object] = []
        question = {"later": True}
        asker = threading.Thread(target=lambda: said.append(flow.ask(there.contact, "count", question)))
        asker.start()
        asker.join(0.2)
        assert said == []
        flow.ask(there.contact, "count", {"now": [1, 2]})
        asker.join(10)
        assert said == [[1, 2]]


def test_nobody_takes_what_a_stone_emits_by_itself_for_what_has_just_come() -> None:
    """It may be of another source, so it has no order with what comes from this one."""
    g = ev.Graph()
    g.source("numbers", Number) >> Tank(30, name="tank") >> ev.Terminal(print, name="end")
    rig = Rig(g)
    rig.engine.submit(rig.slot("numbers"), _numbers(0, 1), origin=("numbers", b""))
    assert rig.engine.entrance(rig.slot("tank")) is not None
    assert rig.engine.entrance(rig.slot("end")) is None


def test_of_several_batches_that_wait_none_goes_to_a_stone_that_one_has_filled() -> None:
    g = ev.Graph()
    g.source("numbers", Number) >> Bucket(10, name="bucket")
    with g.run() as flow:
        began, go = threading.Event(), threading.Event()
        busy = threading.Thread(target=lambda: flow.call(lambda: (began.set(), go.wait(20))))
        busy.start()
        began.wait(20)
        for number in range(5):
            flow["numbers"].submit_batch(_numbers(10 * number, 10))
        go.set()
        busy.join()
        arrived: list[int] = []
        while sum(arrived) < 50:
            wait_for(lambda: flow.stats()["bucket"]["in"] > sum(arrived), "the next batch")
            flow.call(lambda: None)
            arrived.append(flow.stats()["bucket"]["in"] - sum(arrived))
            flow["bucket"].empty()
    assert arrived == [10] * 5


class Twice(CountingActor):
    """Emits ten numbers, to each of two stones, and not as if it were a frame."""

    def wake(self, now: float) -> float | None:
        if self.at < self.stone.most:
            self.at += 10
            self.context.emit(_numbers(0, 10))
        return None


def test_what_a_handler_submits_comes_from_where_its_own_event_came_in(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A stone that emits to two leads to what the second submits to; a generator due in the same turn as
    others leads to nothing."""

    class Emitting(Counting):
        def open(self, context: Context) -> Actor:
            return Twice(context, self)

    told = set[tuple[str, str]]()
    got: list[int] = []
    g = ev.Graph()
    once = g.add(Emitting(10, name="once"))
    for name, call in (
        ("plain", lambda event: None),
        ("hands", lambda event: flow["from once"].submit(event)),
    ):
        once >> ev.Terminal(call, name=name)
    ticks: list[int] = []
    code = "output.value = input.count; return 1;"
    for name, call in (
        ("first", lambda event: None),
        ("second", lambda event: (ticks.append(1), flow["from ticks"].submit(event))),
    ):
        g.add(ev.Generator(code, output=Number, period=0.02, name=name)) >> ev.Terminal(
            call, name=f"at {name}"
        )
    for name in ("from once", "from ticks"):
        g.source(name, Number) >> ev.Terminal(lambda event: got.append(event.value), name=f"end {name}")
    flow = g.run()
    with flow:
        monkeypatch.setattr(
            flow._worker._net, "leads", lambda entry, onward: told.add((entry.name, onward.name))
        )
        wait_for(lambda: len(ticks) > 3 and len(got) > 12, "both")
    assert told <= {("once", "from once")}
