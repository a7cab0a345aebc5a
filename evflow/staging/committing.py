"""Where steps end: a thread commits what the root has put together, and hands live blocks on before."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from queue import SimpleQueue

import numpy as np

from evflow.disk import AGAIN, Trouble, advice
from evflow.errors import EvflowError, StagingError
from evflow.events.batch import EventBatch
from evflow.mishaps import CONTAINED, named
from evflow.schema import Schema
from evflow.schema.types import f64, i64
from evflow.staging.area import Root
from evflow.staging.gathering import Part
from evflow.staging.schedulers import Hold
from evflow.staging.stores import Store
from evflow.stone import Context

Committed = Schema("committed", {"step": i64, "time": f64})
"""The event of a ``Stage`` for each step that it has committed."""

_log = logging.getLogger("evflow.staging")


class Guarded(threading.Thread):
    """A thread of staging. What ends it is logged, kept in ``failure``, and ``tell`` is called then."""

    def __init__(self, what: str, body: Callable[[], None], tell: Callable[[], None]) -> None:
        super().__init__(name=f"evflow-staging-{what}", daemon=True)
        self._body, self._tell = body, tell
        self._ended: BaseException | None = None

    def run(self) -> None:
        try:
            self._body()
        except BaseException as error:  # noqa: BLE001  whoever drains hears of it
            _log.error("%s has ended", self.name, exc_info=True)
            self._ended = error
            self._tell()

    @property
    def failure(self) -> EvflowError | None:
        """What ended the thread."""
        return StagingError(f"the stage has ended: {self._ended!r}") if self._ended else None


class Committing:
    """Commits the steps of a root, one after the other.

    Args:
        context: of the stone, which emits.
        root: says what is to be committed; in one thread with ``turn``.
        store: where to.
        live: the schemas of the blocks that leave by ports 1, 2, ….
        tell: has ``turn`` called soon; called in any thread.
    """

    def __init__(
        self, context: Context, root: Root, store: Store, live: Sequence[Schema], tell: Callable[[], None]
    ) -> None:
        self.root, self._context, self._store, self._live = root, context, store, live
        self._tell = tell
        self._parts: SimpleQueue[Part | None] = SimpleQueue()
        self._written: deque[Part] = deque()
        # What is to be emitted: number and time.
        self._committed: deque[tuple[int, float]] = deque()
        # Blocks of the step that is to be committed next, which leave before.
        self._leaving, self._gone, self._handed_on = list[EventBatch](), threading.Event(), -1
        self._trouble, self._closing = Trouble(_log), False
        self._thread = Guarded("commit", self._run, context.wake)
        self._thread.start()

    def turn(self, now: float) -> Hold | None:
        """Has the next step committed, if there is one; why the oldest one waits, None if there is none."""
        while self._written:
            part = self._written.popleft()
            self.root.committed()
            self._committed.append((part.step, next(iter(part.times))))
            self._context.wake()
        found = self.root.next(now)
        if isinstance(found, Part):
            self._parts.put(found)
            found = self.root.next(now)
        part_now = self.root.committing
        if self._trouble.why:
            return Hold(self._trouble.why)
        if part_now and self._leaving:
            return Hold(f"step {part_now.step} waits for stones behind the stage")
        return found if isinstance(found, Hold) else None

    def emit(self) -> None:
        """Emits what there is; called by ``wake`` of the actor."""
        if self._leaving:
            for batch in self._leaving:
                self._context.take(len(batch))
                self._context.emit(batch, 1 + self._live.index(batch.schema))
            self._leaving = []
            self._gone.set()
        if rows := list(self._committed):
            self._context.attributes["committed"] = rows[-1][0]
            steps, times = zip(*(self._committed.popleft() for _ in rows), strict=True)
            self._context.take(len(rows))
            self._context.emit(EventBatch.from_columns(Committed, {"step": list(steps), "time": list(times)}))

    @property
    def busy(self) -> str:
        """What is still to be emitted, in words; "" if nothing."""
        return f"{len(self._committed)} committed steps are told of" if self._committed else ""

    @property
    def failure(self) -> EvflowError | None:
        """What ended the thread."""
        return self._thread.failure

    def close(self) -> None:
        """Ends it; what is not committed stays with the writers."""
        self._closing = True
        self._parts.put(None)
        self._gone.set()
        self._thread.join()
        self._store.close()

    def _run(self) -> None:
        while (part := self._parts.get()) is not None:
            while not self._closing:
                try:
                    if not self._hand_on(part):
                        break
                    self._store.commit(part)
                    self._trouble.over()
                    self._written.append(part)
                    self._tell()
                    break
                except CONTAINED as error:
                    # A library may raise anything where a disk or memory fails.
                    why = f"{error}; {advice(error)}" if isinstance(error, OSError) else named(error)
                    self._trouble.failed(f"step {part.step} cannot be written: {why}")
                    self._tell()
                    time.sleep(AGAIN)
            # It keeps the memory of its writers mapped, and the next one may be long in coming.
            del part

    def _hand_on(self, part: Part) -> bool:
        """Waits until the blocks of a step have left, once; they leave again if the node is killed then.
        Whether they have: not if it is closed meanwhile."""
        if part.step == self._handed_on:
            return True
        batches = []
        for schema in self._live:
            found = part.of_variable(schema.name)
            of_step = {"step": [part.step], "time": [min(part.times)], "parts": [len(found)]}
            for number, (rank, block, data) in enumerate(found):
                place = {"rank": [rank], "part": [number], "offset": [block.offset]}
                columns = {**of_step, **place, "values": block.view(data)[np.newaxis]}
                batches.append(EventBatch.from_columns(schema, columns))
        if batches:
            # Before the look at ``_closing``, for ``close`` sets both.
            self._gone.clear()
            self._leaving = batches
            if not self._closing:
                self._context.wake()
                self._gone.wait()
            if self._leaving:
                return False
        self._handed_on = part.step
        return True
