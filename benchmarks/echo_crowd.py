"""A channel with many members: what a publish costs, how long the last one takes to join, and its memory.

Here is the publisher. The members are processes of their own, which join one after the other: each opens the
channel and subscribes, and is there when it has handled an event that was published after that.

Of a publish the CPU of the publisher's process is told, until all members have handled the events: of
single events published one after the other as fast as it goes, of the same in bursts of a hundred, and of
batches. The memory is that of a member once all is done: resident (RSS), with what is shared divided among
those who share it (PSS), and what it alone has (USS).

    python benchmarks/echo_crowd.py [--quick] [--members 32]
"""

from __future__ import annotations

import argparse
import gc
import multiprocessing
import statistics
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from multiprocessing.connection import Connection
from pathlib import Path

import evflow as ev
from evflow import echo

BATCH = 1_000
TIMEOUT = 60.0


class Tick(ev.Event):
    """A small event."""

    number: int
    price: float


def memory(process: int | str = "self") -> dict[str, float]:
    """MiB of a process, by kind."""
    found: dict[str, float] = {}
    for line in Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()[1:]:
        name, size, *_ = line.split()
        found[name.rstrip(":")] = int(size) / 1024
    alone = found["Private_Clean"] + found["Private_Dirty"]
    return {"RSS": found["Rss"], "PSS": found["Pss"], "USS": alone}


def member(name: str, pipe: Connection) -> None:
    """The program of a member."""
    came: list[float] = []

    def take(batch: ev.EventBatch) -> None:
        if len(batch) and not came:
            came.append(time.monotonic())

    with ExitStack() as stack:
        process = stack.enter_context(echo.Process(name))
        pipe.send("ready")
        contact = pipe.recv()
        began, cpu = time.monotonic(), time.process_time()
        channel = process.open(contact)
        opened = time.monotonic()
        channel.subscribe(take, batch=True)
        pipe.send("joined")
        while not came:
            time.sleep(0.0005)
        pipe.send((came[0] - began, opened - began, time.process_time() - cpu))
        while pipe.recv():
            pipe.send((memory(), time.process_time()))


@contextmanager
def crowd(channel: echo.Channel, count: int) -> Iterator[tuple[list[Connection], list[tuple[float, ...]]]]:
    """Members that have joined one after the other; a pipe of each, and how long it took each, in seconds: in
    all, to open the channel, and of its CPU."""
    context = multiprocessing.get_context("spawn")
    made, pipes, joins = [], [], []
    try:
        for number in range(count):
            here, there = context.Pipe()
            made.append(context.Process(target=member, args=(f"member{number}", there)))
            made[-1].start()
            pipes.append(here)
            here.recv()
            here.send(channel.contact)
            here.recv()
            channel.publish(Tick(number, 0.0))
            joins.append(here.recv())
        yield pipes, joins
    finally:
        for pipe in pipes:
            pipe.send(False)
        for process in made:
            process.join(TIMEOUT)


def singly(channel: echo.Channel, desk: echo.Process, count: int, burst: int) -> float:
    """µs of this process's CPU for an event that is published by itself; the members have handled a burst
    before the next."""
    tick = Tick(0, 1.0)
    gc.collect()
    began = time.process_time_ns()
    for _ in range(count // burst):
        for _ in range(burst):
            channel.publish(tick)
        desk.drain(TIMEOUT)
    return (time.process_time_ns() - began) / count / 1000


def batches(channel: echo.Channel, desk: echo.Process, count: int) -> float:
    """µs of this process's CPU for an event in a batch."""
    batch = ev.EventBatch.from_columns(
        ev.Schema.of(Tick), {"number": list(range(BATCH)), "price": [1.0] * BATCH}
    )
    gc.collect()
    began = time.process_time_ns()
    for _ in range(count // BATCH):
        channel.publish_batch(batch)
    desk.drain(TIMEOUT)
    return (time.process_time_ns() - began) / count / 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer events and rounds")
    parser.add_argument("--members", type=int, default=32, help="processes, the publisher among them")
    given = parser.parse_args()
    events, rounds = (20_000, 3) if given.quick else (100_000, 7)
    with ExitStack() as stack:
        desk = stack.enter_context(echo.Process("desk"))
        channel = desk.create("crowd", Tick, policy="block")
        pipes, joins = stack.enter_context(crowd(channel, given.members - 1))
        first, last = joins[0], joins[-1]
        for what, (whole, opened, cpu) in (("first", first), ("last", last)):
            print(f"{what} join: {whole:.3f} s ({opened:.3f} s to open), {cpu:.3f} s of the member's CPU")
        print(f"median of the last 8 joins: {statistics.median(whole for whole, *_ in joins[-8:]):.3f} s")
        ways = {
            "a publish": lambda: singly(channel, desk, events, events),
            "a publish in a burst of 100": lambda: singly(channel, desk, events // 20, 100),
            "an event in a batch": lambda: batches(channel, desk, events * 10),
        }
        for what, measure in ways.items():
            found = sorted(measure() for _ in range(rounds))
            print(f"{what}: {found[0]:.2f} µs; all rounds:", " ".join(f"{each:.2f}" for each in found))
        began = [ask(pipe)[1] for pipe in pipes]
        began_here = time.process_time()
        time.sleep(5)
        rest = [ask(pipe) for pipe in pipes]
        idle = [after - before for (_, after), before in zip(rest, began, strict=True)]
        print(
            f"idle: {statistics.mean(idle) * 200:.2f} ms of a member's CPU a second, "
            f"{(time.process_time() - began_here) * 200:.2f} ms of the publisher's"
        )
        for kind in ("RSS", "PSS", "USS"):
            sizes = [sizes[kind] for sizes, _ in rest]
            print(f"{kind} of a member: median {statistics.median(sizes):.1f}, most {max(sizes):.1f} MiB")
        print("the publisher:", " ".join(f"{kind} {size:.1f}" for kind, size in memory().items()), "MiB")


def ask(pipe: Connection) -> tuple[dict[str, float], float]:
    """The memory and the CPU time of a member so far."""
    pipe.send(True)
    answer: tuple[dict[str, float], float] = pipe.recv()
    return answer


if __name__ == "__main__":
    main()
