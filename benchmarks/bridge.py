"""Events between two processes over loopback: evflow, pyzmq, eclipse-zenoh and raw TCP, by the same rounds.

A case is a sender in this process and a receiver in another (``bridge_pair.py``). The cases of a table take
turns; each keeps its best round and the median of its rounds. Last come the filter at the source
(``bridge_filter.py``) and what was to be reached.

    python benchmarks/bridge.py [--quick] [--only NAME]
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import Any

import bridge_evflow
import bridge_filter
import bridge_peers
import bridge_targets
import numpy as np
import table
from bridge_pair import Arrays, Batches, Events, Pair, Round, Way, Work

MODULES = [bridge_evflow, bridge_peers]
"""Each has ``WAYS``: ways to carry messages, by the kind of table."""
TRIPS = "ping-pong"


@dataclass(frozen=True)
class Table:
    """What is sent, and how many messages of it in a round.

    Attributes:
        base: ratios are to the best case whose name begins so.
        rounds: of each case; more where they differ more.
    """

    title: str
    kind: str
    work: Work
    messages: int
    base: str = "pyzmq"
    rounds: int = 5

    @property
    def unit(self) -> str:
        """Of the best and the median of its rows."""
        return {"arrays": "MB/s", TRIPS: "µs"}.get(self.kind, "events/s")

    def ways(self, only: str) -> list[Way]:
        """The ways of this kind whose name, or the table's title, holds ``only``."""
        ways = [way for module in MODULES for way in module.WAYS.get(self.kind, ())]
        return [way for way in ways if only in self.title or only in way.name]


TABLES = [
    Table("100 B events, one by one", "one by one", Events(100), 300_000),
    Table("1 KB events, one by one", "one by one", Events(1_000), 200_000),
    Table("100 B events, batches of 1,000", "batches", Batches(100), 20_000),
    Table("1 KB events, batches of 1,000", "batches", Batches(1_000), 2_000),
    Table("64 KiB arrays", "arrays", Arrays(1 << 16), 16_000),
    Table("1 MiB arrays", "arrays", Arrays(1 << 20), 4_000, rounds=9),
    Table("8 MiB arrays", "arrays", Arrays(8 << 20), 400, rounds=9),
    Table("100 B there and back", TRIPS, Events(100), 5_000),
    Table(
        "evflow: a receiver with another schema, batches of 1,000 of 100 B",
        "schemas",
        Batches(100),
        5_000,
        bridge_evflow.SAME,
    ),
]


def measure(of: Table, ways: Sequence[Way], rounds: int, messages: int) -> dict[str, list[Round]]:
    """The rounds of each way, in turn, after a short one to warm up."""
    with ExitStack() as stack:
        pairs = [stack.enter_context(closing(Pair(way, of.work))) for way in ways]
        for pair in pairs:
            pair.round(max(1, messages // 5))
        measured: dict[str, list[Round]] = {way.name: [] for way in ways}
        for _ in range(rounds):
            for pair in pairs:
                measured[pair.way.name].append(pair.round(messages))
    return measured


@dataclass(frozen=True)
class Row:
    """What a way reaches.

    Attributes:
        best, median: of the rounds: events/s, MB/s (10^6 bytes), or µs of half the round trips (p50).
        p99_best, p99_median: for round trips, µs of 99 % of them.
        cpu: ns of CPU of the sending process an event, in the round with the least.
        ratio: to the best of the table's ``base``, where that was measured.
    """

    name: str
    best: float
    median: float
    cpu: float
    p99_best: float | None = None
    p99_median: float | None = None
    ratio: float | None = None


def summed_up(of: Table, measured: dict[str, list[Round]]) -> list[Row]:
    row = trips_of if of.kind == TRIPS else rate_of
    rows = [row(of, name, rounds) for name, rounds in measured.items()]
    best: Callable[..., float] = min if of.kind == TRIPS else max
    base = best((row.best for row in rows if row.name.startswith(of.base)), default=0)
    return [Row(**vars(row) | {"ratio": row.best / base if base else None}) for row in rows]


def rate_of(of: Table, name: str, rounds: Sequence[Round]) -> Row:
    unit = of.work.bytes / 1e6 if of.kind == "arrays" else of.work.events
    rates = [r.messages * unit / r.seconds for r in rounds]
    cpu = min(r.cpu / r.messages / of.work.events for r in rounds)
    return Row(name, max(rates), statistics.median(rates), cpu * 1e9)


def trips_of(of: Table, name: str, rounds: Sequence[Round]) -> Row:
    p50, p99 = np.percentile([r.trips for r in rounds], [50, 99], axis=1) / 1e3
    cpu = min(r.cpu / r.messages for r in rounds)
    return Row(
        name,
        p50.min(),
        float(np.median(p50)),
        cpu * 1e9,
        p99_best=p99.min(),
        p99_median=float(np.median(p99)),
    )


def show(of: Table, rows: Sequence[Row]) -> None:
    """Prints a table in Markdown."""
    if of.kind == TRIPS:
        head = ["", "p50", "median p50", "p99", "median p99", f"times {of.base}'s p50"]
        numbers = [(r.best, r.median, r.p99_best, r.p99_median) for r in rows]
        cells = [[f"{number:.0f} µs" for number in line] for line in numbers]
    else:
        head = ["", f"best {of.unit}", "median", "sender's CPU", f"against {of.base}"]
        cells = [[f"{r.best:,.0f}", f"{r.median:,.0f}", table.duration(r.cpu)] for r in rows]
    body = [
        [r.name, *line, f"{r.ratio:.2f} x" if r.ratio else ""] for r, line in zip(rows, cells, strict=True)
    ]
    table.markdown(of.title, [head, *body])


def save(results: dict[Table, list[Row]]) -> None:
    """Writes ``results/bridge.json`` and a panel of bars for each table, ``results/bridge.svg``."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 2 * len(results)), layout="constrained")
    panels: Any = figure.subplots(len(results), squeeze=False)
    for axes, (of, rows) in zip(panels[:, 0], results.items(), strict=True):
        ours = [f"{of.title} {row.name}".count("evflow") for row in rows]
        colours = ["#c25b12" if our else "#8a99a8" for our in ours]
        bars = axes.barh([row.name for row in rows], [row.best for row in rows], color=colours)
        axes.bar_label(bars, [f"{row.best:,.0f}" for row in rows], padding=3, fontsize=8)
        axes.set_title(f"{of.title}, {of.unit}", fontsize=9, loc="left")
        axes.spines[["top", "right", "bottom"]].set_visible(False)
        axes.set_xticks([])
        axes.margins(x=0.15)
        axes.invert_yaxis()
    tables = [
        {"title": of.title, "unit": of.unit, "rows": [vars(row) for row in rows]}
        for of, rows in results.items()
    ]
    table.write("bridge", figure, title="Events between two processes", tables=tables)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    arguments.add_argument("--quick", action="store_true", help="a tenth of the messages, two rounds")
    arguments.add_argument("--only", default="", metavar="NAME", help="tables or cases named like this")
    chosen = arguments.parse_args()
    results: dict[Table, list[Row]] = {}
    for of in TABLES:
        if ways := of.ways(chosen.only):
            messages = of.messages // 10 if chosen.quick else of.messages
            measured = measure(of, ways, 2 if chosen.quick else of.rounds, messages)
            results[of] = summed_up(of, measured)
            show(of, results[of])
    filtered = None
    if chosen.only in bridge_filter.TITLE:
        filtered = bridge_filter.measure(chosen.quick)
        bridge_filter.show(filtered)
        bridge_filter.save(filtered)
    if not results and filtered is None:
        raise SystemExit(f"no table and no case has {chosen.only!r} in its name")
    bridge_targets.show({of.title: rows for of, rows in results.items()}, filtered)
    if not chosen.only:
        save(results)


if __name__ == "__main__":
    main()
