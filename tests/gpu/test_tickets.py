"""Batches under way while subscriptions change, calls fail and memory ends: no answer is wrong."""

from __future__ import annotations

from random import Random

import pytest

from evflow.errors import DeviceError
from evflow.gpu import grid
from evflow.matching.matcher import Matcher
from tests.gpu.standin import LAUNCH_FAILED, ORDERS, OUT_OF_MEMORY, StandIn

FAILURES = {"alloc": OUT_OF_MEMORY, "pinned": OUT_OF_MEMORY} | dict.fromkeys(
    ("copy", "launch", "sync"), LAUNCH_FAILED
)


class Play:
    """Random calls of one engine, and all states that its subscriptions were in.

    Attributes:
        live: of each subscription the number that ``a`` has to be more than.
        states: what ``live`` was after each change.
        tickets: those to be collected, each with its events, the number of the state that it was submitted
            in, and whether all of it was started then.
    """

    def __init__(self, random: Random) -> None:
        self.random = random
        self.matcher = Matcher(
            "clcb-grid", batch=random.choice([1, 8, 64, 64, 64]), slots=random.choice([1, 2, 2, 3])
        )
        self.live: dict[int, int] = {}
        self.states: list[dict[int, int]] = []
        self.tickets: list[tuple[grid.Ticket, list[int], int, bool]] = []
        self.subscribe(random.choice([10, 600, 1200]))

    def subscribe(self, count: int = 20) -> None:
        least = [self.random.choice([0, 0, 0, 5, 9]) for _ in range(count)]
        ids = self.matcher.subscribe_many([f"a > {number}" for number in least])
        self.live.update(zip(ids.tolist(), least, strict=True))
        self.states.append(dict(self.live))

    def unsubscribe(self) -> None:
        gone = self.random.sample(sorted(self.live), len(self.live) // 3)
        self.matcher.unsubscribe_many(gone)
        for id in gone:
            del self.live[id]
        self.states.append(dict(self.live))

    def submit(self) -> None:
        if not self.tickets:
            # So that there is little room for what these will find.
            for _ in range(8):
                self.matcher.match({"a": -1})
        values = [self.random.choice([-1, 3, 7, 20]) for _ in range(self.random.choice([1, 3, 20, 20]))]
        rows = self.matcher.prepare([{"a": value} for value in values]).rows
        ticket = self.matcher._engine.submit(rows)
        self.tickets.append((ticket, values, len(self.states) - 1, not ticket.waiting))

    def collect(self) -> None:
        if not self.tickets:
            return
        ticket, values, since, started = self.tickets.pop(self.random.randrange(len(self.tickets)))
        found = self.matcher._engine.collect(ticket)
        # What was started has met the subscriptions of then, the rest those of then or later.
        states = self.states[since : since + 1] if started else self.states[since:]
        for i, value in enumerate(values):
            right = [sorted(id for id, least in state.items() if value > least) for state in states]
            assert sorted(found[i].tolist()) in right

    def drop(self) -> None:
        self.tickets[-1:] = []


@pytest.mark.parametrize("seed", range(30))
def test_answers_are_right_or_refused(standin: StandIn, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    before, random = standin.held(), Random(seed)
    standin.configure(order=random.choice(list(ORDERS)), seed=seed)
    monkeypatch.setattr(grid, "ANSWER_BYTES", random.choice([256 << 20, 60_000]))
    play = Play(random)
    for _ in range(40):
        if random.random() < 0.15:
            kind = random.choice(list(FAILURES))
            standin.fail(kind, FAILURES[kind], after=random.randrange(6))
        try:
            random.choice([*[play.submit, play.collect] * 2, play.subscribe, play.unsubscribe, play.drop])()
        except DeviceError as error:
            assert "out of memory while" in str(error) or "failed while" in str(error)
    for kind, code in FAILURES.items():
        standin.fail(kind, code, after=1 << 40)
    assert sorted(play.matcher.match({"a": 7}).tolist()) == sorted(
        id for id, least in play.live.items() if least < 7
    )
    del play
    assert standin.held() == before
