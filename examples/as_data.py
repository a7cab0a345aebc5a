"""A graph is plain data: written as JSON, read back, and run."""

from __future__ import annotations

import json

import evflow as ev


class Trade(ev.Event):
    symbol: ev.Str[8]
    price: float


LIMIT = 78.5

g = ev.Graph("trades")
high = g.source("trades", Trade) >> ev.Filter(lambda input: input.price > LIMIT, name="high")
# What the other side may call is a name that it can import.
high >> ev.Terminal("builtins:print")

text = json.dumps(g.to_dict(), indent=1)
print(len(text), "characters of JSON; the filter is", json.loads(text)["stones"][1]["settings"]["code"])

copy = ev.Graph.from_dict(json.loads(text))
with copy.run() as flow:
    flow["trades"].submit(Trade("IBM", 78.0))
    flow["trades"].submit(Trade("IBM", 79.0))
    flow.drain()
