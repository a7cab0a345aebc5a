"""A congestion handler decides what waits while a link is busy or down: here one mean for many readings."""

from __future__ import annotations

import evflow as ev


class Reading(ev.Event):
    count: int
    celsius: float


def merge(congestion: ev.Congestion) -> list[ev.EventBatch] | None:
    """One reading that stands for all that wait."""
    if congestion.queued_events < 2:
        return None
    readings = ev.EventBatch.concat(congestion.waiting)
    count, celsius = readings["count"], readings["celsius"]
    mean = {"count": [count.sum()], "celsius": [(count * celsius).sum() / count.sum()]}
    return [ev.EventBatch.from_table(Reading.schema, mean)]


def show(reading: Reading) -> None:
    print(f"{reading.count} readings, {reading.celsius:.2f} degrees on average")


g = ev.Graph("readings")
with g.on("sensor"):
    bridge = g.source("readings", Reading) >> ev.Bridge(name="radio", congestion=merge)
with g.on("office"):
    bridge >> ev.Terminal(show)

office = ev.Node("office", listen="tcp://127.0.0.1:0")
sensor = ev.Node("sensor", peers={"office": office.contact})
with g.run(node=sensor) as flow:
    # Nobody handles anything in the office yet: readings wait.
    for number in range(8):
        flow["readings"].submit(Reading(1, 20.0 + number))
    with g.run(node=office):
        flow.drain(timeout=10)
