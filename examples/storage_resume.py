"""A storage stone over a file: what it holds is there again when the graph is started anew."""

from __future__ import annotations

import tempfile
from pathlib import Path

import evflow as ev


class Reading(ev.Event):
    number: int
    value: float


def graph(file: Path) -> ev.Graph:
    g = ev.Graph("readings")
    held = g.source("readings", Reading) >> ev.Storage(100, path=file, name="held")
    held >> ev.Terminal(lambda reading: print("sent", reading.number, reading.value))
    return g


with tempfile.TemporaryDirectory() as folder:
    file = Path(folder, "readings.log")

    with graph(file).run() as flow:
        for number in range(3):
            flow["readings"].submit(Reading(number, number / 2))
        flow.drain()
        print("first run holds", flow.stats()["held"]["queued"])

    with graph(file).run() as flow:
        print("second run finds", flow.stats()["held"]["queued"])
        print("sends", flow.send_stored("held", 2), "of them")
        flow.drain()
        print("holds", flow.stats()["held"]["queued"])
