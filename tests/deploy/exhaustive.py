"""All interleavings of a small world: a few nodes and proposers decide one version, with the code itself.

The network keeps every note and delivers any of them at any time, any number of times: so notes are lost,
duplicated, late and reordered. A node may restart after any step, and then knows what its store has.
Proposers fall silent, are outbid or run out of time at any step. The step of a node depends only on what the
node knows and on the note, so each such step runs once and is remembered.

What must hold is stated in terms of the notes: see ``Worlds``.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any

from evflow.deploy import messages as m
from evflow.deploy.durable import DurableState
from evflow.deploy.member import SILENCE, Member
from evflow.deploy.proposal import Outcome, Proposal
from evflow.deploy.record import Record, touched
from tests.deploy.group import PlainGround
from tests.deploy.simulation.process import MemoryStore

__all__ = ["Violation", "Worlds"]

_LATE = 1e9

_TOLD = m.Promise | m.Accepted | m.Able | m.Quiet | m.Ready | m.Chosen
"""The answers that are delivered; what the others lead to happens at any step anyway."""

_VOTES = m.Promise | m.Accepted


def _itself(record: Record, memo: object) -> Record:
    return record


# It never changes, and to copy all that an actor has of it would take most of the time.
Record.__deepcopy__ = _itself  # type: ignore[attr-defined]


class Violation(AssertionError):
    """A world in which something does not hold."""


class Voter:
    """A node.

    Attributes:
        out: the notes that it has sent since these were last collected: (receiver, note).
        now: its own clock.
    """

    def __init__(self, name: str, base: Record | None, wanted: Record, restarts: bool) -> None:
        self._restarts = restarts
        self.name = self.address = name
        self.out: list[tuple[str, bytes]] = []
        self.now = 0.0
        self.site = PlainGround(name)
        self.entropy = bytes
        self._touched = name in touched(base, wanted)
        self._base = base
        self._birth = wanted.birth
        self._store = MemoryStore()
        self.restart()
        if base is not None:
            self.durable.conclude(base, "", set(), set())

    def restart(self) -> None:
        """Forgets all but what the store has."""
        self.durable = DurableState(self._store, self.name)
        self.member = Member("x", self._birth, self, self.now)

    def silence(self) -> None:
        """Hears no proposer for long."""
        self.now += SILENCE
        self.member.tick(self.now)

    def others(self) -> dict[str, Callable[[Any], None]]:
        """What may happen at any time."""
        return {"restart": Voter.restart, "silence": Voter.silence} if self._restarts else {}

    def tell(self, peer: str, message: m.Message) -> None:
        is_base = isinstance(message, m.Chosen) and message.record == self._base
        if isinstance(message, _TOLD) and not is_base:
            self.out.append((peer, m.pack(message)))

    def namesake(self, deployment: str, birth: str) -> str:
        return ""

    def hear(self, peer: str, message: Any) -> None:
        """A note is delivered."""
        match message:
            case m.Prepare():
                self.member.prepare(peer, message, self.now)
            case m.Accept():
                self.member.accept(peer, message, self.now)
            case m.Cancel():
                self.member.cancel(message)
            case m.Close() | m.Settle():
                self.member.go_on(message, self.now)
            case m.Chosen():
                self.member.learn(message.record)
        self.member.tick(self.now)

    def key(self) -> object:
        """All that its next steps depend on."""
        member, e, now = self.member, self.member.preparing, self.now
        preparing: object = None
        if e is not None:
            flags = (e.refusal, e.begun, e.prepared, e._ready, e._quiet, e._settled, e._sealed)
            preparing = (e.touched and e.ballot, e.change, flags, now - member.heard < SILENCE)
        finishing = now - member._finishing < SILENCE
        return self._touched, tuple(sorted(self._store.kept.items())), preparing, finishing

    def facts(self) -> tuple[str, str]:
        """The change that made its newest record, and the one that it is prepared for; "" for none."""
        replica = self.durable.replica(self._birth)
        learned, prepared = replica.record, replica.prepared
        return (learned.change if learned else ""), (prepared.record.change if prepared else "")


class Proposer:
    """A proposal, and what it told its user.

    Attributes:
        out: as of ``Voter``.
        outcome: what it told its user.
    """

    def __init__(
        self, base: Record | None, record: Record, ballot: m.Ballot, finishes: bool, most: int
    ) -> None:
        self.name, self.address = ballot.node, ballot.change
        self.out: list[tuple[str, bytes]] = []
        self.outcome: Outcome | None = None
        self.proposal = Proposal(self, base, record, ballot, 0.0, done=self._done, finishes=finishes)
        self._base = base
        self._most = most
        self.proposal.tick(0.0)

    def _done(self, outcome: Outcome) -> None:
        assert self.outcome is None, "told twice"
        self.outcome = outcome

    def others(self) -> dict[str, Callable[[Any], None]]:
        """What may happen at any time."""
        p = self.proposal
        found: dict[str, Callable[[Any], None]] = {}
        if p.phase in ("preparing", "accepting"):
            found["late"] = Proposer.late
        if p.phase == "preparing" and not p.finishes and p.proposer.ballot.number < self._most:
            found["outbid"] = Proposer.outbid
        return found

    def late(self) -> None:
        """Runs out of time."""
        self.proposal.tick(_LATE)

    def outbid(self) -> None:
        """Hears that a greater ballot was promised."""
        p = self.proposal
        self.hear(self.name, m.Outbid(p.at, p.proposer.ballot, p.proposer.ballot._replace(node="Z")))

    def tell(self, peer: str, message: m.Message) -> None:
        if not isinstance(message, m.State):
            self.out.append((peer, m.pack(message)))

    def is_dead(self, node: str) -> bool:
        return False

    def hear(self, peer: str, message: Any) -> None:
        """A note is delivered."""
        if isinstance(message, m.Chosen):
            self.proposal.learn(message.record, 0.0)
        else:
            self.proposal.receive(peer, message, 0.0)
        self.proposal.tick(0.0)

    def key(self) -> object:
        """All that its next steps depend on, but for ``of_node``."""
        p = self.proposal
        return p.phase, p.proposer.ballot, p.record.change, p._closed, p._settled, self.facts()

    def of_node(self, node: str) -> object:
        """What it has heard of a node, as far as its phase still uses that."""
        heard, vote, phase = self.proposal._heard[node], self.proposal.proposer, self.proposal.phase
        if phase == "preparing":
            ballot, accepted = vote.promises.get(node, (None, None))
            promise = ballot, accepted and accepted.change
            return promise, heard.able, heard.quiet, heard.ready, heard.unable
        return phase == "accepting" and (node in vote.accepted, node in vote.rejected)

    def facts(self) -> tuple[str, str]:
        """What it told its user, "made", "refused", "unknown" or nothing; and which change was made."""
        if self.outcome is None:
            return "", ""
        if self.outcome.record is not None:
            return "made", self.outcome.record.change
        return "unknown" if "not known" in str(self.outcome.error) else "refused", ""


@dataclass(frozen=True, eq=False)
class Local:
    """What a node or a proposer knows.

    Attributes:
        actor: as it is; a step runs on a copy.
        sent: the notes that it ever sent, as bits.
        facts: what the others, or a check, can see of it.
        kinds: numbers of what it knows, without the names of the nodes: of a node one, of a proposer one for
            each node and one for the rest.
        steps: the steps that were run: a note's number or what happened → what came of it.
    """

    actor: Any
    sent: int
    facts: tuple[Any, ...]
    kinds: tuple[int, ...]
    steps: dict[int | str, Local | None]


@dataclass(frozen=True)
class Reach:
    """What may become of a node by any steps of its own.

    Attributes:
        all: each of them.
        saying: a note's number → each of them in which the node has just sent that note.
    """

    all: dict[Local, None]
    saying: dict[int, dict[Local, None]]

    @cached_property
    def facts(self) -> frozenset[tuple[Any, ...]]:
        """What can be seen of all."""
        return frozenset(local.facts for local in self.all)


World = tuple[tuple[Local, ...], tuple[Local, ...]]
"""Nodes and proposers."""


class Worlds:
    """All worlds in which some proposers want a version decided.

    A record is decided once more than half of the nodes have said that they accepted it with one ballot.

    - no node promises or accepts a ballot after a greater one;
    - no proposer asks to accept two records with one ballot;
    - no two records are decided, at any time;
    - nobody says or learns that a record was decided which was not;
    - each node that the change touches is prepared for it, also after a restart, until the node learns it;
    - no user is told that a change was made which was not, or was not made which was, or ever will be.

    Args:
        base: the version before; None if there is none.
        wanted: ballot → the record proposed with it; None for a proposal that finishes what the first left.
        most_ballot: a proposer with a record that is outbid does not bid more than this number.
        restarts: whether nodes restart, and forget proposers that they do not hear.


    Attributes:
        count: how many worlds there are in which a proposer has just said something.
        decided: the changes decided in some world.
        told: what users were told in some world.
    """

    def __init__(
        self,
        base: Record | None,
        wanted: dict[m.Ballot, Record | None],
        *,
        most_ballot: int = 1,
        restarts: bool = True,
    ) -> None:
        self.count = 0
        self.decided: set[str] = set()
        self.told: set[str] = set()
        first = next(record for record in wanted.values() if record is not None)
        self._base = base
        self._nodes = list(first.hosts)
        self._actors: tuple[list[Any], list[Any]] = (
            [Voter(name, base, first, restarts) for name in self._nodes],
            [Proposer(base, r or first, ballot, r is None, most_ballot) for ballot, r in wanted.items()],
        )
        self._parts = {r.change: [n for n in r.hosts if n in touched(base, r)] for r in wanted.values() if r}
        self._numbers: dict[tuple[str, str, bytes], int] = {}
        self._notes: list[tuple[str, Any, bytes]] = []
        self._inbox = dict.fromkeys([actor.address for actors in self._actors for actor in actors], 0)
        self._to: dict[str, int] = dict.fromkeys(self._nodes, 0)
        self._locals: dict[object, Local] = {}
        self._kinds: dict[object, int] = {}
        self._nexts_of: dict[tuple[Local, int], list[Local]] = {}
        self._reaches: dict[tuple[Local, int], Reach] = {}
        self._checked: set[object] = set()
        self._grown_of: dict[frozenset[tuple[Any, ...]], set[tuple[int, str, str]]] = {}
        self._accepts = 0

    # --- what one does

    def _local(self, actor: Any, sent: int) -> Local:
        before = sent
        for peer, note in actor.out:
            sent |= 1 << self._number(actor, peer, note)
        if isinstance(actor, Voter):
            self._check_order(actor.name, before, sent)
        actor.out = []
        kinds = [actor.key(), *(actor.of_node(node) for node in self._nodes if isinstance(actor, Proposer))]
        key = (actor.address, *kinds, sent)
        if key not in self._locals:
            # With a node's name goes what was sent to it.
            notes = [frozenset(self._notes[n][2] for n in _bits(sent))]
            notes += [
                frozenset(self._notes[n][2] for n in _bits(sent & self._to[node])) for node in self._nodes
            ]
            numbers = tuple(
                self._kinds.setdefault((kind, of), len(self._kinds))
                for kind, of in zip(kinds, notes, strict=False)
            )
            self._locals[key] = Local(actor, sent, (sent, *actor.facts()), numbers, {})
        return self._locals[key]

    def _number(self, actor: Any, peer: str, note: bytes) -> int:
        message: Any = m.unpack(note)
        everybody = isinstance(message, m.Chosen)
        to = message.ballot.change if isinstance(message, m.Answer) else peer
        # What was decided goes round: it may come to everybody from everybody.
        key = ("", "", note) if everybody else (actor.address, to, note)
        if key not in self._numbers:
            number = self._numbers[key] = len(self._notes)
            self._notes.append((actor.name, message, note))
            self._accepts |= isinstance(message, m.Accepted) << number
            for address in self._inbox if everybody else [to]:
                self._inbox[address] |= 1 << number
            if to in self._to and not everybody:
                self._to[to] |= 1 << number
        return self._numbers[key]

    def _step(self, local: Local, what: int | str) -> Local | None:
        """What comes of a step; None if nothing does."""
        if what not in local.steps:
            # The view of keys that a proposal has cannot be copied.
            proposal = getattr(local.actor, "proposal", None)
            kept = [] if proposal is None else [proposal.proposer.acceptors]
            actor = copy.deepcopy(local.actor, {id(each): each for each in kept})
            if isinstance(what, int):
                actor.hear(*self._notes[what][:2])
            else:
                actor.others()[what](actor)
            after = self._local(actor, local.sent)
            local.steps[what] = None if after is local else after
        return local.steps[what]

    def _nexts(self, local: Local, sent: int) -> list[Local]:
        """What may come of one step, with these notes in the network."""
        came = sent & self._inbox[local.actor.address]
        if (local, came) not in self._nexts_of:
            steps = (self._step(local, what) for what in (*local.actor.others(), *_bits(came)))
            self._nexts_of[local, came] = [after for after in steps if after is not None]
        return self._nexts_of[local, came]

    def _reach(self, local: Local, sent: int) -> Reach:
        """What may come of any steps, with these notes in the network."""
        key = (local, sent & self._inbox[local.actor.address])
        if key in self._reaches:
            return self._reaches[key]
        found = self._reaches[key] = Reach({local: None}, {n: {local: None} for n in _bits(local.sent)})
        todo = [local]
        while todo:
            before = todo.pop()
            for after in self._nexts(before, sent):
                for number in _bits(after.sent & ~before.sent):
                    found.saying.setdefault(number, {})[after] = None
                if after not in found.all:
                    found.all[after] = None
                    todo.append(after)
        return found

    # --- what all do

    def explore(self) -> None:
        """Goes through all worlds.

        Nodes only speak to proposers, and no note ever leaves the network. So the steps of a node can wait
        until a proposer hears what came of them, and what a proposer hears can wait until it makes the
        proposer speak. The worlds to tell apart are those in which a proposer has just spoken. Nodes that a
        change touches alike differ only by name.

        Raises:
            Violation: something does not hold.
        """
        voters, proposers = (tuple(self._local(actor, 0) for actor in actors) for actors in self._actors)
        known = {_nameless((voters, proposers))}
        todo: list[World] = [(voters, proposers)]
        while todo:
            world = todo.pop()
            self._check(world)
            for then in self._moves(world):
                key = _nameless(then)
                if key not in known:
                    known.add(key)
                    todo.append(then)
        self.count = len(known)

    def _moves(self, world: World) -> Iterator[World]:
        """Each world in which one of the proposers has spoken next."""
        voters, proposers = world
        said = _all_sent(proposers)
        for place, proposer in enumerate(proposers):
            todo = [(voters, proposer)]
            known = set(todo)
            while todo:
                for then, after in self._heard(*todo.pop(), said):
                    if (then, after) in known:
                        continue
                    known.add((then, after))
                    if after.facts != proposer.facts:
                        yield then, (*proposers[:place], after, *proposers[place + 1 :])
                    else:
                        todo.append((then, after))

    def _heard(
        self, voters: tuple[Local, ...], at: Local, said: int
    ) -> Iterator[tuple[tuple[Local, ...], Local]]:
        """A proposer hears a node, or something else happens to it."""
        for after in self._nexts(at, said):
            yield voters, after
        inbox = self._inbox[at.actor.address]
        for place, voter in enumerate(voters):
            for number, saying in self._reach(voter, said).saying.items():
                if inbox >> number & 1:
                    heard = self._step(at, number)
                    for then in saying if heard is not None else ():
                        assert heard is not None
                        yield (*voters[:place], then, *voters[place + 1 :]), heard

    # --- what must hold

    def _check_order(self, node: str, before: int, after: int) -> None:
        """A node promises and accepts no lesser ballot than it has promised or accepted before."""
        ballots = [
            [
                said.ballot
                for _, said, _ in map(self._notes.__getitem__, _bits(sent))
                if isinstance(said, _VOTES)
            ]
            for sent in (before, after & ~before)
        ]
        if all(ballots) and max(ballots[0]) > min(ballots[1]):
            raise Violation(f"{node} says {min(ballots[1])} after {max(ballots[0])}")

    def _check(self, world: World) -> None:
        voters, proposers = world
        said = _all_sent(proposers)
        reaches = [self._reach(voter, said).facts for voter in voters]
        known = (*reaches, _all_sent(voters), *(proposer.facts for proposer in proposers))
        if known in self._checked:
            return
        self._checked.add(known)
        asked: dict[m.Ballot, Record] = {}
        chosen: list[Record] = []
        for _, message, _ in map(self._notes.__getitem__, _bits(said)):
            if (
                isinstance(message, m.Accept)
                and asked.setdefault(message.ballot, message.record) != message.record
            ):
                raise Violation(f"{message.ballot} is for {asked[message.ballot]} and for {message.record}")
            if isinstance(message, m.Chosen):
                chosen.append(message.record)
        now = self._decided([facts[0] for voter in voters for facts in [voter.facts]], asked)
        for record in chosen:
            if record not in now:
                raise Violation(f"{record} is told as decided; decided is {now}")
        told = [(p.actor.address, *p.facts[1:]) for p in proposers]
        for _, what, change in told:
            self.told.add(what)
            if what == "made" and change not in [record.change for record in now]:
                raise Violation(f"{change} was told as made; decided is {now}")
        may_learn = {record.change for record in chosen} | {self._base.change if self._base else ""}
        # What a node has accepted only grows: of what else is alike the most accepted is enough.
        kinds = [self._grown(facts) for facts in reaches]
        for ends in product(*kinds):
            decided = self._decided([accepted for accepted, _, _ in ends], asked)
            self.decided |= {record.change for record in decided}
            if len(decided) > 1:
                raise Violation(f"two are decided: {decided}")
            for node, (_, learned, prepared) in zip(self._nodes, ends, strict=True):
                if learned not in may_learn:
                    raise Violation(f"{node} has learned {learned}, which nobody told it")
                for record in decided:
                    if node in self._parts.get(record.change, ()) and record.change not in (
                        learned,
                        prepared,
                    ):
                        raise Violation(f"{node} is not prepared for {record.change}, which is decided")
            for change, what, _ in told:
                if what == "refused" and change in [record.change for record in decided]:
                    raise Violation(f"{change} is decided, and its user was told that it was not made")

    def _grown(self, facts: frozenset[tuple[Any, ...]]) -> set[tuple[int, str, str]]:
        """Of a node the sets of notes of what it has accepted, what it has learned, and is prepared for."""
        if facts not in self._grown_of:
            found = {(sent & self._accepts, learned, prepared) for sent, learned, prepared in facts}
            self._grown_of[facts] = {
                (a, *rest)
                for a, *rest in found
                if not any(a != b and a & b == a and rest == r for b, *r in found)
            }  # type: ignore[misc]
        return self._grown_of[facts]

    def _decided(self, sent: list[int], asked: dict[m.Ballot, Record]) -> list[Record]:
        """What is decided, if the nodes have sent these notes."""
        votes: list[m.Ballot] = []
        for each in sent:
            messages = [self._notes[n][1] for n in _bits(each)]
            votes += [message.ballot for message in messages if isinstance(message, m.Accepted)]
        found: list[Record] = []
        for ballot, record in asked.items():
            if 2 * votes.count(ballot) > len(self._nodes) and record not in found:
                found.append(record)
        return found


def _nameless(world: World) -> object:
    voters, proposers = world
    columns = [
        (*voter.kinds, *(proposer.kinds[1 + place] for proposer in proposers))
        for place, voter in enumerate(voters)
    ]
    return tuple(sorted(columns)), tuple(proposer.kinds[0] for proposer in proposers)


def _all_sent(locals: tuple[Local, ...]) -> int:
    sent = 0
    for local in locals:
        sent |= local.sent
    return sent


def _bits(bits: int) -> Iterator[int]:
    while bits:
        low = bits & -bits
        bits ^= low
        yield low.bit_length() - 1
