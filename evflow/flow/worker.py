"""The thread that drives an engine: takes what was submitted, runs it, sleeps when nothing waits.

What must not meet an event half-way (freeze, link …) is a task for this thread, done between two runs, after
everything that was submitted before it. On a node the same thread takes what came over the links, and sends
what is to go; while it is in a stone's own code, another thread does (``standby.py``).
"""

from __future__ import annotations

import logging
import math
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from evflow import mishaps
from evflow.engine.engine import Engine
from evflow.engine.topology import Slot
from evflow.errors import EvflowError, FlowError
from evflow.events.batch import EventBatch
from evflow.events.encode import LARGE
from evflow.flow.drains import Drain, End, Flush, Waiting, check_timeout
from evflow.flow.express import Lender
from evflow.flow.handed import Handed
from evflow.flow.hooks import Hooks
from evflow.flow.net import Net
from evflow.flow.source_queue import Item, SourceQueue
from evflow.flow.standby import Standby
from evflow.flow.turns import Turns
from evflow.forked import renew
from evflow.later import Once
from evflow.mishaps import CONTAINED, Forked, named, reason_of
from evflow.stone import Actor, working

_log = logging.getLogger("evflow.flow")

_PORTION = 1.0
"""Seconds of what handlers have submitted, until links and tasks have their turn again."""

T = TypeVar("T")


class Worker:
    """Drives one engine in the background.

    Args:
        engine: what it drives; from now on only this thread touches it.
        name: the flow's name, for errors and for the thread.
        max_events: submissions that may wait at each stone.
        max_bytes: bytes of batches and large events that may wait at each stone.
        net: the node's links.

    Attributes:
        bell: wakes it.
        turns: lets threads wait for its turns.
        closing: set once no more may be submitted.
        ident: the thread's identity; None until it has begun.
        pace, reserve, spare: see ``Net``; nobody waits and there is no room where there are no links.
    """

    def __init__(self, engine: Engine, name: str, max_events: int, max_bytes: int, net: Net) -> None:
        self.engine = engine
        self._net = net
        # Whether a stone or bridge downstream of what a stone emits itself is full.
        self._held: Callable[[Slot], bool] = partial(net.blocked, leaving=True)
        self.bell = self._net.bell
        self.turns = Turns(self.bell)
        self.engine.waking.ring = self.wake
        self.engine.ungate = self._ungate
        self.pace, self.reserve, self.spare = self._net.pace, self._net.reserve, self._net.spare
        self.closing = False
        self._name = name
        self._max_events, self._max_bytes = max_events, max_bytes
        self._queues: list[SourceQueue] = []
        self._queues_lock = threading.Lock()
        self._drains: list[Drain] = []
        self._hooks = Hooks(name)
        self._tasks: deque[Callable[[], None]] = deque()
        self._link_tasks: deque[Callable[[], None]] = deque()
        self._handed = Handed(engine, net.aside, max_events, max_bytes)
        self._lender = Lender(engine, net)
        self._until = 0.0
        # When the engine is to be told the time next, and when the links are to be looked after.
        self._tick_at = self._links_due = 0.0
        # The links may be served meanwhile, so what handlers lead to is told to them afterwards.
        self._led: set[tuple[Slot, Slot]] = set()
        self._end: End | None = None
        self._finished = False
        self._failure: BaseException | None = None
        self.ident: int | None = None
        self._parent: int | None = None
        self._standby: Standby | None = None
        if net.patience is not None:
            self._standby = self.engine.away = Standby(self._serve, net.patience, name)
        self._thread = threading.Thread(target=self._work, name=f"evflow {name}", daemon=True)

    def start(self) -> None:
        """Begins."""
        self._thread.start()
        self.ident = self._thread.ident

    def open_queue(self, slot: Slot) -> SourceQueue:
        """A new source queue for a stone."""
        queue = SourceQueue(slot, self._max_events, self._max_bytes)
        with self._queues_lock:
            self._queues = [*self._queues, queue]
        return queue

    @property
    def submitted(self) -> list[str]:
        """The stones that have a source queue."""
        return [queue.slot.name for queue in self._queues]

    def end_queue(self, queue: SourceQueue, reason: str) -> list[EventBatch]:
        """Takes no more for a stone, and gives up what waits for it; called in the engine's thread.

        Args:
            queue: the stone's source queue.
            reason: why, for whoever submits to it.
        """
        with self._queues_lock:
            self._queues = [each for each in self._queues if each is not queue]
        return queue.end(reason)

    def each_turn(self, call: Callable[[float], float | None], links: bool = False) -> Callable[[], None]:
        """From now on the thread calls this in each of its turns, with the time of ``time.monotonic``.

        Args:
            call: returns when it is to be called next at the latest; None if any time will do.
            links: whether ``call`` needs nothing but the links, so that it need not wait for handlers.

        Returns:
            What ends that.
        """
        end = self._hooks.add(call, links)
        self.bell.ring()
        return end

    def enter(self, queue: SourceQueue, item: Item, timeout: float | None) -> None:
        """Puts a batch or an event into a source queue, when there is room.

        Raises:
            FlowError: the flow is closed, or there was no room within ``timeout`` seconds.
        """
        if threading.get_ident() == self.ident:
            # Also while the flow closes, which handles everything first.
            self.enter_inner(queue, item)
            return
        self._wait_for_room(queue, timeout)
        queue.put(item)
        (self.turns.await_one if isinstance(item, tuple) and self.turns.wanted else self.wake)()

    def enter_inner(self, queue: SourceQueue, item: Item) -> None:
        """Puts in what a handler submits in the engine's thread, which cannot wait for room.

        Raises:
            FlowError: there is no room.
        """
        self._handed.put(queue.slot, item)
        if self.engine.entry is not None:
            self._led.add((self.engine.entry, queue.slot))

    def wake(self) -> None:
        """Wakes the thread if it sleeps."""
        if self.bell.asleep:
            self.bell.ring()

    def make_room(self, queue: SourceQueue, timeout: float | None) -> bool:
        """Has a queue give its submit buffer room again, if that is what it lacks and once events may wait.

        Returns:
            Whether it does; if not, an event has to be put in by ``enter``.

        Raises:
            FlowError: see ``enter``.
        """
        if threading.get_ident() == self.ident or not queue.cramped:
            return False
        self._wait_for_room(queue, timeout)
        if queue.buffer.wanted >= LARGE:
            self.pace(queue.buffer.wanted)
        return queue.make_room()

    def _wait_for_room(self, queue: SourceQueue, timeout: float | None) -> None:
        self._refuse_if_closed()
        if not queue.full:
            return
        check_timeout(self._name, timeout)
        actor = self._actor_at_work()
        try:
            if actor is None:
                queue.wait(timeout, self._thread.is_alive)
            else:
                self._wait_in_handler(queue, timeout, actor)
        except FlowError as error:
            raise FlowError("; ".join([str(error), *self._troubles()])) from None
        self._refuse_if_closed()

    def _wait_in_handler(self, queue: SourceQueue, timeout: float | None, actor: Actor) -> None:
        """Waits for room in a thread of a stone, unless that would have to make it."""
        waking, slot = self.engine.waking, queue.slot
        try:
            queue.wait(timeout, lambda: self._thread.is_alive() and not waking.waits_for_itself(slot, actor))
            if queue.full and waking.waits_for_itself(slot, actor):
                raise FlowError(
                    f"stone {slot.name!r} is full, and a handler of stone {actor.context.home[1]!r} that "
                    "submits to it would wait for its own stone, which is full too; a handler must not "
                    "submit more than it takes"
                )
        finally:
            waking.no_longer_waits()

    def _actor_at_work(self) -> Actor | None:
        """The actor of this flow in a thread of which the caller runs; None if it is not a handler there."""
        actor = working.get()
        if actor is None or all(slot.actor is not actor for slot in self.engine.topology.slots.values()):
            return None
        return actor

    @property
    def in_handler(self) -> bool:
        """Whether a handler of this flow calls: it must not wait until all has been handled."""
        return threading.get_ident() == self.ident or self._actor_at_work() is not None

    def do(self, task: Callable[[], T], timeout: float | None = None, links: bool = False) -> T | None:
        """Has the thread do a task and waits for its result.

        From a handler it cannot wait: the task is done after the handler's event, and None comes back.

        Args:
            task: called without arguments.
            timeout: seconds to wait; None for as long as it takes.
            links: whether ``task`` needs nothing but the links, so that it need not wait for handlers.

        Raises:
            FlowError: the flow is closed, or the task was not done within ``timeout`` seconds.
            EvflowError: what the task raised.
        """
        self._refuse_if_closed()
        if threading.get_ident() == self.ident:
            self.later(task, links)
            return None
        done = Once()
        outcome: list[tuple[T | None, EvflowError | None]] = []

        def work() -> None:
            try:
                outcome.append((task(), None))
            except EvflowError as error:
                outcome.append((None, error))
            except CONTAINED as error:
                failure = FlowError(f"flow {self._name}: what was asked for failed: {named(error)}")
                failure.__cause__ = error
                outcome.append((None, failure))
            done.set()

        (self._link_tasks if links else self._tasks).append(work)
        self.bell.ring()
        self.wait(done, timeout)
        result, error = outcome[0]
        if error is not None:
            raise error
        return result

    def later(self, task: Callable[[], object], links: bool = False) -> None:
        """Has the thread do a task, in its time; what it raises goes to the log.

        Args:
            task: called without arguments.
            links: whether ``task`` needs nothing but the links, so that it need not wait for handlers.
        """
        tasks = self._link_tasks if links else self._tasks
        tasks.append(lambda: self._logged(task))
        self.wake()

    def _logged(self, task: Callable[[], object]) -> None:
        try:
            task()
        except EvflowError as error:
            _log.error("%s", error)
        except CONTAINED as error:
            mishaps.tell(_log, f"flow {self._name}", "a task was not done", error)

    def drain(self, timeout: float | None) -> None:
        """Waits until all that was submitted before has been handled, on other nodes too.

        Raises:
            FlowError: the flow is closed, or that took more than ``timeout`` seconds.
            EvflowError: why a stone has failed that emits by itself.
        """
        self._wait_until_over(Drain(self.engine), timeout)

    def flush(self, slot: Slot, timeout: float | None) -> None:
        """Waits until what was submitted to a stone before is on the disk; see ``Entry.flush``.

        Raises:
            FlowError: it cannot be there, or was not within ``timeout`` seconds.
        """
        if self.in_handler:
            raise FlowError(f"a handler cannot wait until stone {slot.name!r} is flushed: it may wait for it")
        self._wait_until_over(Flush(self.engine, slot), timeout)

    def _wait_until_over(self, drain: Drain, timeout: float | None) -> None:
        self._refuse_if_closed()
        check_timeout(self._name, timeout)
        if self.in_handler:
            return
        waiting = Waiting(self._name, lambda: (*self._troubles(), *drain.waits_for()))

        def look() -> None:
            # One who waits for handlers that submit without an end hears of it.
            self._handed.told()
            waiting.look()

        self.begin(drain)
        try:
            self.wait(drain.ended, timeout, look)
        except FlowError as error:
            drain.given_up = True
            raise FlowError("; ".join([str(error), *drain.waits_for()])) from self._failure
        if drain.failure is not None:
            raise drain.failure

    def begin(self, drain: Drain) -> None:
        """Has somebody told once what was submitted before has been handled."""

        def begin() -> None:
            drain.begin(self._queues)
            self._drains.append(drain)

        self._tasks.append(begin)
        self.bell.ring()

    def wait(self, done: Once, timeout: float | None = None, look: Callable[[], None] = lambda: None) -> None:
        """Waits for what the thread will set, and looks now and then whether something else is to be raised.

        Raises:
            FlowError: the flow ended before, or it took more than ``timeout`` seconds.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while not done.wait(0.2 if deadline is None else max(0.0, min(0.2, deadline - time.monotonic()))):
            if not self._thread.is_alive() and not done.is_set():
                raise self._ended()
            look()
            if deadline is not None and time.monotonic() >= deadline:
                late = f"flow {self._name}: not done within {timeout} s"
                raise FlowError("; ".join([late, *self._troubles()]))
        look()

    @property
    def failure(self) -> FlowError | None:
        """Why the thread has ended, though nobody closed the flow; None if it has not."""
        if self._failure is None:
            return None
        error = FlowError(f"flow {self._name} broke: {reason_of(self._failure)}")
        error.__cause__ = self._failure
        return error

    def _ended(self) -> FlowError:
        if self._parent is not None:
            return FlowError(
                f"flow {self._name} runs in process {self._parent}, of which this one is a fork, so "
                "it cannot be used here; begin processes that use evflow by multiprocessing's 'spawn'"
            )
        return self.failure or FlowError(f"flow {self._name} is closed")

    def forsake(self) -> None:
        """In a fork: the flow is the parent's, and has no thread here."""
        self._parent, self.closing = os.getppid(), True
        # A handler that forked returns to the engine.
        self.engine.forsaken = threading.get_ident() == self.ident
        renew(self._queues_lock, *(queue.changed for queue in self._queues))
        if self._standby is not None:
            self._standby.forsake()
        self._seal("the flow is the one of another process, of which this is a fork")

    def _troubles(self) -> list[str]:
        return [*self.engine.waking.troubles(), *self._net.troubles()]

    def _refuse_if_closed(self) -> None:
        if self.closing or self._failure is not None or not self._thread.is_alive():
            raise self._ended()

    def close(self, finish: Callable[[], None], timeout: float, thaw: bool = True) -> None:
        """Ends the thread after all that was submitted has been handled, and the task ``finish``.

        Args:
            finish: done in the thread, when no more comes.
            timeout: seconds to wait for other nodes, and for a handler in a thread of its stone.
            thaw: whether frozen stones go on before.

        Raises:
            FlowError: called by a handler; or the thread had broken down.
        """
        if self.in_handler and self._parent is None:
            raise FlowError("a handler cannot close its own flow; close it where it was started")
        if self._parent is not None:
            return
        if not self.closing:
            self.closing = self._handed.closing = True
            self._tasks.append(lambda: self._begin_end(finish, timeout, thaw))
            self.bell.ring()
        self._thread.join()
        if self._failure is not None:
            raise self._ended()

    def _begin_end(self, finish: Callable[[], None], timeout: float, thaw: bool) -> None:
        self._seal()
        for slot in self.engine.topology.slots.values():
            if slot.frozen and thaw:
                self.engine.unfreeze(slot)
        self._net.stop()
        self._end = End(finish, timeout)

    def _end_if_drained(self, end: End) -> None:
        left = self._handed.waiting
        waits = left or self.engine.waking.busy() or any(queue.waiting for queue in self._queues)
        drained = not waits and not self._net.owes
        if not drained and not end.is_due(self.engine.waking.left() + left):
            return
        for queue in self._queues:
            self._run_queue(queue, True)
        for slot, batch in self._handed.extract():
            self.engine.give_up(slot, batch, "the flow was closed while handlers submitted more and more")
        end.finish()
        self._net.close()
        self._finished = True

    def _work(self) -> None:
        self.ident = threading.get_ident()
        if self._standby is not None:
            self._standby.begin()
        try:
            self._net.begin()
            while not self._finished:
                self._turn()
                if self._standby is not None and self._standby.failure is not None:
                    raise self._standby.failure
                if self._end is not None:
                    self._end_if_drained(self._end)
                if not self._finished:
                    self.turns.sleep(self._waiting, self._seconds())
        except Forked:
            os._exit(1)
        except BaseException as error:  # noqa: BLE001  whoever waits for this thread must hear of it
            try:
                mishaps.say(_log, logging.ERROR, f"flow {self._name} broke", error)
                self._seal(f"the flow broke: {reason_of(error)}")
                self.engine.stop()
                # So that peers hear of it at once, and keep what is theirs to send.
                self._net.close()
            except CONTAINED as worse:
                mishaps.tell(_log, f"flow {self._name}", "its links could not be closed", worse)
            finally:
                # Whoever sees it may end the process, so it is the last that happens.
                self._failure = error
        finally:
            if self._standby is not None:
                self._standby.end()

    def _seconds(self) -> float | None:
        """How long the thread may sleep."""
        now, engine, waking = time.monotonic(), self.engine, self.engine.waking
        if engine.sorted != engine.version:
            engine.sort_out()
        ticks = engine.rhythms or engine.stalls.stalled or engine.stalls.open
        self._tick_at = engine.next_due(now) if ticks else math.inf
        due = min(self._tick_at, self._links_due)
        if self._hooks.known:
            due = min(due, self._hooks.due)
        if self._end is not None:
            due = min(due, self._end.deadline)
        if (waking.wakers or waking.called) and not self._held_up():
            due = min(due, waking.next_due(now, self._held))
        # Where more is due later, at most an hour: clocks jump, and the system counts in a few bits.
        return None if due == math.inf else min(due - now, 3600.0)

    def _seal(self, reason: str = "the flow is closed") -> None:
        # A submission either went in before this, and is taken, or is refused: none is lost in between.
        for queue in self._queues:
            queue.seal(reason)

    def _waiting(self) -> bool:
        if self._tasks or self._link_tasks or self._handed.waiting or self.engine.waking.called:
            return True
        if not (self.engine.frozen and self._held_up()):
            for queue in self._queues:
                if queue.waiting and not self._net.blocked(queue.slot):
                    return True
            self._lender.lend(self._queues)
        return False

    def _turn(self) -> None:
        if self._lender.lent:
            self._lender.settle()
        engine, now = self.engine, time.monotonic()
        engine.now, self._until = now, now + _PORTION
        if engine.sorted != engine.version:
            engine.sort_out()
        # Tasks are picked before the events, so that all that was submitted before them goes first.
        tasks = [self._tasks.popleft() for _ in range(len(self._tasks))] if self._tasks else ()
        if self._link_tasks:
            self._do_link_tasks()
        if now >= self._tick_at:
            engine.tick(now, time.time(), self._net.blocked)
            engine.stalls.retry(now)
            # No frame that comes counts as leading to what a tick leads to.
            self.run()
        self._net.receive(now)
        engine.entry = None
        if engine.pending or engine.emitters or self._handed.waiting:
            self.run()
        if not (engine.frozen and self._held_up()):
            for queue in self._queues:
                if queue.buffer.many:
                    queue.gate(engine.topology)
                if queue.waiting:
                    self._run_queue(queue, False)
            if engine.waking.wakers or engine.waking.called:
                self._wake()
        for task in tasks:
            task()
            self.run()
        if self._hooks.known:
            self._hooks.call(links=False)
            self.run()
        self._links_due = self._net.finish(time.monotonic())
        if self._drains and not self._handed.waiting:
            self._end_drains()

    def _serve(self, now: float) -> None:
        """Does what needs nothing but the links; called by the standby while this thread is away."""
        self._do_link_tasks()
        self._net.serve(now)
        self._hooks.call(links=True)

    def _do_link_tasks(self) -> None:
        while self._link_tasks:
            self._link_tasks.popleft()()

    def _wake(self) -> None:
        """Has the stones emit that do so by themselves."""
        for slot in self.engine.waking.due(time.monotonic(), self._held):
            number, self.engine.entry = self.engine.waking.number, slot
            if number is None:
                self.run()
            else:
                self._net.run_numbered(slot, number, self.run)

    def _end_drains(self) -> None:
        for drain in list(self._drains):
            if drain.over(self._held_up()):
                self._drains.remove(drain)
                drain.finish(self._net)
                self._links_due = self._net.finish(time.monotonic())

    def _held_up(self) -> bool:
        # What frozen stones queue is bounded: then events wait in the source queues, and submit waits.
        return self.engine.parked_bytes >= self._max_bytes

    def _ungate(self) -> None:
        for queue in self._queues:
            queue.ungate()

    def _run_queue(self, queue: SourceQueue, regardless: bool) -> None:
        """Handles what waits in a source queue, as far as links take it."""
        slot = queue.slot
        if not regardless and self._net.blocked(slot):
            return
        for batch in queue.take():
            self.engine.entry = slot
            self.engine.submit(slot, batch, origin=(slot.name, b""))
            self.run()
            if queue.ready and not regardless and self._net.blocked(slot):
                return

    def run(self) -> None:
        """Moves events, and those that handlers submit meanwhile, until none moves any more."""
        self.engine.run()
        self.run_inner()

    def run_inner(self) -> None:
        """Moves what handlers have submitted, and has what stones have emitted be settled."""
        if self._led:
            for entry, onward in self._led:
                self._net.leads(entry, onward)
            self._led.clear()
        if self._handed.waiting:
            self._handed.run(self._until)
        # What is left of it goes before anything else that comes.
        self.engine.waking.behind = self._handed.waiting > 0
        self.engine.entry = None
        if self.engine.emitters:
            self._net.settle_actors(self.engine.emitted())
