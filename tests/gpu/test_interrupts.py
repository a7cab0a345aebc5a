"""Calls that are interrupted, and errors at any line: later answers are right, or the matcher says why."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import evflow.gpu
from evflow.errors import DeviceError
from evflow.gpu import device
from evflow.gpu.device import Device
from evflow.gpu.scenarios import ENGINES
from evflow.matching.matcher import Matcher
from tests.examples import tried
from tests.gpu.standin import StandIn
from tests.gpu.workload import Workload, answers

pytestmark = pytest.mark.slow

every_engine = pytest.mark.parametrize("engine", ENGINES)
EVERY = max(1, 3 // tried(1))
"""An error is raised at one line of so many, another with each engine; at each with ``EVFLOW_EXAMPLES=3``."""

FOLDER = str(Path(evflow.gpu.__file__).parent)


def test_a_device_that_is_interrupted_while_it_is_opened_leaves_no_thread(
    standin: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    Device.of()
    threads, main, retain = threading.active_count(), threading.get_ident(), Device._retain

    def retaining(self: Device, *arguments: Any) -> None:
        signal.pthread_kill(main, signal.SIGINT)
        time.sleep(0.02)
        retain(self, *arguments)

    monkeypatch.setattr(device, "_devices", {})
    monkeypatch.setattr(Device, "_retain", retaining)
    with pytest.raises(KeyboardInterrupt):
        Device.of()
    assert threading.active_count() == threads
    assert standin.counter("contexts") == 1


class Raiser:
    """Raises an error at one line of the package's GPU part, counted from 0; counts lines.

    Args:
        kind: of the error.
        at: which line; -1: none.

    Attributes:
        first: at which count each line, of a file's stem and a number, was met for the first time.
    """

    def __init__(self, kind: type[BaseException], at: int) -> None:
        self.kind, self.at, self.lines = kind, at, 0
        self.skipped: tuple[str, ...] = ()
        self.stopped = False
        self.first: dict[tuple[str, int], int] = {}

    def __call__(self, frame: FrameType, event: str, argument: object) -> Any:
        if self.stopped or not frame.f_code.co_filename.startswith(FOLDER):
            return None
        # What runs outside of any job is interrupted by nobody.
        if frame.f_code.co_name in self.skipped and frame.f_code.co_filename.endswith("owner.py"):
            return None
        if event == "line" and not self.stopped:
            self.first.setdefault((Path(frame.f_code.co_filename).stem, frame.f_lineno), self.lines)
            self.lines += 1
            if self.lines == self.at + 1:
                raise self.kind
        return self


def traced(raiser: Raiser, elsewhere: bool, call: Callable[[], object]) -> None:
    """Calls it, with the raiser in this thread or in that of the device."""

    def start() -> None:
        sys.settrace(raiser)

    before = sys.gettrace()
    if elsewhere:
        raiser.skipped = ("_answer", "_clear", "_run", "sweep", "own", "do")
        Device.of().do("tracing", start)
    else:
        start()
    try:
        call()
    except (raiser.kind, DeviceError):
        pass
    finally:
        sys.settrace(before)
        raiser.stopped = True
        Device.of().do("tracing", lambda: sys.settrace(None))


@every_engine
@pytest.mark.parametrize("elsewhere", [True, False])
@pytest.mark.parametrize("kind", [KeyboardInterrupt, MemoryError])
def test_an_error_at_any_line_leaves_later_answers_right(
    standin: StandIn, engine: str, elsewhere: bool, kind: type[BaseException]
) -> None:
    work = Workload(7, hit=0.9)
    matcher, oracle = Matcher(engine), Matcher("reference")
    new = [*work.subscriptions(40), "within(0, 0, 1)"]
    events = [*work.events(2), {"x": 1.0, "y": 0.0}]
    matcher.subscribe_many(new)
    oracle.subscribe_many(new)
    expected = []
    for place in range(2):
        oracle.move(40, 2.0 * place, 0.0, 1.0 - place)
        expected.append(answers(oracle, events))
    assert expected[0] != expected[1]
    at = ENGINES.index(engine) % EVERY
    while True:
        matcher.move(40, 2.0 * (at % 2), 0.0, 1.0 - at % 2)
        raiser = Raiser(kind, at)
        traced(raiser, elsewhere, lambda: matcher.match_batch(events))
        if raiser.lines <= at:
            break
        assert answers(matcher, events) == expected[at % 2], at
        at += EVERY
    assert at > (100 if elsewhere else 10)


CHANGING = ("ccm", "cells", "clcb", "column", "operands", "ordered", "single", "store", "table")
"""Files whose code changes what an engine holds."""


@every_engine
@pytest.mark.parametrize("change", ["subscribe", "unsubscribe", "move", "first match"])
def test_a_change_that_is_broken_off_is_never_answered_from(
    standin: StandIn, engine: str, change: str, tmp_path: Path
) -> None:
    """Where the host's memory ends in the middle, answers are as before the change, or refused."""
    work = Workload(7, hit=0.9)
    old, new, events = [*work.subscriptions(20), "within(0, 0, 1)"], work.subscriptions(10), work.events(3)
    # So many go that the tables are made anew.
    many = ["n0 > 1e9 and n1 > 1e9"] * (1000 if change == "unsubscribe" else 0)
    calls: dict[str, Callable[[Matcher], object]] = {
        "subscribe": lambda matcher: matcher.subscribe_many(new),
        "unsubscribe": lambda matcher: matcher.unsubscribe_many(
            [*range(0, 20, 2), *range(21, len(many) + 21)]
        ),
        "move": lambda matcher: matcher.move(20, 5.0, 5.0, 0.5),
        "first match": lambda matcher: matcher.match_batch(events),
    }
    oracle = Matcher("reference")
    oracle.subscribe_many(old + many)
    expected = answers(oracle, events)

    def broken_off(at: int) -> tuple[Matcher, Raiser]:
        matcher, raiser = Matcher(engine), Raiser(MemoryError, at)
        matcher.subscribe_many(old + many)
        if change != "first match":
            assert answers(matcher, events) == expected
        traced(raiser, True, lambda: calls[change](matcher))
        return matcher, raiser

    places = broken_off(-2)[1].first
    chosen = sorted(at for (stem, _), at in places.items() if stem in CHANGING)
    refused = 0
    for at in chosen[::9]:
        matcher, _ = broken_off(at)
        try:
            assert answers(matcher, events) == expected, at
        except DeviceError as error:
            assert "broken off by MemoryError" in str(error)
            with pytest.raises(DeviceError, match="make another one from the subscriptions"):
                matcher.subscribe("a > 1")
            with pytest.raises(DeviceError, match="make another one from the subscriptions"):
                matcher.save(tmp_path / "saved")
            refused += 1
    assert refused > 0 or (change == "first match" and engine != "clcb-grid")


def interrupted(standin: StandIn, call: Callable[[], object]) -> None:
    """Calls it, with an interrupt while the device's thread is at work."""
    main, device = threading.get_ident(), Device.of()
    told = threading.Event()

    def interrupt() -> None:
        told.wait()
        signal.pthread_kill(main, signal.SIGINT)

    thread = threading.Thread(target=device.do, args=("interrupting", interrupt))
    thread.start()
    threading.Timer(0.02, told.set).start()
    with pytest.raises(KeyboardInterrupt):
        call()
    thread.join()


@every_engine
def test_a_call_that_is_interrupted_before_it_begins_is_left_out(standin: StandIn, engine: str) -> None:
    matcher = Matcher(engine)
    matcher.subscribe("a > 1")
    interrupted(standin, lambda: matcher.subscribe("a > 2"))
    assert len(matcher) == 1
    assert matcher.match({"a": 5}).tolist() == [0]
    interrupted(standin, lambda: matcher.match({"a": 5}))
    assert matcher.subscribe("a > 3") == 1
    assert sorted(matcher.match({"a": 5}).tolist()) == [0, 1]


@every_engine
@pytest.mark.parametrize("times", [1, 3])
def test_a_subscription_that_is_interrupted_while_it_is_made_is_not_there(
    standin: StandIn, engine: str, times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    matcher = Matcher(engine)
    matcher.subscribe("a > 1")
    main, made = threading.get_ident(), matcher._engine
    add = made._add

    def adding(filters: Any) -> None:
        for _ in range(times):
            signal.pthread_kill(main, signal.SIGINT)
            time.sleep(0.02)
        add(filters)
        over.append(filters)

    over: list[Any] = []
    monkeypatch.setattr(made, "_add", adding)
    with pytest.raises(KeyboardInterrupt):
        matcher.subscribe("a > 2")
    # Nobody who was interrupted goes on beside what has begun.
    assert len(over) == 1
    monkeypatch.undo()
    assert len(matcher) == 1
    assert matcher.match({"a": 5}).tolist() == [0]
    assert matcher.subscribe("a > 3") == 1
    assert sorted(matcher.match({"a": 5}).tolist()) == [0, 1]


@every_engine
@pytest.mark.parametrize("name", ["unsubscribe", "move"])
def test_a_change_that_is_interrupted_while_it_is_made_may_be_called_again(
    standin: StandIn, engine: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    matcher = Matcher(engine)
    matcher.subscribe_many(["a > 1", "a > 2 and within(0, 0, 1)"])
    here, there = {"a": 5.0, "x": 0.0, "y": 0.0}, {"a": 5.0, "x": 9.0, "y": 9.0}
    assert answers(matcher, [here, there]) == [[0, 1], [0]]
    main, made = threading.get_ident(), matcher._engine
    inner = {"unsubscribe": "_remove", "move": "_move"}[name]
    change = getattr(made, inner)

    def changing(*arguments: Any) -> Any:
        signal.pthread_kill(main, signal.SIGINT)
        time.sleep(0.02)
        return change(*arguments)

    monkeypatch.setattr(made, inner, changing)
    calls = {"unsubscribe": lambda: matcher.unsubscribe(1), "move": lambda: matcher.move(1, 9.0, 9.0)}
    with pytest.raises(KeyboardInterrupt):
        calls[name]()
    monkeypatch.undo()
    assert 1 in matcher
    calls[name]()
    assert answers(matcher, [here, there]) == [[0], [0, 1] if name == "move" else [0]]
    id = matcher.subscribe("a > 6")
    assert id == len(matcher) - 1
    assert id not in matcher.match(here) and id in matcher.match({"a": 7.0})
