"""Notes: what nodes tell each other besides events. One way, at most once, within a session; who needs an
answer or certainty asks again."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import Any

from evflow import mishaps
from evflow.errors import EvflowError, LinkError
from evflow.link.messages import MOST_NOTE, MOST_TOPIC
from evflow.mishaps import CONTAINED, named

__all__ = ["Listener", "Notes", "checked"]

_log = logging.getLogger("evflow.link")
_NOTE = 1 << 10
"""Bytes that a note takes beside its body, about."""

_MOST_WAITING = 4 * MOST_NOTE
"""Bytes of notes that wait while a pass is under way; notes may be lost, so the oldest go first."""

Listener = Callable[[str, memoryview, float], None]
"""(peer, body, now); the body is the listener's to keep, and may be megabytes."""


def checked(topic: str, body: bytes) -> None:
    """Sees to it that a note can be sent.

    Raises:
        LinkError: its topic or body is too long.
    """
    if not 0 < len(topic) <= MOST_TOPIC:
        raise LinkError(
            f"note {topic[:80]!r}: expected a topic of 1 to {MOST_TOPIC} characters, found {len(topic)}"
        )
    if len(body) > MOST_NOTE:
        raise LinkError(
            f"note {topic!r}: expected at most {MOST_NOTE} bytes, found {len(body)}; send it in parts"
        )


class Notes:
    """Who listens to which topic.

    Args:
        refuse: called with the kind of what is refused, and the reason.

    Attributes:
        serving: whether a pass is under way, so that notes wait unless their listener is prompt.
    """

    def __init__(self, refuse: Callable[[str, str], None]) -> None:
        self.serving = False
        self._refuse = refuse
        self._listeners: dict[str, tuple[Listener, bool]] = {}
        self._waiting: deque[tuple[str, str, memoryview]] = deque()
        self._waiting_bytes = 0

    def listen(self, topic: str, call: Listener, prompt: bool = False) -> None:
        """From now on ``call`` is given the notes of a topic; it takes the place of who listened before.

        Args:
            topic: what the notes are about.
            call: called with the peer, the body and the time; an ``EvflowError`` that it raises is counted as
                refused.
            prompt: whether ``call`` only hands a note over to another thread; then notes do not wait for
                handlers.
        """
        checked(topic, b"")
        self._listeners[topic] = (call, prompt)

    def take(self, peer: str, topic: str, body: Any, now: float) -> None:
        """Gives a note that came to who listens; what is wrong with it is counted, and costs nothing else."""
        call, prompt = self._listeners.get(topic, (None, False))
        if call is None:
            self._refuse("unknown topic", f"note {topic[:MOST_TOPIC]!r} of {peer}: nobody listens to it here")
            return
        size = None if body is None else memoryview(body).nbytes
        if size is None or size > MOST_NOTE:
            found = "nothing" if size is None else f"{size} bytes"
            self._refuse(
                "malformed", f"note {topic!r} of {peer}: expected up to {MOST_NOTE} bytes, found {found}"
            )
            return
        note = memoryview(body).toreadonly()
        if self.serving and not prompt:
            self._wait(peer, topic, note)
            return
        self.deliver(now)
        self._give(call, peer, topic, note, now)

    def _wait(self, peer: str, topic: str, body: memoryview) -> None:
        self._waiting.append((peer, topic, body))
        self._waiting_bytes += len(body) + _NOTE
        while self._waiting_bytes > _MOST_WAITING:
            self._waiting_bytes -= len(self._waiting.popleft()[2]) + _NOTE

    def deliver(self, now: float) -> None:
        """Gives the notes that have waited for the end of a pass to who listens."""
        while self._waiting and not self.serving:
            peer, topic, body = self._waiting.popleft()
            self._waiting_bytes -= len(body) + _NOTE
            self._give(self._listeners[topic][0], peer, topic, body, now)

    def _give(self, call: Listener, peer: str, topic: str, body: memoryview, now: float) -> None:
        try:
            call(peer, body, now)
        except (EvflowError, RecursionError) as error:
            self._refuse("malformed", f"note {topic!r} of {peer}: {error}")
        except CONTAINED as error:
            mishaps.tell(
                _log, f"note {topic!r} of {peer}", "who listens to it failed: the note is lost", error
            )
            self._refuse("failed", f"note {topic!r} of {peer}: {named(error)}")
