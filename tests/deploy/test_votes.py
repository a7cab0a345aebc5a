"""What one member answers to proposers, message by message."""

from __future__ import annotations

from typing import Any, TypeVar

import msgpack
import pytest

from evflow.deploy import messages as m
from evflow.deploy.record import Record
from tests.deploy.group import Group, graph_of, record_of

CHANGES = [f"{n}" * 32 for n in range(10)]
M = TypeVar("M", bound=m.Message)


class Voter:
    """Node A of a deployment on A, B and C; B and C are played by the test.

    Attributes:
        base: version 1.
        at: the decision on version 2.
    """

    def __init__(self) -> None:
        self.group = Group("A")
        self.base = record_of("x", "ABC", a="A", b="B").made_by(CHANGES[0], None)
        self.at = m.Decision("x", CHANGES[0], 2)
        self.hear("B", m.Chosen(self.base))
        assert self.said(m.Applied) == m.Applied(self.at._replace(version=1))

    def hear(self, peer: str, message: m.Message) -> None:
        """The node hears something of B or C."""
        controller = self.group.controllers["A"]
        controller.receive(peer, m.pack(message), self.group.now)
        controller.tick(self.group.now)

    def said(self, kind: type[M]) -> M:
        """What the node has said of that kind, once, since it was asked last."""
        said = [m.unpack(note) for _, _, note in self.group.notes]
        self.group.notes.clear()
        (found,) = [message for message in said if isinstance(message, kind)]
        return found

    def wanted(self, change: str, a: str = "A", b: str = "C") -> Record:
        """A version 2; A does nothing for it unless stone a moves."""
        return self.base.edited(graph_of(a=a, b=b)).made_by(change, self.base)

    def prepare(self, number: int, peer: str, change: str, record: Record | None = None) -> m.Ballot:
        """Asks for a promise."""
        ballot = m.Ballot(number, peer, change)
        self.hear(peer, m.Prepare(self.at, ballot, self.base, record, []))
        return ballot


def test_promise_is_for_the_greatest_ballot() -> None:
    voter = Voter()
    high = voter.prepare(2, "B", CHANGES[1])
    assert voter.said(m.Promise) == m.Promise(voter.at, high, None, None)
    low = voter.prepare(1, "C", CHANGES[2])
    assert voter.said(m.Outbid) == m.Outbid(voter.at, low, high)
    assert voter.prepare(2, "B", CHANGES[1]) == voter.said(m.Promise).ballot
    assert voter.prepare(2, "C", CHANGES[2]) == voter.said(m.Promise).ballot


def test_proposer_outbids_at_once_what_it_has_promised_to_others() -> None:
    voter = Voter()
    voter.prepare(4, "C", CHANGES[1])
    voter.group.notes.clear()
    a = voter.group.controllers["A"]
    a.propose(voter.base.edited(graph_of(a="A", b="C")), done=lambda outcome: None)
    a.tick(voter.group.now)
    asked = [m.unpack(note) for _, _, note in voter.group.notes]
    ballots = [message.ballot for message in asked if isinstance(message, m.Prepare)]
    assert ballots and all((ballot.number, ballot.node) == (5, "A") for ballot in ballots)


@pytest.mark.parametrize("restarts", [False, True])
def test_record_of_a_ballot_that_was_outbid_is_not_accepted(restarts: bool) -> None:
    voter = Voter()
    high = voter.prepare(2, "B", CHANGES[1])
    voter.said(m.Promise)
    if restarts:
        voter.group.start("A")
    low = m.Ballot(1, "C", CHANGES[2])
    voter.hear("C", m.Accept(voter.at, low, voter.wanted(CHANGES[2])))
    assert voter.said(m.Outbid) == m.Outbid(voter.at, low, high)
    voter.hear("B", m.Accept(voter.at, high, voter.base.unchanged(CHANGES[1])))
    assert voter.said(m.Accepted) == m.Accepted(voter.at, high)


@pytest.mark.parametrize("restarts", [False, True])
def test_promise_tells_what_was_accepted(restarts: bool) -> None:
    voter = Voter()
    low = m.Ballot(1, "B", CHANGES[1])
    voter.hear("B", m.Accept(voter.at, low, voter.wanted(CHANGES[1])))
    voter.said(m.Accepted)
    if restarts:
        voter.group.start("A")
    high = voter.prepare(2, "C", CHANGES[2])
    assert voter.said(m.Promise) == m.Promise(voter.at, high, low, voter.wanted(CHANGES[1]))
    higher = voter.prepare(3, "C", CHANGES[2])
    assert voter.said(m.Promise) == m.Promise(voter.at, higher, low, voter.wanted(CHANGES[1]))
    voter.prepare(4, "C", CHANGES[3], voter.wanted(CHANGES[3]))
    assert "another change, proposed by B, is being decided" in voter.said(m.Unable).reason


@pytest.mark.parametrize("restarts", [False, True])
def test_change_that_was_cancelled_is_not_prepared_again(restarts: bool) -> None:
    voter = Voter()
    wanted = voter.wanted(CHANGES[1], a="B")
    ballot = voter.prepare(1, "B", CHANGES[1], wanted)
    voter.hear("B", m.Close(voter.at, ballot))
    voter.hear("B", m.Cancel(voter.at, ballot))
    if restarts:
        voter.group.start("A")
    voter.group.notes.clear()
    voter.prepare(1, "B", CHANGES[1], wanted)
    assert voter.said(m.Outbid).promised == ballot.above()
    voter.hear("B", m.Close(voter.at, ballot))
    assert voter.group.grounds["A"].calls.count("begin") == (0 if restarts else 1)


def test_nothing_is_closed_before_all_nodes_are_able() -> None:
    voter = Voter()
    calls = voter.group.grounds["A"].calls
    ballot = voter.prepare(1, "B", CHANGES[1], voter.wanted(CHANGES[1], a="B"))
    assert voter.said(m.Able) == m.Able(voter.at, ballot)
    voter.hear("B", m.Close(voter.at, m.Ballot(1, "B", CHANGES[2])))
    assert "begin" not in calls
    voter.hear("B", m.Close(voter.at, ballot))
    voter.hear("B", m.Close(voter.at, ballot))
    assert calls.count("begin") == 1


def test_node_that_is_told_again_to_close_says_again_that_it_is_quiet() -> None:
    """What it said the first time may be lost."""
    voter = Voter()
    ballot = voter.prepare(1, "B", CHANGES[1], voter.wanted(CHANGES[1], a="B"))
    for _ in range(2):
        voter.hear("B", m.Close(voter.at, ballot))
        assert voter.said(m.Quiet) == m.Quiet(voter.at, ballot)


def test_node_that_waits_until_it_is_quiet_looks_again_soon() -> None:
    voter = Voter()
    ballot = voter.prepare(1, "B", CHANGES[1], voter.wanted(CHANGES[1], a="B"))
    voter.group.grounds["A"].waits = "events are on their way"
    voter.hear("B", m.Close(voter.at, ballot))
    now = voter.group.now
    assert now < voter.group.controllers["A"].tick(now) <= now + 0.01


def test_node_that_cannot_do_its_part_any_more_does_not_close() -> None:
    voter = Voter()
    ballot = voter.prepare(1, "B", CHANGES[1], voter.wanted(CHANGES[1], a="B"))
    voter.group.notes.clear()
    voter.group.grounds["A"].refuses = "it is full"
    voter.hear("B", m.Close(voter.at, ballot))
    assert voter.said(m.Unable) == m.Unable(voter.at, ballot, "it is full")
    assert "begin" not in voter.group.grounds["A"].calls


def test_cancel_of_somebody_else_is_refused() -> None:
    voter = Voter()
    ballot = voter.prepare(1, "B", CHANGES[1], voter.wanted(CHANGES[1], a="B"))
    voter.hear("B", m.Close(voter.at, ballot))
    voter.hear("C", m.Cancel(voter.at, ballot))
    assert voter.group.grounds["A"].calls[-1] == "begin"
    voter.hear("B", m.Cancel(voter.at, ballot))
    assert voter.group.grounds["A"].calls[-1] == "cancel"


@pytest.mark.parametrize("restarts", [False, True])
def test_cancel_of_a_change_that_was_accepted_is_refused(restarts: bool) -> None:
    """It may have been decided: A holds its stone back until it knows."""
    voter = Voter()
    wanted = voter.wanted(CHANGES[1], a="B")
    ballot = voter.prepare(1, "B", CHANGES[1], wanted)
    for message in (m.Close(voter.at, ballot), m.Settle(voter.at, ballot)):
        voter.hear("B", message)
    assert voter.said(m.Ready) == m.Ready(voter.at, ballot)
    voter.hear("B", m.Accept(voter.at, ballot, wanted))
    voter.hear("B", m.Cancel(voter.at, ballot))
    assert "cancel" not in voter.group.grounds["A"].calls
    voter.said(m.Accepted)
    if restarts:
        voter.group.start("A")
    voter.hear("C", m.Chosen(wanted))
    assert voter.group.grounds["A"].calls[-1] == "commit"


def test_cancel_of_another_change_takes_back_nothing_that_was_promised() -> None:
    voter = Voter()
    ballot = voter.prepare(2, "B", CHANGES[1])
    voter.hear("C", m.Cancel(voter.at, m.Ballot(5, "C", CHANGES[2])))
    voter.said(m.Promise)
    voter.hear("B", m.Accept(voter.at, ballot, voter.base.unchanged(CHANGES[1])))
    assert voter.said(m.Accepted) == m.Accepted(voter.at, ballot)


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("made", [False, True])
def test_prepared_node_does_what_was_decided(restarts: bool, made: bool) -> None:
    """Also where a later version is the first that it hears of."""
    voter = Voter()
    wanted = voter.wanted(CHANGES[1], a="B")
    ballot = voter.prepare(1, "B", CHANGES[1], wanted)
    for message in (m.Close(voter.at, ballot), m.Settle(voter.at, ballot)):
        voter.hear("B", message)
    if restarts:
        voter.group.start("A")
    second = wanted if made else voter.base.unchanged(CHANGES[2])
    voter.hear("C", m.Chosen(second.unchanged(CHANGES[3])))
    calls = voter.group.grounds["A"].calls
    assert ("commit" in calls, "cancel" in calls) == (made, not made)
    assert voter.group.controllers["A"].records["x"].version == 3


def test_what_is_kept_of_a_vote_is_read_by_other_versions_of_evflow() -> None:
    """Record, [version, promised, accepted with, accepted] and the change that it is prepared for."""
    voter = Voter()

    def kept() -> Any:
        return msgpack.unpackb(voter.group.stores["A"].kept[f"page/{CHANGES[0]}"])

    base, nobody = voter.base.data(), [0, "", ""]
    assert kept() == [base, [0, nobody, nobody, None], None]
    wanted, mine = voter.wanted(CHANGES[1], a="B"), [2, "B", CHANGES[1]]
    ballot = voter.prepare(2, "B", CHANGES[1], wanted)
    assert kept() == [base, [2, mine, nobody, None], None]
    for message in (m.Close(voter.at, ballot), m.Settle(voter.at, ballot)):
        voter.hear("B", message)
    assert kept() == [base, [2, mine, nobody, None], [mine, wanted.data(), []]]
    voter.hear("B", m.Accept(voter.at, ballot, wanted))
    assert kept() == [base, [2, mine, mine, wanted.data()], [mine, wanted.data(), []]]
    voter.hear("B", m.Chosen(wanted))
    assert kept() == [wanted.data(), [0, nobody, nobody, None], None]


@pytest.mark.parametrize("version", [1, 2, 4])
def test_cancel_of_another_version_takes_back_nothing_that_was_promised(version: int) -> None:
    voter = Voter()
    voter.hear("B", m.Chosen(voter.wanted(CHANGES[1])))
    voter.base = voter.wanted(CHANGES[1])
    voter.at = voter.at._replace(version=3)
    low = m.Ballot(1, "B", CHANGES[2])
    record = voter.base.unchanged(CHANGES[2])
    voter.hear("B", m.Accept(voter.at, low, record))
    voter.hear("C", m.Cancel(voter.at._replace(version=version), m.Ballot(5, "C", CHANGES[3])))
    voter.group.notes.clear()
    high = voter.prepare(2, "C", CHANGES[4])
    assert voter.said(m.Promise) == m.Promise(voter.at, high, low, record)


def test_version_that_is_decided_is_told_to_who_asks() -> None:
    voter = Voter()
    second = voter.wanted(CHANGES[1])
    voter.hear("B", m.Chosen(second))
    voter.said(m.Applied)
    voter.prepare(1, "C", CHANGES[2])
    assert voter.said(m.Chosen).record == second
    voter.hear("C", m.Accept(voter.at, m.Ballot(1, "C", CHANGES[2]), voter.wanted(CHANGES[2])))
    assert voter.said(m.Chosen).record == second
    voter.hear("C", m.State([voter.at._replace(version=1)]))
    assert voter.said(m.Chosen).record == second
    voter.hear("C", m.State([voter.at._replace(version=3)]))
    assert voter.said(m.State).versions == [voter.at]


def test_who_is_behind_learns_from_the_base_of_a_proposal() -> None:
    voter = Voter()
    voter.base = voter.wanted(CHANGES[1], a="C").made_by(CHANGES[1], voter.base)
    voter.at = voter.at._replace(version=3)
    voter.prepare(1, "B", CHANGES[2])
    voter.said(m.Promise)
    assert voter.group.controllers["A"].records["x"] == voter.base
    assert voter.group.grounds["A"].calls == ["start", "overtake", "overtake"]


def test_namesake_that_was_withdrawn_is_closed_where_it_could_not_be() -> None:
    voter = Voter()
    other = record_of("x", "AC", a="A", c="C").made_by(CHANGES[5], None)
    at, ballot = m.Decision("x", other.birth, 1), m.Ballot(1, "C", CHANGES[5])
    voter.hear("C", m.Prepare(at, ballot, None, other, []))
    assert "has another deployment 'x' already" in voter.said(m.Unable).reason
    # It may have been made without this node.
    voter.hear("C", m.Chosen(other))
    assert voter.group.controllers["A"].records == {"x": voter.base} and not voter.group.notes
    voter.hear("C", m.Chosen(other.withdrawn(CHANGES[6])))
    assert voter.said(m.Applied) == m.Applied(at)
    assert voter.group.controllers["A"].records == {"x": voter.base}
    assert voter.group.grounds["A"].calls == ["start", "overtake"]
