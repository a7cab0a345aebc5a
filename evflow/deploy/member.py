"""A node's part in what is decided about one deployment: it votes, gets ready, and does what was decided.

Which record is version v + 1 is decided as in Paxos, by the members of version v. Beside that vote a node
that a change touches sees whether it can do its part, and once all can gets ready for it: it closes its
entries, waits until it is quiet, keeps for good that it is (it is *bound*, also after a restart), and only
then gives snapshots away or says that it is ready. A proposer asks for votes once all such nodes are ready.
So a change that may have been decided finds each of them as it was when its snapshots were taken: a node that
is bound lets no event pass before it knows more.
"""

from __future__ import annotations

from evflow.deploy import messages as m
from evflow.deploy.book import Bound, Page
from evflow.deploy.engagement import Engagement, Home
from evflow.deploy.record import Record, stones_on
from evflow.deploy.register import Register

__all__ = ["SILENCE", "Member"]

SILENCE = 3.0
"""Seconds after which a proposer that is not heard is taken for dead."""

_NEVER = float("-inf")


class Member:
    """One deployment as a node sees it.

    Args:
        deployment, birth: which one.
        home: the node's steward.
        now: the time.

    Attributes:
        engagement: the change under way.
        heard: when the proposer of what is under way was last heard.
    """

    def __init__(self, deployment: str, birth: str, home: Home, now: float) -> None:
        self.deployment = deployment
        self.birth = birth
        self.engagement: Engagement | None = None
        self.heard = now
        self._finishing = _NEVER
        self._until = _NEVER
        self._home = home
        page = self.page
        if page.bound is not None:
            self.engagement = Engagement(home, page.record, page.bound, again=True)

    @property
    def page(self) -> Page:
        """What is kept of it."""
        return self._home.book.page(self.birth)

    def knows(self, peer: str) -> bool:
        """Whether a node is, or would be, a member of it."""
        page, e = self.page, self.engagement
        records = (page.record, page.register.accepted, None if e is None else e.record)
        return any(record is not None and peer in record.hosts for record in records)

    def _is_next(self, peer: str, at: m.Decision) -> bool:
        """Whether a version is the next one to be decided; who is behind is told what was decided."""
        record = self.page.record
        if record is not None and at.version <= record.version:
            self._home.tell(peer, m.Chosen(record))
        return at.version == self.page.version + 1

    # --- voting

    def _vote(self, peer: str, asked: m.Prepare | m.Accept, vote: Register[Record], now: float) -> bool:
        """Keeps a vote on a ballot; if a greater one was promised, says so and gives False."""
        if vote.promised > asked.ballot:
            self._home.tell(peer, m.Outbid(asked.at, asked.ballot, vote.promised))
            return False
        if vote is not self.page.register:
            self._home.book.vote(self.birth, vote)
        self.heard = now
        return True

    def prepare(self, peer: str, asked: m.Prepare, now: float) -> None:
        """Answers ``Prepare``; with a record, gets ready for it."""
        if asked.base is not None:
            self.learn(asked.base)
        if not self._is_next(peer, asked.at):
            return
        register = self.page.register
        refusal = "" if asked.record is None else self._other(asked.ballot, register, now)
        if refusal:
            self._home.tell(peer, m.Unable(asked.at, asked.ballot, refusal))
            return
        if not self._vote(peer, asked, register.promise(asked.ballot), now):
            return
        self._until = now + asked.left / 1000
        before = None if register.accepted is None else register.ballot
        self._home.tell(peer, m.Promise(asked.at, asked.ballot, before, register.accepted))
        if asked.record is None:
            self._finishing = now
        else:
            self._engage(Bound(asked.ballot, asked.record, tuple(asked.lost)), now)

    def _other(self, ballot: m.Ballot, register: Register[Record], now: float) -> str:
        """Which other change is under way, so that none can be prepared; "" if none is."""
        if register.accepted is not None and register.accepted.change != ballot.change:
            return f"another change, proposed by {register.ballot.node}, is being decided; try again"
        e = self.engagement
        if e is not None and e.change != ballot.change:
            if e.bound or (not e.refusal and now - self.heard < SILENCE):
                return f"another change, proposed by {e.ballot.node}, is under way; {self._ends(e, now)}"
            self._drop(e)
        if now - self._finishing < SILENCE:
            return "a change whose proposer has vanished is being brought to its end; try again"
        return ""

    def _ends(self, e: Engagement, now: float) -> str:
        """How long a change that is under way may still take, and what to do."""
        left = self._until - now
        if now - self.heard >= SILENCE or left <= 0:
            # It is bound, so it may have been made.
            return (
                "its proposer has vanished, and the members decide what became of it once most of them reach "
                "each other; try again then"
            )
        return f"it ends within {max(left, 0.1):.1f} s; try again then"

    def _drop(self, e: Engagement) -> None:
        """Forgets a change that this node is not bound to, so that it may never have heard of it."""
        self._home.book.forget_arriving(self.birth)
        self.engagement = None
        e.end()

    def _engage(self, bound: Bound, now: float) -> None:
        e = self.engagement
        if e is None:
            e = self.engagement = Engagement(self._home, self.page.record, bound)
        e.ballot = bound.ballot
        e.tick(now)
        e.report()

    def go_on(self, said: m.Close | m.Settle, now: float) -> None:
        """All nodes are able to make a change, or quiet for it."""
        e = self.engagement
        if e is None or e.change != said.ballot.change or said.at.version != self.page.version + 1:
            return
        self.heard = now
        if isinstance(said, m.Settle):
            e.settle()
            e.tick(now)
        else:
            begins = e.close()
            e.tick(now)
            if not begins:
                e.report()

    def accept(self, peer: str, asked: m.Accept, now: float) -> None:
        """Answers ``Accept``."""
        if not self._is_next(peer, asked.at):
            return
        if self._vote(peer, asked, self.page.register.accept(asked.ballot, asked.record), now):
            self._home.tell(peer, m.Accepted(asked.at, asked.ballot))

    def cancel(self, said: m.Cancel) -> None:
        """Abort: reject this ballot and all lower ones, also in late messages."""
        register, e, change = self.page.register, self.engagement, said.ballot.change
        if said.at.version != register.version + 1:
            return
        if register.accepted is not None and register.accepted.change == change:
            return
        rejects = register.promise(said.ballot.above())
        if e is not None and e.change == change:
            self._home.book.unbind(self.birth, rejects)
            self.engagement = None
            e.end()
        elif e is None and register.promised.change in ("", change):
            # A vote that is promised to another change is not taken back, or whoever tries again and again
            # would keep the members from finishing what a proposer has left.
            self._home.book.vote(self.birth, rejects)

    # --- what was decided

    def learn(self, record: Record) -> None:
        """Does what was decided, unless the node is at that version or a later one."""
        home, page, e = self._home, self.page, self.engagement
        bound = e is not None and e.bound
        if record.version <= page.version:
            return
        comes = record.graph is not None and home.name in record.hosts
        if comes and not bound and home.namesake(record.deployment, record.birth):
            return
        # Whatever came between: if nothing touched this node since, the change it is bound to came about.
        mine = bound and e is not None and record.parts.get(home.name) == e.change
        here = stones_on(record, home.name).keys()
        came = home.book.arriving.get((self.birth, e.change), {}) if e is not None and mine else {}
        arrived = {stone: data for stone, data in came.items() if stone in here}
        home.book.conclude(record, "" if e is None else e.change, set(arrived), set(here))
        self.engagement = None
        self._finishing = _NEVER
        if mine:
            home.ground.commit(record, arrived)
            return
        if e is not None:
            e.end()
        before = None if page.record is None else page.record.parts.get(home.name)
        if (comes or home.book.is_member(page)) and record.parts.get(home.name) != before:
            home.ground.overtake(record)

    # --- time

    def tick(self, now: float) -> float | None:
        """Goes on with what is under way; gives when to be called again."""
        e = self.engagement
        if e is None:
            return None
        if not e.bound and now - self.heard >= SILENCE:
            self._drop(e)
            return None
        due = e.tick(now)
        # One that is bound is brought to its end by its node's proposals.
        dues = [due] if e.bound else [due, self.heard + SILENCE]
        return min((at for at in dues if at is not None), default=None)

    @property
    def orphan(self) -> Record | None:
        """The record that this node is bound to, or has accepted; None if it need not know the outcome."""
        page = self.page
        record = page.register.accepted if page.bound is None else page.bound.record
        return record if record is not None and record.version == page.version + 1 else None
