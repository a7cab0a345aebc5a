"""The proposals of a node: those it was asked for, those that finish what others left, and fallbacks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from evflow.deploy import messages as m
from evflow.deploy.detector import fallen_back
from evflow.deploy.member import SILENCE, Member
from evflow.deploy.proposal import Outcome, Proposal
from evflow.deploy.record import Record, stones_on
from evflow.errors import DeployError

if TYPE_CHECKING:
    from evflow.deploy.controller import Controller

_STAGGER = 0.7
_LONGER = 1.5
_MOST_RANK = 20
_MOST_TRIES = 8
_FALLBACK_AGAIN = 3.0

Done = Callable[[Outcome], None]


class ProposalQueue:
    """The proposals of a node.

    Args:
        controller: the node's controller.

    Attributes:
        proposals: change → its proposal.
    """

    def __init__(self, controller: Controller) -> None:
        self.proposals: dict[str, Proposal] = {}
        self._controller = controller
        self._wanted: list[tuple[Record, tuple[str, ...], float, Done]] = []
        self._tries: Counter[str] = Counter()
        self._highest: dict[str, tuple[int, int]] = {}
        self._waits: dict[str, float] = {}
        self._fallbacks: dict[str, float] = {}
        self._now = 0.0

    def propose(self, wanted: Record, lost: Iterable[str], patience: float, done: Done) -> None:
        """See ``Controller.propose``."""
        self._base(wanted, tuple(lost))
        self._wanted.append((wanted, tuple(lost), patience, done))

    def _base(self, wanted: Record, lost: tuple[str, ...]) -> Record | None:
        what, controller = f"deployment {wanted.deployment}", self._controller
        if wanted.version == 1:
            if lost or wanted.graph is None:
                raise DeployError(f"{what}: its first version needs a graph, and all of its hosts")
            if refusal := controller.namesake(wanted.deployment, ""):
                raise DeployError(refusal)
            return None
        base = controller.records.get(wanted.deployment)
        if base is None:
            known = ", ".join(sorted(controller.records)) or "none"
            raise DeployError(f"node {controller.name} has no {what}; it has {known}")
        if (wanted.birth, wanted.version) != (base.birth, base.version + 1):
            raise DeployError(
                f"{what} is at version {base.version}, and the change is one of version "
                f"{wanted.version - 1}; look at what it is now, and try again"
            )
        for node in lost:
            if node not in base.hosts or stones_on(wanted, node).keys() - stones_on(base, node).keys():
                raise DeployError(
                    f"{what}: node {node} cannot be lost: it is not a member, or stones go to it"
                )
        return base

    # --- what comes

    def answer(self, peer: str, answer: m.Answer, now: float) -> None:
        """Passes on what a node answers to a proposer."""
        proposal = self.proposals.get(answer.ballot.change)
        if proposal is not None and proposal.at == answer.at:
            proposal.receive(peer, answer, now)

    def learn(self, record: Record, now: float) -> None:
        """Something was decided."""
        for proposal in self.proposals.values():
            if proposal.at.birth == record.birth:
                proposal.learn(record, now)

    def applied(self, peer: str, birth: str, version: int) -> None:
        """A node is at a version."""
        for proposal in self.proposals.values():
            if proposal.at.birth == birth:
                proposal.applied(peer, version)

    # --- time

    def tick(self, now: float) -> float | None:
        """Goes on with all proposals; gives when to be called again."""
        self._now = now
        wanted, self._wanted = self._wanted, []
        for each in wanted:
            self._begin(*each)
        due: list[float] = []
        for change, proposal in list(self.proposals.items()):
            due.append(proposal.tick(now))
            if proposal.phase == "over":
                del self.proposals[change]
                del due[-1]
                if proposal.finishes:
                    self._highest[proposal.at.birth] = (proposal.at.version, proposal.proposer.highest)
        looks = map(self._look_at, self._controller.members.values())
        return min([*due, *(at for at in looks if at is not None)], default=None)

    def _begin(self, wanted: Record, lost: tuple[str, ...], patience: float, done: Done) -> None:
        change = self._controller.entropy(16).hex()
        try:
            base = self._base(wanted, lost)
            record = wanted.made_by(change, base)
            ballot = self._ballot(record, change)
            m.check_size(record)
        except DeployError as error:
            done(Outcome(None, error))
            return
        self.proposals[change] = Proposal(
            self._controller, base, record, ballot, self._now, done=done, lost=lost, patience=patience
        )

    def _ballot(self, record: Record, change: str) -> m.Ballot:
        register = self._controller.durable.replica(record.birth).register
        number = register.promised.number if register.version + 1 == record.version else 0
        at, highest = self._highest.get(record.birth, (0, 0))
        number = max(number, highest if at == record.version else 0)
        return m.Ballot(number + 1, self._controller.name, change)

    def _look_at(self, member: Member) -> float | None:
        """Finishes what the proposer of a change has left; gives when to look again."""
        orphan = member.orphan
        if orphan is None:
            self._tries.pop(member.birth, None)
            self._highest.pop(member.birth, None)
            self._waits.pop(member.birth, None)
            return None
        if any(p.at.birth == member.birth and p.phase != "telling" for p in self.proposals.values()):
            return None
        at = member.heard + self._patience(orphan, member.birth)
        if self._now < at:
            return at
        self._tries[member.birth] += 1
        self._waits.pop(member.birth, None)
        change = self._controller.entropy(16).hex()
        ballot = self._ballot(orphan, change)
        proposal = Proposal(self._controller, member.replica.record, orphan, ballot, self._now, finishes=True)
        self.proposals[change] = proposal
        return proposal.tick(self._now)

    def _patience(self, record: Record, birth: str) -> float:
        """How long a proposer has to be silent: longer for later names and further tries."""
        if birth not in self._waits:
            tries = min(self._tries[birth], _MOST_TRIES)
            self._waits[birth] = self._controller.entropy(1)[0] / 255 * (0.3 + _LONGER * tries)
        living = [node for node in sorted(record.hosts) if not self._controller.is_dead(node)]
        rank = sum(node < self._controller.name for node in living)
        # So that of those who wait for one proposer one begins, and the others hear it.
        return SILENCE + _STAGGER * min(rank, _MOST_RANK) + self._waits[birth]

    def fall_back(self, now: float) -> None:
        """Proposes what the fallback rules say, if this is the first of the living members."""
        for name, record in self._controller.records.items():
            detector = self._controller.detector
            silent = {n: detector.silent(n, now) for n in record.hosts if detector.is_dead(n, now)}
            wanted = fallen_back(record, silent) if silent else None
            if wanted is None or min(n for n in record.hosts if n not in silent) != self._controller.name:
                continue
            if now >= self._fallbacks.get(name, now):
                self._fallbacks[name] = now + _FALLBACK_AGAIN
                lost = [n for n in silent if not stones_on(wanted, n).keys() - stones_on(record, n).keys()]
                self.propose(wanted, lost, 2 * _FALLBACK_AGAIN, lambda outcome: None)
