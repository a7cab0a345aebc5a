"""The simulation as a command; see ``docs/testing.md``."""

from __future__ import annotations

import argparse
import sys
import time

from tests.deploy.simulation.runner import results
from tests.deploy.simulation.world import Tally

_MOST_FAILURES = 20


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.deploy.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000, help="how many to run")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--seed", type=int, help="run this one only")
    parser.add_argument("--workers", type=int, default=2, help="processes")
    given = parser.parse_args()
    seeds = range(given.first, given.first + given.seeds) if given.seed is None else [given.seed]
    start, told, failed, done = time.monotonic(), time.monotonic(), 0, 0
    total, slowest = Tally(), 0.0
    for seed, tally, wrong, seconds in results(seeds, given.workers if len(seeds) > 1 else 1):
        done += 1
        slowest = max(slowest, seconds)
        for key, value in vars(tally).items():
            setattr(total, key, getattr(total, key) + value)
        if wrong:
            failed += 1
            if failed <= _MOST_FAILURES:
                print(f"---- seed {seed}\n{wrong}", flush=True)
                print(f"again: python -m tests.deploy.simulation --seed {seed}", flush=True)
        if time.monotonic() - told > 10:
            told = time.monotonic()
            print(f"{done} of {len(seeds)} seeds, {failed} failed", flush=True)
    print(
        f"seeds: {done}, failures: {failed}; {total.wanted} changes wanted, {total.made} made, "
        f"{total.refused} refused, {total.unknown} unknown; {total.decided} versions decided, "
        f"{total.fallbacks} of them by fallback rules; {total.events} events, {total.kills} kills, "
        f"{total.seconds:.0f} simulated seconds; {time.monotonic() - start:.0f} s, slowest {slowest:.2f} s"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
