"""What the two-phase engine costs: figures 6 to 11 of the two-phase paper, all six combinations in one run.

The paper gives no values beside its curves but two: with clustering, matching takes 65 % less time than with
counting alone, and throughput is 82 % higher. Its other statements are orderings. The last table tells what
they are here.

    python benchmarks/matching_two_phase.py [--quick]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import matching_scenarios as scenarios
import numpy as np
import table
from matching_report import Cell, Panel, Report
from matching_workloads import Events, Workload

from evflow.matching.engine import engine_class
from evflow.matching.rows import NUMBER, EventRows, Filters
from evflow.matching.strings import Strings
from evflow.matching.twophase.engine import TwoPhase

SIZES = (2_000, 10_000, 50_000, 100_000)
PHASE1 = ("table", "trie", "search-tree")
PHASE2 = ("counting", "clustering")
THREADS = (1, 2, 4)
ROUNDS = 11
DOMAIN = (0, 99)
"""The integers of the workload: the paper's tables have a size that is known beforehand."""


@dataclass(frozen=True)
class Held:
    """The six engines with one workload."""

    filters: Filters
    events: EventRows
    few: EventRows
    engines: dict[tuple[str, str], TwoPhase]


def engine_of(phase1: str, phase2: str) -> TwoPhase:
    domain = DOMAIN if phase1 == "table" else None
    return TwoPhase(Strings(), 2, phase1=phase1, phase2=phase2, domain=domain)


def held_of(subscriptions: int) -> Held:
    """All six engines, checked on some events against filters that are tried one by one."""
    workload = scenarios.two_phase(subscriptions=subscriptions)
    filters, events = filters_of(workload), rows_of(workload.events)
    few = rows_of(narrowed(workload.events, 4))
    engines = {(one, two): engine_of(one, two) for one in PHASE1 for two in PHASE2}
    brute: Any = engine_class("reference")(Strings(), 2)
    sample = head(events, 10)
    for engine in (brute, *engines.values()):
        engine.add(filters)
    expected = brute.match(sample)
    for name, engine in engines.items():
        found = engine.match(sample)
        for event in range(len(found)):
            if set(found[event]) != set(expected[event]):
                raise SystemExit(f"{name}: {len(found[event])} matches, expected {len(expected[event])}")
    return Held(filters, events, few, engines)


def filters_of(workload: Workload) -> Filters:
    """The filters of a workload without strings and areas, as engines get them."""
    count = len(workload)
    return Filters(
        workload.subscription, workload.start, workload.name, workload.op, workload.number, workload.text,
        np.full((count, 2), np.nan), np.zeros(count),
    )  # fmt: skip


def rows_of(events: Events) -> EventRows:
    """Events whose values are all numbers, as engines get them."""
    count = len(events.name)
    return EventRows(
        events.start.astype(np.int64), events.name.astype(np.int32), np.full(count, NUMBER, np.uint8),
        events.value.astype(np.float64), np.full(count, -1, np.int32), np.zeros(0, np.uint8),
        np.zeros(count, np.int64), np.zeros(count, np.int32), np.full((len(events), 2), np.nan),
    )  # fmt: skip


def narrowed(events: Events, attributes: int) -> Events:
    """The first attributes of each event."""
    chosen = (events.start[:-1, None] + np.arange(attributes)).ravel()
    start = np.arange(len(events) + 1) * attributes
    return Events(start, events.name[chosen], events.value[chosen], events.x, events.y)


def head(events: EventRows, count: int) -> EventRows:
    """The first events."""
    end = events.start[count]
    return EventRows(
        events.start[: count + 1], events.name[:end], events.kind[:end], events.number[:end],
        events.text[:end], events.chars, events.char_start[:end], events.char_length[:end],
        events.place[:count],
    )  # fmt: skip


def timed(runs: Mapping[str, Callable[[], object]], events: int) -> dict[str, table.Row]:
    """What an event costs, case by case, the cases in turn."""
    cases = [table.Case(name, run, events) for name, run in runs.items()]
    return {row.name: row for row in table.measure(cases, ROUNDS)}


def matching(held: Held, threads: int = 1, few: bool = False) -> dict[str, table.Row]:
    """One case for each combination."""
    events = held.few if few else held.events
    return timed(
        {
            " + ".join(name): lambda engine=engine: engine.match(events, threads)
            for name, engine in held.engines.items()
        },
        len(events),
    )


def building(held: Held) -> dict[str, table.Row]:
    """Pre-processing: structure, lists and clusters of all subscriptions; ns for all of them."""

    def build(phase1: str) -> Callable[[], object]:
        return lambda: engine_of(phase1, "clustering").add(held.filters)

    return timed({phase1: build(phase1) for phase1 in PHASE1}, 1)


Account = SimpleNamespace
"""What ``TwoPhase.details`` tells, as attributes."""


def formula(found: Account) -> float:
    """NPsat * S_avg + N, the paper's matching time in steps (section IV C), S_avg by predicate."""
    return float(found.satisfied / found.events * found.entries / found.predicates + found.filters)


def accounts(held: Held) -> dict[tuple[str, str], Account]:
    """Counts of one pass over the events."""
    found = {}
    for name in held.engines:
        engine = engine_of(*name)
        engine.add(held.filters)
        engine.match(held.events)
        found[name] = Account(**engine.details())
    return found


def figures(quick: bool = False) -> Report:
    """All figures of the paper's section V."""
    sizes = SIZES[:2] if quick else SIZES
    report = Report("matching_two_phase")
    held = {size: held_of(size) for size in sizes}
    one = {size: matching(held[size]) for size in sizes}
    two = {size: matching(held[size], 2) for size in sizes}
    lines(report, "Figure 6: matching, tables, one thread", sizes, one, [f"table + {two}" for two in PHASE2])
    clustered = [f"{phase1} + clustering" for phase1 in PHASE1]
    lines(report, "Figure 7: ME-IP, two threads, wall clock", sizes, two, clustered, wall=True)
    built = {size: building(held[size]) for size in sizes}
    lines(report, "Figure 8: pre-processing", sizes, built, PHASE1, unit="ms", scale=1e6)
    counted = {size: accounts(held[size]) for size in sizes}
    storage(report, sizes, counted)
    largest = held[sizes[-1]]
    threads(report, sizes[-1], {1: one[sizes[-1]], **{n: matching(largest, n) for n in THREADS[1:]}})
    costs(report, sizes, counted)
    orderings(report, sizes[-1], one, two, built, counted, matching(largest, few=True))
    return report


def lines(
    report: Report,
    title: str,
    sizes: tuple[int, ...],
    rows: Mapping[int, Mapping[str, table.Row]],
    names: list[str] | tuple[str, ...],
    *,
    wall: bool = False,
    unit: str = "µs an event",
    scale: float = 1e3,
) -> None:
    """One figure over the number of subscriptions."""
    values = {
        name: [(rows[size][name].wall if wall else rows[size][name].cpu) / scale for size in sizes]
        for name in names
    }
    report.panel(Panel(title, "subscriptions", [float(size) for size in sizes], values, unit, logx=True))


def storage(
    report: Report, sizes: tuple[int, ...], counted: Mapping[int, Mapping[tuple[str, str], Account]]
) -> None:
    """Figure 9, and what the structures are made of."""
    values = {
        phase1: [counted[size][phase1, "clustering"].phase1_bytes / 1024 for size in sizes]
        for phase1 in PHASE1
    }
    report.panel(
        Panel(
            "Figure 9: space of phase one",
            "subscriptions",
            [float(s) for s in sizes],
            values,
            "KiB",
            logx=True,
        )
    )
    rows: list[list[Cell]] = []
    for size in sizes:
        tables, trie, tree = (counted[size][phase1, "clustering"] for phase1 in PHASE1)
        rows.append(
            [
                f"{size:,}", float(tree.predicates), float(tree.attributes), float(tables.tables),
                float(tables.cells), float(trie.characters), float(trie.nodes), float(tree.nodes),
            ]
        )  # fmt: skip
    columns = ["P", "A", "tables", "cells", "W, characters", "nodes of the trie", "nodes of the tree"]
    report.table("Space, counted: O(A) tables, O(W) trie, O(P) tree", ["subscriptions", *columns], rows, "")


def threads(report: Report, size: int, rows: Mapping[int, Mapping[str, table.Row]]) -> None:
    """Figures 10 and 11, of the largest workload."""
    names = [f"trie + {two}" for two in PHASE2]
    count = [float(n) for n in rows]
    time = {name: [row[name].wall / 1e3 for row in rows.values()] for name in names}
    pace = {name: [1e9 / row[name].wall for row in rows.values()] for name in names}
    where = f"{size:,} subscriptions, wall clock"
    report.panel(Panel(f"Figure 10: matching, {where}", "threads", count, time))
    report.panel(Panel(f"Figure 11: throughput, {where}", "threads", count, pace, "events/s"))


def costs(
    report: Report, sizes: tuple[int, ...], counted: Mapping[int, Mapping[tuple[str, str], Account]]
) -> None:
    """The formula of section IV C beside what was counted."""
    rows: list[list[Cell]] = []
    for size in sizes:
        found = counted[size]["trie", "clustering"]
        rows.append(
            [
                f"{size:,}", found.satisfied / found.events, found.entries / found.predicates, formula(found),
                found.incremented / found.events, found.scanned / found.events,
                (found.incremented + found.scanned) / found.events,
            ]
        )  # fmt: skip
    columns = ["NPsat", "Savg", "NPsat * Savg + N", "increments", "counters compared", "both, counted"]
    report.table("Matching, in steps an event", ["subscriptions", *columns], rows, "")


def less(rows: Mapping[str, table.Row], a: str, b: str) -> str:
    """How much less CPU one takes than the other, or how much more."""
    share = 100 * (rows[a].cpu / rows[b].cpu - 1)
    return f"{abs(share):.0f} % {'more' if share > 0 else 'less'}"


def ranked(values: Mapping[str, float]) -> str:
    """The names from the least to the greatest, each with its ratio to the least."""
    least = min(values.values())
    return " < ".join(
        f"{name} {value / least:.2f}" for name, value in sorted(values.items(), key=lambda v: v[1])
    )


def clustered_cpu(rows: Mapping[str, table.Row]) -> dict[str, float]:
    """What each structure costs with clustering."""
    return {phase1: rows[f"{phase1} + clustering"].cpu for phase1 in PHASE1}


def orderings(
    report: Report,
    size: int,
    one: Mapping[int, Mapping[str, table.Row]],
    two: Mapping[int, Mapping[str, table.Row]],
    built: Mapping[int, Mapping[str, table.Row]],
    counted: Mapping[int, Mapping[tuple[str, str], Account]],
    few: Mapping[str, table.Row],
) -> None:
    """What the paper says of each figure, and what is found here."""

    def faster(name: str) -> str:
        before, after = one[size][name], two[size][name]
        return f"{before.wall / after.wall:.2f} x on the wall, {after.cpu / before.cpu:.2f} x the CPU"

    small, tables = min(one), ("table + clustering", "table + counting")
    more = two[size]["trie + counting"].wall / two[size]["trie + clustering"].wall - 1
    space = {p: float(counted[size][p, "clustering"].phase1_bytes) for p in PHASE1}
    rows: list[list[Cell]] = [
        [f"6: clustering against counting, {size:,}", "65 % less", less(one[size], *tables)],
        [f"6: the same, events of 4 attributes, {size:,}", "", less(few, *tables)],
        [f"7: matching, {small:,}", "trie < tree, table", ranked(clustered_cpu(one[small]))],
        [f"7: matching, {size:,}", "trie < tree, table", ranked(clustered_cpu(one[size]))],
        [
            f"8: pre-processing, {size:,}",
            "trie < table, tree",
            ranked({p: built[size][p].cpu for p in PHASE1}),
        ],
        [f"9: space, {size:,}", "table < tree < trie", ranked(space)],
        ["10: two threads against one, counting", "up to the cores", faster("trie + counting")],
        ["10: two threads against one, clustering", "up to the cores", faster("trie + clustering")],
        ["11: throughput, clustering against counting", "82 % more", f"{100 * more:.0f} % more"],
    ]
    report.table("The paper's orderings", ["figure", "paper", "here"], rows)


def run(quick: bool) -> Report:
    """As ``benchmarks/matching.py`` calls it."""
    return figures(quick)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    arguments.add_argument("--quick", action="store_true", help="2,000 and 10,000 subscriptions")
    figures(arguments.parse_args().quick).save()


if __name__ == "__main__":
    main()
