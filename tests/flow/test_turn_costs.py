"""What a single event costs flows' threads, in calls of Python functions: a count that no load changes."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import evflow as ev
from tests.node.processes import wait_for


class Ping(ev.Event):
    number: int


class Calls:
    """Counts the calls of Python functions in threads that begin within ``counting``.

    Attributes:
        of: identity of a thread → calls.
    """

    def __init__(self) -> None:
        self.of: Counter[int] = Counter()

    def _count(self, frame: FrameType, event: str, argument: Any) -> None:
        if event == "call":
            self.of[threading.get_ident()] += 1

    @contextmanager
    def counting(self) -> Iterator[None]:
        before = threading.getprofile()
        threading.setprofile(self._count)
        try:
            yield
        finally:
            threading.setprofile(before)


def of_one(flow: ev.Flow, seen: list[int], calls: Calls) -> Counter[int]:
    """The calls of each thread for one event alone, until all sleep again: the mean of ten."""
    for number in range(1_200):
        flow["pings"].submit(Ping(number))
    flow.drain()
    # What is busy takes other ways for a while.
    for number in range(1_200, 1_220):
        flow["pings"].submit(Ping(number))
        time.sleep(0.005)
    time.sleep(0.1)
    before = calls.of.copy()
    for number in range(2_000, 2_010):
        flow["pings"].submit(Ping(number))
        wait_for(lambda number=number: seen[-1:] == [number], "the event")
        time.sleep(0.01)
    time.sleep(0.1)
    return Counter({thread: count // 10 for thread, count in (calls.of - before).items()})


def test_an_event_alone_takes_few_calls_of_the_flows_thread() -> None:
    calls, seen = Calls(), list[int]()
    g = ev.Graph()
    g.source("pings", Ping) >> ev.Terminal(lambda event: seen.append(event.number))
    with calls.counting():
        flow = g.run()
    with flow:
        count = of_one(flow, seen, calls)[flow._worker.ident or 0]
    # Now and then the thread takes two turns for one event.
    assert 0 < count < 58


def test_an_event_alone_takes_few_calls_on_either_side_of_a_bridge() -> None:
    """The sender's thread has only the acknowledgement to take; the event was sent where it was submitted."""
    calls, seen = Calls(), list[int]()
    g = ev.Graph()
    g.source("pings", Ping, on="here") >> ev.Terminal(lambda event: seen.append(event.number), on="there")
    there = ev.Node("there", listen="tcp://127.0.0.1:0")
    here = ev.Node("here", peers={"there": there.contact})
    with calls.counting():
        receiving, sending = g.run(node=there), g.run(node=here)
    with receiving, sending:
        counts = of_one(sending, seen, calls)
        sender, receiver = (counts[flow._worker.ident or 0] for flow in (sending, receiving))
    assert 0 < sender < 60
    assert 0 < receiver < 100
