"""The controller: all that a node has to do with deployments. Sans-I/O: it is told messages and the time.

Each node has one. Controllers talk to each other only, by notes that may be lost; what a deployment does to
the node is the business of its ``Site``. Deployments are independent of each other.
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from evflow import mishaps
from evflow.choices import choices
from evflow.deploy import messages as m
from evflow.deploy.detector import DEAD_AFTER, FailureDetector
from evflow.deploy.durable import DurableState, is_open
from evflow.deploy.member import Member
from evflow.deploy.proposal import Outcome
from evflow.deploy.proposals import Done, ProposalQueue
from evflow.deploy.record import Record
from evflow.errors import DeployError, EvflowError
from evflow.mishaps import CONTAINED

if TYPE_CHECKING:
    from evflow.deploy.site import Site
    from evflow.deploy.store import FileStore

__all__ = ["Outcome", "Controller"]

_log = logging.getLogger("evflow.deploy")

_GOSSIP = 1.0
_MOST_OPEN = 1000

_AFTER_FAILURE = 0.5
"""Seconds until a deployment that has failed has its turn again."""


class Controller:
    """All that a node has to do with deployments. Used by one thread.

    Args:
        name: the node's name.
        site: what deployments do to the node; see ``Site`` for when it is told what.
        store: what is kept over restarts.
        send: sends a note to a node; gives False if that cannot be. It may be lost all the same.
        entropy: gives so many random bytes.
        now: the time in seconds, as in all other calls.
        permits: whether a node may deploy here what it is not a member of ("deploy").
        dead_after: seconds of silence after which a node is taken for dead.

    Attributes:
        name, site, entropy: as given.
        durable: what the store has.
        detector: who was heard.
        members: birth → a deployment as this node sees it.
        refused: what came and was refused, by kind: "malformed", "unauthorised".

    Raises:
        DeployError: what the store has is damaged.

    Any call may raise ``DeployError`` when the store cannot be written; then what it was about has not
    happened, and will be tried again.
    """

    def __init__(
        self,
        name: str,
        site: Site,
        store: FileStore,
        send: Callable[[str, bytes], bool],
        entropy: Callable[[int], bytes],
        now: float,
        *,
        permits: Callable[[str, str], bool] = lambda peer, what: True,
        dead_after: float = DEAD_AFTER,
    ) -> None:
        self.name = name
        self.site = site
        self.entropy = entropy
        self.durable = DurableState(store, name)
        self.refused: Counter[str] = Counter()
        self.detector = FailureDetector(name, dead_after)
        self.members: dict[str, Member] = {}
        self._send = send
        self._permits = permits
        self._proposals = ProposalQueue(self)
        self._inbox: deque[m.Message] = deque()
        self._now = now
        self._gossip_at = now
        self._start(now)

    def _start(self, now: float) -> None:
        deployed = self.durable.deployed
        snapshots = self.durable.snapshots
        arrived = {deployed[b].deployment: stones for b, stones in snapshots.items() if b in deployed}
        self.site.start(deployed.values(), arrived)
        self.durable.snapshots = {}
        for birth, replica in self.durable.replicas.items():
            record = replica.record if replica.prepared is None else replica.prepared.record
            record = record or replica.register.accepted
            if record is not None and (birth in deployed or is_open(replica)):
                self._member(record.deployment, birth, now)
        for birth, _ in list(self.durable.arriving):
            if self.durable.replica(birth).prepared is None:
                self.durable.forget_arriving(birth)
        self.detector.expect(self.hosts, now)

    def _member(self, deployment: str, birth: str, now: float) -> Member:
        if birth not in self.members:
            self.members[birth] = Member(deployment, birth, self, now)
        return self.members[birth]

    # --- what there is

    @property
    def records(self) -> dict[str, Record]:
        """Deployment → the version of it that this node, a member of it, is at."""
        return {record.deployment: record for record in self.durable.deployed.values()}

    @property
    def hosts(self) -> dict[str, str]:
        """Node → contact, of all nodes that this one may have to speak to."""
        found = dict(h for p in self._proposals.proposals.values() for h in p.record.hosts.items())
        for member in self.members.values():
            if member.preparing is not None:
                found |= member.preparing.record.hosts
        for record in self.records.values():
            found |= record.hosts
        return found

    def is_dead(self, node: str) -> bool:
        """True if a node was not heard for long."""
        return self.detector.is_dead(node, self._now)

    def health(self, deployment: str) -> dict[str, str]:
        """For each member of a deployment "alive", "dead for … s", or "unknown" before it could be heard.

        Raises:
            DeployError: it is not on this node.
        """
        return self.detector.health(self._record(deployment).hosts, self._now)

    def changing(self, deployment: str) -> str:
        """Which change of a deployment is under way here; "" if none is."""
        for member in self.members.values():
            if member.deployment == deployment and member.preparing is not None:
                return member.preparing.describe()
        return ""

    def _record(self, deployment: str) -> Record:
        record = self.records.get(deployment)
        if record is None:
            there = choices(deployment, sorted(self.records))
            raise DeployError(f"node {self.name} has no deployment {deployment!r}{there}")
        return record

    # --- what is asked here

    def propose(
        self,
        wanted: Record,
        *,
        lost: Iterable[str] = (),
        patience: float = 10.0,
        done: Done = lambda outcome: None,
    ) -> None:
        """Tries to have a record decided; it begins with the next ``tick``.

        Args:
            wanted: as ``Record.first`` or ``Record.edited`` make it.
            lost: nodes that are dead for good: they are not waited for, and stones that leave them begin
                anew.
            patience: seconds that the nodes have to get ready.
            done: told what became of it, once, from within another call.

        Raises:
            DeployError: it cannot be proposed here: it is not the next version of what is.
        """
        self._proposals.propose(wanted, lost, patience, done)

    def released(self, deployment: str, stone: str) -> None:
        """All that came with a stone has gone on safely, so its snapshot can be forgotten."""
        record = self.records.get(deployment)
        if record is not None:
            self.durable.release(record.birth, stone)

    def put_away(self, snapshots: Mapping[str, Mapping[str, bytes]]) -> None:
        """Keeps what stones are, deployment → stone → snapshot, for ``Site.start`` of the node's next life;
        nothing may pass them from now on."""
        for deployment, stones in snapshots.items():
            self.durable.put_away(self._record(deployment).birth, stones)

    # --- what comes

    def heard(self, peer: str, now: float) -> None:
        """There was another sign of life from a node."""
        self.detector.hear(peer, now)

    def receive(self, peer: str, data: bytes | memoryview, now: float) -> None:
        """Takes a note; call ``tick`` soon after. What is wrong with it is counted."""
        self._now = now
        self.detector.hear(peer, now)
        try:
            message = m.unpack(data)
        except DeployError as error:
            self._refuse("malformed", peer, str(error))
            return
        self._take(peer, message, now)
        self._take_own(now)

    def _take_own(self, now: float) -> None:
        while self._inbox:
            self._take(self.name, self._inbox.popleft(), now)

    def tell(self, peer: str, message: m.Message) -> None:
        """Says something to a node, perhaps to itself."""
        if peer == self.name:
            self._inbox.append(message)
        else:
            self._send(peer, m.pack(message))

    def _refuse(self, kind: str, peer: str, reason: str) -> None:
        self.refused[kind] += 1
        count = self.refused[kind]
        if mishaps.is_due(count - 1, count):
            _log.warning(
                "node %s refused a note of %s (%s, %d so far): %s", self.name, peer, kind, count, reason
            )

    def _take(self, peer: str, message: m.Message, now: float) -> None:
        match message:
            case m.State():
                self._compare(peer, message.versions)
            case m.Applied():
                self._proposals.applied(peer, message.at.birth, message.at.version)
            case _ if isinstance(message, m.Answer):
                self._proposals.answer(peer, message, now)
            case m.Fetch() | m.Piece():
                self._pass_snapshot(peer, message, now)
            case _:
                self._control(peer, message, now)

    def _pass_snapshot(self, peer: str, message: m.Fetch | m.Piece, now: float) -> None:
        member = self.members.get(message.at.birth)
        if member is None or member.preparing is None:
            return
        if isinstance(message, m.Fetch):
            member.preparing.fetch(peer, message)
        else:
            member.preparing.take(peer, message, now)

    def _control(
        self,
        peer: str,
        message: m.Prepare | m.Close | m.Settle | m.Accept | m.Cancel | m.Chosen,
        now: float,
    ) -> None:
        if isinstance(message, m.Chosen):
            at = m.Decision(message.record.deployment, message.record.birth, message.record.version)
        elif message.ballot.node == peer:
            at = message.at
        else:
            self._refuse("unauthorised", peer, f"it speaks for {message.ballot.node}")
            return
        against = isinstance(message, m.Prepare) and message.record is None and message.base is None
        if isinstance(message, m.Accept | m.Chosen):
            against = message.record.graph is None
        if not self._may(peer, at, against):
            reason = (
                f"node {self.name} does not let {peer} change deployment {at.deployment!r}; start it with "
                f"--control {peer} too"
            )
            self._refuse("unauthorised", peer, reason)
            if isinstance(message, m.Prepare):
                self.tell(peer, m.Unable(at, message.ballot, reason))
        elif isinstance(message, m.Chosen):
            self._chosen(peer, message.record, now)
        else:
            member = self._member(at.deployment, at.birth, now)
            if isinstance(message, m.Prepare):
                member.prepare(peer, message, now)
            elif isinstance(message, m.Close | m.Settle):
                member.go_on(message, now)
            elif isinstance(message, m.Accept):
                member.accept(peer, message, now)
            else:
                member.cancel(message)

    def _may(self, peer: str, at: m.Decision, against: bool) -> bool:
        """True if a node may take part in a decision: it is a member, or may deploy here."""
        record, member = self.durable.replica(at.birth).record, self.members.get(at.birth)
        if peer == self.name or self._permits(peer, "deploy"):
            return True
        if (record is not None and peer in record.hosts) or (member is not None and member.knows(peer)):
            return True
        # To vote against what this node has no part in helps others to an end, and does nothing here.
        known = record is not None or (member is not None and member.preparing is not None)
        few = sum(map(is_open, self.durable.replicas.values())) < _MOST_OPEN
        return not known and few and against

    def _chosen(self, peer: str, record: Record, now: float) -> None:
        self._proposals.learn(record, now)
        self._proposals.applied(peer, record.birth, record.version)
        concerns = record.birth in self.durable.replicas or (
            record.graph is not None and self.name in record.hosts
        )
        if concerns:
            self._member(record.deployment, record.birth, now).learn(record)
        if not concerns or self.durable.replica(record.birth).version >= record.version:
            self.tell(peer, m.Applied(m.Decision(record.deployment, record.birth, record.version)))

    def _compare(self, peer: str, versions: list[m.Decision]) -> None:
        """Tells who is behind what was decided, and asks who is ahead."""
        behind = []
        for at in versions:
            self._proposals.applied(peer, at.birth, at.version)
            replica = self.durable.replica(at.birth)
            if replica.record is not None and replica.version > at.version:
                self.tell(peer, m.Chosen(replica.record))
            elif replica.version < at.version:
                behind.append(at._replace(version=replica.version))
        if behind:
            self.tell(peer, m.State(behind))

    def namesake(self, deployment: str, birth: str) -> str:
        """Why this node cannot have a deployment, because of another one of its name; "" if it can."""
        own = self.records.get(deployment)
        others = [m for b, m in self.members.items() if b != birth and m.deployment == deployment]
        begun = any(m.preparing is not None and m.preparing.begun for m in others)
        if (own is None or own.birth == birth) and not begun:
            return ""
        return (
            f"node {self.name} has another deployment {deployment!r} already; undeploy it first, or give the "
            f"graph another name"
        )

    # --- time

    def tick(self, now: float) -> float:
        """Does what is due; gives when to be called again at the latest, if nothing comes before."""
        self._now = now
        due = []
        for birth, member in list(self.members.items()):
            try:
                at = member.tick(now)
            except EvflowError:
                raise
            except CONTAINED as error:
                # It costs this deployment's change, and no other deployment anything.
                mishaps.tell(_log, f"deployment {member.deployment}", "its change does not go on", error)
                at = now + _AFTER_FAILURE
            if at is not None:
                due.append(at)
            replica = self.durable.replica(birth)
            if member.preparing is None and not is_open(replica) and not self.durable.is_member(replica):
                del self.members[birth]
        self._take_own(now)
        at = self._proposals.tick(now)
        if at is not None:
            due.append(at)
        if now >= self._gossip_at:
            self._gossip_at = now + _GOSSIP
            self._gossip(now)
        due.append(now if self._inbox else self._gossip_at)
        self._take_own(now)
        return max(now, min(due))

    def _gossip(self, now: float) -> None:
        """Tells all members of all deployments the versions that this node is at."""
        self.detector.expect(self.hosts, now)
        versions: dict[str, list[m.Decision]] = {}
        for record in self.records.values():
            for node in record.hosts:
                at = m.Decision(record.deployment, record.birth, record.version)
                versions.setdefault(node, []).append(at)
        for node, known in versions.items():
            if node != self.name:
                self.tell(node, m.State(known))
        self._proposals.fall_back(now)
