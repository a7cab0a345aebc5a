"""The graphs of the behaviour cases that cross processes, each a function of the list that handlers fill."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

import evflow as ev


class Rec(ev.Event):
    """The record of most cases."""

    seq: int
    price: float = 0.0
    size: ev.i32 = 0
    tag: str = ""


class Place(ev.Event):
    """A nested record."""

    x: float
    label: str


class Cell(ev.Event):
    """A linked list."""

    value: int
    onward: Cell | None = None


class Bulk(ev.Event):
    """A record with everything in it."""

    seq: int
    place: Place
    vectors: list[bytes]
    text: str
    grid: ev.Array[ev.f64, 3, 4]
    cells: Cell | None = None


class A(ev.Event):
    """One side of a join."""

    value: int


class B(ev.Event):
    """The other side."""

    value: int


class C(ev.Event):
    """What the join makes."""

    value: int


HOP = 'set_int_attr(event_attrs, "hops", attr_ivalue(event_attrs, "hops", 0) + 1); return 1;'

JOIN = """{
    while (count(a) > 0 && count(b) > 0) {
        c.value = a[0].value + b[0].value;
        submit(0, c);
        discard(a, 0);
        discard(b, 0);
    }
}"""


def plain(value: Any) -> Any:
    """A field's value, or an event, as JSON has it."""
    if isinstance(value, ev.Event):
        return [plain(getattr(value, field.name)) for field in value.schema.fields]
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, list):
        return [plain(item) for item in value]
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value


def direct(seen: list[Any], schema: str) -> ev.Graph:
    """Events of one schema go from one process to a terminal in another."""
    graph = ev.Graph("direct")
    end = ev.Terminal(lambda e: seen.append([plain(e.to_event()), dict(e.attrs)]), name="end", on="there")
    _ = graph.source("events", globals()[schema], on="here") >> end
    return graph


def joined(seen: list[Any]) -> ev.Graph:
    """Events of two schemas meet in another process."""
    graph = ev.Graph("joined")
    join = ev.Queue(JOIN, inputs={"a": A, "b": B}, outputs={"c": C}, on="there")
    sums = graph.source("events", A, B, on="here") >> join
    _ = sums >> ev.Terminal(lambda event: seen.append(event.value), on="there")
    return graph


def hops(seen: list[Any], nodes: list[str]) -> ev.Graph:
    """A chain of processes, each of which adds a hop but the first and the last."""
    graph = ev.Graph("hops")
    at = graph.source("events", Rec, on=nodes[0])
    for before, node in pairwise(nodes):
        at = at >> ev.Filter(HOP, name=f"from {before}", on=node)
    _ = at >> ev.Terminal(
        lambda event: seen.append([event.seq, event.attrs["hops"]]), name="end", on=nodes[-1]
    )
    return graph


def branches(seen: list[Any]) -> ev.Graph:
    """A split with one branch that changes attributes and one that does not, both over bridges."""
    graph = ev.Graph("branches")
    source = graph.source("events", Rec, on="here")
    for change, name in ((HOP, "changed"), ("return 1;", "unchanged")):
        end = ev.Terminal(
            lambda e, name=name: seen.append([name, e.seq, dict(e.attrs)]), name=name, on="there"
        )
        _ = source >> ev.Filter(change, name=f"to {name}", on="here") >> end
    return graph


def stones(seen: list[Any], names: list[str]) -> ev.Graph:
    """Sources of these names, each with a terminal."""
    graph = ev.Graph("stones")
    for name in names:
        _ = graph.source(name, on="there") >> ev.Terminal(
            lambda event, name=name: seen.append([name, event.seq]), name=f"end of {name}", on="there"
        )
    return graph
