"""Every GPU engine says what the oracle and the CPU engine say, in whatever order its threads run."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from random import Random
from threading import Thread
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from evflow.gpu import ccm, clcb
from evflow.matching.matcher import Matcher
from evflow.matching.model import Circle, Constraint, Filter, Op
from tests.examples import tried
from tests.gpu.fibers import POISON
from tests.gpu.standin import ORDERS, StandIn
from tests.gpu.workload import Workload, answers, differences
from tests.matching.drawn_areas import drawn, drawn_events, satisfied
from tests.matching.play import Play

pytestmark = pytest.mark.slow

ENGINES: dict[str, dict[str, Any]] = {"ccm": {}, "clcb": {}, "clcb-grid": {"batch": 3, "slots": 3}}

every_engine = pytest.mark.parametrize("engine", ENGINES)


def both(engine: str, space: str = "plane") -> tuple[Matcher, Matcher]:
    return Matcher(engine, space=space, **ENGINES[engine]), Matcher("reference", space=space)


@every_engine
@pytest.mark.parametrize("order", ORDERS)
def test_random_calls_give_what_the_oracle_says(
    standin: StandIn, engine: str, order: str, tmp_path: Path
) -> None:
    for seed in range(6):
        standin.configure(order=order, seed=seed + 1, deferred=seed % 3 != 2)
        Play(Random(seed), partial(Matcher, engine, **ENGINES[engine]), tmp_path / str(seed)).run(8)


@every_engine
@settings(max_examples=tried(8), deadline=None, suppress_health_check=list(HealthCheck))
@given(
    random=st.randoms(use_true_random=False), order=st.sampled_from(sorted(ORDERS)), deferred=st.booleans()
)
def test_calls_of_hypothesis_give_what_the_oracle_says(
    standin: StandIn, engine: str, random: Random, order: str, deferred: bool
) -> None:
    standin.configure(order=order, deferred=deferred)
    Play(random, partial(Matcher, engine, **ENGINES[engine])).run(4)


@every_engine
@pytest.mark.parametrize("space", ["plane", "globe"])
def test_boxes_and_polygons_are_matched_as_fractions_say(standin: StandIn, engine: str, space: str) -> None:
    chance = Random(3)
    matcher = Matcher(engine, space=space, **ENGINES[engine])
    held = dict(enumerate(drawn(chance, space) for _ in range(30)))
    matcher.subscribe_many(list(held.values()))
    for gone in ([], [3, 5, 8]):
        matcher.unsubscribe_many(gone)
        held = {id: one for id, one in held.items() if id not in gone}
        events = drawn_events(chance, space, 20)
        found = matcher.match_batch(events)
        expected = [satisfied(held, event, space) for event in events]
        assert [sorted(found[n].tolist()) for n in range(20)] == expected


@every_engine
def test_threads_may_match_at_once_while_areas_move(standin: StandIn, engine: str) -> None:
    matcher = Matcher(engine)
    matcher.subscribe_many(["a > 0 and within(0, 0, 1)", "a > 1", "a > 2"])
    wrong: list[list[int]] = []

    def match(number: int) -> None:
        for _ in range(40):
            found = matcher.match_batch([{"a": 2, "x": 0.5, "y": 0.0}, {"a": number, "x": 9.0, "y": 9.0}])
            # The circle is around the one place or the other.
            first, second = sorted(found[0].tolist()), sorted(found[1].tolist())
            if [i for i in first if i] != [1] or (0 in first) == (0 in second):
                wrong.append([number, *first, -1, *second])

    threads = [Thread(target=match, args=(number,)) for number in (1, 2, 3)]
    for thread in threads:
        thread.start()
    for step in range(40):
        matcher.move(0, *((9.0, 9.0) if step % 2 else (0.0, 0.0)))
    for thread in threads:
        thread.join()
    assert wrong == []


@every_engine
@pytest.mark.parametrize("space", ["plane", "globe"])
def test_threads_that_take_turns_at_each_access_change_nothing(
    standin: StandIn, engine: str, space: str
) -> None:
    for seed in range(2):
        standin.configure(order="shuffled", seed=seed + 1, interleave=True)
        work = Workload(seed, space=space, hit=0.9)
        matcher, oracle = both(engine, space)
        subscriptions = work.subscriptions(60)
        matcher.subscribe_many(subscriptions)
        oracle.subscribe_many(subscriptions)
        assert differences(matcher, oracle, work.events(5)) == []


@every_engine
@pytest.mark.parametrize("count", [0, 1, 31, 32, 33, 255, 256, 257, 1023])
def test_any_number_of_filters_is_matched(standin: StandIn, engine: str, count: int) -> None:
    standin.configure(order="reversed")
    work = Workload(count, hit=0.9)
    matcher, oracle = both(engine)
    filters = [work.filter() for _ in range(count)]
    matcher.subscribe_many(filters)
    oracle.subscribe_many(filters)
    for events in (0, 1, 7):
        assert differences(matcher, oracle, work.events(events)) == []


@every_engine
def test_an_answer_larger_than_expected_is_whole(standin: StandIn, engine: str) -> None:
    matcher, oracle = both(engine)
    for one in (matcher, oracle):
        one.subscribe_many(["a > 0"] * 3000)
    events = [{"a": 1}, {"a": 0}, {"a": 2}, {"b": 1}, {"a": 3}]
    assert [len(ids) for ids in answers(oracle, events)] == [3000, 0, 3000, 0, 3000]
    for _ in range(3):
        assert differences(matcher, oracle, events) == []


@every_engine
def test_an_event_with_more_names_than_blocks_fit_is_matched(
    standin: StandIn, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ccm, "MOST_ROWS", 7)
    monkeypatch.setattr(clcb, "MOST_ROWS", 7)
    matcher, _ = both(engine)
    names = [f"n{i}" for i in range(30)]
    matcher.subscribe_many([Filter(tuple(Constraint(name, Op.GE, 0.0) for name in names)), "n29 == 1"])
    event = dict.fromkeys(names, 0)
    assert answers(matcher, [event, event | {"n29": 1}, event | {"n7": -1}]) == [[0], [0, 1], []]


@every_engine
def test_filters_with_more_constraints_than_a_byte_counts(
    standin: StandIn, engine: str, tmp_path: Path
) -> None:
    matcher, oracle = both(engine)
    work = Workload(3, hit=1.0)
    sizes = (253, 254, 255, 256, 257, 300, 1)
    many = [Filter(tuple(Constraint("a", Op.GE, float(-i)) for i in range(size))) for size in sizes]
    for step in (many[:2], many[2:3], many):
        matcher.subscribe_many(step)
        oracle.subscribe_many(step)
        events = [{"a": value} for value in (0, -1, -253, -300, 5)] + work.events(1)
        assert differences(matcher, oracle, events) == []
    matcher.save(tmp_path / "saved")
    assert differences(Matcher.load(tmp_path / "saved"), oracle, events) == []


@every_engine
@pytest.mark.parametrize("size", [254, 255, 256])
def test_a_counter_that_is_full_does_not_disturb_the_next_event(
    standin: StandIn, engine: str, size: int
) -> None:
    """Events in turn hold all constraints of a filter, within its area and outside of it."""
    matcher, oracle = both(engine)
    constraints = tuple(Constraint("a", Op.GE, float(-i)) for i in range(size))
    for each in (matcher, oracle):
        each.subscribe(Filter(constraints, Circle(0.0, 0.0, 1.0)))
    events = [{"a": 0, "x": 9.0 * (n % 2), "y": 0.0} for n in range(9)]
    assert differences(matcher, oracle, events) == []


@every_engine
def test_filters_that_come_between_events_count_from_nothing(standin: StandIn, engine: str) -> None:
    """There is memory for their counters already, in which anything may stand."""
    matcher, oracle = both(engine)
    for count in (10, 1, 1, 1, 1):
        for each in (matcher, oracle):
            each.subscribe_many([Filter((Constraint("a", Op.GE, float(n)),)) for n in range(count)])
        assert differences(matcher, oracle, [{"a": 0}]) == []
        constraints = tuple(Constraint("a", Op.GE, float(-i)) for i in range(POISON))
        for each in (matcher, oracle):
            each.subscribe(Filter(constraints, Circle(9.0, 9.0, 1.0)))
        assert differences(matcher, oracle, [{"a": 0, "x": 0.0, "y": 0.0}] * 5) == []


@every_engine
def test_points_on_the_rim_agree_bit_by_bit(standin: StandIn, engine: str) -> None:
    random = np.random.default_rng(5)
    count = 400
    # As in metric maps, where float32 has steps of half a metre.
    x, y = random.uniform(-1e3, 1e3, (2, count)) + np.array([[4e5], [5.6e6]])
    angle, radius = random.uniform(0, 7, count), random.uniform(0.1, 50, count)
    circles = [
        Filter((), Circle(*place)) for place in zip(x.tolist(), y.tolist(), radius.tolist(), strict=True)
    ]
    matcher, oracle = both(engine)
    matcher.subscribe_many(circles)
    oracle.subscribe_many(circles)
    batch = {"x": x + radius * np.cos(angle), "y": y + radius * np.sin(angle)}
    found, expected = matcher.match_batch(batch), oracle.match_batch(batch)
    assert [sorted(found[i]) for i in range(count)] == [sorted(expected[i]) for i in range(count)]


@every_engine
def test_subscriptions_that_come_go_and_move_all_the_time(standin: StandIn, engine: str) -> None:
    work = Workload(11, area=1.0, most=2, hit=0.9)
    matcher, oracle = both(engine)
    for step in range(12):
        new = work.subscriptions(300)
        ids = matcher.subscribe_many(new)
        assert np.array_equal(ids, oracle.subscribe_many(new))
        moving = [i for i in range(0, 3000, 7) if i in matcher]
        x, y = np.array([work.place() for _ in moving]).T
        gone = [i for i in range(step, 3000, 3) if i in matcher]
        for one in (matcher, oracle):
            one.move_many(moving, x, y)
            one.unsubscribe_many(gone)
        assert differences(matcher, oracle, work.events(3)) == []


@every_engine
def test_memory_does_not_grow_while_events_and_moves_come(standin: StandIn, engine: str) -> None:
    work = Workload(6, area=1.0)
    matcher, _ = both(engine)
    matcher.subscribe_many([Filter((), Circle(*work.place(), 1.0)) for _ in range(300)])
    held = []
    for _ in range(24):
        matcher.move_many(range(300), *np.array([work.place() for _ in range(300)]).T)
        matcher.match_batch(work.events(10))
        held.append((standin.counter("allocations"), standin.counter("used")))
    assert set(held[12:]) == {held[12]}
