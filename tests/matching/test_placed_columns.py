"""Long lists of areas, whose filters stand in columns as well."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from evflow.matching import Matcher
from evflow.matching.index import layout as at
from evflow.matching.model import Circle, Constraint, Filter, GlobeCircle, Op, Subscription
from tests.matching.side import Side, constraint, event

NAMES = "abC"


def area(random: Random, space: str, spread: float = 0.0) -> Circle | GlobeCircle:
    """A circle around one place, or near it."""
    x, y = (0.5 + random.uniform(-spread, spread) for _ in range(2))
    return Circle(x, y, 0.25) if space == "plane" else GlobeCircle(x, y, 30_000.0)


def filters(random: Random, space: str, count: int, spread: float = 0.0) -> list[Filter]:
    return [
        Filter(tuple(constraint(random, name) for name in NAMES), area(random, space, spread))
        for _ in range(count)
    ]


def events(random: Random, space: str, count: int = 8) -> list[dict[str, object]]:
    """Some within all circles, some within a part, some outside, one nowhere."""
    first, second = ("x", "y") if space == "plane" else ("latitude", "longitude")
    made: list[dict[str, object]] = []
    for i in range(count):
        happened = event(random, NAMES, 1.0)
        del happened["x"], happened["y"]
        made.append(happened | {first: 0.5 + i % 4 * 0.09, second: 0.5})
    return [*made, {key: value for key, value in made[0].items() if key != first}]


def in_columns(side: Side) -> int:
    """How many filters with areas stand in columns."""
    lists = side.matcher._engine._list_view()
    kind, length = lists[:, at.L_INFO // 4] & at.I_KIND, lists[:, at.L_LENGTH // 4]
    return int(length[kind == at.LOCATED | at.COLUMNS].sum())


@pytest.mark.parametrize("space", ["plane", "globe"])
@pytest.mark.parametrize("spread", [0.0, 0.01])
def test_filters_in_one_place_are_compared_in_columns(space: str, spread: float) -> None:
    random, side = Random(1), Side(space)
    side.add(filters(random, space, 1500, spread))
    assert in_columns(side) > 300
    assert side.check(events(random, space)) > 0


@pytest.mark.slow
@pytest.mark.parametrize("space", ["plane", "globe"])
def test_filters_come_to_one_place_and_leave_it(space: str, tmp_path: Path) -> None:
    """All that changes a list in columns: moves into it, within it and out of it, removals, and a file."""
    random, side = Random(2), Side(space)
    ids = side.add(filters(random, space, 1000))
    happened = events(random, space)
    for turn in range(3):
        far, near = random.sample(ids, 100), random.sample(ids, 100)
        side.move(far, [(random.uniform(-80, 80), random.uniform(-80, 80)) for _ in far], None)
        side.move(near, [(0.5, random.uniform(0.3, 0.7)) for _ in near], random.choice([None, 0.1]))
        side.check(happened)
        gone = random.sample(ids, 100)
        side.remove(gone)
        ids = [id for id in ids if id not in gone] + side.add(filters(random, space, 80))
        side.check(happened)
        if turn == 1:
            side.matcher.save(tmp_path / "saved")
            side.matcher = Matcher.load(tmp_path / "saved")
    assert in_columns(side) > 256
    side.remove(ids[20:])
    assert in_columns(side) == 0
    side.check(happened)


def test_exclusions_and_exact_constraints_are_heeded_in_one_place() -> None:
    random, side = Random(3), Side()
    for excluded in ([], [3.0], [3.0, 4.0], [3.0, 4.0, 5.0], [3.1]):
        others = tuple(Constraint("a", Op.NE, number) for number in excluded)
        side.add(
            [Filter((Constraint("a", Op.GT, i / 40), *others), area(random, "plane")) for i in range(300)]
        )
        side.check([{"a": i / 2, "x": 0.5, "y": 0.5} for i in range(12)] + [{"a": 3.1, "x": 0.5, "y": 0.5}])
    assert in_columns(side) > 1000


def test_few_subscriptions_in_one_place_are_reported_once() -> None:
    random, side = Random(4), Side()
    for _ in range(3):
        side.add([Subscription(tuple(filters(random, "plane", 900, 0.05)))])
    side.add([Subscription(tuple(filters(random, "plane", 1)))])
    assert in_columns(side) > 300
    assert side.check(events(random, "plane")) > 0


@pytest.mark.slow
def test_long_lists_that_are_split_into_cells_have_no_columns() -> None:
    random, side = Random(5), Side()
    ids = side.add(filters(random, "plane", 1500))
    before = in_columns(side)
    side.move(ids, [(random.uniform(0, 900), random.uniform(0, 900)) for _ in ids], 0.5)
    side.add([Filter(f.constraints, Circle(i, i, 0.5)) for i, f in enumerate(filters(random, "plane", 4000))])
    assert before > 300 and in_columns(side) == 0
    side.check(events(random, "plane"))
