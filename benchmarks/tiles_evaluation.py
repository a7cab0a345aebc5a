"""The evaluation of the paper (section V) on this machine: what the fleet is that a load of its cores bears.

Entities at 20 km/h, 100 a km², circles of 50 m, tiles of 1222 m, a move every 10 s; the share k publishes. As
in section V.B the client lets the fleet grow while the load is below ``--low`` and shrink while it is above
``--high``, or moves come late; then it measures. Load is CPU of the client and all daemons, a core. Each
daemon has all roles.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from table import machine, markdown
from tiles import DEGREES, Arrivals, daemons, moved, spent

from evflow import tiles
from evflow.tiles import MOVE

PERIOD = 10.0
"""Seconds between two moves of an entity."""

HEIGHT = 100_000.0
"""Metres from south to north; the area grows to the east, so that any first n have the density."""


@dataclass(frozen=True)
class Measured:
    """What a run came to.

    Attributes:
        entities: the fleet.
        moves: in these seconds.
        matches: those that came.
        seconds: on the clock.
        cpu: seconds of the client and of each daemon.
        memory: MiB of the same.
        latency: ms from a move to its matches: p50, p90, p99, max.
    """

    entities: int
    moves: int
    matches: int
    seconds: float
    cpu: list[float]
    memory: list[int]
    latency: list[float]


class Fleet:
    """Entities of a client, that move in turns.

    Args:
        client: the connection.
        n: how many there are.
        k: the share that publishes.
        tick: seconds between two batches.
    """

    def __init__(self, client: tiles.Connection, arrivals: Arrivals, n: int, k: float, tick: float) -> None:
        self._client, self._arrivals, self._tick, self._k = client, arrivals, tick, k
        self._random, self.rows, self._next = np.random.default_rng(1), np.zeros(0, MOVE), 0
        self._at = time.monotonic()
        self.resize(n)

    def resize(self, n: int) -> None:
        """Lets entities come, or the last ones go."""
        old, client = self.rows, self._client
        for flag, add, drop in (
            (0, client.publish, client.unpublish),
            (1, client.subscribe, client.unsubscribe),
        ):
            gone = old[n:]
            drop(gone["id"][gone["flags"] == flag])
            new = self._made(len(old), n)
            new = new[new["flags"] == flag]
            add(new["id"], new["zone"][:, :3])
        self.rows = np.concatenate([old[:n], self._made(len(old), n)])
        client.drain(60)
        self._at = time.monotonic()

    def _made(self, start: int, end: int) -> np.ndarray:
        # The same for the same numbers.
        rows, random = np.zeros(max(0, end - start), MOVE), np.random.default_rng(start)
        rows["id"] = np.arange(start, start + len(rows))
        rows["flags"] = random.random(len(rows)) >= self._k
        east = (rows["id"] + random.random(len(rows))) / 100e-6 / HEIGHT
        rows["zone"][:, 0] = 46 + random.uniform(0, HEIGHT, len(rows)) * DEGREES
        rows["zone"][:, 1] = 6 + east * DEGREES / np.cos(np.radians(46))
        rows["zone"][:, 2] = 50
        return rows

    def turn(self, moves: int, calls: int = 1) -> int:
        """Moves the next entities, by so many calls for each side; returns how many moves that were."""
        part = self.rows[np.arange(self._next, self._next + moves) % len(self.rows)]
        moved(part["zone"], self._random)
        self.rows[part["id"]] = part
        self._next = (self._next + moves) % len(self.rows)
        for some in np.array_split(part, calls):
            for flag in (0, 1):
                side, now = some[some["flags"] == flag], time.monotonic()
                version = self._client.move(side["id"], side["zone"][:, :3], subscriptions=bool(flag))
                self._arrivals.sent[version] = now
        return moves

    def settle(self) -> None:
        """Waits until nothing is under way any more, nor comes."""
        self._client.drain(120)
        before = -1
        while before != self._arrivals.count:
            before = self._arrivals.count
            time.sleep(0.3)

    def move(self, seconds: float) -> tuple[int, float]:
        """Moves them for some seconds.

        Returns:
            How many moves that were, and how many seconds late the last ones were.
        """
        until, count = time.monotonic() + seconds, 0
        self._at = max(self._at, time.monotonic() - self._tick)
        while time.monotonic() < until:
            time.sleep(max(0.0, self._at - time.monotonic()))
            count += self.turn(round(len(self.rows) * self._tick / PERIOD))
            self._at += self._tick
        return count, time.monotonic() - self._at


@contextmanager
def system(processes: int, replicas: int) -> Iterator[tuple[tiles.Connection, Arrivals, list[int]]]:
    """Daemons that have all roles each, and a client: its connection, what came, and all process ids."""
    names, arrivals = [f"h{number}" for number in range(processes)], Arrivals()
    with tempfile.TemporaryDirectory() as folder, daemons(names, Path(folder)) as running:
        contacts = {name: daemon.contact for name, daemon in running.items()}
        with (
            tiles.graph(names, replicas=replicas).deploy(contacts),
            tiles.connect(f"{contacts['h0']}/tiles/h0", arrivals, patience=20) as client,
        ):
            yield client, arrivals, [os.getpid(), *(daemon.pid for daemon in running.values())]


def measure(fleet: Fleet, arrivals: Arrivals, pids: list[int], seconds: float) -> tuple[Measured, float]:
    """Moves for some seconds; what that came to, and how late the last moves were."""
    fleet.settle()
    arrivals.came.clear()
    before, begin, count = [spent(pid)[0] for pid in pids], time.monotonic(), arrivals.count
    moves, late = fleet.move(seconds)
    took = time.monotonic() - begin
    fleet.settle()
    matches = arrivals.count - count
    after = [spent(pid) for pid in pids]
    cpu = [now - then for (now, _), then in zip(after, before, strict=True)]
    memory = [round(size) for _, size in after]
    latency = arrivals.at(0.5, 0.9, 0.99, 1)
    return Measured(len(fleet.rows), moves, matches, took, cpu, memory, latency), late


def evaluate(processes: int, options: argparse.Namespace, k: float, replicas: int) -> Measured:
    """Seeks the fleet that the load allows, and measures it."""
    with system(processes, replicas) as (client, arrivals, pids):
        fleet = Fleet(client, arrivals, options.entities, k, options.tick)
        middle, cores = (options.low + options.high) / 2, os.cpu_count() or 1
        for _ in range(options.steps):
            fleet.move(1)
            found, late = measure(fleet, arrivals, pids, 2)
            load = sum(found.cpu) / found.seconds / cores
            if options.low <= load <= options.high and late < 2 * options.tick:
                break
            # What comes late has no room, though others may have taken it.
            change = 0.8 if late > 2 * options.tick else middle / load
            fleet.resize(int(len(fleet.rows) * min(1.5, max(0.7, change))))
        return measure(fleet, arrivals, pids, options.seconds)[0]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--processes", type=int, nargs="*", default=[1, 2, 4], help="daemons")
    parser.add_argument("--k", type=float, nargs="*", default=[0.2, 0.5, 0.8])
    parser.add_argument("--replicas", type=int, nargs="*", default=[1, 2, 3], help="with k 0.5")
    parser.add_argument("--entities", type=int, default=300_000, help="at first")
    parser.add_argument("--low", type=float, default=0.45)
    parser.add_argument("--high", type=float, default=0.55)
    parser.add_argument("--steps", type=int, default=10, help="changes of the fleet at most")
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--tick", type=float, default=0.05, help="seconds between two batches")
    options = parser.parse_args()
    cases = [(p, k, 1) for p in options.processes for k in options.k]
    cases += [(p, 0.5, r) for p in options.processes for r in options.replicas if r > 1 and p % r == 0]
    head = "daemons, k, r|entities|moves/s|matches/s|CPU a move|load|p50|p90|p99|max, ms|MiB a daemon".split(
        "|"
    )
    lines = [head]
    for processes, k, replicas in cases:
        found = evaluate(processes, options, k, replicas)
        lines.append(
            [
                f"{processes}, {k}, {replicas}",
                f"{found.entities:,}",
                f"{found.moves / found.seconds:,.0f}",
                f"{found.matches / found.seconds:,.0f}",
                f"{sum(found.cpu) / found.moves * 1e6:.1f} µs",
                f"{sum(found.cpu) / found.seconds / machine()['cores']:.2f}",
                *(f"{ms:.1f}" for ms in found.latency),
                f"{np.mean(found.memory[1:]):.0f}",
            ]
        )
        print(" | ".join(lines[-1]), flush=True)
    markdown("The fleet that the load allows", lines)


if __name__ == "__main__":
    main()
