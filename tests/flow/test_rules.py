"""Stones that ask for reconfiguration: what the engine tells, and what a flow does by the graph's rules."""

from __future__ import annotations

import logging
from typing import Any

import pytest

import evflow as ev
from evflow.engine.snapshot import restore, take
from evflow.graph.rules import Rule, rules_of


class Ping(ev.Event):
    number: int


ASK = "{ if (input.number < 0) reconfigure(-input.number); return 1; }"
QUEUE = """{
    static int waits;
    if (input[0].number < 0) reconfigure(-input[0].number);
    submit(0, input[0]);
    discard(input, 0);
}"""


def nothing(event: Any) -> None:
    """A handler that can be named."""


def asking(stone: ev.Filter | None = None, end: ev.Terminal | None = None) -> ev.Graph:
    graph = ev.Graph("asking")
    watch = graph.source("pings", Ping) >> (stone or ev.Filter(ASK, name="watch"))
    _ = watch >> (end or ev.Terminal(nothing, name="end"))
    return graph


def requests(flow: ev.Flow) -> list[tuple[str, int]]:
    return flow.call(flow.engine.requests) or []


def submit(flow: ev.Flow, *numbers: int) -> None:
    for number in numbers:
        flow["pings"].submit(Ping(number))
    flow.drain(timeout=10)


@pytest.mark.parametrize(
    "stone",
    [
        ev.Filter(ASK, name="watch"),
        ev.Router("{ reconfigure(-input.number); return 0; }", name="watch"),
        ev.Transform("{ reconfigure(-input.number); output = input; return 1; }", output=Ping, name="watch"),
        ev.Queue(QUEUE, inputs={"input": Ping}, name="watch"),
    ],
    ids=lambda stone: stone.kind,
)
def test_engine_tells_the_newest_request_of_each_stone_once(stone: Any) -> None:
    with asking(stone).run() as flow:
        assert requests(flow) == []
        submit(flow, 1, -4, -5, 6)
        assert requests(flow) == [("watch", 5)]
        assert requests(flow) == []
        submit(flow, 7)
        assert requests(flow) == []
        submit(flow, -2)
        assert requests(flow) == [("watch", 2)]


def test_generators_ask() -> None:
    graph = ev.Graph()
    code = "{ reconfigure(input.count + 1); output.number = input.count; return 1; }"
    ticks: list[int] = []
    beats = graph.add(ev.Generator(code, output=Ping, period=0.001, name="beats"))
    _ = beats >> ev.Terminal(lambda event: ticks.append(event.number))
    found: list[tuple[str, int]] = []
    with graph.run() as flow:
        while not found:
            found = requests(flow)
    assert [name for name, _ in found] == ["beats"]
    assert 1 <= found[0][1] <= len(ticks)


def test_each_of_several_stones_is_told() -> None:
    graph = asking()
    _ = graph["pings"] >> ev.Filter(ASK.replace("-input.number)", "1)"), name="other") >> ev.Terminal(nothing)
    with graph.run() as flow:
        submit(flow, -9)
        assert sorted(requests(flow)) == [("other", 1), ("watch", 9)]


def test_stones_that_come_later_are_told() -> None:
    with asking(ev.Filter("input.number != 0", name="watch")).run() as flow:
        submit(flow, -1)
        assert requests(flow) == []
        flow.replace("watch", ev.Filter(ASK))
        submit(flow, -1)
        assert requests(flow) == [("watch", 1)]


def test_engine_looks_at_no_stone_where_no_function_asks() -> None:
    with asking(ev.Filter("{ static int n; n++; return n; }", name="watch")).run() as flow:
        submit(flow, -1)
        assert requests(flow) == []
        assert flow.engine._asking == []


def test_a_request_goes_along_with_a_snapshot() -> None:
    with asking().run() as flow, asking().run() as other:
        submit(flow, -3)
        snapshot = flow.call(lambda: take(flow.engine, flow.engine.topology.slots["watch"]))
        assert snapshot is not None
        other.call(lambda: restore(other.engine, other.engine.topology.slots["watch"], snapshot))
        submit(other, 1)
        assert requests(other) == [("watch", 3)]


def test_rules_freeze_stones_and_let_them_go_on() -> None:
    seen: list[int] = []
    graph = asking(end=ev.Terminal(lambda event: seen.append(event.number), name="end"))
    graph.when("watch", 1, freeze=["end"])
    graph.when(graph["watch"], 2, unfreeze=["end"])
    with graph.run() as flow:
        submit(flow, 1, 2)
        submit(flow, -1)
        assert seen == [1, 2, -1]
        submit(flow, 3, 4)
        assert seen == [1, 2, -1]
        submit(flow, -2)
        submit(flow, 5)
        assert seen == [1, 2, -1, 3, 4, -2, 5]


def test_a_stone_that_is_let_go_on_may_ask_at_once() -> None:
    seen: list[int] = []
    graph = asking(end=ev.Terminal(lambda event: seen.append(event.number), name="end"))
    graph.when("watch", 1, freeze=["end"])
    graph.when("watch", 2, unfreeze=["watch"])
    graph.link("pings", ev.Filter("{ if (input.number == 100) reconfigure(3); return 0; }", name="other"))
    graph.link("other", "end")
    graph.when("other", 3, unfreeze=["watch"])
    with graph.run() as flow:
        flow.freeze("watch")
        submit(flow, -1, 5)
        assert not flow.engine.topology.slots["end"].frozen
        # That lets "watch" go on, which asks for another change; nothing else comes.
        submit(flow, 100)
        flow.drain(timeout=10)
        flow.call(lambda: None)
        assert flow.engine.topology.slots["end"].frozen


def test_frozen_stones_go_on_when_the_flow_is_closed() -> None:
    seen: list[int] = []
    graph = asking(end=ev.Terminal(lambda event: seen.append(event.number), name="end"))
    graph.when("watch", 1, freeze=["end"])
    with graph.run() as flow:
        for number in range(200):
            flow["pings"].submit(Ping(-1 if number % 2 else number))
    assert seen == [-1 if number % 2 else number for number in range(200)]
    assert not flow.dead_letters()


def test_rules_of_a_running_graph_can_be_changed() -> None:
    with asking().run() as flow:
        with flow.change() as graph:
            graph.when("watch", 1, freeze=["end"])
        submit(flow, -1)
        assert flow.engine.topology.slots["end"].frozen
        with flow.change() as graph:
            del graph.rules["watch", 1]
            graph.when("watch", 5, unfreeze=["end"])
        submit(flow, -1)
        submit(flow, -5)
        assert not flow.engine.topology.slots["end"].frozen


def test_requests_without_a_rule_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    graph = asking()
    graph.when("watch", 1, freeze=["end"])
    with caplog.at_level(logging.INFO, "evflow.flow"), graph.run() as flow:
        submit(flow, -8)
        flow.call(lambda: None)
    assert "stone watch asks for reconfiguration 8, for which there is no rule" in caplog.text


def test_rules_are_data() -> None:
    graph = asking()
    for stone in graph.stones.values():
        stone.on = "edge"
    graph.when("watch", 1, move={"end": "desk"}, freeze=("pings",))
    graph.when("watch", 2, unfreeze=["pings"])
    data = graph.to_dict()
    assert data["rules"] == [["watch", 1, {"end": "desk"}, ["pings"], []], ["watch", 2, {}, [], ["pings"]]]
    again = ev.Graph.from_dict(data)
    assert again.rules == graph.rules == graph.copy().rules
    assert again.rules["watch", 2] == Rule("watch", 2, {}, (), ("pings",))
    del data["rules"]
    assert ev.Graph.from_dict(data).rules == {}


def test_a_copy_has_rules_of_its_own() -> None:
    graph = asking()
    graph.copy().when("watch", 1, freeze=["end"])
    assert graph.rules == {}


def test_rules_for_a_stone_go_with_it() -> None:
    graph = asking()
    graph.when("watch", 1, freeze=["end"])
    graph.remove("watch")
    assert graph.rules == {}
    graph.check()


@pytest.mark.parametrize(
    ("stone", "number", "rule", "message"),
    [
        ("nobody", 1, {"freeze": ["end"]}, "request 1 of stone 'nobody': there is no stone 'nobody'"),
        ("watch", 1, {"freeze": ["gone"]}, "request 1 of stone 'watch': there is no stone 'gone'"),
        ("watch", 1, {}, "changes nothing: give it move=, freeze= or unfreeze="),
        ("watch", 0, {"freeze": ["end"]}, "request 0: expected an integer, 1 or more, as in reconfigure"),
        ("watch", True, {"freeze": ["end"]}, "request True: expected an integer"),
        ("watch", 1, {"freeze": "end"}, "freeze='end': expected names of stones, as freeze="),
        ("watch", 1, {"unfreeze": [3]}, "unfreeze=.3,.: expected names of stones"),
        ("watch", 1, {"move": ["end"]}, "expected a mapping from stone to node"),
        ("watch", 1, {"freeze": ["end"], "unfreeze": ["end"]}, "both freezes and unfreezes 'end'"),
        ("watch", 1, {"move": {"end": "desk"}}, "stone 'end' is on no node, so it cannot move; place it"),
        ("end", 1, {"freeze": ["watch"]}, "'end' never asks: its function has no reconfigure.1."),
        (7, 1, {"freeze": ["end"]}, "stone 7: expected the name of the stone that asks"),
    ],
)
def test_wrong_rules_are_refused(stone: Any, number: Any, rule: dict[str, Any], message: str) -> None:
    graph = asking()
    with pytest.raises(ev.GraphError, match=message):
        graph.when(stone, number, **rule)
        graph.check()


def test_a_rule_that_moves_stones_needs_a_deployment() -> None:
    graph = asking()
    for stone in graph.stones.values():
        stone.on = "edge"
    graph.when("watch", 1, move={"end": "desk"})
    graph.check()
    with pytest.raises(ev.GraphError, match="moves 'end' to node 'desk', which only a deployment can do"):
        graph.run()


@pytest.mark.parametrize(
    "data", [{}, [1], [["watch", 1]], [["watch", 1, {}, [], []]], [[[], 1, {}, ["a"], []]]]
)
def test_malformed_rules_are_refused(data: Any) -> None:
    with pytest.raises(ev.GraphError):
        rules_of({"rules": data} if data else {"rules": {"watch": 1}})
