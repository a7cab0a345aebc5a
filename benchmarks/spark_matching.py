"""Matching on Spark beside what it cannot be quicker than, and beside Spark SQL.

    python benchmarks/spark_matching.py                      10 million events: some ten minutes
    python benchmarks/spark_matching.py --events 1000000
    python benchmarks/spark_matching.py --break-even         where match and Spark SQL cost the same

CPU is that of all processes: this one, Java, and Python's workers. Each case runs once to warm up. The floor
is what must be paid anyhow: the events through an empty ``mapInArrow``, and the engine alone on the same
events. Told are three: with a ``mapInArrow`` that only takes its rows, with one that gives them back as they
are, and with one that gives back as many pairs as a match finds, without looking for them.
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from table import duration, markdown

from evflow.matching.matcher import Matcher
from evflow.spark.matching import index, match
from evflow.spark.matching.subscriptions import Form, read_piece
from evflow.spark.session import configure_spark_with_evflow

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SIDE = 1000.0
EVEN_CIRCLES = (200_000, 10_000, 1_000)
EVEN_MATCHES = (0.03, 0.3, 1.0, 3.0)
MATCHES = 2.4
SYMBOLS = 1_000
TAKEN, SAME = "mapInArrow that only takes the rows", "mapInArrow that gives the same rows"
PAIRS = "mapInArrow that gives as many pairs"
_NEVER = (float("inf"), float("inf"))
TICK = os.sysconf("SC_CLK_TCK")


def cpu_of_all() -> float:
    """Seconds of CPU of this process, of all beneath it, and of those of them that have ended."""
    parents: dict[int, int] = {}
    used: dict[int, float] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents[int(folder.name)] = int(fields[1])
            used[int(folder.name)] = sum(map(int, fields[11:15])) / TICK
    found, generation = used[os.getpid()], {os.getpid()}
    while generation:
        generation = {child for child, parent in parents.items() if parent in generation}
        found += sum(used[child] for child in generation)
    return found


class Bench:
    """Runs cases in turn and keeps the least of each.

    Attributes:
        cases: what is measured, by name.
        costs: CPU and wall seconds by name; infinite for what did not end in time.
    """

    def __init__(self, spark: SparkSession, rounds: int, patience: float) -> None:
        self.spark, self.rounds, self.patience = spark, rounds, patience
        self.cases: dict[str, Callable[[], object]] = {}
        self.costs: dict[str, tuple[float, float]] = {}

    def run(self) -> None:
        """Measures the cases: Java is warmer with each round, so all are in each."""
        self.costs = {}
        for number in range(self.rounds + 1):
            for name, work in self.cases.items():
                if self.costs.get(name) != _NEVER:
                    cost = self._cost(work)
                    old = self.costs.get(name, cost)
                    # The first round warms up.
                    best = min(old[0], cost[0]), min(old[1], cost[1])
                    self.costs[name] = cost if cost == _NEVER or number < 2 else best
        for name, (cpu, _) in self.costs.items():
            print(f"  {name}: {cpu:.1f} s of CPU", file=sys.stderr, flush=True)

    def _cost(self, work: Callable[[], object]) -> tuple[float, float]:
        cpu, wall = cpu_of_all(), time.perf_counter()
        ended = self._in_time(work)
        return (cpu_of_all() - cpu, time.perf_counter() - wall) if ended else _NEVER

    def _in_time(self, work: Callable[[], object]) -> bool:
        late = threading.Timer(self.patience, self.spark.sparkContext.cancelAllJobs)
        start = time.perf_counter()
        late.start()
        try:
            work()
        except Exception:
            if time.perf_counter() - start < self.patience:
                raise
            return False
        finally:
            late.cancel()
        return True


def save(rows: DataFrame) -> None:
    """Makes all rows, for nobody."""
    rows.write.format("noop").mode("overwrite").save()


def nothing(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for _ in batches:
        pass
    return iter(())


def same(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return batches


def pairs(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """So many as matches are found, of the rows' own ids."""
    for batch in batches:
        ids = np.resize(batch.column("id").to_numpy(), round(MATCHES * batch.num_rows))
        yield pa.record_batch({"id": ids, "subscription": ids})


def circles(count: int, matches: float = MATCHES) -> pa.Table:
    random = np.random.default_rng(1)
    radius = np.sqrt(matches * SIDE * SIDE / count / np.pi)
    return pa.table(
        {
            "id": np.arange(count),
            "x": random.random(count) * SIDE,
            "y": random.random(count) * SIDE,
            "radius": np.full(count, radius),
        }
    )


def contents(count: int) -> tuple[pa.Table, pa.Table]:
    """Filters of a symbol, a range of prices and a least size: as columns for SQL, and as texts."""
    random = np.random.default_rng(2)
    symbol = random.integers(0, SYMBOLS, count)
    low = random.random(count)
    high = low + 2 * MATCHES * SYMBOLS / count
    size = random.random(count)
    names = np.array([f"S{number}" for number in range(SYMBOLS)])
    table = pa.table(
        {"id": np.arange(count), "symbol": names[symbol], "low": low, "high": high, "least": size}
    )
    rows = zip(names[symbol].tolist(), low.tolist(), high.tolist(), size.tolist(), strict=True)
    texts = [f"symbol == '{s}' and price >= {a!r} and price <= {b!r} and size > {c!r}" for s, a, b, c in rows]
    return table, pa.table({"id": np.arange(count), "subscription": texts})


def make_events(path: Path, count: int) -> None:
    random = np.random.default_rng(3)
    names = np.array([f"S{number}" for number in range(SYMBOLS)])
    with pq.ParquetWriter(path, schema_of_events()) as writer:
        for start in range(0, count, 1_000_000):
            n = min(1_000_000, count - start)
            columns = [np.arange(start, start + n), random.random(n) * SIDE, random.random(n) * SIDE]
            columns += [names[random.integers(0, SYMBOLS, n)], random.random(n), random.random(n)]
            writer.write_table(pa.table(dict(zip(schema_of_events().names, columns, strict=True))), 250_000)


def schema_of_events() -> pa.Schema:
    kinds = {"x": pa.float64(), "y": pa.float64(), "symbol": pa.string(), "price": pa.float64()}
    return pa.schema({"id": pa.int64(), **kinds, "size": pa.float64()})


def alone(path: Path, columns: list[str], subscriptions: Any) -> Callable[[], None]:
    """The engine by itself: batches of the size of Spark's, that are in memory."""
    matcher = Matcher()
    matcher.subscribe_many(subscriptions)
    table = pq.read_table(path, columns=columns)
    batches = table.to_batches(10_000)

    def work() -> None:
        for batch in batches:
            matcher.match_batch(batch)

    return work


def sql_on_cells(events: DataFrame, areas: DataFrame, radius: float) -> DataFrame:
    """The same join as Spark SQL does it best: circles in the cells that they touch, and a hash join."""
    from pyspark.sql import functions as F

    def cell(column: Any) -> Any:
        return F.floor(column / (2 * radius)).cast("int")

    def span(axis: str) -> Any:
        return F.explode(F.sequence(cell(F.col(axis) - F.col("radius")), cell(F.col(axis) + F.col("radius"))))

    named = areas.select(
        F.col("id").alias("subscription"), F.col("x").alias("cx"), F.col("y").alias("cy"), "radius"
    )
    spread = areas.select("id", "x", "y", "radius", span("x").alias("i")).select("*", span("y").alias("j"))
    spread = spread.select(
        *(F.col(a).alias(b) for a, b in zip(spread.columns, [*named.columns, "i", "j"], strict=True))
    )
    placed = events.select("id", "x", "y", cell(F.col("x")).alias("i"), cell(F.col("y")).alias("j"))
    near = (F.col("x") - F.col("cx")) ** 2 + (F.col("y") - F.col("cy")) ** 2 <= F.col("radius") ** 2
    return placed.join(F.broadcast(spread), ["i", "j"]).where(near).select("id", "subscription")


def sql_on_content(events: DataFrame, filters: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    named = filters.withColumnRenamed("id", "subscription")
    joined = events.join(F.broadcast(named), "symbol")
    return joined.where("price >= low and price <= high and size > least").select("id", "subscription")


def report(title: str, bench: Bench, events: int, ours: list[str], sql: str) -> None:
    """Prints the table of a workload."""
    costs = bench.costs
    floors = [costs[name][0] + costs["engine alone"][0] for name in (TAKEN, SAME, PAIRS)]
    lines = [["", "CPU an event", "wall an event", "CPU against the floors", "wall against SQL"]]
    for name, (cpu, wall) in costs.items():
        against = f"{costs[sql][1] / wall:.2f} x" if name in ours else ""
        if name == sql and cpu == float("inf"):
            lines.append([name, f"did not end in {bench.patience:.0f} s", "", "", ""])
            continue
        if name in ours and costs[sql][1] == float("inf"):
            against = f"> {bench.patience / wall:.2f} x"
        ratios = " / ".join(f"{cpu / floor:.2f}" for floor in floors)
        ratio = f"{ratios} x" if name in ours or name == sql else ""
        lines.append([name, duration(cpu / events * 1e9), duration(wall / events * 1e9), ratio, against])
    markdown(title, lines)


def floors(rows: DataFrame) -> dict[str, Callable[[], object]]:
    """What Spark takes to hand rows to Python, and to take some back."""
    return {
        TAKEN: lambda: save(rows.mapInArrow(nothing, rows.schema)),
        SAME: lambda: save(rows.mapInArrow(same, rows.schema)),
        PAIRS: lambda: save(rows.mapInArrow(pairs, "id long, subscription long")),
    }


def of_circles(bench: Bench, path: Path, count: int, tiles: bool) -> None:
    spark, areas = bench.spark, circles(count)
    events, subscriptions = spark.read.parquet(str(path)), spark.createDataFrame(areas)
    bench.cases = floors(events.select("id", "x", "y"))
    form = Form(False, ("x", "y", "radius"), False, "plane", "id")
    bench.cases["engine alone"] = alone(path, ["x", "y"], read_piece(form, areas).columns)
    plans = ["broadcast", "tiles"] if tiles else ["broadcast"]
    for plan in plans:
        matched = partial(match, events, subscriptions, plan=plan, partitions=8)
        bench.cases[f"match, {plan}"] = lambda matched=matched: save(matched())
    radius = areas["radius"][0].as_py()
    bench.cases["Spark SQL on cells"] = lambda: save(sql_on_cells(events, subscriptions, radius))
    bench.run()
    report(
        f"{count:,} circles",
        bench,
        events.count(),
        [f"match, {plan}" for plan in plans],
        "Spark SQL on cells",
    )


def of_contents(bench: Bench, path: Path, count: int, folder: Path) -> None:
    spark = bench.spark
    columns, texts = contents(count)
    pq.write_table(columns, folder / "columns.parquet")
    pq.write_table(texts, folder / "texts.parquet", row_group_size=100_000)
    filters, subscriptions = (
        spark.read.parquet(str(folder / f"{name}.parquet")) for name in ("columns", "texts")
    )
    events = spark.read.parquet(str(path))
    bench.cases = floors(events.select("id", "price", "size", "symbol"))
    columns_asked, subscribed = ["price", "size", "symbol"], texts["subscription"].to_pylist()
    bench.cases["engine alone"] = alone(path, columns_asked, subscribed)
    found = match(events, subscriptions)
    bench.cases["match, broadcast"] = lambda: save(found)
    bench.cases["Spark SQL, join on symbol"] = lambda: save(sql_on_content(events, filters))
    bench.run()
    report(f"{count:,} filters", bench, events.count(), ["match, broadcast"], "Spark SQL, join on symbol")


def break_even(bench: Bench, path: Path, folder: Path, events: int) -> None:
    """Prints what a job costs, by how many circles there are and how many of them an event is in.

    Each job reads its files anew, and the subscriptions too, unless there is an index of them. The largest
    come first, so that Java is warm where jobs are small.
    """
    spark = bench.spark
    lines = [
        ["circles", "matches an event", "Spark SQL", "`match`", "`match` with `index`", "SQL against these"]
    ]
    for count, matches in product(EVEN_CIRCLES, EVEN_MATCHES):
        file = folder / f"{count} {matches}.parquet"
        pq.write_table(circles(count, matches), file)
        frame, subscriptions = spark.read.parquet(str(path)), spark.read.parquet(str(file))
        radius = float(np.sqrt(matches * SIDE * SIDE / count / np.pi))
        known = index(subscriptions)
        bench.cases = {
            "sql": partial(lambda *given: save(sql_on_cells(*given)), frame, subscriptions, radius),
            "match": partial(lambda *given: save(match(*given)), frame, subscriptions),
            "index": partial(lambda *given: save(match(*given)), frame, known),
        }
        bench.run()
        sql, plain, prepared = (bench.costs[name][0] for name in ("sql", "match", "index"))
        costs = [f"{seconds:.2f} s" for seconds in (sql, plain, prepared)]
        lines.append([f"{count:,}", f"{matches:g}", *costs, f"{sql / plain:.2f} x / {sql / prepared:.2f} x"])
    markdown(f"CPU of a job, {events:,} events", lines)


def local_session(folder: str, cores: int) -> Any:
    """A session on this machine that knows evflow, and logs nothing.

    Args:
        folder: where Spark keeps its files.
        cores: how many it may use.
    """
    from pyspark.sql import SparkSession

    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "4g",
        "spark.sql.shuffle.partitions": str(4 * cores),
        "spark.local.dir": folder,
    }
    builder = SparkSession.builder.master(f"local[{cores}]")
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = configure_spark_with_evflow(builder).getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return spark


@click.command()
@click.option("--events", default=10_000_000, help="How many.")
@click.option("--circles", "areas", default=100_000, help="Areas without content; 0 leaves them out.")
@click.option("--filters", default=1_000_000, help="Filters with content; 0 leaves them out.")
@click.option("--rounds", default=3, help="The least of so many counts.")
@click.option("--patience", default=600.0, help="Seconds after which a case is given up.")
@click.option("--tiles/--no-tiles", default=True, help="Measure that plan too.")
@click.option("--break-even", "even", is_flag=True, help="Only where match and Spark SQL cost the same.")
@click.option("--cores", default=2)
def main(
    events: int, areas: int, filters: int, rounds: int, patience: float, tiles: bool, even: bool, cores: int
) -> None:
    """Prints what a match on Spark costs."""
    with tempfile.TemporaryDirectory() as temporary:
        spark = local_session(temporary, cores)
        path = Path(temporary, "events.parquet")
        make_events(path, events)
        bench = Bench(spark, rounds, patience)
        if even:
            break_even(bench, path, Path(temporary), events)
        elif areas:
            of_circles(bench, path, areas, tiles)
        if filters and not even:
            of_contents(bench, path, filters, Path(temporary))
        spark.stop()


if __name__ == "__main__":
    main()
