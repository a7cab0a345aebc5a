"""A thread that submits lets the flow's thread have the interpreter, and is not held up by it."""

from __future__ import annotations

import math
import sys
import threading
import time
from collections.abc import Iterator

import pytest

import evflow as ev
from evflow.flow.turns import Turns
from tests.node.processes import wait_for


class Ping(ev.Event):
    number: int


@pytest.fixture
def unfair() -> Iterator[None]:
    """Python does not take the interpreter from a thread that computes."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(100)
    yield
    sys.setswitchinterval(before)


def _warm(flow: ev.Flow) -> None:
    """Lets single events and small tables take the short way."""
    for _ in range(1_200):
        flow["pings"].submit(Ping(number=-1))
        flow["pings"].submit_batch({"number": [-1]})
    flow.drain()
    # A table takes it once its code is optimised.
    wait_for(lambda: "evflow compiler" not in [thread.name for thread in threading.enumerate()], "compilers")


@pytest.mark.parametrize("table", [False, True], ids=["an event", "a small table"])
def test_what_a_computing_thread_submits_is_handled_while_it_computes(unfair: None, table: bool) -> None:
    seen: list[int] = []
    g = ev.Graph()
    _ = g.source("pings", Ping) >> ev.Terminal(lambda ping: seen.append(ping.number))
    with g.run() as flow:
        _warm(flow)
        seen.clear()
        # It computes all the time, so the flow's thread runs only while it is in submit.
        for _ in range(3_000):
            if table:
                flow["pings"].submit_batch({"number": [1]})
            else:
                flow["pings"].submit(Ping(number=1))
            sum(range(20_000))
            if seen:
                break
        assert seen


def test_a_program_may_hold_a_lock_that_a_handler_wants_while_it_submits() -> None:
    seen: list[int] = []
    lock = threading.Lock()

    def handler(ping: Ping) -> None:
        with lock:
            seen.append(ping.number)

    g = ev.Graph()
    _ = g.source("pings", Ping) >> ev.Terminal(handler)
    with g.run() as flow:
        _warm(flow)
        seen.clear()
        for number in range(50):
            with lock:
                flow["pings"].submit(Ping(number=number))
                assert number not in seen
        flow.drain()
    assert seen == list(range(50))


def test_a_handler_that_does_not_return_does_not_hold_up_who_submits() -> None:
    go_on = threading.Event()
    g = ev.Graph()
    _ = g.source("pings", Ping) >> ev.Terminal(lambda ping: ping.number < 0 or go_on.wait(60))
    with g.run() as flow:
        _warm(flow)
        for number in range(100):
            flow["pings"].submit(Ping(number=number))
        assert not go_on.is_set()
        go_on.set()
        flow.drain()


class Bell:
    """Counts how often it is rung."""

    def __init__(self) -> None:
        self.asleep = True
        self.rung = 0

    def ring(self) -> None:
        self.rung += 1

    def sleep(self, seconds: float | None) -> None:
        """Returns at once."""


def test_threads_wait_again_only_after_they_have_not_waited_for_longer() -> None:
    bell = Bell()
    turns = Turns(bell)  # type: ignore[arg-type]
    turns.await_one()
    assert bell.rung == 1
    turns.sleep(lambda: False, None)
    assert turns.wanted
    start = time.perf_counter()
    for _ in range(200):
        turns.await_one()
    # Two milliseconds were waited, and four have not passed, unless the machine was very slow.
    assert time.perf_counter() - start > 4e-3 or not turns.wanted
    assert bell.rung == 201


def test_who_comes_too_late_for_a_turn_waits_for_the_next() -> None:
    turns = Turns(Bell())  # type: ignore[arg-type]
    gone_on = threading.Event()

    def wait() -> None:
        turns.await_one()
        gone_on.set()

    waiter = threading.Thread(target=wait)
    waiter.start()
    while not turns._new and not gone_on.is_set():
        time.sleep(1e-5)
    turns.sleep(lambda: True, None)
    turns.sleep(lambda: True, None)
    assert gone_on.wait(30)
    waiter.join()


def test_the_flows_thread_does_not_sleep_while_those_who_submit_take_it_for_awake() -> None:
    slept: list[float | None] = []

    class Late(Bell):
        def __setattr__(self, name: str, value: object) -> None:
            if name == "asleep" and value:
                # Other threads have found it idle before, and go on only now.
                for _ in range(200):
                    turns.await_one()
                assert not turns.wanted
            super().__setattr__(name, value)

        def sleep(self, seconds: float | None) -> None:
            slept.append(seconds)

    bell = Late.__new__(Late)
    bell.__dict__.update(asleep=False, rung=0)
    turns = Turns(bell)  # type: ignore[arg-type]
    turns._next = math.inf
    turns.sleep(lambda: False, None)
    assert slept == [0.0]


def test_the_rest_of_a_period_is_reckoned_from_when_it_is_asked_for() -> None:
    """A generator that moves to another node ticks there when it would have ticked here."""
    g = ev.Graph()
    beats = ev.Generator("output.number = input.count; return 1;", output=Ping, period=60.0, name="beats")
    g.add(beats) >> ev.Terminal(lambda event: None)
    with g.run() as flow:
        slot = flow.engine.topology.slots["beats"]

        def rest() -> float:
            found = flow._worker.do(lambda: flow.engine.rhythm(slot))
            assert found is not None and found[1] is not None
            return found[1]

        before = rest()
        time.sleep(0.2)
        assert rest() <= before - 0.2
