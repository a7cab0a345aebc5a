"""CLCB's evaluation (section 5): table 2 and figures 3 to 7, evflow beside trees of other packages.

Only ``index`` is measured at the paper's size; the trees up to ``TREES`` filters, as they take long to build.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import matching_scenarios as scenarios
import numpy as np
from matching_measure import Cost, Loaded, least, loaded, peer_checked, peer_cost, resident
from matching_peers import Content, Peer, available
from matching_report import Cell, Panel, Report
from matching_workloads import Workload

SIZES = (1_000, 10_000, 100_000, 1_000_000)
"""Subscriptions of ten filters each."""
TREES = 1_000_000
EVENTS = 10_000
MOVES = 100_000
TIMES = 5
"""How often moves are measured; each time others, since a filter that is there already moves sooner."""
SPACES = {"uniform": False, "Zipf": True}
INDEX = "evflow index"


def sizes(quick: bool) -> tuple[int, ...]:
    return SIZES[:2] if quick else SIZES


def table_2(report: Report, quick: bool) -> None:
    """Content alone, and with the location, in the default scenario."""
    subscriptions = 2_500 if quick else 250_000
    workload = scenarios.clcb(subscriptions=subscriptions, events=EVENTS)
    rows: list[list[Cell]] = []
    for engine, events in (("index", EVENTS), ("counting", 200)):
        alone = loaded(scenarios.without_areas(workload), engine, events=events, batch=min(events, 1_000))
        content = alone.cost(passes=3)
        del alone
        held = loaded(workload, engine, events=events, batch=min(events, 1_000))
        both = held.cost(passes=3)
        rows.append([f"evflow {engine}", content.cpu, both.cpu, single_moves(held), held.build * 1e9])
        del held
    rows.append(["paper: CLCB, GTX 460, 2012", None, 306e3, 2_650.0, None])
    rows.append(["paper: SFF, Phenom II, 2012", 13_780e3, 118_690e3, 10_151e6, None])
    rows.append(["paper: BETree, Phenom II, 2012", 1_480e3, 84_090e3, None, None])
    head = ["CLCB, table 2: time an event", "content only", "with location", "update", "deployment"]
    report.table("CLCB, table 2", head, rows)


def single_moves(held: Loaded, count: int = 2_000, of: int | None = None) -> float:
    """ns of a ``move`` called from Python: one of all filters, or of so many, goes anywhere.

    At the end an event is matched, before which all that was moved has to be where it belongs.
    """
    random = np.random.default_rng(7)
    chosen = random.integers(0, held.workload.subscription[-1] + 1, of or 100 * count)
    drawn = [
        [*zip(random.choice(chosen, count).tolist(), *random.random((2, count)).tolist(), strict=True)]
        for _ in range(TIMES + 1)
    ]
    move, match = held.matcher.move, held.matcher.match

    def run() -> None:
        for number, x, y in drawn.pop():
            move(number, x, y, filter=0)
        match({})

    return least(run, count, TIMES)


def bulk_moves(held: Loaded, count: int = MOVES) -> float:
    """ns of a move in ``move_many``, of filters anywhere to anywhere."""
    random = np.random.default_rng(8)
    subscriptions, each = int(held.workload.subscription[-1]) + 1, len(held.workload)
    ids = random.integers(0, subscriptions, (TIMES + 1, count)).astype(np.int32)
    which = random.integers(0, each // subscriptions, count).astype(np.int32)
    places = random.random((TIMES + 1, 2, count))
    drawn = [*zip(ids, places, strict=True)]

    def run() -> None:
        chosen, (x, y) = drawn.pop()
        held.matcher.move_many(chosen, x, y, filters=which)

    return least(run, count, TIMES)


def tree_moves(peer: Peer, filters: int, count: int = 200) -> float:
    """ns of a removal and an insertion."""
    random = np.random.default_rng(9)
    which, (x, y) = random.integers(0, filters, count), random.random((2, count))
    return least(lambda: peer.move(which, x, y), count, times=2)


def trees(workload: Workload, kinds: Mapping[str, type[Peer]]) -> dict[str, tuple[Cost, Cost]]:
    """Of each tree what an event costs: boxes alone, and with circle and content."""
    if len(workload) > TREES:
        return {}
    content, found = Content.of(workload), {}
    for name, kind in kinds.items():
        peer = kind(workload)
        peer_checked(peer, content)
        found[name] = peer_cost(peer, content, exact=False, limit=0.4), peer_cost(peer, content, limit=0.4)
    return found


def figures_3_and_4(report: Report, quick: bool) -> None:
    """Matching over the number of subscriptions, by area and distribution in space."""
    kinds = available()
    for number, (space, uneven) in zip((3, 4), SPACES.items(), strict=True):
        for area in scenarios.AREAS:
            lines: dict[str, list[float | None]] = {INDEX: []}
            lines |= {f"{name}{what}": [] for name in kinds for what in (", boxes only", "")}
            for subscriptions in sizes(quick):
                workload = scenarios.clcb(
                    subscriptions=subscriptions, area=area, uneven=uneven, events=EVENTS
                )
                lines[INDEX].append(loaded(workload, batch=1_000).cost(passes=3, limit=0.4).cpu / 1e3)
                measured = trees(workload, kinds)
                for name in kinds:
                    boxes, full = measured.get(name, (None, None))
                    lines[f"{name}, boxes only"].append(boxes and boxes.cpu / 1e3)
                    lines[name].append(full and full.cpu / 1e3)
            title = f"CLCB, figure {number}: {space} in space, areas of {100 * area:g} %"
            report.panel(Panel(title, "subscriptions", list(sizes(quick)), lines, logx=True))


def figures_5_and_7(report: Report, quick: bool) -> None:
    """Updates and memory over the number of subscriptions."""
    kinds = available()
    moves: dict[str, list[float | None]] = {f"{INDEX}, move": [], f"{INDEX}, move_many": []}
    moves |= {"rtree (R*-tree)": [], "paper: CLCB, GTX 460": [], "paper: R*-tree, Phenom II": []}
    memory: dict[str, list[float | None]] = {f"{INDEX}, its arrays": [], "resident, all of it": []}
    for subscriptions in sizes(quick):
        workload = scenarios.clcb(subscriptions=subscriptions, events=1_000)
        before = resident()
        held = loaded(workload, batch=1_000)
        memory["resident, all of it"].append((resident() - before) / 1e6)
        memory[f"{INDEX}, its arrays"].append(sum(held.matcher.stats().memory.values()) / 1e6)
        moves[f"{INDEX}, move"].append(single_moves(held) / 1e3)
        moves[f"{INDEX}, move_many"].append(bulk_moves(held) / 1e3)
        del held
        tree = "rtree (R*-tree)" in kinds and len(workload) <= TREES
        moves["rtree (R*-tree)"].append(
            tree_moves(kinds["rtree (R*-tree)"](workload), len(workload)) / 1e3 if tree else None
        )
        moves["paper: CLCB, GTX 460"].append(2.65)
        moves["paper: R*-tree, Phenom II"].append(5_260.0 if subscriptions == 1_000_000 else None)
    x: list[float] = list(sizes(quick))
    report.panel(Panel("CLCB, figure 5: updates", "subscriptions", x, moves, "µs a move", True))
    report.panel(Panel("CLCB, figure 7: memory", "subscriptions", x, memory, "MB", True))


def figure_6(report: Report, quick: bool) -> None:
    """The default scenario, and filters whose content every event satisfies."""
    lines: dict[str, list[float | None]] = {"default content": [], "content always true": []}
    for subscriptions in sizes(quick):
        for line, content in (("default content", "kinds"), ("content always true", "all")):
            workload = scenarios.clcb(subscriptions=subscriptions, content=content, events=EVENTS)
            lines[line].append(loaded(workload, batch=1_000).cost(passes=3, limit=0.4).cpu / 1e3)
    report.panel(Panel("CLCB, figure 6: content", "subscriptions", list(sizes(quick)), lines, logx=True))


def run(quick: bool) -> Report:
    """All of it."""
    report = Report("matching_clcb")
    parts: list[Any] = [table_2, figures_3_and_4, figures_5_and_7, figure_6]
    for part in parts:
        part(report, quick)
    return report
