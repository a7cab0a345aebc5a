"""The siege as a command; see ``docs/testing.md``."""

from __future__ import annotations

import argparse
import dataclasses
import signal
import sys
from types import FrameType

from tests.siege.limits import Limits
from tests.siege.plan import ATTACKS
from tests.siege.plants import PLANTS
from tests.siege.run import besiege


def _ended(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.siege", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="how long attacks begin")
    parser.add_argument("--seed", type=int, default=0, help="of the first run; each run has the next one")
    parser.add_argument("--seeds", type=int, default=1, help="runs, one after the other")
    parser.add_argument("--only", nargs="+", choices=list(ATTACKS), default=[], help="some attacks only")
    parser.add_argument("--plant", choices=list(PLANTS), default="", help="plant a fault into the nodes")
    for field in dataclasses.fields(Limits):
        flag = f"--{field.name}"
        parser.add_argument(
            flag, type=type(field.default), default=field.default, help="a limit; see limits.py"
        )
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, _ended)
    limits = Limits(**{field.name: getattr(given, field.name) for field in dataclasses.fields(Limits)})
    failed = []
    for seed in range(given.seed, given.seed + given.seeds):
        failures = besiege(
            seed,
            given.seconds,
            plant=given.plant,
            only=given.only or (PLANTS[given.plant].attacks if given.plant else ()),
            limits=limits,
        )
        failed += [seed] if failures else []
    print(f"failed: seeds {', '.join(map(str, failed))}" if failed else "all went well")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
