"""Attributes go along with an event beside its fields, and need no schema: each hop is counted and named."""

from __future__ import annotations

import evflow as ev


class Packet(ev.Event):
    number: int


class Letter(ev.Event):
    text: str


HOP = """{
    set_int_attr(event_attrs, "hops", attr_ivalue(event_attrs, "hops") + 1);
    return attr_ivalue(event_attrs, "hops") <= attr_ivalue(event_attrs, "limit");
}"""

g = ev.Graph("network")
hop = g.source("network")
for _ in range(3):
    hop = hop >> ev.Filter(HOP)
hop >> ev.Terminal(lambda event: print(event.schema.name, event.attrs))

with g.run() as flow:
    flow["network"].submit(Packet(1), attrs={"limit": 5, "from": "Athens"})
    flow["network"].submit(Packet(2), attrs={"limit": 2, "from": "Bergen"})
    flow["network"].submit(Letter("any schema will do"), attrs={"limit": 3, "from": "Cork"})
    flow.drain()
    print(flow.stats()["filter_3"]["dropped"], "dropped by the last filter")
