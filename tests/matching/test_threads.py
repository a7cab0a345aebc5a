from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from evflow.errors import SchemaError
from evflow.matching.engine import Matches, in_pieces
from evflow.matching.guard import Guard
from evflow.matching.matcher import Matcher
from tests.matching.engines import Case, every_engine


def start(call: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    return thread


def wait_until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not true():
        assert time.monotonic() < end
        time.sleep(0.001)


def test_readers_read_together() -> None:
    guard = Guard()
    both = threading.Barrier(2, timeout=30)

    def read() -> None:
        with guard.reading():
            both.wait()

    threads = [start(read), start(read)]
    for thread in threads:
        thread.join(30)
    assert both.n_waiting == 0 and not both.broken


def test_a_writer_waits_for_readers_and_goes_before_later_ones() -> None:
    guard = Guard()
    order: list[str] = []
    guard.enter()

    def write() -> None:
        with guard.writing():
            order.append("write")

    def read() -> None:
        with guard.reading():
            order.append("read")

    writer = start(write)
    wait_until(lambda: len(guard._writers) == 1)
    reader = start(read)
    time.sleep(0.02)
    assert order == []
    guard.leave()
    writer.join(30)
    reader.join(30)
    assert order == ["write", "read"]


def test_an_error_frees_the_lock() -> None:
    guard = Guard()
    for lock in (guard.writing, guard.reading):
        with pytest.raises(RuntimeError, match="within"), lock():
            raise RuntimeError("within")
    with guard.writing():
        pass


def test_an_error_while_matching_frees_the_lock() -> None:
    matcher = Matcher("reference")
    with pytest.raises(Exception, match="expected an event"):
        matcher.match(3)
    with pytest.raises(Exception, match="expected an event"):
        matcher.match_batch([{}, 3])
    matcher.subscribe("a > 0")
    assert matcher.match({"a": 1}).tolist() == [0]


def test_threads_share_the_reading_of_a_list_and_name_the_event_that_is_none() -> None:
    matcher = Matcher()
    matcher.subscribe_many([f"size >= {100 * i}" for i in range(20)])
    events: list[Any] = [{"size": i * 7919 % 2000} for i in range(5000)]
    found = matcher.match_batch(events, threads=3)
    for i, event in enumerate(events):
        assert sorted(found[i].tolist()) == list(range(event["size"] // 100 + 1))
    events[4567] = events[4999] = 5
    with pytest.raises(SchemaError, match=r"^event 4567: "):
        matcher.match_batch(events, threads=3)


@every_engine
def test_threads_match_while_subscriptions_change(case: Case) -> None:
    """Some subscriptions stay and match always. Others come, move and go, and match only what they may."""
    matcher = Matcher(case.engine, **case.options)
    matcher.subscribe_many([f"kind == 'k{i}' and size >= 0" for i in range(50)], range(1000, 1050))
    events = [{"kind": f"k{i}", "size": i, "x": float(i), "y": 0.0} for i in range(50)]
    stop = threading.Event()

    def match() -> int:
        rounds = 0
        while not stop.is_set() or not rounds:
            matches = matcher.match_batch(events, threads=2)
            for i in range(50):
                check(i, matches[i].tolist())
                check(i, matcher.match(events[i]).tolist())
            rounds += 1
        return rounds

    def check(i: int, ids: list[int]) -> None:
        assert 1000 + i in ids
        assert len(set(ids)) == len(ids)
        assert all(id < 1000 or id == 1000 + i for id in ids)
        if i % 2:
            assert [id for id in ids if id < 500] == []

    def change(first: int) -> None:
        for turn in range(10):
            ids = range(first, first + 20)
            matcher.subscribe_many([f"kind == 'k{2 * n}' or new{turn} == 't{turn}'" for n in range(20)], ids)
            areas = range(first + 500, first + 510)
            matcher.subscribe_many(["size >= 0 and within(0, 90, 1)"] * 10, areas)
            matcher.move_many(areas, range(10), [0.0] * 10)
            matcher.unsubscribe_many([*ids, *areas])

    with ThreadPoolExecutor(4) as pool:
        matching = [pool.submit(match) for _ in range(2)]
        changing = [pool.submit(change, first) for first in (0, 100)]
        for future in changing:
            future.result()
        stop.set()
        assert all(future.result() > 0 for future in matching)
    assert len(matcher) == 50
    stats = matcher.stats()
    assert (stats.subscriptions, stats.filters, stats.constraints) == (50, 50, 100)


@pytest.mark.slow
@pytest.mark.parametrize("work", ["match", "change"])
def test_forks_match_with_what_the_parent_has(work: str) -> None:
    """Also where another thread of the parent is about to change the matcher, or matches."""
    matcher = Matcher("reference")
    matcher.subscribe_many([f"n < {n}" for n in range(100)])
    events = [{"n": n} for n in range(200)]
    over = threading.Event()

    def going() -> None:
        while not over.is_set():
            matcher.match_batch(events) if work == "match" else matcher.unsubscribe(
                matcher.subscribe("n > 500")
            )

    thread = threading.Thread(target=going)
    thread.start()
    codes = []
    for _ in range(20):
        fork = os.fork()
        if not fork:
            signal.alarm(20)
            right = len(matcher.match({"n": 50})) == 49 and matcher.subscribe("n == 50") is not None
            os._exit(0 if right and len(matcher.match({"n": 50})) == 50 else 1)
        codes.append(os.waitstatus_to_exitcode(os.waitpid(fork, 0)[1]))
    over.set()
    thread.join()
    assert codes == [0] * 20


def test_a_list_that_grows_meanwhile_is_matched_as_it_was() -> None:
    matcher = Matcher(threads=2)
    ids = {n: matcher.subscribe(f"n == {n}") for n in range(50)}
    events = [{"n": n % 50} for n in range(20_000)]
    ended = threading.Event()

    def grow() -> None:
        while len(events) < 60_000 and not ended.is_set():
            events.append({"n": len(events) % 50})

    other = threading.Thread(target=grow)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    other.start()
    try:
        for _ in range(5):
            found = matcher.match_batch(events)
            assert found.ids.tolist() == [ids[n % 50] for n in range(len(found))]
    finally:
        ended.set()
        other.join()
        sys.setswitchinterval(interval)


def test_an_interrupted_match_ends_its_pieces_before_others_may_write() -> None:
    begun, running, seen = threading.Event(), [0], list[int]()
    lock = threading.Lock()

    def match(start: int, stop: int) -> Matches:
        with lock:
            running[0] += 1
        begun.set()
        time.sleep(0.1)
        with lock:
            running[0] -= 1
            seen.append(start)
        raise SchemaError("nobody asks")

    def interrupt() -> None:
        begun.wait()
        # A signal just before the thread waits would be heard only after that.
        time.sleep(0.1)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    other = threading.Thread(target=interrupt)
    other.start()
    with pytest.raises(KeyboardInterrupt):
        in_pieces(match, 100, 2, 100)
    assert running == [0] and len(seen) < 100
    other.join()
