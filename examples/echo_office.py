"""An ECho channel, second terminal: an office derives one of large trades from that of ``echo_desk.py``.

    python examples/echo_office.py CONTACT

The contact is the one that the desk prints. The filter runs at the desk, so small trades are never sent.
"""

from __future__ import annotations

import sys
import threading
from typing import Any

from evflow import echo

enough = threading.Event()
seen: list[str] = []


def show(trade: Any) -> None:
    seen.append(trade.symbol)
    if len(seen) <= 5:
        print("large:", trade.symbol, trade.size, flush=True)
    if len(seen) == 5:
        enough.set()


if len(sys.argv) != 2:
    print("start echo_desk.py in another terminal, and give the contact that it prints")
else:
    with echo.Process("office") as office:
        trades = office.open(sys.argv[1])
        large = trades.derive("large", "input.size > 1000")
        print("members:", ", ".join(member.process for member in large.members()))
        large.subscribe(show)
        if not enough.wait(30):
            print("the desk has published nothing large")
