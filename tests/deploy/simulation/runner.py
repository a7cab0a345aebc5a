"""Runs seeds in several processes, and reports each that fails."""

from __future__ import annotations

import multiprocessing
import time
import traceback
from collections.abc import Iterable, Iterator

from tests.deploy.simulation.truth import Failure
from tests.deploy.simulation.world import Tally, simulate

__all__ = ["Result", "one", "results"]

Result = tuple[int, Tally, str, float]
"""Seed, what happened, what is wrong ("" if nothing), seconds it took."""


def one(seed: int) -> Result:
    """Runs one seed; the text is empty if all held."""
    start, tally, wrong = time.perf_counter(), Tally(), ""
    try:
        tally = simulate(seed)
    except (Exception, Failure) as error:  # noqa: BLE001  whatever it is, it is reported with its seed
        wrong = "".join(traceback.format_exception(error))
    return seed, tally, wrong, time.perf_counter() - start


def results(seeds: Iterable[int], workers: int) -> Iterator[Result]:
    """What became of each seed, in any order."""
    if workers == 1:
        yield from map(one, seeds)
        return
    with multiprocessing.get_context("spawn").Pool(workers) as pool:
        yield from pool.imap_unordered(one, seeds, chunksize=20)
