"""What happens where memory ends: batches get smaller, a batch that fails fails alone, room follows use."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from evflow.errors import DeviceError
from evflow.gpu import grid
from evflow.matching.matcher import Matcher
from tests.gpu.standin import OUT_OF_MEMORY, StandIn

pytestmark = pytest.mark.slow

FILTERS, EVENTS = 1000, 128
EVERY = list(range(FILTERS))
"""All of these events satisfy all of these filters: a megabyte of answers, and some to spare."""


def full(standin: StandIn, spare: int, filters: int = FILTERS, **options: Any) -> Matcher:
    """A matcher with all filters, on a device with so many bytes left."""
    matcher = Matcher("clcb-grid", batch=EVENTS, **options)
    matcher.subscribe_many(["a > 0"] * filters)
    assert len(matcher.match({"a": 0})) == 0
    standin.configure(limit=standin.held()[1] + spare)
    return matcher


def rows(matcher: Matcher, count: int = EVENTS) -> Any:
    return matcher.prepare([{"a": 1}] * count).rows


def ids(matches: Any) -> list[list[int]]:
    return [np.sort(matches[i]).tolist() for i in range(len(matches))]


@pytest.mark.parametrize("slots", [1, 2, 3])
@pytest.mark.parametrize("spare", [100_000, 600_000])
def test_a_batch_that_does_not_fit_is_made_smaller(standin: StandIn, slots: int, spare: int) -> None:
    matcher = full(standin, spare, slots=slots)
    for _ in range(2):
        assert ids(matcher._engine.match(rows(matcher, 2 * EVENTS))) == [EVERY] * (2 * EVENTS)


def test_an_event_that_does_not_fit_fails_alone(standin: StandIn) -> None:
    many = 3 * FILTERS
    matcher = full(standin, 4000, many)
    engine = matcher._engine
    few = matcher.prepare([{"a": 0}] * 2).rows
    for _ in range(3):
        assert ids(engine.match(few)) == [[], []]
        with pytest.raises(DeviceError, match="out of memory while"):
            engine.match(rows(matcher, 2))
    standin.configure()
    assert ids(engine.match(rows(matcher, 2))) == [list(range(many))] * 2


@pytest.mark.parametrize("kind", ["alloc", "pinned"])
def test_calls_go_on_where_an_allocation_fails(standin: StandIn, kind: str) -> None:
    """There is no room for answers once they are known to be many; each allocation fails in turn."""
    for after in range(6):
        matcher = full(standin, 8 << 30)
        standin.fail(kind, OUT_OF_MEMORY, after=after)
        try:
            assert ids(matcher._engine.match(rows(matcher))) == [EVERY] * EVENTS
            matcher.subscribe_many(["a > 0"] * 10)
        except DeviceError:
            assert len(matcher) == FILTERS
        standin.configure()
        assert ids(matcher._engine.match(rows(matcher))) == [list(range(len(matcher)))] * EVENTS


def test_answers_are_split_where_they_are_many(standin: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    matcher = full(standin, 8 << 30)
    monkeypatch.setattr(grid, "ANSWER_BYTES", 100_000)
    before = standin.held()[1]
    assert ids(matcher.match_batch([{"a": 1}] * EVENTS)) == [EVERY] * EVENTS
    assert ids(matcher.match_batch([{"a": 1}] * EVENTS)) == [EVERY] * EVENTS
    # A batch and a half, with a quarter to spare, for each slot; the bits of what was seen beside it.
    assert standin.held()[1] - before < 2 * 1.5 * 1.3 * 100_000 + 100_000


def test_room_follows_what_recent_batches_have_found(standin: StandIn) -> None:
    matcher = full(standin, 8 << 30)

    def spent() -> dict[str, int]:
        names = ("d2h_bytes", "threads")
        before = {name: standin.counter(name) for name in names}
        assert len(matcher.match({"a": 0})) == 0
        return {name: standin.counter(name) - before[name] for name in names}

    light, used = spent(), standin.held()
    matcher.match_batch([{"a": 1}] * EVENTS)
    assert standin.counter("used") > used[1] + (1 << 20)
    for _ in range(10):
        spent()
    assert spent() == light
    matcher.match_batch([{"a": 1}] * EVENTS)
    heavy = standin.counter("threads")
    matcher.match_batch([{"a": 1}] * EVENTS)
    assert standin.counter("threads") - heavy <= EVENTS * 32 * 16 + grid.CLEARING
