"""A running flow refuses what makes no sense, says so, and goes on."""

from __future__ import annotations

import math
import threading
from typing import Any

import pytest

import evflow as ev


class Rec(ev.Event):
    seq: int


def test_a_negative_number_of_stored_events_is_refused() -> None:
    """``send_stored`` of a number that means nothing raises, and the flow goes on."""
    seen: list[int] = []
    g = ev.Graph()
    g.source("recs", Rec) >> ev.Storage(5, name="held") >> ev.Terminal(lambda event: seen.append(event.seq))
    with g.run() as flow:
        flow["recs"].submit(Rec(1))
        with pytest.raises(ev.GraphError, match="count -1: expected an integer of 0 or more"):
            flow.send_stored("held", -1)
        assert flow.send_stored("held", 0) == 0
        assert flow.send_stored("held", 9) == 1
    assert seen == [1]


def test_attributes_that_are_no_mapping_are_refused() -> None:
    """The error says what was expected."""
    g = ev.Graph()
    g.source("recs", Rec) >> ev.Terminal(print)
    with g.run() as flow, pytest.raises(ev.SchemaError, match="mapping from name to value, found \\[1\\]"):
        flow["recs"].submit(Rec(1), attrs=[1])  # type: ignore[arg-type]


def test_too_many_attributes_are_refused_by_submit() -> None:
    """Whether or not the event would ever go to another node; it could not."""
    seen: list[int] = []
    g = ev.Graph()
    g.source("recs", Rec) >> ev.Terminal(lambda event: seen.append(len(event.attrs)))
    with g.run() as flow:
        many = {f"a{number}": number for number in range(1001)}
        with pytest.raises(
            ev.SchemaError, match="expected at most 1,000 attributes of an event, found 1,001"
        ):
            flow["recs"].submit(Rec(1), attrs=many)
        with pytest.raises(
            ev.SchemaError, match="expected at most 1,000 attributes of an event, found 1,001"
        ):
            flow["recs"].submit_batch([Rec(1)], attrs=many)
        del many["a0"]
        flow["recs"].submit(Rec(1), attrs=many)
    assert seen == [1000]


def test_a_node_that_is_none_is_refused() -> None:
    """The error says what a node is."""
    g = ev.Graph()
    g.source("recs", Rec) >> ev.Terminal(print)
    with pytest.raises(ev.GraphError, match=r"node 'a': expected a node such as ev.Node"):
        g.run(node="a")


@pytest.mark.parametrize("wrong", ["x", math.nan, True, 10**400], ids=["text", "nan", "bool", "huge"])
def test_a_timeout_is_a_number(wrong: Any) -> None:
    """One that is not is refused, and the flow goes on; infinity is as long as it takes."""
    g = ev.Graph()
    with g.on("here"):
        g.source("recs", Rec) >> ev.Terminal(print)
    with g.run(node=ev.Node("here")) as flow:
        for wait in (flow.drain, flow.close, flow["recs"].flush):
            with pytest.raises(ev.FlowError, match=r"timeout .*: expected seconds, or None"):
                wait(wrong)
        flow.drain(10)
        flow.drain(math.inf)
        flow.close(math.inf)


@pytest.mark.parametrize("wrong", ["x", [], math.nan, 10**400], ids=["text", "list", "nan", "huge"])
def test_a_submit_that_has_to_wait_refuses_a_timeout_that_is_not_a_number(wrong: Any) -> None:
    over = threading.Event()
    g = ev.Graph()
    g.source("recs", Rec) >> ev.Terminal(lambda event: over.wait(20))
    with g.run(max_events=1) as flow:
        try:
            with pytest.raises(ev.FlowError, match=r"no room within 0\.2 s"):
                for seq in range(9999):
                    flow["recs"].submit(Rec(seq), timeout=0.2)
            with pytest.raises(ev.FlowError, match=r"timeout .*: expected seconds, or None"):
                flow["recs"].submit(Rec(0), timeout=wrong)
        finally:
            over.set()


@pytest.mark.parametrize("wrong", [0, math.nan, math.inf, "x"])
def test_the_timeout_of_questions_is_a_number(wrong: Any) -> None:
    """A handle of a deployment refuses any other before it asks."""
    with pytest.raises(ev.LinkError, match=r"timeout .*: expected seconds above 0, at most 86400"):
        ev.Deployment("stations", {"edge": "tcp://127.0.0.1:9"}, timeout=wrong)


@pytest.mark.parametrize("node", [None, "here"])
def test_a_generator_may_have_a_period_of_centuries(node: str | None) -> None:
    """It never emits, and the flow goes on beside it."""
    seen: list[int] = []
    g = ev.Graph()
    with g.on("here"):
        g.source("recs", Rec) >> ev.Terminal(lambda rec: seen.append(rec.seq))
        g.add(ev.Generator("return 1;", output=Rec, period=1e12)) >> ev.Terminal(print)
    with g.run(node=ev.Node(node) if node else None) as flow:
        for number in range(2):
            flow["recs"].submit(Rec(number))
            flow.drain(timeout=10)
    assert seen == [0, 1]


def test_a_stone_without_a_name_is_told_by_its_kind() -> None:
    """No name and no space stand for a name."""
    with pytest.raises(ev.GraphError, match=r"^queue: limit 0: "):
        ev.Queue("", inputs={"a": Rec}, limit=0)
    with pytest.raises(ev.GraphError, match=r"^bridge: policy 'zz': "):
        ev.Bridge("tcp://127.0.0.1:1", "recs", policy="zz")
    with pytest.raises(ev.GraphError, match=r"^bridge far: policy 'zz': "):
        ev.Bridge("tcp://127.0.0.1:1", "recs", policy="zz", name="far")


def test_a_bridge_to_a_node_that_nobody_can_find_is_refused() -> None:
    """A flow that makes its own node knows no peer by its name."""
    g = ev.Graph()
    g.source("recs", Rec) >> ev.Bridge("nonsense", "s", name="out")
    with pytest.raises(ev.GraphError, match=r"'out' leads to node 'nonsense', of which no contact .*peers="):
        g.run()
    for stone in g.stones.values():
        stone.on = "here"
    with g.run(node=ev.Node("here")) as flow:
        flow["recs"].submit(Rec(1))
        with pytest.raises(ev.FlowError, match=r"no contact of nonsense is known: give it with peers="):
            flow.drain(0.2)
        flow.close(0)


class Maybe(ev.Event):
    seq: int | None = None


def test_an_optional_field_without_a_value_is_told_as_such() -> None:
    """Its event is a dead letter whose reason says what to ask."""
    g = ev.Graph()
    g.source("recs", Maybe) >> ev.Filter("input.seq > 1") >> ev.Terminal(print)
    with g.run() as flow:
        flow["recs"].submit(Maybe(None))
        flow.drain(10)
        (letter,) = flow.dead_letters()
    assert letter.reason == (
        "an optional field has no value in this event; ask present(...) or 'is None' first (line 1)"
    )


@pytest.mark.parametrize("name", ["", 3, None])
def test_a_graph_has_a_name(name: Any) -> None:
    """A graph is known by a text."""
    with pytest.raises(ev.GraphError, match="expected a name, a text"):
        ev.Graph(name)


@pytest.mark.parametrize("setting", ["max_events", "max_bytes", "dead_letters"])
@pytest.mark.parametrize("value", [-1, "many", 1.5, True])
def test_a_bound_of_a_flow_is_a_whole_number(setting: str, value: Any) -> None:
    """A bound that is none is refused before anything runs."""
    g = ev.Graph()
    g.source("recs", Rec) >> ev.Terminal(print)
    with pytest.raises(ev.GraphError, match=setting):
        g.run(**{setting: value})


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (None, r"^terminal: expected a handler .*'module:function', found 3"),
        ("end", r"^terminal end: expected a handler .*'module:function', found 3"),
    ],
)
def test_terminal_is_named_as_it_is(name: str | None, said: str) -> None:
    with pytest.raises(ev.GraphError, match=said):
        ev.Terminal(3, name=name)  # type: ignore[arg-type]


def test_a_misspelt_stone_is_told_with_the_one_that_is_meant() -> None:
    g = ev.Graph("trades")
    g.source("trades") >> ev.Terminal(print, name="show")
    told = r"has no stone 'shwo' \(did you mean 'show'\?\); it has trades, show"
    with pytest.raises(ev.GraphError, match=f"graph trades {told}"):
        g["shwo"]
    with g.run() as flow:
        with pytest.raises(ev.FlowError, match=f"flow trades {told}"):
            flow["shwo"]
        with pytest.raises(ev.FlowError, match=f"flow trades {told}"):
            flow.freeze("shwo")
