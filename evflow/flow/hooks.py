"""What a flow's thread calls in each of its turns."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

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
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._known: tuple[_Known, ...] = ()

    def add(self, call: Hook, links: bool) -> Callable[[], None]:
        """Adds a hook; see ``Worker.each_turn``."""
        hook = _Known(call, links)
        self._known = (*self._known, hook)

        def end() -> None:
            self._known = tuple(known for known in self._known if known is not hook)

        return end

    def call(self, links: bool) -> None:
        """Calls all hooks, or those only that need nothing but the links; one that has failed waits a
        second."""
        for hook in self._known:
            if (links and not hook.links) or (hook.failed and time.monotonic() < (hook.due or 0.0)):
                continue
            try:
                hook.due, hook.failed = hook.call(time.monotonic()), False
            except CONTAINED as error:
                hook.due, hook.failed = time.monotonic() + _AFTER_FAILURE, True
                mishaps.tell(_log, f"flow {self._name}", "what is called in each turn failed", error)

    @property
    def due(self) -> float | None:
        """When one is to be called next at the latest, as ``time.monotonic`` tells it; None if none is."""
        due = None
        for hook in self._known:
            if hook.due is not None and (due is None or hook.due < due):
                due = hook.due
        return due
