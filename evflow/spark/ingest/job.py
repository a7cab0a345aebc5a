"""The job that feeds a stone: a thread that has Spark read and write to the stone, and says how far it is.

The rows do not come through here. Spark's tasks send them to the stone's node by the format ``evflow``, even
if that is in the same process; this thread only starts the job, waits for it, and hears why it failed.
"""

from __future__ import annotations

import logging
import re
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from evflow.errors import EvflowError, SparkError
from evflow.schema import Schema
from evflow.spark.ingest.feed import Feed
from evflow.spark.ingest.progress import ENDED, Progress, shown
from evflow.spark.java import end_of_java
from evflow.spark.registering import register
from evflow.spark.rows import fitting
from evflow.spark.session import active_session, is_connect

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_log = logging.getLogger("evflow.spark")

_TURN = 0.2
_CANCEL_SECONDS = 0.5
_CHECKPOINT = "checkpoint"


@dataclass(frozen=True)
class Target:
    """The stone that a job writes to.

    Attributes:
        contact: of its node.
        stone: its name there.
        schema: what it takes; None for any.
        folder: where it keeps its files.
        changed: has it look at the job again; for any thread.
        count: gives the rows that have come to it, and the epochs committed; for any thread.
    """

    contact: str
    stone: str
    schema: Schema | None
    folder: Path
    changed: Callable[[], None]
    count: Callable[[], tuple[int, int]]


class Job:
    """Runs what a ``Feed`` describes; nothing happens before ``start``.

    Attributes:
        failure: why it failed; None if it did not.
    """

    def __init__(self, feed: Feed, target: Target) -> None:
        self.failure: SparkError | None = None
        self._feed = feed
        self._target = target
        self._where = f"spark source {target.stone!r}"
        self._state = "starting"
        self._began = time.time()
        self._query: StreamingQuery | None = None
        self._spark: SparkSession | None = None
        self._tag = f"evflow-{uuid.uuid4().hex}"
        self._news = threading.Event()
        self._ending = False
        self._wanted = self._reached = 0
        self._thread = threading.Thread(target=self._work, name=f"evflow job {target.stone}", daemon=True)

    def start(self) -> None:
        """Begins, in a thread of its own."""
        self._thread.start()

    @property
    def busy(self) -> str:
        """What is still to come from it, in words; "" if nothing, or nobody asked a stream for more."""
        if self._state in ENDED or (self._query is not None and self._reached >= self._wanted):
            return ""
        rows, _ = self._target.count()
        return f"its Spark job is {self._state}, {rows:,} rows so far"

    def catch_up(self) -> None:
        """From now on a stream counts as busy until it has brought what there is now."""
        self._wanted += 1
        self._news.set()

    def progress(self) -> Progress:
        """How far it is; for any thread."""
        rows, batches = self._target.count()
        error = "" if self.failure is None else str(self.failure)
        return Progress(rows, batches, self._lag(), self._state, error)

    def stop(self) -> None:
        """Has it end; returns at once."""
        self._ending = True
        self._news.set()
        if self._thread.is_alive():
            threading.Thread(target=self._cancel, name=f"{self._thread.name} end", daemon=True).start()

    def join(self, timeout: float | None = None) -> bool:
        """Waits until it has ended; returns whether it has."""
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _work(self) -> None:
        show = shown(self._target.stone, self.progress) if self._feed.progress else nullcontext()
        with show:
            try:
                self._run()
                self._state = "stopped" if self._ending else "done"
            except Exception as error:  # noqa: BLE001  whatever Spark raises, the flow has to hear of it
                self._end_with(error)
        self._target.changed()

    def _end_with(self, error: Exception) -> None:
        if self._ending:
            # What was interrupted complains.
            self._state = "stopped"
            _log.debug("%s: stopped: %s", self._where, error)
            return
        self.failure = SparkError(f"{self._where}: its Spark job failed: {reason_of(error)}")
        self.failure.__cause__ = error
        self._state = "failed"
        _log.error("%s", self.failure)

    def _run(self) -> None:
        spark = self._spark = active_session(self._feed.session())
        register(spark)
        df = self._rows(spark)
        self._state = "running"
        if self._ending:
            return
        if df.isStreaming:
            self._stream(df)
        elif self._feed.stream:
            raise SparkError("stream=True, but what it reads does not stream")
        else:
            self._save(spark, df)

    def _rows(self, spark: SparkSession) -> DataFrame:
        schema = self._target.schema
        df = self._feed.frame(spark, schema)
        return df if schema is None else fitting(df, schema, f"the rows are not of {schema.name}")

    def _options(self) -> dict[str, str]:
        return {"contact": self._target.contact, "stone": self._target.stone, **self._feed.writer_options}

    def _save(self, spark: SparkSession, df: DataFrame) -> None:
        _mark(spark, self._tag)
        if not self._ending:
            options = {"jobid": self._feed.jobid, **self._options()}
            df.write.format("evflow").options(**options).mode("append").save()

    def _stream(self, df: DataFrame) -> None:
        checkpoint = self._feed.checkpoint or (self._target.folder.absolute() / _CHECKPOINT).as_uri()
        writer = df.writeStream.format("evflow").options(**self._options())
        query = self._query = writer.option("checkpointLocation", checkpoint).start()
        try:
            while query.isActive and not self._ending:
                wanted = self._wanted
                if wanted > self._reached:
                    query.processAllAvailable()
                    self._reached = wanted
                    self._target.changed()
                else:
                    self._news.wait(_TURN)
                    self._news.clear()
            if not self._ending:
                # It has ended by itself; if it failed, this says why.
                query.awaitTermination()
        finally:
            query.stop()

    def _cancel(self) -> None:
        """Interrupts the job, until its thread has ended: what is not running yet cannot be interrupted."""
        while not self.join(_CANCEL_SECONDS):
            if self._query is not None:
                self._query.stop()
            elif self._spark is not None:
                _interrupt(self._spark, self._tag)

    def _lag(self) -> float:
        if self._state in ENDED:
            return 0.0
        query = self._query
        if query is None:
            return time.time() - self._began
        if not query.status["isDataAvailable"]:
            return 0.0
        last = query.lastProgress
        if last is None:
            return time.time() - self._began
        begin = datetime.fromisoformat(last["timestamp"].replace("Z", "+00:00")).timestamp()
        seconds = float(last["durationMs"].get("triggerExecution", 0)) / 1000
        return max(0.0, time.time() - begin - seconds)


def _mark(spark: SparkSession, tag: str) -> None:
    """Marks what this thread will have Spark do."""
    if is_connect(spark):
        spark.addTag(tag)
    else:
        # A classic session does not find by a tag what another thread has begun.
        spark.sparkContext.setJobGroup(tag, "evflow", interruptOnCancel=True)


def _interrupt(spark: SparkSession, tag: str) -> None:
    """Ends what was marked."""
    if is_connect(spark):
        spark.interruptTag(tag)
    else:
        spark.sparkContext.cancelJobGroup(tag)


_OURS = re.compile(r"^(?:[\w.]*: )*evflow\.errors\.\w+: (.+)$", re.MULTILINE)
_SAID = 600


def reason_of(error: BaseException) -> str:
    """What Spark's error says, without the frames of two languages around it."""
    if isinstance(error, EvflowError):
        return str(error)
    ended = end_of_java(error)
    if ended:
        return ended
    text = str(error)
    ours: list[str] = _OURS.findall(text)
    if ours:
        return ours[-1].strip()
    said = text.strip().partition("\n")[0]
    return f"{type(error).__name__}: {said[:_SAID]}{'…' * (len(said) > _SAID)}"
