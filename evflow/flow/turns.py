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

_FREE = 4
"""How many times as long as a thread has waited none waits again."""

_MANY = 100
"""Submissions meanwhile after which the interpreter is left to go around by itself."""


class Turns:
    """Wakes the flow's thread, and lets threads wait for its turn, for at most a fifth of the time.

    Args:
        bell: wakes the flow's thread.

    Attributes:
        idle: whether the flow's thread sleeps, or was woken and has not got the interpreter yet; False too
            once so many submissions came meanwhile that it is left to get it by itself.
        awaited: what the threads wait for that wait.
    """

    def __init__(self, bell: Waker) -> None:
        self.idle = False
        self.awaited: deque[threading.Lock] = deque()
        self._bell = bell
        # Before that time nobody waits; and how many submissions came since somebody has.
        self._next = 0.0
        self._came = 0

    def await_one(self) -> None:
        """Wakes the flow's thread, which is idle, and waits until it has done a turn, or for a moment."""
        start = time.perf_counter()
        if start < self._next:
            self._came += 1
            self.idle = self._came < _MANY
            if self._bell.asleep:
                self._bell.ring()
            return
        done = threading.Lock()
        done.acquire()
        self.awaited.append(done)
        self._bell.ring()
        done.acquire(timeout=_MOST)
        end = time.perf_counter()
        self._next, self._came = end + _FREE * (end - start), 0

    def sleep(self, waiting: Callable[[], bool], seconds: float | None) -> None:
        """Ends a turn of the flow's thread, which calls: lets those go on that wait, then sleeps.

        Args:
            waiting: whether something waits after all; see ``Waker.sleep``.
            seconds: how long at most; None for as long as it takes.
        """
        for _ in range(len(self.awaited)):
            self.awaited.popleft().release()
        self.idle = True
        self._bell.sleep(waiting, seconds)
        self.idle = False
