"""Turns of the flow's thread, and threads that wait for one.

The interpreter goes from one thread to another only when a thread waits, or after five milliseconds. So a
thread that submits to a flow that is idle waits a moment: the flow's thread handles the event at once, and
not when the submitting thread next waits for something.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable

from evflow.flow.net import Waker

_MOST = 2e-3
"""Seconds that a thread waits at most: a handler may take longer."""

_FREE = 2
"""How many times as long as a thread has waited none waits again."""

_MANY = 100
"""Submissions meanwhile after which the interpreter is left to go around by itself."""


class Turns:
    """Wakes the flow's thread, and lets threads wait for its turn, for at most a third of the time.

    Args:
        bell: wakes the flow's thread.

    Attributes:
        wanted: whether a thread that submits calls ``await_one``; False where so many submissions came that
            the interpreter is left to go around by itself, until the flow's thread sleeps again.
    """

    def __init__(self, bell: Waker) -> None:
        self.wanted = False
        self._bell = bell
        # Before that time nobody waits; and how many submissions came since somebody has.
        self._next = 0.0
        self._came = 0
        # What threads wait for: those that came in this turn, and those that came before.
        self._new: deque[threading.Lock] = deque()
        self._old: deque[threading.Lock] = deque()

    def await_one(self) -> None:
        """Wakes the flow's thread if it sleeps, and waits until it has done a turn, or for a moment."""
        start = time.perf_counter()
        if start < self._next:
            self._came += 1
            self.wanted = self._came < _MANY
            if self._bell.asleep:
                self._bell.ring()
            return
        done = threading.Lock()
        done.acquire()
        self._new.append(done)
        if self._bell.asleep:
            self._bell.ring()
        done.acquire(timeout=_MOST)
        end = time.perf_counter()
        self._next, self._came = end + _FREE * (end - start), 0

    def sleep(self, waiting: Callable[[], bool], seconds: float | None) -> None:
        """Ends a turn of the flow's thread, which calls: lets those go on that wait, then sleeps.

        Args:
            waiting: whether something waits after all, so that it does not sleep; asked once others see that
                it has to be woken.
            seconds: how long at most; None for as long as it takes.
        """
        self.wanted = True
        if self._old:
            _let_go(self._old)
        self._bell.asleep = True
        # A thread that saw it wanted before may unset that only now: then nobody would wake the sleeper.
        if not self.wanted or waiting():
            # What those have submitted that wait may have come too late for this turn.
            self._old, self._new = self._new, self._old
            seconds = 0.0
        elif self._new:
            _let_go(self._new)
        self._bell.sleep(seconds)


def _let_go(waiting: deque[threading.Lock]) -> None:
    while waiting:
        waiting.popleft().release()
