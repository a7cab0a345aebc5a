"""What evflow's matching was to reach, and what it reaches beside the trees of the same run, on one core."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import matching_scenarios as scenarios
import matching_stone
import numpy as np
from matching_clcb import bulk_moves, single_moves, tree_moves
from matching_goals import Goal, Size, matches, per_match
from matching_measure import PASSES, Loaded, least, loaded, peer_checked, peer_cost, ungrouped
from matching_peers import Content, available
from matching_report import Report, text
from matching_shapes import shapes
from matching_workloads import Workload, starts

import evflow as ev
from evflow.matching import FilterColumns, Matcher, Tracker


def content(size: Size) -> list[Goal]:
    """CCM's scenarios: default, and names after Zipf's law."""
    found = []
    for title, parameters, all_us, interfaces_us in (
        ("CCM default", {}, 1.0, None),
        ("CCM, Zipf 1.7", {"exponent": 1.7}, 30.0, 1.0),
        ("CCM, Zipf 1, distinct names", {"exponent": 1.0, "distinct_names": True}, None, None),
    ):
        given: dict[str, Any] = {"each": size(25_000), "events": size.events} | parameters
        held = loaded(scenarios.ccm(**given))
        cost = held.cost()
        found.append(
            Goal(
                f"{title}: an event, all filters",
                cost.cpu,
                all_us and all_us * 1e3,
                note=matches(cost.matches),
            )
        )
        found.append(Goal(f"{title}: built", held.build * 1e9, 2e9, note=f"{len(held.workload):,} filters"))
        if title == "CCM default":
            found.append(Goal(f"{title}: an event of dicts, prepared", held.prepare))
            two = held.cost(threads=2)
            note = f"CPU of both: {two.cpu / cost.cpu:.2f} x"
            found.append(
                Goal(f"{title}: two threads, wall", cost.wall / two.wall, 1.8, "x", note, least=True)
            )
        held = loaded(scenarios.ccm(grouped=True, **given))
        cost = held.cost()
        asked = interfaces_us and interfaces_us * 1e3
        found.append(Goal(f"{title}: an event, interfaces", cost.cpu, asked, note=matches(cost.matches)))
    return found


G2_MEDIAN = {
    ("uniform", 1e-5): 0.52, ("uniform", 1e-4): 0.90, ("uniform", 1e-3): 2.6, ("uniform", 1e-2): 13.4,
    ("Zipf", 1e-5): 1.0, ("Zipf", 1e-4): 2.0, ("Zipf", 1e-3): 6.1, ("Zipf", 1e-2): 16.4,
}  # fmt: skip
G2_MEAN = {
    ("uniform", 1e-5): 0.75, ("uniform", 1e-4): 1.52, ("uniform", 1e-3): 5.5, ("uniform", 1e-2): 24.6,
    ("Zipf", 1e-5): 2.8, ("Zipf", 1e-4): 9.6, ("Zipf", 1e-3): 21.7, ("Zipf", 1e-2): 46.6,
}  # fmt: skip
"""µs of a static prototype in C++ on the same machine, whose mean counts here, as events come in batches."""


def located(size: Size) -> list[Goal]:
    """CLCB's scenarios: areas and distributions in space."""
    found = []
    for space, uneven in (("uniform", False), ("Zipf", True)):
        for area in scenarios.AREAS:
            held = loaded(clcb(size, area=area, uneven=uneven))
            cost = held.cost()
            default = (space, area) == ("uniform", 1e-4)
            asked = 2_500.0 if default else 2_000.0 * G2_MEAN[space, area]
            prototype = f"prototype {G2_MEAN[space, area]} µs, median {G2_MEDIAN[space, area]}"
            what = f"CLCB, {space}, {100 * area:g} %: an event"
            found.append(Goal(what, cost.cpu, asked, note=f"{matches(cost.matches)}; {prototype}"))
            if default:
                found += default_scenario(held, cost.cpu, cost.wall)
            del held
    return found


def clcb(size: Size, **given: Any) -> Workload:
    """CLCB's scenario with each filter a subscription, so that all that match are told."""
    return ungrouped(scenarios.clcb(subscriptions=size(250_000), events=size.events, **given))


def default_scenario(held: Loaded, cpu: float, wall: float) -> list[Goal]:
    """Moves, threads, memory and peers, in CLCB's default scenario."""
    two = held.cost(threads=2)
    note = f"CPU of both: {two.cpu / cpu:.2f} x"
    bytes_each = sum(held.matcher.stats().memory.values()) / len(held.workload)
    found = [
        Goal("CLCB default: built", held.build * 1e9, note=f"{len(held.workload):,} filters"),
        Goal("CLCB default: two threads, wall", wall / two.wall, 1.8, "x", note, least=True),
        Goal("a move, called from Python", single_moves(held), 1e3),
        Goal("a move, called from Python, of 200 filters again and again", single_moves(held, of=200)),
        Goal("a move in bulk", bulk_moves(held), 400.0),
        Goal("memory a filter", bytes_each, 120.0, "B", note="4 constraints and an area"),
    ]
    tested = Content.of(held.workload)
    for name, kind in available().items():
        peer = kind(held.workload)
        peer_checked(peer, tested)
        boxes = peer_cost(peer, tested, exact=False)
        full = peer_cost(peer, tested)
        found.append(Goal(f"{name}: an event, boxes only", boxes.cpu, note=f"{boxes.cpu / cpu:.1f} x evflow"))
        found.append(Goal(f"{name}: an event, all", full.cpu, note=f"{full.cpu / cpu:.1f} x evflow"))
        if name.startswith("rtree"):
            found.append(Goal(f"{name}: a move", tree_moves(peer, len(held.workload))))
    return found


def taken(workload: Workload, chosen: Any) -> Workload:
    """Some of the filters."""
    counts = np.diff(workload.start)
    of_constraint = np.repeat(chosen, counts)
    by_constraint = {key: getattr(workload, key)[of_constraint] for key in ("name", "op", "number", "text")}
    by_filter = {key: getattr(workload, key)[chosen] for key in ("x", "y", "radius")}
    subscription = np.arange(int(chosen.sum()), dtype=np.int32)
    return replace(
        workload, start=starts(counts[chosen]), subscription=subscription, **by_constraint, **by_filter
    )


def hard(size: Size) -> list[Goal]:
    """Mixed radii, and sets made to be slow; the factors are against the same without what makes it hard."""
    mixed = clcb(size, mixed=True)
    cost, levels = loaded(mixed).cost(), 0.0
    for radius in np.unique(mixed.radius):
        levels += loaded(taken(mixed, mixed.radius == radius)).cost().cpu
    found = [
        Goal("mixed radii against the sum of their levels", cost.cpu / levels, 1.5, "x", text(cost.cpu, "ns"))
    ]
    base = clcb(size)
    plain = loaded(base).cost().cpu
    huge = scenarios.with_filters(base, scenarios.one_filter(base, 0.5, 0.5, 10.0))
    cost = loaded(huge).cost()
    found.append(Goal("one huge circle against none", cost.cpu / plain, 1.25, "x", text(cost.cpu, "ns")))
    nowhere = loaded(scenarios.without_areas(base), events=10_000).cost().cpu
    cost = loaded(scenarios.in_one_place(base), events=10_000).cost()
    found.append(
        Goal("all areas the same against no areas", cost.cpu / nowhere, 2.0, "x", text(cost.cpu, "ns"))
    )
    for title, ranges in (("same five names", False), ("same five names, < and > only", True)):
        cost = loaded(scenarios.same_names(filters=size(250_000), ranges=ranges), events=10_000).cost()
        found.append(Goal(f"{title}: an event", cost.cpu, note=per_match(cost.cpu, cost.matches)))
    one = scenarios.on_one_name(scenarios.ccm(each=100, events=10_000))
    cost = loaded(one).cost()
    found.append(
        Goal("10,000 constraints on one name: an event", cost.cpu, note=per_match(cost.cpu, cost.matches))
    )
    return found


def wide(size: Size) -> list[Goal]:
    """The two-phase paper's workload, and the best of its combinations."""
    workload = scenarios.two_phase(subscriptions=size(100_000), events=20_000 if not size.quick else 1_000)
    cost = loaded(workload).cost()
    ways = [{"phase1": first, "phase2": second} for first in FIRST for second in SECOND]
    best, name = min((best_of(workload, way), " and ".join(way.values())) for way in ways)
    what = f"events of 20 attributes, {len(workload):,} subscriptions"
    return [
        Goal(f"{what}: an event", cost.cpu, 20e3, note=matches(cost.matches)),
        Goal(f"{what}: best of two-phase", best, note=name),
        Goal(f"{what}: two-phase against index", best / cost.cpu, 4.0, "x", least=True),
    ]


FIRST, SECOND = ("table", "trie", "search-tree"), ("counting", "clustering")


def best_of(workload: Workload, way: dict[str, str]) -> float:
    held = loaded(workload, "two-phase", events=500, batch=100, **way)
    return held.cost(passes=2, limit=2.0).cpu


def one_by_one(size: Size) -> list[Goal]:
    """``match(event)`` from Python, with dicts."""
    found = []
    for title, workload in (
        ("CCM default", scenarios.ccm(each=size(25_000), events=10_000)),
        ("CLCB default", clcb(size)),
    ):
        held = loaded(workload, events=10_000)
        events, match = (
            list(replace(workload, events=workload.events.head(1_000)).dicts()),
            held.matcher.match,
        )

        def run(events: list[Any] = events, match: Callable[[Any], object] = match) -> None:
            for event in events:
                match(event)

        found.append(Goal(f"{title}: match(event) from Python, a dict", least(run, len(events)), 5e3))
        found.append(Goal(f"{title}: a dict of a list becomes a row", held.prepare, 1e3))
    return found


def files(size: Size) -> list[Goal]:
    """Saving, loading, and ten million filters."""
    held = loaded(clcb(size), events=1_000)
    found = []
    with TemporaryDirectory() as folder:
        path = Path(folder, "matcher")
        start = time.perf_counter_ns()
        held.matcher.save(path)
        saved = time.perf_counter_ns() - start
        start = time.perf_counter_ns()
        again = Matcher.load(path)
        opened = time.perf_counter_ns() - start
        again.match_batch(held.batches[0])
        matched = time.perf_counter_ns() - start
        size_mb = sum(file.stat().st_size for file in ([path] if path.is_file() else path.rglob("*"))) / 1e6
        found.append(Goal("CLCB default: saved", saved, note=f"{size_mb:,.0f} MB"))
        found.append(Goal("CLCB default: loaded", opened))
        found.append(Goal("CLCB default: loaded, 1,000 events matched", matched))
    del held, again
    large = scenarios.clcb(subscriptions=size(1_000_000), events=1_000)
    held = loaded(large)
    total = sum(held.matcher.stats().memory.values()) / 1e9
    found.append(Goal(f"{len(large):,} filters: memory", total, 1.5, "GB", f"built in {held.build:.1f} s"))
    found.append(Goal(f"{len(large):,} filters: an event", held.cost().cpu))
    return found


def stone(size: Size) -> list[Goal]:
    """What ``ev.Match`` adds to its matcher, in batches of typed events."""
    numbers, found = np.arange(matching_stone.EVENTS), []
    x, y = np.random.default_rng(3).random((2, matching_stone.EVENTS))
    columns = {"station": [f"station{n % 7}" for n in numbers], "x": x, "y": y, "number": numbers}
    kinds = {"events of fixed width": matching_stone.Reading, "events with a text": matching_stone.Note}
    for name, kind in kinds.items():
        batch = ev.EventBatch.from_columns(kind.schema, columns)
        wanted = [f"number == {n}" for n in numbers]
        cost = matching_stone.cost(wanted, [batch] * 20, settings={"engine": "index"})
        note = f"{text(cost.alone * 1e3, 'ns')} alone, {matches(cost.matches)}"
        found.append(Goal(f"the stone adds, {name}", cost.added * 1e3, 1e3, note=note))
    return found


def tracking(size: Size) -> list[Goal]:
    """What it costs to tell what moving things enter, stay inside and leave, beside matching them."""
    random, keys, circles, width = np.random.default_rng(5), size(100_000), size(100_000), 8192
    matcher, tracker = Matcher("index"), Tracker()
    radius = (10 / (np.pi * circles)) ** 0.5
    x, y = random.random((2, circles))
    areas = {"x": x, "y": y, "radius": np.full(circles, radius)}
    matcher.subscribe_many(
        FilterColumns.from_arrays(name=["kind"], op=["<="], number=np.ones((circles, 1)), **areas)
    )
    places = random.random((keys, 2))
    names = np.array([f"{n * 7919 % (1 << 24):06x}".encode() for n in range(keys)])
    matching, tracked, changed, events = [], [], 0, 0
    for passed in range(1 + 2 * PASSES):
        order = random.permutation(keys)
        taken = [0.0, 0.0]
        for first in range(0, keys, width):
            some = order[first : first + width]
            # About one of ten circles is left, and another one is entered.
            places[some] += random.normal(0, 0.1 * radius, (len(some), 2))
            batch = {"kind": np.ones(len(some)), "x": places[some, 0].copy(), "y": places[some, 1].copy()}
            begin = time.thread_time_ns()
            found = matcher.match_batch(batch)
            between = time.thread_time_ns()
            told = tracker.track(names[some], found)
            taken[0], taken[1] = taken[0] + between - begin, taken[1] + time.thread_time_ns() - between
            changed, events = changed + len(told.enter.ids) + len(told.leave.ids), events + len(some)
        if passed:
            matching.append(taken[0] / keys)
            tracked.append(taken[1] / keys)
    note = (
        f"{matches(len(found.ids) / len(some))}, {changed / events:.2g} enter or leave; "
        f"matching takes {text(min(matching), 'ns')}"
    )
    return [
        Goal(f"{keys:,} things: an event tracked", min(tracked), min(matching), note=note),
        Goal(f"{keys:,} things: memory of a thing", tracker.nbytes / keys, None, "B"),
    ]


PARTS: dict[str, Callable[[Size], list[Goal]]] = {
    "content": content,
    "located": located,
    "hard": hard,
    "shapes": shapes,
    "wide": wide,
    "one-by-one": one_by_one,
    "files": files,
    "stone": stone,
    "tracking": tracking,
}

TITLES = {
    "content": "content",
    "located": "content and location, beside the trees",
    "hard": "sets that are hard on purpose",
    "shapes": "boxes and polygons, beside shapely's tree",
    "wide": "wide events",
    "one-by-one": "single events from Python",
    "files": "files, and ten million filters",
    "stone": "the stone",
    "tracking": "things that move",
}


def run(quick: bool, only: Sequence[str]) -> Report:
    """The parts of these names."""
    report = Report("matching_targets")
    for name in only:
        goals = PARTS[name](Size(quick))
        # What was asked is asked of the whole size.
        rows = [(replace(goal, asked=None) if quick else goal).row() for goal in goals]
        report.table(f"What was to be reached: {TITLES[name]}", ["", "measured", "asked", "met", ""], rows)
    return report
