"""The healthy traffic: which ways events take, and the graph of all."""

from __future__ import annotations

from typing import NamedTuple

import evflow as ev
from tests.siege.handlers import __name__ as handlers

__all__ = ["NAME", "NODES", "Rec", "Way", "graph", "ways"]

NAME = "good"
"""The name of the deployment."""

NODES = ("a", "b", "c", "d", "e")
MANY = 64
"""Bridges from one node to the next, beside each other."""


class Rec(ev.Event):
    """A numbered event.

    Attributes:
        way: the number of its way.
        seq: counts up on each way.
        sent: when it was submitted, of ``time.monotonic``.
        nap: seconds that the terminal is to sleep.
    """

    way: int
    seq: int
    sent: float
    nap: float


class Way(NamedTuple):
    """Where events go: from a source on the first node to a terminal on the last.

    ``batch`` events are submitted at once, and again after ``pause`` seconds.
    """

    number: int
    kind: str
    nodes: tuple[str, ...]
    batch: int
    pause: float

    @property
    def source(self) -> str:
        """The name of its source."""
        return f"in{self.number}"


def ways() -> list[Way]:
    """Chains of three nodes, pings there and back between neighbours, and many bridges side by side."""
    made = []
    for at, name in enumerate(NODES):
        after, beyond = NODES[(at + 1) % len(NODES)], NODES[(at + 2) % len(NODES)]
        made.append(Way(len(made), "chain", (name, after, beyond), 10, 0.05))
        made.append(Way(len(made), "ping", (name, after, name), 1, 0.1))
    return made + [Way(len(made) + one, "many", ("d", "e"), 1, 0.5) for one in range(MANY)]


def graph() -> ev.Graph:
    """All ways, and on each node a source of its name that leads nowhere, for what strangers send."""
    made = ev.Graph(NAME)
    for way in ways():
        first, *between, last = way.nodes
        at = made.source(way.source, Rec, on=first)
        for step, node in enumerate(between):
            at = at >> ev.Filter("input.seq >= 0", name=f"step{way.number}.{step}", on=node)
        _ = at >> ev.Terminal(f"{handlers}:note", batch=True, name=f"end{way.number}", on=last)
    for node in NODES:
        end = ev.Terminal(f"{handlers}:sip", batch=True, name=f"sink {node}", on=node)
        _ = made.source(node, Rec, on=node) >> end
    return made
