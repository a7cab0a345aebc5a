"""Staging on several nodes under kills: every byte that is committed is compared with its hash.

    python benchmarks/staging_kills.py --hours 1 --kill-each 60

Four writers, two staging nodes near two of them each, and a root run in processes of their own. A writer
computes (it sleeps) and writes a block, as often as it takes for a blocking write with ``fsync`` to cost 20 %
of the run; that is measured before. Each minute one of the staging nodes and the root is killed (``kill -9``)
and started again. Writers note the hash of each block before they write it, and each step of which they are
told that it is safe. Steps are compared while the run goes on; of those that have been compared only the
number stays, and writers pause where the comparison is far behind, so an hour needs little disk.

In the end no block may differ, no step may be there twice or out of order, none that a writer was told to be
safe may be missing, and none may be lost: writers wait rather than drop. The exit code says so.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import multiprocessing
import os
import socket
import sys
import tempfile
import time
from collections import deque
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any

import h5py
import numpy as np

import evflow as ev
from evflow import staging

WRITERS = 4
SIDE = 512
STEPS = 128
"""Steps that a writer has room for: more than come while a node starts again."""
AHEAD = 200
"""Steps that a writer may be ahead of the comparison."""
COST = 0.2
"""Share of the run that blocking writes would take."""
HEAT = staging.Variable("heat", "f8", (WRITERS * SIDE, SIDE))
ROWS = staging.Variable("rows", "i4", (None,))
NEAR = {"left": range(2), "right": range(2, 4)}
spawn = multiprocessing.get_context("spawn")


def serve(name: str, folder: str, contact: str) -> None:
    """One node, until it is killed."""
    near = {node: (f"{folder}/{node}", ranks) for node, ranks in NEAR.items()}
    graph = staging.tree([HEAT, ROWS], near, f"{folder}/run.h5", root="disk")
    graph["root"] >> ev.Terminal(lambda done: None, on="disk")
    disk = name == "disk"
    node = ev.Node(name, listen=contact) if disk else ev.Node(name, peers={"disk": contact})
    with graph.run(node=node):
        time.sleep(1e9)


def digest(*arrays: np.ndarray) -> str:  # type: ignore[type-arg]
    """The hash of some arrays."""
    return hashlib.blake2b(b"".join(array.tobytes() for array in arrays), digest_size=16).hexdigest()


def write(folder: str, rank: int, period: float, seconds: float, last: Any, compared: Any) -> None:
    """A writer; notes the hash of each block, then what became of the step. The first that is done says which
    step is the last: one that no other has got to, for none is more than its budget ahead."""
    random, began, waited, paused = np.random.default_rng(rank), time.monotonic(), 0.0, 0.0
    node = next(node for node, ranks in NEAR.items() if rank in ranks)
    budget = 4096 + STEPS * (SIDE * SIDE * 8 + 4096)
    writer = staging.Writer(f"{folder}/{node}", rank, WRITERS, [HEAT, ROWS], budget=budget)
    with (
        open(f"{folder}/{rank}.hashes", "w", buffering=1) as hashes,
        open(f"{folder}/{rank}.safe", "w") as safe,
    ):
        for step in itertools.count():
            heat, rows = random.random((SIDE, SIDE)), random.integers(0, 99, random.integers(0, 99), "i4")
            hashes.write(f"{digest(heat, rows)} {len(rows)}\n")
            while step > compared.value + AHEAD:
                time.sleep(0.1)
                paused += 0.1
            since = time.monotonic()
            writer.write(step, {"heat": (heat, (rank * SIDE, 0)), "rows": (rows, (0,))})
            waited += time.monotonic() - since
            safe.writelines(f"{number} {reason}\n" for number, reason in writer.fates())
            with last:
                if last.value < 0 and time.monotonic() > began + seconds:
                    last.value = step + 2 * STEPS
                if step == last.value:
                    break
            time.sleep(max(0.0, began + (step + 1) * period + waited + paused - time.monotonic()))
        took = time.monotonic() - began
        writer.close(120)
        safe.writelines(f"{number} {reason}\n" for number, reason in writer.fates())
    shares = f"it waited {100 * waited / took:.1f} %, and paused {100 * paused / took:.1f} %"
    print(f"rank {rank}: {step + 1} steps in {took:.0f} s, of which {shares}")


def blocking(folder: str) -> float:
    """Seconds that a blocking write of a whole step takes, which all writers wait for."""
    data, found = os.urandom(WRITERS * SIDE * SIDE * 8), []
    for number in range(20):
        began = time.monotonic()
        with open(f"{folder}/blocking.{number}", "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        found.append(time.monotonic() - began)
        os.unlink(file.name)
    return float(np.median(found))


class Comparison:
    """Compares committed steps with the hashes of their writers, in order."""

    def __init__(self, folder: str, compared: Any) -> None:
        self._told = compared
        self._steps = Path(folder) / "run.steps"
        self._notes = [open(f"{folder}/{rank}.hashes") for rank in range(WRITERS)]  # noqa: SIM115
        self.compared, self.wrong, self.bytes = 0, list[str](), 0

    def catch_up(self, seconds: float = 1e9) -> None:
        """Compares what is there, for some time at most."""
        until = time.monotonic() + seconds
        while time.monotonic() < until and (path := self._steps / f"{self.compared}.h5").exists():
            self._compare(path)
            self._told.value = self.compared = self.compared + 1

    def _compare(self, path: Path) -> None:
        with h5py.File(path) as file:
            step, attributes = int(file["step"][0]), dict(file.attrs)
            heat, rows = file["heat"][0], file["rows"][0]
        if step != self.compared or len(attributes["missing"]):
            self.wrong.append(f"{path.name} has step {step}, and lacks {attributes['missing'].tolist()}")
        start = 0
        for rank, notes in enumerate(self._notes):
            expected, count = notes.readline().split()
            block = heat[rank * SIDE : (rank + 1) * SIDE]
            if digest(block, rows[start : start + int(count)]) != expected:
                self.wrong.append(f"step {step}: the block of rank {rank} differs")
            start += int(count)
        self.bytes += heat.nbytes + rows.nbytes
        emptied = path.with_name(".compared")
        with h5py.File(emptied, "w") as file:
            file.attrs.update(attributes)
            file["step"] = np.array([step], np.int64)
        os.replace(emptied, path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--hours", type=float, default=1.0)
    parser.add_argument("--kill-each", type=float, default=60.0, help="seconds")
    given = parser.parse_args()
    seconds, kills = given.hours * 3600, 0
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
        period = blocking(folder) / COST
        size = WRITERS * SIDE * SIDE * 8 / 1e6
        print(f"a step of {size:.1f} MB each {period * 1e3:.0f} ms: blocking writes would take {COST:.0%}")
        with socket.create_server(("127.0.0.1", 0)) as free:
            contact = f"tcp://127.0.0.1:{free.getsockname()[1]}"

        def start(name: str) -> SpawnProcess:
            process = spawn.Process(target=serve, args=(name, folder, contact), daemon=True)
            process.start()
            return process

        nodes = {name: start(name) for name in ("disk", *NEAR)}
        last, compared = spawn.Value("q", -1), spawn.Value("q", 0)
        given_to_all = (period, seconds, last, compared)
        writers = [
            spawn.Process(target=write, args=(folder, r, *given_to_all), daemon=True) for r in range(WRITERS)
        ]
        for writer in writers:
            writer.start()
        turns, due = deque(("left", "disk", "right", "disk")), time.monotonic() + given.kill_each
        while not all(Path(f"{folder}/{rank}.hashes").exists() for rank in range(WRITERS)):
            time.sleep(0.1)
        comparison = Comparison(folder, compared)
        while any(writer.is_alive() for writer in writers):
            time.sleep(0.2)
            comparison.catch_up(1)
            if time.monotonic() >= due:
                due += given.kill_each
                nodes[turns[0]].kill()
                nodes[turns[0]].join()
                nodes[turns[0]] = start(turns[0])
                turns.rotate(-1)
                kills += 1
        comparison.catch_up()
        for node in nodes.values():
            node.kill()
            node.join()
        wrong = comparison.wrong
        for rank in range(WRITERS):
            fates = [line.split(" ", 1) for line in Path(f"{folder}/{rank}.safe").read_text().splitlines()]
            wrong += [f"rank {rank}: step {number}: {reason}" for number, reason in fates if reason]
            safe = sorted(int(number) for number, _ in fates)
            if safe != list(range(comparison.compared)):
                wrong.append(f"rank {rank} was told {len(safe)} steps to be safe, of {comparison.compared}")
    print(f"{kills} kills, {comparison.compared} steps, {comparison.bytes / 1e9:.2f} GB compared")
    print("\n".join(wrong) or "no byte differs, no step is lost, none is there twice")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
