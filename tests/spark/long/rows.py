"""Rows of all types to another process while tasks fail, and what came there against numpy."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import evflow as ev
from tests.node.processes import NodeProcess
from tests.spark.long.table import COLUMNS, differences, table
from tests.spark.writes import STONE, save

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PARTS = 24
SECONDS = 3600.0
_TOLD = 10


def checking(seen: list[Any]) -> ev.Graph:
    """A graph whose handler compares all that comes; it notes how many rows that were, and what differs."""
    seen.append(0)

    def check(batch: ev.EventBatch) -> None:
        first = seen[0]
        seen[0] += len(batch)
        if len(seen) < _TOLD:
            seen.extend(differences(batch, first))

    graph = ev.Graph("receiver")
    source = graph.add(ev.SparkSource(name=STONE, on="there"))
    source >> ev.Terminal(check, batch=True, on="there")
    return graph


def failing() -> Callable[[Iterator[Any]], Iterator[Any]]:
    """A step whose first attempts fail in a quarter of the partitions, the second too in half of these, each
    after some batches."""

    def step(batches: Iterator[Any]) -> Iterator[Any]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        partition, attempt = context.partitionId(), context.attemptNumber()
        fails = (attempt == 0 and partition % 4 == 1) or (attempt == 1 and partition % 8 == 1)
        for number, batch in enumerate(batches):
            if fails and number == 3 + 3 * attempt:
                raise RuntimeError("planned failure")
            yield batch

    return step


def check_rows(spark: SparkSession, count: int) -> None:
    """Writes ``count`` rows, and says what came of them.

    Raises:
        AssertionError: not each row was there, as it should be, once, in order.
    """
    with NodeProcess("checking", "there", module=__name__, listen="tcp://127.0.0.1:0") as there:
        start = time.monotonic()
        frame = table(spark, count, PARTS, failing())
        save(frame, {"contact": there.contact, "stone": STONE})
        written = time.monotonic() - start
        there.ask("drain", timeout=SECONDS, within=SECONDS)
        taken = int(there.ask("stats")[STONE]["in"])
        came, *wrong = there.ask("seen")
    print(
        f"rows: {count:,} rows of {len(COLUMNS) + 1} columns written in {written:.0f} s; {taken - count:,} "
        f"more came of attempts that failed; {came:,} at the terminal, in order, {len(wrong)} differ; "
        f"{time.monotonic() - start:.0f} s",
        flush=True,
    )
    assert not wrong, "\n".join(wrong)
    assert came == count
