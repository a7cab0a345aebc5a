"""Stone functions in Python: compiled from their source, as those in Cod are."""

from __future__ import annotations

from math import hypot, sqrt

import evflow as ev


class Position(ev.Event):
    plane: ev.Str[6]
    x: float
    y: float
    z: float


class Distance(ev.Event):
    plane: ev.Str[6]
    kilometres: float


CEILING = 10_000.0


def low(input):  # type: ignore[no-untyped-def]
    return input.z < CEILING


def from_tower(input, output):  # type: ignore[no-untyped-def]
    ground = hypot(input.x, input.y)
    output.plane = input.plane
    output.kilometres = sqrt(ground * ground + input.z * input.z) / 1000
    return output.kilometres < 50


g = ev.Graph("radar")
near = g.source("radar", Position) >> ev.Filter(low) >> ev.Transform(from_tower, output=Distance)
near >> ev.Filter(lambda input: not input.plane.startswith("N")) >> ev.Terminal(print)

with g.run() as flow:
    flow["radar"].submit(Position("D-ABYA", 3_000.0, 4_000.0, 12_000.0))
    flow["radar"].submit(Position("D-AIMA", 6_000.0, 8_000.0, 1_000.0))
    flow["radar"].submit(Position("N628TS", 1_000.0, 0.0, 500.0))
    flow["radar"].submit(Position("G-EUUU", 90_000.0, 0.0, 9_000.0))
    flow.drain()
