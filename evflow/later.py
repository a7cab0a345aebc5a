"""An answer that is given later."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["Later"]


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
