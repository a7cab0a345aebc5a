"""What output costs a solver: the time of a run with each way to write, relative to a run without output.

    python benchmarks/staging.py --rounds 7 --solvers 1 2

Solver processes cool a plate in numpy, exchange their edges, and write the whole plate every few iterations.
Rounds alternate between the ways, so that all meet the same machine; each run is compared with the one
without output in its round. What takes the output is in processes of its own: a staging node, or readers of
ADIOS2's SST. A run ends when the solvers have handed over the last step; its output is safe when all steps
are on the disk (``fsync``). Steps go to a folder in the current one, since what ``fsync`` costs is the
question. CPU is that of the solvers, and of what takes the output.

The experiment is that of figure 13 of G. Eisenhauer et al., "Event-based systems: opportunities and
challenges at exascale" (DEBS 2009): there the best scheduler slowed the application by about 4 %.
"""

from __future__ import annotations

import argparse
import fcntl
import importlib.util
import math
import mmap
import multiprocessing
import os
import resource
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from table import axes_of, markdown, write

import evflow as ev
from evflow import staging
from evflow.net.node.arena import SEALS
from evflow.staging.gathering import Part
from evflow.staging.serving import Source
from evflow.staging.stores import open_store
from evflow.staging.stores.direct import write_file

SIDE = 1024
QUEUE = 4
"""Steps that may wait at a solver, with every way that lets any wait."""
HEAT = staging.Variable("heat", "f8", (SIDE, SIDE), ("y", "x"))
SCHEDULERS = {
    "unscheduled": staging.Scheduler(),
    "constant drain": staging.ConstantDrain(1),
    "congestion": staging.AvoidCongestion(),
    "in order": staging.InOrder(),
    "rate 200 MB/s": staging.RateLimit(200e6),
}
PEERS = {"ADIOS2 BP5": "BP5", "ADIOS2 SST": "SST"}

Plate = np.ndarray[Any, Any]
Around = tuple[Connection | None, Connection | None]


class Output(NamedTuple):
    """How a solver writes: a step; the last one, until all is safe; and while it communicates."""

    write: Callable[[int, Plate], object]
    close: Callable[[], object]
    communicating: Callable[[], AbstractContextManager[None]] = nullcontext


def synced(path: str, data: Any) -> None:
    """Writes a file, and brings it to the disk."""
    with open(path, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def stream(engine: str, name: str, mode: str) -> Any:
    """One end of an output of ADIOS2."""
    import adios2

    io = adios2.Adios().declare_io("output")
    io.set_engine(engine)
    if engine == "SST":
        settings = {"DataTransport": "WAN", "QueueLimit": str(QUEUE), "QueueFullPolicy": "Block"}
        io.set_parameters(settings | {"RendezvousReaderCount": "1"})
    return adios2.Stream(io, name, mode)


def adios(engine: str, folder: str, rank: int) -> Output:
    """A solver writes by ADIOS2, a stream of its own: the package has no MPI."""
    name = f"{folder}/{rank}.bp" if engine == "BP5" else f"{folder}/{rank}"
    made = stream(engine, name, "w")

    def write(step: int, plate: Plate) -> None:
        made.begin_step()
        made.write("heat", plate, list(plate.shape), [0, 0], list(plate.shape))
        made.end_step()

    def close() -> None:
        made.close()
        for file in Path(name).glob("*") if engine == "BP5" else ():
            with file.open("rb+") as opened:
                os.fsync(opened.fileno())

    return Output(write, close)


def output(way: str, folder: str, rank: int, solvers: int) -> Output:
    """How a solver writes in this way."""
    if way in PEERS:
        return adios(PEERS[way], folder, rank)
    if way == "blocking":
        return Output(lambda step, plate: synced(f"{folder}/{rank}.{step}", plate), lambda: None)
    if way == "no output":
        return Output(lambda step, plate: None, lambda: None)
    rows = SIDE // solvers
    writer = staging.Writer(f"{folder}/socket", rank, solvers, [HEAT], budget=4096 + QUEUE * rows * SIDE * 8)
    return Output(
        lambda step, plate: writer.write(step, {"heat": (plate, (rank * rows, 0))}),
        lambda: writer.close(None),
        writer.communicating,
    )


def exchange(plate: Plate, around: Around) -> None:
    """Gets the rows beside one's own from the neighbours."""
    above, below = around
    if above:
        above.send_bytes(plate[1].tobytes())
    if below:
        below.send_bytes(plate[-2].tobytes())
        plate[-1] = np.frombuffer(below.recv_bytes())
    if above:
        plate[0] = np.frombuffer(above.recv_bytes())


def cpu() -> float:
    """Seconds of CPU that this process has used."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def solve(
    way: str, folder: str, rank: int, solvers: int, steps: int, every: int, around: Around, pipe: Connection
) -> None:
    """A solver; sends the seconds of its run, until all is safe, and of CPU."""
    rows = SIDE // solvers
    plate = np.random.default_rng(rank).random((rows + 2, SIDE))
    out = output(way, folder, rank, solvers)
    pipe.send(True)
    pipe.recv()
    began, used = time.perf_counter(), cpu()
    for step in range(steps):
        for _ in range(every):
            with out.communicating():
                exchange(plate, around)
            beside = plate[:-2, 1:-1] + plate[2:, 1:-1] + plate[1:-1, :-2] + plate[1:-1, 2:]
            plate[1:-1, 1:-1] += 0.2 * (beside - 4 * plate[1:-1, 1:-1])
        out.write(step, plate[1:-1])
    run = time.perf_counter() - began
    out.close()
    pipe.send((run, time.perf_counter() - began, cpu() - used))


def stage(way: str, folder: str, solvers: int, pipe: Connection) -> None:
    """A staging node, until it is told to end; sends its seconds of CPU."""
    g = ev.Graph("output")
    g.add(staging.Stage([HEAT], solvers, f"{folder}/socket", f"{folder}/run.h5", scheduler=SCHEDULERS[way]))
    with g.run():
        pipe.send(True)
        used = cpu()
        pipe.recv()
        pipe.send((0.0, cpu() - used))


def read(folder: str, rank: int, pipe: Connection) -> None:
    """Reads what one solver writes by SST, and brings it to the disk."""
    pipe.send(True)
    used = cpu()
    with stream("SST", f"{folder}/{rank}", "r") as made:
        for step, _ in enumerate(made.steps()):
            synced(f"{folder}/{rank}.{step}", made.read("heat"))
    pipe.recv()
    pipe.send((time.perf_counter(), cpu() - used))


@contextmanager
def takers(way: str, folder: str, solvers: int) -> Iterator[list[Connection]]:
    """The processes that take the output, and pipes to them."""
    spawn = multiprocessing.get_context("spawn")
    made, pipes = [], []
    for rank in range({"ADIOS2 SST": solvers}.get(way, int(way in SCHEDULERS))):
        here, there = spawn.Pipe()
        program, given = (read, (folder, rank)) if way in PEERS else (stage, (way, folder, solvers))
        made.append(spawn.Process(target=program, args=(*given, there)))
        made[-1].start()
        pipes.append(here)
    for pipe in pipes:
        pipe.recv()
    yield pipes
    for process in made:
        process.join()


def measure(way: str, solvers: int, steps: int, every: int) -> tuple[float, float, float, float]:
    """The seconds of one run, until all of its output is on the disk, and of CPU: of solvers and takers."""
    spawn = multiprocessing.get_context("spawn")
    beside = [spawn.Pipe() for _ in range(solvers - 1)]
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder, takers(way, folder, solvers) as pipes:
        processes, ends = [], []
        for rank in range(solvers):
            here, there = spawn.Pipe()
            above = beside[rank - 1][1] if rank else None
            around = (above, beside[rank][0] if rank < solvers - 1 else None)
            given = (way, folder, rank, solvers, steps, every, around, there)
            processes.append(spawn.Process(target=solve, args=given))
            processes[-1].start()
            ends.append(here)
        for end in ends:
            end.recv()
        began = time.perf_counter()
        for end in ends:
            end.send(True)
        found = np.array([end.recv() for end in ends])
        for process in processes:
            process.join()
        for pipe in pipes:
            pipe.send(True)
        taken = np.array([pipe.recv() for pipe in pipes]).reshape(-1, 2)
        safe = max([*found[:, 1], *(taken[:, 0] - began)])
        return float(found[:, 0].max()), float(safe), float(found[:, 2].sum()), float(taken[:, 1].sum())


def copied() -> tuple[float, float]:
    """GB a second that a staging node copies out of the memory of a writer, and numpy out of any memory that
    processes share: the medians of 48 copies of 4 MiB, of other bytes each time, once pages are mapped."""
    size, blocks = 1 << 22, 16
    file = os.memfd_create("writer", os.MFD_ALLOW_SEALING)
    os.ftruncate(file, size * blocks)
    fcntl.fcntl(file, fcntl.F_ADD_SEALS, SEALS)
    shared = mmap.mmap(-1, size * blocks)
    with mmap.mmap(file, 0) as written:
        written[:] = shared[:] = os.urandom(1 << 20) * (size * blocks >> 20)
    source, own, into = Source(file, True), np.frombuffer(shared, np.uint8), np.ones((2, size), np.uint8)
    times = np.zeros((4 * blocks, 2))
    for number in range(4 * blocks):
        start = number % blocks * size
        began = time.perf_counter()
        source.read(into[0], start)
        times[number, 0] = time.perf_counter() - began
        began = time.perf_counter()
        into[1] = own[start : start + size]
        times[number, 1] = time.perf_counter() - began
    staged, plain = size / 1e9 / np.median(times[blocks:], axis=0)
    return float(staged), float(plain)


def spent() -> dict[str, float]:
    """Milliseconds of CPU for a plate that is brought to the disk, the least of 15 turns: by ``write`` and
    ``fsync``; by these past the page cache (``O_DIRECT``); by the store of a staging node."""
    plate = np.frombuffer(mmap.mmap(-1, SIDE * SIDE * 8), np.uint8)
    part = Part(0, {0.0}, {0: (HEAT.block((SIDE, SIDE)),)}, {0: [plate]}, lives={0: 1})
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
        store = open_store(Path(folder, "run.h5"), {HEAT.name: HEAT})

        def direct(number: int) -> None:
            write_file(Path(folder, f"{number}d"), [plate])
            with open(f"{folder}/{number}d", "rb") as file:
                os.fsync(file.fileno())

        ways: dict[str, Callable[[int], None]] = {
            "write and fsync": lambda number: synced(f"{folder}/{number}", plate),
            "past the page cache": direct,
            "store": lambda number: store.commit(replace(part, step=number)),
        }
        found = dict.fromkeys(ways, math.inf)
        for number in range(15):
            for way, write in ways.items():
                used = time.thread_time()
                write(number)
                found[way] = min(found[way], 1e3 * (time.thread_time() - used))
        store.close()
    return found


class Slowed(NamedTuple):
    """What a way costs: percent of the run without output in the same round, and seconds, medians."""

    way: str
    percent: float
    low: float
    high: float
    safe: float
    solvers: float
    takers: float


def compared(ways: list[str], solvers: int, given: argparse.Namespace) -> list[Slowed]:
    """Runs all ways in turn, round after round, and prints their table."""
    times = {way: np.zeros((given.rounds, 4)) for way in ways}
    for number in range(given.rounds):
        for way in np.roll(ways, number):
            times[way][number] = measure(str(way), solvers, given.steps, given.every)
    base, random, found = times["no output"], np.random.default_rng(0), []
    for way in ways:
        ratio = (times[way][:, 0] / base[:, 0] - 1) * 100
        drawn = np.median(random.choice(ratio, (4000, given.rounds)), axis=1)
        low, high = np.percentile(drawn, [2.5, 97.5])
        _, safe, own, taken = np.median(times[way], axis=0)
        found.append(Slowed(way, float(np.median(ratio)), low, high, safe, own, taken))
    of = f"{given.rounds} rounds, {given.steps} steps of {SIDE * SIDE * 8 / 1e6:.1f} MB"
    head = [
        "way",
        "slower by, median",
        "95 % interval",
        "output safe after, s",
        "CPU of solvers, s",
        "takers, s",
    ]
    lines = [
        [
            row.way, f"{row.percent:.1f} %", f"{row.low:.1f} to {row.high:.1f} %", f"{row.safe:.2f}",
            f"{row.solvers:.2f}", f"{row.takers:.3f}",
        ]
        for row in found
    ]  # fmt: skip
    markdown(f"{solvers} solvers, {of}, {np.median(base[:, 0]):.2f} s alone", [head, *lines])
    return found


def drawn(results: dict[int, list[Slowed]], title: str) -> None:
    """A bar for each way and number of solvers, its interval, and what the paper's best scheduler cost."""
    figure, axes = axes_of(title, 4)
    width = 0.8 / len(results)
    for number, (solvers, rows) in enumerate(results.items()):
        rows = rows[1:]
        percent = np.array([row.percent for row in rows])
        ends = np.array([[row.percent - row.low for row in rows], [row.high - row.percent for row in rows]])
        at = np.arange(len(rows)) + (number - (len(results) - 1) / 2) * width
        name = f"{solvers} solver{'s' * (solvers > 1)}"
        axes.bar(at, percent, width, yerr=ends, label=name, error_kw={"lw": 0.8})
        axes.set_xticks(np.arange(len(rows)), [row.way for row in rows], rotation=20)
    axes.axhline(4, color="#555555", ls="--", lw=0.8, label="the paper, 64 to 2,048 processors: about 4 %")
    axes.axhline(0, color="black", lw=0.8)
    axes.set(ylabel="slower than without output, %")
    axes.legend(frameon=False, fontsize=8)
    write("staging", figure, results={str(n): [row._asdict() for row in rows] for n, rows in results.items()})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument(
        "--solvers",
        type=int,
        nargs="+",
        choices=(1, 2, 4, 8),
        default=[1, 2, 4, 8],
        help="processes that compute",
    )
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--every", type=int, default=8, help="iterations between two steps")
    given = parser.parse_args()
    costs = ", ".join(f"{way} {cost:.2f} ms" for way, cost in spent().items())
    print(f"CPU of a step of {SIDE * SIDE * 8 / 1e6:.1f} MB: {costs}")
    staged, plain = copied()
    print(f"copies out of the memory of a writer: {staged:.1f} GB/s, of any shared memory: {plain:.1f} GB/s")
    peers = list(PEERS) if importlib.util.find_spec("adios2") else []
    if not peers:
        print("without ADIOS2: pip install adios2")
    ways = ["no output", "blocking", *peers, *SCHEDULERS]
    results = {solvers: compared(ways, solvers, given) for solvers in given.solvers}
    drawn(
        results,
        f"What a step of 8.4 MB each {given.every} iterations costs a solver on {os.cpu_count()} cores",
    )


if __name__ == "__main__":
    main()
