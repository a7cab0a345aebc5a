"""What a move costs in ``evflow.tiles``: each role alone, or all of them over processes.

Entities at 20 km/h, 100 a km², circles of 50 m, tiles of 1222 m, a move every 10 s; the share k publishes.

Without ``--processes`` one process and no sockets: thread CPU time, so that other load counts little. With
``--processes`` daemons on this machine, one for Frontend and State Manager each and the others for Tile
Managers, or each with all roles where there are replicas. This program is the client; its CPU is in the sum.
With ``--verify`` count and hash of the matches of each second are compared with a replay (``tiles_replay``).
With ``--kill 300`` daemon h0 gets SIGKILL then, and starts again after 5 s; the client's Frontend is there.
With ``--redis`` the same moves go to Redis GEO afterwards, a GEOADD and a GEOSEARCH each, pipelined. Redis
rounds places to 0.6 m, so matches differ by some in ten thousand.
"""

from __future__ import annotations

import argparse
import math
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

import numpy as np
from tiles_redis import Redis
from tiles_replay import Sums, Turn, replay

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
    parser.add_argument(
        "--verify", action="store_true", help="compare each second with a replay; needs --rate"
    )
    parser.add_argument("--kill", type=float, default=0, help="the second of a kill -9; needs --replicas 2")
    parser.add_argument("--silence", type=float, default=3, help="seconds after which a host counts as dead")
    parser.add_argument("--redis", action="store_true", help="the same moves to redis-server, afterwards")
    parser.add_argument("--skewed", action="store_true", help="half of all in 1 %% of the area; no sockets")
    parser.add_argument("--most", type=float, default=300, help="as tiles.balance")
    options = parser.parse_args()
    if options.verify and not (options.processes and options.rate):
        parser.error("--verify: expected --processes and --rate, which says what is due in each second")
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


class Daemon:
    """A daemon as a process that listens.

    Attributes:
        contact: where.
        process: the latest, if it was started again.
    """

    def __init__(self, name: str, folder: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.contact = f"tcp://127.0.0.1:{free.getsockname()[1]}"
        self._log = folder / f"{name}.log"
        options = ["--listen", self.contact, "--storage", str(folder / name)]
        options += ["--allow", "evflow.tiles.stone"]
        self._command = [sys.executable, "-m", "evflow", "node", name, *options]
        self.start()

    def start(self) -> None:
        with self._log.open("a") as log:
            self.process = subprocess.Popen(self._command, stdout=log, stderr=log)

    def kill(self, away: float = 5.0) -> None:
        """Kills it, and starts it again after some seconds."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        time.sleep(away)
        self.start()

    @property
    def pid(self) -> int:
        return self.process.pid


@contextmanager
def daemons(names: list[str], folder: Path) -> Iterator[dict[str, Daemon]]:
    """Daemons by name."""
    running = dict[str, Daemon]()
    try:
        for name in names:
            running[name] = Daemon(name, folder)
        for daemon in running.values():
            wait_for(daemon.contact)
        yield running
    finally:
        for daemon in running.values():
            daemon.process.terminate()
        for daemon in running.values():
            daemon.process.wait(20)


def spent(pid: int | str) -> tuple[float, float]:
    """CPU seconds and resident MiB of a process."""
    parts = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    tick, page = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")
    return (int(parts[11]) + int(parts[12])) / tick, int(parts[21]) * page / 2**20


class Arrivals:
    """Counts matches, and how long after the move that triggered them they came.

    Attributes:
        sums: of their keys, if ``first`` is the version of the first call.
    """

    def __init__(self) -> None:
        self.sums, self.first = Sums(), 0
        self.sent: dict[int, float] = {}
        self.count = 0
        self.came: list[tuple[float, int, int]] = []

    def __call__(self, rows: np.ndarray) -> None:
        now = time.monotonic()
        self.count += len(rows)
        if self.first:
            pub, sub = rows["pub_version"] - self.first, rows["sub_version"] - self.first
            self.sums.add(rows["pub"], pub, rows["sub"], sub)
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
        sent = self.sent
        latencies = sorted((at - sent[version], count) for at, version, count in self.came if version in sent)
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
    elif options.verify:
        # One group, so that each Tile Manager gets moves in the order of the calls: it decides what meets.
        roles = {"states": names[: options.replicas]}
    graph = tiles.graph(names, replicas=options.replicas, silence=options.silence, **roles)
    random, arrivals = np.random.default_rng(1), Arrivals()
    with tempfile.TemporaryDirectory() as folder, daemons(names, Path(folder)) as running:
        contacts = {name: daemon.contact for name, daemon in running.items()}
        with (
            graph.deploy(contacts),
            tiles.connect(
                f"{contacts['h0']}/tiles/h0", arrivals, window=options.window, patience=20
            ) as client,
        ):
            entities = fleet(options.entities, options.k, random)
            for flag, call in ((0, client.publish), (1, client.subscribe)):
                part = entities[entities["flags"] == flag]
                version = call(part["id"], part["zone"][:, :3])
                arrivals.first = (version - flag) * options.verify
            client.drain(300)
            arrivals.settle()
            arrivals.came.clear()
            before = {pid: spent(pid)[0] for pid in pids_of(running)}
            begin, count = time.monotonic(), arrivals.count
            killing = threading.Timer(options.kill, running["h0"].kill)
            if options.kill:
                killing.start()
            sent = drive(client, arrivals, entities, options, random)
            client.drain(300)
            killing.cancel()
            if options.kill:
                killing.join()
            took = time.monotonic() - begin
            pids = pids_of(running)
            cpu = [spent(pid)[0] - before.get(pid, 0) for pid in pids]
            arrivals.settle()
            matches = arrivals.count - count
            print(f"{options.entities} entities, k {options.k}, r {options.replicas}, {len(names)} daemons")
            print(f"{sent / took:.0f} moves/s, {matches / took:.0f} matches/s, {arrivals.quantiles()}")
            print(f"{matches} matches of {sent} moves, {sum(cpu) / sent * 1e6:.1f} µs of CPU a move")
            each = ", ".join(f"{seconds / took:.2f}" for seconds in cpu)
            print(f"cores: client and daemons {each}; MiB {[round(spent(pid)[1]) for pid in pids]}")
            print(f"copies {client.copies}, refused {client.refused}")
        if options.verify:
            verify(arrivals, options)
        if options.redis:
            over_redis(options, sent, Path(folder))


def pids_of(running: Mapping[str, Daemon]) -> list[int]:
    """Those of the client and of the daemons, as they run now."""
    return [os.getpid(), *(daemon.pid for daemon in running.values())]


def verify(arrivals: Arrivals, options: argparse.Namespace) -> None:
    """Compares what came of the moves that were due in each second with a replay; exits if it differs."""
    random, seconds = np.random.default_rng(1), [0, 0]
    entities = fleet(options.entities, options.k, random)
    sides = [entities.compress(entities["flags"] == flag) for flag in (0, 1)]

    def calls() -> Iterator[Turn]:
        sent = 0
        for turn in islice(turns(entities, options.batch, random), len(arrivals.sent)):
            seconds.append(1 + int(sent / options.rate))
            sent += len(turn[1])
            yield turn

    wanted, close = replay([(side["id"], side["zone"]) for side in sides], calls())
    came, due = arrivals.sums.over(seconds), wanted.over(seconds)
    for second in np.flatnonzero((came != due).any(axis=1)).tolist():
        print(f"second {second}: count and hash {came[second].tolist()}, expected {due[second].tolist()}")
    least, most = due[1:, 0].min(), due[1:, 0].max()
    print(f"{len(due) - 1} seconds, {least} to {most} matches each; {close} pairs too close to tell")
    print(f"all: {came.sum(axis=0).tolist()}, expected {due.sum(axis=0).tolist()}")
    if (came != due).any():
        sys.exit("they differ")
    print("count and hash of the matches of each second are those of the replay")


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


def turns(entities: np.ndarray, batch: int, random: np.random.Generator) -> Iterator[Turn]:
    """Moves without end: of publications (0) and of subscriptions (1) by turns, ids and zones.

    Entities take turns in an order that has nothing to do with their places or when they came.
    """
    entities = entities.take(random.permutation(len(entities)))
    sides = [entities.compress(entities["flags"] == flag) for flag in (0, 1)]
    columns = [(side["id"].copy(), side["zone"][:, :3].copy()) for side in sides]

    def moves() -> Iterator[Turn]:
        sent = 0
        while True:
            turn = sent % len(entities) / len(entities)
            for flag, (ids, zones) in enumerate(columns):
                start = int(turn * len(ids))
                part = slice(start, start + math.ceil(batch * len(ids) / len(entities)))
                moved(zones[part], random)
                yield flag, ids[part], zones[part]
                sent += len(ids[part])

    return moves()


def drive(
    client: tiles.Connection | Redis,
    arrivals: Arrivals,
    entities: np.ndarray,
    options: argparse.Namespace,
    random: np.random.Generator,
    most: int | None = None,
) -> int:
    """Moves entities for some seconds, or so many; returns how many moves that were.

    A batch is due at a moment that the rate says, and its latency begins then, also if it is sent later.
    """
    moves = turns(entities, options.batch, random)
    begin, sent = time.monotonic(), 0
    while True:
        due = time.monotonic()
        if options.rate and most is None:
            due = begin + sent / options.rate
            time.sleep(max(0.0, due - time.monotonic()))
        if time.monotonic() - begin > options.seconds if most is None else sent >= most:
            return sent
        flag, ids, zones = next(moves)
        arrivals.sent[client.move(ids, zones, subscriptions=bool(flag))] = due
        sent += len(ids)


if __name__ == "__main__":
    main()
