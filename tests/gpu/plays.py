"""Long runs: random sequences of calls of each GPU engine against the oracle, on the stand-in.

python -m tests.gpu.plays [--engine NAME] [--seed N] [--examples N]
"""

from __future__ import annotations

import argparse
import tempfile
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from evflow.matching.matcher import Matcher
from tests.gpu.standin import ORDERS, StandIn, load
from tests.matching.play import Play

ENGINES = ("ccm", "clcb", "clcb-grid")


def play(standin: StandIn, engine: str, seed: int, folder: Path) -> None:
    """One sequence; how the stand-in runs is drawn from the seed too."""
    random = Random(seed)
    order = random.choice(list(ORDERS))
    standin.configure(order=order, seed=seed + 1, deferred=random.random() < 0.8)
    options: dict[str, Any] = {"batch": 3, "slots": 3} if engine == "clcb-grid" and seed % 2 else {}
    Play(Random(seed), partial(Matcher, engine, **options), folder if seed % 3 == 0 else None).run(8)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engine", choices=ENGINES)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--examples", type=int, default=1000)
    options = parser.parse_args()
    standin = load()
    for engine in [options.engine] if options.engine else ENGINES:
        for seed in range(options.seed, options.seed + options.examples):
            with tempfile.TemporaryDirectory() as folder:
                try:
                    play(standin, engine, seed, Path(folder, "saved"))
                except BaseException:
                    print(
                        f"--engine {engine} --seed {seed} --examples 1; the stand-in says: {standin.message}"
                    )
                    raise
        print(f"{engine}: {options.examples} examples, none wrong", flush=True)


if __name__ == "__main__":
    main()
