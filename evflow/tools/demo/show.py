"""Runs the demo and tells what came out, as tables or as one JSON object."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np

import evflow as ev
from evflow.graph.draw import draw
from evflow.tools.demo.flights import batch_of, data_file, read
from evflow.tools.demo.graph import AIRPORTS, End, Hourly
from evflow.tools.demo.nodes import Parts, parts
from evflow.tools.demo.output import Outcome, Progress, progress_bar
from evflow.tools.report import Cell, stats_table, table

_BATCH = 8192
_BUSY = 10


@dataclass(frozen=True)
class Ran:
    """A run of the demo.

    Attributes:
        graph: the graph that ran.
        stats: what ``Flow.stats`` gives, of the stones of all nodes.
        result: what they counted, for JSON:
            flights: flights submitted.
            late: departures more than 60 minutes late.
            late_by_origin: the same by airport.
            cancelled: flights that never left.
            flown: flights with a known time in the air.
            diverted: flights that left, but whose time in the air is not known.
            hourly_averages: averages published, one an hour and airport.
            fastest_hours: airport → the fastest of its hours with ten flights or more: its start (ISO 8601,
                UTC), the mean ground speed in miles an hour, and the flights.
            seconds: from the first event's submission to the last one's end.
        dead: the events that were given up, one text each.
    """

    graph: ev.Graph
    stats: dict[str, dict[str, float]]
    result: dict[str, Any]
    dead: list[str]


def run(nodes: Parts, flights: ev.EventBatch, progress: Progress = lambda count: None) -> Ran:
    """Sends the flights through the graph.

    Args:
        nodes: where its stones are.
        flights: a batch of ``Flight``, ordered by scheduled departure.
        progress: called with the number of flights of each batch that was submitted.

    Raises:
        EvflowError: a process of a node has ended.
    """
    with nodes.connect() as flow:
        # Whoever waits for the first result waits for the compiler too, so it counts.
        start = time.perf_counter()
        for first in range(0, len(flights), _BATCH):
            batch = flights[first : first + _BATCH]
            flow["flights"].submit_batch(batch)
            progress(len(batch))
        # What two sources submit has no order, so the end waits until the flights are through.
        nodes.drain(flow)
        flow["end"].submit(End(0))
        nodes.drain(flow)
        seconds = time.perf_counter() - start
        report = nodes.report(flow)
    count = {name: int(counts["in"]) for name, counts in report.stats.items()}
    averages = [ev.EventBatch.from_bytes(Hourly.schema, *part) for part in report.averages]
    result = {
        "flights": count["flights"],
        "late": int(report.stats["late"]["out"]),
        "late_by_origin": {airport: count[airport] for airport in AIRPORTS},
        "cancelled": count["cancelled"],
        "flown": int(report.stats["ground speed"]["out"]),
        "diverted": count["diverted"],
        "hourly_averages": count["averages"],
        "fastest_hours": _fastest(averages),
        "seconds": round(seconds, 4),
    }
    return Ran(flow.graph, report.stats, result, report.dead)


def _fastest(averages: list[ev.EventBatch]) -> dict[str, dict[str, Any]]:
    """Of each airport the fastest hour with ten flights or more."""
    found = {}
    all_hours = ev.EventBatch.concat(averages)
    origin, mph, flights, hour = (all_hours[name] for name in ("origin", "mph", "flights", "hour"))
    for airport in AIRPORTS:
        of_airport = np.flatnonzero((origin == airport.encode()) & (flights >= _BUSY))
        best = of_airport[np.argmax(mph[of_airport])]
        found[airport] = {
            "hour": str(np.datetime64(int(hour[best]), "h")) + ":00Z",
            "mph": round(float(mph[best]), 1),
            "flights": int(flights[best]),
        }
    return found


def play(quiet: bool = False, processes: int = 1) -> Outcome:
    """Runs the demo.

    Args:
        quiet: show no progress.
        processes: the number of nodes, each in a process of its own.

    Raises:
        EvflowError: a package of the ``demo`` extra is not installed; says how to get it. Or one of the
            processes has ended.
    """
    data_file()
    # The other processes begin while this one reads the data.
    with parts(processes) as nodes:
        flights = batch_of(read())
        with progress_bar(len(flights), quiet) as progress:
            ran = run(nodes, flights, progress)
    return Outcome(
        ran.result,
        _text(ran, processes),
        lambda file: draw(ran.graph, file, ran.stats),
        "The graph with its counts",
        [f"dead letter: {text}" for text in ran.dead[:10]],
    )


def _text(ran: Ran, processes: int) -> str:
    stones, result = ran.graph.stones, ran.result
    kinds = {name: stone.kind for name, stone in stones.items()}
    nodes = {name: str(stone.on) for name, stone in stones.items()} if processes > 1 else None
    header = ["airport", "over an hour late", "fastest hour (UTC)", "mph", "flights"]
    rows: list[list[Cell]] = []
    for airport, late in result["late_by_origin"].items():
        best = result["fastest_hours"][airport]
        rows.append([airport, late, best["hour"].replace("T", " ").rstrip("Z"), best["mph"], best["flights"]])
    rate = result["flights"] / result["seconds"]
    told = (
        f"{stats_table(ran.stats, kinds, result['seconds'], nodes)}\n\n{table(header, rows)}\n\n"
        f"{result['flights']:,} flights in {result['seconds']:.2f} s, compiling included: {rate:,.0f} a "
        f"second. {result['cancelled']:,} were cancelled, {result['diverted']:,} did not arrive as planned."
    )
    if processes == 1:
        return told
    crossed = sum(int(ran.stats[name]["out"]) for name, kind in kinds.items() if kind == "bridge")
    return f"{told}\n{processes} processes; {crossed:,} events crossed from one to another over ZeroMQ."
