"""A matcher and the oracle through the same random sequence of calls."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from evflow.matching.columns.bulk import FilterColumns
from evflow.matching.matcher import Matcher
from evflow.matching.moving import ALONE, MOST
from tests.matching.generate import World
from tests.matching.oracle import Oracle

Make = Callable[..., Matcher]


class Play:
    """One case: what was generated so far, and the three that must agree.

    Args:
        random: the source of all choices.
        make: makes a matcher; takes ``space``.
        folder: where to save; None: matchers are not saved.
    """

    def __init__(self, random: Random, make: Make, folder: Path | None = None) -> None:
        self.random = random
        self.world = World.make(random, random.choice(["plane", "plane", "globe"]))
        self.oracle = Oracle(self.world.location)
        self.matchers = [make(space=self.world.space), Matcher("reference", space=self.world.space)]
        self.folder = folder
        self.prepared: list[tuple[list[dict[str, Any]], list[Any]]] = []

    def run(self, steps: int) -> None:
        self.subscribe_many()
        for _ in range(steps):
            self.random.choice(self.calls())()
            self.check()

    def calls(self) -> list[Callable[[], None]]:
        found = [self.subscribe, self.subscribe_many, self.match_batch, self.match_one]
        if self.oracle.held:
            found += [self.unsubscribe, self.move, self.move_often, self.move_many, self.unsubscribe_many]
        if self.folder is not None:
            found.append(self.save)
        return found

    def check(self) -> None:
        for matcher in self.matchers:
            assert len(matcher) == len(self.oracle.held)

    def subscribe(self) -> None:
        subscription = self.world.subscription()
        free = self.free()
        id = None if self.random.random() < 0.5 else self.random.choice([free, free + 3, 50])
        if id in self.oracle.held:
            id = None
        given: Any = subscription
        if self.random.random() < 0.3:
            given = str(subscription)
        elif len(subscription.filters) == 1 and self.random.random() < 0.5:
            given = subscription.filters[0]
        for matcher in self.matchers:
            assert matcher.subscribe(given, id) == (free if id is None else id)
        self.oracle.subscribe(free if id is None else id, subscription)

    def free(self) -> int:
        return next(id for id in range(len(self.oracle.held) + 1) if id not in self.oracle.held)

    def subscribe_many(self) -> None:
        made = [self.world.subscription() for _ in range(self.random.choice([0, 1, 5, 20]))]
        ids = None
        if self.random.random() < 0.3:
            free = [id for id in range(len(self.oracle.held) + 60) if id not in self.oracle.held]
            ids = self.random.sample(free, len(made))
        given: Any = FilterColumns.from_subscriptions(made) if self.random.random() < 0.5 else made
        found = [matcher.subscribe_many(given, ids) for matcher in self.matchers]
        assert np.array_equal(*found)
        assert ids is None or found[0].tolist() == ids
        for id, subscription in zip(found[0].tolist(), made, strict=True):
            if ids is None:
                assert id == self.free()
            self.oracle.subscribe(id, subscription)

    def unsubscribe(self) -> None:
        id = self.random.choice(sorted(self.oracle.held))
        for matcher in self.matchers:
            matcher.unsubscribe(id)
            assert id not in matcher
        self.oracle.unsubscribe(id)

    def unsubscribe_many(self) -> None:
        held = sorted(self.oracle.held)
        ids = self.random.sample(held, self.random.randrange(len(held) + 1))
        for matcher in self.matchers:
            matcher.unsubscribe_many(ids)
        for id in ids:
            self.oracle.unsubscribe(id)

    def movable(self) -> list[tuple[int, int | None]]:
        """Subscriptions with areas and which filter to move; None for all."""
        found: list[tuple[int, int | None]] = []
        for id, filters in sorted(self.oracle.held.items()):
            located = [i for i, part in enumerate(filters) if part.area is not None]
            if located:
                found.append((id, self.random.choice([None, *located])))
        return found

    def move(self) -> None:
        movable = self.movable()
        if not movable:
            return
        (id, which), (x, y) = self.random.choice(movable), self.world.point()
        radius = self.random.choice([None, self.world.radius()])
        for matcher in self.matchers:
            matcher.move(id, x, y, radius, filter=which)
        self.oracle.move(id, x, y, radius, which)

    def move_often(self) -> None:
        """So many single moves that some wait, and others are made in between."""
        for _ in range(self.random.choice([ALONE, ALONE + 5, ALONE + 30, ALONE + MOST + 9])):
            self.move()

    def move_many(self) -> None:
        movable = self.movable()
        chosen = [self.random.choice(movable) for _ in range(self.random.choice([0, 1, 9]) if movable else 0)]
        points = [self.world.point() for _ in chosen]
        radii = [self.world.radius() for _ in chosen] if self.random.random() < 0.5 else None
        ids = np.array([id for id, _ in chosen], np.int64)
        filters = [-1 if which is None else which for _, which in chosen]
        x, y = np.array(points).reshape(-1, 2).T
        for matcher in self.matchers:
            matcher.move_many(ids, x, y, radii, filters=filters)
        for i, (id, which) in enumerate(chosen):
            self.oracle.move(id, *points[i], None if radii is None else radii[i], which)

    def match_one(self) -> None:
        event = self.world.event()
        found = [matcher.match(event) for matcher in self.matchers]
        self.compare(event, found)

    def match_batch(self) -> None:
        events = [self.world.event() for _ in range(self.random.choice([0, 1, 2, 7]))]
        if self.random.random() < 0.3:
            self.prepared.append((events, [matcher.prepare(events) for matcher in self.matchers]))
        self.compare_batch(events, [events] * len(self.matchers))
        for events, prepared in self.prepared[-2:]:
            self.compare_batch(events, prepared)

    def compare_batch(self, events: list[dict[str, Any]], given: list[Any]) -> None:
        threads = self.random.choice([None, 1, 2, 3])
        pairs = zip(self.matchers, given, strict=True)
        found = [matcher.match_batch(batch, threads) for matcher, batch in pairs]
        for matches in found:
            assert len(matches) == len(events)
            assert matches.offsets.dtype == np.int64 and matches.offsets[-1] == len(matches.ids)
        for i, event in enumerate(events):
            self.compare(event, [matches[i] for matches in found])

    def compare(self, event: dict[str, Any], found: list[Any]) -> None:
        certain, possible = self.oracle.match(event)
        for ids in found:
            assert ids.dtype == np.int32
            assert len(set(ids.tolist())) == len(ids), "an id stands twice"
        ours, reference = (set(ids.tolist()) for ids in found)
        assert certain <= reference <= possible, (event, certain, reference, possible)
        assert ours == reference, (event, ours, reference, self.wrong(ours ^ reference))

    def wrong(self, ids: set[int]) -> dict[int, Any]:
        return {id: [str(part) for part in self.oracle.held.get(id, ())] for id in ids}

    def save(self) -> None:
        assert self.folder is not None
        for i, matcher in enumerate(self.matchers):
            matcher.save(self.folder / str(i))
            self.matchers[i] = Matcher.load(self.folder / str(i))
        self.prepared.clear()
