"""What an event costs in calls and bytes, and what the stand-in counts."""

from __future__ import annotations

import pytest

from evflow.matching.matcher import Matcher
from tests.gpu.standin import StandIn
from tests.gpu.workload import Workload

COUNTERS = ("launches", "syncs", "h2d", "d2h", "h2d_bytes", "d2h_bytes", "blocking")


def spent(standin: StandIn, matcher: Matcher, events: list[dict[str, object]]) -> dict[str, int]:
    """What the stand-in counts for events, once everything has been sent and the size of answers is known."""
    matcher.match_batch(events)
    before = {name: standin.counter(name) for name in COUNTERS}
    matcher.match_batch(events)
    return {name: standin.counter(name) - before[name] for name in COUNTERS}


def papers_event(strings: int) -> dict[str, object]:
    """Four attributes, some of them strings of 6 bytes, at a place."""
    values: list[object] = ["value5"] * strings + [5.0] * (4 - strings)
    return {f"n{i}": value for i, value in enumerate(values)} | {"x": 1.0, "y": 2.0}


def test_clcb_waits_once_an_event_and_starts_three_kernels(standin: StandIn) -> None:
    matcher = Matcher("clcb")
    matcher.subscribe_many(Workload(1).subscriptions(3000))
    found = spent(standin, matcher, [papers_event(0)] * 10)
    assert found == {
        "launches": 30,
        "syncs": 10,
        "h2d": 10,
        "d2h": 10,
        "h2d_bytes": 10 * 4 * 32,
        "d2h_bytes": 10 * 4096,
        "blocking": 0,
    }


def test_ccm_starts_one_kernel_an_event(standin: StandIn) -> None:
    matcher = Matcher("ccm")
    matcher.subscribe_many(Workload(1).subscriptions(3000))
    found = spent(standin, matcher, [papers_event(0)] * 10)
    # Two rows more: areas, and filters without constraints. A bit for each subscription comes back.
    assert found["launches"] == found["syncs"] == found["h2d"] == found["d2h"] == 10
    assert found["h2d_bytes"] == 10 * 6 * 32
    assert found["d2h_bytes"] == 10 * 4 * 94
    assert found["blocking"] == 0


def test_strings_are_sent_only_where_their_bytes_are_compared(standin: StandIn) -> None:
    for subscription, nbytes in (("n0 == 'a'", 32), ("n0 == 'a' or n0 contains 'lue'", 32 + 6)):
        matcher = Matcher("clcb")
        matcher.subscribe(subscription)
        assert spent(standin, matcher, [{"n0": "value5"}])["h2d_bytes"] == nbytes


def test_grid_copies_a_batch_there_and_back_once(standin: StandIn) -> None:
    matcher = Matcher("clcb-grid", batch=50)
    matcher.subscribe_many(Workload(1, area=1.0).subscriptions(2000))
    found = spent(standin, matcher, [papers_event(0)] * 200)
    assert {name: found[name] for name in ("launches", "syncs", "h2d", "d2h", "blocking")} == {
        "launches": 8,
        "syncs": 4,
        "h2d": 4,
        "d2h": 4,
        "blocking": 0,
    }
    # A head and four attributes an event, and the count.
    assert found["h2d_bytes"] == 200 * (40 + 4 * 32) + 4 * 8


@pytest.mark.parametrize(("moves", "copies", "nbytes"), [(1, 1, 8), (5, 5, 40), (100, 2, 100 * (8 + 4))])
def test_clcb_moves_an_area_by_a_copy_of_two_floats(
    standin: StandIn, moves: int, copies: int, nbytes: int
) -> None:
    matcher = Matcher("clcb")
    matcher.subscribe_many(["within(1, 1, 1)"] * 1000)
    matcher.match({})
    before = {name: standin.counter(name) for name in COUNTERS}
    for id in range(0, 7 * moves, 7):
        matcher.move(id, float(id), 2.0)
    matcher.match({})
    assert standin.counter("h2d") - before["h2d"] == copies
    assert standin.counter("h2d_bytes") - before["h2d_bytes"] == nbytes
    assert standin.counter("syncs") - before["syncs"] == 1
    assert matcher.match({"x": 7.0 * (moves - 1), "y": 2.0}).tolist() == [7 * (moves - 1)]
