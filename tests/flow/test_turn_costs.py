"""What a single event costs the flow's thread, in calls of Python functions: a count that no load changes."""

from __future__ import annotations

import threading
import time
from types import FrameType
from typing import Any

import evflow as ev
from tests.node.processes import wait_for


class Ping(ev.Event):
    number: int


def test_an_event_alone_takes_few_calls_of_the_flows_thread() -> None:
    calls = 0

    def count(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal calls
        calls += event == "call"

    seen: list[int] = []
    g = ev.Graph()
    g.source("pings", Ping) >> ev.Terminal(lambda event: seen.append(event.number))
    before = threading.getprofile()
    threading.setprofile(count)
    try:
        flow = g.run()
    finally:
        threading.setprofile(before)
    with flow:

        def handled(number: int) -> int:
            """The calls for one event, until the thread sleeps again."""
            start = calls
            flow["pings"].submit(Ping(number))
            wait_for(lambda: seen[-1:] == [number], "the event")
            time.sleep(0.02)
            return calls - start

        for number in range(1_200):
            flow["pings"].submit(Ping(number))
        flow.drain()
        # Now and then the thread takes two turns for one event.
        least = min(handled(number) for number in range(2_000, 2_010))
    assert 0 < least < 75
