"""What stones ask for becomes changes of their deployment; against a controller that only notes them."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest

from evflow.deploy.proposal import Outcome
from evflow.deploy.record import Record
from evflow.deploy.requests import Requests, obeyed
from evflow.errors import DeployError
from evflow.graph.rules import Rule

HOSTS = {"edge": "tcp://127.0.0.1:1", "desk": "tcp://127.0.0.1:2"}
RULES = [
    ["late", 1, {"agg": "desk"}, ["x"], ["y"]],
    ["late", 2, {"agg": "edge"}, [], []],
    ["early", 1, {}, [], ["x"]],
]


def stone(name: str, on: str = "edge", kind: str = "filter") -> dict[str, Any]:
    return {"name": name, "on": on, "kind": kind, "settings": {}}


def record(*, rules: Any = RULES, version: int = 1, frozen: tuple[str, ...] = ("y",)) -> Record:
    stones = [stone(name) for name in ("late", "early", "agg", "x", "y")]
    graph = {"name": "g", "stones": stones, "links": [["late", 0, "agg", ""]], "morphs": [], "rules": rules}
    return Record("g", version, graph, dict(HOSTS), list(frozen), "0" * 32, "0" * 32)


class FakeSteward:
    """Notes what is proposed; each is decided when the test says so."""

    name = "edge"

    def __init__(self, *records: Record) -> None:
        self.records = {known.deployment: known for known in records}
        self.under_way = ""
        self.stale = False
        self.proposed: list[tuple[Record, Callable[[Outcome], None]]] = []

    def changing(self, deployment: str) -> str:
        return self.under_way

    def propose(self, wanted: Record, *, done: Callable[[Outcome], None]) -> None:
        if self.stale:
            raise DeployError("deployment g is at version 2")
        self.proposed.append((wanted, done))

    def decide(self) -> Record:
        wanted, done = self.proposed.pop()
        self.records["g"] = wanted
        done(Outcome(wanted))
        return wanted

    def refuse(self) -> None:
        self.proposed.pop()[1](Outcome(None, DeployError("node desk: there is no handler")))


def placed(known: Record) -> dict[str, str]:
    assert known.graph is not None
    return {entry["name"]: entry["on"] for entry in known.graph["stones"]}


def test_a_request_with_a_rule_becomes_one_change() -> None:
    controller = FakeSteward(record())
    requests = Requests(controller)
    requests.look([("g/late", 1)], 5.0)
    assert len(controller.proposed) == 1
    made = controller.decide()
    assert made.version == 2
    assert placed(made) == {"late": "edge", "early": "edge", "agg": "desk", "x": "edge", "y": "edge"}
    assert made.frozen == ["x"]
    requests.look([], 6.0)
    assert controller.proposed == []
    assert requests.listed("g") == []


def test_a_request_that_changes_nothing_is_ignored() -> None:
    controller = FakeSteward(record())
    requests = Requests(controller)
    requests.look([("g/late", 2)], 5.0)
    assert controller.proposed == []
    requests.look([("g/late", 1)], 6.0)
    controller.decide()
    requests.look([("g/late", 1)], 7.0)
    assert controller.proposed == []


def test_a_request_while_a_change_is_under_way_waits_for_its_end() -> None:
    controller = FakeSteward(record())
    controller.under_way = "version 2"
    requests = Requests(controller)
    requests.look([("g/late", 1)], 5.0)
    requests.look([], 6.0)
    assert controller.proposed == []
    controller.under_way = ""
    controller.records["g"] = record(version=2)
    requests.look([], 7.0)
    assert [wanted.version for wanted, _ in controller.proposed] == [3]


def test_a_change_that_was_refused_is_tried_once_more(caplog: pytest.LogCaptureFixture) -> None:
    controller = FakeSteward(record())
    requests = Requests(controller)
    requests.look([("g/late", 1)], 5.0)
    controller.refuse()
    assert caplog.text == ""
    requests.look([], 6.0)
    controller.refuse()
    requests.look([], 7.0)
    assert controller.proposed == []
    assert "what stone late asked for by 1 was not done: node desk: there is no handler" in caplog.text


def test_a_version_that_is_out_of_date_is_tried_once_more(caplog: pytest.LogCaptureFixture) -> None:
    controller = FakeSteward(record())
    controller.stale = True
    requests = Requests(controller)
    requests.look([("g/late", 1)], 5.0)
    controller.stale = False
    controller.records["g"] = record(version=2)
    requests.look([], 6.0)
    assert controller.decide().version == 3
    assert [line for line in caplog.records if line.levelno >= logging.WARNING] == []


def test_the_newest_request_of_a_stone_wins() -> None:
    controller = FakeSteward(record())
    controller.under_way = "version 2"
    requests = Requests(controller)
    requests.look([("g/late", 2)], 5.0)
    requests.look([("g/late", 1)], 6.0)
    controller.under_way = ""
    requests.look([], 7.0)
    assert placed(controller.decide())["agg"] == "desk"
    requests.look([], 8.0)
    assert controller.proposed == []


def test_a_newer_request_than_the_one_proposed_follows_it() -> None:
    controller = FakeSteward(record())
    requests = Requests(controller)
    requests.look([("g/late", 1)], 5.0)
    requests.look([("g/late", 2)], 6.0)
    assert placed(controller.decide())["agg"] == "desk"
    requests.look([], 7.0)
    assert placed(controller.decide())["agg"] == "edge"


def test_requests_of_several_stones_are_done_one_after_the_other() -> None:
    controller = FakeSteward(record())
    requests = Requests(controller)
    requests.look([("g/late", 1), ("g/early", 1)], 5.0)
    assert len(controller.proposed) == 1
    assert controller.decide().frozen == ["x"]
    requests.look([], 6.0)
    assert controller.decide().frozen == []


def test_requests_without_a_rule_are_kept_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    controller = FakeSteward(record())
    requests = Requests(controller)
    with caplog.at_level(logging.INFO, "evflow.deploy"):
        for number in range(3, 153):
            requests.look([("g/late", number)], float(number))
    assert requests.listed("g") == [["late", number, float(number)] for number in range(53, 153)]
    assert "deployment g: stone late asks for reconfiguration 152, for which there is no rule" in caplog.text
    assert controller.proposed == []


def test_what_is_no_deployment_is_left_out() -> None:
    controller = FakeSteward(record())
    requests = Requests(controller)
    requests.look([("other/late", 1), ("late", 1)], 5.0)
    assert (controller.proposed, requests.listed("other"), requests.listed("late")) == ([], [], [])


def test_requests_of_a_deployment_end_with_it() -> None:
    controller = FakeSteward(record())
    requests = Requests(controller)
    controller.under_way = "version 2"
    requests.look([("g/late", 1), ("g/early", 9)], 5.0)
    known = controller.records.pop("g")
    requests.look([], 6.0)
    assert requests.listed("g") == []
    controller.records["g"], controller.under_way = known, ""
    requests.look([], 7.0)
    assert controller.proposed == []


def test_splits_of_a_stone_move_with_it() -> None:
    known = record()
    assert known.graph is not None
    known.graph["stones"] += [stone("agg.split", kind="split"), stone("agg.split2", "desk", "split")]
    known.graph["links"] += [["agg", 0, "agg.split", ""], ["agg", 2, "agg.split2", ""]]
    wanted = obeyed(known, Rule("late", 1, {"agg": "desk"}))
    assert wanted is not None
    assert placed(wanted)["agg.split"] == "desk"


def test_an_undeployed_graph_obeys_nothing() -> None:
    known = Record("g", 2, None, dict(HOSTS), [], "0" * 32, "0" * 32)
    assert obeyed(known, Rule("late", 1, {"agg": "desk"})) is None


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        (
            [["late", 1, {"agg": "moon"}, [], []]],
            "moves 'agg' to 'moon'; expected one of its hosts, desk, edge",
        ),
        ([["late", 1, {}, [], []]], "changes nothing"),
        ([["late", 1]], "expected .stone, request, move, freeze, unfreeze."),
        ({"late": 1}, "rules: expected a list"),
    ],
)
def test_records_with_wrong_rules_are_refused(rules: Any, message: str) -> None:
    with pytest.raises(DeployError, match=message):
        Record.from_data(record(rules=rules).data())


def test_a_graph_of_malformed_rules_has_none(caplog: pytest.LogCaptureFixture) -> None:
    controller = FakeSteward(record(rules=[["late", 1]]))
    requests = Requests(controller)
    requests.look([("g/late", 1)], 5.0)
    assert controller.proposed == []
    assert "expected [stone, request, move, freeze, unfreeze]" in caplog.text
