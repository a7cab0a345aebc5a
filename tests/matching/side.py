"""A matcher of engine ``index`` and the oracle side by side, for many subscriptions."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

from evflow.matching import Matcher
from evflow.matching.model import Circle, Constraint, Filter, Op, Subscription
from tests.matching.oracle import Oracle

NUMERIC = [Op.EQ, Op.NE, Op.LT, Op.LE, Op.GT, Op.GE]
TEXTUAL = [Op.EQ, Op.NE, Op.LT, Op.GE, Op.PREFIX, Op.SUFFIX, Op.CONTAINS, Op.NOT_CONTAINS]


class Side:
    """Both get every call; ``check`` compares what events satisfy."""

    def __init__(self, space: str = "plane") -> None:
        self.matcher = Matcher("index", space=space)
        self.oracle = Oracle(("x", "y") if space == "plane" else ("latitude", "longitude"))

    def add(self, filters: Sequence[Filter | Subscription]) -> list[int]:
        given = [f if isinstance(f, Subscription) else Subscription((f,)) for f in filters]
        ids = self.matcher.subscribe_many(given).tolist()
        for id, subscription in zip(ids, given, strict=True):
            self.oracle.subscribe(id, subscription)
        return ids

    def remove(self, ids: Sequence[int]) -> None:
        self.matcher.unsubscribe_many(list(ids))
        for id in ids:
            self.oracle.unsubscribe(id)

    def move(self, ids: Sequence[int], places: Sequence[tuple[float, float]], radius: float | None) -> None:
        xs, ys = zip(*places, strict=True)
        radii = None if radius is None else [radius] * len(ids)
        self.matcher.move_many(list(ids), list(xs), list(ys), radii)
        for id, (x, y) in zip(ids, places, strict=True):
            self.oracle.move(id, x, y, radius, None)

    def check(self, events: Sequence[dict[str, Any]]) -> int:
        """Compares one by one and as a batch; gives the number of matches."""
        matches = self.matcher.match_batch(list(events))
        for event, ids in zip(events, matches, strict=True):
            certain, possible = self.oracle.match(event)
            found = set(ids.tolist())
            assert len(found) == len(ids), "reported twice"
            assert certain <= found <= possible, event
            assert found == set(self.matcher.match(event).tolist())
        return len(matches.ids)

    def told(self) -> dict[str, int]:
        return dict(self.matcher.stats().details)

    def held(self) -> int:
        """Bytes of the engine without what matching needs."""
        memory = self.matcher.stats().memory
        return sum(size for name, size in memory.items() if name[:7] == "engine." and name[7:] != "scratch")


def number(random: Random) -> float:
    return random.choice([float(random.randrange(30)), random.randrange(300) / 10])


def text(random: Random) -> str:
    return "".join(random.choices("abc", k=random.randrange(7)))


def constraint(random: Random, name: str) -> Constraint:
    """Names in capitals have strings."""
    if name.isupper():
        return Constraint(name, random.choice(TEXTUAL), text(random))
    return Constraint(name, random.choice(NUMERIC), number(random))


def point(random: Random) -> tuple[float, float]:
    return random.uniform(0, 1), random.uniform(0, 1)


def circle(random: Random, radius: float) -> Circle:
    return Circle(*point(random), radius)


def event(random: Random, names: Sequence[str], share: float = 0.8) -> dict[str, Any]:
    x, y = point(random)
    happened: dict[str, Any] = {"x": x, "y": y}
    for name in names:
        if random.random() < share:
            happened[name] = text(random) if name.isupper() else number(random)
    return happened
