"""What an event costs in calls and bytes, and what the stand-in counts."""

from __future__ import annotations

from typing import Any

import pytest

from evflow.gpu.slots import Slot
from evflow.matching.matcher import Matcher
from tests.gpu.standin import StandIn
from tests.gpu.workload import Workload

pytestmark = pytest.mark.slow

COUNTERS = ("launches", "syncs", "h2d", "d2h", "h2d_bytes", "d2h_bytes", "blocking", "fills")


def spent(standin: StandIn, matcher: Matcher, events: list[dict[str, object]]) -> dict[str, int]:
    """What the stand-in counts for events, once everything has been sent and the size of answers is known."""
    matcher.match_batch(events)
    # The device's thread waits once more before it frees what that has dropped.
    standin.held()
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
        "fills": 0,
    }


def test_ccm_starts_one_kernel_an_event(standin: StandIn) -> None:
    matcher = Matcher("ccm")
    matcher.subscribe_many(Workload(1).subscriptions(3000))
    found = spent(standin, matcher, [papers_event(0)] * 10)
    # Two rows more: areas, and filters without constraints. A bit for each subscription comes back.
    assert found["launches"] == found["syncs"] == found["h2d"] == found["d2h"] == 10
    assert found["h2d_bytes"] == 10 * 6 * 32
    assert found["d2h_bytes"] == 10 * 4 * 94
    assert found["blocking"] == found["fills"] == 0


def test_strings_are_sent_only_where_their_bytes_are_compared(standin: StandIn) -> None:
    for subscription, nbytes in (("n0 == 'a'", 32), ("n0 == 'a' or n0 contains 'lue'", 32 + 6)):
        matcher = Matcher("clcb")
        matcher.subscribe(subscription)
        assert spent(standin, matcher, [{"n0": "value5"}])["h2d_bytes"] == nbytes


def test_grid_copies_a_batch_there_and_back_once(standin: StandIn) -> None:
    matcher = Matcher("clcb-grid", batch=50)
    matcher.subscribe_many(Workload(1, area=1.0).subscriptions(2000))
    found = spent(standin, matcher, [papers_event(0)] * 200)
    assert {name: found[name] for name in ("launches", "syncs", "h2d", "d2h", "blocking", "fills")} == {
        "launches": 8,
        "syncs": 4,
        "h2d": 4,
        "d2h": 4,
        "blocking": 0,
        "fills": 0,
    }
    # A head and four attributes an event, and the count.
    assert found["h2d_bytes"] == 200 * (40 + 4 * 32) + 4 * 8
    # The count, and a quarter more pairs than there were in a batch, or 1,024.
    matches = 50 * len(matcher.match(papers_event(0)))
    assert matches > 1024
    assert found["d2h_bytes"] == 4 * (8 + 8 * (matches + matches // 4))
    few = Matcher("clcb-grid", batch=50)
    few.subscribe("n0 > 9 and n1 > 9")
    assert spent(standin, few, [papers_event(0)] * 50)["d2h_bytes"] == 8 + 8 * 1024


def test_grid_has_several_batches_in_flight_before_it_waits(
    standin: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    matcher = Matcher("clcb-grid", batch=10, slots=3)
    matcher.subscribe_many(["n0 > 1", "within(1, 2, 3)"])
    events = [papers_event(0)] * 40
    rows, engine = matcher.prepare(events).rows, matcher._engine
    engine.match(rows)
    launched: list[int] = []
    finish = Slot.finish

    def counted(slot: Slot) -> Any:
        launched.append(standin.counter("launches") - before["launches"])
        return finish(slot)

    monkeypatch.setattr(Slot, "finish", counted)
    before = {name: standin.counter(name) for name in COUNTERS}
    assert len(engine.match(rows).ids) == 80
    # Three batches of two kernels before the first wait, a fourth once a slot is free.
    assert launched == [6, 8, 8, 8]
    assert standin.counter("syncs") - before["syncs"] == 4


@pytest.mark.parametrize("engine", ["ccm", "clcb", "clcb-grid"])
@pytest.mark.parametrize(
    ("moves", "radius", "copies", "nbytes"),
    [
        (1, None, 1, 16),
        (5, None, 5, 5 * 16),
        (100, None, 2, 100 * (16 + 4)),
        (1, 2.0, 2, 16 + 8),
        (100, 2.0, 4, 100 * (16 + 4 + 8 + 4)),
    ],
)
def test_an_area_moves_by_a_copy_of_its_place_and_radius(
    standin: StandIn, engine: str, moves: int, radius: float | None, copies: int, nbytes: int
) -> None:
    matcher = Matcher(engine)
    # Areas so large that all of them stay in their cells.
    matcher.subscribe_many(["within(1, 1, 100)"] * 1000)
    matcher.match({})
    # The first move makes room for those that leave their cells.
    matcher.move(999, 2.0, 2.0)
    matcher.match({})
    before = {name: standin.counter(name) for name in COUNTERS}
    for id in range(0, 7 * moves, 7):
        matcher.move(id, 2.0, 3.0 + id / 10, radius and 100.0 + radius)
    nothing = matcher.match({})
    took = {name: standin.counter(name) - before[name] for name in COUNTERS}
    # The event itself is a copy too where it has a head or a place.
    event = {"ccm": 0, "clcb": 0, "clcb-grid": 1}[engine]
    assert (took["h2d"] - event, took["h2d_bytes"] - 48 * event) == (copies, nbytes)
    assert took["syncs"] == 1 + event and took["blocking"] == 0
    # So far from the last that moved, and more from all others.
    found = matcher.match({"x": 2.0, "y": 3.0 + (7 * moves - 7) / 10 + 101.95})
    assert len(nothing) == 0 and found.tolist() == ([7 * moves - 7] if radius else [])


def test_an_area_that_leaves_its_cell_is_sent_with_all_of_its_filter(standin: StandIn) -> None:
    matcher = Matcher("clcb-grid")
    matcher.subscribe_many(["within(1, 1, 1)"] * 1000)
    matcher.match({})
    matcher.move(8, 40.0, 50.0)
    matcher.match({})
    before = standin.counter("h2d_bytes")
    matcher.move(7, 50.0, 60.0)
    assert matcher.match({"x": 50.0, "y": 60.0}).tolist() == [7]
    # The filter's six columns behind the others, and 24 bytes where it stood.
    assert standin.counter("h2d_bytes") - before == 48 + (16 + 8 + 4 + 4 + 4 + 4) + 24
