"""Runs seeds in several processes, and reports each that fails."""

from __future__ import annotations

import multiprocessing
import time
import traceback
from collections.abc import Iterator

from tests.link.simulation.process import Failure
from tests.link.simulation.scenarios import SCENARIOS
from tests.link.simulation.world import Outcome, simulate

__all__ = ["Result", "one", "results", "scenario_of"]

Result = tuple[str, int, Outcome, str, float]
"""Scenario, seed, what happened, what is wrong ("" if nothing), seconds it took."""


def scenario_of(seed: int, only: str | None) -> str:
    """The scenario of a seed; each has its turn."""
    return only or list(SCENARIOS)[seed % len(SCENARIOS)]


def one(job: tuple[str, int]) -> Result:
    """Runs one seed; the text is empty if all held."""
    name, seed = job
    start, outcome, wrong = time.perf_counter(), Outcome(), ""
    try:
        outcome = simulate(SCENARIOS[name], seed)
    except (Exception, Failure) as error:  # noqa: BLE001  whatever it is, it is reported with its seed
        wrong = "".join(traceback.format_exception(error))
    return name, seed, outcome, wrong, time.perf_counter() - start


def results(jobs: list[tuple[str, int]], workers: int) -> Iterator[Result]:
    """What became of each job, in any order."""
    if workers == 1 or len(jobs) == 1:
        yield from map(one, jobs)
        return
    with multiprocessing.get_context("spawn").Pool(workers) as pool:
        yield from pool.imap_unordered(one, jobs, chunksize=10)
