"""The demo's graph: late departures by airport, and the ground speed of those that flew, by the hour."""

from __future__ import annotations

from collections.abc import Callable

import evflow as ev
from evflow.demo.flights import Flight

__all__ = ["AIRPORTS", "End", "Hourly", "Speed", "build"]

AIRPORTS = ("EWR", "JFK", "LGA")
"""The airports of New York, in the order of the router's ports."""

Handler = Callable[[ev.EventBatch], object]


class Speed(ev.Event):
    """The average ground speed of a flight, in miles an hour, and its scheduled hour since 1970 (UTC)."""

    hour: ev.i32
    origin: ev.Str[3]
    mph: float


class Hourly(ev.Event):
    """The mean ground speed, in miles an hour, of the flights that were to leave an airport in one hour."""

    hour: ev.i32
    origin: ev.Str[3]
    flights: ev.i32
    mph: float


class End(ev.Event):
    """No flight comes any more; the last hour can be published."""

    number: ev.i32


LATE = "input.dep_delay > 60"

AIRPORT = """
    if (input.origin == "EWR") return 0;
    if (input.origin == "JFK") return 1;
    return 2;
"""

STATUS = """
    if (isnan(input.dep_time)) return 1;     /* cancelled */
    return input.air_time > 0 ? 0 : 2;       /* flown, or diverted on the way */
"""

GROUND_SPEED = """
    output.hour = input.scheduled / 3600;
    output.origin = input.origin;
    output.mph = input.distance / (input.air_time / 60.0);
    return 1;
"""

HOURLY = """{
    int i, airport, flights;
    int n = count(speed);

    if (count(end)) {
        discard(end, 0);
    } else if (n > 1 && speed[n - 1].hour != speed[0].hour) {
        n = n - 1;                           /* the newest belongs to the next hour */
    } else {
        return 0;                            /* the hour goes on */
    }
    for (airport = 0; airport < 3; airport++) {
        string origin = airport == 0 ? "EWR" : airport == 1 ? "JFK" : "LGA";
        double sum = 0;
        flights = 0;
        for (i = 0; i < n; i++) {
            if (speed[i].origin == origin) {
                flights++;
                sum += speed[i].mph;
            }
        }
        if (flights) {
            hourly.hour = speed[0].hour;
            hourly.origin = origin;
            hourly.flights = flights;
            hourly.mph = sum / flights;
            submit(0, hourly);
        }
    }
    for (i = 0; i < n; i++) {
        discard(speed, 0);
    }
    return 1;
}"""


def build(averages: Handler) -> ev.Graph:
    """The graph.

    Args:
        averages: gets the hourly averages, in batches of ``Hourly``.
    """
    g = ev.Graph("flights")
    flights = g.source("flights", Flight)

    late = flights >> ev.Filter(LATE, name="late")
    airport = late >> ev.Router(AIRPORT, name="airport")
    for port, name in enumerate(AIRPORTS):
        airport[port] >> ev.Terminal(ignore, batch=True, name=name)

    status = flights >> ev.Router(STATUS, name="status")
    status[1] >> ev.Terminal(ignore, batch=True, name="cancelled")
    status[2] >> ev.Terminal(ignore, batch=True, name="diverted")
    speed = status[0] >> ev.Transform(GROUND_SPEED, output=Speed, name="ground speed")
    hourly = speed >> ev.Queue(
        HOURLY, inputs={"speed": Speed, "end": End}, outputs={"hourly": Hourly}, name="hourly"
    )
    g.source("end", End) >> hourly["end"]
    hourly >> ev.Terminal(averages, batch=True, name="averages")
    return g


def ignore(batch: ev.EventBatch) -> None:
    """Takes events that only need to be counted."""
