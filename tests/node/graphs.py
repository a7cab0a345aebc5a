"""The graphs that the tests run over several processes, each made anew in every process.

Each is a function of the list that its handlers fill, and of settings that go over as JSON.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import evflow as ev


class Rec(ev.Event):
    """A record of 19 bytes."""

    seq: int
    price: float = 0.0


class Laned(ev.Event):
    """A number, and what it is handled in order with."""

    seq: int
    lane: int


class Count(ev.Event):
    """A number."""

    seq: int


EVERY = "return 1;"


def pair(seen: list[Any], start: str = "here", end: str = "there", **bridge: Any) -> ev.Graph:
    """A source on one node, a terminal on another; ``bridge`` are the settings of the bridge between."""
    graph = ev.Graph("pair")
    recs = graph.source("recs", Rec, on=start)
    _ = _bridged(recs, start, bridge) >> ev.Terminal(_noting(seen), batch=True, name="end", on=end)
    return graph


def chain(seen: list[Any], nodes: Sequence[str] = ("first", "middle", "last"), **bridge: Any) -> ev.Graph:
    """A source on the first node, a filter that passes all on each between, a terminal on the last."""
    graph = ev.Graph("chain")
    at = graph.source("recs", Rec, on=nodes[0])
    for before, node in pairwise(nodes[:-1]):
        at = _bridged(at, before, bridge) >> ev.Filter(EVERY, name=f"at {node}", on=node)
    _ = _bridged(at, nodes[-2], bridge) >> ev.Terminal(_noting(seen), batch=True, name="end", on=nodes[-1])
    return graph


def _bridged(at: Any, node: str, bridge: dict[str, Any]) -> Any:
    return at >> ev.Bridge(name=f"bridge of {node}", on=node, **bridge) if bridge else at


def _noting(seen: list[Any]) -> Any:
    def note(batch: Any) -> None:
        seen.extend(batch["seq"].tolist())

    return note


def to_file(seen: list[Any], file: str, **bridge: Any) -> ev.Graph:
    """As ``pair``, but the terminal writes the numbers to a file, one event at a time."""
    graph = ev.Graph("to file")
    recs = graph.source("recs", Rec, on="here") >> ev.Bridge(name="bridge", on="here", **bridge)

    def write(event: Any) -> None:
        with open(file, "a") as out:
            out.write(f"{event.seq}\n")

    _ = recs >> ev.Terminal(write, name="end", on="there")
    return graph


def worked(seen: list[Any], file: str, **bridge: Any) -> ev.Graph:
    """As ``to_file``, but three handlers at once write the numbers, and take a while; in order for each of
    seven lanes."""
    graph = ev.Graph("worked")
    recs = graph.source("recs", Laned, on="here") >> ev.Bridge(name="bridge", on="here", **bridge)

    def write(batch: Any) -> None:
        time.sleep(0.002)
        text = "".join(f"{number}\n" for number in batch["seq"].tolist()).encode()
        out = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(out, text)
        finally:
            os.close(out)

    _ = recs >> ev.Terminal(write, batch=True, workers=3, key="lane", name="end", on="there")
    return graph


def stored(seen: list[Any], path: str, limit: int) -> ev.Graph:
    """A chain with a storage file on the middle one of three nodes."""
    graph = ev.Graph("stored")
    store = graph.source("recs", Rec, on="first") >> ev.Storage(limit, path=path, name="store", on="middle")
    _ = store >> ev.Terminal(_noting(seen), batch=True, name="end", on="last")
    return graph


def fan(seen: list[Any], **bridge: Any) -> ev.Graph:
    """Two ways out of one node: ``first`` leads to node one, ``second`` to node two."""
    graph = ev.Graph("fan")
    for source, node in (("first", "one"), ("second", "two")):
        at = graph.source(source, Rec, on="here") >> ev.Bridge(name=f"to {node}", on="here", **bridge)
        _ = at >> ev.Terminal(_noting(seen), batch=True, name=f"at {node}", on=node)
    return graph


def slow_handler(seen: list[Any], seconds: float, every: int) -> ev.Graph:
    """As ``pair``, with a handler that sleeps at the first of every so many events."""
    graph = ev.Graph("slow handler")

    def note(event: Any) -> None:
        if event.seq % every == 0:
            time.sleep(seconds)
        seen.append(event.seq)

    _ = graph.source("recs", Rec, on="here") >> ev.Terminal(note, name="end", on="there")
    return graph


def gathered(seen: list[Any], sources: Sequence[str], **bridge: Any) -> ev.Graph:
    """A diamond: sources on nodes of their own lead to the middle, from there two ways to the last."""
    graph = ev.Graph("gathered")
    middle = graph.add(ev.Split(name="split", on="middle"))
    for name in sources:
        source = graph.source(name, Rec, on=name)
        _ = source >> ev.Bridge(name=f"bridge of {name}", on=name, **bridge) >> middle
    for way, code in (("even", "input.seq % 2 == 0"), ("odd", "input.seq % 2 != 0")):
        part = middle >> ev.Filter(code, name=way, on="middle")
        _ = part >> ev.Terminal(_noting(seen), batch=True, name=f"end of {way}", on="last")
    return graph


def many(seen: list[Any], bridges: int, seconds: float) -> ev.Graph:
    """As many sources as bridges, all to one terminal, whose handler sleeps once, at event 0."""
    graph = ev.Graph("many")

    def note(event: Any) -> None:
        if event.seq == 0 and 0 not in seen:
            time.sleep(seconds)
        seen.append(event.seq)

    end = graph.add(ev.Terminal(note, name="end", on="there"))
    for n in range(bridges):
        _ = graph.source(f"recs {n}", Rec, on="here") >> ev.Bridge(name=f"bridge {n}", on="here") >> end
    return graph
