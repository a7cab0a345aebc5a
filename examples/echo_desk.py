"""An ECho channel, first terminal: a desk publishes trades. ``echo_office.py`` is the second.

    python examples/echo_desk.py 60

It prints the channel's contact, and publishes for so many seconds (one by default).
"""

from __future__ import annotations

import random
import sys
import time

import evflow as ev
from evflow import echo


class Trade(ev.Event):
    symbol: ev.Str[8]
    size: int


seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 1.0

with echo.Process("desk") as desk:
    trades = desk.create("trades", Trade)
    print("trades are published at", trades.contact, flush=True)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        trades.publish(Trade(random.choice(["IBM", "HAL", "DEC"]), random.randrange(2000)))
        time.sleep(0.02)
    counts = trades.stats()
    # Only what somebody elsewhere has subscribed to is sent.
    print(counts["published"], "published, sent as they are:", counts["to"] or "none")
    for channel in desk.channels().values():
        if channel is not trades:
            print(channel.name, "was derived from them:", channel.stats()["published"], "passed")
