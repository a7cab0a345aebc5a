"""Your own CSV file through a graph of your own.

Put the name of your file in place of the one written here, its columns into the class, and your question into
the filter.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import pandas

import evflow as ev

FILE = Path(tempfile.mkdtemp(), "weather.csv")
FILE.write_text(
    """station,day,temperature,wind
Hamburg,2024-01-09,-3.5,4.1
Hamburg,2024-06-26,30.2,2.0
Jena,2024-01-09,-9.8,1.2
Jena,2024-06-26,31.9,
Kiel,2024-08-12,29.1,6.3
"""
)


class Weather(ev.Event):
    station: ev.Str[16]  # a text of at most 16 bytes; `str` takes any
    day: ev.Str[10]
    temperature: float
    wind: float  # a number that is missing in the file arrives as NaN


def hot(row: Weather) -> None:
    print(f"{row.station}, {row.day}: {row.temperature} °C")


def no_wind(row: Weather) -> None:
    print(f"{row.station}, {row.day}: no wind measured")


g = ev.Graph("weather")
rows = g.source("rows", Weather)
rows >> ev.Filter("input.temperature > 30", name="hot") >> ev.Terminal(hot, name="hot days")
rows >> ev.Filter("isnan(input.wind)", name="no wind") >> ev.Terminal(no_wind, name="calm days")

with g.run() as flow:
    for table in pandas.read_csv(FILE, chunksize=10_000):
        flow["rows"].submit_batch(table)
    flow.drain()
    for stone, counts in flow.stats().items():
        print(f"{stone:10} {counts['in']:3} in {counts['out']:3} out")
