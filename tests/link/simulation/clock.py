"""Simulated time: what is to happen, in order."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import count

__all__ = ["Clock"]


class Clock:
    """Does what is due, in the order of time, and among equals in the order it was asked for.

    Attributes:
        now: seconds since the simulation began.
    """

    def __init__(self) -> None:
        self.now = 0.0
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = count()

    def at(self, time: float, call: Callable[[], None]) -> None:
        """Calls at a time, or at once if that has passed."""
        heapq.heappush(self._due, (max(time, self.now), next(self._numbers), call))

    def step(self) -> bool:
        """Does the next thing; False if there is none."""
        if not self._due:
            return False
        self.now, _, call = heapq.heappop(self._due)
        call()
        return True
