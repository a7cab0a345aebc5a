"""A router with a memory: the first of each three orders is checked, negative ones are dropped."""

from __future__ import annotations

import evflow as ev


class Order(ev.Event):
    number: int
    amount: float


ROUTE = """{
    static int seen = 0;
    if (input.amount < 0) return -1;     /* a negative port drops the event */
    seen = seen + 1;
    return seen % 3 == 1 ? 0 : 1;
}"""

g = ev.Graph("orders")
route = g.source("orders", Order) >> ev.Router(ROUTE, name="route")
route[0] >> ev.Terminal(lambda order: print("check", order.number), name="check")
route[1] >> ev.Terminal(lambda order: print("pass ", order.number), name="pass")

with g.run() as flow:
    for number, amount in enumerate([12.5, -3.0, 8.0, 99.0, 41.0, -1.0, 7.5]):
        flow["orders"].submit(Order(number, amount))
    flow.drain()
    counts = flow.stats()["route"]
    print(f"{counts['in']} orders, {counts['out']} passed on, {counts['dropped']} dropped")
