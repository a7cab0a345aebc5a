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
    static double sum[3];
    static int flights[3];
    static int hour;
    int i;

    if (count(end) || (count(speed) && speed[0].hour != hour)) {
        for (i = 0; i < 3; i++) {
            if (flights[i]) {
                hourly.hour = hour;
                hourly.origin = i == 0 ? "EWR" : i == 1 ? "JFK" : "LGA";
                hourly.flights = flights[i];
                hourly.mph = sum[i] / flights[i];
                submit(0, hourly);
            }
            flights[i] = 0;
            sum[i] = 0;
        }
    }
    if (count(end)) {
        discard(end, 0);
    }
    if (count(speed)) {
        i = speed[0].origin == "EWR" ? 0 : speed[0].origin == "JFK" ? 1 : 2;
        hour = speed[0].hour;
        flights[i]++;
        sum[i] += speed[0].mph;
        discard(speed, 0);
    }
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
