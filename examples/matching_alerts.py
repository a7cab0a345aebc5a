"""Subscriptions that come and go while events flow: by a call, and by events that anybody may send.

Each subscriber has a port of the match stone; an event goes once to every subscriber who wants it.
"""

from __future__ import annotations

import evflow as ev


class Flight(ev.Event):
    carrier: ev.Str[2]
    delay: float
    latitude: float
    longitude: float


g = ev.Graph("alerts")
flights = g.source("flights", Flight)
alerts = flights >> ev.Match(space="globe", route=True, others=9, name="alerts")
alerts[0] >> ev.Terminal(lambda flight: print("  desk:", flight.carrier, flight.delay))
alerts[1] >> ev.Terminal(lambda flight: print("  office:", flight.carrier, flight.delay))
alerts[9] >> ev.Terminal(lambda flight: print("  nobody:", flight.carrier, flight.delay))
# What comes here may come from any node, over a bridge.
g.source("changes", ev.SubscriptionChange) >> alerts

NEWARK = Flight("UA", 50.0, 40.69, -74.17)
CHICAGO = Flight("AA", 90.0, 41.98, -87.90)

with g.run() as flow:

    def fly(what: str) -> None:
        print(what)
        flow["flights"].submit_batch([NEWARK, CHICAGO])
        flow.drain()

    desk = flow["alerts"].subscribe("delay > 45 and within(40.64, -73.78, 50 km)", port=0)
    flow["changes"].submit(ev.SubscriptionChange.subscribe(7, "carrier == 'UA' and delay > 45", port=1))
    fly("two subscribers")

    flow["alerts"].move(desk, 41.98, -87.90)
    flow["changes"].submit(ev.SubscriptionChange.unsubscribe(7))
    fly("the desk has moved to Chicago, the office is not interested any more")

    flow["changes"].submit(ev.SubscriptionChange.subscribe(7, "delay >", port=1))
    flow.drain()
    print(flow.dead_letters()[0].reason)
    told = flow.attributes("alerts")
    print(told["subscriptions"], "subscription;", told["matches"], "matches so far")
