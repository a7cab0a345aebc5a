"""A Spark job cleans real flights, joins where they go, and streams them to subscribers.

Needs ``pip install 'evflow[demo,spark]'`` and Java. Spark's tasks send to the stone "departures" directly;
the rows flow on, each once, when the job is committed.
"""

from __future__ import annotations

import tempfile
import zipfile
from collections import Counter

import pandas
from pyspark.sql import SparkSession

import evflow as ev
from evflow.spark import configure_spark_with_evflow
from evflow.tools.demo.flights import data_file


class Departure(ev.Event):
    carrier: ev.Str[2]
    origin: ev.Str[3]
    dest: ev.Str[3]
    dep_delay: float
    latitude: float
    longitude: float


WISHES = [
    "dest == 'ORD' and dep_delay > 120",
    "origin == 'JFK' and carrier == 'B6' and dep_delay > 300",
    "dep_delay > 180 and within(38.85, -77.04, 100 km)",
]

builder = SparkSession.builder.master("local[*]").config("spark.ui.showConsoleProgress", "false")
spark = configure_spark_with_evflow(builder).getOrCreate()

with tempfile.TemporaryDirectory() as folder:
    with zipfile.ZipFile(data_file()) as packed:
        packed.extract("flights.csv", folder)
    read = spark.read.options(header=True, inferSchema=True, nullValue="NA")
    departures = spark.sql(
        """SELECT carrier, origin, dest, dep_delay, lat AS latitude, lon AS longitude
           FROM {flights} JOIN {airports} ON dest = faa WHERE dep_delay IS NOT NULL""",
        flights=read.csv(f"{folder}/flights.csv"),
        airports=read.csv(str(data_file().with_name("airports.csv"))),
    )

    told: Counter[int] = Counter()

    def tell(flight: ev.View) -> None:
        told.update(flight.subscriptions.tolist())

    g = ev.Graph("flights")
    source = g.add(ev.SparkSource(departures, Departure, name="departures"))
    source >> ev.Match(WISHES, space="globe", name="wishes") >> ev.Terminal(tell)
    with g.run() as flow:
        flow.drain()
        print(f"Spark: {flow['departures'].progress()}")

flights = pandas.read_csv(data_file()).dropna(subset="dep_delay")
flights = flights.merge(
    pandas.read_csv(data_file().with_name("airports.csv")), left_on="dest", right_on="faa"
)
washington = flights.dest.isin(["BWI", "DCA", "IAD"])
expected = [
    ((flights.dest == "ORD") & (flights.dep_delay > 120)).sum(),
    ((flights.origin == "JFK") & (flights.carrier == "B6") & (flights.dep_delay > 300)).sum(),
    (washington & (flights.dep_delay > 180)).sum(),
]
for number, wish in enumerate(WISHES):
    print(f"{told[number]:5} flights, pandas finds {expected[number]:5}: {wish}")
    assert told[number] == expected[number]
