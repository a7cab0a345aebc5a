"""The benchmarks' workloads have the statistics that the papers' scenarios imply."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def scenarios(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import matching_scenarios

    return matching_scenarios


def average(workload: Any, events: int) -> float:
    """How many filters an event satisfies, area left aside, by numpy."""
    words, op = workload.texts[:100], workload.op
    tests = {0: str.__eq__, 1: str.__ne__, 6: str.startswith, 8: str.__contains__}
    holds = {
        number: np.array([[test(word, operand) for operand in workload.texts] for word in words])
        for number, test in tests.items()
    }
    compare = (np.equal, np.not_equal, np.less, np.less_equal, np.greater, np.greater_equal)
    numbers = [np.flatnonzero((workload.text < 0) & (op == number)) for number in range(6)]
    texts = {number: np.flatnonzero((workload.text >= 0) & (op == number)) for number in tests}
    count = 0
    for event in range(events):
        held = np.full(len(workload.numeric), -1)
        span = slice(*workload.events.start[event : event + 2])
        held[workload.events.name[span]] = workload.events.value[span]
        value, passes = held[workload.name], np.zeros(len(op), bool)
        for test, at in zip(compare, numbers, strict=True):
            passes[at] = test(value[at], workload.number[at])
        for number, at in texts.items():
            passes[at] = holds[number][value[at], workload.text[at]]
        count += np.logical_and.reduceat(passes & (value >= 0), workload.start[:-1]).sum()
    return count / events


def test_ccm_has_a_third_of_a_match_an_event(scenarios: ModuleType) -> None:
    made = scenarios.ccm(each=2_500, events=150)
    assert 22_500 <= len(made) <= 27_500
    assert 3 <= np.diff(made.start).min() < np.diff(made.start).max() <= 5
    assert set(np.diff(made.events.start)) == {3, 4, 5}
    # Of 245,196 filters 0.333 match; over 150 events that is a handful.
    assert 1 <= average(made, 150) * 150 <= 15


def test_zipf_puts_half_of_the_constraints_on_one_name(scenarios: ModuleType) -> None:
    made = scenarios.ccm(each=1_000, exponent=1.7, events=40)
    assert 0.48 < np.bincount(made.name).max() / len(made.name) < 0.52
    assert 0.6 < average(made, 40) / (3_108 * len(made) / 245_196) < 1.7


def test_distinct_names_stand_once_in_a_filter(scenarios: ModuleType) -> None:
    made = scenarios.ccm(each=500, exponent=1.0, distinct_names=True, events=10)
    owner = np.repeat(np.arange(len(made)), np.diff(made.start))
    assert len(np.unique(owner * 1000 + made.name)) == len(made.name)


def test_events_name_no_attribute_twice(scenarios: ModuleType) -> None:
    events = scenarios.ccm(each=10, exponent=1.7, attributes=(8, 10), events=500).events
    owner = np.repeat(np.arange(len(events)), np.diff(events.start))
    assert len(np.unique(owner * 1000 + events.name)) == len(events.name)


def test_half_a_percent_of_events_satisfy_a_filter_of_clcb(scenarios: ModuleType) -> None:
    made = scenarios.clcb(subscriptions=1_000, events=60)
    assert 0.004 < average(made, 60) / len(made) < 0.006


@pytest.mark.parametrize(("uneven", "least", "most"), [(False, 0.9, 1.1), (True, 5.0, 60.0)])
def test_areas_hold_their_share_of_events(
    scenarios: ModuleType, uneven: bool, least: float, most: float
) -> None:
    made = scenarios.clcb(subscriptions=1_000, area=1e-3, uneven=uneven, events=300)
    dx, dy = made.x[:, None] - made.events.x, made.y[:, None] - made.events.y
    share = np.mean(dx * dx + dy * dy <= made.radius[:, None] ** 2)
    # Circles at the rim reach beyond the square.
    assert least * 0.98 < share / 1e-3 < most


def test_every_event_satisfies_content_that_is_always_true(scenarios: ModuleType) -> None:
    made = scenarios.clcb(subscriptions=50, content="all", events=20)
    assert average(made, 20) == len(made)


def test_two_phase_has_its_predicates_and_matches(scenarios: ModuleType) -> None:
    made = scenarios.two_phase(subscriptions=5_000, events=60)
    predicates = np.unique(np.stack((made.name, made.op, made.number)), axis=1).shape[1]
    assert predicates == 1_600
    assert set(np.diff(made.events.start)) == {20}
    # Of 10,000 subscriptions 3.2 match.
    assert 0.8 < average(made, 60) < 2.6


def test_same_seed_makes_the_same_workload_and_another_seed_another(scenarios: ModuleType) -> None:
    first, second, third = (scenarios.clcb(subscriptions=50, events=10, seed=seed) for seed in (1, 1, 2))
    for name in ("start", "name", "op", "number", "text", "x", "y", "radius"):
        np.testing.assert_array_equal(getattr(first, name), getattr(second, name))
    np.testing.assert_array_equal(first.events.value, second.events.value)
    assert not np.array_equal(first.x, third.x)


def test_dicts_are_the_events(scenarios: ModuleType) -> None:
    made = scenarios.clcb(subscriptions=5, events=30)
    for event, found in enumerate(made.dicts()):
        span = slice(*made.events.start[event : event + 2])
        expected: dict[str, Any] = {
            f"a{name}": float(value) if name % 2 == 0 else made.texts[value]
            for name, value in zip(made.events.name[span], made.events.value[span], strict=True)
        }
        assert found == expected | {"x": made.events.x[event], "y": made.events.y[event]}


def test_added_filters_keep_their_areas(scenarios: ModuleType) -> None:
    base = scenarios.clcb(subscriptions=5, events=5)
    both = scenarios.with_filters(base, scenarios.one_filter(base, 0.5, 0.25, 10.0))
    assert len(both) == len(base) + 1
    assert both.start[-1] == both.start[-2] == base.start[-1]
    assert (both.x[-1], both.y[-1], both.radius[-1]) == (0.5, 0.25, 10.0)
    assert both.subscription[-1] == 5
