"""The node that rows go to stands still, and is killed and comes back, while a job writes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from evflow.spark.session import active_session
from tests.node.processes import NodeProcess, free_port, wait_for
from tests.spark.writes import STONE, save

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.slow

ROWS = 300_000
MODULE = "tests.spark.writes"


def slowly(pause: float) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """A step with so many seconds before each batch, in a task's first attempt."""

    def step(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        for batch in batches:
            time.sleep(pause if context.attemptNumber() == 0 else 0.0)
            yield batch

    return step


class Job(threading.Thread):
    """A write in a thread of its own; ``result`` waits for it, and raises what it raised."""

    def __init__(self, spark: SparkSession, options: dict[str, str], **more: str) -> None:
        super().__init__(daemon=True)
        self._spark, self._options, self._more = spark, options, more
        self._error: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            save(self._rows(active_session(self._spark)), self._options, **self._more)
        except BaseException as error:  # noqa: BLE001  it is raised where it is waited for
            self._error = error

    def _rows(self, spark: SparkSession) -> DataFrame:
        return spark.range(0, ROWS, 1, 2).mapInArrow(slowly(0.1), "id long")

    def result(self) -> None:
        """Waits until the job is done."""
        self.join(120)
        assert not self.is_alive()
        if self._error is not None:
            raise self._error


class ShortJob(Job):
    """A third of the rows in one task, as slowly: a task that fails gives up each row that waits."""

    def _rows(self, spark: SparkSession) -> DataFrame:
        return spark.range(0, ROWS // 3, 1, 1).mapInArrow(slowly(0.3), "id long")


@pytest.fixture
def there(tmp_path: Path) -> Iterator[NodeProcess]:
    """A process that rows come to, which keeps them in a folder."""
    contact = f"tcp://127.0.0.1:{free_port()}"
    settings = {"folder": str(tmp_path / "kept")}
    with NodeProcess("ids", "there", module=MODULE, settings=settings, listen=contact) as process:
        yield process


def options(there: NodeProcess) -> dict[str, str]:
    return {"contact": there.contact, "stone": STONE}


def taken(there: NodeProcess) -> int:
    """How many rows have come to the stone."""
    return int(there.ask("stats")[STONE]["in"])


def seen(there: NodeProcess) -> list[Any]:
    """The ids of the rows that came out."""
    there.ask("drain", timeout=30, within=40)
    return sorted(there.ask("seen"))


def largest_worker() -> int:
    """Bytes of memory of the largest of Spark's Python processes."""
    sizes = [0]
    for process in psutil.Process().children(recursive=True):
        try:
            if "pyspark.daemon" in process.cmdline():
                sizes.append(process.memory_info().rss)
        except psutil.Error:
            continue
    return max(sizes)


def test_rows_wait_in_spark_while_the_receiver_stands_still(spark: SparkSession, there: NodeProcess) -> None:
    job = Job(spark, options(there))
    wait_for(lambda: taken(there) > 50_000, "rows come", 60)
    before = largest_worker()
    there.stop()
    # Longer than it takes until the link is given up, and made again.
    time.sleep(6)
    during = largest_worker()
    there.resume()
    job.result()
    assert seen(there) == list(range(ROWS))
    assert during - before < 64 << 20


def test_receiver_that_is_killed_and_comes_back_gets_each_row_once(
    spark: SparkSession, there: NodeProcess
) -> None:
    job = Job(spark, options(there))
    wait_for(lambda: taken(there) > 50_000, "rows come", 60)
    there.kill()
    there.restart()
    job.result()
    assert seen(there) == list(range(ROWS))


def test_receiver_that_stays_away_fails_the_job_in_time(spark: SparkSession, there: NodeProcess) -> None:
    job = ShortJob(spark, options(there), timeout="0.5")
    wait_for(lambda: taken(there) > 20_000, "rows come", 60)
    there.kill()
    with pytest.raises(Exception, match=r"SparkError: .*within 0.5 s"):
        job.result()
    there.restart()
    assert seen(there) == []
    save(spark.range(10), options(there))
    assert seen(there) == list(range(10))
