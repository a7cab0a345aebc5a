"""Controllers among each other: what they do, what they refuse, and what they say about it."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evflow.deploy import messages as m
from evflow.deploy.detector import fallen_back
from evflow.deploy.durable import DurableState
from evflow.deploy.messages import MOST_RECORD
from evflow.deploy.record import Record, stones_on
from evflow.deploy.register import Register
from evflow.errors import DeployError
from tests.deploy.group import Group, graph_of, record_of
from tests.deploy.simulation.process import MemoryStore
from tests.deploy.strategies import MESSAGE
from tests.examples import tried


def deployed(nodes: str, allowed: str = "ABCDE", **placed: str) -> Group:
    group = Group(nodes, allowed)
    outcome = group.propose("A", record_of("x", nodes, **placed))
    assert outcome.error is None and outcome.missing == ()
    return group


def test_new_deployment_is_on_all_its_nodes() -> None:
    group = deployed("ABC", a="A", b="B")
    assert group.versions("x") == {"A": 1, "B": 1, "C": 1}
    assert group.stones("x") == {"A": {"a"}, "B": {"b"}, "C": set()}
    assert all(ground.calls == ["start", "begin", "settle", "commit"] for ground in group.grounds.values())


def test_deployment_of_one_node_needs_no_other() -> None:
    group = deployed("A", a="A")
    assert group.propose("A", group.controllers["A"].records["x"].edited(graph_of(b="A"))).error is None
    assert group.stones("x") == {"A": {"b"}}


def test_stone_moves_with_its_snapshot() -> None:
    group = deployed("AB", a="A", b="A")
    outcome = group.propose("B", group.controllers["B"].records["x"].edited(graph_of(a="A", b="B")))
    assert outcome.record is not None and outcome.record.version == 2
    assert group.grounds["B"].arrived == {"b": b"b of A" * 100_000}
    assert group.stones("x") == {"A": {"a"}, "B": {"b"}}


def test_snapshot_is_kept_until_it_is_released() -> None:
    group = deployed("AB", a="A", b="A")
    group.propose("A", group.controllers["A"].records["x"].edited(graph_of(a="A", b="B")))
    group.start("B")
    assert group.grounds["B"].arrived == {"b": b"b of A" * 100_000}
    group.controllers["B"].released("x", "b")
    group.start("B")
    assert group.grounds["B"].arrived == {}


def test_snapshot_that_was_not_released_is_kept_through_later_versions() -> None:
    group = deployed("AB", a="A", b="A")
    for placed in ({"a": "A", "b": "B"}, {"a": "A", "b": "B", "c": "B"}):
        group.propose("A", group.controllers["A"].records["x"].edited(graph_of(**placed)))
    group.start("B")
    assert group.grounds["B"].arrived == {"b": b"b of A" * 100_000}
    group.propose("A", group.controllers["A"].records["x"].edited(graph_of(a="A", c="B")))
    group.start("B")
    assert group.grounds["B"].arrived == {}


def test_node_that_a_change_does_not_touch_is_not_disturbed() -> None:
    group = deployed("ABC", a="A", b="B", c="C")
    graph = graph_of(a="A", b="B", c="C")
    graph["stones"][0]["settings"] = {"code": "new"}
    assert group.propose("C", group.controllers["C"].records["x"].edited(graph)).error is None
    assert group.versions("x") == {"A": 2, "B": 2, "C": 2}
    assert group.grounds["C"].calls == ["start", "begin", "settle", "commit"]


def test_refusal_names_node_and_stone_and_leaves_all_as_it_was() -> None:
    group = deployed("ABC", a="A", b="B")
    group.grounds["B"].refuses = "stone 'b': handler 'boom:boom' is not on this node's list"
    before = group.controllers["A"].records
    outcome = group.propose("A", before["x"].edited(graph_of(a="B", b="A")), seconds=2.0)
    assert str(outcome.error) == (
        "deployment x, version 2: refused; all is as it was\n"
        "  node B: stone 'b': handler 'boom:boom' is not on this node's list"
    )
    group.run(3.0)
    assert group.controllers["A"].records == before
    assert group.grounds["A"].calls == ["start", "begin", "settle", "commit"]


def test_error_tells_what_each_node_waits_for() -> None:
    group = deployed("ABC", a="A", b="B", c="C")
    group.grounds["B"].waits = "stone 'b': 5 events are under way"
    wanted = group.controllers["A"].records["x"].edited(graph_of(a="B", b="B", c="A"))
    outcome = group.propose("A", wanted, patience=2.0)
    assert str(outcome.error) == (
        "deployment x, version 2: not ready within 2 s; all is as it was\n"
        "  node B: stone 'b': 5 events are under way"
    )
    group.down = {"C"}
    outcome = group.propose("A", wanted, patience=2.0)
    assert str(outcome.error) == (
        "deployment x, version 2: not ready within 2 s; all is as it was\n  node C: it did not answer"
    )
    group.down = set()
    group.run(5.0)
    assert group.controllers["A"].changing("x") == ""
    assert group.versions("x") == {"A": 1, "B": 1, "C": 1}


def test_minority_decides_nothing() -> None:
    group = deployed("ABC", a="A", b="B", c="C")
    group.down = {"B", "C"}
    wanted = group.controllers["A"].records["x"].edited(graph_of(a="A", b="A", c="A"))
    outcome = group.propose("A", wanted, patience=2.0, lost=["B", "C"])
    assert "of the members A, B, C more than half must agree, and 1 did" in str(outcome.error)


def test_two_changes_at_a_time_are_one_and_a_refusal() -> None:
    group = deployed("ABC", a="A", b="B")
    group.grounds["A"].waits = "a while"
    record = group.controllers["A"].records["x"]
    group.controllers["A"].propose(record.edited(graph_of(a="B", b="B")))
    group.run(0.2)
    assert group.controllers["A"].changing("x") == "version 2, proposed by A: a while"
    outcome = group.propose("B", record.edited(graph_of(a="C", b="B")))
    assert "another change, proposed by A, is under way; it ends within 10.8 s" in str(outcome.error)
    group.grounds["A"].waits = ""
    group.run(2.0)
    assert group.stones("x")["B"] == {"a", "b"}


def test_change_of_an_older_version_is_refused_at_once() -> None:
    group = deployed("A", a="A")
    wanted = group.controllers["A"].records["x"].edited(graph_of(b="A"))
    group.propose("A", wanted)
    with pytest.raises(DeployError, match="is at version 2, and the change is one of version 1; look at"):
        group.controllers["A"].propose(wanted)


def test_second_deployment_of_a_name_is_refused() -> None:
    group = deployed("AB", a="A")
    with pytest.raises(DeployError, match="node A has another deployment 'x' already; undeploy it first"):
        group.controllers["A"].propose(record_of("x", "A", b="A"))
    group.start("B")
    other = Group("C")
    other.controllers |= group.controllers
    assert group.propose("B", record_of("y", "AB", a="A")).error is None


def test_change_of_what_is_not_there_is_refused() -> None:
    group = deployed("AB", a="A")
    wanted = group.controllers["A"].records["x"].edited(graph_of(b="A"))
    lone = Group("C")
    with pytest.raises(DeployError, match="node C has no deployment x; it has none"):
        lone.controllers["C"].propose(wanted)
    with pytest.raises(DeployError, match="node C has no deployment 'x'"):
        lone.controllers["C"].health("x")


def test_name_is_free_again_after_undeploying() -> None:
    group = deployed("AB", a="A", b="B")
    assert group.propose("B", group.controllers["B"].records["x"].edited(None)).error is None
    assert group.versions("x") == {}
    assert group.stones("x") == {"A": set(), "B": set()}
    assert group.propose("B", record_of("x", "AB", c="B")).error is None
    assert group.stones("x") == {"A": set(), "B": {"c"}}


def test_node_joins_and_leaves() -> None:
    group = deployed("A", a="A")
    for name in "BC":
        group.stores[name] = type(group.stores["A"])()
        group.start(name)
    record = group.controllers["A"].records["x"]
    group.propose("A", record.edited(hosts={**record.hosts, "B": "sim://B"}))
    record = group.controllers["B"].records["x"]
    assert group.propose("B", record.edited(graph_of(a="B"), hosts={"B": "sim://B"})).error is None
    assert group.versions("x") == {"B": 3}
    assert group.grounds["B"].arrived == {"a": b"a of A" * 100_000}


def test_lost_node_that_answers_is_not_lost() -> None:
    group = deployed("ABC", a="A", b="B")
    record = group.controllers["A"].records["x"]
    outcome = group.propose("A", record.edited(graph_of(a="A", b="A")), lost=["B"])
    assert "node B is alive, though it was thought lost; try again" in str(outcome.error)
    with pytest.raises(DeployError, match="node B cannot be lost"):
        group.controllers["A"].propose(record.edited(graph_of(a="B", b="B")), lost=["B"])


def test_stones_of_a_dead_node_fall_back() -> None:
    group = Group("ABC")
    graph = graph_of(a="A", b="B", c="C") | {"fallbacks": {"C": {"to": "B", "after": 7.0}}}
    group.propose("A", Record.first("x", graph, {n: f"sim://{n}" for n in "ABC"}))
    group.down = {"C"}
    group.run(6.5)
    assert re.fullmatch("dead for [56] s", group.controllers["B"].health("x")["C"])
    assert group.versions("x")["A"] == 1
    group.run(4.0)
    assert group.stones("x")["B"] == {"b", "c"}
    group.down = set()
    group.run(3.0)
    assert group.stones("x")["C"] == set()
    assert group.grounds["C"].calls[-1] == "overtake"
    assert group.versions("x") == {"A": 2, "B": 2, "C": 2}


def test_stones_do_not_fall_back_to_a_node_that_is_dead_too() -> None:
    graph = graph_of(a="A", b="B", c="C") | {"fallbacks": {"C": {"to": "B", "after": 7.0}}}
    record = Record.first("x", graph, {n: f"sim://{n}" for n in "ABC"})
    assert fallen_back(record, {"C": 6.0}) is None
    found = fallen_back(record, {"C": 8.0})
    assert found is not None and stones_on(found, "B").keys() == {"b", "c"}
    assert fallen_back(record, {"C": 8.0, "B": 5.5}) is None


def test_vote_is_kept_however_many_deployments_come_and_go_after_it() -> None:
    """Of those that have ended only the newest are kept."""
    store = MemoryStore()
    durable = DurableState(store, "A")
    voted = record_of("voted", "AB", a="A").made_by("f" * 32, None)
    ballot = m.Ballot(3, "B", "f" * 32)
    durable.vote(voted.birth, Register[Record]().accept(ballot, voted))
    for number in range(250):
        ended = record_of("ended", "AB", a="A").made_by(f"{number:032x}", None).withdrawn("e" * 32)
        durable.conclude(ended, "", set(), set())
    again = DurableState(store, "A")
    assert again.replica(voted.birth).register.accepted == voted
    assert again.replica(f"{249:032x}").record is not None
    assert len(again.replicas) < 250


def test_health_is_unknown_before_a_node_can_be_heard() -> None:
    group = deployed("AB", a="A")
    group.down = {"B"}
    group.start("A")
    assert group.controllers["A"].health("x") == {"A": "alive", "B": "unknown"}
    group.run(6.0)
    assert group.controllers["A"].health("x") == {"A": "alive", "B": "dead for 6 s"}
    group.controllers["A"].heard("B", group.now)
    assert group.controllers["A"].health("x") == {"A": "alive", "B": "alive"}


def test_node_that_may_not_deploy_is_told() -> None:
    group = Group("AB", allowed="A")
    outcome = group.propose("B", record_of("x", "AB", a="A"), seconds=5.0)
    assert "node A does not let B change deployment 'x'" in str(outcome.error)
    assert group.controllers["A"].refused["unauthorised"] > 0
    assert group.controllers["A"].records == {}


def test_member_may_change_though_it_may_not_deploy() -> None:
    group = deployed("AB", allowed="A", a="A")
    assert group.propose("B", group.controllers["B"].records["x"].edited(graph_of(a="B"))).error is None


def test_deployment_that_is_too_large_is_refused() -> None:
    group = Group("A")
    graph = graph_of(a="A")
    graph["stones"][0]["settings"] = {"code": "x" * MOST_RECORD}
    outcome = group.propose("A", Record.first("x", graph, {"A": ""}))
    assert re.search(r"its graph and hosts are \d+ bytes; expected at most 6291456", str(outcome.error))
    graph["stones"][0]["settings"] = {"code": object()}
    outcome = group.propose("A", Record.first("x", graph, {"A": ""}))
    assert "expected plain data such as JSON can hold" in str(outcome.error)


def test_proposer_that_dies_leaves_nothing_open() -> None:
    group = deployed("ABC", a="A", b="B")
    record = group.controllers["A"].records["x"]
    group.grounds["B"].waits = "a while"
    group.controllers["A"].propose(record.edited(graph_of(a="A", b="C")), patience=60.0)
    group.run(1.0)
    group.down = {"A"}
    group.grounds["B"].waits = ""
    group.run(15.0)
    assert group.controllers["B"].changing("x") == group.controllers["C"].changing("x") == ""
    assert group.controllers["B"].records["x"].graph == record.graph


def test_prepared_node_begins_again_after_a_restart() -> None:
    group = deployed("ABC", a="A", b="B")
    record = group.controllers["A"].records["x"]
    group.grounds["A"].stalls = "for ever"
    group.controllers["A"].propose(record.edited(graph_of(a="A", b="C")))
    group.run(0.3)
    group.start("B")
    assert group.grounds["B"].calls == ["start", "begin"] and group.grounds["B"].settled
    group.grounds["A"].waits = ""
    group.run(2.0)
    assert group.grounds["B"].calls == ["start", "begin", "settle", "commit"]
    assert group.grounds["C"].arrived == {"b": b"b of B" * 100_000}


def test_who_asks_for_more_of_a_snapshot_than_there_is_gets_its_beginning() -> None:
    group = deployed("ABC", a="A", b="B")
    record = group.controllers["A"].records["x"]
    group.grounds["C"].stalls = "for ever"
    group.controllers["A"].propose(record.edited(graph_of(a="C", b="B")))
    group.run(0.3)
    preparing = group.controllers["A"].members[record.birth].preparing
    assert preparing is not None and preparing.prepared
    at = m.Decision("x", record.birth, 2)
    for offset in (100 * m.PIECE, m.PIECE + 1):
        group.controllers["A"].receive("C", m.pack(m.Fetch(at, preparing.change, "a", offset)), group.now)
        start, end, note = group.notes.pop()
        piece = m.unpack(note)
        assert (start, end) == ("A", "C")
        assert isinstance(piece, m.Piece) and piece.offset == 0
    group.controllers["A"].receive("B", m.pack(m.Fetch(at, preparing.change, "a", 0)), group.now)
    assert not group.notes


def test_what_left_a_node_does_not_disturb_its_namesake() -> None:
    group = deployed("AB", a="A", b="B")
    group.propose("A", group.controllers["A"].records["x"].edited(graph_of(b="B"), hosts={"B": "sim://B"}))
    group.propose("A", record_of("x", "A", other="A"))
    former = group.controllers["B"].records["x"]
    assert group.propose("B", former.edited(graph_of(c="B"))).error is None
    group.controllers["A"].receive("B", m.pack(m.Chosen(group.controllers["B"].records["x"])), group.now)
    group.run()
    assert group.stones("x") == {"A": {"other"}, "B": {"c"}}
    assert "overtake" not in group.grounds["A"].calls


def test_snapshots_of_a_change_that_vanished_are_forgotten() -> None:
    group = deployed("ABC", a="A", b="B")
    record = group.controllers["A"].records["x"]
    group.grounds["C"].stalls = "for ever"
    group.controllers["A"].propose(record.edited(graph_of(a="C", b="B")), patience=60.0)
    group.run(1.0)
    assert any(key.startswith("arriving/") for key in group.stores["C"].kept)
    group.down = {"A"}
    group.run(4.0)
    assert not any(key.startswith("arriving/") for key in group.stores["C"].kept)


def test_store_that_cannot_be_written_changes_nothing() -> None:
    group = deployed("A", a="A")
    controller = group.controllers["A"]

    def full() -> None:
        raise DeployError("the disk is full")

    group.stores["A"].dies = full
    controller.propose(controller.records["x"].edited(graph_of(b="A")))
    with pytest.raises(DeployError, match="the disk is full"):
        group.run(1.0)
    assert controller.records["x"].version == 1
    group.stores["A"].dies = lambda: None
    group.run(2.0)
    assert group.stones("x") == {"A": {"b"}}


def test_store_that_is_damaged_is_named() -> None:
    group = deployed("A", a="A")
    key = next(iter(group.stores["A"].kept))
    group.stores["A"].kept[key] = b"\x93\x01\x02"
    with pytest.raises(DeployError, match="what is kept of deployments is damaged: 'page/"):
        group.start("A")


@settings(max_examples=tried(20), deadline=None)
@given(st.binary(max_size=100))
def test_bytes_that_are_no_message_are_counted(note: bytes) -> None:
    group = Group("A")
    group.controllers["A"].receive("Z", note, 1.0)
    assert group.controllers["A"].refused == {"malformed": 1}


def test_refused_notes_are_told_of_at_first_and_then_more_and_more_seldom(
    caplog: pytest.LogCaptureFixture,
) -> None:
    group = Group("A")
    for _ in range(12):
        group.controllers["A"].receive("Z", b"", 1.0)
    told = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert len(told) == 2
    assert told[0].startswith("node A refused a note of Z (malformed, 1 so far): ")
    assert told[1].startswith("node A refused a note of Z (malformed, 10 so far): ")


@settings(max_examples=tried(40), deadline=None)
@given(st.lists(MESSAGE, max_size=8), st.sampled_from(["", "Z"]))
def test_no_message_of_a_stranger_raises(notes: list[m.Message], allowed: str) -> None:
    group = Group("A", allowed)
    controller = group.controllers["A"]
    for note in notes:
        controller.receive("Z", m.pack(note), group.now)
        controller.tick(group.now)
    group.run(0.2)
    if not allowed:
        assert group.grounds["A"].calls == ["start"]
        assert controller.records == {}
    assert controller.refused["malformed"] == 0


@settings(max_examples=tried(40), deadline=None)
@given(st.lists(MESSAGE, max_size=8))
def test_stranger_cannot_change_a_deployment(notes: list[m.Message]) -> None:
    group = deployed("AB", "A", a="A", b="B")
    before = dict(group.stores["A"].kept)
    record = group.controllers["A"].records["x"]
    own = m.Decision("x", record.birth, 2)
    ballot = m.Ballot(9, "Z", "0" * 32)
    notes = [*notes, m.Prepare(own, ballot, record, None, []), m.Cancel(own, ballot)]
    notes += [m.Chosen(record.edited(None).made_by("0" * 32, record))]
    for note in notes:
        group.controllers["A"].receive("Z", m.pack(note), group.now)
    group.run(0.2)
    assert group.controllers["A"].records == {"x": record}
    page = f"page/{record.birth}"
    assert group.stores["A"].kept[page] == before[page]
