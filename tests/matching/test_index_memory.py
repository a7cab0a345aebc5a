from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest

from evflow.matching import FilterColumns, Matcher
from evflow.matching.model import Constraint, Filter, Op
from tests.matching.side import Side, circle, constraint, event, point


def filters(random: Random, count: int, names: str) -> list[Filter]:
    made = []
    for _ in range(count):
        chosen = random.sample(names, random.randint(0, min(3, len(names))))
        area = circle(random, random.choice((0.0, 0.01, 0.03, 0.4))) if random.random() < 0.6 else None
        made.append(Filter(tuple(constraint(random, name) for name in chosen), area))
    return made


@pytest.mark.parametrize("names", ["aB", "abcdEFGH"])
def test_random_changes_leave_what_the_oracle_says(names: str) -> None:
    random, side = Random(1), Side()
    ids = side.add(filters(random, 1500, names))
    for _ in range(8):
        gone = random.sample(ids, random.choice((20, 400)))
        side.remove(gone)
        ids = list(set(ids) - set(gone)) + side.add(filters(random, len(gone), names))
        moved = random.sample(ids, 300)
        places = [point(random) for _ in moved]
        movable = [(id, at) for id, at in zip(moved, places, strict=True) if side.oracle.held[id][0].area]
        side.move([id for id, _ in movable], [at for _, at in movable], random.choice((None, 0.02, 0.2)))
        side.check([event(random, names) for _ in range(4)])


@pytest.mark.slow
@pytest.mark.parametrize("count", [80])
def test_wide_events_meet_changes_of_many_signatures(count: int) -> None:
    random, side = Random(5), Side()
    names = [f"{'aB'[i % 2]}{i}" for i in range(count)]

    def made(number: int) -> list[Filter]:
        chosen = (random.sample(names, random.randint(2, 4)) for _ in range(number))
        return [Filter(tuple(constraint(random, name) for name in some)) for some in chosen]

    ids = side.add(made(10_000))
    assert side.told()["signatures"] > 100 * count / 2
    for _ in range(4):
        gone = random.sample(ids, random.choice((500, 5000)))
        side.remove(gone)
        ids = list(set(ids) - set(gone)) + side.add(made(len(gone)))
        side.check([event(random, names, share) for share in (0.2, 0.5, 1.0)])


@pytest.mark.slow
def test_memory_stays_where_subscriptions_come_and_go() -> None:
    random, matcher = Random(2), Matcher("index")
    side = Side()
    side.matcher = matcher
    pool = filters(random, 2000, "aBcD")
    ids = matcher.subscribe_many(pool)
    areas = np.array([f.area is not None for f in pool])
    held = []
    for round in range(40):
        half = slice(0, 1000) if round % 2 else slice(1000, 2000)
        matcher.unsubscribe_many(ids[half])
        matcher.subscribe_many(pool[half], ids=ids[half])
        moved = ids[areas]
        matcher.move_many(moved, np.random.default_rng(round).random(len(moved)), np.full(len(moved), 0.5))
        held.append(side.held())
    assert max(held[20:]) <= 1.1 * max(held[:20])


def test_everything_is_given_back_when_all_is_removed() -> None:
    random, side = Random(3), Side()
    for _ in range(3):
        ids = side.add(filters(random, 3000, "abcdefgHIJ"))
        side.remove(ids)
        side.matcher._engine._purge()
        told = side.told()
        assert all(count == 0 for count in told.values()), told
    assert side.check([event(random, "abcdefgHIJ")]) == 0


def test_each_arena_grows_from_nothing() -> None:
    random, side = Random(4), Side()
    names = [f"n{i}" for i in range(300)]
    side.add(
        [
            Filter(
                (Constraint(random.choice(names), Op.GT, 1.0), Constraint(random.choice(names), Op.LT, 9.0))
            )
            for _ in range(5000)
        ]
    )
    assert side.told()["signatures"] > 3000
    events = [dict.fromkeys(random.sample(names, size), 5.0) for size in (1, 4, 10, 11, 60, 300)]
    assert side.check(events) == 5000 + sum(len(side.matcher.match(e)) for e in events[:-1])


def test_filter_of_four_constraints_and_an_area_takes_at_most_120_bytes() -> None:
    rng, side = np.random.default_rng(5), Side()
    count = 60_000
    names = np.array([rng.permutation(5)[:4] for _ in range(count)])
    columns: dict[str, Any] = {
        "names": [f"n{i}" for i in range(5)],
        "texts": [],
        "start": np.arange(count + 1) * 4,
        "name": names.ravel(),
        "op": rng.integers(1, 6, 4 * count),
        "number": rng.integers(0, 100, 4 * count),
        "text": np.full(4 * count, -1),
        "x": rng.random(count),
        "y": rng.random(count),
        "radius": np.full(count, 0.01),
    }
    side.matcher.subscribe_many(FilterColumns(**columns))
    assert side.held() <= 120 * count + (2 << 20)
