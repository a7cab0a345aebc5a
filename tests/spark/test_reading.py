"""Events of a sink as DataFrames: each row once, the same ones when an epoch is run again, no silent loss."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import evflow as ev
from evflow.errors import SparkError
from evflow.spark.sink import SparkSink
from tests.node.processes import NodeProcess, free_port, wait_for
from tests.spark import sinks
from tests.spark.sinks import LEAST, SINK, Row, local, reading, rows, sending

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

pytest.importorskip("pyspark")

from pyspark.errors import PySparkException
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from evflow.spark.format.reading import BatchReader, StreamReader


class Point(ev.Event):
    x: float
    y: float


class Mixed(ev.Event):
    """Of each kind of field one, and nulls wherever they may be."""

    seq: int
    small: ev.u8
    ratio: ev.f32 | None
    flag: bool
    code: ev.Str[3]
    note: str | None
    blob: bytes
    at: Point
    maybe: Point | None
    tags: list[str]
    grid: ev.Array[ev.i32, 2]


def mixed(count: int) -> list[dict[str, Any]]:
    return [
        {
            "seq": n,
            "small": n % 256,
            "ratio": None if n % 3 == 0 else n / 4,
            "flag": n % 2 == 0,
            "code": "abc"[: n % 4],
            "note": None if n % 5 == 0 else f"nöte {n}" * (n % 3),
            "blob": bytes([n % 256]) * (n % 6),
            "at": {"x": n / 2, "y": -n / 2},
            "maybe": None if n % 7 else {"x": 0.5, "y": float(n)},
            "tags": [f"t{k}" for k in range(n % 4)],
            "grid": [n, -n],
        }
        for n in range(count)
    ]


def event_of(row: dict[str, Any]) -> Mixed:
    places = {key: row[key] and Point(**row[key]) for key in ("at", "maybe")}
    return Mixed(**{**row, **places})


def options(flow: ev.Flow | str, **more: object) -> dict[str, str]:
    contact = flow if isinstance(flow, str) else flow.node and flow.node.contact
    return {"contact": str(contact), "stone": SINK} | {key: str(value) for key, value in more.items()}


def load(spark: SparkSession, flow: ev.Flow | str, **more: object) -> DataFrame:
    return spark.read.format("evflow").options(**options(flow, **more)).load()


def submit(flow: ev.Flow, start: int, stop: int) -> None:
    flow["here"].submit_batch(rows(*range(start, stop)))
    flow.drain(10)


# --- without a session


@contextmanager
def stream_reader(flow: ev.Flow, **more: object) -> Iterator[StreamReader]:
    reader = StreamReader(options(flow, **more), None)  # type: ignore[arg-type]
    try:
        yield reader
    finally:
        reader.stop()


def test_micro_batches_end_where_limits_say() -> None:
    with local() as (flow, _), stream_reader(flow) as reader:
        submit(flow, 0, 100)
        start = reader.initialOffset()
        assert start["row"] == 0

        def ends(limit: Any, at: int = 0) -> int:
            row: int = reader.latestOffset({**start, "row": at}, limit)["row"]
            return row

        assert reader.getDefaultReadLimit() == ReadAllAvailable()
        assert (
            ends(ReadAllAvailable()) == 100
            and ends(ReadMaxRows(30)) == 30
            and ends(ReadMaxRows(30), 90) == 100
        )
        reader.prepareForTriggerAvailableNow()
        submit(flow, 100, 150)
        assert ends(ReadAllAvailable()) == 100 and ends(ReadMaxRows(5), 98) == 100
        assert reader.reportLatestOffset() == {**start, "row": 150}


def test_query_that_has_read_all_commits_so_that_a_full_sink_takes_more() -> None:
    with local(limit=LEAST) as (flow, _), stream_reader(flow) as reader:
        submit(flow, 0, LEAST // Row.schema.width + 1)
        start = reader.initialOffset()
        end = reader.latestOffset(start, ReadAllAvailable())
        assert flow.stats()[SINK]["queued"] == end["row"]
        assert reader.latestOffset(end, ReadAllAvailable()) == end
        assert flow.stats()[SINK]["queued"] == 0
        submit(flow, 0, 10)


def test_query_begins_where_it_is_told_and_is_known_by_its_name() -> None:
    with local() as (flow, asking):
        submit(flow, 0, 100)
        for told, row in (("earliest", 0), ("40", 40), ("latest", 100)):
            with stream_reader(flow, startingOffset=told, query="q") as reader:
                start = reader.initialOffset()
                assert (start["row"], start["query"]) == (row, "q")
                assert reader.latestOffset(start, ReadAllAvailable())["row"] == 100
        # The last one wants none of them.
        assert asking.range() == (100, 100)
        told = "rows 30 to 100 are not there: the sink has 100 to 100"
        with stream_reader(flow, startingOffset=30) as reader, pytest.raises(SparkError, match=told):
            reader.initialOffset()
        with stream_reader(flow) as reader, stream_reader(flow) as second:
            assert reader.initialOffset()["query"] != second.initialOffset()["query"]


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (
            {"startingOffset": "first"},
            "option 'startingOffset' 'first': expected an offset, 'earliest' or 'latest'",
        ),
        ({"partitions": "0"}, "option 'partitions' '0': expected a number of 1 or more"),
        ({"maxRowsPerTrigger": "many"}, "option 'maxRowsPerTrigger' 'many': expected a number"),
        ({"offset": "1"}, "option 'offset' is not known"),
    ],
)
def test_wrong_options_are_refused_by_name(wrong: dict[str, str], told: str) -> None:
    with pytest.raises(SparkError, match=told):
        StreamReader(options("tcp://127.0.0.1:1", **wrong), None)  # type: ignore[arg-type]


def test_wrong_options_of_a_batch_read_are_refused_by_name() -> None:
    with pytest.raises(SparkError, match="option 'from' '-1': expected an offset"):
        BatchReader(options("tcp://127.0.0.1:1") | {"from": "-1"}, None)  # type: ignore[arg-type]


# --- with a session


def test_batch_read_gives_what_was_sent_row_for_row(spark: SparkSession) -> None:
    expected = mixed(3000)
    graph = ev.Graph("mixed")
    graph.source("here", Mixed) >> SparkSink(Mixed, name=SINK, limit=1 << 20)
    with graph.run(dead_letters=0) as flow:
        flow["here"].submit_batch([event_of(row) for row in expected[:1000]])
        flow["here"].submit_batch([event_of(row) for row in expected[1000:]])
        flow.drain()
        frame = load(spark, flow, partitions=3)
        assert frame.schema.simpleString() == (
            "struct<seq:bigint,small:smallint,ratio:float,flag:boolean,code:string,note:string,blob:binary,"
            "at:struct<x:double,y:double>,maybe:struct<x:double,y:double>,tags:array<string>,grid:array<int>>"
        )
        assert frame.rdd.getNumPartitions() == 3
        found = [row.asDict(recursive=True) for row in frame.collect()]
        assert [{**row, "blob": bytes(row["blob"])} for row in found] == expected
        part = load(spark, flow, **{"from": 100, "to": 1100})
        assert part.selectExpr("count(*)", "sum(seq)").first() == (1000, sum(range(100, 1100)))
        few = spark.read.format("evflow").options(**options(flow)).schema("note string, seq bigint").load()
        assert [tuple(row) for row in few.collect()] == [(row["note"], row["seq"]) for row in expected]
        wrong = spark.read.format("evflow").options(**options(flow)).schema("seq string").load()
        with pytest.raises(
            PySparkException, match=r"column 'seq': expected bigint.* or a type that holds all"
        ):
            wrong.collect()
        assert load(spark, flow, **{"from": "latest"}).count() == 0


class Sale(ev.Event):
    price: str
    at: int
    day: ev.i32
    ratio: float
    size: ev.i32


def test_rows_are_read_with_the_types_that_hold_their_values(spark: SparkSession) -> None:
    graph = ev.Graph("sales")
    graph.source("here", Sale) >> SparkSink(Sale, name=SINK)
    with graph.run(dead_letters=0) as flow:
        flow["here"].submit_batch(
            {
                "price": ["42857.0", "9999.8571"],
                "at": [1_500_000, -1],
                "day": [1, -1],
                "ratio": [0.5, 2.0],
                "size": [7, -7],
            }
        )
        flow.drain()
        reader = spark.read.format("evflow").options(**options(flow))
        frame = reader.schema("price decimal(18,4), at timestamp, day date, size bigint, ratio double").load()
        assert frame.selectExpr("max(price)", "unix_micros(max(at))", "min(day)", "sum(size)").first() == (
            Decimal("42857.0000"),
            1_500_000,
            datetime.date(1969, 12, 31),
            0,
        )
        wrong = reader.schema("ratio timestamp").load()
        # As a cast takes numbers for seconds, whatever they are.
        with pytest.raises(PySparkException, match=r"column 'ratio': expected double.*timestamp_micros\("):
            wrong.collect()


def test_sink_of_a_dataframes_schema_gives_its_types_back(spark: SparkSession) -> None:
    sales = spark.sql(
        "select timestamp_micros(id) as at, cast(id * 10000.5 as decimal(18, 4)) as price, "
        "map('k', date '1969-12-31') as days from range(12)"
    )
    graph = ev.Graph("back")
    graph.add(ev.SparkSource(name="in")) >> ev.Split() >> SparkSink(sales.schema, name=SINK)
    # As a daemon has it.
    with ev.Graph.from_dict(graph.to_dict()).run(dead_letters=0) as flow:
        assert flow.node is not None
        writer = sales.write.format("evflow").option("contact", flow.node.contact).option("stone", "in")
        writer.mode("append").save()
        flow.drain(30)
        back = load(spark, flow)
        assert back.dtypes == sales.dtypes
        assert sorted(back.collect(), key=lambda row: row.price) == sales.collect()


def test_what_passes_to_a_sink_keeps_its_spark_type(spark: SparkSession, tmp_path: Path) -> None:
    """Of a job of the source's own, and of another program's over a bridge; also after a restart."""
    sales = spark.sql(
        "select timestamp_micros(id * 86400000000) as at, cast(id * 14285.6667 as decimal(18, 4)) as price, "
        "date_add(date '2013-01-01', cast(id as int)) as day, array(named_struct('part', 1.25BD)) as parts, "
        "id from range(4)"
    )
    asked = ("max(price)", "min(price)", "date_diff(max(at), min(at))", "min(day)", "max(parts[0].part)")
    expected = sales.selectExpr(*asked).first()
    assert expected is not None and expected[0] == Decimal("42857.0001")

    own = ev.Graph("own")
    own.add(ev.SparkSource(sales)) >> ev.Filter("1") >> SparkSink(name=SINK)
    kept = ev.Graph("kept")
    kept.add(SparkSink(path=tmp_path / "kept", name=SINK))
    with own.run(dead_letters=0) as flow, kept.run() as far:
        assert far.node is not None
        sent = ev.Graph("sent")
        sent.add(ev.SparkSource(name="in")) >> ev.Split() >> ev.Bridge(far.node.contact, SINK, input="rows")
        with sent.run() as near:
            assert near.node is not None
            writer = sales.write.format("evflow").option("contact", near.node.contact).option("stone", "in")
            writer.mode("append").save()
            near.drain(30)
        flow.drain(30)
        for back in (load(spark, flow), load(spark, far)):
            assert back.dtypes == sales.dtypes
            assert back.selectExpr(*asked).first() == expected
            assert sorted(back.collect()) == sorted(sales.collect())
    with kept.run() as far:
        assert load(spark, far).selectExpr(*asked).first() == expected
        # What a program says it wants is what it gets.
        texts = spark.read.format("evflow").options(**options(far)).schema("price string, at bigint").load()
        assert texts.selectExpr("max(price)", "max(at)").first() == ("42857.0001", 3 * 86_400_000_000)


class Seen:
    """Calls of ``foreachBatch``: the epoch and the numbers of its rows; one of them may fail."""

    def __init__(self, fails: int | None = None) -> None:
        self.epochs: list[tuple[int, list[int]]] = []
        self._fails = fails

    def __call__(self, frame: DataFrame, epoch: int) -> None:
        self.epochs.append((epoch, [row.seq for row in frame.collect()]))
        if epoch == self._fails:
            self._fails = None
            raise RuntimeError("the consumer has failed")

    @property
    def numbers(self) -> list[int]:
        """The numbers of the last run of each epoch, in order."""
        return [n for _, numbers in sorted(dict(self.epochs).items()) for n in numbers]


def start(
    spark: SparkSession, flow: ev.Flow | str, seen: Seen, folder: Path, **more: object
) -> StreamingQuery:
    frame = spark.readStream.format("evflow").options(**options(flow, **more)).load()
    to = frame.writeStream.foreachBatch(seen).option("checkpointLocation", str(folder))
    return to.trigger(availableNow=True).start()


def test_stream_reads_each_row_once_over_a_failure_and_restarts(spark: SparkSession, tmp_path: Path) -> None:
    with local() as (flow, asking):
        submit(flow, 0, 1000)
        seen = Seen(fails=1)
        with pytest.raises(PySparkException, match="the consumer has failed"):
            start(spark, flow, seen, tmp_path, maxRowsPerTrigger=400, partitions=2).awaitTermination(60)
        # The epoch that failed has not gone, and what comes meanwhile is not a part of it.
        assert asking.range()[0] <= 400
        submit(flow, 1000, 1100)
        start(spark, flow, seen, tmp_path, maxRowsPerTrigger=400, partitions=2).awaitTermination(60)
        assert [(epoch, len(numbers)) for epoch, numbers in seen.epochs] == [
            (0, 400),
            (1, 400),
            (1, 400),
            (2, 300),
        ]
        assert seen.epochs[1] == seen.epochs[2]
        assert seen.numbers == list(range(1100))
        assert asking.range() == (1100, 1100)
        submit(flow, 1100, 1150)
        start(spark, flow, seen, tmp_path).awaitTermination(60)
        assert seen.numbers == list(range(1150))


def test_query_fails_where_rows_are_gone_or_the_sink_is_another(spark: SparkSession, tmp_path: Path) -> None:
    port = f"tcp://127.0.0.1:{free_port()}"
    graph = ev.Graph("again")
    graph.source("here", Row, on="again") >> SparkSink(Row, name=SINK, on="again")
    with graph.run(node=ev.Node("again", listen=port), dead_letters=0) as flow, reading(port) as asking:
        submit(flow, 0, 100)
        start(spark, flow, Seen(), tmp_path / "a", query="slow").awaitTermination(60)
        submit(flow, 100, 200)
        asking.range("quick", 150)
        assert asking.commit("slow", 200) == 150
        with pytest.raises(PySparkException, match=r"rows 100 to 200 are not there.* 150 to 200"):
            start(spark, flow, Seen(), tmp_path / "a", query="slow").awaitTermination(60)
    with graph.run(node=ev.Node("again", listen=port), dead_letters=0) as flow:
        submit(flow, 0, 300)
        with pytest.raises(PySparkException, match="that one was lost or deleted"):
            start(spark, flow, Seen(), tmp_path / "a", query="slow").awaitTermination(60)


def test_sink_that_dies_and_comes_back_is_read_on(spark: SparkSession, tmp_path: Path) -> None:
    contact = f"tcp://127.0.0.1:{free_port()}"
    settings = {"path": str(tmp_path / "kept"), "limit": 1 << 20}
    seen = Seen()
    with (
        NodeProcess("holding", "there", module=sinks.__name__, settings=settings, listen=contact) as there,
        sending(contact, "a").run() as sender,
    ):
        frame = spark.readStream.format("evflow").options(**options(contact)).load()
        to = frame.writeStream.foreachBatch(seen).option("checkpointLocation", str(tmp_path / "c"))
        query = to.trigger(processingTime="0 seconds").start()
        try:
            for start_at in range(0, 60_000, 20_000):
                sender["a"].submit_batch(rows(*range(start_at, start_at + 20_000)))
                if start_at:
                    there.kill()
                    there.restart()
                _wait_for_rows(query, seen, start_at + 20_000)
        finally:
            query.stop()
    assert seen.numbers == list(range(60_000))


def _wait_for_rows(query: StreamingQuery, seen: Seen, count: int) -> None:
    def are_there() -> bool:
        error = query.exception()
        if error is not None:
            raise error
        return len(seen.numbers) >= count

    wait_for(are_there, f"{count} rows", 60)
