"""A driver of its own: executors are processes of their own, whose Python does not have the package.

python cluster.py MASTER TO FROM FOLDER JAVA: a contact that rows go to, one that they are read from
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

ROWS = 400_000

HELD = 160_000
"""Rows of each of two partitions before which it waits: so many that some are sent by then."""


def waiting(folder: str) -> Any:
    """Passes on a partition; the first attempt waits before its last rows, and tells that, by files."""

    def step(batches: Any) -> Any:
        import time

        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        for number, batch in enumerate(batches):
            if number == HELD // batch.num_rows and context.attemptNumber() == 0:
                Path(folder, f"waits {context.partitionId()}").touch()
                while not Path(folder, "go").exists():
                    time.sleep(0.05)
            yield batch

    return step


def hanging(batches: Any) -> Any:
    """Hangs in the first attempt of partition 0, half way through."""
    import time

    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    for number, batch in enumerate(batches):
        if context.partitionId() == 0 and context.attemptNumber() == 0 and number == 1:
            time.sleep(60)
        yield batch


def where(batches: Any) -> Any:
    """Where each executor has the package from, and its process."""
    import os

    import pyarrow as pa

    import evflow

    for _ in batches:
        continue
    yield pa.record_batch([pa.array([str(evflow.__file__)]), pa.array([os.getppid()])], names=["file", "pid"])


def failed(spark: Any) -> int:
    """How many tasks of the last job failed."""
    tracker = spark.sparkContext.statusTracker()
    stages = [
        tracker.getStageInfo(stage) for stage in tracker.getJobInfo(max(tracker.getJobIdsForGroup())).stageIds
    ]
    return sum(stage.numFailedTasks for stage in stages if stage)


def applied(spark: Any) -> list[Any]:
    """What evflow's own functions give, which register the session themselves."""
    import evflow as ev
    from evflow.spark import apply, match

    odd = ev.Graph("odd")
    odd.source("rows") >> ev.Filter("input.id % 2 == 1")
    circles = spark.createDataFrame([(4, 2.0, 0.0, 1.5)], "id long, x double, y double, radius double")
    events = apply(spark.range(0, 8, 1, 2).selectExpr("id", "cast(id as double) as x", "0.0D as y"), odd)
    return sorted(tuple(row) for row in match(events, circles, engine="reference").collect())


def streamed(spark: Any, contact: str, source: str, folder: str) -> None:
    """Has a query read what a sink holds, and write it to the node."""
    there = {"contact": contact, "stone": "rows", "checkpointLocation": str(Path(folder, "checkpoint"))}
    rows = spark.readStream.format("evflow").option("contact", source).option("stone", "rows").load()
    writer = rows.selectExpr("-seq as id").writeStream.format("evflow").options(**there)
    writer.trigger(availableNow=True).start().awaitTermination()


def main(master: str, contact: str, source: str, folder: str, java: str) -> None:
    from pyspark import cloudpickle
    from pyspark.sql import SparkSession

    from evflow.spark import configure_spark_with_evflow, register

    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    settings = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": java,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.executor.extraJavaOptions": java,
        "spark.executor.memory": "1g",
        "spark.local.dir": folder,
        "spark.speculation": "true",
        "spark.speculation.interval": "200ms",
        "spark.speculation.minTaskRuntime": "1s",
        "spark.speculation.multiplier": "1.2",
        "spark.speculation.quantile": "0.5",
        "spark.sql.warehouse.dir": str(Path(folder, "warehouse")),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    builder = SparkSession.builder.master(master)
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = configure_spark_with_evflow(builder).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    print("applied", applied(spark), flush=True)
    register(spark)
    rows = spark.range(0, 100, 1, 4).mapInArrow(where, "file string, pid long").collect()
    print("executors", *sorted({row.file for row in rows}), flush=True)
    for name, step, parts in (("killed", waiting(folder), 2), ("hung", hanging, 4)):
        print("begin", name, flush=True)
        frame = spark.range(0, ROWS, 1, parts).mapInArrow(step, "id long")
        writer = frame.write.format("evflow").option("contact", contact).option("stone", "rows")
        writer.option("jobid", name).mode("append").save()
        print("done", name, failed(spark), flush=True)
    streamed(spark, contact, source, folder)
    print("streamed", flush=True)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
