"""Runs the demo and tells what came out, as tables or as one JSON object."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np

import evflow as ev
from evflow.demo.flights import Flight, columns, read
from evflow.demo.graph import AIRPORTS, End, build
from evflow.report import stats_table, table

__all__ = ["Result", "run", "show"]

Progress = Callable[[int], object]

_BATCH = 8192
_BUSY = 10


@dataclass(frozen=True)
class Result:
    """What the stones counted.

    Attributes:
        flights: flights submitted.
        late: departures more than 60 minutes late.
        late_by_origin: the same by airport.
        cancelled: flights that never left.
        flown: flights with a known time in the air.
        diverted: flights that left, but whose time in the air is not known.
        hourly_averages: averages published, one an hour and airport.
        fastest_hours: airport → the fastest of its hours with ten flights or more: its start (ISO 8601, UTC),
            the mean ground speed in miles an hour, and the flights.
        seconds: from the first event's submission to the last one's end.
    """

    flights: int
    late: int
    late_by_origin: dict[str, int]
    cancelled: int
    flown: int
    diverted: int
    hourly_averages: int
    fastest_hours: dict[str, dict[str, Any]]
    seconds: float


def run(flights: ev.EventBatch, progress: Progress = lambda count: None) -> tuple[ev.Flow, Result]:
    """Sends the flights through the graph.

    Args:
        flights: a batch of ``Flight``, ordered by scheduled departure.
        progress: called with the number of flights of each batch that was submitted.

    Returns:
        The flow, closed, and what its stones counted.
    """
    averages: list[ev.EventBatch] = []
    with build(averages.append).run() as flow:
        # Whoever waits for the first result waits for the compiler too, so it counts.
        start = time.perf_counter()
        for first in range(0, len(flights), _BATCH):
            batch = flights[first : first + _BATCH]
            flow["flights"].submit_batch(batch)
            progress(len(batch))
        # What two sources submit has no order, so the end waits until the flights are through.
        flow.drain()
        flow["end"].submit(End(0))
        flow.drain()
        seconds = time.perf_counter() - start
    return flow, _result(flow.stats(), averages, seconds)


def _result(stats: dict[str, dict[str, float]], averages: list[ev.EventBatch], seconds: float) -> Result:
    def count(name: str, key: str = "in") -> int:
        return int(stats[name][key])

    return Result(
        flights=count("flights"),
        late=count("late", "out"),
        late_by_origin={airport: count(airport) for airport in AIRPORTS},
        cancelled=count("cancelled"),
        flown=count("ground speed", "out"),
        diverted=count("diverted"),
        hourly_averages=count("averages"),
        fastest_hours=_fastest(averages),
        seconds=round(seconds, 4),
    )


def _fastest(averages: list[ev.EventBatch]) -> dict[str, dict[str, Any]]:
    fastest = {}
    all_hours = ev.EventBatch.concat(averages)
    origin, mph, flights, hour = (all_hours[name] for name in ("origin", "mph", "flights", "hour"))
    for airport in AIRPORTS:
        of_airport = np.flatnonzero((origin == airport.encode()) & (flights >= _BUSY))
        best = of_airport[np.argmax(mph[of_airport])]
        fastest[airport] = {
            "hour": str(np.datetime64(int(hour[best]), "h")) + ":00Z",
            "mph": round(float(mph[best]), 1),
            "flights": int(flights[best]),
        }
    return fastest


def show(*, as_json: bool, picture: Path | None, quiet: bool) -> None:
    """Runs the demo and prints what came out.

    Args:
        as_json: print one JSON object and nothing else.
        picture: where to draw the graph to; without, ``evflow-demo.svg`` here, or nowhere with ``as_json``.
        quiet: show no progress.

    Raises:
        EvflowError: a package of the ``demo`` extra is not installed; says how to get it.
    """
    flights = ev.EventBatch.from_table(Flight.schema, columns(read()))
    with _progress_bar(len(flights), quiet) as progress:
        flow, result = run(flights, progress)
    if as_json:
        click.echo(json.dumps(asdict(result)))
    else:
        _print(flow, result)
    if picture is None and not as_json:
        picture = Path("evflow-demo.svg")
    if picture is not None:
        flow.draw(str(picture))
        if not as_json:
            click.echo(f"\nThe graph with its counts: {picture.resolve()}")


def _print(flow: ev.Flow, result: Result) -> None:
    kinds = {name: stone.kind for name, stone in flow.graph.stones.items()}
    click.echo(stats_table(flow.stats(), kinds, result.seconds))
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


@contextmanager
def _progress_bar(total: int, quiet: bool) -> Iterator[Progress]:
    if quiet:
        yield lambda count: None
        return
    try:
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as Bar
    except ImportError:
        raise ev.EvflowError(
            "the demo needs the package rich, which is not installed: pip install 'evflow[demo]'"
        ) from None
    with Bar(TextColumn("flights"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()) as bar:
        task = bar.add_task("flights", total=total)
        yield lambda count: bar.advance(task, count)
