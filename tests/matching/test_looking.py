"""Looking at subscriptions: by id, all of them, those that are like something, and why they match."""

from __future__ import annotations

import importlib.util
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from evflow.errors import SubscriptionError
from evflow.matching import (
    Circle,
    Constraint,
    Filter,
    FilterColumns,
    GlobeCircle,
    Matcher,
    Op,
    Subscription,
    parse_subscription,
)
from tests.matching.oracle import Oracle, answer, flat, holds

ENGINES = ["reference", "index", *(["two-phase"] if importlib.util.find_spec("numba") else [])]


def value(random: Random) -> Any:
    return random.choice([0, 1, 2.5, -0.0, float("nan"), float("inf"), 20.3, "a", "ab", "", "é𝄞"])


def constraint(random: Random) -> Constraint:
    name, op = random.choice("abc"), random.choice(list(Op))
    if op in (Op.EXISTS, Op.ABSENT):
        return Constraint(name, op)
    if op.names_other:
        return Constraint(name, op, random.choice("abc"))
    return Constraint(name, op, value(random) if op.compares else random.choice(["", "a", "b"]))


def area(random: Random, space: str) -> Circle | GlobeCircle | None:
    x, y, radius = random.choice([0, 1.5, 3]), random.choice([0, 2.5, -200]), random.choice([0, 1, 2.5, 1e7])
    return random.choice([None, Circle(x, y, radius) if space == "plane" else GlobeCircle(x, y, radius)])


def subscription(random: Random, space: str) -> Subscription:
    filters = range(random.choice([0, 1, 1, 1, 2, 3]))
    return Subscription(
        Filter([constraint(random) for _ in range(random.randint(0, 3))], area(random, space))
        for _ in filters
    )


class Both:
    """A matcher, and the same subscriptions in a dict."""

    def __init__(self, engine: str, space: str, seed: int) -> None:
        self.random, self.space = Random(seed), space
        self.matcher = Matcher(engine, space=space, lookup=True)
        self.oracle = Oracle(self.matcher.location)

    @property
    def expected(self) -> dict[int, Subscription]:
        return {id: Subscription(filters) for id, filters in sorted(self.oracle.held.items())}

    def add(self, count: int) -> None:
        many = [subscription(self.random, self.space) for _ in range(count)]
        one = count == 1
        ids = [self.matcher.subscribe(many[0])] if one else self.matcher.subscribe_many(many).tolist()
        for id, one in zip(ids, many, strict=True):
            self.oracle.subscribe(id, one)

    def remove(self, count: int) -> None:
        ids = self.random.sample(sorted(self.oracle.held), min(count, len(self.oracle.held)))
        self.matcher.unsubscribe_many(ids)
        for id in ids:
            self.oracle.unsubscribe(id)

    def move(self, count: int, single: bool) -> None:
        movable = [(id, n) for id, parts in self.oracle.held.items() for n, f in enumerate(parts) if f.area]
        for id, number in self.random.choices(movable, k=count):
            x, y = self.random.uniform(-9, 9), self.random.uniform(-9, 9)
            radius, filter = self.random.choice([None, 2.0, 0.0]), self.random.choice([None, number])
            if single:
                self.matcher.move(id, x, y, radius, filter=filter)
            else:
                reach = None if radius is None else [radius]
                self.matcher.move_many([id], [x], [y], reach, filters=None if filter is None else [filter])
            self.oracle.move(id, x, y, radius, filter)


def _slow(engine: str) -> list[pytest.MarkDecorator]:
    """numba compiles the kernels of two-phase."""
    return [pytest.mark.slow] * (engine == "two-phase")


@pytest.fixture(
    params=[
        pytest.param((engine, space), marks=[pytest.mark.slow] * (engine != "index"), id=f"{engine} {space}")
        for engine in ENGINES
        for space in ("plane", "globe")
    ]
)
def both(request: pytest.FixtureRequest) -> Iterator[Both]:
    made = Both(*request.param, seed=7)
    for count in (60, 1, 1, 0):
        made.add(count)
    yield made


def test_each_subscription_is_what_was_subscribed_whatever_changes(both: Both, tmp_path: Path) -> None:
    for round in range(4):
        both.move(both.random.choice([3, 80]), single=round % 2 == 0)
        both.remove(both.random.choice([1, 30]))
        both.add(both.random.choice([1, 60]))
        both.add(20)
        expected = both.expected
        assert dict(both.matcher.items()) == expected
        assert list(both.matcher) == list(expected)
        assert all(both.matcher[id] == one for id, one in expected.items())
    both.matcher.save(tmp_path / "saved")
    loaded = Matcher.load(tmp_path / "saved")
    assert dict(loaded.items()) == expected
    loaded.unsubscribe(next(iter(expected)))
    assert list(loaded.items()) == list(expected.items())[1:]


def test_most_being_removed_leaves_the_others_as_they_were() -> None:
    matcher = Matcher("reference", lookup=True)
    count = 150_000
    matcher.subscribe_many(FilterColumns.from_arrays(name=["a"], op="==", number=np.arange(count)[:, None]))
    matcher.unsubscribe_many(np.delete(np.arange(count), [5, 70_000]))
    assert [(id, str(one)) for id, one in matcher.items()] == [(5, "a == 5"), (70_000, "a == 70000")]


@pytest.mark.parametrize("id", [2, -1, 2**40])
def test_an_id_without_a_subscription_is_an_error_that_names_it(id: int) -> None:
    matcher = Matcher("reference", lookup=True)
    matcher.subscribe("a > 1")
    for look in (lambda: matcher[id], lambda: matcher.explain({}, id)):
        with pytest.raises(SubscriptionError, match=f"there is no subscription {id}"):
            look()


def test_one_may_end_while_another_looks_at_all() -> None:
    matcher = Matcher("reference", lookup=True)
    matcher.subscribe_many([f"a == {n}" for n in range(3000)])
    looking = matcher.items()
    assert next(looking) == (0, parse_subscription("a == 0"))
    matcher.unsubscribe_many([1, 2000])
    assert [id for id, _ in looking] == [n for n in range(1, 3000) if n != 2000]


def test_subscriptions_are_found_by_what_they_name(both: Both) -> None:
    for name in ("a", "b", "nothing"):
        expected = [
            id
            for id, one in both.expected.items()
            if any(
                each.name == name or (each.op.names_other and each.value == name)
                for part in one.filters
                for each in part.constraints
            )
        ]
        assert both.matcher.find(name=name).tolist() == expected


def test_subscriptions_are_found_by_a_place_in_their_areas(both: Both) -> None:
    for place in ((0.0, 0.0), (1.5, 2.5), (50.0, 50.0)):
        event = dict(zip(both.matcher.location, place, strict=True))
        certain, possible = [], []
        for id, one in both.expected.items():
            told = [answer(Filter(area=part.area), event, place) for part in one.filters if part.area]
            certain += [id] * (True in told)
            possible += [id] * (True in told or None in told)
        found = both.matcher.find(around=place).tolist()
        assert set(certain) <= set(found) <= set(possible)
        assert found == sorted(found)


@pytest.mark.parametrize("around", [("a", 0), (1,), (0, 0, 0), 5, (None, 0), "ab", [[0, 0]], (1j, 0)])
def test_a_place_is_two_numbers(around: Any) -> None:
    for text in ("within(0, 0, 1)", "inside(0, 0, 1, 1)"):
        matcher = Matcher("reference", lookup=True)
        matcher.subscribe(text)
        with pytest.raises(SubscriptionError, match="around: expected two numbers, found"):
            matcher.find(around=around)
        assert matcher.find(around=(float("nan"), 0)).tolist() == []
        assert matcher.find(around=np.array([0, 1])).tolist() == [0]  # type: ignore[arg-type]


def test_subscriptions_are_found_by_their_equals(both: Both) -> None:
    both.move(10, single=True)
    for one in [*both.expected.values(), parse_subscription("elsewhere == 'new'"), Subscription([])]:
        assert both.matcher.find(like=one).tolist() == [id for id, e in both.expected.items() if e == one]


def test_what_is_found_satisfies_all_that_was_asked() -> None:
    matcher = Matcher("reference", lookup=True)
    matcher.subscribe_many(["a > 1", "within(0, 0, 1)", "a > 1 and within(0, 0, 1)"])
    assert matcher.find(name="a", around=(0, 1)).tolist() == [2]
    assert matcher.find().tolist() == [0, 1, 2]
    assert matcher.find(name="a", like="a > 1").tolist() == [0]


EVENTS: list[dict[str, Any]] = [
    {},
    {"a": 1, "b": "ab", "c": 20.3, "x": 0.0, "y": 0.0, "latitude": 0.0, "longitude": 0.0},
    {"a": "", "b": None, "c": [1], "x": 1.5, "y": "2", "latitude": 1.5, "longitude": 160.0},
    {"a": float("nan"), "b": "é𝄞", "x": float("inf"), "y": 3, "latitude": 91, "longitude": 3},
]


@pytest.mark.slow
def test_an_explanation_says_of_each_constraint_what_the_oracle_says(both: Both) -> None:
    for event in EVENTS:
        _explained(both, event)


def _explained(both: Both, event: dict[str, Any]) -> None:
    attributes, matched = flat(event), set(both.matcher.match(event).tolist())
    place = tuple(attributes.get(name) for name in both.matcher.location)
    for id, one in both.expected.items():
        told = both.matcher.explain(event, id)
        assert (told.id, [part.filter for part in told.filters]) == (id, list(one.filters))
        for part in told.filters:
            for reason in part.reasons:
                if isinstance(reason.constraint, Constraint):
                    assert reason.holds == holds(reason.constraint, attributes)
                else:
                    area = answer(Filter(area=reason.constraint), attributes, place)
                    assert area is None or reason.holds == area
            expected = answer(part.filter, attributes, place)
            assert expected is None or part.holds == expected
        assert told.holds == (id in matched)
    matching = both.matcher.explain(event)
    assert [told.id for told in matching] == sorted(matched)
    assert all(told.holds for told in matching)


def test_an_explanation_says_why() -> None:
    matcher = Matcher("reference", lookup=True)
    id = matcher.subscribe(
        "carrier == 'UA' and delay > 45 and origin startswith 'J' and exists remark and within(0, 0, 4)"
    )
    event = {"carier": "UA", "delay": "late", "origin": 7, "remark": ["x"], "x": 3, "y": 4}
    assert str(matcher.explain(event, id)).splitlines()[2:] == [
        "    carrier == 'UA': fails, the event has no carrier (did you mean 'carier'?)",
        "    delay > 45: fails, delay is 'late', a string and not a number",
        "    origin startswith 'J': fails, origin is 7, a number and not a string",
        "    exists remark: holds, remark is there, neither a number nor a string",
        "    within(0, 0, 4): fails, the event is at (3, 4), 5 from the centre",
    ]
    compared = matcher.explain(
        {"a": 2, "b": "x", "c": 1}, matcher.subscribe("a > c and a < b and not exists c")
    )
    assert str(compared).splitlines()[2:] == [
        "    a > c: holds, a is 2 and c is 1",
        "    a < b: fails, a is 2 and b is 'x', a number and a string",
        "    not exists c: fails, c is 1",
    ]
    assert "the event has no place: it has no number y" in str(matcher.explain({"x": 3, "y": "4"}, id))
    assert pickle.loads(pickle.dumps(matcher.explain(event, id))) == matcher.explain(event, id)


def test_distances_on_the_globe_are_in_metres() -> None:
    globe = Matcher("reference", space="globe", lookup=True)
    id = globe.subscribe("within(0, 0, 50 km)")
    told = str(globe.explain({"latitude": 0, "longitude": 1}, id))
    assert "fails, the event is at (0, 1), 111195 m from the centre" in told


def test_a_subscription_without_filters_says_so() -> None:
    matcher = Matcher("reference", lookup=True)
    assert "no filters" in str(matcher.explain({}, matcher.subscribe("false")))


def test_a_matcher_that_keeps_nothing_says_so_and_takes_less_memory(tmp_path: Path) -> None:
    lean, whole = Matcher("reference"), Matcher("reference", lookup=True)
    for matcher in (lean, whole):
        matcher.subscribe_many(["a > 1 and within(0, 0, 1)"] * 1000)
        matcher.move(0, 5, 5)
        matcher.unsubscribe(1)
        assert matcher.match({"a": 2, "x": 5, "y": 5}).tolist() == [0]
    assert sum(lean.stats().memory.values()) < sum(whole.stats().memory.values())
    lean.save(tmp_path / "lean")
    looks: list[Callable[[Matcher], Any]] = [
        lambda matcher: matcher[0],
        lambda matcher: list(matcher.items()),
        lambda matcher: matcher.find(name="a"),
        lambda matcher: matcher.explain({}, 0),
    ]
    for matcher in (lean, Matcher.load(tmp_path / "lean")):
        assert len(list(matcher)) == 999
        for look in looks:
            with pytest.raises(SubscriptionError, match="lookup=True"):
                look(matcher)


@pytest.mark.parametrize("engine", [pytest.param(engine, marks=_slow(engine)) for engine in ENGINES])
def test_moves_of_many_with_numbers_for_all_are_seen(engine: str) -> None:
    matcher = Matcher(engine, lookup=True)
    matcher.subscribe_many(["within(0, 0, 1)", "a > 1 or within(2, 2, 2)", "within(0, 0, 9)"])
    matcher.move_many([0, 2], 5, [1, 2], 3)
    matcher.move_many([2, 0, 2], [7, 8, 9], 1)
    assert [str(one) for _, one in matcher.items()] == [
        "within(8, 1, 3)",
        "a > 1 or within(2, 2, 2)",
        "within(9, 1, 3)",
    ]
    matcher.move_many([0, 1, 1], 0, 0, [1, 2, 4])
    assert str(matcher[1]) == "a > 1 or within(0, 0, 4)"
    assert str(matcher[0]) == "within(0, 0, 1)"
