"""A plate cools in two processes that exchange their edges; its output is staged while they go on."""

from __future__ import annotations

import multiprocessing
import tempfile
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import xarray

import evflow as ev
from evflow import staging

ROWS, COLUMNS, ITERATIONS, EVERY = 64, 48, 100, 20
heat = staging.Variable("heat", "f8", (ROWS, COLUMNS), ("y", "x"), {"units": "K"})


def begin() -> np.ndarray:
    plate = np.full((ROWS, COLUMNS), 300.0)
    plate[ROWS // 4 : ROWS // 2, COLUMNS // 4 : COLUMNS // 2] = 400.0
    return plate


def cooled(t: np.ndarray) -> np.ndarray:
    """The rows between the first and the last, a moment later; the rim keeps its temperature."""
    inner = t[1:-1].copy()
    around = t[:-2, 1:-1] + t[2:, 1:-1] + t[1:-1, :-2] + t[1:-1, 2:]
    inner[:, 1:-1] += 0.2 * (around - 4 * t[1:-1, 1:-1])
    return inner


def solve(rank: int, neighbour: Connection, socket: str) -> None:
    """One half of the plate, and a row of the other half beside it."""
    half = ROWS // 2
    plate = begin()[rank * (half - 1) : rank * (half - 1) + half + 1]
    own = slice(1, None) if rank else slice(0, -1)
    with staging.Writer(socket, rank, 2, [heat], budget=1 << 20) as writer:
        for iteration in range(ITERATIONS + 1):
            if iteration % EVERY == 0:
                writer.write(iteration, {"heat": (plate[own], (rank * half, 0))}, time=iteration / 1000)
            plate[1:-1] = cooled(plate)
            with writer.communicating():
                neighbour.send(plate[1] if rank else plate[-2])
                plate[0 if rank else -1] = neighbour.recv()


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        socket, store = f"{folder}/socket", Path(folder, "heat.h5")
        scheduler = staging.All([staging.AvoidCongestion(), staging.ConstantDrain(1)])
        g = ev.Graph("output")
        stage = staging.Stage([heat], 2, socket, store, scheduler=scheduler, piece=1 << 16)
        g.add(stage) >> ev.Terminal(lambda done: print(f"step {done.step} is on the disk"))
        spawn = multiprocessing.get_context("spawn")
        with g.run():
            solvers = [
                spawn.Process(target=solve, args=(rank, pipe, socket))
                for rank, pipe in enumerate(spawn.Pipe())
            ]
            for solver in solvers:
                solver.start()
            for solver in solvers:
                solver.join()
        with xarray.open_dataset(store, engine="h5netcdf") as run:
            alone = begin()
            for _ in range(ITERATIONS):
                alone[1:-1] = cooled(alone)
            same = np.array_equal(run.heat.sel(step=ITERATIONS), alone)
            print(f"{run.sizes['step']} steps; the last is what one process computes: {same}")


if __name__ == "__main__":
    main()
