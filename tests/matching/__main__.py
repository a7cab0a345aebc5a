"""Every engine against brute force, for long: ``python -m tests.matching --examples 100000``."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from random import Random

from evflow.matching.matcher import Matcher
from tests.matching.engines import CASES, Case
from tests.matching.play import Play

CHUNK = 200
SAVED = 50
"""One example in so many saves and loads, which takes longer than the rest."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.matching", description=__doc__)
    parser.add_argument("--examples", type=int, default=10_000, help="sequences of calls for each engine")
    parser.add_argument("--engine", help="one engine instead of all")
    parser.add_argument("--seed", type=int, default=0, help="of the first; each has the next one")
    parser.add_argument("--steps", type=int, default=12, help="calls in a sequence")
    parser.add_argument("--workers", type=int, default=2, help="processes")
    given = parser.parse_args()
    cases = [case for case in CASES if given.engine in (None, case.engine)]
    if not cases:
        parser.error(f"--engine: expected one of {', '.join(sorted({case.engine for case in CASES}))}")
    seeds = range(given.seed, given.seed + given.examples)
    chunks = [seeds[at : at + CHUNK] for at in range(0, len(seeds), CHUNK)]
    for case in cases:
        start = time.monotonic()
        if given.workers == 1 or len(chunks) == 1:
            for chunk in chunks:
                run(case, given.steps, chunk)
        else:
            with ProcessPoolExecutor(given.workers) as pool:
                try:
                    list(pool.map(partial(run, case, given.steps), chunks))
                except BaseException:
                    pool.shutdown(cancel_futures=True)
                    raise
        print(f"{case}: {given.examples} examples, {time.monotonic() - start:.0f} s", flush=True)


def run(case: Case, steps: int, seeds: range) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for seed in seeds:
            try:
                saving = Path(folder) if seed % SAVED == 0 else None
                Play(Random(seed), partial(Matcher, case.engine, **case.options), saving).run(steps)
            except BaseException:
                again = f"--engine {case.engine} --seed {seed} --steps {steps} --examples 1"
                print(f"{case}: wrong; again: python -m tests.matching {again}", file=sys.stderr, flush=True)
                raise


if __name__ == "__main__":
    main()
