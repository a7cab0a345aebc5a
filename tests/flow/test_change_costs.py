"""What a change of a running graph costs, in calls of Python functions: a count that no load changes."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

import pytest

import evflow as ev


class Ping(ev.Event):
    number: int
    a: int = 0
    b: int = 0
    c: int = 0
    d: int = 0
    e: int = 0
    f: int = 0
    g: int = 0
    h: int = 0
    i: int = 0
    j: int = 0
    k: int = 0
    m: int = 0


FORMS = [f"input.{field} {sign}" for field in "abcdefghijkm" for sign in ("<", ">", "<=", ">=", "==", "!=")]
"""Comparisons, each of which is machine code of its own, whatever number follows."""


@contextmanager
def counting() -> Iterator[Callable[[], int]]:
    """Counts the calls in this thread and in those that start within; gives how many there were so far.

    Once numba is loaded, by whoever, it adds a dozen to each call of LLVM; they do not count.
    """
    calls = 0

    def count(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal calls
        calls += event == "call" and "numba" not in frame.f_code.co_filename

    before = sys.getprofile(), threading.getprofile()
    threading.setprofile(count)
    sys.setprofile(count)
    try:
        yield lambda: calls
    finally:
        sys.setprofile(before[0])
        threading.setprofile(before[1])


def inserted(filters: int, at: int, codes: Sequence[str]) -> int:
    """The calls that it takes to insert a filter behind so many stones of a chain, after another change.

    The least of three: now and then the code of a filter needs a new engine of LLVM.
    """
    g = ev.Graph()
    stone = g.source("pings", Ping)
    names = ["pings", *(f"f{number}" for number in range(filters)), "end"]
    for number in range(filters):
        stone = stone >> ev.Filter(f"input.number > {number}", name=names[number + 1])
    stone >> ev.Terminal(lambda event: None, name="end")
    taken: list[int] = []
    with counting() as calls, g.run() as flow:
        for turn, code in enumerate(codes):
            flow["pings"].submit(Ping(1))
            flow.drain()
            before = calls()
            flow.insert(ev.Filter(code, name=f"new{turn}"), after=names[at], before=names[at + 1])
            taken.append(calls() - before)
            names.insert(at + 1, f"new{turn}")
    return min(taken[1:])


@pytest.mark.parametrize("filters", [1, 5, 30])
@pytest.mark.parametrize("where", [0.0, 0.5, 1.0])
def test_an_insertion_takes_the_same_calls_wherever_it_is_in_a_graph_of_any_size(
    filters: int, where: float
) -> None:
    at, number = round(where * filters), f"-{filters}{where}"
    first = 8 * (3 * [1, 5, 30].index(filters) + round(2 * where))
    forms = FORMS[first : first + 8]
    # 64 calls to compile a function are those of llvmlite.
    assert inserted(filters, at, [f"{form} {number}" for form in forms[:4]]) < 600
    assert inserted(filters, at, [f"lambda input: {form} {number}" for form in forms[4:]]) < 600
    # Functions that differ in a number share their first machine code.
    assert inserted(filters, at, [f"input.number != {number}{turn}" for turn in range(4)]) < 520
    assert inserted(filters, at, ["input.number != -1"] * 4) < 300


def test_the_first_event_after_an_insertion_takes_few_calls_more_than_the_next() -> None:
    g = ev.Graph()
    stone = g.source("pings", Ping)
    for number in range(5):
        stone = stone >> ev.Filter(f"input.number > {number}", name=f"f{number}")
    stone >> ev.Terminal(lambda event: None, name="end")
    more: list[int] = []
    with counting() as calls, g.run() as flow:
        for turn in range(4):
            flow.insert(ev.Filter("input.number != -1", name=f"new{turn}"), after="f2", before="f3")
            taken = [calls()]
            for _ in range(3):
                flow["pings"].submit(Ping(9))
                flow.drain()
                taken.append(calls())
            more.append(taken[1] - taken[0] - (taken[3] - taken[2]))
            flow.remove(f"new{turn}")
    # Planned anew is what leads to the filter; what comes behind it is as it was.
    assert min(more) < 220


def test_an_inserted_filter_becomes_a_part_of_its_pass_with_its_statics_and_counts() -> None:
    seen: list[int] = []
    g = ev.Graph()
    low = g.source("pings", Ping) >> ev.Filter("input.number >= 0", name="low")
    (
        low
        >> ev.Filter("input.number < 1000000", name="high")
        >> ev.Terminal(lambda batch: seen.extend(batch["number"].tolist()), batch=True, name="end")
    )
    with g.run() as flow:
        flow["pings"].submit_batch({"number": [0]})
        every = "{ static int seen = 0; seen = seen + 1; return seen % 3 == 0; }"
        flow.insert(ev.Filter(every, name="third"), after="low", before="high")
        third = flow.engine.topology.slots["third"]
        numbers = range(50_000)
        for first in range(0, 50_000, 5_000):
            assert third.separate == (first < 20_000)
            flow["pings"].submit_batch({"number": numbers[first : first + 5_000]})
            flow.drain()
        assert seen == [0, *numbers[2::3]]
        stats = flow.stats()
        assert [stats[name]["in"] for name in ("low", "third", "high")] == [50_001, 50_000, 16_667]
