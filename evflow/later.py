"""An answer that is given later, and something that other threads wait for."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

__all__ = ["Later", "Once"]


class Later:
    """An answer that an actor has not got yet: ``Actor.answer`` returns it, and ``give`` answers once.

    Whoever asks waits as long as its timeout says, so give an answer in time, if only one that says nothing.

    Example:
        >>> later = Later()
        >>> later.give({"matches": 3})
        >>> later.tell(print)
        {'matches': 3}
    """

    __slots__ = ("_answer", "_reply")

    def __init__(self) -> None:
        self._answer: list[Any] = []
        self._reply: Callable[[Any], None] | None = None

    def give(self, answer: Any) -> None:
        """Answers; what is given later than the first is ignored. Called by the thread of the actor.

        Args:
            answer: plain data, as msgpack has it, or an ``EvflowError``, which is raised where it was asked.
        """
        if not self._answer:
            self._answer.append(answer)
            if self._reply is not None:
                self._reply(answer)

    def tell(self, reply: Callable[[Any], None]) -> None:
        """Says who takes the answer, now or once it is given; for the engine.

        Args:
            reply: called with it.
        """
        self._reply = reply
        if self._answer:
            reply(self._answer[0])


class Once:
    """Something that happens once, and that any number of threads wait for: an event without a condition."""

    __slots__ = ("_happened", "_lock")

    def __init__(self) -> None:
        self._happened = False
        self._lock = threading.Lock()
        self._lock.acquire()

    def is_set(self) -> bool:
        """Whether it has happened."""
        return self._happened

    def set(self) -> None:
        """Says that it has happened; called by one thread."""
        if not self._happened:
            self._happened = True
            self._lock.release()

    def wait(self, timeout: float) -> bool:
        """Waits for it; gives whether it has happened.

        Args:
            timeout: seconds.
        """
        if not self._happened and self._lock.acquire(timeout=timeout):
            self._lock.release()
        return self._happened
