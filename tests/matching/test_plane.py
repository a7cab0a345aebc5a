"""A circle on the plane holds the points that Python's floats say, in every engine and way to match."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from evflow.matching import Matcher
from evflow.matching.model import LIMIT, Circle, Constraint, Filter, Op
from tests.examples import tried
from tests.matching.engines import Case, every_engine
from tests.matching.side import Side

Point = tuple[float, float]

NORTHINGS = [5_600_000.24, 400_000.0, 9_999_999.999]
"""As in metric maps, where float32 has steps of half a metre."""

RADII = [0.0, 5e-324, 1e-170, 1e-40, 1e-10, 0.1, 0.24, 5.0, 250.0, 1e5, 1e19, 1e25, LIMIT]
STEPS = [(0.0, 0.0), (1.0, 0.0), (0.0, -1.0), (0.6, 0.8), (-0.8, 0.6), (0.9999999, 0.0), (0.0, 1.0000001)]

coordinates = st.one_of(
    st.sampled_from([0.0, 0.1, 1e-40, -1e30, LIMIT, -LIMIT, *NORTHINGS]),
    st.floats(0, 1e7),
    st.floats(-LIMIT, LIMIT),
)
circles = st.builds(
    Circle, coordinates, coordinates, st.sampled_from(RADII) | st.floats(0, 500) | st.floats(0, LIMIT)
)


def holds(area: Circle, x: float, y: float) -> bool:
    """What Python's floats say."""
    dx, dy = x - area.x, y - area.y
    return dx * dx + dy * dy <= area.radius * area.radius


def near_rim(area: Circle, step: Point, ulps: Point) -> Point:
    """A point in a direction from the centre, moved by some steps of float64."""
    place = []
    for centre, part, ulp in zip((area.x, area.y), step, ulps, strict=True):
        at = centre + part * area.radius
        for _ in range(int(abs(ulp))):
            at = math.nextafter(at, math.copysign(math.inf, ulp))
        place.append(min(max(at, -LIMIT), LIMIT))
    return place[0], place[1]


@st.composite
def scenes(draw: st.DrawFn) -> tuple[list[Circle], list[Point]]:
    """Circles, and points at their centres, rims and just beside them."""
    areas = draw(st.lists(circles, min_size=1, max_size=6))
    ulps = st.integers(-2, 2)
    points = st.builds(near_rim, st.sampled_from(areas), st.sampled_from(STEPS), st.tuples(ulps, ulps))
    return areas, draw(st.lists(points, min_size=1, max_size=6))


def expected(areas: Sequence[Circle], points: Sequence[Point]) -> list[list[int]]:
    return [[id for id, area in enumerate(areas) if holds(area, *point)] for point in points]


def in_all_ways(matcher: Matcher, points: Sequence[Point]) -> list[list[list[int]]]:
    """What points match: one by one, as dicts, columns and prepared."""
    dicts = [{"x": x, "y": y} for x, y in points]
    columns = dict(zip("xy", np.array(points, np.float64).T, strict=True))
    found: list[Any] = [[matcher.match(event) for event in dicts]]
    found += [matcher.match_batch(given) for given in (dicts, columns, matcher.prepare(columns))]
    return [[sorted(matches[i].tolist()) for i in range(len(points))] for matches in found]


@every_engine
@settings(max_examples=tried(30), deadline=None, suppress_health_check=list(HealthCheck))
@given(scene=scenes())
def test_a_circle_holds_what_floats_say(case: Case, scene: tuple[list[Circle], list[Point]]) -> None:
    areas, points = scene
    matcher = Matcher(case.engine, **case.options)
    matcher.subscribe_many([Filter((), area) for area in areas])
    assert in_all_ways(matcher, points) == [expected(areas, points)] * 4
    # One by one, then all at once, each circle comes to where another was.
    moved = [*areas[1:], areas[0]]
    for id, area in enumerate(moved):
        matcher.move(id, area.x, area.y, area.radius)
    assert in_all_ways(matcher, points) == [expected(moved, points)] * 4
    x, y, radius = np.array([(area.x, area.y, area.radius) for area in areas]).T
    matcher.move_many(range(len(areas)), x, y, radius)
    assert in_all_ways(matcher, points) == [expected(areas, points)] * 4


@every_engine
def test_a_point_a_quarter_of_a_metre_away_is_not_within_a_decimetre(case: Case, tmp_path: Path) -> None:
    matcher = Matcher(case.engine, **case.options)
    matcher.subscribe("within(400000, 5600000.24, 0.1)")
    points = [(400000.0, 5600000.0), (400000.0, 5600000.24), (400000.09, 5600000.24), (400000.0, 5600000.48)]
    matcher.save(tmp_path)
    for one in (matcher, Matcher.load(tmp_path)):
        assert in_all_ways(one, points) == [[[], [0], [0], []]] * 4


@every_engine
def test_a_rim_belongs_to_its_circle_and_the_next_number_does_not(case: Case) -> None:
    random, matcher, points = Random(1), Matcher(case.engine, **case.options), []
    for size in (1, 25, 10**4):
        for _ in range(4):
            # Whole numbers, so that nothing is rounded.
            x, y = random.randrange(10**6), random.randrange(4 * 10**6, 6 * 10**6)
            matcher.subscribe(f"within({x}, {y}, {5 * size})")
            on, beyond = (x + 3.0 * size, y + 4.0 * size), math.nextafter(y + 4.0 * size, math.inf)
            away = Fraction(on[0] - x) ** 2 + (Fraction(beyond) - y) ** 2
            assert away > (5 * size) ** 2
            points += [on, (on[0], y + 4.0 * size + 1e-6)]
    for id, matches in enumerate(matcher.match_batch([{"x": x, "y": y} for x, y in points])):
        assert (id // 2 in matches) == (id % 2 == 0)


@pytest.mark.parametrize("spread", [0.0, 2.0, 5e5], ids=["one place", "crowded", "spread"])
@pytest.mark.parametrize("names", ["", "a", "aB"])
def test_the_index_is_exact_wherever_it_files_a_circle(spread: float, names: str) -> None:
    random, side = Random(len(names)), Side()
    filters: list[Filter] = []
    points: list[Point] = []
    events: list[dict[str, Any]] = []
    for number in range(320):
        x, y = (centre + random.uniform(-spread, spread) for centre in (400_000.0, 5_600_000.24))
        area = Circle(x, y, random.choice([0.0, 0.1, 0.24, random.uniform(0, 3)]))
        constraints = [Constraint("a", random.choice([Op.LT, Op.GE]), 5.5)] if "a" in names else []
        constraints += [Constraint("B", Op.EQ, f"v{number % 40}")] if "B" in names else []
        filters.append(Filter(tuple(constraints), area))
        if number % 64 == 0:
            ulps = float(random.randint(-1, 1)), float(random.randint(-1, 1))
            here = [near_rim(area, step, ulps) for step in STEPS]
            points += here
            events += [{"x": x, "y": y, "a": 3.0 + y % 5, "B": f"v{number % 40}"} for x, y in here]
    ids = side.add(filters)
    assert side.check(events)
    # Circles come to where points on other rims were, and leave.
    side.move(ids[:150], [random.choice(points) for _ in range(150)], None)
    side.move(ids[150:220], [random.choice(points) for _ in range(70)], 0.1)
    side.remove(ids[1::3])
    side.add(filters[:150])
    assert side.check(events)


def test_many_circles_in_reach_of_float32_are_told_apart_by_float64() -> None:
    random = np.random.default_rng(7)
    x, y = random.uniform(-3, 3, (2, 3000)) + np.array([[400_000.0], [5_600_000.0]])
    radius = random.choice([0.0, 0.1, 0.3, 1.0], 3000)
    matcher = Matcher("index")
    matcher.subscribe_many([Filter((), Circle(*area)) for area in zip(x, y, radius, strict=True)])
    at = random.uniform(-3, 3, (200, 2)) + np.array([400_000.0, 5_600_000.0])
    dx, dy = at[:, :1] - x, at[:, 1:] - y
    inside = dx * dx + dy * dy <= radius * radius
    matches = matcher.match_batch({"x": at[:, 0], "y": at[:, 1]})
    assert [sorted(matches[i].tolist()) for i in range(200)] == [
        np.flatnonzero(row).tolist() for row in inside
    ]
