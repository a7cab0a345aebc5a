"""What output costs a solver: the time of a run with each way to write, relative to a run without output.

    python benchmarks/staging.py --rounds 7

One solver process cools a plate in numpy and writes the whole of it every few iterations. Rounds alternate
between the ways, so that all meet the same machine; each run is compared with the one without output in its
round. The staging node is a process of its own. A run ends when the solver has handed over its last step;
its output is safe when all steps are on the disk. Steps go to a folder in the current one, since what fsync
costs is the question.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np

import evflow as ev
from evflow import staging

SIDE = 1024
HEAT = staging.Variable("heat", "f8", (SIDE, SIDE), ("y", "x"))
SCHEDULERS = {
    "unscheduled": staging.Scheduler(),
    "constant drain": staging.ConstantDrain(1),
    "congestion": staging.AvoidCongestion(),
    "in order": staging.InOrder(),
    "rate 200 MB/s": staging.RateLimit(200e6),
}


def solve(way: str, folder: str, steps: int, every: int, pipe: Connection) -> None:
    """A solver; sends the seconds of its run, and until all is safe."""
    plate, writer = np.random.default_rng(1).random((SIDE, SIDE)), None
    if way in SCHEDULERS:
        writer = staging.Writer(f"{folder}/socket", 0, 1, [HEAT], budget=4096 + 4 * plate.nbytes)
    pipe.recv()
    began = time.perf_counter()
    for step in range(steps):
        for _ in range(every):
            around = plate[:-2, 1:-1] + plate[2:, 1:-1] + plate[1:-1, :-2] + plate[1:-1, 2:]
            plate[1:-1, 1:-1] += 0.2 * (around - 4 * plate[1:-1, 1:-1])
        if writer is not None:
            writer.write(step, {"heat": (plate, (0, 0))})
        elif way == "blocking":
            with open(f"{folder}/{step}", "wb") as file:
                file.write(plate)
                file.flush()
                os.fsync(file.fileno())
    run = time.perf_counter() - began
    if writer is not None:
        writer.close(None)
    pipe.send((run, time.perf_counter() - began))


def stage(way: str, folder: str, pipe: Connection) -> None:
    """A staging node, until it is told to end."""
    g = ev.Graph("output")
    g.add(staging.Stage([HEAT], 1, f"{folder}/socket", f"{folder}/run.h5", scheduler=SCHEDULERS[way]))
    with g.run():
        pipe.send(True)
        pipe.recv()


def measure(way: str, steps: int, every: int) -> tuple[float, float]:
    """The seconds of one run, and until all of its output is on the disk."""
    spawn = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
        ours, theirs = spawn.Pipe()
        node = spawn.Process(target=stage, args=(way, folder, theirs))
        if way in SCHEDULERS:
            node.start()
            ours.recv()
        here, there = spawn.Pipe()
        solver = spawn.Process(target=solve, args=(way, folder, steps, every, there))
        solver.start()
        here.send(True)
        found = here.recv()
        solver.join()
        if way in SCHEDULERS:
            ours.send(True)
            node.join()
        return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--every", type=int, default=8, help="iterations between two steps")
    given = parser.parse_args()
    ways = ["no output", "blocking", *SCHEDULERS]
    times = {way: np.zeros((given.rounds, 2)) for way in ways}
    for number in range(given.rounds):
        for way in np.roll(ways, number):
            times[way][number] = measure(str(way), given.steps, given.every)
    size = SIDE * SIDE * 8 / 1e6
    base, random = times["no output"][:, 0], np.random.default_rng(0)
    print(f"{given.rounds} rounds, {given.steps} steps of {size:.1f} MB, {np.median(base):.2f} s alone")
    print("| way | slower by, median | 95 % interval | output safe after, s |\n| --- | ---: | ---: | ---: |")
    for way in ways[1:]:
        ratio = (times[way][:, 0] / base - 1) * 100
        drawn = np.median(random.choice(ratio, (4000, given.rounds)), axis=1)
        low, high = np.percentile(drawn, [2.5, 97.5])
        safe = np.median(times[way][:, 1])
        print(f"| {way} | {np.median(ratio):.1f} % | {low:.1f} to {high:.1f} % | {safe:.2f} |")


if __name__ == "__main__":
    main()
