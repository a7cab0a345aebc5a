"""The simulation finds faults that are planted into the state machines, within some hundred seeds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from evflow.deploy import member, proposals
from evflow.deploy import messages as m
from evflow.deploy.controller import Controller
from evflow.deploy.durable import DurableState, Prepared
from evflow.deploy.member import Member
from evflow.deploy.prepare import PreparePhase
from evflow.deploy.proposal import Proposal
from evflow.deploy.proposals import ProposalQueue
from evflow.deploy.record import Record
from evflow.deploy.register import Proposer, Register
from evflow.engine.snapshot import Snapshot
from tests.deploy.simulation.runner import one

pytestmark = pytest.mark.slow

Patch = pytest.MonkeyPatch


def forgets_that_it_is_prepared(patch: Patch) -> None:
    def prepare(self: DurableState, birth: str, prepared: Prepared) -> None:
        self.replicas[birth] = replace(self.replica(birth), prepared=prepared)

    patch.setattr(DurableState, "prepare", prepare)


def forgets_its_votes(patch: Patch) -> None:
    def vote(self: DurableState, birth: str, register: Register[Record]) -> None:
        self.replicas[birth] = replace(self.replica(birth), register=register)

    patch.setattr(DurableState, "vote", vote)


def gives_snapshots_away_at_once(patch: Patch) -> None:
    original = PreparePhase.tick

    def tick(self: PreparePhase, now: float) -> float | None:
        if self.begun and self._departures is None:
            self._depart()
        return original(self, now)

    patch.setattr(PreparePhase, "tick", tick)


def lets_go_on_the_cancel_of_another(patch: Patch) -> None:
    original = Member.cancel

    def cancel(self: Member, said: m.Cancel) -> None:
        if self.preparing is not None:
            said = structs.replace(said, ballot=said.ballot._replace(change=self.preparing.change))
        original(self, said)

    patch.setattr(Member, "cancel", cancel)


def lets_go_in_silence(patch: Patch) -> None:
    original = Member.tick

    def tick(self: Member, now: float) -> float | None:
        e = self.preparing
        if e is not None and e.prepared and now - self.heard > member.SILENCE:
            self._controller.durable.abort(self.birth, self.replica.register)
            e.prepared = False
        return original(self, now)

    patch.setattr(Member, "tick", tick)


def decides_without_most(patch: Patch) -> None:
    patch.setattr(Proposer, "is_majority", lambda self, count: count > 0)


def waits_for_nobody(patch: Patch) -> None:
    original = Proposal.__init__

    def init(self: Proposal, *given: Any, **named: Any) -> None:
        original(self, *given, **named)
        self._touched = set()

    patch.setattr(Proposal, "__init__", init)


def forgets_what_may_have_been_decided(patch: Patch) -> None:
    patch.setattr(Proposer, "choose", lambda self, own: own)


def takes_what_was_withdrawn_for_made(patch: Patch) -> None:
    original = Proposal.learn

    def learn(self: Proposal, record: Record, now: float) -> None:
        if record.version >= self.at.version and record.birth == self.record.change:
            record = replace(record, change=record.birth)
        original(self, record, now)

    patch.setattr(Proposal, "learn", learn)


def cancels_what_it_has_asked_for(patch: Patch) -> None:
    original = Proposal.tick

    def tick(self: Proposal, now: float) -> float:
        if self.phase == "accepting" and not self.finishes and now >= self._deadline:
            self.phase = "preparing"
            self._give_up(now, "it took too long")
        return original(self, now)

    patch.setattr(Proposal, "tick", tick)


def finishes_nothing(patch: Patch) -> None:
    patch.setattr(ProposalQueue, "_look_at", lambda self, member: None)


def never_raises_its_ballot(patch: Patch) -> None:
    patch.setattr(
        proposals.ProposalQueue,
        "_ballot",
        lambda self, record, change: m.Ballot(1, self._controller.name, change),
    )


def tells_nobody_what_was_decided(patch: Patch) -> None:
    patch.setattr(Controller, "_compare", lambda self, peer, versions: None)


def uses_snapshots_of_another_change(patch: Patch) -> None:
    original = PreparePhase._expected
    kept: dict[tuple[str, str], dict[str, Snapshot]] = {}

    def expected(self: PreparePhase) -> Any:
        durable, at = self._controller.durable, self._at
        known = kept.setdefault((self._controller.name, at.birth), {})
        known.update(durable.arriving.get((at.birth, self.change), {}))
        for stone, (_, end) in self._moves.items():
            if stone in known and end == self._controller.name:
                snapshot = durable.growing(len(known[stone]))
                snapshot.add(known[stone])
                durable.keep(at.birth, self.change, stone, snapshot)
        return original(self)

    def forget(self: DurableState, birth: str) -> None:
        for (of, _), stones in self.arriving.items():
            kept.setdefault((self._name, of), {}).update(stones)
        original_forget(self, birth)

    original_forget = DurableState._forget_arriving
    patch.setattr(PreparePhase, "_expected", expected)
    patch.setattr(DurableState, "_forget_arriving", forget)


def loses_snapshots_that_came(patch: Patch) -> None:
    original = DurableState.conclude

    def conclude(self: DurableState, record: Record, change: str, arrived: set[str], here: set[str]) -> None:
        original(self, record, change, set(), here)

    patch.setattr(DurableState, "conclude", conclude)


def overtakes_nothing(patch: Patch) -> None:
    original = Member.learn

    def learn(self: Member, record: Record) -> None:
        ground = self._controller.site
        ground.overtake = lambda new: None  # type: ignore[method-assign]
        original(self, record)

    patch.setattr(Member, "learn", learn)


def takes_each_change_for_one_that_touched_all(patch: Patch) -> None:
    original = proposals.Record.made_by

    def made_by(self: Record, change: str, old: Record | None) -> Record:
        record = original(self, change, old)
        return replace(record, parts=dict.fromkeys(record.hosts, change))

    patch.setattr(proposals.Record, "made_by", made_by)


_BEGIN = {
    "forgets_that_it_is_prepared": 6,
    "forgets_its_votes": 1795,
    "lets_go_on_the_cancel_of_another": 13,
    "decides_without_most": 27,
    "forgets_what_may_have_been_decided": 920,
    "takes_what_was_withdrawn_for_made": 510,
    "cancels_what_it_has_asked_for": 392,
    "uses_snapshots_of_another_change": 49,
    "takes_each_change_for_one_that_touched_all": 1893,
}
"""Faults that seeds find seldom, and the seed to begin with."""

FAULTS: list[tuple[Callable[[Patch], None], str]] = [
    (forgets_that_it_is_prepared, ""),
    (forgets_its_votes, ""),
    (gives_snapshots_away_at_once, ""),
    (lets_go_on_the_cancel_of_another, ""),
    (lets_go_in_silence, ""),
    (decides_without_most, "is two"),
    (waits_for_nobody, ""),
    (forgets_what_may_have_been_decided, ""),
    (takes_what_was_withdrawn_for_made, ""),
    (cancels_what_it_has_asked_for, ""),
    (finishes_nothing, "does not come to an end"),
    (never_raises_its_ballot, ""),
    (tells_nobody_what_was_decided, "does not come to an end"),
    (uses_snapshots_of_another_change, ""),
    (loses_snapshots_that_came, ""),
    (overtakes_nothing, "run"),
    (takes_each_change_for_one_that_touched_all, ""),
]


@pytest.mark.parametrize(("plant", "wrong"), FAULTS, ids=[fault[0].__name__ for fault in FAULTS])
def test_planted_fault_is_found(plant: Callable[[Patch], None], wrong: str, monkeypatch: Patch) -> None:
    plant(monkeypatch)
    first = _BEGIN.get(plant.__name__, 0)
    for seed in range(first, first + 3000):
        found = one(seed)[2]
        if found:
            assert "simulation.truth.Failure" in found
            assert wrong in found
            return
    pytest.fail("3000 seeds have not found it")
