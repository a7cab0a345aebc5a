"""Calls of several batches while subscriptions change, calls fail and memory ends: no answer is wrong."""

from __future__ import annotations

from random import Random

import pytest

from evflow.errors import DeviceError
from evflow.gpu import grid
from evflow.matching.matcher import Matcher
from tests.gpu.standin import LAUNCH_FAILED, ORDERS, OUT_OF_MEMORY, StandIn

pytestmark = pytest.mark.slow

FAILURES = {"alloc": OUT_OF_MEMORY, "pinned": OUT_OF_MEMORY} | dict.fromkeys(
    ("copy", "launch", "sync"), LAUNCH_FAILED
)


class Play:
    """Random calls of one engine.

    Attributes:
        live: of each subscription the number that ``a`` has to be more than.
    """

    def __init__(self, random: Random) -> None:
        self.random = random
        self.matcher = Matcher(
            "clcb-grid", batch=random.choice([1, 8, 64, 64, 64]), slots=random.choice([1, 2, 2, 3])
        )
        self.live: dict[int, int] = {}
        self.subscribe(random.choice([10, 600, 1200]))

    def subscribe(self, count: int = 20) -> None:
        least = [self.random.choice([0, 0, 0, 5, 9]) for _ in range(count)]
        ids = self.matcher.subscribe_many([f"a > {number}" for number in least])
        self.live.update(zip(ids.tolist(), least, strict=True))

    def unsubscribe(self) -> None:
        gone = self.random.sample(sorted(self.live), len(self.live) // 3)
        self.matcher.unsubscribe_many(gone)
        for id in gone:
            del self.live[id]

    def match(self) -> None:
        if self.random.random() < 0.5:
            # So that there is little room for what is found next.
            for _ in range(8):
                self.matcher.match({"a": -1})
        values = [self.random.choice([-1, 3, 7, 20]) for _ in range(self.random.choice([1, 3, 20, 20]))]
        found = self.matcher.match_batch([{"a": value} for value in values])
        for i, value in enumerate(values):
            right = sorted(id for id, least in self.live.items() if value > least)
            assert sorted(found[i].tolist()) == right


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
            random.choice([play.match, play.match, play.subscribe, play.unsubscribe])()
        except DeviceError as error:
            assert "out of memory while" in str(error) or "failed while" in str(error)
    for kind, code in FAILURES.items():
        standin.fail(kind, code, after=1 << 40)
    assert sorted(play.matcher.match({"a": 7}).tolist()) == sorted(
        id for id, least in play.live.items() if least < 7
    )
    del play
    assert standin.held() == before
