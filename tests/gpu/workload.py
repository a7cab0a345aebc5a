"""Subscriptions and events made at random, dense in what is hard, and what an engine must answer."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from evflow.matching import Matcher
from evflow.matching.model import Circle, Constraint, Filter, GlobeCircle, Op, Subscription

__all__ = ["Workload", "answers", "differences"]

TEXTS = ("", "a", "ab", "abc", "bc", "b", "é", "éa", "ab" * 20, "\uffff", "\U0001f300")
NUMBERS = (0.0, -0.0, 1.0, 2.0, 2.5, -1.0, 1e300, 5e-324, float("inf"), float("-inf"), float("nan"))
COMPARED = (Op.EQ, Op.NE, Op.LT, Op.LE, Op.GT, Op.GE)
NEGATED = (Op.NOT_PREFIX, Op.NOT_SUFFIX, Op.NOT_CONTAINS)
ON_TEXT = (*COMPARED, Op.PREFIX, Op.SUFFIX, Op.CONTAINS, *NEGATED)


@dataclass
class Workload:
    """A source of subscriptions and events.

    Attributes:
        seed: of everything.
        names: how many names of attributes there are.
        space: ``plane`` or ``globe``.
        area: how often a filter has an area.
        most: the most constraints of a filter.
        hit: how often a constraint is one that most events satisfy.
    """

    seed: int
    names: int = 6
    space: str = "plane"
    area: float = 0.5
    most: int = 4
    hit: float = 0.5
    random: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)

    def name(self) -> str:
        return f"n{self.random.randrange(self.names)}"

    def constraint(self) -> Constraint:
        pick = self.random
        if pick.random() < 0.15:
            return Constraint(self.name(), Op.EXISTS)
        if pick.random() < 0.5:
            easy = pick.random() < self.hit
            value = pick.choice((-2.0, -1.0)) if easy else pick.choice(NUMBERS)
            return Constraint(self.name(), Op.GT if easy else pick.choice(COMPARED), value)
        easy = pick.random() < self.hit
        op = pick.choice((Op.PREFIX, Op.CONTAINS, Op.GE)) if easy else pick.choice(ON_TEXT)
        return Constraint(self.name(), op, "" if easy else pick.choice(TEXTS))

    def place(self) -> tuple[float, float]:
        """A point of a small lattice, so that many lie exactly on a circle; sometimes any, or far away."""
        pick = self.random
        if self.space == "globe":
            edge = ((90.0, 0.0), (-90.0, 12.0), (0.0, 180.0), (0.0, -180.0), (45.0, 179.999))
            return (
                pick.choice(edge) if pick.random() < 0.2 else (pick.uniform(-90, 90), pick.uniform(-180, 180))
            )
        if pick.random() < 0.2:
            return pick.uniform(-20, 20), pick.uniform(-20, 20)
        if pick.random() < 0.05:
            return pick.choice(((1e30, -1e30), (3e38, 0.0), (1e-40, -1e-40), (-1e7, 1e7)))
        return float(pick.randrange(-12, 13)), float(pick.randrange(-12, 13))

    def radius(self) -> float:
        pick = self.random
        if self.space == "globe":
            return pick.choice((0.0, 1.0, 1e3, 1e5, 1e6, 5e6, 3e7))
        return pick.choice((0.0, 0.5, 1.0, 5.0, 5.0, 13.0, 1e-30, 1e-3, 2e19, 3e38))

    def filter(self) -> Filter:
        constraints = tuple(self.constraint() for _ in range(self.random.randint(0, self.most)))
        if self.random.random() >= self.area:
            return Filter(constraints)
        shape = Circle if self.space == "plane" else GlobeCircle
        return Filter(constraints, shape(*self.place(), self.radius()))

    def subscription(self) -> Subscription:
        return Subscription(tuple(self.filter() for _ in range(self.random.choice((1, 1, 1, 2, 5)))))

    def subscriptions(self, count: int) -> list[Subscription]:
        return [self.subscription() for _ in range(count)]

    def value(self) -> Any:
        pick = self.random
        if pick.random() < 0.1:
            return pick.choice((True, False, 7, b"bytes"))
        return pick.choice(NUMBERS) if pick.random() < 0.5 else pick.choice(TEXTS)

    def event(self) -> dict[str, Any]:
        names = self.random.sample(range(self.names), self.random.randint(0, self.names))
        made = {f"n{i}": self.value() for i in names}
        if self.random.random() < 0.9:
            keys = ("x", "y") if self.space == "plane" else ("latitude", "longitude")
            made |= dict(zip(keys, self.place(), strict=True))
        return made

    def events(self, count: int) -> list[dict[str, Any]]:
        return [self.event() for _ in range(count)]


def answers(matcher: Matcher, events: Sequence[dict[str, Any]]) -> list[list[int]]:
    """For each event the ids in order. One that comes twice stays twice, to be seen."""
    matches = matcher.match_batch(list(events))
    return [np.sort(matches[i]).tolist() for i in range(len(events))]


def differences(matcher: Matcher, oracle: Matcher, events: Sequence[dict[str, Any]]) -> list[str]:
    """What the two say about each event on which they differ."""
    pairs = zip(answers(matcher, events), answers(oracle, events), events, strict=True)
    return [
        f"{event}: found {found}, expected {expected}"
        for found, expected, event in pairs
        if found != expected
    ]
