"""The most memory that Spark's Python workers and a receiver have at a time, for few rows and for many."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

import evflow as ev
from evflow.spark.matching import match
from tests.node.processes import NodeProcess
from tests.spark.long.matching import circles, events
from tests.spark.long.rows import SECONDS
from tests.spark.writes import STONE, save

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PARTS = 4
CIRCLES = 1000
MIB = 1 << 20
LIMIT = 112 * MIB
"""By how much memory may grow: half of what the second run has more, for what waits on a busy machine."""

WIDE = f"concat(id, '{'x' * 240}')"
"""SQL for most of a row; ``rpad`` would take ten times as long as all the rest."""

WARM = 20_000
"""Rows of a first run, which loads and compiles what is needed."""


class Peak:
    """The most memory that each of some processes has had since this was entered.

    Args:
        processes: gives the processes; asked again and again, for they come and go.
    """

    def __init__(self, processes: Callable[[], list[int]]) -> None:
        self._processes = processes
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.bytes = 0

    def __enter__(self) -> Peak:
        for pid in self._processes():
            try:
                # From now on the kernel notes the most anew.
                Path(f"/proc/{pid}/clear_refs").write_text("5")
            except (FileNotFoundError, ProcessLookupError):
                continue
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._thread.join()
        self._look()

    def _watch(self) -> None:
        while not self._over.wait(0.1):
            self._look()

    def _look(self) -> None:
        self.bytes = max([self.bytes, *map(most, self._processes())])


def most(pid: int) -> int:
    """The most memory that a process has had, in bytes; 0 if it is gone."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM")), 0)


def workers() -> list[int]:
    """Spark's Python processes beneath this one."""
    found = []
    for process in psutil.Process(os.getpid()).children(recursive=True):
        try:
            if "pyspark.daemon" in process.cmdline():
                found.append(process.pid)
        except psutil.Error:
            continue
    return found


def counting(seen: list[Any]) -> ev.Graph:
    """A graph that counts what comes."""
    seen.append(0)

    def count(batch: ev.EventBatch) -> None:
        seen[0] += len(batch)

    graph = ev.Graph("receiver")
    source = graph.add(ev.SparkSource(name=STONE, on="there"))
    source >> ev.Terminal(count, batch=True, on="there")
    return graph


def writing(spark: SparkSession, counts: list[int]) -> Iterator[tuple[int, int]]:
    """The most memory, in bytes, of the workers and of the receiver while so many rows of 260 bytes are
    written; always in as many partitions."""
    with NodeProcess("counting", "there", module=__name__, listen="tcp://127.0.0.1:0") as there:
        came = 0
        for count in [WARM, *counts]:
            frame = spark.range(0, count, 1, PARTS).selectExpr("id", "id * 0.5D as price", f"{WIDE} as text")
            with Peak(workers) as sending, Peak(lambda: [there.pid]) as receiving:
                save(frame, {"contact": there.contact, "stone": STONE})
                there.ask("drain", timeout=SECONDS, within=SECONDS)
            came += count
            assert there.ask("seen") == [came]
            if count != WARM:
                yield sending.bytes, receiving.bytes


def matching(spark: SparkSession, counts: list[int]) -> Iterator[int]:
    """The most memory, in bytes, of the workers while so many events are matched, which have 240 bytes of
    their own in each pair."""
    areas = circles(spark, CIRCLES).selectExpr("id", "x", "y", "radius * 4 as radius")
    for count in [WARM, *counts]:
        rows = events(spark, count, PARTS).selectExpr(f"{WIDE} as id", "x", "y")
        with Peak(workers) as working:
            match(rows, areas, plan="broadcast").write.format("noop").mode("overwrite").save()
        if count != WARM:
            yield working.bytes


def check_memory(spark: SparkSession, counts: list[int], limit: int = LIMIT) -> None:
    """Writes and matches so many rows, one count after the other, and says what it took.

    Raises:
        AssertionError: memory grew by more than ``limit`` bytes from one to the other.
    """
    senders, receivers = zip(*writing(spark, counts), strict=True)
    found = {
        "write, workers": senders,
        "write, receiver": receivers,
        "match, workers": tuple(matching(spark, counts)),
    }
    sizes = " against ".join(f"{count:,}" for count in counts)
    for what, peaks in found.items():
        told = " against ".join(f"{peak / MIB:.0f} MiB" for peak in peaks)
        print(f"memory: {what}: {told} at {sizes} rows", flush=True)
    grown = {what: peaks for what, peaks in found.items() if peaks[-1] - peaks[0] > limit}
    assert not grown, grown
