"""How long an event takes from ``submit`` to the handler, beside pyzmq's PUSH and PULL.

The submitting thread sleeps between two events, or computes in Python, or has the next due at a rate. Times
are of ``time.perf_counter_ns``, which the processes of a host share. In ping-pong a thread of the program
submits, and waits until a handler has got the answer.

    python benchmarks/latency.py [--quick]
"""

from __future__ import annotations

import argparse
import multiprocessing
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import table
import zmq

import evflow as ev

Between = Callable[[int, int], None]
"""What the submitting thread does before an event: its number, and when the first one was due."""


class Stamp(ev.Event):
    """An event of some 100 bytes, with the time of its submission."""

    sent: int
    number: int
    padding: ev.Str[80]


def sleeping(number: int, start: int) -> None:
    """The thread sleeps for a millisecond."""
    time.sleep(1e-3)


def computing(number: int, start: int) -> None:
    """The thread computes in Python for a millisecond."""
    end = time.perf_counter_ns() + 1_000_000
    while time.perf_counter_ns() < end:
        sum(range(20))


def paced(rate: int) -> Between:
    """The next event is due at a rate; the thread sleeps until then."""

    def wait(number: int, start: int) -> None:
        left = start + number * 1_000_000_000 // rate - time.perf_counter_ns()
        if left > 0:
            time.sleep(left * 1e-9)

    return wait


def busily(rate: int) -> Between:
    """The same, but the thread computes in Python until then."""

    def wait(number: int, start: int) -> None:
        due = start + number * 1_000_000_000 // rate
        while time.perf_counter_ns() < due:
            sum(range(20))

    return wait


def send(count: int, between: Between, submit: Callable[[int, int], object]) -> None:
    """Submits events, each with the time."""
    start = time.perf_counter_ns()
    for number in range(count):
        between(number, start)
        submit(time.perf_counter_ns(), number)


class Times:
    """What took how long, and when all of it has come."""

    def __init__(self, count: int) -> None:
        self.taken: list[int] = []
        self._count = count
        self.all = threading.Event()

    def add(self, sent: int) -> None:
        """An event has come."""
        self.taken.append(time.perf_counter_ns() - sent)
        if len(self.taken) == self._count:
            self.all.set()


def graph(handler: Callable[[Any], None], answer: Callable[[Any], None], bridged: bool) -> ev.Graph:
    """From near to far, and back."""
    made = ev.Graph("latency")
    near, far = ("near", "far") if bridged else (None, None)
    made.source("there", Stamp, on=near) >> ev.Terminal(handler, on=far)
    made.source("back", Stamp, on=far) >> ev.Terminal(answer, on=near)
    return made


def nothing(event: Any) -> None:
    """The handler of a terminal on the other node."""


@contextmanager
def other(program: Callable[..., None], *arguments: Any) -> Iterator[Any]:
    """A process with a pipe to it."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=program, args=(there, *arguments), daemon=True)
    process.start()
    yield here
    process.join(30)


def evflow_far(pipe: Any, count: int, warm: int) -> None:
    """Takes events, and sends the times."""
    warmed, times = Times(warm), Times(count)

    def handler(event: Any) -> None:
        (times if warmed.all.is_set() else warmed).add(event.sent)
        if event.number < 0:
            flow["back"].submit(Stamp(sent=event.sent, number=event.number, padding="x"))

    node = ev.Node("far", "tcp://127.0.0.1:0")
    with graph(handler, nothing, True).run(node=node) as flow:
        pipe.send(node.contact)
        times.all.wait(120)
        pipe.send(times.taken)
        pipe.recv()


def evflow_between(count: int, warm: int, between: Between) -> list[int]:
    """Between two processes."""
    with other(evflow_far, count, warm) as pipe:
        node = ev.Node("near", peers={"far": pipe.recv()})
        with graph(nothing, nothing, True).run(node=node) as flow:
            submit = flow["there"].submit

            def one(sent: int, number: int) -> None:
                submit(Stamp(sent=sent, number=number, padding="x"))

            send(warm, sleeping, one)
            send(count, between, one)
            taken: list[int] = pipe.recv()
            pipe.send(None)
        return taken


def evflow_within(count: int, warm: int, between: Between) -> list[int]:
    """Within a process."""
    warmed, times = Times(warm), Times(count)
    handler = lambda event: (times if warmed.all.is_set() else warmed).add(event.sent)  # noqa: E731
    with graph(handler, nothing, False).run() as flow:
        submit = flow["there"].submit

        def one(sent: int, number: int) -> None:
            submit(Stamp(sent=sent, number=number, padding="x"))

        send(warm, sleeping, one)
        send(count, between, one)
        times.all.wait(120)
    return times.taken


def zmq_far(pipe: Any, count: int, warm: int) -> None:
    """Takes messages, and sends the times."""
    with zmq.Context() as context, context.socket(zmq.PULL) as pull:
        pipe.send(f"tcp://127.0.0.1:{pull.bind_to_random_port('tcp://127.0.0.1')}")
        times = []
        for number in range(warm + count):
            sent = int.from_bytes(pull.recv()[:8], "little")
            if number >= warm:
                times.append(time.perf_counter_ns() - sent)
        pipe.send(times)
        pipe.recv()


def zmq_between(count: int, warm: int, between: Between) -> list[int]:
    """pyzmq between two processes."""
    with other(zmq_far, count, warm) as pipe, zmq.Context() as context, context.socket(zmq.PUSH) as push:
        push.connect(pipe.recv())
        padding = bytes(92)

        def one(sent: int, number: int) -> None:
            push.send(sent.to_bytes(8, "little") + padding)

        send(warm, sleeping, one)
        send(count, between, one)
        taken: list[int] = pipe.recv()
        pipe.send(None)
        return taken


def evflow_pong(count: int, warm: int, between: Between) -> list[int]:
    """There and back, by a thread of the program that waits."""
    answered = threading.Semaphore(0)
    with other(evflow_far, count, warm) as pipe:
        node = ev.Node("near", peers={"far": pipe.recv()})
        with graph(nothing, lambda event: answered.release() and None, True).run(node=node) as flow:
            submit, taken = flow["there"].submit, []
            for _ in range(warm + count):
                start = time.perf_counter_ns()
                submit(Stamp(sent=start, number=-1, padding="x"))
                answered.acquire()
                taken.append(time.perf_counter_ns() - start)
            pipe.recv()
            pipe.send(None)
        return taken[warm:]


def zmq_echo(pipe: Any, count: int) -> None:
    """Answers each message."""
    with zmq.Context() as context, context.socket(zmq.PAIR) as pair:
        pipe.send(f"tcp://127.0.0.1:{pair.bind_to_random_port('tcp://127.0.0.1')}")
        for _ in range(count):
            pair.send(pair.recv())
        pipe.recv()


def zmq_pong(count: int, warm: int, between: Between) -> list[int]:
    """The same with pyzmq."""
    with other(zmq_echo, warm + count) as pipe, zmq.Context() as context, context.socket(zmq.PAIR) as pair:
        pair.connect(pipe.recv())
        taken = []
        for _ in range(warm + count):
            start = time.perf_counter_ns()
            pair.send(start.to_bytes(8, "little") + bytes(92))
            pair.recv()
            taken.append(time.perf_counter_ns() - start)
        pipe.send(None)
        return taken[warm:]


Way = Callable[[int, int, Between], list[int]]


def main() -> None:
    """Prints a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer events and rounds")
    quick = parser.parse_args().quick
    count, rounds = (500, 2) if quick else (2_000, 5)
    cases: list[tuple[str, str, Way, Between, int]] = []
    for work, between in (("sleeps", sleeping), ("computes", computing)):
        cases.append((f"thread {work}", "evflow, one process", evflow_within, between, count))
        cases.append((f"thread {work}", "evflow", evflow_between, between, count))
        cases.append((f"thread {work}", "pyzmq", zmq_between, between, count))
    for rate in (10_000, 100_000, 300_000):
        for work, between in (("sleeps", paced(rate)), ("computes", busily(rate))):
            for name, way in (("evflow", evflow_between), ("pyzmq", zmq_between)):
                some = rate // (4 if quick else 1)
                cases.append((f"thread {work}, {rate:,} events a second", name, way, between, some))
    cases.append(("ping-pong", "evflow", evflow_pong, sleeping, count))
    cases.append(("ping-pong", "pyzmq", zmq_pong, sleeping, count))
    found: dict[tuple[str, str], list[list[int]]] = {}
    for _ in range(rounds):
        for work, name, way, between, events in cases:
            found.setdefault((work, name), []).append(way(events, 1_500, between))
    lines = [["", "", "p50", "p99", "greatest"]]
    for (work, name), taken in found.items():
        # The best round for each: others share the machine.
        best = [min(float(np.percentile(times, q)) for times in taken) for q in (50, 99, 100)]
        lines.append([work, name, *map(table.duration, best)])
    table.markdown("From `submit` to the handler", lines)


if __name__ == "__main__":
    main()
