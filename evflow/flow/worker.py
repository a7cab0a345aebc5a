"""The thread that drives an engine: takes what was submitted, runs it, sleeps when nothing waits.

What must not meet an event half-way (freeze, link, drain …) is a task for this thread, done between two
runs, after everything that was submitted before it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

from evflow.engine.engine import Engine
from evflow.engine.topology import Slot
from evflow.errors import EvflowError, FlowError
from evflow.events.batch import EventBatch
from evflow.flow.inbox import Bell, Intake, Item

__all__ = ["Worker"]

_log = logging.getLogger("evflow.flow")

T = TypeVar("T")


class Worker:
    """Drives one engine in the background.

    Args:
        engine: what it drives; from now on only this thread touches it.
        name: the flow's name, for errors and for the thread.
        max_events: submissions that may wait at each stone.
        max_bytes: bytes of batches and large events that may wait at each stone.

    Attributes:
        bell: wakes it.
        closing: set once no more may be submitted.
    """

    def __init__(self, engine: Engine, name: str, max_events: int, max_bytes: int) -> None:
        self.engine = engine
        self.bell = Bell()
        self.closing = False
        self._name = name
        self._max_events, self._max_bytes = max_events, max_bytes
        self._intakes: list[tuple[Slot, Intake]] = []
        self._tasks: deque[Callable[[], None]] = deque()
        self._inner: deque[tuple[Slot, EventBatch]] = deque()
        self._finished = False
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._work, name=f"evflow {name}", daemon=True)
        self._thread.start()

    @property
    def ident(self) -> int | None:
        """The thread's identity; None until it has begun."""
        return self._thread.ident

    def intake(self, slot: Slot) -> Intake:
        """A new intake for a stone."""
        intake = Intake(slot.name, self._max_events, self._max_bytes)
        self._intakes = [*self._intakes, (slot, intake)]
        return intake

    def enter(
        self,
        slot: Slot,
        intake: Intake,
        item: Item,
        timeout: float | None,
    ) -> None:
        """Puts a batch or an event into an intake, when there is room.

        Raises:
            FlowError: the flow is closed, or there was no room within ``timeout`` seconds.
        """
        if threading.get_ident() == self.ident:
            # Also while the flow closes, which handles everything first.
            self._enter_inner(slot, item)
            return
        self._refuse_if_closed()
        if intake.full:
            intake.wait(timeout, self._thread.is_alive)
            self._refuse_if_closed()
        intake.put(item)
        if self.bell.asleep:
            self.bell.ring()

    def _enter_inner(self, slot: Slot, item: Item) -> None:
        # A handler submits. It would wait for itself if it waited for room, so it is refused instead.
        if len(self._inner) >= self._max_events:
            raise FlowError(
                f"stone {slot.name!r}: handlers have submitted {len(self._inner)} events that wait; "
                "a handler must not submit more than it takes"
            )
        batch = item if isinstance(item, EventBatch) else EventBatch.from_encoded(item[0], [item[1]])
        self._inner.append((slot, batch))

    def do(self, task: Callable[[], T], timeout: float | None = None) -> T | None:
        """Has the thread do a task and waits for its result.

        From a handler it cannot wait: the task is done after the handler's event, and None comes back.

        Raises:
            FlowError: the flow is closed, or the task was not done within ``timeout`` seconds.
            EvflowError: what the task raised.
        """
        self._refuse_if_closed()
        if threading.get_ident() == self.ident:
            self._tasks.append(lambda: _logged(task))
            return None
        done = threading.Event()
        outcome: list[tuple[T | None, EvflowError | None]] = []

        def work() -> None:
            try:
                outcome.append((task(), None))
            except EvflowError as error:
                outcome.append((None, error))
            done.set()

        self._tasks.append(work)
        self.bell.ring()
        self._await(done, timeout)
        result, error = outcome[0]
        if error is not None:
            raise error
        return result

    def _await(self, done: threading.Event, timeout: float | None) -> None:
        deadline = None if timeout is None else time.monotonic() + timeout
        while not done.wait(0.2 if deadline is None else max(0.0, min(0.2, deadline - time.monotonic()))):
            if not self._thread.is_alive() and not done.is_set():
                raise FlowError(f"flow {self._name} ended") from self._failure
            if deadline is not None and time.monotonic() >= deadline:
                raise FlowError(f"flow {self._name}: not done within {timeout} s")

    def _refuse_if_closed(self) -> None:
        if self.closing or not self._thread.is_alive():
            raise FlowError(f"flow {self._name} is closed") from self._failure

    def close(self, finish: Callable[[], None]) -> None:
        """Ends the thread after all that was submitted and the task ``finish``.

        Raises:
            FlowError: called by a handler; or the thread had broken down.
        """
        if threading.get_ident() == self.ident:
            raise FlowError("a handler cannot close its own flow; close it where it was started")
        if not self.closing:
            self.closing = True
            self._tasks.append(lambda: self._finish(finish))
            self.bell.ring()
        self._thread.join()
        if self._failure is not None:
            raise FlowError(f"flow {self._name} broke: {self._failure!r}") from self._failure

    def _finish(self, finish: Callable[[], None]) -> None:
        self._seal()
        finish()
        self._finished = True

    def _work(self) -> None:
        try:
            while not self._finished:
                self._turn()
                due = self.engine.next_due(time.monotonic())
                if not self._finished:
                    self.bell.sleep(self._waiting, None if due is None else due - time.monotonic())
        except BaseException as error:  # noqa: BLE001  whoever waits for this thread must hear of it
            self._failure = error
            _log.exception("flow %s broke", self._name)
            self._seal()

    def _seal(self) -> None:
        # A submission either went in before this, and is taken, or is refused: none is lost in between.
        for _, intake in self._intakes:
            intake.seal()

    def _waiting(self) -> bool:
        return bool(self._tasks) or (
            not self._held_up() and any(intake.waiting for _, intake in self._intakes)
        )

    def _turn(self) -> None:
        # The task is picked before the events, so that all that was submitted before it goes first.
        task = self._tasks.popleft() if self._tasks else None
        self.engine.tick(time.monotonic(), time.time())
        self.run()
        if not self._held_up():
            self._take()
        if task is not None:
            task()
            self.run()

    def _held_up(self) -> bool:
        # What frozen stones queue is bounded; then events wait in the intakes, and at last submit waits.
        return self.engine.parked_bytes >= self._max_bytes

    def run_all(self) -> None:
        """Handles everything that was submitted."""
        self.run()
        self._take()

    def _take(self) -> None:
        for slot, intake in self._intakes:
            for batch in intake.take():
                self.engine.submit(slot, batch)
                self.run()

    def run(self) -> None:
        """Moves events, and those that handlers submit meanwhile, until none moves any more."""
        self.engine.run()
        while self._inner:
            self.engine.submit(*self._inner.popleft())
            self.engine.run()
        self.engine.settle()


def _logged(task: Callable[[], Any]) -> None:
    try:
        task()
    except EvflowError as error:
        _log.error("%s", error)
