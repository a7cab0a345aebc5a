"""A hundred thousand subscriptions with a place each, against the 336,776 flights that left New York in 2013.

A flight is where it is bound for, so a subscription hears of late flights to its neighbourhood.
"""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pandas

from evflow.matching import FilterColumns, Matcher
from evflow.tools.demo.flights import data_file

flights = pandas.read_csv(data_file(), usecols=["carrier", "origin", "dest", "dep_delay"])
airports = pandas.read_csv(Path(data_file()).with_name("airports.csv"))
places = airports.rename(columns={"faa": "dest", "lat": "latitude", "lon": "longitude"})
flights = flights.merge(places[["dest", "name", "latitude", "longitude"]], how="left", on="dest")

# One subscription as text, which gets the smallest free id, 0 …
matcher = Matcher(space="globe")
matcher.subscribe("dep_delay > 45 and carrier == 'UA' and within(41.98, -87.90, 50 km)")

# … and a hundred thousand as columns: "more than 15, 45 or 90 minutes late within 50 km of here".
random = np.random.default_rng(2013)
home = airports.iloc[random.integers(0, len(airports), 100_000)]
here = home[["lat", "lon"]].to_numpy() + random.normal(0, 0.3, (100_000, 2))
matcher.subscribe_many(
    FilterColumns.from_arrays(
        name="dep_delay",
        op=">",
        number=random.choice([15.0, 45.0, 90.0], 100_000),
        x=here[:, 0],
        y=(here[:, 1] + 180) % 360 - 180,
        radius=50_000,
        space="globe",
    )
)

events = matcher.prepare(flights[["carrier", "dep_delay", "latitude", "longitude"]])
start = time.perf_counter()
matches = matcher.match_batch(events)
seconds = time.perf_counter() - start

print(
    f"{len(matcher):,} subscriptions, {len(matches):,} flights, {len(matches.ids):,} matches: {seconds:.2f} s"
)
print(f"subscription 0 got {np.count_nonzero(matches.ids == 0)} flights")
flights["matches"] = np.diff(matches.offsets)
print(flights.groupby("name")["matches"].sum().nlargest(5).to_string())
