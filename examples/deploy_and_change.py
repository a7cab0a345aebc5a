"""A graph on three daemons that is changed while it runs: by hand, by a stone's wish, when a daemon is gone.

Here all daemons live in one program. In real life each is an ``evflow node`` on a host of its own.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from tempfile import TemporaryDirectory

import evflow as ev


class Reading(ev.Event):
    station: ev.Str[16]
    temperature: float


WATCH = "{ if (input.temperature > 60) reconfigure(1); return input.temperature > 30; }"

g = ev.Graph("stations")
with g.on("edge"):
    hot = g.source("readings", Reading) >> ev.Filter(WATCH, name="hot")
hot >> ev.Terminal("desk:show", name="show", on="desk")
# Both rules are data: they travel with the graph, and the daemons act on them by themselves.
g.when("hot", 1, move={"hot": "center"})
g.fallback("center", to="desk", after=0.5)

show = {"desk:show": lambda reading: print("hot:", reading.station, reading.temperature)}

with TemporaryDirectory() as folder, ExitStack() as stack:
    daemons = {
        name: ev.Daemon(name, "tcp://127.0.0.1:0", storage=f"{folder}/{name}", handlers=show, dead_after=1)
        for name in ("edge", "center", "desk")
    }
    for daemon in daemons.values():
        stack.callback(daemon.close)
    stations = stack.enter_context(g.deploy({name: daemon.contact for name, daemon in daemons.items()}))

    def submit(station: str, temperature: float) -> None:
        stations["readings"].submit(Reading(station, temperature))
        stations.drain(timeout=30)
        print(f"version {stations.version}: hot is on {stations.graph.stones['hot'].on}")

    submit("Jena", 31.0)

    stations.move("hot", "desk")
    stations.insert(ev.Filter("input.temperature < 99", name="sane"), after="readings", before="hot")
    stations.freeze("show")
    submit("Ulm", 32.0)  # waits at show
    stations.unfreeze("show")

    submit("Kiel", 61.0)  # the function asks for what rule 1 says
    while stations.graph.stones["hot"].on != "center":
        time.sleep(0.1)
    daemons["center"].close()
    submit("Bonn", 33.0)  # handled once another daemon has the stone
