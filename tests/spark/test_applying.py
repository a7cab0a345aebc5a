"""Graphs over DataFrames give what the same sums give in plain Python and pandas."""

from __future__ import annotations

import logging
import pickle
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import evflow as ev
from evflow.errors import SparkError
from evflow.spark.applying import Program, apply, run_task

pa = pytest.importorskip("pyarrow")

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Trade(ev.Event):
    symbol: ev.Str[4]
    price: float
    size: int


class Deal(ev.Event):
    symbol: ev.Str[4]
    value: float
    kind: int


def chain() -> ev.Graph:
    g = ev.Graph("deals")
    fair = g.source("trades", Trade) >> ev.Filter("input.price > 1.0")
    size = fair >> ev.Router("return input.size > 2 ? 2 : input.size > 1;")
    rows = ev.Split(name="rows")
    for port in (0, 1):
        deal = f"output.symbol = input.symbol; output.value = input.price * input.size; output.kind = {port};"
        size[port] >> ev.Transform(f"{deal} return 1;", output=Deal) >> rows
    return g


def expected_of_chain(rows: Iterable[tuple[str, float, int]]) -> list[tuple[str, float, int]]:
    return [(s, price * size, int(size > 1)) for s, price, size in rows if price > 1.0 and size <= 2]


def tables(program: Program, batches: list[list[dict[str, Any]]], schema: Any = None) -> list[dict[str, Any]]:
    given = (pa.RecordBatch.from_pylist(rows, schema) for rows in batches)
    return [row for batch in run_task(program, given) for row in batch.to_pylist()]


TRADES = pa.schema([("symbol", pa.string()), ("price", pa.float64()), ("size", pa.int64())])

trades = st.tuples(st.sampled_from(["", "IBM", "äö"]), st.sampled_from([0.5, 1.5, 3.0]), st.integers(0, 4))


@settings(deadline=None)
@given(st.lists(st.lists(trades, max_size=30), max_size=5))
def test_task_gives_what_leaves_the_open_end(batches: list[list[tuple[str, float, int]]]) -> None:
    program = pickle.loads(pickle.dumps(Program.of(chain(), Trade.schema)))
    rows = [[dict(zip(TRADES.names, row, strict=True)) for row in batch] for batch in batches]
    found = [tuple(row.values()) for row in tables(program, rows, TRADES)]
    assert Counter(found) == Counter(expected_of_chain(row for batch in batches for row in batch))
    for kind in (0, 1):
        # Events that take one way stay in order.
        one_way = [row for row in expected_of_chain(r for batch in batches for r in batch) if row[2] == kind]
        assert [row for row in found if row[2] == kind] == one_way


def test_task_gathers_small_batches() -> None:
    g = ev.Graph()
    g.source("numbers", ev.Schema("n", {"n": int})) >> ev.Filter("input.n % 100 == 0")
    program = Program.of(g, ev.Schema("n", {"n": int}))
    given = (pa.record_batch({"n": range(first, first + 1000)}) for first in range(0, 30_000, 1000))
    left = list(run_task(program, given))
    assert [batch.num_rows for batch in left] == [300]
    assert left[0].column(0).to_pylist() == list(range(0, 30_000, 100))


def test_statics_and_queues_begin_anew_in_each_task() -> None:
    class Pair(ev.Event):
        first: int
        second: int

    number = ev.Schema("number", {"n": int})
    pairs = """{
        static int seen;
        seen++;
        if (count(numbers) == 2) {
            out.first = numbers[0].n; out.second = numbers[1].n + 100 * seen;
            discard(numbers, 0); discard(numbers, 0);
            submit(0, out);
        }
    }"""
    g = ev.Graph()
    g.source("numbers", number) >> ev.Queue(pairs, inputs={"numbers": number}, outputs={"out": Pair})
    with pytest.raises(ev.GraphError, match=r"but Pair, number leave stone 'queue'; say which .* output="):
        Program.of(g, number)
    with pytest.raises(ev.GraphError, match=r"output=Deal: Pair, number leave stone 'queue', and no such"):
        Program.of(g, number, output=Deal.schema)
    program = Program.of(g, number, output=Pair.schema)
    batches = [[{"n": 1}, {"n": 2}], [{"n": 3}], [{"n": 4}, {"n": 5}]]
    expected = [{"first": 1, "second": 202}, {"first": 3, "second": 404}]
    assert tables(program, batches) == tables(program, batches) == expected


def test_match_stone_adds_its_field() -> None:
    pytest.importorskip("numba")
    g = ev.Graph()
    g.source("trades", Trade) >> ev.Match(["price > 2", "symbol == 'IBM'"], engine="reference", field="who")
    rows = [("IBM", 3.0, 1), ("IBM", 1.0, 2), ("SAP", 1.0, 3), ("SAP", 2.5, 4)]
    found = tables(
        Program.of(g, Trade.schema), [[dict(zip(TRADES.names, row, strict=True)) for row in rows]], TRADES
    )
    assert [(row["size"], list(row["who"])) for row in found] == [(1, [0, 1]), (2, [1]), (4, [0])]


def inverse(faults: str) -> Program:
    g = ev.Graph()
    inverted = ev.Transform("output.i = 12 / input.n; return 1;", output=ev.Schema("inverse", {"i": int}))
    inverted.name = "inverse"
    g.source("numbers", ev.Schema("number", {"n": int})) >> inverted
    return Program.of(g, ev.Schema("number", {"n": int}), faults)


def test_fault_ends_the_task_and_names_stone_event_and_reason() -> None:
    with pytest.raises(
        SparkError, match=r"stone 'inverse' gave up number\(n=0\): integer division by zero.*faults='drop'"
    ):
        tables(inverse("fail"), [[{"n": 1}], [{"n": 2}, {"n": 0}]])


def test_dropped_faults_are_left_out_and_told_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "evflow.spark"):
        left = tables(inverse("drop"), [[{"n": 1}, {"n": 0}], [{"n": 0}, {"n": 4}]])
    assert left == [{"i": 12}, {"i": 3}]
    told = [record for record in caplog.records if record.name.startswith("evflow.spark")]
    assert [record.getMessage() for record in told] == [
        "apply: 2 events were given up (2 at 'inverse'); the first: stone 'inverse' gave up number(n=0): "
        "integer division by zero (line 1)"
    ]


def linked(*stones: ev.Stone) -> ev.Graph:
    g = ev.Graph("g")
    end = g.source("in", Trade)
    for stone in stones:
        end = end >> stone
    return g


def two_ends() -> ev.Graph:
    g = linked(ev.Filter("1", name="a"))
    g["in"] >> ev.Filter("1", name="b")
    return g


def two_sources() -> ev.Graph:
    g = linked(ev.Split(name="all"))
    g.source("more", Trade) >> g["all"]
    return g


def two_schemas() -> ev.Graph:
    g = linked(ev.Split(name="all"), ev.Transform("return 1;", output=Deal), ev.Split(name="rows"))
    g["all"] >> g["rows"]
    return g


def ruled() -> ev.Graph:
    g = linked(ev.Filter("{ reconfigure(1); return 1; }", name="asks"))
    g.when("asks", 1, freeze=["asks"])
    return g


@pytest.mark.parametrize(
    ("graph", "said"),
    [
        (ev.Graph("g"), "expected one source, for the rows; found none"),
        (two_sources(), "expected one source, for the rows; found 'in', 'more'"),
        (two_ends(), "expected one stone that leads nowhere.*found 'a', 'b'; several become one.*Split"),
        (
            two_schemas(),
            "rows have one schema, but Deal, Trade leave stone 'rows'|Trade, Deal leave stone 'rows'",
        ),
        (
            linked(ev.Terminal(print)),
            r"stone 'terminal' \(terminal\) cannot run in a Spark task: its handler",
        ),
        (linked(ev.Storage(3)), r"stone 'storage' \(storage\) cannot run in a Spark task: it holds events"),
        (
            linked(ev.Bridge("tcp://127.0.0.1:1", "x")),
            r"stone 'bridge' \(bridge\) cannot run .* needs a node; write the rows with df\.write",
        ),
        (
            linked(ev.Match(["a > 1"], track="a")),
            r"stone 'match' \(match\) cannot run .* a task sees only some .* the same a, and in no order",
        ),
        (
            linked(ev.Match(["a > 1"], path="kept")),
            r"stone 'match' \(match\) cannot run .* file kept.*leave path=",
        ),
        (ruled(), r"a task cannot reconfigure itself"),
        (linked(ev.Filter("input.prize > 1")), "prize"),
    ],
)
def test_graph_that_cannot_run_in_a_task_is_refused(graph: ev.Graph, said: str) -> None:
    with pytest.raises((ev.GraphError, ev.CodeError), match=said):
        Program.of(graph, Trade.schema)


def test_graph_with_a_generator_or_a_source_of_two_schemas_is_refused() -> None:
    g = ev.Graph()
    g.source("in", Trade, Deal) >> ev.Split(name="rows")
    with pytest.raises(ev.GraphError, match="source 'in' declares Trade, Deal; expected one schema"):
        Program.of(g, Trade.schema)
    g.add(ev.Generator("return 1;", output=Trade, period=1.0, name="ticks")) >> g["rows"]
    with pytest.raises(ev.GraphError, match="it makes events on a period"):
        Program.of(g, Trade.schema)


def odd(input: Any) -> bool:
    return input.n % 2 == 1


@pytest.mark.slow
def test_apply_runs_in_executors_as_pandas_would(spark: SparkSession) -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"n": range(3000)})
    frame = frame.assign(symbol=frame.n.mod(7).map("s{}".format), price=frame.n / 1000, size=frame.n.mod(4))
    rows = spark.createDataFrame(frame)
    # Some partitions are empty.
    df = rows.repartitionByRange(3, "n").union(rows.where("n < 0"))
    df.createOrReplaceTempView("applied")

    found = apply(df, chain()).groupBy("symbol", "kind").sum("value").collect()
    kept = frame[(frame.price > 1.0) & (frame["size"] <= 2)]
    kept = kept.assign(value=kept.price * kept["size"], kind=(kept["size"] > 1).astype(int))
    expected = kept.groupby(["symbol", "kind"]).value.sum().to_dict()
    assert {(row[0], row[1]): pytest.approx(row[2]) for row in found} == expected

    whole = ev.Graph()
    whole.source("rows") >> ev.Filter(odd)
    passed = apply(spark.table("applied"), whole)
    assert passed.columns == ["n", "symbol", "price", "size"]
    assert sorted(tuple(row) for row in passed.collect()) == [
        tuple(row) for row in frame[frame.n % 2 == 1].itertuples(index=False)
    ]


@pytest.mark.slow
def test_apply_refuses_rows_that_do_not_fit_and_fails_with_the_reason(spark: SparkSession) -> None:
    df = spark.range(4).selectExpr("id as n", "'x' as other")
    with pytest.raises(ev.SchemaError, match=r"apply: the rows do not fit source 'in'.*symbol"):
        apply(df, linked(ev.Filter("1")))
    with pytest.raises(SparkError, match="faults='keep': expected one of fail, drop"):
        apply(df, linked(ev.Filter("1")), faults="keep")
    g = ev.Graph()
    g.source("numbers", ev.Schema("number", {"n": int})) >> ev.Filter("12 / input.n", name="inverse")
    with pytest.raises(Exception, match=r"SparkError: apply: stone 'inverse' gave up number\(n=0\)"):
        apply(df, g).collect()
    assert [row.n for row in apply(df, g, faults="drop").collect()] == [1, 2, 3]


class Leg(ev.Event):
    at: int
    price: str


@pytest.mark.parametrize(
    ("stones", "unchanged"),
    [
        ([ev.Filter("1"), ev.Split()], True),
        ([ev.Transform("return 1;", output=Leg)], True),
        ([ev.Match(["at > 1"], engine="reference", field="who"), ev.Filter("1")], True),
        ([ev.Transform("return 1;", output=Deal)], False),
        ([ev.Transform("return 1;", output=Deal), ev.Match(["kind > 1"], engine="reference")], False),
    ],
    ids=lambda value: str(value)[:40],
)
def test_program_says_whether_fields_leave_as_they_entered(stones: list[ev.Stone], unchanged: bool) -> None:
    g = ev.Graph("g")
    end = g.source("in", Leg)
    for stone in stones:
        end = end >> stone
    assert Program.of(g, Leg.schema).unchanged is unchanged


TYPED = """select timestamp '2013-01-01 00:00:00.000001 UTC' + make_dt_interval(id) as at,
    cast(if(id = 1, null, id * 14285.6667) as decimal(18, 4)) as price,
    date_add(date '2013-01-01', id) as day,
    timestamp_ntz '1960-01-01 00:00:00.25' as local, make_dt_interval(id) as wait, time '12:30:00.5' as noon,
    map('k', cast(id as decimal(9, 2))) as sums, array(date '1969-12-31') as days,
    struct(timestamp '1969-12-31 23:59:59 UTC' as at) as inner from range(4)"""


@pytest.mark.slow
def test_what_passes_keeps_its_spark_type_and_value(spark: SparkSession) -> None:
    typed = spark.sql(TYPED.replace("id)", "cast(id as int))"))
    whole = ev.Graph()
    whole.source("rows") >> ev.Filter("1")
    passed = apply(typed, whole)
    assert [(f.name, f.dataType.simpleString()) for f in passed.schema] == [
        (f.name, f.dataType.simpleString()) for f in typed.schema
    ]
    assert passed.collect() == typed.collect()
    # As numbers: in the order of texts 9999.8571 would be the greatest.
    most = typed.selectExpr("max(price)", "date_diff(max(at), min(at))").first()
    assert passed.selectExpr("max(price)", "date_diff(max(at), min(at))").first() == most

    declared = ev.Graph()
    declared.source("rows", ev.Schema("leg", {"day": int, "price": str | None})) >> ev.Filter("1")
    named = apply(typed, declared)
    assert named.dtypes == [("day", "date"), ("price", "decimal(18,4)")]
    assert named.collect() == typed.select("day", "price").collect()
    upper = typed.select(typed.day.alias("DAY"), typed.price.alias("Price"))
    assert apply(upper, declared).collect() == named.collect()

    class Seconds(ev.Event):
        at: int

    made = ev.Graph()
    made.source("rows") >> ev.Transform(
        "output.at = input.at / 1000000; return 1;",
        output=Seconds,
        input=ev.Schema("row", {"at": int | None}),
    )
    assert apply(typed.select("at"), made).dtypes == [("at", "bigint")]
