"""A proposal: one try to have the next version of a deployment decided, from its first word to its report.

With a record it prepares that change: all nodes that it touches must be able to make it, then quiet, then
ready, and most of the members must promise their votes. Without one it brings to an end what a vanished
proposer has left: what may have been decided is decided, and where nothing was, that nothing changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from evflow.deploy import messages as m
from evflow.deploy.record import Record, touched
from evflow.errors import DeployError

__all__ = ["Outcome", "Proposal", "Speaker"]

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


class Speaker(Protocol):
    """What a steward offers its proposals."""

    def tell(self, peer: str, message: m.Message) -> None:
        """Says something to a node, perhaps to itself."""

    def is_dead(self, node: str) -> bool:
        """Whether a node was not heard for long."""


@dataclass
class Heard:
    """What a node has said.

    Attributes:
        promise: its promise.
        able: whether it can do its part.
        quiet: whether it is quiet.
        ready: whether it is ready.
        trouble: why it is not.
        unable: whether that is final.
        accepted: whether it has accepted.
        applied: whether it is at the version.
        outbid: whether it has promised a greater ballot.
    """

    promise: m.Promise | None = None
    able: bool = False
    quiet: bool = False
    ready: bool = False
    trouble: str = "it did not answer"
    unable: bool = False
    accepted: bool = False
    applied: bool = False
    outbid: bool = False


class Proposal:
    """One try.

    Args:
        steward: its steward.
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
        targets: the nodes that it concerns.
        highest: the number of the greatest ballot that has outbid it.
    """

    def __init__(
        self,
        steward: Speaker,
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
        self.ballot = ballot
        self.finishes = finishes
        self.highest = 0
        self._steward = steward
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
        self.acceptors = (record if base is None else base).hosts.keys()
        self.targets = sorted(self.acceptors | record.hosts.keys())
        self._touched = set() if finishes else touched(base, record) - set(self._lost)
        self._heard = {node: Heard() for node in self.targets}

    # --- what is said

    def receive(self, peer: str, answer: m.Answer, now: float) -> None:
        """Takes what a node answers."""
        heard = self._heard.get(peer)
        if heard is None or answer.ballot.change != self.ballot.change:
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
            case _ if answer.ballot != self.ballot:
                return
            case m.Promise():
                heard.promise = answer
            case m.Accepted():
                heard.accepted = True
            case m.Outbid():
                heard.outbid = True
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
            self._decided(self.record, now)
            return
        if self.phase == "preparing" and not self.finishes:
            self._cancel(now, "another change came first; look at it, and try again")
        else:
            self._report(Outcome(None, self._error("another change came first; look at it, and try again")))
            self.phase = "over"

    # --- deciding

    @property
    def _promises(self) -> list[m.Promise]:
        promises = (self._heard[node].promise for node in self.acceptors)
        return [promise for promise in promises if promise is not None]

    def _is_majority(self, count: int) -> bool:
        return 2 * count > len(self.acceptors)

    def _go_on(self, now: float) -> None:
        if self.phase == "preparing" and not self._fails(now) and self._is_majority(len(self._promises)):
            if self.finishes:
                self._choose_left(now)
            elif all(self._heard[node].ready for node in self._touched):
                self._ask_to_accept(self.record, now)
            elif not self._closed:
                if all(self._heard[node].able for node in self._touched):
                    self._closed = True
                    self._tell_touched(m.Close(self.at, self.ballot))
            elif not self._settled and all(self._heard[node].quiet for node in self._touched):
                self._settled = True
                self._tell_touched(m.Settle(self.at, self.ballot))
        if self.phase == "accepting" and self._is_majority(
            sum(self._heard[node].accepted for node in self.acceptors)
        ):
            self._decided(self.record, now)

    def _choose_left(self, now: float) -> None:
        """Takes what may have been decided; if nothing was, nothing shall change."""
        best = max(self._promises, key=lambda promise: promise.accepted_ballot or m.NOBODY)
        change = self.ballot.change
        if best.accepted is not None:
            self._ask_to_accept(best.accepted, now)
        elif self._base is None:
            self._ask_to_accept(self.record.withdrawn(change), now)
        else:
            self._ask_to_accept(self._base.unchanged(change), now)

    def _ask_to_accept(self, record: Record, now: float) -> None:
        self.record = record
        self.phase = "accepting"
        self._extend(now)
        for node in record.hosts:
            self._heard.setdefault(node, Heard())
        self.targets = sorted(self._heard)
        self._again = now + _AGAIN
        self._tell_acceptors()

    def _decided(self, record: Record, now: float) -> None:
        self.record = record
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
        """Gives up a change that cannot be prepared; gives whether it did."""
        if self.finishes:
            return False
        for node in self._lost:
            if node in self._heard and self._heard[node].promise is not None:
                self._cancel(now, f"node {node} is alive, though it was thought lost; try again")
                return True
        if any(promise.accepted is not None for promise in self._promises):
            self._cancel(now, "another change is being decided; try again")
            return True
        if now < self._refused_at:
            return False
        # The others may have something to say too, if they are quick.
        if now < self._refused_at + _OTHERS and any(
            self._heard[node].promise is None and not self._heard[node].unable for node in self.targets
        ):
            return False
        self._cancel(now, self._troubles())
        return True

    def _give_way(self, promised: m.Ballot, now: float) -> None:
        self.highest = max(self.highest, promised.number)
        if self.phase == "accepting" or (self.finishes and promised.node):
            # The others may still be a majority. If not, what was asked may have been done all the same, or
            # whoever has outbid this proposal does it.
            outbid = sum(self._heard[node].outbid for node in self.acceptors)
            self._outbid = not self._is_majority(len(self.acceptors) - outbid)
        elif self.phase == "preparing":
            self.ballot = m.Ballot(promised.number + 1, self.ballot.node, self.ballot.change)
            for heard in self._heard.values():
                heard.promise, heard.outbid = None, False
            self._say(now)

    # --- time

    def tick(self, now: float) -> float:
        """Says what is due; gives when to be called again."""
        if self.phase == "preparing":
            self._go_on(now)
        if self.phase == "preparing" and now >= self._deadline:
            self._cancel(now, self._troubles())
        if self.phase == "accepting" and (now >= self._deadline or (self.finishes and self._outbid)):
            self._report(Outcome(None, self._error(self._unknown())))
            self.phase = "over"
        if self.phase == "telling":
            self._check_told(now)
        if self.phase != "over" and now >= self._again:
            self._say(now)
        due = min(self._again, self._deadline, self._refused_at + _OTHERS)
        return due if due > now else self._again

    def _say(self, now: float) -> None:
        """Says again what its phase has to say."""
        self._again = now + _AGAIN
        tell = self._steward.tell
        if self.phase == "cancelling":
            self._cancels += 1
            if self._cancels == _CANCELS:
                self.phase = "over"
            for node in self.targets:
                tell(node, m.Cancel(self.at, self.ballot))
        elif self.phase == "telling":
            for node, heard in list(self._heard.items()):
                if not heard.applied:
                    tell(node, m.Chosen(self.record))
        elif self._outbid:
            version = 0 if self._base is None else self._base.version
            for node in self.targets:
                tell(node, m.State([m.Decision(self.at.deployment, self.at.birth, version)]))
        else:
            self._ask(now)

    def _ask(self, now: float) -> None:
        tell = self._steward.tell
        record = None if self.finishes else self.record
        left = max(0, int(1000 * ((self._deadline if self.finishes else self._limit) - now)))
        for node in self.targets:
            tell(node, m.Prepare(self.at, self.ballot, self._base, record, self._lost, left))
        if self.phase == "preparing" and self._closed:
            self._tell_touched(m.Close(self.at, self.ballot))
        if self.phase == "preparing" and self._settled:
            self._tell_touched(m.Settle(self.at, self.ballot))
        if self.phase == "accepting":
            self._tell_acceptors()

    def _tell_acceptors(self) -> None:
        for node in self.acceptors:
            if not self._heard[node].accepted:
                self._steward.tell(node, m.Accept(self.at, self.ballot, self.record))

    def _tell_touched(self, message: m.Message) -> None:
        for node in sorted(self._touched):
            if not self._heard[node].ready:
                self._steward.tell(node, message)

    def _check_told(self, now: float) -> None:
        missing = tuple(node for node, heard in self._heard.items() if not heard.applied)
        waits = [n for n in missing if n not in self._lost and not self._steward.is_dead(n)]
        late = now >= self._deadline
        if not waits or late:
            self._report(Outcome(self.record, None, missing))
        if not missing or late:
            self.phase = "over"

    # --- ends

    def _cancel(self, now: float, why: str) -> None:
        if self.finishes:
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
        heard = sorted(self._heard.items())
        lines = [f"node {node}: {each.trouble}" for node, each in heard if each.unable]
        if lines:
            return self._as_it_was("refused", lines)
        for node, each in heard:
            silent = node in self.acceptors and each.promise is None and node not in self._lost
            reached = each.quiet and not self._settled if self._closed else each.able
            waits = not each.ready and not reached
            if silent or (node in self._touched and waits):
                lines.append(f"node {node}: {each.trouble}")
        if not self._is_majority(len(self._promises)):
            lines.append(
                f"of the members {', '.join(sorted(self.acceptors))} more than half must agree, and "
                f"{len(self._promises)} did"
            )
        return self._as_it_was(f"not ready within {self._patience:g} s", lines)

    def _as_it_was(self, reason: str, lines: list[str]) -> str:
        return "\n  ".join((f"{reason}; all is as it was", *lines))

    def _unknown(self) -> str:
        accepted = [node for node in self.acceptors if self._heard[node].accepted]
        return (
            f"it is not known yet whether the change came about: of the members "
            f"{', '.join(sorted(self.acceptors))} more than half must agree, and {len(accepted)} did; they "
            f"decide it once most of them reach each other"
        )
