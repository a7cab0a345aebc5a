"""How the benchmarks of matching measure: CPU time of passes over events, after a check of the matches."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from matching_peers import BULK, Content, Peer
from matching_workloads import Array, Workload

from evflow.matching import ENGINES, FilterColumns, Matcher

ENGINES["counting"] = "matching_counting:Counting"

BATCH = 10_000
"""Events of one call of ``match_batch``."""
PASSES = 4
LIMIT = 4.0
"""Seconds after which a pass ends with the events that it had by then."""


@dataclass(frozen=True)
class Cost:
    """What an event costs.

    Attributes:
        cpu: ns of CPU, of all threads of the process: the least of the passes.
        wall: ns on the wall, likewise.
        matches: ids that an event has on average.
        events: how many events a pass had.
    """

    cpu: float
    wall: float
    matches: float
    events: int


def columns_of(workload: Workload) -> FilterColumns:
    """The filters in the form in which they are subscribed in bulk."""
    area = {"x": workload.x, "y": workload.y, "radius": workload.radius} if len(workload.x) else {}
    return FilterColumns(
        names=workload.names,
        texts=workload.texts,
        start=workload.start,
        name=workload.name,
        op=workload.op,
        number=workload.number,
        text=workload.text,
        subscription=workload.subscription,
        **area,
    )


def ungrouped(workload: Workload) -> Workload:
    """The same, with each filter a subscription of its own."""
    return replace(workload, subscription=np.arange(len(workload), dtype=np.int32))


@dataclass(frozen=True)
class Loaded:
    """A matcher that holds a workload.

    Attributes:
        build: seconds of CPU to take all in, and to match the first event.
        batches: the workload's events as the matcher has prepared them.
        prepare: ns of CPU an event that this took.
    """

    matcher: Matcher
    workload: Workload
    build: float
    batches: list[Any]
    prepare: float

    def cost(self, threads: int = 1, passes: int = PASSES, limit: float = LIMIT) -> Cost:
        """What an event costs in batches."""
        return passes_over(
            [lambda rows=rows: self.matcher.match_batch(rows, threads=threads) for rows in self.batches],
            [len(rows) for rows in self.batches],
            lambda found: len(found.ids),
            passes,
            limit,
        )


def loaded(
    workload: Workload, engine: str = "index", *, events: int | None = None, batch: int = BATCH,
    check: bool = True, **options: Any,
) -> Loaded:  # fmt: skip
    """A matcher with the workload, checked against all filters tried one by one.

    Raises:
        SystemExit: it finds something else.
    """
    warm(engine, **options)
    matcher, columns = Matcher(engine, **options), columns_of(workload)
    used = workload.events if events is None else workload.events.head(min(events, len(workload.events)))
    dicts = list(replace(workload, events=used).dicts())
    build = time.process_time()
    matcher.subscribe_many(columns)
    matcher.match_batch(dicts[:1])
    build = time.process_time() - build
    del columns
    start = time.process_time_ns()
    batches = [matcher.prepare(dicts[first : first + batch]) for first in range(0, len(dicts), batch)]
    prepare = (time.process_time_ns() - start) / len(dicts)
    held = Loaded(matcher, workload, build, batches, prepare)
    if check:
        checked(held, dicts)
    return held


_warmed: set[str] = set()


def warm(engine: str, **options: Any) -> None:
    """Compiles what the engine needs, so that no measurement holds it."""
    if (key := f"{engine} {options}") in _warmed:
        return
    _warmed.add(key)
    matcher = Matcher(engine, **options)
    matcher.subscribe_many(["a0 > 5 and a1 == 'word'", "a0 < 5 and within(0, 0, 1)", "a1 contains 'o'"])
    matcher.match_batch([{"a0": 6.0, "a1": "word"}, {"a0": 4.0, "x": 0.0, "y": 0.0}])
    matcher.match({"a0": 6.0, "a1": "word"})
    matcher.move_many(np.array([1], np.int32), np.array([0.5]), np.array([0.5]))
    matcher.move(1, 0.0, 0.0)


def checked(held: Loaded, dicts: Sequence[dict[str, Any]]) -> None:
    """Compares with brute force; the more filters, the fewer events."""
    workload = held.workload
    count = int(min(len(dicts), 100, max(3, 3e7 // len(workload))))
    content, every = (
        Content.of(replace(workload, events=workload.events.head(count))),
        np.arange(len(workload)),
    )
    found = held.matcher.match_batch(dicts[:count])
    for event in range(count):
        passing = content.matches(np.full(len(every), event), every)
        expected = np.unique(workload.subscription[passing])
        if not np.array_equal(np.sort(found[event]), expected):
            raise SystemExit(f"event {event}: {len(found[event])} matches, expected {len(expected)}")


def passes_over(
    runs: Sequence[Callable[[], Any]],
    events: Sequence[int],
    matches: Callable[[Any], int],
    passes: int,
    limit: float,
) -> Cost:
    """The cost of runs that handle so many events each: the least of several passes over all of them."""
    gc.collect()
    total, ids, done, used = 0, 0, 0, len(runs)
    start = time.perf_counter()
    for run, count in zip(runs, events, strict=True):
        ids, total, done = ids + matches(run()), total + count, done + 1
        if time.perf_counter() - start > limit:
            break
    used = done
    cpu, wall = [], []
    for _ in range(passes):
        begun, clock = time.process_time_ns(), time.perf_counter_ns()
        for run in runs[:used]:
            run()
        cpu.append((time.process_time_ns() - begun) / total)
        wall.append((time.perf_counter_ns() - clock) / total)
    return Cost(min(cpu), min(wall), ids / total, total)


def peer_checked(peer: Peer, content: Content) -> None:
    """Compares what a tree finds with brute force.

    Raises:
        SystemExit: it finds something else.
    """
    count = int(min(20, len(content.workload.events), max(3, 3e7 // len(content.workload))))
    events, filters = peer.boxes(slice(0, count))
    found = np.bincount(events[content.matches(events, filters)], minlength=count)
    if not np.array_equal(found, content.brute(count)):
        raise SystemExit(f"{type(peer).__name__} finds {found} matches, expected {content.brute(count)}")


def peer_cost(
    peer: Peer, content: Content, exact: bool = True, limit: float = LIMIT, passes: int = 3
) -> Cost:
    """What an event costs a tree in bulk: boxes alone, or with the exact circle and the content test."""
    count = len(content.workload.events)

    def run(first: int) -> Array:
        events, filters = peer.boxes(slice(first, min(first + BULK, count)))
        return content.matches(events, filters) if exact else events

    firsts = range(0, count, BULK)
    return passes_over(
        [lambda first=first: run(first) for first in firsts],
        [min(BULK, count - first) for first in firsts],
        lambda found: int(found.sum()) if exact else len(found),
        passes,
        limit,
    )


def least(run: Callable[[], object], repetitions: int, times: int = 5) -> float:
    """ns of CPU of one of ``repetitions`` things that ``run`` does; the least of several times."""
    run()
    found = []
    for _ in range(times):
        start = time.process_time_ns()
        run()
        found.append((time.process_time_ns() - start) / repetitions)
    return min(found)


def resident() -> int:
    """Bytes of this process that are in memory now."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
