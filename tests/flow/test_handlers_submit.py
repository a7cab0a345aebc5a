"""Handlers that submit: whatever can be handled arrives, in order, and what cannot is said."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import evflow as ev
from evflow.errors import FlowError
from evflow.flow import worker
from tests.node.processes import wait_for


class Number(ev.Event):
    x: int


def _run(graph: ev.Graph, count: int, **settings: Any) -> ev.Flow:
    """Runs a graph with so many numbers at ``in`` until all is handled."""
    with graph.run(**settings) as flow:
        _flows.append(flow)
        try:
            flow["in"].submit_batch({"x": np.arange(count)})
            flow.drain(timeout=60)
        finally:
            _flows.clear()
    return flow


_flows: list[ev.Flow] = []


def _onward(stone: str, times: int = 1) -> Callable[[Any], None]:
    """A handler that submits what it gets to a stone, several times."""

    def handler(event: Any) -> None:
        for _ in range(times):
            _flows[0][stone].submit(Number(event.x))

    return handler


@pytest.mark.parametrize(("count", "times"), [(3000, 1), (700, 7), (20, 200)])
def test_a_bound_that_is_less_than_a_batch_loses_nothing(count: int, times: int) -> None:
    """What a handler submits is run before the events behind its own, so that little of it ever waits."""
    seen: list[int] = []
    g = ev.Graph()
    g.source("in", Number) >> ev.Terminal(_onward("out", times))
    g.source("out", Number) >> ev.Terminal(lambda event: seen.append(event.x))
    flow = _run(g, count, max_events=100)
    assert seen == [x for x in range(count) for _ in range(times)]
    assert not flow.dead_letters()


def test_each_of_several_stages_that_submit_is_bounded() -> None:
    """Four stages, each of which triples, need no more room than one event of each."""
    seen: list[int] = []
    g = ev.Graph()
    g.source("in", Number) >> ev.Terminal(_onward("s1", 3))
    for stage in range(1, 4):
        g.source(f"s{stage}", Number) >> ev.Terminal(_onward(f"s{stage + 1}", 3))
    g.source("s4", Number) >> ev.Terminal(lambda event: seen.append(event.x))
    flow = _run(g, 200, max_events=50, max_bytes=1 << 17)
    assert seen == [x for x in range(200) for _ in range(81)]
    assert not flow.dead_letters()


def test_events_of_one_source_keep_their_order_where_handlers_submit_to_it_as_well() -> None:
    """What a handler submits to the source of its own event comes after all that was submitted there before,
    also where two stones take the events."""
    left: list[int] = []
    right: list[int] = []

    def again(event: Any) -> None:
        left.append(event.x)
        if event.x < 3000:
            _flows[0]["in"].submit(Number(event.x + 3000))

    g = ev.Graph()
    split = g.source("in", Number) >> ev.Split()
    split >> ev.Terminal(again)
    split >> ev.Terminal(lambda event: right.append(event.x))
    _run(g, 3000)
    assert left == list(range(6000))
    assert right == list(range(6000))


def test_one_terminal_may_handle_what_it_submits_to_another_source() -> None:
    """Events of two sources come to one terminal, whose handler submits those of the second."""
    seen: list[int] = []

    def handler(event: Any) -> None:
        seen.append(event.x)
        if event.x < 5000:
            _flows[0]["more"].submit(Number(event.x + 5000))

    g = ev.Graph()
    end = g.source("in", Number) >> ev.Terminal(handler, name="end")
    g.source("more", Number) >> end
    _run(g, 5000, max_events=1100)
    assert sorted(seen) == list(range(10_000))
    assert [x for x in seen if x >= 5000] == list(range(5000, 10_000))


def test_a_call_of_a_batch_handler_may_submit_more_than_the_bound_in_events() -> None:
    """A batch cannot be divided for such a handler, so its bound is that in bytes."""
    seen: list[int] = []

    def handler(batch: Any) -> None:
        for event in batch:
            _flows[0]["out"].submit(Number(event.x))

    g = ev.Graph()
    g.source("in", Number) >> ev.Terminal(handler, batch=True)
    g.source("out", Number) >> ev.Terminal(lambda event: seen.append(event.x))
    flow = _run(g, 2000, max_events=100)
    assert seen == list(range(2000))
    assert not flow.dead_letters()


def test_large_events_are_bounded_by_their_bytes() -> None:
    """Handlers submit 40 MB in all, of which less than 4 MiB may wait."""
    sizes: list[int] = []

    def handler(event: Any) -> None:
        _flows[0]["out"].submit_batch({"x": np.zeros(2500, int)})

    g = ev.Graph()
    g.source("in", Number) >> ev.Terminal(handler)
    g.source("out", Number) >> ev.Terminal(lambda batch: sizes.append(len(batch)), batch=True)
    flow = _run(g, 1000, max_bytes=4 << 20)
    assert sum(sizes) == 2_500_000
    assert not flow.dead_letters()


def test_a_loop_that_grows_is_refused_loudly_and_ends_with_its_flow(caplog: pytest.LogCaptureFixture) -> None:
    """Each event leads to two others, for ever: ``drain`` raises, the log warns, and each event that could
    not be handled is a dead letter."""
    caplog.set_level(logging.WARNING)
    handled = 0

    def twice(event: Any) -> None:
        nonlocal handled
        flow["in"].submit(Number(event.x))
        flow["in"].submit(Number(event.x))
        handled += 1

    g = ev.Graph()
    g.source("in", Number) >> ev.Terminal(twice, name="end")
    with g.run(max_events=50, dead_letters=10) as flow:
        flow["in"].submit(Number(1))
        with pytest.raises(FlowError, match=r"'in' is full: .*must not submit more .* refused; see the dead"):
            flow.drain(timeout=60)
    letters = flow.dead_letters()
    assert letters[-1].stone == "end"
    assert isinstance(letters[-1].error, FlowError)
    assert letters.total + handled == flow.stats()["end"]["in"]
    assert any("'in' is full" in record.message for record in caplog.records)


@pytest.mark.slow
def test_a_loop_without_end_holds_up_neither_changes_nor_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each event leads to another, for ever, so no queue is ever full."""
    monkeypatch.setattr(worker, "_PORTION", 0.05)
    handled = 0

    def again(event: Any) -> None:
        nonlocal handled
        handled += 1
        flow["in"].submit(Number(event.x))

    g = ev.Graph()
    g.source("in", Number) >> ev.Terminal(again, name="end")
    g.source("beside", Number) >> ev.Terminal(lambda event: None, name="other")
    flow = g.run()
    flow["in"].submit(Number(1))
    with pytest.raises(FlowError, match=r"not done within 0.2 s"):
        flow.drain(timeout=0.2)
    with flow.change(timeout=20) as changed:
        changed.insert(ev.Filter("1"), after="beside", before="other")
    flow["beside"].submit(Number(2))
    before = handled
    wait_for(lambda: handled > before, "the loop goes on")
    flow.close(timeout=0.2)
    assert [(letter.stone, letter.event.x) for letter in flow.dead_letters()] == [("in", 1)]
    assert flow.stats()["other"]["in"] == 1


def test_a_refusal_is_told_to_the_next_drain_once() -> None:
    """A loop that has come to its end is told by the next drain, and not by the one after."""

    def grow(event: Any) -> None:
        for x in range(event.x):
            flow["in"].submit(Number(x))

    g = ev.Graph()
    g.source("in", Number) >> ev.Terminal(grow)
    with g.run(max_events=20) as flow:
        flow["in"].submit(Number(12))
        with pytest.raises(FlowError, match="refused"):
            flow.drain(timeout=60)
        flow.drain(timeout=60)
        flow["in"].submit(Number(2))
        flow.drain(timeout=60)


def test_what_a_handler_submits_to_its_own_source_is_bounded_by_its_bytes() -> None:
    taken: list[int] = []

    def handler(event: Any) -> None:
        for number in range(50 if event.x == 0 else 0):
            _flows[0]["in"].submit_batch({"x": np.ones(20_000, np.int64)})
            taken.append(number)

    g = ev.Graph()
    g.source("in", Number) >> ev.Terminal(handler)
    with pytest.raises(FlowError, match="stone 'in' is full"):
        _run(g, 1, max_bytes=1 << 20)
    assert 0 < len(taken) <= (1 << 20) // 160_000 + 1


def test_what_a_handler_submits_does_not_overtake_what_came_to_its_stone_before() -> None:
    """The batch came to the stone itself, and the events that its handler submits come by the source."""
    seen: list[int] = []

    def handler(event: Any) -> None:
        seen.append(event.x)
        if event.x < 100:
            flow["in"].submit(Number(100 + event.x))

    g = ev.Graph()
    g.source("in", Number) >> ev.Terminal(handler, name="end")
    with g.run() as flow:
        flow["end"].submit_batch({"x": np.arange(100)}, schema=Number)
        flow.drain(timeout=20)
    assert seen == list(range(200))


def test_a_drain_waits_for_what_handlers_have_submitted_however_long_that_takes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The thread of the flow does other things too after each portion of it."""
    monkeypatch.setattr(worker, "_PORTION", 0.001)
    seen: list[int] = []

    def many(event: Any) -> None:
        for number in range(50):
            _flows[0]["out"].submit_batch({"x": [number]})

    def slow(event: Any) -> None:
        time.sleep(0.002)
        seen.append(event.x)

    g = ev.Graph()
    g.source("in", Number) >> ev.Terminal(many)
    g.source("out", Number) >> ev.Terminal(slow)
    with g.run() as flow:
        _flows.append(flow)
        flow["in"].submit(Number(0))
        flow.drain(timeout=20)
        assert seen == list(range(50))
        _flows.clear()


def test_what_handlers_have_submitted_goes_before_all_that_comes_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It takes longer than the flow's thread stays with it at a time."""
    monkeypatch.setattr(worker, "_PORTION", 0.02)
    order: list[int] = []

    def handler(event: Any) -> None:
        order.append(event.x)
        for x in range(1, 31 if event.x == 0 else 0):
            flow["out"].submit_batch({"x": [x]})

    def slow(event: Any) -> None:
        time.sleep(0.01)
        order.append(event.x)

    g = ev.Graph()
    g.source("in", Number) >> ev.Terminal(handler)
    g.source("out", Number) >> ev.Terminal(slow)
    with g.run() as flow:
        flow["in"].submit(Number(0))
        wait_for(lambda: len(order) > 1, "the first of them")
        flow["in"].submit(Number(31))
        flow.drain(timeout=20)
    assert order == list(range(32))
