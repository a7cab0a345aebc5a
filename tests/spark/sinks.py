"""Sinks that the tests read, in this process and in others."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import evflow as ev
from evflow.disk import Log
from evflow.flow.flow import Flow
from evflow.spark.sink import SparkSink

SINK = "rows"
LEAST = 1 << 16
"""The least limit that a sink may have."""


class Row(ev.Event):
    """A row of 19 bytes; ``source`` says who has sent it."""

    seq: int
    source: int = 0


def holding(seen: list[Any], dies_after: int = 0, **settings: Any) -> ev.Graph:
    """A sink that other nodes send to; see ``tests.node.processes``.

    Args:
        dies_after: its process kills itself when it has appended to a file so often, before anybody knows.
    """
    if dies_after:
        _die_after(dies_after)
    graph = ev.Graph("holding")
    graph.add(SparkSink(Row, name=SINK, on="there", **settings))
    return graph


def _die_after(appends: int) -> None:
    append, left = Log.append, appends

    def append_and_die(log: Log, meta: list[Any], body: Any = b"") -> None:
        nonlocal left
        append(log, meta, body)
        left -= meta[0] == "things"
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)

    Log.append = append_and_die  # type: ignore[method-assign]


def sending(contact: str, *sources: str, **bridge: Any) -> ev.Graph:
    """Sources with a bridge each to the sink of another node."""
    graph = ev.Graph("sending")
    for name in sources:
        graph.source(name, Row) >> ev.Bridge(contact, SINK, input="rows", name=f"bridge of {name}", **bridge)
    return graph


def rows(*seqs: int, source: int = 0) -> ev.EventBatch:
    """Rows with these numbers."""
    return ev.EventBatch.from_columns(Row, {"seq": list(seqs), "source": [source] * len(seqs)})


class Reader:
    """Asks a sink as Spark's readers do."""

    def __init__(self, flow: Flow, contact: str) -> None:
        self._flow = flow
        self._contact = contact
        self._spool = ""

    def ask(self, **question: Any) -> Any:
        """The answer to a question."""
        return self._flow.ask(self._contact, SINK, question)

    def range(self, query: str | None = None, at: int = 0) -> tuple[int, int]:
        """The first and the next offset."""
        known = {} if query is None else {"query": query, "at": at, "spool": self._spool or self._found()}
        there = self.ask(ask="range", **known)
        self._spool = there["spool"]
        return there["first"], there["next"]

    def _found(self) -> str:
        self.range()
        return self._spool

    def rows(
        self, start: int | None = None, stop: int | None = None, most: int = 1 << 20
    ) -> list[tuple[int, int]]:
        """Rows as (seq, source); by default all."""
        first, end = self.range()
        start, stop = first if start is None else start, end if stop is None else stop
        found: list[tuple[int, int]] = []
        at = start
        while at < stop:
            answer = self.ask(ask="rows", spool=self._spool, to=stop, most=most, **{"from": at})
            batch = ev.EventBatch.from_bytes(Row, answer["data"], answer["rows"])
            found += zip(batch["seq"].tolist(), batch["source"].tolist(), strict=True)
            at += len(batch)
        return found

    def commit(self, query: str, to: int) -> int:
        """The first offset after a query has committed."""
        first: int = self.ask(ask="commit", query=query, to=to, spool=self._spool)["first"]
        return first


@contextmanager
def reading(contact: str) -> Iterator[Reader]:
    """A reader on a node of its own."""
    with Flow.empty("reading", node=ev.Node()) as flow:
        yield Reader(flow, contact)


@contextmanager
def local(timeout: float = 10.0, **settings: Any) -> Iterator[tuple[ev.Flow, Reader]]:
    """A flow of this process with the source ``here`` and a sink, and its reader."""
    graph = ev.Graph("local")
    graph.source("here", Row) >> SparkSink(Row, name=SINK, **settings)
    # Little waits before it, so that its back-pressure is soon felt.
    flow = graph.run(max_bytes=LEAST)
    try:
        assert flow.node is not None
        with reading(flow.node.contact) as reader:
            yield flow, reader
    finally:
        flow.close(timeout)
