"""Long runs: random sequences of calls of each GPU engine against the oracle, on the stand-in.

python -m tests.gpu.plays [--engine NAME] [--seed N] [--examples N]
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from evflow.gpu.scenarios import ENGINES
from evflow.matching.matcher import Matcher
from tests.gpu.standin import ORDERS, StandIn, load
from tests.matching.play import Play


def play(standin: StandIn, engine: str, seed: int, folder: Path) -> None:
    """One sequence; how the stand-in runs is drawn from the seed too."""
    random = Random(seed)
    order = random.choice(list(ORDERS))
    standin.configure(order=order, seed=seed + 1, deferred=random.random() < 0.8)
    options: dict[str, Any] = {"batch": 3, "slots": 3} if engine == "clcb-grid" and seed % 2 else {}
    Play(Random(seed), partial(Matcher, engine, **options), folder if seed % 3 == 0 else None).run(8)


def command(about: str | None, one: Callable[[str, int, Path], None], said: Callable[[], str] = str) -> None:
    """The command of a long run: many examples of each engine, up to the first that is wrong.

    Args:
        about: what it does.
        one: plays an engine and a seed, with a folder of its own to save in.
        said: what is told of an example that is wrong, beside how to repeat it.
    """
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--engine", choices=ENGINES)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--examples", type=int, default=1000)
    options = parser.parse_args()
    for engine in [options.engine] if options.engine else ENGINES:
        for seed in range(options.seed, options.seed + options.examples):
            with tempfile.TemporaryDirectory() as folder:
                try:
                    one(engine, seed, Path(folder, "saved"))
                except BaseException:
                    print(f"--engine {engine} --seed {seed} --examples 1{said()}")
                    raise
        print(f"{engine}: {options.examples} examples, none wrong", flush=True)


def main() -> None:
    standin = load()
    command(__doc__, partial(play, standin), lambda: f"; the stand-in says: {standin.message}")


if __name__ == "__main__":
    main()
