"""CCM's evaluation (section 5): table 2 and figures 6 to 11, with evflow's engines in CCM's place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import matching_scenarios as scenarios
from matching_measure import Cost, Loaded, loaded
from matching_report import Cell, Panel, Report
from matching_workloads import Workload

ZIPF = 1.7
"""The exponent at which half of the constraints are on the commonest name, as in the paper."""
LAWS = {"uniform": 0.0, "Zipf": ZIPF}
Make = Callable[..., Workload]


@dataclass(frozen=True)
class Series:
    """A line of the figures: an engine, and what counts as a subscription."""

    name: str
    engine: str
    grouped: bool
    events: int


IDS = Series("evflow index, all filters", "index", False, 10_000)
INTERFACES = Series("evflow index, interfaces", "index", True, 10_000)
COUNTING = Series("evflow counting, interfaces", "counting", True, 1_000)
SERIES = (IDS, INTERFACES, COUNTING)


@dataclass(frozen=True)
class Figure:
    """What a figure of the paper varies, from least to most."""

    title: str
    xlabel: str
    points: Sequence[tuple[float, dict[str, Any]]]
    logx: bool = False


def around(average: int) -> tuple[int, int]:
    """Least and most with this average; 1 has no room below."""
    return (average, average) if average == 1 else (average - 1, average + 1)


SMALL = (1, 2, 3, 5, 7, 9)
FIGURES = {
    6: Figure(
        "attributes", "attributes of an event", [(n, {"attributes": around(n)}) for n in SMALL]
    ),
    7: Figure(
        "constraints", "constraints of a filter", [(n, {"constraints": around(n)}) for n in SMALL]
    ),
    8: Figure(
        "filters an interface", "filters an interface",
        [(n, {"each": n}) for n in (100, 1_000, 10_000, 25_000, 100_000, 250_000)], True,
    ),
    9: Figure("interfaces", "interfaces", [(n, {"interfaces": n}) for n in (10, 25, 50, 100)]),
    10: Figure("names", "names", [(n, {"names": n}) for n in (10, 20, 30, 50, 100, 300, 1_000)], True),
    11: Figure(
        "types", "% of numerical names", [(100 * n, {"numeric": n}) for n in (0.0, 0.25, 0.5, 0.75, 1.0)]
    ),
}  # fmt: skip


def cost_of(series: Series, quick: bool, **parameters: Any) -> tuple[Loaded, Cost]:
    """What an event costs with these parameters, and the matcher it was measured with."""
    events = series.events // 10 if quick else series.events
    workload = scenarios.ccm(grouped=series.grouped, events=events, **parameters)
    held = loaded(workload, series.engine, batch=events // 10, check=not quick)
    return held, held.cost(passes=3, limit=0.4)


def table_2(report: Report, quick: bool) -> None:
    """The paper's table 2, the paper's own figures beside."""
    size = {"each": 2_500} if quick else {}
    rows: list[list[Cell]] = []
    extra = Series("evflow two-phase, interfaces", "two-phase", True, 1_000)
    for series in (IDS, INTERFACES, COUNTING, extra):
        held, cost = cost_of(series, quick, **size)
        uneven = cost_of(series, quick, exponent=ZIPF, **size)[1]
        released = cost_of(series, quick, exponent=1.0, distinct_names=True, **size)[1]
        memory = sum(held.matcher.stats().memory.values()) / 1e6
        rows.append([series.name, cost.cpu, uneven.cpu, released.cpu, held.build * 1e9, f"{memory:.1f} MB"])
    rows.append(["paper: CCM, GTX 460, 2011", 144e3, 2_060e3, None, 527.5e6, "33.9 MB"])
    rows.append(["paper: SFF, Phenom II 2.8 GHz, 2011", 1_035e3, 14_680e3, None, 992.28e6, "42.4 MB"])
    head = [
        "CCM, table 2: time an event",
        "uniform names",
        "Zipf 1.7",
        "Zipf 1, distinct",
        "deployment",
        "memory",
    ]
    report.table("CCM, table 2", head, rows)


def figure(report: Report, number: int, quick: bool) -> None:
    """One of figures 6 to 11, with names drawn alike and after Zipf's law."""
    what = FIGURES[number]
    points = what.points[:3] if quick else what.points
    for law, exponent in LAWS.items():
        lines: dict[str, list[float | None]] = {series.name: [] for series in SERIES}
        for _, parameters in points:
            given = (
                {"each": 1_000, "exponent": exponent} | parameters
                if quick
                else {"exponent": exponent} | parameters
            )
            for series in SERIES:
                lines[series.name].append(cost_of(series, quick, **given)[1].cpu / 1e3)
        title = f"CCM, figure {number}: {what.title}, {law} names"
        report.panel(Panel(title, what.xlabel, [x for x, _ in points], lines, logx=what.logx))


def run(quick: bool) -> Report:
    """All of it."""
    report = Report("matching_ccm")
    table_2(report, quick)
    for number in FIGURES:
        figure(report, number, quick)
    return report
