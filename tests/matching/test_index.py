from __future__ import annotations

import math
from itertools import combinations
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evflow.errors import SubscriptionError
from evflow.matching import Matcher
from evflow.matching.index.filing import radius_of
from evflow.matching.model import Circle, Constraint, Filter, GlobeCircle, Op, Subscription
from tests.matching.side import Side, circle, constraint, event, number, point

RANDOM_EVENTS = 12


@pytest.mark.slow
def test_filters_on_the_same_names_are_split_by_their_sharpest_constraint() -> None:
    random, side = Random(1), Side()
    side.add([Filter(tuple(constraint(random, name) for name in "aBc")) for _ in range(3000)])
    assert side.check([event(random, "aBc", 1.0) for _ in range(RANDOM_EVENTS)]) > 0
    told = side.told()
    assert told["signatures"] == 1
    assert told["sharp.filters"] > 1000
    assert told["own.filters"] + told["sharp.filters"] <= told["filters"] == 3000


@pytest.mark.slow
def test_ten_thousand_constraints_on_one_name_are_compared_in_columns() -> None:
    random, side = Random(2), Side()
    side.add(
        [Filter((Constraint("a", Op.GT, float(i)), Constraint("a", Op.NE, 40.0))) for i in range(10_000)]
    )
    events = [{"a": value} for value in (-1.0, 0.0, 39.5, 40.0, 40.5, 9999.0, 1e9, float("nan"), "text")]
    assert side.check(events) == 0 + 0 + 40 + 0 + 41 + 9999 + 10_000
    side.remove(random.sample(range(10_000), 9_900))
    side.check(events)


def _narrow(random: Random) -> Filter:
    """A range of up to a hundredth of its value, of any size and sign, with or without other constraints."""
    low = random.choice((-1, 1)) * 10 ** random.uniform(-4, 4)
    high = low + abs(low) * 10 ** random.uniform(-6, -2)
    ends = random.choice(((Op.GT, Op.LT), (Op.GE, Op.LE), (Op.GE, Op.LT)))
    made = [Constraint("p", ends[0], low), Constraint("p", ends[1], high)]
    if random.random() < 0.3:
        made.append(constraint(random, random.choice("pqS")))
    return Filter(tuple(made), circle(random, 0.5) if random.random() < 0.2 else None)


@pytest.mark.slow
def test_narrow_ranges_are_found_by_buckets_of_their_size(tmp_path: Path) -> None:
    random, side = Random(21), Side()
    filters = [_narrow(random) for _ in range(2500)]
    # Those around zero, and at the least of buckets of every size.
    filters += [Filter((Constraint("p", Op.GE, -1e-3), Constraint("p", Op.LE, n * 1e-7))) for n in range(20)]
    for n in range(-20, 20):
        filters.append(Filter((Constraint("p", Op.GE, 2.0**n), Constraint("p", Op.LE, 2.0**n * 1.001))))
        filters.append(Filter((Constraint("p", Op.GE, 2.0**n * 0.999), Constraint("p", Op.LE, 2.0**n))))
    ids = side.add(filters)

    def events() -> list[dict[str, object]]:
        found: list[dict[str, object]] = [{"p": value} for value in (0.0, -0.0, float("nan"), "text", 1e300)]
        for one in random.sample(filters, 6):
            low, high = (float(c.value) for c in one.constraints[:2])  # type: ignore[arg-type]
            for value in (low, high, (low + high) / 2, math.nextafter(low, -math.inf)):
                found.append(event(random, "qS", 0.5) | {"p": value})
        return found

    assert side.check(events()) > 10
    assert side.told()["sharp.filters"] > 1500
    for id in random.sample(ids, 1800):
        side.remove([id])
    side.add([_narrow(random) for _ in range(300)])
    side.check(events())
    side.matcher.save(tmp_path)
    side.matcher = Matcher.load(tmp_path)
    side.check(events())


@pytest.mark.parametrize("space", ["plane", pytest.param("globe", marks=pytest.mark.slow)])
def test_whoever_is_elsewhere_is_spared_areas_that_are_all_in_one_place(space: str) -> None:
    random, side = Random(22), Side(space)
    x, y = side.matcher.location
    kind, size = (Circle, 0.01) if space == "plane" else (GlobeCircle, 20_000.0)
    content = [(), (Constraint("a", Op.GT, 5.0),)]
    ids = side.add([Filter(random.choice(content), kind(40.0, 8.0, size)) for _ in range(3000)])
    near = [{x: 40.0 + n * 0.003, y: 8.0, "a": random.choice((4.0, 6.0))} for n in range(6)]
    assert side.check(near) > 3000 and side.check([{x: -40.0, y: 3.0}, {x: 40.0}, {x: 41.0, y: 8.0}]) == 0
    assert side.told()["group.filters"] == 0 and side.told()["cell.filters"] >= 2500
    side.move(ids[:500], [(-40.0, 3.0)] * 500, None)
    side.remove(ids[400:2000])
    side.check([*near, {x: -40.0, y: 3.0, "a": 9.0}])


def test_whoever_is_elsewhere_is_spared_a_crowd_of_areas_that_are_close_to_each_other() -> None:
    random, side = Random(23), Side()
    crowd = [Circle(0.5 + random.gauss(0, 1e-3), 0.5 + random.gauss(0, 1e-3), 0.01) for _ in range(6000)]
    others = [Circle(0.6 + 0.1 * i, 0.6 + 0.1 * j, 0.01) for i in range(4) for j in range(4)]
    side.add([Filter((), area) for area in [*crowd, *others]])
    assert side.check([{"x": 0.5, "y": 0.5}, {"x": 0.508, "y": 0.5}]) > 6000
    assert side.check([{"x": 0.6, "y": 0.7}, {"x": 0.6, "y": 0.5}, {"x": 0.9, "y": 0.9}]) == 2
    # None of the others stands in a list with the crowd.
    assert side.told()["cell.lists"] >= len(others) + 1


def test_areas_that_are_all_the_same_match_together() -> None:
    side = Side()
    side.add([Filter((), Circle(0.5, 0.5, 0.25))] * 3000)
    assert side.check([{"x": 0.5, "y": 0.75}, {"x": 0.5, "y": 0.75001}, {"x": 0.5}]) == 3000


@pytest.mark.slow
def test_one_huge_area_leaves_the_cells_of_the_others_as_they_are() -> None:
    told = []
    for huge in ([], [Filter((), Circle(0.0, 0.0, 1e6)), Filter((), Circle(0.0, 0.0, 1e30))]):
        random, side = Random(3), Side()
        side.add([*huge, *(Filter((), circle(random, 0.01)) for _ in range(3000))])
        side.check([event(random, "") for _ in range(RANDOM_EVENTS)])
        told.append(side.told())
    assert told[0]["cell.lists"] == told[1]["cell.lists"] > 50
    assert told[1]["group.filters"] == 2


def test_zero_radius_holds_its_centre_alone() -> None:
    random, side = Random(4), Side()
    places = [point(random) for _ in range(1500)]
    side.add([Filter((), Circle(x, y, 0.0)) for x, y in places])
    assert side.check([{"x": x, "y": y} for x, y in places[:20]]) == 20
    assert side.check([{"x": x + 1e-6, "y": y} for x, y in places[:20]]) == 0


@pytest.mark.parametrize("radii", [(1e-5, 1e-3, 0.02, 0.3, 5.0), (0.0, 1e-30, 1e-10, 1e15)])
def test_radii_of_any_size_are_kept_in_groups(radii: tuple[float, ...]) -> None:
    random, side = Random(5), Side()
    filters = [Filter((Constraint("a", Op.GE, number(random)),), circle(random, random.choice(radii)))]
    filters += [Filter((), circle(random, random.choice(radii))) for _ in range(1500)]
    side.add(filters)
    events = [event(random, "a") for _ in range(RANDOM_EVENTS)]
    events += [{"x": f.area.x, "y": f.area.y, "a": 9.0} for f in filters[:10] if isinstance(f.area, Circle)]
    side.check(events)


def test_places_far_out_and_nowhere_are_told_apart() -> None:
    random, side = Random(6), Side()
    side.add([Filter((), Circle(1e30, -1e30, 1e25)), Filter((), Circle(-3e38, 3e38, 1.0))])
    side.add([Filter((), Circle(*point(random), 1e-3)) for _ in range(200)])
    far = [(1e30, -1e30), (-3e38, 3e38), (3e38, -3e38), (float("inf"), 0.0), (0.0, float("nan"))]
    assert side.check([{"x": x, "y": y} for x, y in far]) == 2


def test_globe_finds_circles_over_poles_and_the_antimeridian() -> None:
    random, side = Random(7), Side("globe")
    places = [(90.0, 0.0), (-90.0, 20.0), (0.0, 180.0), (10.0, -180.0)]
    spread = [(random.uniform(-90, 90), random.uniform(-180, 180)) for _ in range(1500)]
    side.add([Filter((), GlobeCircle(*place, 200_000.0)) for place in places + spread])
    at = [(89.5, 77.0), (-89.9, -160.0), (0.3, -179.8), (9.9, 179.9), (0.0, 0.0)]
    assert side.check([{"latitude": a, "longitude": b} for a, b in at]) >= 4
    assert side.told()["cell.lists"] > 50


def test_wide_events_after_narrow_ones_are_matched() -> None:
    random, side = Random(8), Side()
    names = "abcdefghijklmnopqrstABCDEF"
    side.add(
        [
            Filter(tuple(constraint(random, n) for n in random.sample(names, random.randint(1, 5))))
            for _ in range(4000)
        ]
    )
    side.check([event(random, "abc", 1.0) for _ in range(RANDOM_EVENTS)])
    assert side.check([event(random, names, share) for share in (0.2, 0.5, 0.9, 1.0)]) > 0


@pytest.mark.parametrize("width", [8, 9, 17, 70])
def test_signature_may_have_many_elements(width: int) -> None:
    side = Side()
    names = [f"name{i}" for i in range(width)]
    side.add([Filter(tuple(Constraint(name, Op.LE, float(limit)) for name in names)) for limit in range(60)])
    full = dict.fromkeys(names, 10.0)
    assert side.check([full, full | {"name3": 40.0}, {**full, "more": 1.0}]) == 50 + 20 + 50
    assert side.check([dict.fromkeys(names[1:], 0.0)]) == 0


def test_numbers_in_the_gap_of_an_operand_are_compared_exactly() -> None:
    side = Side()
    near = [20.3, 20.300000000000004, 20.299999999999997, 20.299999237060547, 20.30000114440918, 20.0]
    for op in (Op.EQ, Op.NE, Op.LT, Op.LE, Op.GT, Op.GE):
        side.add([Filter((Constraint("a", op, value), Constraint("a", Op.NE, 7.0))) for value in near])
    for low, high in combinations(near, 2):
        side.add([Filter((Constraint("a", Op.GE, low), Constraint("a", Op.LT, high)))])
    side.add([Filter((Constraint("a", Op.EQ, value),)) for value in near * 30])
    side.check([{"a": value} for value in [*near, 20.3 + 1e-14, 1e300, -1e300, 5e-324, -0.0]])


def test_many_exclusions_on_one_name_are_all_heeded() -> None:
    random, side = Random(9), Side()
    side.add(
        [
            Filter(
                tuple(Constraint("a", Op.NE, float(random.randrange(9))) for _ in range(random.randint(1, 6)))
            )
            for _ in range(300)
        ]
    )
    side.add(
        [Filter((Constraint("B", Op.NE, "x"), Constraint("B", Op.NE, "y"), Constraint("B", Op.NE, "z")))] * 90
    )
    side.check([{"a": float(i), "B": "wxyz"[i % 4]} for i in range(9)])


def test_patterns_longer_than_those_looked_up_are_found() -> None:
    side = Side()
    side.add(
        [Filter((Constraint("A", Op.CONTAINS, "x" * size),)) for size in (0, 1, 62, 63, 64, 65, 200)] * 20
    )
    side.add([Filter((Constraint("A", Op.PREFIX, f"é{i}"),)) for i in range(200)])
    assert side.check([{"A": "y" + "x" * 64}, {"A": "é17…"}]) == 5 * 20 + 2 + 20


def test_few_subscriptions_of_many_filters_are_reported_once() -> None:
    random, side = Random(10), Side()
    side.add(
        [Subscription(tuple(Filter((constraint(random, "a"), constraint(random, "b"))) for _ in range(700)))]
        * 5
    )
    side.add([Subscription((Filter((Constraint("a", Op.EQ, -1.0),)),) * 3)])
    assert side.check([event(random, "ab", 1.0) for _ in range(RANDOM_EVENTS)]) > 0


def test_few_subscriptions_are_found_in_lists_of_any_length() -> None:
    random, side = Random(11), Side()
    for names, filters in (("a", 300), ("ab", 700), ("bc", 90), ("abc", 40)):
        held = [tuple(constraint(random, name) for name in names) for _ in range(filters)]
        side.add([Subscription(tuple(Filter(given) for given in held[i::3])) for i in range(3)])
    side.add([Subscription((Filter((Constraint("c", Op.GT, 0.0),)),))])
    assert side.check([event(random, names, 1.0) for names in ("a", "ab", "bc", "abc", "c", "")]) > 0


def test_columns_heed_exclusions_that_come_later() -> None:
    side, events = Side(), [{"a": float(i), "b": 1.0} for i in range(9)]
    above = [Constraint("a", Op.GT, i / 40) for i in range(80)]
    side.add([Filter((constraint, Constraint("b", Op.GT, 0.0))) for constraint in above])
    side.check(events)
    for excluded in ([3.0], [3.0, 4.0], [3.0, 4.0, 5.0]):
        others = tuple(Constraint("a", Op.NE, number) for number in excluded)
        side.add([Filter((above[0], Constraint("b", Op.GT, 0.0), *others))])
        side.check(events)
    for _ in range(2):
        side.add([Filter((constraint, Constraint("b", Op.LT, 2.0))) for constraint in above])
        side.check(events)


def test_signatures_with_the_same_hash_are_told_apart() -> None:
    matcher = Matcher("index")
    names = matcher.subscribe_many([f"exists {name}" for name in "abc"])
    engine = matcher._engine
    hashes = engine._arenas["elements"].view("int64")[: 5 * 9].reshape(-1, 5)[:, 0]
    elements = [3 * i + 2 for i in range(3)]
    assert all(hashes[elements])
    matcher.unsubscribe_many(names)
    engine._purge()
    hashes[elements[2]] = hashes[elements[0]] ^ hashes[elements[1]]
    first = matcher.subscribe("exists a and exists b")
    second = matcher.subscribe("exists c")
    assert matcher.match({"a": 1, "b": 2}).tolist() == [first]
    assert matcher.match({"c": 1}).tolist() == [second]
    assert sorted(matcher.match({"a": 1, "b": 2, "c": 3}).tolist()) == sorted([first, second])


def test_filter_with_too_many_constraints_is_refused() -> None:
    matcher = Matcher("index")
    with pytest.raises(SubscriptionError, match="2049 constraints, expected at most 2048"):
        matcher.subscribe(Filter(tuple(Constraint("a", Op.NE, float(i)) for i in range(2049))))


def test_unknown_option_is_refused() -> None:
    with pytest.raises(SubscriptionError, match="fast"):
        Matcher("index", fast=True)


def test_saved_index_takes_changes_after_loading(tmp_path: Path) -> None:
    random, side = Random(11), Side()
    ids = side.add([Filter((constraint(random, "a"),), circle(random, 0.05)) for _ in range(1500)])
    side.matcher.save(tmp_path / "saved")
    side.matcher = Matcher.load(tmp_path / "saved")
    side.move(ids[:300], [point(random) for _ in range(300)], 0.1)
    side.remove(ids[300:900])
    side.add([Filter((constraint(random, "a"), constraint(random, "new"))) for _ in range(900)])
    side.check([event(random, "a") for _ in range(RANDOM_EVENTS)])


class _Raced(list[object]):
    """A list that another thread empties as soon as it was seen to hold something."""

    def __bool__(self) -> bool:
        return True


def test_working_memory_that_another_thread_takes_first_is_made_anew() -> None:
    matcher = Matcher("index")
    matcher.subscribe("a > 3")
    matcher._engine._scratches = _Raced()
    assert matcher.match({"a": 4.0}).tolist() == [0]
    matcher._engine._scratches = _Raced()
    assert matcher.match_batch([{"a": 4.0}, {"a": 2.0}]).ids.tolist() == [0]


@given(st.floats(1.0, 10.0), st.floats(-300.0, 140.0))
def test_circle_is_filed_for_more_than_the_distance_of_any_place_that_it_holds(
    mantissa: float, exponent: float
) -> None:
    """However the square of the distance is rounded, also where it becomes zero."""
    distance = mantissa * 10.0**exponent
    assert radius_of.py_func(0, distance * distance) > distance
