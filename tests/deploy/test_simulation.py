"""Part of the simulation of deployments, with fixed seeds; ``docs/testing.md`` tells of the whole."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.deploy.simulation.runner import one
from tests.deploy.simulation.world import Tally, simulate


def _hold(first: int, count: int) -> None:
    for seed in range(first, first + count):
        _, _, wrong, _ = one(seed)
        assert not wrong, f"{wrong}\nagain: python -m tests.deploy.simulation --seed {seed}"


@pytest.mark.slow
def test_deployments_hold() -> None:
    _hold(0, 12)


@pytest.mark.slow
def test_deployments_hold_for_many_seeds() -> None:
    _hold(1000, 60)


def test_seed_is_the_same_whenever_it_is_repeated() -> None:
    assert simulate(7) == simulate(7)


@pytest.mark.slow
def test_seeds_have_all_that_may_happen() -> None:
    total = Tally()
    for seed in range(2000):
        for key, value in vars(simulate(seed)).items():
            setattr(total, key, getattr(total, key) + value)
        if all(vars(total).values()):
            return
    pytest.fail(f"{total}")


@pytest.mark.slow
def test_command_tells_what_it_did() -> None:
    command = [sys.executable, "-m", "tests.deploy.simulation", "--seed", "5"]
    done = subprocess.run(
        command, cwd=Path(__file__).parents[2], capture_output=True, encoding="utf-8", timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "seeds: 1, failures: 0" in done.stdout
