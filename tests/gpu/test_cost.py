"""What is counted from the running PTX is what the kernels' source says they read and write."""

from __future__ import annotations

from tests.gpu.cost import costs
from tests.gpu.standin import StandIn

SUBSCRIPTIONS = 500


def test_clcb_moves_the_bytes_that_its_arrays_say(standin: StandIn) -> None:
    found = costs(standin, "clcb", SUBSCRIPTIONS, events=4)
    filters = 10 * SUBSCRIPTIONS
    loc, zipped = found["loc_plane"], found["zip"]
    # Each filter's names (4 bytes), and its counter at one of four events; a little for the few that pass.
    assert 5.0 * filters <= loc["bytes"] <= 10.0 * filters
    assert 15 * filters <= loc["instructions"] <= 45 * filters
    # A byte a subscription, and a little for those that matched.
    assert SUBSCRIPTIONS <= zipped["bytes"] <= 1.5 * SUBSCRIPTIONS
    assert found["cont"]["threads"] % 256 == 0


def test_grid_moves_less_for_an_event_than_clcb(standin: StandIn) -> None:
    of_clcb = sum(cost["bytes"] for cost in costs(standin, "clcb", SUBSCRIPTIONS, events=4).values())
    of_grid = sum(cost["bytes"] for cost in costs(standin, "clcb-grid", SUBSCRIPTIONS, events=4).values())
    assert 0 < of_grid < of_clcb / 4
