"""``evflow gpu selftest``, on the stand-in."""

from __future__ import annotations

import re
import signal
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from evflow.gpu import scenarios, trials
from evflow.matching.matcher import Matcher
from evflow.tools.cli import main
from tests.gpu.standin import StandIn

TRIALS = (
    "other threads change and drop",
    "memory ends while matching",
    "memory follows use",
    "calls are interrupted",
    "a process forks, and ends while a thread matches",
    "no context is left in this thread",
)


@pytest.fixture
def small(standin: StandIn, monkeypatch: pytest.MonkeyPatch) -> StandIn:
    """Few filters on a small device, and other processes use the stand-in too."""
    monkeypatch.setattr(trials, "FILTERS", 1000)
    monkeypatch.setattr(trials, "SPARE", 0)
    monkeypatch.setattr(trials, "_PROGRAM", f"from tests.gpu.standin import load\nload()\n{trials._PROGRAM}")
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    standin.configure(limit=128 << 20)
    return standin


@pytest.mark.slow
def test_selftest_compares_all_engines(small: StandIn) -> None:
    # Libraries such as PySpark set a handler of their own.
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        done = CliRunner().invoke(main, ["gpu", "selftest", "--events", "4"])
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
    assert done.exit_code == 0, done.output
    assert done.output.startswith("device 0: stand-in on the CPU, not a GPU\n")
    assert done.output.endswith("\n0 wrong\n")
    assert len(re.findall(r" 4 of 4 right, ", done.output)) == 6
    assert len(re.findall(r" 1 of 1 right, ", done.output)) == 3
    assert re.findall(r"^(.*): right$", done.output, re.MULTILINE) == list(TRIALS)


def test_a_trial_that_finds_something_makes_the_selftest_fail(
    small: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trials, "_PROGRAM", "raise SystemExit('it breaks')")
    kept = Matcher("clcb-grid")
    stop = Matcher.unsubscribe_many

    def leaking(self: Matcher, ids: object) -> None:
        stop(self, ids)  # type: ignore[arg-type]
        held.append(self)

    held = [kept]
    monkeypatch.setattr(Matcher, "unsubscribe_many", leaking)
    done = CliRunner().invoke(main, ["gpu", "selftest", "--events", "1"])
    assert done.exit_code == 1 and done.output.endswith("\n2 wrong\n")
    assert re.search(r"other threads change and drop: WRONG, [\d,]+ bytes are not free again", done.output)
    assert "a thread matches: WRONG, exit code 1: it breaks\n" in done.output


def test_selftest_without_pycuda_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pycuda", None)
    monkeypatch.delitem(sys.modules, "pycuda.driver", raising=False)
    done = CliRunner().invoke(main, ["gpu", "selftest"])
    assert done.exit_code == 1
    assert "Error: GPU engines need PyCUDA" in done.output


def test_scenarios_are_those_of_the_papers() -> None:
    columns, events = scenarios.ccm_scenario(1000, 50)
    assert (len(columns), columns.subscriptions, len(columns.names)) == (1000, 10, 100)
    sizes = columns.start[1:] - columns.start[:-1]
    assert (sizes.min(), sizes.max()) == (3, 5)
    assert {len(event) for event in events} == {3, 4, 5}
    columns, events = scenarios.clcb_scenario(100, 50)
    assert (len(columns), columns.subscriptions, len(columns.names)) == (1000, 100, 100)
    assert columns.radius is not None
    assert abs(3.14159265 * columns.radius[0] ** 2 / 1000.0**2 - 1e-4) < 1e-9
    for filter in range(100):
        names = columns.name[columns.start[filter] : columns.start[filter + 1]]
        assert len(set(names.tolist())) == len(names)


def test_where_any_content_matches_only_places_count() -> None:
    columns, events = scenarios.clcb_scenario(1000, 20, any_content=True)
    matcher = Matcher("reference")
    matcher.subscribe_many(columns)
    assert columns.x is not None and columns.y is not None and columns.radius is not None
    for event in events:
        near = np.hypot(columns.x - event["x"], columns.y - event["y"]) <= columns.radius
        assert sorted(matcher.match(event)) == np.unique(columns.subscription[near]).tolist()
