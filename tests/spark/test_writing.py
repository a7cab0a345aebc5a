from __future__ import annotations

import datetime
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import evflow as ev
from evflow.spark.session import active_session
from tests.node.processes import wait_for
from tests.spark.writes import STONE, receiver, save

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow

EVERYTHING = (
    "id long not null, flag boolean, small short, count int, ratio float, price double, name string, "
    "raw binary, day date, at timestamp, numbers array<double>, "
    "place struct<x: double not null, label: string>"
)
NAMES = [part.split()[0] for part in EVERYTHING.split(", ")]
EPOCH = datetime.datetime(1970, 1, 1)


def row(number: int) -> tuple[Any, ...]:
    """A row of ``EVERYTHING``; every third value is null, another column in each."""
    values = (
        number,
        number % 2 == 0,
        number % 100 - 50,
        number * 1000,
        number / 4,
        number / 3,
        "naïve " * (number % 4),
        bytes(range(number % 5)),
        datetime.date(1970, 1, 1) + datetime.timedelta(days=number),
        EPOCH + datetime.timedelta(microseconds=number * 1_000_003),
        [float(n) for n in range(number % 3)],
        (number / 2, None if number % 2 else f"p{number}"),
    )
    return tuple(None if at and (number + at) % 3 == 0 else value for at, value in enumerate(values))


def plain(event: Any) -> tuple[Any, ...]:
    """An event as ``row`` has it, but for days and microseconds."""
    return (
        *(getattr(event, name) for name in NAMES[:10]),
        None if event.numbers is None else list(event.numbers),
        None if event.place is None else (event.place.x, event.place.label),
    )


def expected(number: int) -> tuple[Any, ...]:
    """What ``plain`` gives for a row, worked out from its values."""
    values = list(row(number))
    if values[8] is not None:
        values[8] = (values[8] - EPOCH.date()).days
    if values[9] is not None:
        values[9] = (values[9] - EPOCH) // datetime.timedelta(microseconds=1)
    return tuple(values)


def test_write_delivers_every_row_in_order_with_types_nulls_and_empty_partitions(spark: SparkSession) -> None:
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    frame = (
        spark.createDataFrame([row(n) for n in range(1, 41)], EVERYTHING).coalesce(2).repartition(3, "flag")
    )
    order = [one.id for one in frame.select("id").collect()]
    with receiver() as there:
        save(frame, there.options)
        there.flow.drain(30)
        events = [plain(event) for batch in there.batches for event in batch]
    assert [event[0] for event in events] == order
    assert sorted(events) == sorted(expected(n) for n in range(1, 41))


class Trade(ev.Event):
    symbol: ev.Str[4]
    id: int
    venue: str = "none"


def test_write_converts_to_the_schema_of_the_stone_and_refuses_what_does_not_fit(spark: SparkSession) -> None:
    rows = spark.range(0, 20, 1, 2).selectExpr("cast(id as int) id", "cast(id as string) symbol", "1 extra")
    with receiver(Trade) as there:
        save(rows, there.options)
        assert there.column("id") == list(range(20))
        assert there.column("symbol") == [str(n) for n in range(20)]
        assert there.column("venue") == ["none"] * 20
        before = jobs(spark)
        with pytest.raises(Exception, match=r"SchemaError: .*symbol"):
            save(rows.drop("symbol"), there.options)
        with pytest.raises(Exception, match=r"SchemaError: .*id"):
            save(rows.selectExpr("array(id) id", "symbol"), there.options)
        assert jobs(spark) == before
        assert len(there.column("id")) == 20


def jobs(spark: SparkSession) -> int:
    """The number of Spark jobs so far."""
    return len(spark.sparkContext.statusTracker().getJobIdsForGroup(None))


def test_write_that_cannot_work_fails_before_any_task(spark: SparkSession) -> None:
    rows = spark.range(3)
    with receiver() as there:
        before = jobs(spark)
        with pytest.raises(Exception, match="FlowError: there is no stone 'other'"):
            save(rows, there.options, stone="other")
        with pytest.raises(Exception, match=r"SparkError: option 'contact'.*is the overlay running"):
            save(rows, there.options, contact="tcp://127.0.0.1:1", timeout="0.5")
        with pytest.raises(Exception, match="SparkError: option 'stoen' is not known"):
            save(rows, there.options, stoen="x")
        with pytest.raises(Exception, match="SparkError: events that were sent cannot be replaced"):
            rows.write.format("evflow").options(**there.options).mode("overwrite").save()
        with pytest.raises(Exception, match='cannot be written in the "ErrorIfExists" mode'):
            rows.write.format("evflow").options(**there.options).save()
        assert jobs(spark) == before


def failing_once(folder: str, fails: int) -> Any:
    """A step that fails in its first attempts in partition 1, after it has passed on a batch."""

    def step(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        Path(folder, f"{context.partitionId()}-{context.attemptNumber()}").touch()
        for number, batch in enumerate(batches):
            if context.partitionId() == 1 and context.attemptNumber() < fails and number == 2:
                raise RuntimeError("planned failure")
            yield batch

    return step


def test_task_that_fails_is_retried_and_each_row_comes_once(spark: SparkSession, tmp_path: Path) -> None:
    rows = spark.range(0, 60_000, 1, 2).mapInArrow(failing_once(str(tmp_path), 2), "id long")
    with receiver() as there:
        save(rows, there.options)
        assert there.column("id") == list(range(60_000))
    assert {path.name for path in tmp_path.iterdir()} == {"0-0", "1-0", "1-1", "1-2"}


def test_job_that_fails_leaves_nothing_and_says_why(spark: SparkSession, tmp_path: Path) -> None:
    landed = tmp_path / "landed"
    rows = spark.range(0, 60_000, 1, 2).mapInArrow(failing_once(str(tmp_path), 4), "id long")
    with receiver(folder=landed) as there:
        with pytest.raises(Exception, match="planned failure"):
            save(rows, there.options)
        wait_for(lambda: there.flow.attributes(STONE)["landed"] == 0, "nothing has landed")
        assert there.column("id") == []
        # What is written next is not held up by it.
        save(spark.range(5), there.options)
        assert there.column("id") == list(range(5))


def test_job_that_was_committed_sends_nothing_again(spark: SparkSession) -> None:
    with receiver() as there:
        save(spark.range(0, 1000, 1, 2), there.options, jobid="nightly")
        taken = there.flow.stats()[STONE]["in"]
        save(spark.range(0, 1000, 1, 2), there.options, jobid="nightly")
        assert there.column("id") == list(range(1000))
        assert there.flow.stats()[STONE]["in"] == taken == 1000
        save(spark.range(0, 1000, 1, 2), there.options, jobid="the next night")
        assert there.column("id") == [*range(1000), *range(1000)]


def test_other_threads_write_at_the_same_time(spark: SparkSession) -> None:
    def job(start: int) -> None:
        save(active_session(spark).range(start, start + 500, 1, 2), there.options)

    with receiver() as there:
        threads = [threading.Thread(target=job, args=(start,)) for start in (0, 1000)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert sorted(there.column("id")) == [*range(500), *range(1000, 1500)]
