"""Recorded moves on Spark, matched by ``evflow.spark.tiles`` and by Spark SQL.

    python benchmarks/spark_tiles.py                        100,000 moves, 10,000 subscriptions
    python benchmarks/spark_tiles.py --moves 5000000

Things at 20 km/h move every 10 s; each is in as many circles of 100 m as ``--matches`` says. Fixed
subscriptions stay, moving ones move ten times in all. Spark SQL puts circles into the cells of a grid that
they touch, and joins on cells and on overlapping times: both find the same pairs, which is checked. CPU is
that of all processes.
"""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from spark_matching import Bench, local_session, save
from table import duration, markdown

from evflow.spark import tiles

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RADIUS, DEGREE = 100.0, 111_195.0
CELL = 0.003
STEPS = 100


def walks(count: int, steps: int, seconds: int, side: float, random: np.random.Generator) -> pa.Table:
    """Things that wander in a square of so many metres at 46 degrees north."""
    angle = random.uniform(0, 2 * np.pi, (count, steps))
    wide = DEGREE * np.cos(np.radians(46.5))
    away = [np.cumsum(turn(angle) * 20 / 3.6 * seconds, axis=1) for turn in (np.sin, np.cos)]
    places = [random.uniform(0, side, (count, 1)) + moved for moved in away]
    return pa.table(
        {
            "id": np.repeat(np.arange(count), steps),
            "time": (np.arange(steps) * seconds + random.integers(0, seconds, (count, 1))).ravel(),
            "latitude": 46.0 + places[0].ravel() / DEGREE,
            "longitude": 6.0 + places[1].ravel() / wide,
        }
    )


def by_sql(positions: DataFrame, circles: DataFrame) -> DataFrame:
    """The same pairs: circles in all cells that they may touch, and a join on cells and times."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    def lasting(rows: DataFrame) -> DataFrame:
        if "time" not in rows.columns:
            return rows.withColumn("time", F.lit(-1)).withColumn("until", F.lit(1 << 62))
        following = F.lead("time").over(Window.partitionBy("id").orderBy("time"))
        return rows.withColumn("until", F.coalesce(following, F.lit(1 << 62)))

    def cells(axis: str, reach: float) -> Any:
        low, high = (F.floor((F.col(axis) + by) / CELL) for by in (-reach, reach))
        return F.explode(F.sequence(low, high))

    north = RADIUS / DEGREE * 1.001
    spread = lasting(circles).withColumn("i", cells("latitude", north))
    spread = spread.withColumn("j", cells("longitude", north / np.cos(np.radians(47.5))))
    names = {"id": "sub", "time": "sub_time", "until": "sub_until", "latitude": "north", "longitude": "east"}
    spread = spread.withColumnsRenamed(names)
    placed = lasting(positions).withColumnsRenamed({"id": "pub", "time": "pub_time"})
    placed = placed.withColumn("i", F.floor(F.col("latitude") / CELL))
    placed = placed.withColumn("j", F.floor(F.col("longitude") / CELL))
    first, second = (F.radians(F.col(name)) for name in ("latitude", "north"))
    turn = F.radians(F.col("longitude") - F.col("east"))
    half = F.sin((first - second) / 2) ** 2 + F.cos(first) * F.cos(second) * F.sin(turn / 2) ** 2
    near = 2 * 6_371_008.8 * F.asin(F.sqrt(half)) <= F.col("radius")
    # At one time subscriptions move first.
    together = (F.col("pub_time") < F.col("sub_until")) & (F.col("sub_time") <= F.col("until"))
    return placed.join(spread, ["i", "j"]).where(near & together).select("pub", "pub_time", "sub", "sub_time")


def workload(
    spark: SparkSession, folder: Path, moves: int, subscriptions: int, matches: float, moving: bool
) -> tuple[DataFrame, DataFrame]:
    random = np.random.default_rng(1)
    side = float(np.sqrt(subscriptions * np.pi * RADIUS**2 / matches))
    steps = 10 if moving else 1
    tables = {
        "positions": walks(moves // STEPS, STEPS, 10, side, random),
        "circles": walks(subscriptions, steps, STEPS, side, random),
    }
    tables["circles"] = tables["circles"].append_column("radius", pa.repeat(RADIUS, subscriptions * steps))
    if not moving:
        tables["circles"] = tables["circles"].drop_columns("time")
    for name, table in tables.items():
        pq.write_table(table, folder / f"{name} {moving}.parquet", row_group_size=250_000)
    made = [spark.read.parquet(str(folder / f"{name} {moving}.parquet")) for name in tables]
    return made[0], made[1]


@click.command()
@click.option("--moves", default=100_000, help="Of publications, 100 of each.")
@click.option("--subscriptions", default=10_000)
@click.option("--matches", default=2.0, help="Circles around a thing, on average.")
@click.option("--rounds", default=3, help="The least of so many counts.")
@click.option("--patience", default=600.0, help="Seconds after which a case is given up.")
@click.option("--cores", default=2)
def main(moves: int, subscriptions: int, matches: float, rounds: int, patience: float, cores: int) -> None:
    """Prints what recorded moves cost on Spark."""
    lines = [["subscriptions", "moves", "matches", "", "CPU a move", "moves/s"]]
    with tempfile.TemporaryDirectory() as temporary:
        spark = local_session(temporary, cores)
        for moving in (False, True):
            sides = workload(spark, Path(temporary), moves, subscriptions, matches, moving)
            count, found = sum(side.count() for side in sides), tiles(*sides).count()
            assert found == by_sql(*sides).count(), "both find the same"
            bench = Bench(spark, rounds, patience)
            events = partial(tiles, events=["enter", "leave"])
            for name, call in (("tiles", tiles), ("tiles, enter and leave", events), ("Spark SQL", by_sql)):
                bench.cases[name] = lambda call=call, sides=sides: save(call(*sides))
            bench.run()
            for name, (cpu, wall) in bench.costs.items():
                kind = f"{subscriptions:,} {'moving' if moving else 'fixed'}"
                costs = [duration(cpu / count * 1e9), f"{count / wall:,.0f}"]
                lines.append([kind, f"{count:,}", f"{found:,}", name, *costs])
        spark.stop()
    markdown("Recorded moves", lines)


if __name__ == "__main__":
    main()
