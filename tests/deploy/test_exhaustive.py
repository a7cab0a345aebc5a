"""Deciding a version, in all interleavings of small worlds, and what a proposal takes up from others."""

from __future__ import annotations

from itertools import combinations, permutations

import pytest

from evflow.deploy import messages as m
from evflow.deploy.proposal import Outcome, Proposal
from evflow.deploy.record import Record
from tests.deploy.exhaustive import Worlds
from tests.deploy.group import graph_of, record_of

CHANGES = [f"{n}" * 32 for n in range(5)]
BASE = record_of("x", "ABC", a="A", b="B").made_by(CHANGES[0], None)


def _edited(change: str, **settings: object) -> Record:
    """Version 2: with new settings of stone a on node A, or with nothing new on any node."""
    graph = graph_of(a="A", b="B") | {"tag": change}
    graph["stones"][0]["settings"] = settings
    return BASE.edited(graph).made_by(change, BASE)


def _ballot(number: int, node: str, change: int) -> m.Ballot:
    return m.Ballot(number, node, CHANGES[change])


@pytest.mark.slow
def test_a_change_and_a_proposal_that_finishes_it() -> None:
    worlds = Worlds(BASE, {_ballot(1, "A", 1): _edited(CHANGES[1]), _ballot(1, "B", 2): None}, most_ballot=2)
    worlds.explore()
    assert worlds.decided == {CHANGES[1], CHANGES[2]}
    assert worlds.told == {"", "refused", "unknown"}
    assert worlds.count > 10_000


@pytest.mark.slow
def test_a_first_version_and_a_proposal_that_finishes_it() -> None:
    first = record_of("x", "ABC", a="A").made_by(CHANGES[1], None)
    worlds = Worlds(None, {_ballot(1, "A", 1): first, _ballot(1, "B", 2): None}, restarts=False)
    worlds.explore()
    assert worlds.decided == {CHANGES[1], CHANGES[2]}


def test_two_rival_changes() -> None:
    worlds = Worlds(BASE, {_ballot(1, "A", 1): _edited(CHANGES[1]), _ballot(1, "B", 2): _edited(CHANGES[2])})
    worlds.explore()
    assert worlds.decided == {CHANGES[1], CHANGES[2]}


@pytest.mark.slow
def test_a_change_of_what_runs_on_a_node_and_a_proposal_that_finishes_it() -> None:
    change = _edited(CHANGES[1], code="new")
    worlds = Worlds(BASE, {_ballot(1, "A", 1): change, _ballot(1, "B", 2): None})
    worlds.explore()
    assert worlds.decided == {CHANGES[1], CHANGES[2]}


@pytest.mark.slow
def test_two_rival_changes_of_what_runs_on_a_node() -> None:
    wanted = {_ballot(1, place, n): _edited(CHANGES[n], code=str(n)) for n, place in ((1, "A"), (2, "B"))}
    worlds = Worlds(BASE, wanted)  # type: ignore[arg-type]
    worlds.explore()
    assert worlds.decided == {CHANGES[1], CHANGES[2]}


class _Notes:
    """Keeps what a proposal says."""

    def __init__(self) -> None:
        self.said: list[m.Message] = []

    def tell(self, peer: str, message: m.Message) -> None:
        self.said.append(message)

    def is_dead(self, node: str) -> bool:
        return False


@pytest.mark.parametrize("accepted", [(0, 0, 0), (0, 1, 0), (2, 0, 3), (3, 1, 2)])
def test_proposal_that_finishes_takes_up_what_the_greatest_ballot_asked_for(
    accepted: tuple[int, ...],
) -> None:
    """Whichever nodes it hears, in any order; where none of these has accepted anything, nothing changes."""
    records = {n: _edited(CHANGES[n]) for n in (1, 2, 3)}
    votes = dict(zip("ABC", accepted, strict=True))
    ballot = _ballot(9, "C", 4)
    for heard in (order for pair in combinations("ABC", 2) for order in permutations(pair)):
        notes = _Notes()
        proposal = Proposal(notes, BASE, records[1], ballot, 0.0, finishes=True)
        for node in heard:
            number = votes[node]
            of = _ballot(number, "A", number) if number else None
            proposal.receive(node, m.Promise(proposal.at, ballot, of, records.get(number)), 0.0)
        asked = {message.record.change for message in notes.said if isinstance(message, m.Accept)}
        assert asked == {CHANGES[max(votes[node] for node in heard) or 4]}


@pytest.mark.parametrize("accepting", [False, True])
@pytest.mark.parametrize("made", [False, True])
@pytest.mark.parametrize("later", [False, True])
def test_proposal_ends_as_soon_as_it_hears_what_was_decided(accepting: bool, made: bool, later: bool) -> None:
    """Its own change was made, if so by another proposal; or another one was, and its own never will be."""
    own, other = _edited(CHANGES[1], code="1"), _edited(CHANGES[2], code="2")
    decided = own if made else other
    if later:
        # On node B, so what node A does is what the version before has made of it.
        graph = dict(decided.graph or {})
        graph["stones"] = [*graph["stones"][:1], graph["stones"][1] | {"settings": {"code": "3"}}]
        decided = decided.edited(graph).made_by(CHANGES[3], decided)
    notes, told = _Notes(), []  # type: ignore[var-annotated]
    proposal = Proposal(notes, BASE, own, _ballot(1, "A", 1), 0.0, done=told.append)
    for node in "ABC" if accepting else "":
        for answer in (
            m.Promise(proposal.at, proposal.proposer.ballot, None, None),
            m.Ready(proposal.at, proposal.proposer.ballot),
        ):
            proposal.receive(node, answer, 0.0)
    assert proposal.phase == ("accepting" if accepting else "preparing")
    proposal.learn(decided, 0.0)
    if made:
        for node in "ABC":
            proposal.applied(node, 2)
        proposal.tick(0.0)
    (outcome,) = told
    assert outcome.record == (own if made else None)
    assert made or "another change came first" in str(outcome.error)
    assert isinstance(notes.said[-1], m.Accept) is (accepting and not made)


class _Changing:
    """Node A's proposal of a change that concerns A and B, and has the promises of all members."""

    def __init__(self, *, finishes: bool = False) -> None:
        self.notes = _Notes()
        self.told: list[Outcome] = []
        graph = graph_of(a="A", b="B")
        for stone in graph["stones"]:
            stone["settings"] = {"code": "new"}
        self.own = BASE.edited(graph).made_by(CHANGES[1], BASE)
        self.proposal = Proposal(
            self.notes, BASE, self.own, _ballot(1, "A", 1), 0.0, done=self.told.append, finishes=finishes
        )

    def hear(self, kind: type[m.Answer], nodes: str, *fields: object) -> set[type[m.Message]]:
        """Nodes answer; gives what kinds of messages the proposal says after that."""
        self.notes.said.clear()
        for node in nodes:
            self.proposal.receive(node, kind(self.proposal.at, self.proposal.proposer.ballot, *fields), 0.0)  # type: ignore[arg-type]
        return {type(message) for message in self.notes.said}


def test_each_step_of_a_change_waits_for_all_nodes_that_it_touches() -> None:
    changing = _Changing()
    assert not changing.hear(m.Promise, "ABC", None, None)
    for answer, step in ((m.Able, m.Close), (m.Quiet, m.Settle), (m.Ready, m.Accept)):
        assert not changing.hear(answer, "A")
        assert changing.hear(answer, "B") == {step}


def test_change_that_finds_another_one_accepted_is_given_up() -> None:
    changing = _Changing()
    assert changing.hear(m.Promise, "A", _ballot(0, "B", 2), _edited(CHANGES[2])) == {m.Cancel}
    assert "another change is being decided" in str(changing.told[0].error)


@pytest.mark.parametrize(("outbid", "goes_on"), [("A", True), ("AB", False)])
def test_proposal_that_is_outbid_goes_on_while_the_others_are_a_majority(outbid: str, goes_on: bool) -> None:
    changing = _Changing(finishes=True)
    assert changing.hear(m.Promise, "ABC", None, None) == {m.Accept}
    changing.hear(m.Outbid, outbid, _ballot(2, "B", 2))
    changing.proposal.tick(1.0)
    assert (m.Accept in map(type, changing.notes.said)) is goes_on
    assert [outcome.record for outcome in changing.told] == ([] if goes_on else [None])


def test_proposal_that_finishes_bids_more_where_a_change_was_cancelled() -> None:
    """A cancel bars ballots up to one that nobody has made, so nobody else goes on with that."""
    notes = _Notes()
    proposal = Proposal(notes, BASE, _edited(CHANGES[1]), _ballot(1, "B", 2), 0.0, finishes=True)
    barred = m.Ballot(5, "A", CHANGES[1]).above()
    for node in "AC":
        proposal.receive(node, m.Outbid(proposal.at, proposal.proposer.ballot, barred), 0.0)
    asked = [message.ballot for message in notes.said if isinstance(message, m.Prepare)]
    assert asked[-1] > barred and asked[-1].node == "B"
