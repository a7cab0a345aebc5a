"""What deployments cost: rolling out a graph, and moving a stone that holds events while others flow.

Four daemons run as processes of their own on this host; the program that deploys is a fifth. A pause is the
longest time in which nothing arrives at a path's end, above that of the same path when nothing is changed.

    python benchmarks/deploy.py [--quick]
"""

from __future__ import annotations

import argparse
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

import evflow as ev

NODES = ("a", "b", "c", "d")
CHAINS, LINKS = 4, 25
"""Stones of the graph that is rolled out: so many chains of so many stones."""
RATE, BATCH = 100_000, 1_000
"""Events a second on each path while a stone moves, and events of a batch."""
HELD = 100_000
"""Events that the stone holds that moves."""


class Reading(ev.Event):
    """An event of 100 bytes."""

    number: int
    value: float
    rest: ev.Bytes[77]


@contextmanager
def daemons(folder: Path) -> Iterator[dict[str, str]]:
    """Four daemons; gives where they listen."""
    processes = {}
    try:
        for name in NODES:
            command = [
                sys.executable, "-c", "from evflow.tools.cli import main; main()", "node", name, "--listen",
                "tcp://127.0.0.1:0",
                "--storage", str(folder / name), "--log-level", "error",
            ]  # fmt: skip
            processes[name] = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        yield {name: _contact(process) for name, process in processes.items()}
    finally:
        for process in processes.values():
            process.send_signal(signal.SIGTERM)
        for process in processes.values():
            process.wait()


def _contact(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().split()[-1]


def chains(hosts: tuple[str, ...]) -> ev.Graph:
    """Four chains of 25 stones, each stone on the next host."""
    g = ev.Graph("chains")
    for chain in range(CHAINS):
        at = g.source(f"source{chain}", Reading, on=hosts[0])
        for link in range(LINKS - 2):
            name = f"filter{chain}-{link}"
            at = at >> ev.Filter(
                f"input.number != {-1 - link}", name=name, on=hosts[(link + chain) % len(hosts)]
            )
        _ = (
            at
            >> ev.Storage(limit=10, name=f"end{chain}", on=hosts[chain])
            >> ev.Terminal("desk:take", name=f"out{chain}", on="desk")
        )
    return g


def roll_out(rounds: int) -> list[float]:
    """Seconds that it takes until 100 stones run on four nodes."""
    seconds = []
    for _ in range(rounds):
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            hosts = stack.enter_context(daemons(folder))
            desk = stack.enter_context(_desk(folder, {"desk:take": lambda event: None}))
            graph = chains(NODES)
            start = time.perf_counter()
            handle = graph.deploy({**hosts, "desk": desk.contact})
            seconds.append(time.perf_counter() - start)
            handle.close()
    return seconds


def _desk(folder: Path, handlers: dict[str, Any]) -> ev.Daemon:
    return ev.Daemon("desk", "tcp://127.0.0.1:0", storage=folder / "desk", handlers=handlers)


class Arrivals:
    """When the events of a path arrive, and whether each does once and in order."""

    def __init__(self) -> None:
        self.times: list[float] = []
        self.next = 0
        self.wrong = 0

    def take(self, batch: ev.EventBatch) -> None:
        """A handler."""
        self.times.append(time.perf_counter())
        numbers = batch["number"]
        expected = np.arange(self.next, self.next + len(numbers))
        self.wrong += int((numbers != expected).sum())
        self.next += len(numbers)

    def longest(self, start: float, end: float) -> float:
        """The longest time without an arrival between two times, in seconds."""
        times = [start, *(at for at in self.times if start <= at <= end), end]
        return float(np.diff(times).max())


def two_paths() -> ev.Graph:
    """One path with the stone that moves, and one beside it."""
    g = ev.Graph("paths")
    moved = g.source("moved", Reading, on="a") >> ev.Storage(limit=HELD, name="store", on="b")
    _ = moved >> ev.Terminal("desk:moved", batch=True, on="desk")
    beside = g.source("beside", Reading, on="a") >> ev.Filter("input.number >= 0", on="b")
    _ = beside >> ev.Terminal("desk:beside", batch=True, on="desk")
    return g


def moves(count: int, seconds: float) -> dict[str, Any]:
    """Moves a stone back and forth while events flow on two paths."""
    paths = {"moved": Arrivals(), "beside": Arrivals()}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        hosts = stack.enter_context(daemons(folder))
        handlers = {f"desk:{name}": arrivals.take for name, arrivals in paths.items()}
        desk = stack.enter_context(_desk(folder, handlers))
        handle = stack.enter_context(two_paths().deploy({**hosts, "desk": desk.contact}))
        sent = dict.fromkeys(paths, 0)
        ended = threading.Event()
        feeder = threading.Thread(target=_feed, args=(handle, sent, ended))
        feeder.start()
        time.sleep(2 * HELD / RATE + 1)
        quiet = _longest(paths, seconds)
        took, pauses = [], {name: [] for name in paths}
        for number in range(count):
            start = time.perf_counter()
            handle.move("store", "cb"[number % 2])
            took.append(time.perf_counter() - start)
            time.sleep(seconds)
            for name, arrivals in paths.items():
                pauses[name].append(arrivals.longest(start, start + took[-1] + seconds / 2))
        ended.set()
        feeder.join()
        handle.drain()
        handle.send_stored("store")
        handle.drain()
        _wait(lambda: all(paths[name].next >= sent[name] for name in paths))
    lost = sum(sent[name] - paths[name].next for name in paths)
    return {
        "took": took, "quiet": quiet, "pauses": pauses, "sent": sum(sent.values()),
        "lost": lost, "wrong": sum(arrivals.wrong for arrivals in paths.values()),
    }  # fmt: skip


def _wait(condition: Any) -> None:
    deadline = time.monotonic() + 20
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.05)


def _longest(paths: dict[str, Arrivals], seconds: float) -> dict[str, float]:
    start = time.perf_counter()
    time.sleep(seconds)
    return {name: arrivals.longest(start, start + seconds) for name, arrivals in paths.items()}


def _feed(handle: Any, sent: dict[str, int], ended: threading.Event) -> None:
    entries = {name: handle[name] for name in sent}
    start, rounds = time.perf_counter(), 0
    zeros = np.zeros(BATCH)
    rest = np.zeros(BATCH, "S77")
    while not ended.is_set():
        for name, entry in entries.items():
            numbers = np.arange(sent[name], sent[name] + BATCH)
            entry.submit_batch({"number": numbers, "value": zeros, "rest": rest}, schema=Reading)
            sent[name] += BATCH
        rounds += 1
        ahead = start + rounds * BATCH / RATE - time.perf_counter()
        if ahead > 0:
            time.sleep(ahead)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    quick = parser.parse_args().quick
    rolled = roll_out(1 if quick else 5)
    print(f"100 stones on 4 nodes: {statistics.median(rolled):.2f} s (least {min(rolled):.2f})")
    moved = moves(2 if quick else 10, 1.0)
    milliseconds = {
        name: (statistics.median(values) * 1e3, max(values) * 1e3) for name, values in moved["pauses"].items()
    }
    print(f"moves: {len(moved['took'])}, median {statistics.median(moved['took']) * 1e3:.0f} ms each")
    for name, (median, most) in milliseconds.items():
        print(
            f"longest time without an arrival, path {name!r}: median {median:.0f} ms, most {most:.0f} ms "
            f"(without a move {moved['quiet'][name] * 1e3:.0f} ms)"
        )
    print(f"{moved['sent']:,} events, {moved['lost']} lost, {moved['wrong']} out of order or doubled")


if __name__ == "__main__":
    main()
