"""A graph with a match stone, and what its tests need to look at it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import evflow as ev

Change = ev.SubscriptionChange


class Flight(ev.Event):
    number: int
    carrier: ev.Str[2]
    delay: float
    x: float = 0.0
    y: float = 0.0


class Note(ev.Event):
    words: str
    number: int


def flight(number: int, carrier: str = "UA", delay: float = 0.0, x: float = 0.0, y: float = 0.0) -> Flight:
    return Flight(number, carrier, delay, x, y)


@contextmanager
def matching(*subscriptions: Any, **settings: Any) -> Iterator[tuple[ev.Flow, list[Any]]]:
    """A flow from ``events`` and ``changes`` to a match stone ``alerts``, and the events that leave it."""
    seen: list[Any] = []
    with graph(seen, *subscriptions, **settings).run() as flow:
        yield flow, seen


def graph(seen: list[Any], *subscriptions: Any, **settings: Any) -> ev.Graph:
    g = ev.Graph()
    alerts = g.source("events", Flight, Note) >> match(subscriptions, **settings)
    g.source("changes", Change) >> alerts
    alerts >> ev.Terminal(lambda event: seen.append(event.to_event()), name="end")
    return g


def match(subscriptions: Any = (), **settings: Any) -> ev.Match:
    return ev.Match(subscriptions, **{"engine": "reference", "name": "alerts", **settings})


def submit(flow: ev.Flow, *events: ev.Event, to: str = "events") -> None:
    for event in events:
        flow[to].submit(event)
    flow.drain()


def found(seen: list[Any]) -> list[tuple[int, list[int]]]:
    """Number and ids of each event that left, which are forgotten."""
    told = [(event.number, sorted(event.subscriptions.tolist())) for event in seen]
    seen.clear()
    return told
