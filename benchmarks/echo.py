"""ECho channels beside the same bridges made by hand, and what a derived channel saves its publisher.

Here is the publisher. Four processes have two subscribers each, which add up a column of every batch. A round
publishes so many events and ends when all subscribers everywhere have handled them.

The derived channel rejects 90 % of its events where they are published; the other has them all sent. Its one
subscriber is another process.

    python benchmarks/echo.py [--quick]
"""

from __future__ import annotations

import argparse
import gc
import multiprocessing
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import table

import evflow as ev
from evflow import echo

PROCESSES, SUBSCRIBERS = 4, 2
BATCH = 1_000
TIMEOUT = 60.0


class Small(ev.Event):
    """100 bytes."""

    key: ev.i32
    price: float
    rest: ev.Bytes[78]


class Large(ev.Event):
    """1,000 bytes."""

    key: int
    price: float
    rest: ev.Bytes[972]


KINDS = {"small": Small, "large": Large}


def adding(totals: list[float]) -> Callable[[ev.EventBatch], None]:
    """A handler that adds up the prices."""

    def add(batch: ev.EventBatch) -> None:
        totals[0] += float(batch["price"].sum())

    return add


def subscribe_to_channel(stack: ExitStack, name: str, contact: str, totals: list[float], count: int) -> str:
    """Subscribes ``count`` times to a channel."""
    process = stack.enter_context(echo.Process(name, shared_memory=False))
    channel = process.open(contact)
    for _ in range(count):
        channel.subscribe(adding(totals), batch=True)
    return process.contact


def take_by_hand(stack: ExitStack, name: str, contact: str, totals: list[float], count: int) -> str:
    """Has the same terminals behind a source."""
    graph = ev.Graph("hand")
    source = graph.source("events", on=name)
    for number in range(count):
        source >> ev.Terminal(adding(totals), batch=True, name=f"end {number}", on=name)
    node = ev.Node(name, listen="tcp://127.0.0.1:0", shared_memory=False)
    stack.enter_context(graph.run(node=node))
    return node.contact


WAYS = {"echo": subscribe_to_channel, "hand": take_by_hand}


def subscriber(way: str, name: str, contact: str, count: int, pipe: Connection) -> None:
    """The program of a subscribing process."""
    totals = [0.0]
    with ExitStack() as stack:
        pipe.send(WAYS[way](stack, name, contact, totals, count))
        while pipe.recv():
            pipe.send(totals[0])


@contextmanager
def subscribers(way: str, contact: str, processes: int, count: int) -> Iterator[list[tuple[Connection, str]]]:
    """Processes that subscribe; a pipe and the contact of each."""
    context = multiprocessing.get_context("spawn")
    made, pipes = [], []
    for number in range(processes):
        here, there = context.Pipe()
        made.append(context.Process(target=subscriber, args=(way, f"end{number}", contact, count, there)))
        made[-1].start()
        pipes.append(here)
    try:
        yield [(pipe, pipe.recv()) for pipe in pipes]
    finally:
        for pipe in pipes:
            pipe.send(False)
        for process in made:
            process.join(TIMEOUT)


def rows(kind: str) -> list[ev.EventBatch]:
    """Batches to publish, the same few again and again."""
    schema = ev.Schema.of(KINDS[kind])
    columns = {"key": np.arange(BATCH), "price": np.arange(BATCH) % 100.0, "rest": [b"x" * 64] * BATCH}
    return [ev.EventBatch.from_columns(schema, columns) for _ in range(8)]


def round_of(
    publish: Callable[[Any], object], drain: Callable[[], object], kind: str, count: int
) -> table.Row:
    """ns of this process's CPU, and on the wall, of an event."""
    batches = rows(kind)
    gc.collect()
    cpu, wall = time.process_time_ns(), time.perf_counter_ns()
    for number in range(count // BATCH):
        publish(batches[number % len(batches)])
    drain()
    return table.Row("", (time.process_time_ns() - cpu) / count, (time.perf_counter_ns() - wall) / count)


def best(name: str, measured: list[table.Row]) -> table.Row:
    return table.Row(name, min(row.cpu for row in measured), min(row.wall for row in measured))


def fan_out(events: int, rounds: int) -> list[table.Row]:
    """One publisher, eight subscribers: a channel, and bridges made by hand."""
    with ExitStack() as stack:
        desk = stack.enter_context(echo.Process("desk", shared_memory=False))
        channel = desk.create("events", Small, policy="block")
        stack.enter_context(subscribers("echo", channel.contact, PROCESSES, SUBSCRIBERS))
        ends = stack.enter_context(subscribers("hand", "", PROCESSES, SUBSCRIBERS))
        graph = ev.Graph("hand")
        with graph.on("hands"):
            source = graph.source("events", Small)
            for number, (_, contact) in enumerate(ends):
                source >> ev.Bridge(contact, "events", name=f"to {number}")
        flow = stack.enter_context(graph.run(node=ev.Node("hands", shared_memory=False)))
        ways = {
            "evflow: a channel": (channel.publish_batch, lambda: desk.drain(TIMEOUT)),
            "bridges made by hand": (flow["events"].submit_batch, lambda: flow.drain(TIMEOUT)),
        }
        found: dict[str, list[table.Row]] = {name: [] for name in ways}
        for _ in range(rounds + 1):
            for name, (publish, drain) in ways.items():
                found[name].append(round_of(publish, drain, "small", events))
    made = [best(name, measured[1:]) for name, measured in found.items()]
    return [replace(row, ratio=made[1].wall / row.wall) for row in made]


def derived(events: int, rounds: int) -> list[table.Row]:
    """The publisher's CPU where all is sent, and where a derived channel rejects 90 %."""
    with ExitStack() as stack:
        desk = stack.enter_context(echo.Process("desk", shared_memory=False))
        whole, origin = (desk.create(name, Large, policy="block") for name in ("whole", "origin"))
        tenth = origin.derive("tenth", "input.key % 10 == 0")
        for channel in (whole, tenth):
            # A process of its own for each: names are taken once.
            stack.enter_context(_one(channel))
        ways = {"all events are sent": whole, "evflow: a derived channel rejects 90 %": origin}
        found: dict[str, list[table.Row]] = {name: [] for name in ways}
        for _ in range(rounds + 1):
            for name, channel in ways.items():
                found[name].append(
                    round_of(channel.publish_batch, lambda: desk.drain(TIMEOUT), "large", events)
                )
    return table.compare([best(name, m[1:]) for name, m in found.items()], "all events are sent")


@contextmanager
def _one(channel: echo.Channel) -> Iterator[None]:
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    arguments = ("echo", f"end of {channel.name}", channel.contact, 1, there)
    process = context.Process(target=subscriber, args=arguments)
    process.start()
    here.recv()
    try:
        yield
    finally:
        here.send(False)
        process.join(TIMEOUT)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few events, and no results are written")
    quick = parser.parse_args().quick
    events, rounds = (200_000, 2) if quick else (2_000_000, 7)
    fan = fan_out(events, rounds)
    title = f"1 publisher, {PROCESSES * SUBSCRIBERS} subscribers in {PROCESSES} processes, 100 bytes an event"
    table.show(title, fan, "bridges made by hand, wall")
    less = derived(events // 2, rounds)
    table.show("the publisher's CPU, 1,000 bytes an event", less, "all events are sent")
    if not quick:
        table.save("echo", [*fan, *less], "evflow: channels")


if __name__ == "__main__":
    main()
