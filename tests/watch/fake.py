"""Nodes that are not nodes: clients with the face of ``evflow.deploy.client.Client``, and what they say;
and a graph for one that is."""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

import evflow as ev
from evflow.errors import FlowError, LinkError
from evflow.tools.watch.status import NodeStatus
from evflow.tools.watch.survey import Place, Seen, Survey


class Trade(ev.Event):
    symbol: ev.Str[8]
    price: float


def stone(kind: str = "filter", **given: Any) -> dict[str, Any]:
    """A stone's part of a status."""
    counts = dict.fromkeys(("in", "out", "dropped", "errors", "unmatched", "queued"), 0)
    return {"kind": kind, **counts, "busy": 0.0, "frozen": False, "attributes": {}, **given}


def link(state: str = "up", **given: Any) -> dict[str, Any]:
    """A link's part of a status."""
    rest = {"round_trip": 0.00042, "bandwidth": 1.5e6, "waiting": 0, "sessions": 1}
    return {"state": state, "trouble": "", "contact": "tcp://10.0.0.3:7000", **rest, **given}


def trades() -> ev.Graph:
    """A graph on two nodes, whose handler only the office has."""
    g = ev.Graph("trades")
    with g.on("edge"):
        high = g.source("trades", Trade) >> ev.Filter("input.price > 78.5", name="high")
    with g.on("office"):
        high >> ev.Terminal("alerts_of_the_office:show", name="show")
    return g


def deployment(**given: Any) -> dict[str, Any]:
    """A deployment's part of a status."""
    return {
        "version": 3,
        "change": "c-17",
        "hosts": {"edge": "tcp://10.0.0.2:7000", "office": "tcp://10.0.0.3:7000"},
        "members": {"edge": "alive", "office": "alive"},
        "frozen": [],
        "changing": "",
        "graph": trades().to_dict(),
        **given,
    }


def status(node: str = "edge", **given: Any) -> dict[str, Any]:
    """What a node says of itself, and nothing is wrong."""
    said: dict[str, Any] = {
        "node": node,
        "version": "0.1.0",
        "contact": "tcp://10.0.0.2:7000",
        "pid": 4711,
        "host": "lab1",
        "uptime": 93784.0,
        "load": 0.5,
        "memory": 120_000_000,
        "budget": {"used": 8_000_000, "most": 268_435_456},
        "wall": 1_700_000_000.0,
        "deployments": {"trades": deployment()},
        "stones": {
            "trades/trades": stone("source", **{"in": 1000, "out": 1000}),
            "trades/high": stone(**{"in": 1000, "out": 400, "dropped": 600, "busy": 0.25}),
        },
        "links": {"office": link()},
        "refused": {},
        "dead_letters": 0,
        "handlers": ["alerts"],
    }
    return copy.deepcopy(said | given)


def survey(*said: dict[str, Any], at: float = 100.0) -> Survey:
    """What was seen of nodes that say this."""
    nodes = [Seen(one["node"], one["contact"], NodeStatus.parse(one), None, one) for one in said]
    return Survey(tuple(nodes), at)


class FakeTap:
    """Gives batches that were told before; at the end it says nothing, or raises what was told."""

    def __init__(
        self, batches: Iterable[ev.EventBatch], end: type[BaseException] | None = None, missed: int = 0
    ) -> None:
        self._batches = deque(batches)
        self._end = end
        self.missed = missed
        self.closed = False

    def next(self, timeout: float | None = None) -> ev.EventBatch | None:
        if not self._batches and self._end is not None:
            raise self._end
        return self._batches.popleft() if self._batches else None

    def close(self) -> None:
        self.closed = True


class FakeSource:
    """Keeps what is submitted."""

    def __init__(self) -> None:
        self.batches: list[ev.EventBatch] = []

    def submit_batch(self, table: Any, /) -> None:
        self.batches.append(table)


class FakeClient:
    """A connection to a node that says what it was told to.

    Args:
        verbs: verb → what answers, called with the arguments.
        taps: stone → tap.
    """

    def __init__(
        self,
        verbs: dict[str, Callable[..., Any]],
        taps: dict[str, FakeTap] | None = None,
        node: str = "edge",
    ) -> None:
        self.node = node
        self.closed = False
        self.sources: dict[str, FakeSource] = {}
        self._verbs = verbs
        self._taps = taps or {}

    def ask(self, verb: str, *, seconds: float | None = None, **arguments: Any) -> Any:
        return self._verbs[verb](**arguments)

    def tap(self, stone: str, /) -> FakeTap:
        if stone not in self._taps:
            raise FlowError(f"node {self.node} has no stone {stone!r}")
        return self._taps[stone]

    def source(self, stone: str, /) -> FakeSource:
        return self.sources.setdefault(stone, FakeSource())

    def __enter__(self) -> FakeClient:
        return self

    def __exit__(self, *error: object) -> None:
        self.closed = True


def says(said: dict[str, Any]) -> FakeClient:
    """A node whose status is this."""
    return FakeClient({"status": lambda: copy.deepcopy(said)}, node=said["node"])


def place(client: FakeClient, contact: str = "tcp://10.0.0.2:7000") -> Place:
    """Where a node is that can be asked."""
    return Place(client.node, contact, lambda: client)


def nobody(name: str = "office", contact: str = "tcp://127.0.0.1:1") -> Place:
    """Where none is."""

    def refused() -> FakeClient:
        raise LinkError(f"host {name} at {contact}: no answer to 'name' within 5 s")

    return Place(name, contact, refused)


class Ping(ev.Event):
    """What a served node would take."""

    number: int


def served(node: ev.Node) -> ev.Flow:
    """Runs a graph of one node."""
    g = ev.Graph("served")
    g.source("pings", Ping, on=node.name) >> ev.Terminal(print, on=node.name)
    return g.run(node=node)
