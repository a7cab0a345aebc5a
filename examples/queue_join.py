"""A queue stone joins two streams: each bid waits for the ask of the same symbol."""

from __future__ import annotations

import evflow as ev


class Bid(ev.Event):
    symbol: ev.Str[8]
    price: float


class Ask(ev.Event):
    symbol: ev.Str[8]
    price: float


class Spread(ev.Event):
    symbol: ev.Str[8]
    width: float


JOIN = """{
    int i, j;
    for (i = 0; i < count(bids); i++) {
        for (j = 0; j < count(asks); j++) {
            if (bids[i].symbol == asks[j].symbol) {
                spread.symbol = bids[i].symbol;
                spread.width = asks[j].price - bids[i].price;
                submit(0, spread);
                discard(bids, i);
                discard(asks, j);
                return 1;
            }
        }
    }
    return 0;
}"""

g = ev.Graph("market")
spreads = ev.Queue(JOIN, inputs={"bids": Bid, "asks": Ask}, outputs={"spread": Spread}, name="join")
g.source("market", Bid, Ask) >> spreads
g["join"] >> ev.Terminal(lambda spread: print(f"{spread.symbol}: {spread.width:.2f}"))

with g.run() as flow:
    flow["market"].submit(Bid("IBM", 80.0))
    flow["market"].submit(Bid("SAP", 120.0))
    flow["market"].submit(Ask("SAP", 120.5))
    flow["market"].submit(Ask("BASF", 44.0))
    flow["market"].submit(Ask("IBM", 80.25))
    flow.drain()
    print(flow.stats()["join"]["queued"], "still waiting")
