"""A proposal: one try to have the next version of a deployment decided, from its first word to its report.

With a record it prepares that change: all nodes that it touches must be able to make it, then quiet, then
ready, and most of the members must promise their votes. Without one it brings to an end what a vanished
proposer has left: what may have been decided is decided, and where nothing was, that nothing changes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from evflow.deploy import messages as m
from evflow.deploy.record import Record, touched
from evflow.deploy.register import Proposer
from evflow.errors import DeployError

if TYPE_CHECKING:
    from evflow.deploy.controller import Controller

_AGAIN = 0.5
_OTHERS = 0.5
_CANCELS = 4
_SLACK = 1.0
"""Seconds beyond its patience that a proposal may take to learn what became of its votes."""

_FINISHING = 4.0
"""Seconds that a proposal without a record tries, before another node may."""


@dataclass(frozen=True)
class Outcome:
    """What became of a proposal.

    Attributes:
        record: the record that was decided; None if the change was not made.
        error: why it was not made, or that nobody knows yet.
        missing: nodes that had not yet done what was decided.
    """

    record: Record | None
    error: DeployError | None = None
    missing: tuple[str, ...] = ()


@dataclass
class Heard:
    """What a node has said of its part in the change.

    Attributes:
        able: whether it can do its part.
        quiet: whether it is quiet.
        ready: whether it is ready.
        trouble: why it is not.
        unable: whether that is final.
        applied: whether it is at the version.
    """

    able: bool = False
    quiet: bool = False
    ready: bool = False
    trouble: str = "it did not answer"
    unable: bool = False
    applied: bool = False


class Proposal:
    """One try.

    Args:
        controller: the controller of its node.
        base: the version before; None if there is none.
        record: what is proposed; for a proposal without one, what it may have been.
        ballot: the first ballot.
        now: the time.
        done: told the outcome, once.
        lost: nodes that are not waited for.
        patience: seconds until it is given up; its outcome is told at most a second later.
        finishes: whether it is one without a record.

    Attributes:
        phase: "preparing", "accepting", "telling", "cancelling" or "over".
        at: what it is to decide.
        proposer: what it has heard of the vote.
    """

    def __init__(
        self,
        controller: Controller,
        base: Record | None,
        record: Record,
        ballot: m.Ballot,
        now: float,
        *,
        done: Callable[[Outcome], None] = lambda outcome: None,
        lost: Iterable[str] = (),
        patience: float = _FINISHING,
        finishes: bool = False,
    ) -> None:
        self.phase = "preparing"
        self.at = m.Decision(record.deployment, record.birth, record.version)
        self.record = record
        self.finishes = finishes
        self.proposer: Proposer[Record] = Proposer(ballot, (record if base is None else base).hosts.keys())
        self._controller = controller
        self._base = base
        self._done: Callable[[Outcome], None] | None = done
        self._lost = sorted(lost)
        self._patience = patience
        self._deadline = now + patience
        self._limit = self._deadline + _SLACK
        self._again = now
        self._refused_at = float("inf")
        self._cancels = 0
        self._outbid = False
        self._closed = False
        self._settled = False
        self._touched = set() if finishes else touched(base, record) - set(self._lost)
        self._heard = {node: Heard() for node in sorted({*self.proposer.acceptors, *record.hosts})}

    # --- what is said

    def receive(self, peer: str, answer: m.Answer, now: float) -> None:
        """Takes what a node answers."""
        heard, proposer = self._heard.get(peer), self.proposer
        if heard is None:
            return
        match answer:
            case m.Able():
                heard.able, heard.quiet = True, False
                heard.trouble = "it can make the change, and has not answered since"
            case m.Ready():
                heard.ready = heard.quiet = True
            case m.Quiet():
                heard.quiet, heard.trouble = True, "it was quiet, and has not answered since"
            case m.Busy():
                heard.quiet, heard.trouble = False, answer.reason
            case m.Unable():
                heard.unable, heard.trouble = True, answer.reason
                self._refused_at = min(self._refused_at, now)
            case m.Promise():
                proposer.hear_promise(peer, answer.ballot, answer.accepted_ballot, answer.accepted)
            case m.Accepted():
                proposer.hear_accepted(peer, answer.ballot)
            case m.Outbid():
                if proposer.hear_rejected(peer, answer.ballot, answer.promised):
                    self._give_way(answer.promised, now)
        self._go_on(now)

    def applied(self, peer: str, version: int) -> None:
        """A node is at a version."""
        if peer in self._heard and version >= self.at.version:
            self._heard[peer].applied = True

    def learn(self, record: Record, now: float) -> None:
        """Something was decided."""
        if record.version < self.at.version or self.phase not in ("preparing", "accepting"):
            return
        own = self.record.change
        later = record.version > self.at.version and own in (record.birth, *record.parts.values())
        if own == record.change or later:
            self._decided(now)
        else:
            self._give_up(now, "another change came first; look at it, and try again")

    # --- deciding

    def _go_on(self, now: float) -> None:
        if self.phase == "preparing" and not self._fails(now) and self.proposer.may_ask:
            # One that finishes what another has left waits for nobody's part.
            parts = [self._heard[node] for node in self._touched]
            if all(heard.ready for heard in parts):
                self._ask_to_accept(now)
            elif not self._closed:
                if all(heard.able for heard in parts):
                    self._closed = True
                    self._tell_touched(m.Close)
            elif not self._settled and all(heard.quiet for heard in parts):
                self._settled = True
                self._tell_touched(m.Settle)
        if self.phase == "accepting" and self.proposer.is_decided:
            self._decided(now)

    def _ask_to_accept(self, now: float) -> None:
        """Takes what may have been decided; if nothing was, the change, or that nothing is to change."""
        own, change = self.record, self.proposer.ballot.change
        if self.finishes:
            own = own.withdrawn(change) if self._base is None else self._base.unchanged(change)
        self.record = self.proposer.choose(own)
        self.phase = "accepting"
        self._extend(now)
        for node in self.record.hosts:
            self._heard.setdefault(node, Heard())
        self._again = now + _AGAIN
        self._tell_acceptors()

    def _decided(self, now: float) -> None:
        self.phase = "telling"
        self._extend(now)
        self._say(now)

    def _extend(self, now: float) -> None:
        """Leaves another phase some time; a proposal with a record keeps its limit."""
        if self.finishes:
            self._deadline = now + self._patience
        else:
            self._deadline = max(self._deadline, min(now + _SLACK, self._limit))

    def _fails(self, now: float) -> bool:
        """Gives up a change that cannot be prepared; returns True if it did."""
        if self.finishes:
            return False
        promises = self.proposer.promises
        for node in self._lost:
            if node in promises:
                self._give_up(now, f"node {node} is alive, though it was thought lost; try again")
                return True
        if self.proposer.left is not None:
            self._give_up(now, "another change is being decided; try again")
            return True
        if now < self._refused_at:
            return False
        # The others may have something to say too, if they are quick.
        if now < self._refused_at + _OTHERS and any(
            node not in promises and not heard.unable for node, heard in self._heard.items()
        ):
            return False
        self._give_up(now, self._troubles())
        return True

    def _give_way(self, promised: m.Ballot, now: float) -> None:
        if self.phase == "accepting" or (self.finishes and promised.node):
            # The others may still be a majority. If not, what was asked may have been done all the same, or
            # whoever has outbid this proposal does it.
            self._outbid = self.proposer.is_outbid
        elif self.phase == "preparing":
            self.proposer.bid(self.proposer.ballot._replace(number=promised.number + 1))
            self._say(now)

    # --- time

    def tick(self, now: float) -> float:
        """Says what is due; gives when to be called again."""
        if self.phase == "preparing":
            self._go_on(now)
        if self.phase == "preparing" and now >= self._deadline:
            self._give_up(now, self._troubles())
        if self.phase == "accepting" and (now >= self._deadline or (self.finishes and self._outbid)):
            self._give_up(now, self._unknown())
        if self.phase == "telling":
            self._check_told(now)
        if self.phase != "over" and now >= self._again:
            self._say(now)
        due = min(self._again, self._deadline, self._refused_at + _OTHERS)
        return due if due > now else self._again

    def _say(self, now: float) -> None:
        """Says again what its phase has to say."""
        self._again = now + _AGAIN
        tell = self._controller.tell
        if self.phase == "cancelling":
            self._cancels += 1
            if self._cancels == _CANCELS:
                self.phase = "over"
            for node in sorted(self._heard):
                tell(node, m.Cancel(self.at, self.proposer.ballot))
        elif self.phase == "telling":
            for node, heard in list(self._heard.items()):
                if not heard.applied:
                    tell(node, m.Chosen(self.record))
        elif self._outbid:
            version = 0 if self._base is None else self._base.version
            for node in sorted(self._heard):
                tell(node, m.State([m.Decision(self.at.deployment, self.at.birth, version)]))
        else:
            self._ask(now)

    def _ask(self, now: float) -> None:
        tell = self._controller.tell
        record = None if self.finishes else self.record
        left = max(0, int(1000 * ((self._deadline if self.finishes else self._limit) - now)))
        for node in sorted(self._heard):
            tell(node, m.Prepare(self.at, self.proposer.ballot, self._base, record, self._lost, left))
        if self.phase == "preparing" and self._closed:
            self._tell_touched(m.Close)
        if self.phase == "preparing" and self._settled:
            self._tell_touched(m.Settle)
        if self.phase == "accepting":
            self._tell_acceptors()

    def _tell_acceptors(self) -> None:
        for node in self.proposer.acceptors:
            if node not in self.proposer.accepted:
                self._controller.tell(node, m.Accept(self.at, self.proposer.ballot, self.record))

    def _tell_touched(self, kind: type[m.Close | m.Settle]) -> None:
        for node in sorted(self._touched):
            if not self._heard[node].ready:
                self._controller.tell(node, kind(self.at, self.proposer.ballot))

    def _check_told(self, now: float) -> None:
        missing = tuple(node for node, heard in self._heard.items() if not heard.applied)
        waits = [n for n in missing if n not in self._lost and not self._controller.is_dead(n)]
        late = now >= self._deadline
        if not waits or late:
            self._report(Outcome(self.record, None, missing))
        if not missing or late:
            self.phase = "over"

    # --- ends

    def _give_up(self, now: float, why: str) -> None:
        if self.finishes or self.phase == "accepting":
            self.phase = "over"
        else:
            self.phase = "cancelling"
            self._say(now)
        self._report(Outcome(None, self._error(why)))

    def _report(self, outcome: Outcome) -> None:
        done, self._done = self._done, None
        if done is not None:
            done(outcome)

    def _error(self, why: str) -> DeployError:
        what = "" if self.at.version == 1 else f", version {self.at.version}"
        return DeployError(f"deployment {self.at.deployment}{what}: {why}")

    def _troubles(self) -> str:
        """For each node that refused, or else that was not ready, why."""
        heard, proposer = sorted(self._heard.items()), self.proposer
        reason = "refused"
        lines = [f"node {node}: {each.trouble}" for node, each in heard if each.unable]
        if not lines:
            reason = f"not ready within {self._patience:g} s"
            for node, each in heard:
                member = node in proposer.acceptors and node not in self._lost
                silent = member and node not in proposer.promises
                reached = each.quiet and not self._settled if self._closed else each.able
                if silent or (node in self._touched and not each.ready and not reached):
                    lines.append(f"node {node}: {each.trouble}")
            if not proposer.may_ask:
                lines.append(self._most(proposer.promises))
        return "\n  ".join((f"{reason}; all is as it was", *lines))

    def _unknown(self) -> str:
        most = self._most(self.proposer.accepted)
        return (
            f"it is not known yet whether the change came about: {most}; they decide it once most of them "
            f"reach each other"
        )

    def _most(self, agreed: Collection[str]) -> str:
        acceptors = self.proposer.acceptors
        return (
            f"of the members {', '.join(sorted(acceptors))} more than half must agree, and "
            f"{self.proposer.count(agreed)} did"
        )
