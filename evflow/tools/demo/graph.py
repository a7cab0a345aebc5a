"""The demo's graph: late departures by airport, and the ground speed of those that flew, by the hour."""

from __future__ import annotations

from collections.abc import Callable

import evflow as ev
from evflow.tools.demo.flights import Flight

AIRPORTS = ("EWR", "JFK", "LGA")
"""The airports of New York, in the order of the router's ports."""

NODES = ("departures", "routing", "results")
"""The nodes of the demo, in the order in which they are used."""

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


def build(averages: Handler, processes: int = 1) -> ev.Graph:
    """The graph.

    Args:
        averages: gets the hourly averages, in batches of ``Hourly``.
        processes: the number of nodes to place the stones on, 1 to 3. The late filter is where the flights
            are, so only late ones cross to the router; the terminals are on the last.
    """
    first, routing, last = (placed(number, processes) for number in range(3))
    g = ev.Graph("flights")
    flights = g.source("flights", Flight, on=first)

    late = flights >> ev.Filter(LATE, name="late", on=first)
    airport = late >> ev.Router(AIRPORT, name="airport", on=routing)
    for port, name in enumerate(AIRPORTS):
        airport[port] >> ev.Terminal(ignore, batch=True, name=name, on=last)

    status = flights >> ev.Router(STATUS, name="status", on=first)
    status[1] >> ev.Terminal(ignore, batch=True, name="cancelled", on=last)
    status[2] >> ev.Terminal(ignore, batch=True, name="diverted", on=last)
    speed = status[0] >> ev.Transform(GROUND_SPEED, output=Speed, name="ground speed", on=first)
    # On the node of its sources: what waits in its memory would not be safe for another node.
    hourly = speed >> ev.Queue(
        HOURLY, inputs={"speed": Speed, "end": End}, outputs={"hourly": Hourly}, name="hourly", on=first
    )
    g.source("end", End, on=first) >> hourly["end"]
    hourly >> ev.Terminal(averages, batch=True, name="averages", on=last)
    return g


def placed(number: int, processes: int) -> str | None:
    """The node of a stone that would be on node ``number`` if there were three; None in a single process."""
    return None if processes == 1 else NODES[min(number, processes - 1)]


def ignore(batch: ev.EventBatch) -> None:
    """Takes events that only need to be counted."""
