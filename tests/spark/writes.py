"""What the tests of writing share: a stone that rows come to, jobs, a graph for a process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import evflow as ev

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

STONE = "rows"


class Receiver:
    """A flow in this process that rows come to.

    Attributes:
        flow: the flow.
        batches: what came out of its Spark source.
    """

    def __init__(self, flow: ev.Flow, batches: list[ev.EventBatch]) -> None:
        self.flow = flow
        self.batches = batches

    @property
    def options(self) -> dict[str, str]:
        """Those of a write to it."""
        assert self.flow.node is not None
        return {"contact": self.flow.node.contact, "stone": STONE}

    def column(self, name: str) -> list[Any]:
        """One field of all events so far, in the order in which they came."""
        self.flow.drain(30)
        return [getattr(event, name) for batch in self.batches for event in batch]


@contextmanager
def receiver(*schema: Any, **settings: Any) -> Iterator[Receiver]:
    """A Spark source before a terminal, in this process."""
    batches: list[ev.EventBatch] = []
    graph = ev.Graph("receiver")
    source = graph.add(ev.SparkSource(*schema, name=STONE, **settings))
    source >> ev.Terminal(batches.append, batch=True)
    with graph.run() as flow:
        yield Receiver(flow, batches)


def save(frame: DataFrame, options: dict[str, str], **more: str) -> None:
    """Writes a DataFrame."""
    frame.write.format("evflow").options(**options | more).mode("append").save()


def ids(seen: list[Any], folder: str | None = None) -> ev.Graph:
    """A graph for a process of its own, whose handler notes the ids of the rows that come."""
    graph = ev.Graph("receiver")
    source = graph.add(
        ev.SparkSource(name=STONE, folder=None if folder is None else Path(folder), on="there")
    )
    source >> ev.Terminal(lambda batch: seen.extend(batch["id"].tolist()), batch=True, on="there")
    return graph
