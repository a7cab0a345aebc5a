"""The thread that serves a node's links while the flow's thread is away: in a stone's own code, such as a
handler, or in machine code that takes long.

The flow's thread holds the lock of the links except while it is away. So links have one owner at any moment,
and what is done to them meanwhile never meets a pass half-way: frames that come are queued, not handled.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import TracebackType

from evflow.forked import renew

_PAUSE = 0.01
"""Seconds between two times that the links are served while the flow's thread is away."""


class Standby:
    """Serves links while another thread is away; a context manager, within which that thread is.

    Args:
        serve: takes what peers have sent, and sends what is due; called with the time of ``time.monotonic``.
        seconds: how long the links may be left alone.
        name: of the flow.

    Attributes:
        failure: what ``serve`` has raised; then nobody serves the links any more.
    """

    def __init__(self, serve: Callable[[float], None], seconds: float, name: str) -> None:
        self.failure: BaseException | None = None
        self._serve = serve
        self._seconds = seconds
        self._links = threading.Lock()
        self._away = False
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name=f"evflow links {name}", daemon=True)

    def begin(self) -> None:
        """The flow's thread begins: the links are its own."""
        self._links.acquire()
        self._thread.start()

    def end(self) -> None:
        """The flow's thread ends, and nobody serves the links any more."""
        self._ended.set()
        self._links.release()
        self._thread.join()

    def forsake(self) -> None:
        """In a fork: there is nobody here who could serve the links."""
        renew(self._links)

    def __enter__(self) -> None:
        self._away = True
        self._links.release()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._links.acquire()
        self._away = False

    def _watch(self) -> None:
        pause = self._seconds
        while not self._ended.wait(pause):
            pause = _PAUSE if self._away and self._step() else self._seconds

    def _step(self) -> bool:
        """Serves the links once, if the flow's thread is still away; gives whether it was."""
        if not self._links.acquire(timeout=self._seconds):
            return False
        try:
            if self._ended.is_set():
                return False
            self._serve(time.monotonic())
        except BaseException as error:  # noqa: BLE001  the flow's thread raises it when it is back
            self.failure = error
            self._ended.set()
        finally:
            self._links.release()
        return True
