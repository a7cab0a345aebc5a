"""A TCP proxy on loopback that holds everything back while it is cut."""

from __future__ import annotations

import selectors
import socket
import threading
from contextlib import suppress
from types import TracebackType

__all__ = ["Proxy"]

_MOST = 1 << 16


class Proxy:
    """Hands on what comes to one port to another, both ways.

    Args:
        port: where it listens.
        target: where what comes goes on to.
    """

    def __init__(self, port: int, target: int) -> None:
        self.port = port
        self._target = target
        self._cut = threading.Event()
        self._ended = threading.Event()
        self._others: dict[socket.socket, socket.socket] = {}
        self._selector = selectors.DefaultSelector()
        self._listener = socket.create_server(("127.0.0.1", port))
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def cut(self) -> None:
        """From now on nothing passes."""
        self._cut.set()

    def mend(self) -> None:
        """What was held back goes on."""
        self._cut.clear()

    def _work(self) -> None:
        while not self._ended.is_set():
            if self._cut.is_set():
                self._ended.wait(0.05)
                continue
            for key, _ in self._selector.select(0.05):
                if key.fileobj is self._listener:
                    self._accept()
                else:
                    self._pass(key.fileobj)  # type: ignore[arg-type]

    def _accept(self) -> None:
        near, _ = self._listener.accept()
        try:
            far = socket.create_connection(("127.0.0.1", self._target), timeout=1.0)
        except OSError:
            near.close()
            return
        for one, other in ((near, far), (far, near)):
            # A side that reads nothing must not hold up the others for long.
            one.settimeout(1.0)
            self._others[one] = other
            self._selector.register(one, selectors.EVENT_READ)

    def _pass(self, one: socket.socket) -> None:
        if one not in self._others:
            return
        try:
            data = one.recv(_MOST)
            if data:
                self._others[one].sendall(data)
                return
        except OSError:
            data = b""
        for end in (one, self._others[one]):
            self._selector.unregister(end)
            del self._others[end]
            end.close()

    def __enter__(self) -> Proxy:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()
        for end in (self._listener, *self._others):
            with suppress(OSError):
                end.close()
        self._selector.close()
