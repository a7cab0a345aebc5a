"""What is counted from the running PTX is what the kernels' source says they read and write."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from evflow.gpu.scenarios import ccm_scenario, clcb_scenario
from evflow.matching.matcher import Matcher
from tests.gpu.cost import BANDWIDTH, cost
from tests.gpu.standin import StandIn

SUBSCRIPTIONS = 500
FILTERS = 10 * SUBSCRIPTIONS
STEPS = {
    "ccm": {"count": "ccm_plane"},
    "clcb": {"Loc": "loc_plane", "Cont": "cont", "Zip": "zip"},
    "clcb-grid": {"match": "grid_plane"},
}
DOCUMENT = Path(__file__).parents[2] / "docs" / "gpu.md"


def test_ccm_moves_the_constraints_of_the_rows_of_an_event(standin: StandIn) -> None:
    events = 4
    found = cost(standin, "ccm", FILTERS, events).kernels["ccm_plane"]
    columns, made = ccm_scenario(FILTERS, events)
    rows = np.bincount(columns.name, minlength=len(columns.names))
    concerned = sum(rows[columns.names.index(name)] for event in made for name in event) / events
    # Operator, operand and filter; each counter for the next event. Whoever is satisfied adds to a
    # counter somewhere, and reads how many it needs; strings are read from the same few sectors.
    exact = 13 * concerned + 4 * FILTERS
    assert exact <= found["bytes"] <= 1.1 * exact + 5 * 32 * concerned
    assert 15 * concerned <= found["instructions"] <= 400 * concerned


def test_clcb_moves_the_bytes_that_its_arrays_say(standin: StandIn) -> None:
    found = cost(standin, "clcb", SUBSCRIPTIONS, events=4).kernels
    loc, zipped = found["loc_plane"], found["zip"]
    # Each filter's names (4 bytes), and its counter at one of four events; a little for the few that pass.
    assert 5.0 * FILTERS <= loc["bytes"] <= 10.0 * FILTERS
    assert 15 * FILTERS <= loc["instructions"] <= 45 * FILTERS
    # A byte a subscription, and a little for those that matched.
    assert SUBSCRIPTIONS <= zipped["bytes"] <= 1.5 * SUBSCRIPTIONS
    assert found["cont"]["threads"] % 256 == 0


def test_grid_moves_less_for_an_event_than_clcb(standin: StandIn) -> None:
    of_clcb = cost(standin, "clcb", SUBSCRIPTIONS, events=4).bytes
    assert 0 < cost(standin, "clcb-grid", SUBSCRIPTIONS, events=4).bytes < of_clcb / 4


@pytest.mark.parametrize("engine", STEPS)
def test_the_least_bytes_of_a_step_are_no_more_than_its_kernel_moves(standin: StandIn, engine: str) -> None:
    events = 4
    counted = cost(standin, engine, FILTERS if engine == "ccm" else SUBSCRIPTIONS, events).kernels
    columns, made = ccm_scenario(FILTERS, events) if engine == "ccm" else clcb_scenario(SUBSCRIPTIONS, events)
    matcher = Matcher(engine)
    matcher.subscribe_many(columns)
    matcher.match(made[0])
    least = matcher._engine.least_bytes(matcher.prepare(made).rows).sum(axis=0) / events
    of_step = dict(zip(matcher._engine.steps, least.tolist(), strict=True))
    for step, kernel in STEPS[engine].items():
        assert 0 < of_step[step] <= counted[kernel]["bytes"]


def test_the_documents_times_follow_from_its_bytes() -> None:
    tables = [
        [cell.strip() for cell in line.strip("|\n").split("|")]
        for line in DOCUMENT.read_text().splitlines()
        if line.startswith("| `c")
    ]
    moved: dict[str, int] = {}
    times = {}
    for name, *cells in tables:
        engine = name.split("`")[1]
        if len(cells) == 3 and all(re.fullmatch(r"[\d,]+", cell) for cell in cells):
            moved[engine] = moved.get(engine, 0) + int(cells[2].replace(",", ""))
        elif len(cells) == len(BANDWIDTH):
            times[engine] = [float(cell) for cell in cells]
    assert list(times) == list(moved) == ["ccm", "clcb", "clcb-grid"]
    for engine, found in times.items():
        expected = [moved[engine] / speed / 1e3 for speed in BANDWIDTH.values()]
        assert np.allclose(found, expected, atol=0.006, rtol=0)
