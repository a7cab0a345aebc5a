"""Rows of all types through a sink and back, and Spark compares them with those that were written."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import evflow as ev
from tests.node.processes import NodeProcess
from tests.spark.long.rows import SECONDS
from tests.spark.long.table import COLUMNS, READ, table
from tests.spark.writes import STONE, save

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PARTS = 8
SINK = "kept"
SAMPLE = 101
"""Of so many rows one is compared as it is, and all by their hashes."""


def through(seen: list[Any]) -> ev.Graph:
    """What Spark writes is held for Spark."""
    graph = ev.Graph("through")
    source = graph.add(ev.SparkSource(name=STONE, on="there"))
    source >> ev.SparkSink(name=SINK, limit=1 << 40, on="there")
    return graph


def digest(rows: DataFrame) -> dict[str, Any]:
    """What Spark SQL says of all rows: how many, a sum of hashes of whole rows, and hashes of each column."""
    names = rows.columns
    columns = [f"bit_xor(xxhash64(id, isnull({name}), {name})) as {name}" for name in names]
    whole = f"sum(cast(xxhash64({', '.join(names)}) as decimal(38, 0))) as `whole rows`"
    return rows.selectExpr("count(1) as `how many`", whole, *columns).first().asDict()


def check_sink(spark: SparkSession, count: int) -> None:
    """Writes ``count`` rows, reads them, and says what came of them.

    Raises:
        AssertionError: what was read is not what was written.
    """
    frame = table(spark, count, PARTS)
    wanted = frame.selectExpr(*(f"{READ.get(name, name)} as {name}" for name in frame.columns))
    with NodeProcess("through", "there", module=__name__, listen="tcp://127.0.0.1:0") as there:
        start = time.monotonic()
        save(frame, {"contact": there.contact, "stone": STONE})
        there.ask("drain", timeout=SECONDS, within=SECONDS)
        written = time.monotonic() - start
        reader = spark.read.format("evflow").option("contact", there.contact).option("stone", SINK)
        found = reader.option("partitions", PARTS).load()
        one, other = digest(wanted), digest(found)
        differ = [name for name in one if one[name] != other[name]]
        some, others = (rows.where(f"id % {SAMPLE} = 0") for rows in (wanted, found))
        missing, more = some.exceptAll(others).count(), others.exceptAll(some).count()
    print(
        f"sink: {count:,} rows of {len(COLUMNS) + 1} columns written in {written:.0f} s; "
        f"{other['how many']:,} read back, {len(differ)} hashes differ; "
        f"of each {SAMPLE}th row {missing} missing, {more} too many; "
        f"{time.monotonic() - start:.0f} s",
        flush=True,
    )
    assert not differ, differ
    assert not missing and not more
