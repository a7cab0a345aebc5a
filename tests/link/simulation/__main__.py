"""The simulation as a command; see ``docs/testing.md``."""

from __future__ import annotations

import argparse
import sys
import time

from tests.link.simulation.runner import results, scenario_of
from tests.link.simulation.scenarios import SCENARIOS
from tests.link.simulation.world import Outcome

_MOST_FAILURES = 20


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.link.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000, help="how many to run")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--seed", type=int, help="run this one only")
    parser.add_argument("--scenario", choices=list(SCENARIOS), help="one scenario instead of each in turn")
    parser.add_argument("--workers", type=int, default=2, help="processes")
    given = parser.parse_args()
    numbers = range(given.first, given.first + given.seeds) if given.seed is None else [given.seed]
    jobs = [(scenario_of(seed, given.scenario), seed) for seed in numbers]
    start, told, failed, done = time.monotonic(), time.monotonic(), 0, 0
    total, slowest = Outcome(), 0.0
    for name, seed, outcome, wrong, seconds in results(jobs, given.workers):
        done += 1
        slowest = max(slowest, seconds)
        for key, value in vars(outcome).items():
            setattr(total, key, getattr(total, key) + value)
        if wrong:
            failed += 1
            if failed <= _MOST_FAILURES:
                print(f"---- {name}, seed {seed}\n{wrong}", flush=True)
                print(f'again: python -m tests.link.simulation --scenario "{name}" --seed {seed}', flush=True)
        if time.monotonic() - told > 10:
            told = time.monotonic()
            print(f"{done} of {len(jobs)} seeds, {failed} failed", flush=True)
    print(
        f"seeds: {done}, failures: {failed}; {total.submitted} events submitted, {total.handled} handled, "
        f"{total.doubled} of them again, {total.kills} kills, {total.seconds:.0f} simulated seconds; "
        f"{time.monotonic() - start:.0f} s, slowest {slowest:.2f} s"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
