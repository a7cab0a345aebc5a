"""Part of the simulation of the link protocol, with fixed seeds; ``docs/testing.md`` tells of the whole."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.link.simulation.runner import one, scenario_of
from tests.link.simulation.scenarios import SCENARIOS
from tests.link.simulation.world import simulate


@pytest.mark.parametrize("name", SCENARIOS)
def test_scenario_holds(name: str) -> None:
    simulate(SCENARIOS[name], 1)


@pytest.mark.slow
@pytest.mark.parametrize("name", SCENARIOS)
def test_scenario_holds_for_many_seeds(name: str) -> None:
    for seed in (2, *range(100, 106)):
        _, _, _, wrong, _ = one((name, seed))
        assert not wrong, f'{wrong}\nagain: python -m tests.link.simulation --scenario "{name}" --seed {seed}'


@pytest.mark.parametrize("name", [pytest.param("chain", marks=pytest.mark.slow), "meeting", "storage"])
def test_seed_is_the_same_whenever_it_is_repeated(name: str) -> None:
    assert simulate(SCENARIOS[name], 7) == simulate(SCENARIOS[name], 7)


def test_every_scenario_has_its_turn() -> None:
    assert {scenario_of(seed, None) for seed in range(len(SCENARIOS))} == set(SCENARIOS)
    assert scenario_of(3, "join") == "join"


@pytest.mark.slow
def test_command_tells_what_it_did() -> None:
    command = [sys.executable, "-m", "tests.link.simulation", "--scenario", "pair", "--seed", "5"]
    done = subprocess.run(
        command, cwd=Path(__file__).parents[2], capture_output=True, encoding="utf-8", timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "seeds: 1, failures: 0" in done.stdout
