"""A node's part in what is decided about one deployment: it votes, gets ready, and does what was decided.

Which record is version v + 1 is decided as in Paxos, by the members of version v. Beside that vote a node
that a change touches sees whether it can do its part, and once all can gets ready for it: it closes its
entries, waits until it is quiet, keeps for good that it is (it is *prepared*, also after a restart), and only
then gives snapshots away or says that it is ready. A proposer asks for votes once all such nodes are ready.
So a change that may have been decided finds each of them as it was when its snapshots were taken: a node that
is prepared lets no event pass before it knows more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from evflow.deploy import messages as m
from evflow.deploy.durable import Prepared, Replica
from evflow.deploy.prepare import PreparePhase
from evflow.deploy.record import Record, stones_on
from evflow.deploy.register import Register

if TYPE_CHECKING:
    from evflow.deploy.controller import Controller

SILENCE = 3.0
"""Seconds after which a proposer that is not heard is taken for dead."""

_NEVER = float("-inf")


class Member:
    """One deployment as a node sees it.

    Args:
        deployment, birth: which one.
        controller: the node's controller.
        now: the time.

    Attributes:
        preparing: the change under way.
        heard: when the proposer of what is under way was last heard.
    """

    def __init__(self, deployment: str, birth: str, controller: Controller, now: float) -> None:
        self.deployment = deployment
        self.birth = birth
        self.preparing: PreparePhase | None = None
        self.heard = now
        self._finishing = _NEVER
        self._until = _NEVER
        self._controller = controller
        replica = self.replica
        if replica.prepared is not None:
            self.preparing = PreparePhase(controller, replica.record, replica.prepared, again=True)

    @property
    def replica(self) -> Replica:
        """What is kept of it."""
        return self._controller.durable.replica(self.birth)

    def knows(self, peer: str) -> bool:
        """True if a node is a member of the deployment, or would be by the change under way."""
        replica, phase = self.replica, self.preparing
        records = (replica.record, replica.register.accepted, None if phase is None else phase.record)
        return any(record is not None and peer in record.hosts for record in records)

    def _is_next(self, peer: str, at: m.Decision) -> bool:
        """True if a version is the next one to be decided. A peer that is behind is told what was decided."""
        record = self.replica.record
        if record is not None and at.version <= record.version:
            self._controller.tell(peer, m.Chosen(record))
        return at.version == self.replica.version + 1

    # --- voting

    def _vote(self, peer: str, asked: m.Prepare | m.Accept, vote: Register[Record], now: float) -> bool:
        """Keeps a vote on a ballot; if a greater one was promised, says so and gives False."""
        if vote.promised > asked.ballot:
            self._controller.tell(peer, m.Outbid(asked.at, asked.ballot, vote.promised))
            return False
        if vote is not self.replica.register:
            self._controller.durable.vote(self.birth, vote)
        self.heard = now
        return True

    def prepare(self, peer: str, asked: m.Prepare, now: float) -> None:
        """Answers ``Prepare``; with a record, gets ready for it."""
        if asked.base is not None:
            self.learn(asked.base)
        if not self._is_next(peer, asked.at):
            return
        register = self.replica.register
        refusal = "" if asked.record is None else self._other(asked.ballot, register, now)
        if refusal:
            self._controller.tell(peer, m.Unable(asked.at, asked.ballot, refusal))
            return
        if not self._vote(peer, asked, register.promise(asked.ballot), now):
            return
        self._until = now + asked.left / 1000
        before = None if register.accepted is None else register.ballot
        self._controller.tell(peer, m.Promise(asked.at, asked.ballot, before, register.accepted))
        if asked.record is None:
            self._finishing = now
        else:
            self._prepare(Prepared(asked.ballot, asked.record, tuple(asked.lost)), now)

    def _other(self, ballot: m.Ballot, register: Register[Record], now: float) -> str:
        """Which other change is under way, so that none can be prepared; "" if none is."""
        if register.accepted is not None and register.accepted.change != ballot.change:
            return f"another change, proposed by {register.ballot.node}, is being decided; try again"
        phase = self.preparing
        if phase is not None and phase.change != ballot.change:
            if phase.prepared or (not phase.refusal and now - self.heard < SILENCE):
                return (
                    f"another change, proposed by {phase.ballot.node}, is under way; {self._ends(phase, now)}"
                )
            self._drop(phase)
        if now - self._finishing < SILENCE:
            return "a change whose proposer has vanished is being brought to its end; try again"
        return ""

    def _ends(self, phase: PreparePhase, now: float) -> str:
        """How long a change that is under way may still take, and what to do."""
        left = self._until - now
        if now - self.heard >= SILENCE or left <= 0:
            # It is prepared, so it may have been made.
            return (
                "its proposer has vanished, and the members decide what became of it once most of them reach "
                "each other; try again then"
            )
        return f"it ends within {max(left, 0.1):.1f} s; try again then"

    def _drop(self, phase: PreparePhase) -> None:
        """Forgets a change that this node is not prepared for, so that it may never have heard of it."""
        self._controller.durable.forget_arriving(self.birth)
        self.preparing = None
        phase.end()

    def _prepare(self, prepared: Prepared, now: float) -> None:
        phase = self.preparing
        if phase is None:
            phase = self.preparing = PreparePhase(self._controller, self.replica.record, prepared)
        phase.ballot = prepared.ballot
        phase.tick(now)
        phase.report()

    def go_on(self, said: m.Close | m.Settle, now: float) -> None:
        """All nodes are able to make a change, or quiet for it."""
        phase = self.preparing
        if phase is None or phase.change != said.ballot.change or said.at.version != self.replica.version + 1:
            return
        self.heard = now
        if isinstance(said, m.Settle):
            phase.settle()
            phase.tick(now)
        else:
            begins = phase.close()
            phase.tick(now)
            if not begins:
                phase.report()

    def accept(self, peer: str, asked: m.Accept, now: float) -> None:
        """Answers ``Accept``."""
        if not self._is_next(peer, asked.at):
            return
        if self._vote(peer, asked, self.replica.register.accept(asked.ballot, asked.record), now):
            self._controller.tell(peer, m.Accepted(asked.at, asked.ballot))

    def cancel(self, said: m.Cancel) -> None:
        """Abort: reject this ballot and all lower ones, also in late messages."""
        register, phase, change = self.replica.register, self.preparing, said.ballot.change
        if said.at.version != register.version + 1:
            return
        if register.accepted is not None and register.accepted.change == change:
            return
        rejects = register.promise(said.ballot.above())
        if phase is not None and phase.change == change:
            self._controller.durable.abort(self.birth, rejects)
            self.preparing = None
            phase.end()
        elif phase is None and register.promised.change in ("", change):
            # A vote that is promised to another change is not taken back, or whoever tries again and again
            # would keep the members from finishing what a proposer has left.
            self._controller.durable.vote(self.birth, rejects)

    # --- what was decided

    def learn(self, record: Record) -> None:
        """Does what was decided, unless the node is at that version or a later one."""
        controller, replica, phase = self._controller, self.replica, self.preparing
        if record.version <= replica.version:
            return
        comes = record.graph is not None and controller.name in record.hosts
        prepared = phase if phase is not None and phase.prepared else None
        if comes and prepared is None and controller.namesake(record.deployment, record.birth):
            return
        # Whatever versions lie between: if the node's part is that of the change it is prepared for, that
        # change was made.
        mine = prepared is not None and record.parts.get(controller.name) == prepared.change
        here = stones_on(record, controller.name).keys()
        came = prepared.came if prepared is not None and mine else {}
        arrived = {stone: data for stone, data in came.items() if stone in here}
        controller.durable.conclude(record, "" if phase is None else phase.change, set(arrived), set(here))
        self.preparing = None
        self._finishing = _NEVER
        if mine:
            controller.site.commit(record, arrived)
            return
        if phase is not None:
            phase.end()
        before = None if replica.record is None else replica.record.parts.get(controller.name)
        if (comes or controller.durable.is_member(replica)) and record.parts.get(controller.name) != before:
            controller.site.overtake(record)

    # --- time

    def tick(self, now: float) -> float | None:
        """Goes on with what is under way; gives when to be called again."""
        phase = self.preparing
        if phase is None:
            return None
        if not phase.prepared and now - self.heard >= SILENCE:
            self._drop(phase)
            return None
        due = phase.tick(now)
        # One that is prepared is brought to its end by its node's proposals.
        dues = [due] if phase.prepared else [due, self.heard + SILENCE]
        return min((at for at in dues if at is not None), default=None)

    @property
    def orphan(self) -> Record | None:
        """The record that this node is prepared for or has accepted; None if it need not know the outcome."""
        replica = self.replica
        return replica.register.accepted if replica.prepared is None else replica.prepared.record
