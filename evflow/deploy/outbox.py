"""Notes to peers whose link is about to be up: kept a moment, or all that begins would begin late."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

__all__ = ["Outbox"]

_MOST = 100
_SECONDS = 2.0
_AGAIN = 0.01


class Outbox:
    """Notes that could not be sent at once.

    Args:
        tell: sends a note (peer, topic, body); False if there is no session.
    """

    def __init__(self, tell: Callable[[str, str, bytes], bool]) -> None:
        self._tell = tell
        self._waiting: dict[str, deque[tuple[float, str, bytes]]] = {}

    def send(self, peer: str, topic: str, body: bytes) -> None:
        """Sends a note, now or within two seconds; of many that wait for a peer the oldest are let go."""
        if peer in self._waiting or not self._tell(peer, topic, body):
            waiting = self._waiting.setdefault(peer, deque(maxlen=_MOST))
            waiting.append((time.monotonic() + _SECONDS, topic, body))

    def flush(self, now: float) -> float | None:
        """Sends what can be sent by now; gives when to be called again."""
        for peer, waiting in list(self._waiting.items()):
            while waiting and (now > waiting[0][0] or self._tell(peer, waiting[0][1], waiting[0][2])):
                waiting.popleft()
            if not waiting:
                del self._waiting[peer]
        return now + _AGAIN if self._waiting else None
