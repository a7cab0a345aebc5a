"""All engines there are, on CPU and GPU, give one answer, to the last bit of a distance."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from evflow.matching.engine import ENGINES
from evflow.matching.matcher import Matcher
from evflow.matching.model import Circle, Filter, GlobeCircle
from evflow.matching.text import parse_subscription
from tests.examples import tried
from tests.gpu.standin import ORDERS, StandIn
from tests.gpu.workload import Workload, answers
from tests.matching.oracle import Oracle

pytestmark = pytest.mark.slow

pytest.importorskip("numba", reason="needs numba, for the engines of the CPU")

OPTIONS: dict[str, dict[str, Any]] = {"auto": {"least": 0}, "clcb-grid": {"batch": 3, "slots": 3}}
SIZES = (0, 1, 31, 32, 33, 61, 255, 256, 257)


def given_by_all(subscriptions: list[Any], events: list[dict[str, Any]], space: str) -> list[list[int]]:
    """What every engine says of these events; they must say the same."""
    said = {}
    for name in ENGINES:
        matcher = Matcher(name, space=space, **OPTIONS.get(name, {}))
        matcher.subscribe_many(subscriptions)
        said[name] = answers(matcher, events)
    first = said["reference"]
    assert {name: found for name, found in said.items() if found != first} == {}
    return first


@settings(max_examples=tried(8), deadline=None, suppress_health_check=list(HealthCheck))
@given(
    seed=st.integers(0, 1 << 32),
    count=st.sampled_from(SIZES),
    space=st.sampled_from(["plane", "globe"]),
    order=st.sampled_from(sorted(ORDERS)),
    deferred=st.booleans(),
)
def test_engines_agree_on_any_workload(
    standin: StandIn, seed: int, count: int, space: str, order: str, deferred: bool
) -> None:
    standin.configure(order=order, seed=seed, deferred=deferred)
    work = Workload(seed, space=space, hit=0.8)
    given_by_all(work.subscriptions(count), work.events(7), space)


@pytest.mark.parametrize("space", ["plane", "globe"])
def test_engines_agree_at_the_rim(standin: StandIn, space: str) -> None:
    random = np.random.default_rng(8)
    circles, events = [], []
    for _ in range(150):
        x, y, angle = random.uniform(-60, 60), random.uniform(-60, 60), random.uniform(0, 7)
        if space == "plane":
            # Beside the origin, and as in metric maps.
            y, radius = y + random.choice([0.0, 5.6e6]), random.uniform(0.1, 50)
            circles.append(Filter((), Circle(x, y, radius)))
            at = x + radius * math.cos(angle), y + radius * math.sin(angle)
            near = [at, *((math.nextafter(at[0], side), at[1]) for side in (x, 2 * at[0] - x))]
            events += [{"x": px, "y": py} for px, py in near]
        else:
            # As far north as the radius goes; a metre of the meridian is 1 / 111 km of a degree.
            radius = float(random.uniform(1e3, 1e6))
            circles.append(Filter((), GlobeCircle(x, y, radius)))
            north = x + math.degrees(radius / 6_371_008.8)
            events += [
                {"latitude": p, "longitude": y} for p in (north, math.nextafter(north, 0), north - 1e-13)
            ]
    found = given_by_all(circles, events, space)
    on = [i // 3 in ids for i, ids in enumerate(found)]
    assert 0 < sum(on) < len(on)


def test_engines_agree_with_plain_python_on_what_is_no_ordinary_number(standin: StandIn) -> None:
    values = (math.nan, math.inf, -math.inf, 0.0, -0.0, 5e-324, 1e308, True, "nan", "")
    texts = [f"a {op} {value}" for op in ("==", "!=", "<", "<=", ">", ">=") for value in (0, -1.5, 1e308)]
    texts += [
        "exists a",
        "a == ''",
        "a >= ''",
        "a contains 'a'",
        "within(0, 0, 1)",
        "a > 0 and within(1e30, 0, 5)",
    ]
    oracle = Oracle(("x", "y"))
    for id, text in enumerate(texts):
        oracle.subscribe(id, parse_subscription(text))
    places: list[dict[str, Any]] = [{}, *({"x": v, "y": 0.0} for v in (0.0, 1.0, 1e30, *values[:3]))]
    events = [place | {"a": value} for value in values for place in places]
    found = given_by_all(texts, events, "plane")
    assert [set(ids) for ids in found] == [oracle.match(event)[0] for event in events]


def test_engines_agree_where_all_match_and_where_none_does(standin: StandIn) -> None:
    subscriptions = ["a > 0", "a > 1 and within(0, 0, 9)"] * 700
    events = [
        {"a": 2, "x": 0.0, "y": 9.0},
        {"a": 0, "x": 0.0, "y": 0.0},
        {},
        {"a": 2},
        {"b": 2, "x": 0.0, "y": 0.0},
    ]
    assert [len(ids) for ids in given_by_all(subscriptions, events, "plane")] == [1400, 0, 0, 700, 0]
