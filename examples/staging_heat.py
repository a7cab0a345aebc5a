"""A plate cools in two processes that exchange their edges; its output is staged while they go on."""

from __future__ import annotations

import multiprocessing
import tempfile
from collections.abc import Callable
from multiprocessing.connection import Connection

import numpy as np
import xarray

import evflow as ev
from evflow import staging

ROWS, HALF, COLUMNS, ITERATIONS, EVERY = 64, 32, 48, 100, 20
heat = staging.Variable("heat", "f8", (ROWS, COLUMNS), ("y", "x"), {"units": "K"})


def begin() -> np.ndarray:
    y, x = np.indices((ROWS, COLUMNS))
    return np.where((y // 16 == 1) & (x // 12 == 1), 400.0, 300.0)


def cooled(t: np.ndarray) -> np.ndarray:
    """The rows between the first and the last, a moment later; the rim keeps its temperature."""
    inner = t[1:-1].copy()
    around = t[:-2, 1:-1] + t[2:, 1:-1] + t[1:-1, :-2] + t[1:-1, 2:]
    inner[:, 1:-1] += 0.2 * (around - 4 * t[1:-1, 1:-1])
    return inner


def solve(rank: int, exchange: Callable[[np.ndarray], np.ndarray], socket: str) -> None:
    """One half of the plate, and a row of the other half beside it, for which a row is given."""
    plate = begin()[rank * (HALF - 1) : rank * (HALF - 1) + HALF + 1]
    own = plate[rank : rank + HALF], (rank * HALF, 0)
    with staging.Writer(socket, rank, 2, [heat], budget=1 << 20) as writer:
        for iteration in range(ITERATIONS + 1):
            if iteration % EVERY == 0:
                writer.write(iteration, {"heat": own}, time=iteration / 1000)
            plate[1:-1] = cooled(plate)
            with writer.communicating():
                plate[0 if rank else -1] = exchange(plate[1] if rank else plate[-2])


def by_pipe(rank: int, pipe: Connection, socket: str) -> None:
    def exchange(row: np.ndarray) -> np.ndarray:
        pipe.send(row)
        return np.asarray(pipe.recv())

    solve(rank, exchange, socket)


def in_two_processes(socket: str) -> None:
    spawn = multiprocessing.get_context("spawn")
    solvers = [spawn.Process(target=by_pipe, args=(r, pipe, socket)) for r, pipe in enumerate(spawn.Pipe())]
    for solver in solvers:
        solver.start()
    for solver in solvers:
        solver.join()


def main(solved: Callable[[str], None] = in_two_processes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        socket, store = f"{folder}/socket", f"{folder}/heat.h5"
        g = ev.Graph("output")
        stage = staging.Stage([heat], 2, socket, store, scheduler=staging.AvoidCongestion(), piece=1 << 16)
        g.add(stage) >> ev.Terminal(lambda done: print(f"step {done.step} is on the disk"))
        with g.run():
            solved(socket)
        with xarray.open_dataset(store, engine="h5netcdf") as run:
            alone = begin()
            for _ in range(ITERATIONS):
                alone[1:-1] = cooled(alone)
            same = np.array_equal(run.heat.sel(step=ITERATIONS), alone)
            print(f"{run.sizes['step']} steps; the last is what one process computes: {same}")


if __name__ == "__main__":
    main()
