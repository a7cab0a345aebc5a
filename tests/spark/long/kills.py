"""Jobs and queries whose receiver, executors and workers are killed; each row comes once to a third node."""

from __future__ import annotations

import os
import random
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import psutil
from numpy.typing import NDArray

import evflow as ev
from tests.node.processes import NodeProcess, free_port, running
from tests.spark.writes import STONE, save

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BEAT = 0.2
ROWS = 400_000
"""Rows of a job, or of the files that come at a time."""

PARTS = 4
FILES = 8
LONGEST = 2.5
"""Seconds between two kills at most."""

ATTEMPTS = 50
"""How often a job or query is tried."""

VICTIMS = ("receiver", "executor", "worker")
"""Not Python processes of the driver: if the one dies that looks for formats, its session never has any."""


class Counts:
    """How often each row came."""

    def __init__(self) -> None:
        self._of: NDArray[np.uint16] = np.zeros(0, np.uint16)

    def note(self, batch: ev.EventBatch) -> None:
        """For a terminal."""
        ids = batch["id"].astype(np.int64)
        more = int(ids.max()) + 1 - len(self._of)
        if more > 0:
            self._of = np.concatenate([self._of, np.zeros(more, np.uint16)])
        np.add.at(self._of, ids, 1)

    def verdict(self, count: int) -> tuple[int, int]:
        """How many of so many rows did not come, and how many came more than once or should not be."""
        missing = int((self._of[:count] == 0).sum()) + max(0, count - len(self._of))
        return missing, int((self._of[:count] > 1).sum()) + int((self._of[count:] > 0).sum())


class Number(ev.Event):
    """A row."""

    id: int


def relayed(seen: Any, folder: str | None = None) -> ev.Graph:
    """A Spark source on one node, whose rows go to a terminal on another."""
    graph = ev.Graph("relayed")
    source = ev.SparkSource(Number, folder=folder, name=STONE, on="middle")
    note = seen.note if isinstance(seen, Counts) else print
    graph.add(source) >> ev.Terminal(note, batch=True, name="end", on="last")
    return graph


@contextmanager
def overlay(folder: Path) -> Iterator[tuple[Counts, NodeProcess]]:
    """What comes to the last node, which is here, and the process before it, which may be killed."""
    counts = Counts()
    last = ev.Node("last", listen="tcp://127.0.0.1:0", heartbeat=BEAT)
    with (
        running(relayed(counts), last),
        NodeProcess(
            "relayed", "middle", module=__name__, settings={"folder": str(folder / "kept")},
            listen=f"tcp://127.0.0.1:{free_port()}", peers={"last": last.contact}, heartbeat=BEAT,
        ) as middle,
    ):  # fmt: skip
        yield counts, middle


class Killing(threading.Thread):
    """Kills one process or another at random moments.

    Attributes:
        done: how many of each kind were killed.
        over: it kills no more.
    """

    def __init__(self, middle: NodeProcess, seed: int, kills: int) -> None:
        super().__init__(daemon=True)
        self._middle, self._random, self._kills = middle, random.Random(seed), kills
        self.done = dict.fromkeys(VICTIMS, 0)
        self.over = threading.Event()

    def run(self) -> None:
        try:
            while sum(self.done.values()) < self._kills:
                time.sleep(self._random.uniform(0.2, LONGEST))
                kind = self._random.choice(list(self.done))
                self.done[kind] += self._kill(kind)
        finally:
            self.over.set()

    def _kill(self, kind: str) -> int:
        """Kills one of a kind; 0 if there is none."""
        if kind == "receiver":
            self._middle.kill()
            time.sleep(self._random.uniform(0, 0.5))
            self._middle.restart()
            return 1
        found = _beneath(os.getpid(), "CoarseGrainedExecutorBackend")
        if kind == "worker":
            found = [pid for executor in found for pid in _beneath(executor, "pyspark.daemon")]
        try:
            os.kill(self._random.choice(found), signal.SIGKILL)
        except (IndexError, ProcessLookupError):
            return 0
        return 1


def _beneath(parent: int, word: str) -> list[int]:
    """Processes beneath another one that have a word in their command."""
    found = []
    try:
        for process in psutil.Process(parent).children(recursive=True):
            with suppress(psutil.Error):
                if any(word in part for part in process.cmdline()):
                    found.append(process.pid)
    except psutil.NoSuchProcess:
        return []
    return sorted(found)


def slowly() -> Callable[[Iterator[Any]], Iterator[Any]]:
    """A step that takes its time, so that there is something to kill."""

    def step(batches: Iterator[Any]) -> Iterator[Any]:
        import time

        for batch in batches:
            time.sleep(0.05)
            yield batch

    return step


def again(work: Callable[[], object]) -> int:
    """Does work as often as it takes, as whoever runs jobs would; returns how often it failed."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    for failed in range(ATTEMPTS):
        try:
            work()
            return failed
        except (PySparkException, Py4JError) as error:
            if failed == ATTEMPTS - 1:
                # Its text is asked of Spark, which is gone further up.
                raise AssertionError(f"it failed {ATTEMPTS} times, the last time since {error}") from None
            time.sleep(0.5)
    return ATTEMPTS


def jobs(spark: SparkSession, folder: Path, options: dict[str, str], number: int) -> int:
    """A batch job of its own name; returns how often it had to be run again."""

    def once() -> None:
        frame = spark.range(number * ROWS, (number + 1) * ROWS, 1, PARTS).mapInArrow(slowly(), "id long")
        save(frame, options, jobid=f"job {number}")

    return again(once)


def queries(spark: SparkSession, folder: Path, options: dict[str, str], number: int) -> int:
    """Files come, and a query goes on from its checkpoint; returns how often it had to be started again."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    inbox, checkpoint = folder / "inbox", folder / "checkpoint"
    inbox.mkdir(exist_ok=True)
    each = ROWS // FILES
    for first in range(number * ROWS, (number + 1) * ROWS, each):
        made = folder / "made.parquet"
        pq.write_table(pa.table({"id": np.arange(first, first + each)}), made)
        made.rename(inbox / f"{first:012}.parquet")

    def once() -> None:
        reader = spark.readStream.schema("id long").option("maxFilesPerTrigger", 2)
        rows: DataFrame = reader.parquet(str(inbox)).repartition(PARTS).mapInArrow(slowly(), "id long")
        writer = rows.writeStream.format("evflow").options(**options)
        query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
        query.awaitTermination()

    return again(once)


def check_kills(spark: SparkSession, parent: Path, seed: int, kills: int) -> None:
    """Runs batch jobs, and then a streaming query, until so many processes were killed in each.

    Raises:
        AssertionError: a row did not come to the last node, or came twice.
    """
    for what, run in {"batch jobs": jobs, "a query": queries}.items():
        start = time.monotonic()
        with tempfile.TemporaryDirectory(dir=parent) as folder, overlay(Path(folder)) as (counts, middle):
            # It listens there again when it is started again.
            options = {"contact": middle.contact, "stone": STONE}
            killing = Killing(middle, seed, kills)
            killing.start()
            number = failed = 0
            while number == 0 or not killing.over.is_set():
                failed += run(spark, Path(folder), options, number)
                number += 1
            killing.join()
            middle.ask("drain", timeout=120, within=130)
            missing, twice = counts.verdict(number * ROWS)
        killed = ", ".join(f"{count} {kind}s" for kind, count in killing.done.items())
        print(
            f"kills: seed {seed}: {what}, {number * ROWS:,} rows in {number} parts, {failed} run again; "
            f"killed: {killed}; {missing} rows missing, {twice} too often; {time.monotonic() - start:.0f} s",
            flush=True,
        )
        assert not missing and not twice, f"again: python -m tests.spark --only kills --seed {seed} --seeds 1"
