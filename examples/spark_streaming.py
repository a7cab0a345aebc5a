"""Files of flights arrive one by one, and a query of Spark streams them to subscribers as they come.

Needs ``pip install 'evflow[demo,spark]'`` and Java. It is the job of ``spark_flights.py``, as a query that
does not end.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import pandas
from pyspark.sql import SparkSession

import evflow as ev
from evflow.spark import configure_spark_with_evflow
from evflow.tools.demo.flights import data_file
from evflow.tools.demo.spark import CLEANED, Departure

builder = SparkSession.builder.master("local[*]").config("spark.ui.showConsoleProgress", "false")
spark = configure_spark_with_evflow(builder).getOrCreate()

days = [day for _, day in pandas.read_csv(data_file(), nrows=3000).groupby("day")]
airports = data_file().with_name("airports.csv")
late: list[tuple[str, int]] = []

with tempfile.TemporaryDirectory() as temporary:
    inbox, outside = Path(temporary, "inbox"), Path(temporary, "outside.csv")
    inbox.mkdir()

    def arrive(number: int) -> None:
        """Moves a file in as a whole, as Spark wants it."""
        days[number].to_csv(outside, index=False)
        outside.rename(inbox / f"{number}.csv")

    arrive(0)
    read = spark.read.options(header=True, inferSchema=True)
    columns = read.csv(str(inbox)).schema
    departures = spark.sql(
        CLEANED,
        flights=spark.readStream.schema(columns).option("header", True).csv(str(inbox)),
        airports=read.csv(str(airports)),
    )

    g = ev.Graph("flights")
    source = g.add(ev.SparkSource(departures, Departure, name="departures"))
    alerts = source >> ev.Match(["dep_delay > 90"], name="late")
    alerts >> ev.Terminal(lambda flight: late.append((flight.dest, int(flight.dep_delay))))
    with g.run() as flow:
        for number in range(len(days)):
            if number:
                arrive(number)
            # What there is now has been handled when this returns.
            flow.drain()
            print(f"day {number + 1}: {len(late)} late flights; {flow['departures'].progress()}")

known = set(pandas.read_csv(airports).faa)
flights = pandas.concat(days)
flights = flights[flights.dest.isin(known) & (flights.dep_delay > 90)]
assert sorted(late) == sorted(zip(flights.dest, flights.dep_delay.astype(int), strict=True))
