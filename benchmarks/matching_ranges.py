"""Subscriptions made of ranges: four fixed workloads and many that are drawn, beside their peers.

The plain scan, compiled by numba in the same run, is the limit that an index must keep to, and the measure by
which engines of other runs are compared.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from matching_range_peers import VALUES, peers
from matching_report import Cell, Report
from matching_workloads import Array, starts

from evflow.matching import FilterColumns, Matcher
from evflow.matching.model import Op

LACKING = -1
"""The value of an attribute that an event has not."""
PASSES = 5
ONES = 200
"""Events that are matched one by one in a pass."""
PLAIN = 50
"""Events that peers go through in a pass."""
WORST = 10
"""Drawn workloads that are shown."""
LIMITS = {"the scan": 1.1, "the best peer": 1.5}
"""How many times as much as a peer takes an event may take."""
CHANGED = 20_000

ELSEWHERE = {"A": (1.50, 0.512), "B": (3.61, 1.33), "C": (2.99, 0.790)}
"""What REIN and TAMA of others took, as multiples of a scan in the same run of another machine.
One of ours that takes more than 1.25 times as much would be too weak to compare with.
"""


@dataclass(frozen=True)
class Ranges:
    """N filters of ranges of whole numbers, and E events.

    Attributes:
        title: what it is called.
        start: int64, N + 1: where the ranges of a filter start and end.
        range: int32, (C, 3): the attribute, the least and the largest value.
        events: int32, (E, attributes): the values, ``LACKING`` where there is none.
    """

    title: str
    start: Array
    range: Array
    events: Array

    def __len__(self) -> int:
        return len(self.start) - 1

    def columns(self, filters: int) -> FilterColumns:
        """The first filters as subscriptions; an equality is one constraint, another range is two."""
        ranges = self.range[: self.start[filters]]
        equal = ranges[:, 1] == ranges[:, 2]
        twice = np.where(equal, 1, 2)
        op = np.full((len(ranges), 2), (Op.GE, Op.LE), np.uint8)
        op[equal, 0] = Op.EQ
        kept = np.stack([np.ones(len(ranges), bool), ~equal], 1)
        return FilterColumns(
            names=self.names(),
            texts=[],
            start=np.concatenate([[0], np.cumsum(twice)])[self.start[: filters + 1]],
            name=np.repeat(ranges[:, 0], twice),
            op=op[kept],
            number=ranges[:, 1:][kept].astype(np.float64),
            text=np.full(int(twice.sum()), -1, np.int32),
            subscription=np.arange(filters, dtype=np.int32),
        )

    def names(self) -> list[str]:
        return [f"a{i}" for i in range(self.events.shape[1])]

    def batch(self, first: int, stop: int) -> Any:
        """Events as dicts."""
        names = self.names()
        return [
            {name: value for name, value in zip(names, row, strict=True) if value != LACKING}
            for row in self.events[first:stop].tolist()
        ]


def make(
    title: str, filters: int, constraints: int, attributes: int, events: int, width: float,
    *, zipf: float = 0.0, equal: float = 0.0, lacking: float = 0.0, spread: bool = False, seed: int = 1,
) -> Ranges:  # fmt: skip
    """A workload of ranges, drawn with a seed.

    Args:
        title: what it is called.
        filters: how many there are.
        constraints: how many ranges a filter has, on different attributes.
        attributes: how many there are in all.
        events: how many there are.
        width: the share of all values that a range takes.
        zipf: the exponent by which some attributes are constrained more often.
        equal: the share of ranges that are equalities.
        lacking: the share of its attributes that an event lacks.
        spread: filters have 1 up to twice as many constraints, instead of all as many.
        seed: of all that is drawn.
    """
    random = np.random.default_rng(seed)
    chance = 1 / np.arange(1, attributes + 1) ** zipf
    counts = np.full(filters, constraints)
    if spread:
        counts = random.integers(1, min(attributes, 2 * constraints) + 1, filters)
    start = starts(counts)
    ranges = np.empty((int(start[-1]), 3), np.int32)
    for first in range(0, filters, 1 << 16):
        own = counts[first : first + (1 << 16)]
        keys = np.log(random.random((len(own), attributes))) / (chance / chance.sum())
        chosen = np.argsort(-keys, axis=1)[:, : own.max()]
        inside = np.arange(chosen.shape[1]) < own[:, None]
        ranges[start[first] : start[first + len(own)], 0] = chosen[inside]
    size = np.where(random.random(len(ranges)) < equal, 0, int(width * VALUES))
    ranges[:, 1] = random.random(len(ranges)) * (VALUES - size)
    ranges[:, 2] = np.minimum(ranges[:, 1] + size, VALUES - 1)
    happened = random.integers(0, VALUES, (events, attributes), dtype=np.int32)
    happened[random.random(happened.shape) < lacking] = LACKING
    return Ranges(title, start, ranges, happened)


def drawn(seed: int, quick: bool) -> Ranges:
    """A workload of which all is drawn: how many, how wide, how skewed, how much events lack.

    Args:
        seed: the number of the workload; the same one gives the same workload.
        quick: at most 10,000 filters, not a million.
    """
    random = np.random.default_rng(seed)
    attributes = int(2 ** random.uniform(0, np.log2(200)))
    constraints = min(attributes, int(2 ** random.uniform(0, np.log2(30))))
    filters = int(min(10 ** random.uniform(3, 4 if quick else 6), 3e6 / constraints))
    width, zipf = random.choice([0.001, 0.01, 0.1, 0.3, 0.7]), random.choice([0.0, 1.0])
    equal, lacking = random.choice([0.0, 0.3, 1.0]), random.choice([0.0, 0.3, 0.9])
    spread = bool(random.random() < 0.5)
    title = (
        f"{seed}: {filters:,} filters, {'1 to ' + str(2 * constraints) if spread else constraints} of "
        f"{attributes} attributes{', Zipf' if zipf else ''}, width {width:g}, {100 * equal:g} % equalities, "
        f"events lack {100 * lacking:g} %"
    )
    return make(
        title, filters, constraints, attributes, 200, width,
        zipf=zipf, equal=equal, lacking=lacking, spread=spread, seed=seed,
    )  # fmt: skip


def least(call: Callable[[], Any], events: int) -> float:
    """ns of CPU an event: the least of the passes."""
    found = []
    for _ in range(PASSES):
        start = time.process_time_ns()
        call()
        found.append((time.process_time_ns() - start) / events)
    return min(found)


def each(match: Callable[[Array], Array], events: Array) -> None:
    for event in events:
        match(event)


@dataclass(frozen=True)
class Figures:
    """What an event of a workload takes, in ns, and what else was measured.

    Attributes:
        matches: of an event.
        peers: of each peer.
        batch, one: of the index, in batches and one by one.
        first: seconds of the first batch, with which filters move to where they are found best.
        added, removed: ns of a subscription.
        held: bytes of the matcher a constraint, without what threads need.
        pool: how many filters stand in the pool.
    """

    matches: float
    peers: dict[str, float]
    batch: float
    one: float
    first: float
    added: float
    removed: float
    held: float
    pool: int

    @property
    def best(self) -> str:
        """The name of the fastest peer."""
        return min(self.peers, key=self.peers.__getitem__)


def measured(workload: Ranges) -> Figures:
    """Measures a workload.

    Raises:
        SystemExit: the index finds something else than a peer.
    """
    matcher, filters = Matcher("index"), len(workload)
    matcher.subscribe_many(workload.columns(filters))
    count = len(workload.events)
    events = matcher.prepare(workload.batch(0, count))
    ones = [matcher.prepare([event]) for event in workload.batch(0, min(ONES, count))]
    begin = time.process_time()
    matches = matcher.match_batch(events)
    first = time.process_time() - begin
    few, took = workload.events[:PLAIN], {}
    for name, match in peers(workload.start, workload.range, workload.events.shape[1]).items():
        for i, event in enumerate(few):
            wanted = match(event)
            if not np.array_equal(np.sort(matches[i]), wanted):
                raise SystemExit(
                    f"{workload.title}: event {i} matches {len(matches[i])}, by {name} {len(wanted)}"
                )
        took[name] = least(partial(each, match, few), len(few))
    batch = least(lambda: matcher.match_batch(events), count)
    one = least(lambda: [matcher.match_batch(event) for event in ones], len(ones))
    stats = matcher.stats()
    held = sum(size for name, size in stats.memory.items() if name != "engine.scratch") / len(workload.range)
    changed = min(CHANGED, filters)
    begin = time.process_time_ns()
    matcher.unsubscribe_many(np.arange(changed))
    removed = (time.process_time_ns() - begin) / changed
    columns = workload.columns(changed)
    begin = time.process_time_ns()
    matcher.subscribe_many(columns)
    added = (time.process_time_ns() - begin) / changed
    per_event = len(matches.ids) / count
    return Figures(per_event, took, batch, one, first, added, removed, held, stats.details["pool.filters"])


def fixed(quick: bool) -> list[Ranges]:
    """The four workloads, of a hundredth of the filters if ``quick``."""
    part = 100 if quick else 1
    return [
        make("A: 5 ranges of 20 attributes, width 0.3", 100_000 // part, 5, 20, 1000, 0.3),
        make("B: 25 ranges of 80 attributes, width 0.7", 100_000 // part, 25, 80, 1000, 0.7),
        make("C: 4 ranges of 20 attributes (Zipf), width 0.1", 1_000_000 // part, 4, 20, 1000, 0.1, zipf=1.0),
        make("D: 1 range of 1 attribute, width 0.00001", 1_000_000 // part, 1, 1, 1000, 0.00001),
    ]


def run(quick: bool) -> Report:
    """Measures and prints the fixed workloads.

    Args:
        quick: a hundredth of the filters.
    """
    report = Report("matching_ranges")
    warm()
    rows: list[list[Cell]] = []
    ratios: list[list[Cell]] = []
    own = ("counting", "bitmaps", "REIN", "TAMA")
    for workload in fixed(quick):
        got = measured(workload)
        plain = got.peers["scan"]
        rows.append([workload.title, f"{got.matches:,.1f}", plain, got.batch, got.one])
        rows[-1] += [got.added, got.removed, f"{got.first:.2f} s", f"{got.held:.0f} B"]
        ratios.append([workload.title[0], got.batch / plain, got.one / plain])
        ratios[-1] += [(taken := got.peers.get(name)) and taken / plain for name in own]
        ratios[-1] += ELSEWHERE.get(workload.title[0], (None, None))
    head = ["ranges", "matches", "plain scan", "batches", "one by one", "added", "removed", "first batch"]
    report.table("Ranges", [*head, "a constraint"], rows)
    head = ["", "batches", "one by one", *own, "REIN, elsewhere", "TAMA, elsewhere"]
    report.table("Ranges, as multiples of the scan", head, ratios, "")
    return report


def warm() -> None:
    """Compiles what is measured, changes and moves to the pool included."""
    measured(make("warm", 20_000, 3, 20, 500, 0.3))


def run_drawn(quick: bool, count: int) -> Report:
    """Measures the workloads that are drawn, and prints the worst and how all are spread.

    Args:
        quick: smaller workloads.
        count: how many, from seed 0 on.
    """
    report = Report("matching_drawn")
    warm()
    found = []
    for seed in range(count):
        workload = drawn(seed, quick)
        got = measured(workload)
        peers_take = (got.peers["scan"], got.peers[got.best])
        ratios = {
            (way, peer): taken / limit
            for way, taken in (("batches", got.batch), ("one by one", got.one))
            for peer, limit in zip(LIMITS, peers_take, strict=True)
        }
        row: list[Cell] = [workload.title, f"{got.matches:,.1f}", peers_take[0], got.batch, got.one]
        row += [*(f"{ratio:.3f}" for ratio in ratios.values()), got.best, f"{got.pool / len(workload):.0%}"]
        found.append((ratios, row))
    kinds = list(found[0][0])
    head = ["drawn", "matches", "plain scan", "batches", "one by one"]
    head += [*(f"{way} / {peer}" for way, peer in kinds), "best peer", "pool"]
    summary: list[list[Cell]] = []
    for kind in kinds:
        found.sort(key=lambda pair: pair[0][kind], reverse=True)
        title = "Ranges, drawn: the slowest in {}, beside {}".format(*kind)
        report.table(title, head, [row for _, row in found[:WORST]])
        held = np.array([ratios[kind] for ratios, _ in found])
        limit = LIMITS[kind[1]]
        beyond = f"{(held > limit).sum()} of {len(found)}"
        summary.append([" / ".join(kind), float(np.median(held)), float(held.max()), f"{limit}", beyond])
    report.table("Ranges, drawn", ["", "median", "largest", "limit", "beyond it"], summary, "")
    return report
