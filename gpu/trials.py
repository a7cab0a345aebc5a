"""What engines do on a device where threads change, memory ends, calls break off, a process forks or ends."""

from __future__ import annotations

import gc
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from evflow.gpu.device import Device, Memory, OutOfMemory
from evflow.gpu.scenarios import ENGINES, differences, mixed_scenario
from evflow.matching.matcher import Matcher

FILTERS = 20_000
SPARE = 2 << 20
"""Free memory may be so much less afterwards; a driver takes and gives back in pieces."""

INTERRUPTS = (0.0005, 0.002, 0.005, 0.01, 0.02)
"""Seconds after which calls are interrupted."""

_PROGRAM = """
import os, sys, threading, time
from evflow.errors import DeviceError
from evflow.matching.matcher import Matcher
matcher = Matcher("clcb-grid", device=int(sys.argv[1]))
matcher.subscribe_many(["a > 0"] * 3000)
assert len(matcher.match({"a": 1})) == 3000
if hasattr(os, "fork"):
    child = os.fork()
    if not child:
        try:
            matcher.match({"a": 1})
        except DeviceError:
            os._exit(0)
        os._exit(1)
    assert os.waitpid(child, 0)[1] == 0, "a fork is not told that it cannot use the device"
going = threading.Event()

def work():
    while True:
        assert len(matcher.match({"a": 1})) == 3000
        going.set()

threading.excepthook = lambda given: None
threading.Thread(target=work, daemon=True).start()
going.wait()
time.sleep(0.05)
"""


def trials(ordinal: int, *, full: bool = False) -> Iterator[tuple[str, str]]:
    """Tries what goes wrong more easily on a card than in a test.

    Args:
        ordinal: which CUDA device, from 0.
        full: with answers of 160 MB where 64 MB are left, else of 8 MB where 4 are.

    Yields:
        What was tried, and what was wrong with it, or nothing.
    """
    device = Device.of(ordinal)
    filters, events, left = (20_000, 1024, 64 << 20) if full else (4000, 256, 4 << 20)
    yield "other threads change and drop", _threads(device, ordinal)
    yield "memory ends while matching", _memory(device, ordinal, filters, events, left)
    yield "memory follows use", _room(ordinal, filters, events)
    # Only the main thread is interrupted.
    if threading.current_thread() is threading.main_thread():
        yield "calls are interrupted", _interrupts(ordinal)
    yield "a process forks, and ends while a thread matches", _processes(ordinal)
    yield "no context is left in this thread", _context()


def _threads(device: Device, ordinal: int) -> str:
    columns, made = mixed_scenario(FILTERS, 20)
    oracle = Matcher("reference")
    oracle.subscribe_many(columns)
    odd = list(range(1, FILTERS, 2))
    oracle.unsubscribe_many(odd)
    expected, free, wrong = oracle.match_batch(made), [], 0

    def change_and_drop(matchers: list[Matcher]) -> None:
        nonlocal wrong
        for matcher in matchers:
            matcher.match_batch(made)
            matcher.unsubscribe_many(odd)
            wrong += differences(matcher.match_batch(made), expected)
        matchers.clear()

    for _ in range(4):
        matchers = [Matcher(engine, device=ordinal) for engine in ENGINES]
        for matcher in matchers:
            matcher.subscribe_many(columns)
        del matcher
        thread = threading.Thread(target=change_and_drop, args=(matchers,))
        thread.start()
        thread.join()
        gc.collect()
        free.append(device.facts()["free_bytes"])
    if wrong:
        return f"{wrong} answers"
    # The first round takes what the driver keeps.
    lost = free[1] - free[-1]
    return f"{lost:,} bytes are not free again (or another process took them)" if lost > SPARE else ""


def _memory(device: Device, ordinal: int, filters: int, events: int, left: int) -> str:
    matcher = _all_match(ordinal, filters, events)
    taken = _fill(device, left)
    try:
        return _check_all(matcher, filters, events) or _check_all(matcher, filters, 1)
    finally:
        taken.clear()


def _fill(device: Device, left: int) -> list[Memory]:
    """Takes all memory of the device but so many bytes, as far as it gives it."""
    taken: list[Memory] = []
    piece = device.facts()["free_bytes"] - left
    while piece >= 1 << 20:
        try:
            taken.append(device.allocate(piece))
            piece = device.facts()["free_bytes"] - left
        except OutOfMemory:
            piece //= 2
    return taken


def _room(ordinal: int, filters: int, events: int) -> str:
    matcher = _all_match(ordinal, filters, events)
    wrong = _check_all(matcher, filters, events)
    heavy = matcher.stats().memory["engine.batches"]
    for _ in range(20):
        matcher.match({"a": -1.0})
    light = matcher.stats().memory["engine.batches"]
    return wrong or ("" if light < heavy / 2 else f"{heavy:,} bytes for many matches, {light:,} for none")


def _all_match(ordinal: int, filters: int, events: int) -> Matcher:
    matcher = Matcher("clcb-grid", device=ordinal, batch=events)
    matcher.subscribe_many(["a > 0"] * filters)
    matcher.match({"a": -1.0})
    return matcher


def _check_all(matcher: Matcher, filters: int, events: int) -> str:
    found = matcher.match_batch([{"a": 1.0}] * events)
    every = np.arange(filters)
    wrong = sum(not np.array_equal(np.sort(found[i]), every) for i in range(events))
    return f"{wrong} of {events} answers" if wrong else ""


def _interrupts(ordinal: int) -> str:
    columns, made = mixed_scenario(FILTERS // 10, 20)
    oracle = Matcher("reference")
    oracle.subscribe_many(columns)
    expected, wrong = oracle.match_batch(made), 0
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        for engine in ENGINES:
            matcher = Matcher(engine, device=ordinal)
            matcher.subscribe_many(columns)
            for seconds in INTERRUPTS:
                _interrupted(partial(matcher.match_batch, made), seconds)
                wrong += differences(matcher.match_batch(made), expected)
    finally:
        signal.signal(signal.SIGINT, before)
    return f"{wrong} answers" if wrong else ""


def _interrupted(call: Callable[[], Any], seconds: float) -> None:
    timer = threading.Timer(seconds, signal.pthread_kill, (threading.get_ident(), signal.SIGINT))
    try:
        timer.start()
        while True:
            call()
    except KeyboardInterrupt:
        timer.join()


def _processes(ordinal: int) -> str:
    command = [sys.executable, "-c", _PROGRAM, str(ordinal)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    said = done.stderr.strip().rpartition("\n")[2]
    return f"exit code {done.returncode}: {said}" if done.returncode else ""


def _context() -> str:
    import pycuda.driver as cuda

    try:
        cuda.Context.get_device()
    except cuda.Error:
        return ""
    return "one is current"
