"""Spark at full size, as a command: 10 million rows, memory, kills; see ``docs/testing.md``."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tests.spark import setting

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RUNS = ("rows", "sink", "matching", "memory", "kills")


@contextmanager
def session(folder: Path, **settings: str) -> Iterator[SparkSession]:
    """A session of its own, which leaves nothing behind."""
    made = setting.session("-XX:+UseSerialGC", folder, **settings)
    # What fails on purpose would fill the screen; what matters is raised.
    made.sparkContext.setLogLevel("OFF")
    try:
        yield made
    finally:
        setting.stop(made)


def kills(folder: Path, seeds: range, count: int) -> None:
    """Kills on executors that are processes of their own."""
    from tests.spark.long.kills import check_kills

    settings = {
        "spark__deploy__maxExecutorRetries": "-1",
        "spark__executor__extraJavaOptions": "-XX:+UseSerialGC",
        "spark__executor__memory": "1g",
        "spark__master": "local-cluster[2,1,1024]",
        # What is killed on purpose is not to fail a job all the time.
        "spark__task__maxFailures": "8",
    }
    with session(folder, **settings) as spark:
        for seed in seeds:
            check_kills(spark, folder, seed, count)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.spark", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=RUNS, default=list(RUNS), help="some of the runs")
    parser.add_argument(
        "--rows", type=int, default=10_000_000, help="rows or events; for memory a tenth, too"
    )
    parser.add_argument(
        "--kills", type=int, default=15, help="kills in the batch jobs of a seed, and in its query"
    )
    parser.add_argument("--seed", type=int, default=0, help="the first of the kills; each has the next one")
    parser.add_argument("--seeds", type=int, default=3, help="how many such seeds")
    given = parser.parse_args()
    start = time.monotonic()
    with setting.environment(), tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        if set(given.only) - {"kills"}:
            with session(folder, spark__driver__memory="2g") as spark:
                for name, check in checks(given.rows).items():
                    if name in given.only:
                        check(spark)
        if "kills" in given.only:
            kills(folder, range(given.seed, given.seed + given.seeds), given.kills)
    print(f"{', '.join(given.only)}: all as it should be, {time.monotonic() - start:.0f} s")
    return 0


def checks(rows: int) -> dict[str, Callable[[SparkSession], None]]:
    """All runs but the kills, by name."""
    from tests.spark.long.matching import check_matching
    from tests.spark.long.memory import check_memory
    from tests.spark.long.rows import check_rows
    from tests.spark.long.sink import check_sink

    return {
        "rows": lambda spark: check_rows(spark, rows),
        "sink": lambda spark: check_sink(spark, rows),
        "matching": lambda spark: check_matching(spark, rows),
        "memory": lambda spark: check_memory(spark, [rows // 10, rows]),
    }


if __name__ == "__main__":
    sys.exit(main())
