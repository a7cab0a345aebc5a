"""What a move costs in ``evflow.tiles``: each role alone, or all of them over processes.

Entities at 20 km/h, 100 a km², circles of 50 m, tiles of 1222 m, a move every 10 s; the share k publishes.

Without ``--processes`` one process and no sockets: thread CPU time, so that other load counts little. With
``--processes`` daemons on this machine, one for Frontend and State Manager each and the others for Tile
Managers, or each with all roles where there are replicas. This program is the client; its CPU is in the sum.
With ``--redis`` the same moves go to Redis GEO afterwards, a GEOADD and a GEOSEARCH each, pipelined. Redis
rounds places to 0.6 m, so matches differ by some in ten thousand.
"""

from __future__ import annotations

import argparse
import math
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from tiles_redis import Redis

from evflow import tiles
from evflow.tiles import MOVE, Client, Frontend, Grid, Layout, Place, Ring, StateManager, TileManager
from evflow.tiles.density import balanced, crowds
from evflow.tiles.messages import Message, Outbox

Role = Frontend | StateManager | TileManager

STEP = 20 / 3.6 * 10
DEGREES = 1 / 111_195


def fleet(n: int, k: float, random: np.random.Generator, skewed: bool = False) -> np.ndarray:
    rows = np.zeros(n, MOVE)
    side = np.sqrt(n / 100) * 1000
    rows["id"], rows["flags"] = np.arange(n), random.random(n) >= k
    rows["zone"][:, 0] = 46 + random.uniform(0, side, n) * DEGREES
    rows["zone"][:, 1] = 6 + random.uniform(0, side, n) * DEGREES / np.cos(np.radians(46))
    rows["zone"][:, 2] = 50
    if skewed:
        # Half of all, with as many matches each, in a hundredth of the area.
        half = rows["zone"][: n // 2]
        half[:, :2] = (46, 6) + (half[:, :2] - (46, 6)) / 10
        half[:, 2] = 50 / np.sqrt(50)
    return rows


def moved(zones: np.ndarray, random: np.random.Generator) -> None:
    angle = random.uniform(0, 2 * np.pi, len(zones))
    zones[:, 0] += np.sin(angle) * STEP * DEGREES
    zones[:, 1] += np.cos(angle) * STEP * DEGREES / np.cos(np.radians(46))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--entities", type=int, default=200_000)
    parser.add_argument("--batch", type=int, default=5000)
    parser.add_argument("--moves", type=int, default=600_000)
    parser.add_argument("--processes", type=int, default=0, help="daemons; 0: no sockets")
    parser.add_argument("--replicas", type=int, default=1)
    parser.add_argument("--rate", type=float, default=0, help="moves a second; 0: as many as go")
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--window", type=int, default=50_000, help="moves under way")
    parser.add_argument("--k", type=float, default=0.5)
    parser.add_argument("--redis", action="store_true", help="the same moves to redis-server, afterwards")
    parser.add_argument("--skewed", action="store_true", help="half of all in 1 % of the area; no sockets")
    parser.add_argument("--most", type=float, default=300, help="as tiles.balance")
    options = parser.parse_args()
    if options.processes:
        over_processes(options)
        return
    print(
        "k    "
        + "".join(f"{name:>10}" for name in ("client", "frontend", "state", "tile", "all"))
        + "  ns a move"
    )
    grid = Grid(15)
    for k in (0.2, 0.5, 0.8) if not options.skewed else ():
        measure(k, options, grid)
    while options.skewed:
        print(f"{len(grid.splits)} tiles are split")
        manager = measure(options.k, options, grid)
        splits = balanced(grid, crowds(manager, options.most), options.most)
        if splits == grid.splits:
            break
        grid = Grid(15, splits)


def played(
    client: Client, roles: Mapping[Place, Role], outbox: Outbox
) -> Iterator[tuple[Place, Place, Message, float, Outbox]]:
    """Plays what a client sends, without links: each message, from whom to whom, with the CPU seconds that it
    took there, and what is sent on."""
    waiting = [(client.place, *sent) for sent in outbox]
    for sender, target, message in waiting:
        begin = time.thread_time()
        if target == client.place:
            outbox = client.receive(sender, message)[1]
        else:
            outbox = roles[target].receive(sender, message)
        took = time.thread_time() - begin
        waiting += [(target, *sent) for sent in outbox]
        yield sender, target, message, took, outbox


def measure(k: float, options: argparse.Namespace, grid: Grid) -> TileManager:
    random = np.random.default_rng(1)
    ring = Ring({0: ("host",)})
    layout = Layout(grid, ring, ring)
    front, state, tile = (Place(role, 0) for role in ("frontend", "state", "tile"))
    manager = TileManager(tile, layout)
    roles: dict[Place, Role] = {
        front: Frontend(front, layout),
        state: StateManager(state, layout),
        tile: manager,
    }
    client = Client(Place("client", 0), front)
    spent, rows = Counter[str](), Counter[str]()

    def send(part: np.ndarray) -> None:
        begin = time.thread_time()
        outbox = client.send(part)
        spent["client"] += time.thread_time() - begin
        for _, target, message, took, _ in played(client, roles, outbox):
            rows[f"{message.kind} to {target.role}"] += len(message.rows)
            spent[target.role] += took

    entities = fleet(options.entities, k, random, options.skewed)
    for start in range(0, len(entities), options.batch):
        send(entities[start : start + options.batch])
    spent.clear()
    rows.clear()
    count = 0
    while count < options.moves:
        moved(entities["zone"], random)
        entities["version"] += 1
        order = random.permutation(len(entities))
        for start in range(0, len(order), options.batch):
            send(entities.take(order[start : start + options.batch]))
        count += len(order)
    costs = [spent[role] / count * 1e9 for role in ("client", "frontend", "state", "tile")]
    print(
        f"{k:<5}" + "".join(f"{cost:10.0f}" for cost in (*costs, sum(costs))),
        f"; {rows['moves to tile'] / count:.2f} to tiles, {rows['matches to client'] / count:.2f} matches",
    )
    return manager


def wait_for(contact: str) -> None:
    """Waits until somebody listens there."""
    host, port = contact.removeprefix("tcp://").split(":")
    until = time.monotonic() + 120
    while time.monotonic() < until:
        try:
            return socket.create_connection((host, int(port))).close()
        except OSError:
            time.sleep(0.1)


@contextmanager
def daemons(names: list[str], folder: Path) -> Iterator[dict[str, tuple[str, int]]]:
    """Daemons as processes that listen: contact and process id by name."""
    found, running = {}, []
    try:
        for name in names:
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                contact = f"tcp://127.0.0.1:{free.getsockname()[1]}"
            options = ["--listen", contact, "--storage", str(folder / name), "--allow", "evflow.tiles.stone"]
            with (folder / f"{name}.log").open("w") as log:
                command = [sys.executable, "-m", "evflow", "node", name, *options]
                running.append(subprocess.Popen(command, stdout=log, stderr=log))
            found[name] = contact, running[-1].pid
        for contact, _ in found.values():
            wait_for(contact)
        yield found
    finally:
        for process in running:
            process.terminate()
        for process in running:
            process.wait(20)


def spent(pid: int | str) -> tuple[float, float]:
    """CPU seconds and resident MiB of a process."""
    parts = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    tick, page = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")
    return (int(parts[11]) + int(parts[12])) / tick, int(parts[21]) * page / 2**20


class Arrivals:
    """Counts matches, and how long after the move that triggered them they came."""

    def __init__(self) -> None:
        self.sent: dict[int, float] = {}
        self.count = 0
        self.came: list[tuple[float, int, int]] = []

    def __call__(self, rows: np.ndarray) -> None:
        now = time.monotonic()
        self.count += len(rows)
        versions, counts = np.unique(np.maximum(rows["pub_version"], rows["sub_version"]), return_counts=True)
        self.came += [(now, *pair) for pair in zip(versions.tolist(), counts.tolist(), strict=True)]

    def settle(self) -> None:
        """Waits until none have come for some seconds."""
        before = -1
        while before != self.count:
            before = self.count
            time.sleep(10)

    def at(self, *shares: float) -> list[float]:
        """The latencies, in ms, that these shares of the matches had at most."""
        latencies = sorted((at - self.sent[version], count) for at, version, count in self.came)
        if not latencies:
            return [float("nan")] * len(shares)
        times, counts = (np.array(column) for column in zip(*latencies, strict=True))
        below = np.cumsum(counts) / counts.sum()
        return [1000 * float(times[np.searchsorted(below, share - 1e-12)]) for share in shares]

    def quantiles(self) -> str:
        return "p50 {:.1f}, p90 {:.1f}, p99 {:.1f}, max {:.1f} ms".format(*self.at(0.5, 0.9, 0.99, 1))


def over_processes(options: argparse.Namespace) -> None:
    names = [f"h{number}" for number in range(options.processes)]
    roles: dict[str, list[str]] = {}
    if options.replicas == 1 and len(names) > 2:
        roles = {"frontends": names[:1], "states": names[1:2], "tiles": names[2:]}
    graph = tiles.graph(names, replicas=options.replicas, **roles)
    random, arrivals = np.random.default_rng(1), Arrivals()
    with tempfile.TemporaryDirectory() as folder, daemons(names, Path(folder)) as running:
        contacts = {name: contact for name, (contact, _) in running.items()}
        with (
            graph.deploy(contacts),
            tiles.connect(
                f"{contacts['h0']}/tiles/h0", arrivals, window=options.window, patience=20
            ) as client,
        ):
            entities = fleet(options.entities, options.k, random)
            for flag, call in ((0, client.publish), (1, client.subscribe)):
                part = entities[entities["flags"] == flag]
                call(part["id"], part["zone"][:, :3])
            client.drain(300)
            arrivals.settle()
            arrivals.came.clear()
            pids = [os.getpid(), *(pid for _, pid in running.values())]
            before, begin, count = [spent(pid)[0] for pid in pids], time.monotonic(), arrivals.count
            sent = drive(client, arrivals, entities, options, random)
            client.drain(300)
            took = time.monotonic() - begin
            cpu = [spent(pid)[0] - at for pid, at in zip(pids, before, strict=True)]
            arrivals.settle()
            matches = arrivals.count - count
            print(f"{options.entities} entities, k {options.k}, r {options.replicas}, {len(names)} daemons")
            print(f"{sent / took:.0f} moves/s, {matches / took:.0f} matches/s, {arrivals.quantiles()}")
            print(f"{matches} matches of {sent} moves, {sum(cpu) / sent * 1e6:.1f} µs of CPU a move")
            each = ", ".join(f"{seconds / took:.2f}" for seconds in cpu)
            print(f"cores: client and daemons {each}; MiB {[round(spent(pid)[1]) for pid in pids]}")
            print(f"copies {client.copies}, refused {client.refused}")
        if options.redis:
            over_redis(options, sent, Path(folder))


def over_redis(options: argparse.Namespace, moves: int, folder: Path) -> None:
    """As many of the same moves to Redis, a place and a search each; see ``tiles_redis``."""
    random = np.random.default_rng(1)
    with Redis(folder) as client:
        entities = fleet(options.entities, options.k, random)
        for flag, call in ((0, client.publish), (1, client.subscribe)):
            part = entities[entities["flags"] == flag]
            call(part["id"], part["zone"])
        client.drain(300)
        before, begin = [spent(pid)[0] for pid in (os.getpid(), client.pid)], time.monotonic()
        drive(client, Arrivals(), entities, options, random, moves)
        client.drain(300)
        took = time.monotonic() - begin
        cpu = [spent(pid)[0] - at for pid, at in zip((os.getpid(), client.pid), before, strict=True)]
        print(f"Redis GEO: {moves / took:.0f} moves/s, {client.count / took:.0f} matches/s")
        each = ", ".join(f"{seconds / took:.2f}" for seconds in cpu)
        print(f"{client.count} matches of {moves} moves, {sum(cpu) / moves * 1e6:.1f} µs of CPU a move")
        print(f"cores: client and server {each}; MiB {round(spent(client.pid)[1])}")


def drive(
    client: tiles.Connection | Redis,
    arrivals: Arrivals,
    entities: np.ndarray,
    options: argparse.Namespace,
    random: np.random.Generator,
    most: int | None = None,
) -> int:
    """Moves entities for some seconds, or so many; returns how many moves that were.

    They take turns in an order that has nothing to do with their places or when they came. A batch is due at
    a moment that the rate says, and its latency begins then, also if it is sent later.
    """
    entities = entities.take(random.permutation(len(entities)))
    sides = [entities.compress(entities["flags"] == flag) for flag in (0, 1)]
    columns = [(side["id"].copy(), side["zone"][:, :3].copy()) for side in sides]
    begin, sent = time.monotonic(), 0
    while True:
        turn = sent % len(entities) / len(entities)
        for flag, (ids, zones) in enumerate(columns):
            start = int(turn * len(ids))
            part = slice(start, start + math.ceil(options.batch * len(ids) / len(entities)))
            due = time.monotonic()
            if options.rate and most is None:
                due = begin + sent / options.rate
                time.sleep(max(0.0, due - time.monotonic()))
            if time.monotonic() - begin > options.seconds if most is None else sent >= most:
                return sent
            moved(zones[part], random)
            arrivals.sent[client.move(ids[part], zones[part], subscriptions=bool(flag))] = due
            sent += len(ids[part])


if __name__ == "__main__":
    main()
