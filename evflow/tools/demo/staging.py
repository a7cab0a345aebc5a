"""Two substances react and spread on a plate, in several processes; their output is staged, drawn and stored.

The model is that of Gray and Scott as J. E. Pearson computed it ("Complex Patterns in a Simple System",
Science 261, 1993). Each process has some rows of the plate, which is a torus, and exchanges the first and the
last of them with its neighbours.
"""

from __future__ import annotations

import multiprocessing
import tempfile
import time
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import evflow as ev
from evflow import staging
from evflow.errors import StagingError
from evflow.tools.demo.output import Outcome, live

SIDE = 256
ITERATIONS = 50
"""Iterations between two steps of output."""
_FEED, _KILL = 0.0545, 0.062
_EVERY = 4
_SHADES = " .:-=+*#%@"
_MOST = 0.45

U, V = (staging.Variable(name, "f8", (SIDE, SIDE), ("y", "x")) for name in "uv")

Plate = NDArray[np.float64]
Neighbours = tuple[Connection, Connection] | None


def plate(first: int, rows: int) -> Plate:
    """Some rows of both substances at the beginning, with a rim for what the neighbours have."""
    whole = np.stack([np.ones((SIDE, SIDE)), np.zeros((SIDE, SIDE))])
    for y, x in np.random.default_rng(5).integers(0, SIDE - 8, (40, 2)):
        whole[:, y : y + 8, x : x + 8] = np.array([0.5, 0.25])[:, np.newaxis, np.newaxis]
    made = np.empty((2, rows + 2, SIDE + 2))
    made[:, 1:-1, 1:-1] = whole[:, first : first + rows]
    return made


def react(fields: Plate, neighbours: Neighbours) -> None:
    """One iteration; ``neighbours`` has the rows above and below, None if these are the plate's own."""
    if neighbours is None:
        fields[:, 0], fields[:, -1] = fields[:, -2], fields[:, 1]
    else:
        above, below = neighbours
        above.send_bytes(fields[:, 1].tobytes())
        below.send_bytes(fields[:, -2].tobytes())
        fields[:, -1] = np.frombuffer(below.recv_bytes()).reshape(2, -1)
        fields[:, 0] = np.frombuffer(above.recv_bytes()).reshape(2, -1)
    fields[:, :, 0], fields[:, :, -1] = fields[:, :, -2], fields[:, :, 1]
    u, v = inner = fields[:, 1:-1, 1:-1]
    across = fields[:, 1:-1, :-2] + fields[:, 1:-1, 2:]
    spread = fields[:, :-2, 1:-1] + fields[:, 2:, 1:-1] + across - 4 * inner
    reaction = u * v * v
    u += 0.16 * spread[0] - reaction + _FEED * (1 - u)
    v += 0.08 * spread[1] + reaction - (_FEED + _KILL) * v


def solve(rank: int, processes: int, steps: int, socket: str, around: Neighbours, told: Connection) -> None:
    """A process of the solver; tells how many seconds it ran, and how many of them it spent in writing."""
    rows = SIDE // processes
    fields, first, writing, began = plate(rank * rows, rows), rank * rows, 0.0, time.perf_counter()
    with staging.Writer(socket, rank, processes, [U, V], budget=4096 + 8 * rows * SIDE * 16) as writer:
        for step in range(steps):
            for _ in range(ITERATIONS):
                react(fields, around)
            since = time.perf_counter()
            blocks = [variable.block((rows, SIDE), (first, 0)) for variable in (U, V)]
            with writer.step(step, blocks) as arrays:
                arrays["u"][...], arrays["v"][...] = fields[:, 1:-1, 1:-1]
            writing += time.perf_counter() - since
        told.send((time.perf_counter() - began, writing))


def _solver(*arguments: Any) -> None:
    """``solve``, without a word where a neighbour has ended: the first process tells that."""
    with suppress(EOFError, ConnectionError):
        solve(*arguments)


def picture(field: NDArray[Any]) -> str:
    """A field as text: each second row, for letters are twice as high as they are wide."""
    shades = np.clip(field[::2] / _MOST * len(_SHADES), 0, len(_SHADES) - 1).astype(int)
    return "\n".join("".join(_SHADES[shade] for shade in row) for row in shades.tolist())


class _Watch:
    """Takes what leaves the stage, draws the newest field, and notes what became of steps."""

    def __init__(self, progress: Any, show: Any) -> None:
        self.means: dict[int, float] = {}
        self.last = ""
        self._field = np.zeros((SIDE // _EVERY, SIDE // _EVERY))
        self._progress, self._show = progress, show

    def block(self, block: Any) -> None:
        values, (first, _) = block.values, block.offset
        self._field[first : first + len(values)] = values
        if block.part + 1 == block.parts:
            self.last = picture(self._field)
            self._show(self.last)

    def summary(self, found: Any) -> None:
        self.means[found.step] = found.mean

    def done(self, done: Any) -> None:
        self._progress(1)


def play(quiet: bool = False, processes: int = 4, steps: int = 60, store: Path | None = None) -> Outcome:
    """Runs the demo.

    Args:
        quiet: show no progress.
        processes: of the solver; a divisor of 64.
        steps: of output.
        store: where the output is kept, ``NAME.h5`` or ``NAME.zarr``, which is not there yet; by default in a
            folder that is removed.

    Raises:
        StagingError: a package of the ``staging`` extra is not installed, the store is there already, or a
            process of the solver has ended.
    """
    # Its steps would be those of an earlier run.
    if store is not None and (store.exists() or store.with_suffix(".steps").exists()):
        raise StagingError(f"store {store}: there is one already; give another name, or remove it")
    with tempfile.TemporaryDirectory() as folder:
        kept = Path(folder, "run.h5") if store is None else store
        with live(steps, quiet, "steps") as (progress, show):
            watch = _Watch(progress, show)
            told = _run(watch, processes, steps, f"{folder}/socket", kept)
        last = _last(kept, steps - 1)
    alone = plate(0, SIDE)
    for _ in range(steps * ITERATIONS):
        react(alone, None)
    seconds, writing = max(run for run, _ in told), max(wrote for _, wrote in told)
    result = {
        "processes": processes,
        "steps": steps,
        "bytes": steps * 2 * 8 * SIDE**2,
        "seconds": round(seconds, 4),
        "writing": round(writing, 4),
        "mean": watch.means[steps - 1],
        "identical": bool(np.array_equal(last, alone[:, 1:-1, 1:-1])),
    }
    return Outcome(result, f"{watch.last}\n\n{_text(result)}")


def _run(watch: _Watch, processes: int, steps: int, socket: str, store: Path) -> list[tuple[float, float]]:
    g, shape = ev.Graph("output"), (SIDE // processes, SIDE)
    scheduler = staging.All([staging.AvoidCongestion(), staging.ConstantDrain(1)])
    stage = g.add(staging.Stage([U, V], processes, socket, store, scheduler=scheduler, live={"v": shape}))
    stage[0] >> ev.Terminal(watch.done)
    stage[1] >> staging.thinned(V, shape, _EVERY) >> ev.Terminal(watch.block)
    stage[1] >> staging.summary(V, shape) >> ev.Terminal(watch.summary)
    spawn = multiprocessing.get_context("spawn")
    pipes = [spawn.Pipe() for _ in range(processes)]
    tells = [spawn.Pipe(duplex=False) for _ in range(processes)]
    solvers = []
    for rank, (_, told) in enumerate(tells):
        around = (pipes[rank - 1][1], pipes[rank][0]) if processes > 1 else None
        solvers.append(spawn.Process(target=_solver, args=(rank, processes, steps, socket, around, told)))
    with g.run() as flow:
        try:
            for solver in solvers:
                solver.start()
            # Whoever waits for a process that has ended hears of it only if nobody else holds its end.
            for end in (*(end for pipe in pipes for end in pipe), *(told for _, told in tells)):
                end.close()
            found = [here.recv() for here, _ in tells]
            for solver in solvers:
                solver.join()
        except EOFError:
            raise StagingError("a process of the solver has ended before its last step") from None
        finally:
            for solver in solvers:
                if solver.is_alive():
                    solver.kill()
        flow.drain(60)
    return found


def _last(store: Path, step: int) -> NDArray[Any]:
    """Both substances of a step, as they are in the store."""
    import xarray

    with xarray.open_dataset(store, engine="h5netcdf" if store.suffix == ".h5" else "zarr") as run:
        return np.stack([run[name].sel(step=step).values for name in "uv"])


def _text(result: dict[str, Any]) -> str:
    share = 100 * result["writing"] / result["seconds"]
    same = "is" if result["identical"] else "is NOT"
    return (
        f"{result['processes']} processes computed {result['steps'] * ITERATIONS:,} iterations in "
        f"{result['seconds']:.1f} s and wrote {result['bytes'] / 1e6:,.0f} MB in {result['steps']} steps.\n"
        f"Writing took {result['writing'] * 1000:.0f} ms of that ({share:.1f} %).\n"
        f"The last step in the store {same} what one process computes alone, bit by bit."
    )
