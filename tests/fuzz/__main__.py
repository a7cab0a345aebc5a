"""The fuzzer as a command; see ``docs/testing.md``."""

from __future__ import annotations

import argparse
import sys
import time

from tests.fuzz.areas import AREAS
from tests.fuzz.runner import fuzz


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--programs", type=int, default=10_000, help="pairs of a program and an input to try")
    parser.add_argument("--seed", type=int, default=0, help="of the first case; each case has the next one")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="stop after so many")
    parser.add_argument("--only", choices=list(AREAS), help="one area instead of a mixture of all")
    parser.add_argument("--workers", type=int, default=2, help="processes")
    given = parser.parse_args()
    start = time.monotonic()
    report = fuzz(given.seed, given.programs, given.minutes, given.only, given.workers)
    print(report, f"{time.monotonic() - start:.0f} s in all", sep="\n")
    return 1 if report.failures else 0


if __name__ == "__main__":
    sys.exit(main())
