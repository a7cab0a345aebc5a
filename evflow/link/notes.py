"""Notes: what nodes tell each other besides events. One way, at most once, within a session; who needs an
answer or certainty asks again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from evflow.errors import EvflowError, LinkError
from evflow.link.messages import MOST_NOTE, MOST_TOPIC

__all__ = ["Listener", "Notes", "checked"]

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
    """

    def __init__(self, refuse: Callable[[str, str], None]) -> None:
        self._refuse = refuse
        self._listeners: dict[str, Listener] = {}

    def listen(self, topic: str, call: Listener) -> None:
        """From now on ``call`` is given the notes of a topic; it takes the place of who listened before."""
        checked(topic, b"")
        self._listeners[topic] = call

    def take(self, peer: str, topic: str, body: Any, now: float) -> None:
        """Gives a note that came to who listens; what is wrong with it is counted, and costs nothing else."""
        call = self._listeners.get(topic)
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
        try:
            call(peer, memoryview(body).toreadonly(), now)
        except (EvflowError, RecursionError) as error:
            self._refuse("malformed", f"note {topic!r} of {peer}: {error}")
