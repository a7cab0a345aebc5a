"""A first graph: trades outside a range of prices, the big ones apart from the others."""

from __future__ import annotations

import evflow as ev


class Trade(ev.Event):
    symbol: ev.Str[8]
    trade_price: float
    size: int


def alert(trade: Trade) -> None:
    print(f"big:   {trade.symbol} {trade.trade_price} x {trade.size}")


def log(trade: Trade) -> None:
    print(f"small: {trade.symbol} {trade.trade_price} x {trade.size}")


g = ev.Graph("trades")
trades = g.source("trades", Trade)
outliers = trades >> ev.Filter("(input.trade_price < 75.5) || (input.trade_price > 78.5)", name="outliers")
big = outliers >> ev.Router("return input.size > 1000 ? 0 : 1;", name="big")
big[0] >> ev.Terminal(alert, name="alert")
big[1] >> ev.Terminal(log, name="log")

with g.run() as flow:
    flow["trades"].submit(Trade("IBM", 80.0, 5000))
    flow["trades"].submit(Trade("IBM", 77.0, 9000))
    flow["trades"].submit_batch(
        {"symbol": ["SAP", "BASF"], "trade_price": [70.0, 79.5], "size": [100, 20_000]},
    )
    flow.drain()
    stats = flow.stats()

print(f"{stats['trades']['in']} trades, {stats['outliers']['out']} of them outside the range")
