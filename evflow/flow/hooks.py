"""What a flow's thread calls in each of its turns."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from contextlib import suppress

from evflow import mishaps
from evflow.mishaps import CONTAINED

_log = logging.getLogger("evflow.flow")

_AFTER_FAILURE = 1.0
"""Seconds until a hook is called again that has failed."""

Hook = Callable[[float], float | None]


class _Known:
    """A hook, and when to call it next at the latest."""

    def __init__(self, call: Hook, links: bool) -> None:
        self.call = call
        self.links = links
        self.due: float | None = 0.0
        self.failed = False


class Hooks:
    """The hooks of one flow. Any thread may add and end them; one at a time calls them.

    Args:
        name: the flow's name, for the log.

    Attributes:
        known: the hooks that there are.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self.known: list[_Known] = []

    def add(self, call: Hook, links: bool) -> Callable[[], None]:
        """Adds a hook; see ``Worker.each_turn``."""
        hook = _Known(call, links)
        # What changes the list does so in one step of the interpreter.
        self.known.append(hook)

        def end() -> None:
            with suppress(ValueError):
                self.known.remove(hook)

        return end

    def call(self, links: bool) -> None:
        """Calls all hooks, or those only that need nothing but the links; one that has failed waits a
        second."""
        for hook in list(self.known):
            if (links and not hook.links) or (hook.failed and time.monotonic() < (hook.due or 0.0)):
                continue
            try:
                hook.due, hook.failed = hook.call(time.monotonic()), False
            except CONTAINED as error:
                hook.due, hook.failed = time.monotonic() + _AFTER_FAILURE, True
                mishaps.tell(_log, f"flow {self._name}", "what is called in each turn failed", error)

    @property
    def due(self) -> float:
        """When one is to be called next at the latest, as ``time.monotonic`` tells it; infinity if never."""
        times = [math.inf if hook.due is None else hook.due for hook in list(self.known)]
        return min(times, default=math.inf)
