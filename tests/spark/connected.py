"""A program of its own that uses a Connect server, and prints what it finds as JSON.

python connected.py URL TO FROM FOLDER: a contact that rows go to, one that they are read from
"""

from __future__ import annotations

import json
import sys
from typing import Any

ROWS = 10_000


def main(url: str, to: str, source: str, folder: str) -> None:
    from pyspark.sql import SparkSession

    import evflow as ev
    from evflow.spark import apply, configure_spark_with_evflow, match, register, tiles

    spark: Any = configure_spark_with_evflow(SparkSession.builder.remote(url)).getOrCreate()
    register(spark)
    found: dict[str, Any] = {}

    there = {"contact": to, "stone": "rows"}
    sink = {"contact": source, "stone": "rows"}
    frame = spark.range(0, ROWS, 1, 2).selectExpr("id", "cast(id as string) as text")
    frame.write.format("evflow").options(**there).mode("append").save()

    read = spark.read.format("evflow").options(**sink).load()
    found["read"] = sorted(row.seq for row in read.collect())
    stream = spark.readStream.format("evflow").options(**sink).load().selectExpr("seq as id", "'s' as text")
    query = stream.writeStream.format("evflow").options(**there, checkpointLocation=f"{folder}/checkpoint")
    query.trigger(availableNow=True).start().awaitTermination()

    events = spark.range(20).selectExpr("id", "cast(id as double) as x", "0.0 as y", "id % 3 as kind")
    texts = [(1, "kind == 1 and x < 10"), (2, "kind == 2"), (3, "kind == 7")]
    pairs = match(events, spark.createDataFrame(texts, "id long, subscription string"))
    found["pairs"] = sorted([row.id, row.subscription] for row in pairs.collect())
    areas = spark.createDataFrame([(4, 2.0, 0.0, 1.5)], "id long, x double, y double, radius double")
    divided = match(events, areas, plan="tiles", partitions=2)
    found["tiles"] = sorted([row.id, row.subscription] for row in divided.collect())
    moves = events.selectExpr("id % 2 id", "id time", "x / 1000 latitude", "y longitude")
    places = areas.selectExpr("id", "x / 1000 latitude", "y longitude", "200d radius")
    left = tiles(moves, places, events=["leave"], slices=2)
    found["left"] = sorted([row.pub, row.pub_time, row.sub] for row in left.collect())

    class Row(ev.Event):
        id: int
        text: str

    odd = ev.Graph("odd")
    odd.source("rows", Row) >> ev.Filter("input.id % 2 == 1")
    found["odd"] = sorted(row.id for row in apply(frame, odd).collect())

    seen: list[int] = []
    graph = ev.Graph("fed")
    fed = graph.add(ev.SparkSource(frame, Row))
    fed >> ev.Terminal(lambda batch: seen.extend(batch["id"].tolist()), batch=True)
    with graph.run() as flow:
        flow.drain(60)
    found["fed"] = sorted(seen)
    print(json.dumps(found), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
