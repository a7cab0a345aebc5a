"""Runs the demo and tells what came out, as tables or as one JSON object."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import click

import evflow as ev
from evflow.demo.flights import Flight, columns, data_file, read
from evflow.demo.graph import End, build
from evflow.demo.nodes import Parts, parts
from evflow.demo.progress import Progress, progress_bar
from evflow.demo.publish import publish
from evflow.demo.result import Result, dead_of, fastest, result_of
from evflow.draw import draw
from evflow.report import stats_table, table

__all__ = ["Ran", "Result", "run", "run_on", "show"]

_BATCH = 8192


@dataclass(frozen=True)
class Ran:
    """A run of the demo.

    Attributes:
        graph: the graph that ran.
        stats: what ``Flow.stats`` gives, of the stones of all nodes.
        result: what they counted.
        dead: the events that were given up, one text each.
    """

    graph: ev.Graph
    stats: dict[str, dict[str, float]]
    result: Result
    dead: list[str]


def run(flights: ev.EventBatch, progress: Progress = lambda count: None) -> tuple[ev.Flow, Result]:
    """Sends the flights through the graph, in this process.

    Args:
        flights: a batch of ``Flight``, ordered by scheduled departure.
        progress: called with the number of flights of each batch that was submitted.

    Returns:
        The flow, closed, and what its stones counted.
    """
    averages: list[ev.EventBatch] = []
    with build(averages.append).run() as flow:
        seconds = _feed(flow, flights, progress, flow.drain)
    return flow, result_of(flow.stats(), fastest(averages), seconds)


def run_on(others: Parts, flights: ev.EventBatch, progress: Progress = lambda count: None) -> Ran:
    """Sends the flights through the graph, with its stones on several nodes.

    Args:
        others: the processes of the other nodes; they have been started.
        flights: see ``run``.
        progress: see ``run``.

    Raises:
        EvflowError: one of the processes has ended, or there is none.
    """
    with others.connect() as flow:
        seconds = _feed(flow, flights, progress, lambda: others.drain(flow))
        reports = others.reports()
    stats = flow.stats()
    dead = dead_of(flow)
    for report in reports.values():
        stats |= report["stats"]
        dead += report["dead"]
    # In the order of the graph, whatever the node.
    stats = {name: stats[name] for name in flow.graph.stones}
    hours = next(report["fastest"] for report in reports.values() if report["fastest"])
    return Ran(flow.graph, stats, result_of(stats, hours, seconds), dead)


def _feed(flow: ev.Flow, flights: ev.EventBatch, progress: Progress, drain: Callable[[], object]) -> float:
    """Submits everything and returns the seconds until all was handled."""
    # Whoever waits for the first result waits for the compiler too, so it counts.
    start = time.perf_counter()
    for first in range(0, len(flights), _BATCH):
        batch = flights[first : first + _BATCH]
        flow["flights"].submit_batch(batch)
        progress(len(batch))
    # What two sources submit has no order, so the end waits until the flights are through.
    drain()
    flow["end"].submit(End(0))
    drain()
    return time.perf_counter() - start


def show(*, as_json: bool, picture: Path | None, quiet: bool, processes: int = 1) -> None:
    """Runs the demo and prints what came out.

    Args:
        as_json: print one JSON object and nothing else.
        picture: where to draw the graph to; without, ``evflow-demo.svg`` here, or nowhere with ``as_json``.
        quiet: show no progress.
        processes: the number of nodes, each in a process of its own.

    Raises:
        EvflowError: a package of the ``demo`` extra is not installed; says how to get it. Or one of the
            processes has ended.
    """
    ran = _ran(processes, quiet)
    publish(
        ran.result,
        lambda: _print(ran, processes),
        lambda file: draw(ran.graph, file, ran.stats),
        as_json=as_json,
        picture=picture,
        default="evflow-demo.svg",
        caption="The graph with its counts",
    )


def _ran(processes: int, quiet: bool) -> Ran:
    data_file()
    # The other processes begin while this one reads the data.
    with parts(processes) as others:
        flights = ev.EventBatch.from_table(Flight.schema, columns(read()))
        with progress_bar(len(flights), quiet) as progress:
            if processes > 1:
                return run_on(others, flights, progress)
            flow, result = run(flights, progress)
            return Ran(flow.graph, flow.stats(), result, dead_of(flow))


def _print(ran: Ran, processes: int) -> None:
    stones, result = ran.graph.stones, ran.result
    kinds = {name: stone.kind for name, stone in stones.items()}
    nodes = {name: str(stone.on) for name, stone in stones.items()} if processes > 1 else None
    click.echo(stats_table(ran.stats, kinds, result.seconds, nodes))
    click.echo()
    header = ["airport", "over an hour late", "fastest hour (UTC)", "mph", "flights"]
    rows = []
    for airport, late in result.late_by_origin.items():
        best = result.fastest_hours[airport]
        rows.append([airport, late, best["hour"].replace("T", " ").rstrip("Z"), best["mph"], best["flights"]])
    click.echo(table(header, rows))
    rate = result.flights / result.seconds
    click.echo(
        f"\n{result.flights:,} flights in {result.seconds:.2f} s, compiling included: {rate:,.0f} a second. "
        f"{result.cancelled:,} were cancelled, {result.diverted:,} did not arrive as planned."
    )
    if processes > 1:
        crossed = sum(int(ran.stats[name]["out"]) for name, kind in kinds.items() if kind == "bridge")
        click.echo(f"{processes} processes; {crossed:,} events crossed from one to another over ZeroMQ.")
    for text in ran.dead[:10]:
        click.echo(f"dead letter: {text}", err=True)
