"""Two nodes: a graph's stones run in two places, and events cross between them.

Here both nodes live in one program. In real life each runs in a process of its own, on any host; then
``evflow run FILE --node NAME`` is all it takes.
"""

from __future__ import annotations

import evflow as ev


class Reading(ev.Event):
    station: ev.Str[16]
    temperature: float


g = ev.Graph("readings")
with g.on("station"):
    hot = g.source("readings", Reading) >> ev.Filter("input.temperature > 30", name="hot")
with g.on("office"):
    hot >> ev.Terminal(lambda reading: print("hot:", reading.station, reading.temperature), name="show")

# Port 0 is any that is free; the node's contact tells which.
office = ev.Node("office", listen="tcp://127.0.0.1:0")
station = ev.Node("station", peers={"office": office.contact})

with g.run(node=office), g.run(node=station) as flow:
    flow["readings"].submit(Reading("Jena", -9.8))
    flow["readings"].submit_batch({"station": ["Hamburg", "Jena"], "temperature": [30.2, 31.9]})
    # Returns when the office has handled them.
    flow.drain(timeout=10)
    counts = flow.stats()
    print("the link is", station.links()["office"]["state"])

for name in counts:
    print(f"{name}: {counts[name]['in']} in, {counts[name]['out']} out")
