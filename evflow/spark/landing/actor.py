"""The running half of a Spark source: lets rows land, and releases them once their job is committed."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from evflow.errors import EvflowError, FlowError
from evflow.events.batch import EventBatch
from evflow.outside import shown
from evflow.spark.landing.jobs import Jobs
from evflow.spark.landing.ledger import Place
from evflow.spark.landing.store import Store
from evflow.stone import Actor, Checkpoint, Context, Held, Stone

if TYPE_CHECKING:
    from evflow.spark.ingest.job import Job
    from evflow.spark.ingest.progress import Progress
    from evflow.spark.source import SparkSource

ROWS = "rows"
"""The input of a Spark source."""

_LAYOUT = "rows of Spark 1"
_PLAIN = "a Spark source takes rows of Spark's tasks only; submit other events to a source"
_LATER = 1.0

_log = logging.getLogger("evflow.spark")


class SourceActor(Actor):
    """The running half of a ``SparkSource``; see ``evflow.stone.Actor``.

    Raises:
        FlowError: the folder cannot be used.

    Attributes:
        job: the job that it runs itself, once it was woken; None if it has none.
        batches: epochs that were committed.
    """

    def __init__(self, context: Context, stone: SparkSource) -> None:
        super().__init__(context)
        self.job: Job | None = None
        self.batches = 0
        self._stone = stone
        self._store = Store(stone.keeper)
        self._closed = False
        self._trouble = ""
        self._released = 0
        self._done = Place()
        self._told = {"rows": 0, "jobs": 0, "released": 0}
        self._look = 0.0
        self._set_up()

    def _set_up(self) -> None:
        """Follows what its description says, and what is in its store."""
        self.stream = self._store.ledger.stream
        folder = self._store.folder
        limit = min(self._stone.limit, folder.used + folder.free())
        self._jobs = Jobs(self._store, self._stone.schema, limit, self._committed, self._came)
        self._tell()

    def progress(self) -> Callable[[], Progress]:
        """What tells, in any thread, how far its job is, or what others have written to it."""
        from evflow.spark.ingest.progress import Progress

        if self.job is not None:
            return self.job.progress
        state = "open" if self._stone.feed is None else "starting"
        return lambda: Progress(self.arrived, self.batches, 0.0, state)

    def draining(self) -> None:
        """Somebody waits for all there is now: a stream is to bring it."""
        job = self._begin()
        if job is not None:
            job.catch_up()

    def _begin(self) -> Job | None:
        """Its job, which begins if it has not."""
        if self.job is None and not self._closed and self._stone.feed is not None:
            from evflow.spark.ingest.job import Job, Target

            contact, name = self.context.home
            folder, schema = self._store.folder.path, self._stone.schema
            target = Target(contact, name, schema, folder, self.context.wake, self._count)
            self.job = Job(self._stone.feed, target)
            self.job.start()
        return self.job

    def _count(self) -> tuple[int, int]:
        return self.arrived, self.batches

    @property
    def failure(self) -> EvflowError | None:
        """Why its job failed; None if it did not."""
        return None if self.job is None else self.job.failure

    def receive(self, batch: EventBatch, input: str) -> None:
        self.context.fault(batch, _PLAIN)

    @property
    def arrived(self) -> int:
        """Rows that came, but for those of attempts that came to nothing; for any thread."""
        return self._store.arrived

    # --- what Spark asks

    def answer(self, question: dict[str, Any]) -> Any:
        answer = self._jobs.answer(question)
        self._tell()
        return answer

    def _came(self, rows: int, known: int) -> None:
        self.context.take(rows)
        self.context.drop(known)

    def _committed(self) -> None:
        self.batches += 1
        self.context.wake()

    # --- rows that leave

    def wake(self, now: float) -> float | None:
        self._begin()
        try:
            self._settle()
            self._forget_idle(now)
            found = self._store.releasing.next()
            self._trouble = ""
        except EvflowError as error:
            if str(error) != self._trouble:
                _log.error("stone %r: %s", self.context.home[1], error)
            self._trouble = str(error)
            return now + _LATER
        if found is not None:
            batch, number = found
            self.context.emit(batch, number=number)
            self._released += len(batch)
            self._tell()
        return now if self._store.releasing.rows else self._look

    def _forget_idle(self, now: float) -> None:
        """Deletes what has landed of tasks of which nothing is heard any more."""
        if now < self._look:
            return
        idle = self._store.idle(now, self._stone.patience)
        if idle:
            _log.warning("stone %r: nothing is heard of %d tasks any more", self.context.home[1], len(idle))
            self._store.drop(idle)
        self._look = now + self._stone.patience / 4

    @property
    def busy(self) -> str:
        if self.job is not None and self.job.busy:
            return self.job.busy
        rows = self._store.releasing.rows
        return (
            f"{rows} committed rows are still to leave{self._trouble and ': '}{self._trouble}" if rows else ""
        )

    def mark(self) -> object:
        return self._store.releasing.place

    def settled(self, mark: object) -> None:
        place = cast(Place, mark)
        if self._closed:
            if self._store.folder.keeps:
                self._store.ledger.settle_late(place)
            return
        self._done = max(self._done, place)
        self._settle()

    def _settle(self) -> None:
        """Forgets what has been handled."""
        if self._done.number <= self._store.ledger.place.number:
            return
        self._store.releasing.settled(self._done)
        self._tell()

    # --- what it holds

    @property
    def queued(self) -> int:
        return self._store.releasing.rows

    @property
    def keeps(self) -> bool:
        return self._store.folder.keeps

    def extract(self, count: int | None = None) -> list[EventBatch]:
        releasing = self._store.releasing
        left = releasing.rows if count is None else min(count, releasing.rows)
        taken: list[EventBatch] = []
        while left and (found := releasing.next(left)) is not None:
            taken.append(found[0])
            left -= len(found[0])
        if taken:
            # At once: what leaves after this has numbers that must mean the same after a kill.
            releasing.settled(releasing.place)
        return taken

    def close(self) -> None:
        if self.job is not None:
            self.job.stop()
        self._closed = True
        self._store.close()

    def checkpoint(self) -> Checkpoint:
        batches, state = self._store.pack()
        held = tuple(Held(ROWS, batch) for batch in batches)
        return Checkpoint(held, np.frombuffer(state, np.uint8), _LAYOUT)

    def restore(self, checkpoint: Checkpoint) -> bool:
        if checkpoint.state is None:
            return not checkpoint.held
        if checkpoint.layout != _LAYOUT:
            raise FlowError(f"expected {_LAYOUT}, found {shown(checkpoint.layout)}")
        batches = [held.batch for held in checkpoint.held]
        self._store.take(batches, checkpoint.state.tobytes())
        self._told["rows"] = 0
        self._done = Place()
        self._set_up()
        self.context.wake()
        return True

    def become(self, stone: Stone) -> bool:
        # What takes the place of a Spark source is one, if it is of its kind.
        wanted = cast("SparkSource", stone)
        if stone.kind != self._stone.kind or wanted.keeper != self._stone.keeper:
            return False
        if wanted.schema != self._stone.schema:
            # Spark tries unfinished tasks again, and then their rows come as is wanted now.
            self._store.drop(list(self._store.ledger.tasks.values()))
        if self.job is not None and wanted.feed != self._stone.feed:
            self.job.stop()
            self.job = None
        self._stone = wanted
        self._look = 0.0
        self._set_up()
        self.context.wake()
        return True

    def _tell(self) -> None:
        """Says in the stone's attributes what there is."""
        told = self.context.attributes
        now = {"rows": self.arrived, "jobs": self.batches, "released": self._released}
        for name, count in now.items():
            # Anyone may set an attribute to anything; and what another counted before it moved goes on.
            before = told.get(name, 0)
            told[name] = (before if isinstance(before, int) else 0) + count - self._told[name]
        self._told = now
        told["landed"] = self._store.folder.used
