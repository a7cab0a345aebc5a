"""What the demo finds out, from the counts of its stones and its hourly averages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import evflow as ev
from evflow.demo.graph import AIRPORTS

__all__ = ["Result", "dead_of", "fastest", "result_of"]

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


def result_of(
    stats: Mapping[str, Mapping[str, float]], fastest_hours: dict[str, dict[str, Any]], seconds: float
) -> Result:
    """What all stones counted together.

    Args:
        stats: as ``Flow.stats`` gives them, of all stones.
        fastest_hours: see ``fastest``.
        seconds: how long it took.
    """

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
        fastest_hours=fastest_hours,
        seconds=round(seconds, 4),
    )


def fastest(averages: Sequence[ev.EventBatch]) -> dict[str, dict[str, Any]]:
    """Of each airport the fastest hour with ten flights or more; see ``Result``. Empty without averages."""
    if not averages:
        return {}
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


def dead_of(flow: ev.Flow) -> list[str]:
    """The events that a flow has given up, one text each."""
    return [f"{letter.stone}: {letter.reason}" for letter in flow.dead_letters()]
