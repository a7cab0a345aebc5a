"""The replicated decision alone, in all interleavings of a small world; and its rules, each by itself.

The world: three acceptors, and two proposers that each want a value of their own decided. Nothing ever leaves
the network, and each message may come at any time, any number of times: so messages are lost, doubled, late
and out of order, and a process may be silent for as long as it likes. At any time a proposer may forget all
and begin again with another value, or, before it has asked to accept one, bid more, up to some number. What
an acceptor keeps is its ``Register``. A restart finds that as the last step left it, so all that a restart
can cost is an answer, and a world has that where the answer is lost.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from itertools import combinations, permutations, product
from typing import NamedTuple

import pytest

from evflow.deploy.register import NOBODY, Ballot, Proposer, Register

NODES = ("A", "B", "C")


class Prepare(NamedTuple):
    """Promise this ballot."""

    ballot: Ballot


class Accept(NamedTuple):
    """Accept this value."""

    ballot: Ballot
    value: str


class Chosen(NamedTuple):
    """This value was decided."""

    value: str


class Promised(NamedTuple):
    """The ballot is promised; what was accepted before."""

    ballot: Ballot
    before: Ballot | None
    accepted: str | None


class Accepted(NamedTuple):
    """The value of the ballot is accepted."""

    ballot: Ballot


Asked = Prepare | Accept | Chosen
Answer = Promised | Accepted


class Acceptor(NamedTuple):
    """A node: what it keeps, and the answers that it ever gave."""

    register: Register[str]
    said: frozenset[Answer]

    def step(self, asked: Asked) -> Acceptor:
        """A message is delivered to it."""
        register = self.register
        if isinstance(asked, Chosen):
            return Acceptor(register.learn(1, asked.value), self.said)
        if register.version:
            return self
        if isinstance(asked, Prepare):
            after = register.promise(asked.ballot)
            before = register.ballot if register.accepted else None
            answer: Answer = Promised(asked.ballot, before, register.accepted)
        else:
            after = register.accept(asked.ballot, asked.value)
            answer = Accepted(asked.ballot)
        # That a greater ballot is promised is not told: a proposer may bid more at any time.
        return Acceptor(after, self.said if after.promised > asked.ballot else self.said | {answer})


class Try(NamedTuple):
    """A proposer: its ballot, what it has heard on that, and the value that it asks to accept, if any.

    It does not bid more than ``most``.
    """

    ballot: Ballot
    most: int
    promises: frozenset[tuple[str, tuple[Ballot, str | None]]] = frozenset()
    accepted: frozenset[str] = frozenset()
    value: str = ""

    @property
    def proposer(self) -> Proposer[str]:
        """The code, with what this one knows."""
        proposer: Proposer[str] = Proposer(self.ballot, NODES)
        proposer.promises, proposer.accepted = dict(self.promises), set(self.accepted)
        return proposer

    def hear(self, node: str, answer: Answer) -> Try:
        """An answer is delivered to it."""
        proposer, value = self.proposer, self.value
        if isinstance(answer, Promised):
            proposer.hear_promise(node, answer.ballot, answer.before, answer.accepted)
        else:
            proposer.hear_accepted(node, answer.ballot)
        if proposer.may_ask and not value:
            value = proposer.choose(self.ballot.change)
        promises = () if value else proposer.promises.items()
        return Try(self.ballot, self.most, frozenset(promises), frozenset(proposer.accepted), value)

    def others(self) -> Iterator[Try]:
        """What else may happen to it at any time."""
        number, node, change = self.ballot
        if number < self.most:
            yield Try(Ballot(number + 1, node, change + "'"), self.most)
            if not self.value:
                yield Try(Ballot(number + 1, node, change), self.most)

    def asks(self) -> set[Asked]:
        """What it has to say."""
        asked: set[Asked] = {Prepare(self.ballot)}
        if self.value:
            asked.add(Accept(self.ballot, self.value))
        if self.value and self.proposer.is_decided:
            asked.add(Chosen(self.value))
        return asked


class World(NamedTuple):
    """The acceptors, the proposers, and what was ever asked."""

    acceptors: tuple[Acceptor, ...]
    tries: tuple[Try, ...]
    asked: frozenset[Asked]


@cache
def _step(acceptor: Acceptor, asked: Asked) -> Acceptor:
    return acceptor.step(asked)


@cache
def _hear(one: Try, node: str, answer: Answer) -> Try:
    return one.hear(node, answer)


@cache
def _asks(one: Try) -> set[Asked]:
    return one.asks()


@cache
def _reach(acceptor: Acceptor, asked: frozenset[Asked]) -> tuple[set[Acceptor], dict[Answer, set[Acceptor]]]:
    """What may become of an acceptor that is asked this, in any order, any number of times.

    Also: answer → what may be of it when it has just said that.
    """
    # A proposer that asks to accept has no more use for promises.
    done = {each.ballot for each in asked if isinstance(each, Accept)}
    found, todo = {acceptor}, [acceptor]
    saying = {answer: {acceptor} for answer in acceptor.said}
    while todo:
        before = todo.pop()
        for each in asked:
            after = _step(before, each)
            said = {one for one in after.said if isinstance(one, Accepted) or one.ballot not in done}
            after = Acceptor(after.register, frozenset(said))
            for answer in after.said - before.said:
                saying.setdefault(answer, set()).add(after)
            if after not in found:
                found.add(after)
                todo.append(after)
    return found, saying


def _spoken(world: World) -> Iterator[World]:
    """Each world in which one of the proposers has said something new next.

    Acceptors speak to proposers only, and no message ever leaves the network. So what an acceptor does can
    wait until a proposer hears what came of it, and what a proposer hears until it makes that one speak.
    """
    for place, one in enumerate(world.tries):
        known, todo = set(), [(world.acceptors, one)]
        while todo:
            acceptors, now = todo.pop()
            for then in _next(acceptors, now, world.asked):
                asks = _asks(then[1])
                if not asks <= world.asked or then[1].ballot != now.ballot:
                    tries = (*world.tries[:place], then[1], *world.tries[place + 1 :])
                    yield World(then[0], tries, world.asked | asks)
                elif then not in known:
                    known.add(then)
                    todo.append(then)


def _next(
    acceptors: tuple[Acceptor, ...], one: Try, asked: frozenset[Asked]
) -> Iterator[tuple[tuple[Acceptor, ...], Try]]:
    """One thing happens to a proposer."""
    for other in one.others():
        yield acceptors, other
    for place, node in enumerate(NODES):
        for answer, afters in _reach(acceptors[place], asked)[1].items():
            if answer.ballot.node == one.ballot.node and (heard := _hear(one, node, answer)) != one:
                for after in afters:
                    yield (*acceptors[:place], after, *acceptors[place + 1 :]), heard


def _nameless(world: World) -> object:
    """What tells a world from others but for the names of its acceptors."""
    nodes = [
        (hash(acceptor), *(hash((dict(one.promises).get(node), node in one.accepted)) for one in world.tries))
        for acceptor, node in zip(world.acceptors, NODES, strict=True)
    ]
    return tuple(sorted(nodes)), tuple((one.ballot, one.value) for one in world.tries), world.asked


def _decided(saids: tuple[frozenset[Ballot], ...], asked: frozenset[Asked]) -> set[str]:
    """The values that more than half of the acceptors have accepted with one ballot."""
    asks = [each for each in asked if isinstance(each, Accept)]
    return {each.value for each in asks if 2 * sum(each.ballot in said for said in saids) > len(NODES)}


@cache
def _accepted(acceptor: Acceptor) -> frozenset[Ballot]:
    return frozenset(answer.ballot for answer in acceptor.said if isinstance(answer, Accepted))


@cache
def _ends(acceptor: Acceptor, asked: frozenset[Asked]) -> set[frozenset[Ballot]]:
    """The ballots with which an acceptor may accept yet. They only grow, so the largest sets are enough."""
    all_of = {_accepted(after) for after in _reach(acceptor, asked)[0]}
    return {one for one in all_of if not any(one < other for other in all_of)}


@cache
def _check(acceptors: tuple[Acceptor, ...], asked: frozenset[Asked]) -> set[str]:
    """Checks a world; gives what may be decided in it, with what was asked so far."""
    ballots = [each.ballot for each in asked if isinstance(each, Accept)]
    assert len(ballots) == len(set(ballots)), f"two values with one ballot: {asked}"
    now = _decided(tuple(map(_accepted, acceptors)), asked)
    chosen = {each.value for each in asked if isinstance(each, Chosen)}
    assert chosen <= now, f"{chosen} is told as decided; decided is {now}"
    found = set()
    for ends in product(*(_ends(acceptor, asked) for acceptor in acceptors)):
        decided = _decided(ends, asked)
        assert len(decided) <= 1, f"two are decided: {decided}"
        found |= decided
    return found


def _explore(most: dict[str, int]) -> tuple[set[str], int]:
    """Goes through all worlds; gives what is decided in some world, and how many worlds there are.

    Args:
        most: proposer → the greatest number of its ballots.
    """
    for cached in (_step, _hear, _asks, _reach, _ends, _check):
        cached.cache_clear()
    tries = tuple(Try(Ballot(1, node, node.lower()), number) for node, number in most.items())
    asked = frozenset[Asked](Prepare(one.ballot) for one in tries)
    first = World((Acceptor(Register(), frozenset()),) * len(NODES), tries, asked)
    known, todo, decided = {_nameless(first)}, [first], set()
    while todo:
        world = todo.pop()
        decided |= _check(world.acceptors, world.asked)
        for then in _spoken(world):
            key = _nameless(then)
            if key not in known:
                known.add(key)
                todo.append(then)
    return decided, len(known)


def test_at_most_one_value_is_decided_in_any_order_of_events() -> None:
    decided, count = _explore({"A": 2, "B": 1})
    assert decided == {"a", "b", "a'"}
    assert count > 1000


@pytest.mark.slow
def test_at_most_one_value_is_decided_where_both_proposers_begin_again() -> None:
    decided, count = _explore({"A": 2, "B": 2})
    assert decided == {"a", "b", "a'", "b'"}
    assert count > 10_000


def _accept_anything(self: Register[str], ballot: Ballot, value: str) -> Register[str]:
    return replace(self, promised=ballot, ballot=ballot, accepted=value)


def _accept_without_a_promise(self: Register[str], ballot: Ballot, value: str) -> Register[str]:
    return self if ballot < self.promised else replace(self, ballot=ballot, accepted=value)


def _take_any_promise(
    self: Proposer[str], node: str, ballot: Ballot, before: Ballot | None, accepted: str | None
) -> None:
    self.promises[node] = (before or NOBODY, accepted)


FAULTS: dict[str, tuple[type, str, object]] = {
    "the greatest ballot is not the one that counts": (
        Proposer, "left", property(lambda self: min(self.promises.values(), key=lambda each: each[0])[1])
    ),
    "what may be decided is not taken up": (Proposer, "choose", lambda self, own: own),
    "half of the acceptors are enough": (Proposer, "is_majority", lambda self, count: count > 0),
    "lesser ballots are promised": (Register, "promise", lambda self, b: replace(self, promised=b)),
    "any ballot is accepted": (Register, "accept", _accept_anything),
    "what is accepted is not a promise": (Register, "accept", _accept_without_a_promise),
    "promises to an earlier ballot count": (Proposer, "hear_promise", _take_any_promise),
    "acceptances of an earlier ballot count": (
        Proposer, "hear_accepted", lambda self, node, ballot: self.accepted.add(node)
    ),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_each_rule_is_needed(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*FAULTS[fault])
    with pytest.raises(AssertionError, match=r"two are decided|is told as decided"):
        _explore({"A": 2, "B": 1})


def _ballot(number: int) -> Ballot:
    return Ballot(number, "A", f"{number}")


def test_value_of_the_greatest_ballot_is_taken_up() -> None:
    """Whichever acceptors are heard, in any order; if none has accepted anything, the proposer's own value.
    What a node that is not an acceptor has accepted does not matter."""
    orders = [order for pair in combinations(NODES, 2) for order in permutations((*pair, "D"))]
    for accepted, heard in product(product((0, 1, 2, 3), repeat=3), orders):
        votes = dict(zip(NODES, accepted, strict=True))
        proposer: Proposer[str] = Proposer(_ballot(9), NODES)
        for node in heard:
            assert proposer.may_ask is (proposer.count(proposer.promises) == 2)
            number = votes.get(node, 8)
            before, value = (_ballot(number), f"{number}") if number else (None, None)
            proposer.hear_promise(node, proposer.ballot, before, value)
        assert proposer.may_ask
        most = max(votes[node] for node in heard if node in votes)
        assert proposer.choose("own") == (f"{most}" if most else "own")


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5])
def test_majority_is_more_than_half_of_the_acceptors(count: int) -> None:
    proposer: Proposer[str] = Proposer(_ballot(2), "ABCDE"[:count])
    proposer.hear_accepted("X", _ballot(2))
    proposer.hear_rejected("X", _ballot(2), _ballot(3))
    for number, node in enumerate(proposer.acceptors, 1):
        proposer.hear_accepted(node, _ballot(2))
        assert proposer.is_decided is (number > count / 2)
        assert proposer.hear_rejected(node, _ballot(2), _ballot(9 - number))
        assert proposer.is_outbid is (number >= count / 2)
    assert proposer.highest == 8


def test_greater_ballot_begins_anew() -> None:
    proposer: Proposer[str] = Proposer(_ballot(1), "A")
    proposer.hear_promise("A", _ballot(1), None, None)
    proposer.hear_accepted("A", _ballot(1))
    proposer.hear_rejected("A", _ballot(1), _ballot(2))
    proposer.bid(_ballot(3))
    assert not (proposer.may_ask or proposer.is_decided or proposer.is_outbid)
    assert proposer.highest == 2
    assert not proposer.hear_rejected("A", _ballot(1), _ballot(4))
    assert not proposer.is_outbid


def test_step_that_changes_nothing_gives_the_same_register() -> None:
    """So a node that is asked again writes nothing."""
    empty: Register[str] = Register()
    promised = empty.promise(_ballot(2))
    accepted = promised.accept(_ballot(2), "x")
    assert (promised.promised, promised.accepted) == (_ballot(2), None)
    assert (accepted.promised, accepted.ballot, accepted.accepted) == (_ballot(2), _ballot(2), "x")
    assert promised.promise(_ballot(1)) is promised.promise(_ballot(2)) is promised
    assert promised.accept(_ballot(1), "y") is promised
    assert accepted.accept(_ballot(2), "x") is accepted.accept(_ballot(1), "y") is accepted


def test_what_is_learned_ends_the_vote() -> None:
    voted: Register[str] = Register().promise(_ballot(2)).accept(_ballot(2), "x")  # type: ignore[assignment]
    learned = voted.learn(1, "z")
    assert learned == Register(1, "z")
    assert learned.learn(1, "y") is learned
    assert learned.promise(_ballot(1)).learn(3, "w") == Register(3, "w")
