"""A replicated register: which value each of its versions has is decided by Paxos, one decree a version.

Sans-I/O, and it does not know what a value is. ``Register`` is the copy of one node, acceptor and learner.
``Proposer`` tries to have a value decided. A value is decided once a majority of the acceptors have accepted
it with one ballot. The acceptors of a version are given from outside, the same to all of its proposers.
"""

from __future__ import annotations

from collections.abc import Collection, Container
from dataclasses import dataclass, replace
from typing import Annotated, Generic, NamedTuple, TypeVar

from msgspec import Meta

T = TypeVar("T")

Number = Annotated[int, Meta(ge=0, le=(1 << 62) - 1)]


class Ballot(NamedTuple):
    """One try to have a value decided. Ballots are ordered, and no two tries have the same.

    ``change`` is the identity of the try, and of the change that it proposes.
    """

    number: Number
    node: Annotated[str, Meta(max_length=255)]
    change: Annotated[str, Meta(pattern="^([0-9a-f]{32})?\\Z")]

    @property
    def is_of_somebody(self) -> bool:
        """True if a node has made it."""
        return bool(self.node and self.change)

    def above(self) -> Ballot:
        """The least greater ballot; no node has made it."""
        return Ballot(self.number + 1, "", "")


NOBODY = Ballot(0, "", "")
"""Less than every ballot."""


@dataclass(frozen=True)
class Register(Generic[T]):
    """The copy of one node: the newest version that it has learned, and its vote on the next one.

    A step returns the register after it, or the same one if nothing changes. The node writes a new one to
    disk before it answers.

    Attributes:
        version: the newest version that the node has learned; 0 if none.
        value: the value decided for that version; None if none.
        promised: the greatest ballot promised for the next version.
        ballot, accepted: the ballot and the value accepted last for the next version, if any.
    """

    version: int = 0
    value: T | None = None
    promised: Ballot = NOBODY
    ballot: Ballot = NOBODY
    accepted: T | None = None

    def promise(self, ballot: Ballot) -> Register[T]:
        """Promise to accept no lesser ballot. If a greater one is promised already, nothing changes."""
        return replace(self, promised=ballot) if ballot > self.promised else self

    def accept(self, ballot: Ballot, value: T) -> Register[T]:
        """Accept the value that a ballot asks for.

        If a greater one is promised, or this one was accepted already, nothing changes.
        """
        if ballot < self.promised or ballot == self.ballot:
            return self
        return replace(self, promised=ballot, ballot=ballot, accepted=value)

    def learn(self, version: int, value: T) -> Register[T]:
        """Learn what was decided. If the node is at that version or a later one, nothing changes."""
        return Register(version, value) if version > self.version else self


class Proposer(Generic[T]):
    """One try to have a value decided: first it collects promises, then it asks to accept a value.

    Args:
        ballot: its first ballot.
        acceptors: the nodes that decide.

    Attributes:
        ballot: its newest ballot; answers to earlier ones are ignored.
        acceptors: as given.
        promises: node → the ballot and the value that the node had accepted when it promised. A node that is
            not an acceptor may promise too; its promise counts for nothing.
        accepted: the nodes that have accepted.
        rejected: the nodes that have promised a greater ballot.
        highest: the number of the greatest of those ballots; 0 if none.
    """

    def __init__(self, ballot: Ballot, acceptors: Collection[str]) -> None:
        self.acceptors = acceptors
        self.highest = 0
        self.bid(ballot)

    def bid(self, ballot: Ballot) -> None:
        """Begin again with a greater ballot."""
        self.ballot = ballot
        self.promises: dict[str, tuple[Ballot, T | None]] = {}
        self.accepted: set[str] = set()
        self.rejected: set[str] = set()

    def hear_promise(self, node: str, ballot: Ballot, before: Ballot | None, accepted: T | None) -> None:
        """A node promises a ballot; ``accepted`` is the value it has accepted with the ballot ``before``."""
        if ballot == self.ballot:
            self.promises[node] = (before or NOBODY, accepted)

    def hear_accepted(self, node: str, ballot: Ballot) -> None:
        """A node has accepted the value of a ballot."""
        if ballot == self.ballot:
            self.accepted.add(node)

    def hear_rejected(self, node: str, ballot: Ballot, promised: Ballot) -> bool:
        """A node has promised a greater ballot than this one; returns False if that was an earlier one."""
        if ballot != self.ballot:
            return False
        self.rejected.add(node)
        self.highest = max(self.highest, promised.number)
        return True

    def count(self, nodes: Container[str]) -> int:
        """How many of the nodes are acceptors."""
        return sum(node in nodes for node in self.acceptors)

    def is_majority(self, count: int) -> bool:
        """True if ``count`` acceptors are more than half."""
        return 2 * count > len(self.acceptors)

    @property
    def may_ask(self) -> bool:
        """True if a majority has promised, so that the proposer may ask to accept ``choose``."""
        return self.is_majority(self.count(self.promises))

    @property
    def left(self) -> T | None:
        """The value of the greatest ballot accepted so far, which may be decided; None if there is none."""
        promises = [promise for node, promise in self.promises.items() if node in self.acceptors]
        return max(promises, key=lambda promise: promise[0], default=(NOBODY, None))[1]

    def choose(self, own: T) -> T:
        """The value to ask for: the one that may be decided already, or else the proposer's own."""
        return own if self.left is None else self.left

    @property
    def is_decided(self) -> bool:
        """True if a majority has accepted."""
        return self.is_majority(self.count(self.accepted))

    @property
    def is_outbid(self) -> bool:
        """True if no majority is left that could still promise and accept."""
        return not self.is_majority(len(self.acceptors) - self.count(self.rejected))
