"""Matches a year of real flights against a hundred thousand subscriptions, and tells what fell where.

A flight is where it is bound for. A subscription such as ``dep_delay > 45 and within(40.64, -73.78, 50 km)``
asks for flights to within 50 km of a place that left New York more than 45 minutes late.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from evflow.matching import Matcher
from evflow.tools.demo.flights import Airports, airports, read
from evflow.tools.demo.map import Spot, draw_map
from evflow.tools.demo.output import Outcome, Progress, progress_bar
from evflow.tools.demo.subscribers import Subscribers, subscribers
from evflow.tools.report import table

if TYPE_CHECKING:
    from pandas import DataFrame

Array = NDArray[Any]

_BATCH = 16_384
_BUSIEST = 10


@dataclass(frozen=True)
class Found:
    """What the matcher found.

    Attributes:
        result: for JSON:
            flights: flights matched.
            nowhere: those of them whose airport has no known place, so that they are in no area.
            subscriptions: subscriptions there were.
            notifications: pairs of a flight and a subscription that it satisfies.
            heard: flights that at least one subscription asked for.
            reached: subscriptions that got a flight.
            busiest: the airports with most notifications: code, name, flights, notifications, and the
                subscriptions that got any from there.
            compiling: seconds to load the matcher's code, the first time to compile it.
            subscribing, preparing, matching: seconds to take the subscriptions in, to turn columns into
                events, and to match them, on one core.
        spots: airports with their notifications.
        got: the notifications of each subscription.
    """

    result: dict[str, Any]
    spots: list[Spot]
    got: Array


def events(flights: DataFrame, known: Airports) -> dict[str, Array]:
    """The columns of the flights that subscriptions may ask for, with the place of the destination."""
    texts = {
        name: flights[name].cat.categories.to_numpy("U3")[flights[name].cat.codes]
        for name in ("carrier", "origin", "dest")
    }
    latitude, longitude = known.places(texts["dest"])
    delays = {name: flights[name].to_numpy(np.float64) for name in ("dep_delay", "arr_delay")}
    return {**texts, **delays, "latitude": latitude, "longitude": longitude}


def match(
    people: Subscribers, flights: dict[str, Array], known: Airports, progress: Progress = lambda count: None
) -> Found:
    """Matches flights, as ``events`` gives them, with what people subscribe to.

    Args:
        progress: called with the number of flights of each batch that was matched.
    """
    start = time.perf_counter()
    small = Matcher(space="globe")
    small.subscribe_many(people.filters(10))
    small.match_batch({name: column[:10] for name, column in flights.items()})
    compiled = time.perf_counter()
    matcher = Matcher(space="globe")
    matcher.subscribe_many(people.filters())
    seconds = {"compiling": compiled - start, "subscribing": time.perf_counter() - compiled}
    seconds |= {"preparing": 0.0, "matching": 0.0}
    counts, ids = [], []
    for first in range(0, len(flights["dest"]), _BATCH):
        start = time.perf_counter()
        rows = matcher.prepare({name: column[first : first + _BATCH] for name, column in flights.items()})
        between = time.perf_counter()
        found = matcher.match_batch(rows)
        seconds["preparing"] += between - start
        seconds["matching"] += time.perf_counter() - between
        counts.append(np.diff(found.offsets))
        ids.append(found.ids)
        progress(len(rows))
    return _found(people, flights, known, np.concatenate(counts), np.concatenate(ids), seconds)


def _found(
    people: Subscribers,
    flights: dict[str, Array],
    known: Airports,
    per_flight: Array,
    ids: Array,
    seconds: dict[str, float],
) -> Found:
    got = np.bincount(ids, minlength=len(people))
    codes, airport, bound = np.unique(flights["dest"], return_inverse=True, return_counts=True)
    matches = np.bincount(airport, per_flight).astype(int)
    latitude, longitude = known.places(codes)
    pairs = np.unique(np.repeat(airport, per_flight) * np.int64(len(people)) + ids)
    people_at = np.bincount(pairs // len(people), minlength=len(codes))
    names = dict(zip(known.codes, known.names, strict=True))
    busiest = [
        {
            "airport": str(codes[i]),
            "name": names.get(str(codes[i]), ""),
            "flights": int(bound[i]),
            "subscriptions": int(people_at[i]),
            "notifications": int(matches[i]),
        }
        for i in np.argsort(-matches, kind="stable")[:_BUSIEST]
    ]
    result = {
        "flights": len(airport),
        "nowhere": int(np.isnan(flights["latitude"]).sum()),
        "subscriptions": len(people),
        "notifications": len(ids),
        "heard": int(np.count_nonzero(per_flight)),
        "reached": int(np.count_nonzero(got)),
        "busiest": busiest,
        **{name: round(took, 4) for name, took in seconds.items()},
    }
    places = zip(codes.tolist(), latitude.tolist(), longitude.tolist(), matches.tolist(), strict=True)
    return Found(result, [Spot(*place) for place in places], got)


def play(quiet: bool = False) -> Outcome:
    """Runs the demo.

    Args:
        quiet: show no progress.

    Raises:
        EvflowError: a package that the demo or the matcher needs is not installed; says how to get it.
    """
    known = airports()
    flights, people = events(read(), known), subscribers(known)
    with progress_bar(len(flights["dest"]), quiet) as progress:
        found = match(people, flights, known, progress)
    title = "{notifications:,} notifications of {flights:,} flights from New York, 2013".format(
        **found.result
    )
    return Outcome(
        found.result,
        _text(found.result, people),
        lambda file: draw_map(file, title, found.spots, people.latitude, people.longitude, found.got > 0),
        "The map of where matches fell",
    )


def _text(result: dict[str, Any], people: Subscribers) -> str:
    header = ["airport", "", "flights", "subscribers reached", "notifications"]
    rate = result["flights"] / result["matching"]
    return (
        f"{result['subscriptions']:,} subscriptions, such as\n\n{people.examples()}\n\n"
        "A flight from New York is where it is bound for. Most notifications fell at\n\n"
        f"{table(header, [list(place.values()) for place in result['busiest']])}\n\n"
        f"{result['flights']:,} flights matched in {result['matching']:.2f} s on one core, {rate:,.0f} a "
        f"second ({1e6 / rate:.1f} µs a flight): {result['notifications']:,} notifications.\n"
        f"{result['heard']:,} flights were asked for by someone, {result['reached']:,} subscribers got one; "
        f"{result['nowhere']:,} flights went where no place is known.\n"
        f"Besides: {result['subscribing']:.2f} s to take the subscriptions in, {result['preparing']:.2f} s "
        f"to turn columns into events, {result['compiling']:.2f} s to load the matcher (the first time it is "
        "compiled)."
    )
