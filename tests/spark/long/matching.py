"""Both plans of matching against a join on cells in Spark SQL."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from evflow.spark.matching import match

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PARTS = 8
CIRCLES = 100_000
CELL = 5.0
"""The side of SQL's cells."""

CLOSE = 0.01
"""By how much a circle's cells go beyond it, so that rounding cannot hide a match."""


def events(spark: SparkSession, count: int, parts: int = PARTS) -> DataFrame:
    """Events on a square of 1000 by 1000, a few of them nowhere."""
    return spark.range(0, count, 1, parts).selectExpr(
        "id",
        "if(id % 1000 = 1, null, pmod(id * 7919, 1000003) / 1000.003D) as x",
        "pmod(id * 104729 + id div 1000003, 999983) / 999.983D as y",
    )


def circles(spark: SparkSession, count: int) -> DataFrame:
    """Circles there, of radii from 1 to 4.5."""
    return spark.range(0, count, 1, 2).selectExpr(
        "id * 3 - 7 as id",
        "pmod(id * 15485863, 1000003) / 1000.003D as x",
        "pmod(id * 32452843, 999983) / 999.983D as y",
        "1 + id % 36 / 10D as radius",
    )


def joined(rows: DataFrame, areas: DataFrame) -> DataFrame:
    """The pairs by SQL: each step in float32, as matching has it."""

    def cells(name: str, way: str) -> str:
        low, high = (f"cast(floor(({name} {sign} radius {sign} {CLOSE}D) / {CELL}D) as int)" for sign in "-+")
        return f"explode(sequence({low}, {high})) as {way}"

    spread = areas.selectExpr("*", cells("x", "i")).selectExpr("*", cells("y", "j"))
    kept = spread.selectExpr(
        "id as subscription", "float(x) as cx", "float(y) as cy", "float(radius) as r", "i", "j"
    )
    placed = rows.where("x is not null").selectExpr(
        "id",
        "float(x) as x",
        "float(y) as y",
        f"cast(floor(x / {CELL}D) as int) as i",
        f"cast(floor(y / {CELL}D) as int) as j",
    )
    both = placed.join(kept.hint("broadcast"), ["i", "j"])
    near = both.where("(x - cx) * (x - cx) + (y - cy) * (y - cy) <= r * r")
    return near.select("id", "subscription")


def digest(pairs: DataFrame) -> dict[str, Any]:
    """What Spark SQL says of all pairs."""
    return pairs.selectExpr(
        "count(1) as count",
        "sum(cast(xxhash64(id, subscription) as decimal(38, 0))) as total",
        "bit_xor(xxhash64(subscription, id)) as mixed",
    ).first().asDict()  # fmt: skip


def check_matching(spark: SparkSession, count: int) -> None:
    """Matches ``count`` events in both plans, and says what came of it.

    Raises:
        AssertionError: a plan has other pairs than SQL.
    """
    rows, areas = events(spark, count), circles(spark, CIRCLES)
    start = time.monotonic()
    wanted = digest(joined(rows, areas))
    took = [f"SQL {time.monotonic() - start:.0f} s"]
    found = {}
    for plan in ("broadcast", "tiles"):
        start = time.monotonic()
        found[plan] = digest(match(rows, areas, plan=plan))
        took.append(f"{plan} {time.monotonic() - start:.0f} s")
    differ = [plan for plan, pairs in found.items() if pairs != wanted]
    print(
        f"matching: {count:,} events, {CIRCLES:,} circles, {wanted['count']:,} pairs by SQL; "
        f"{len(differ)} plans differ; {', '.join(took)}",
        flush=True,
    )
    assert not differ, (wanted, found)
