"""The bell of a node's thread: it sleeps at the sockets, and others wake it."""

from __future__ import annotations

import math
import os
import threading
from typing import Any

import zmq

from evflow.forked import renew

Socket = zmq.Socket[bytes]

# As a plain number: those of zmq are enumerations, which take their time.
_IN = int(zmq.POLLIN)


class NetBell:
    """Wakes a thread that sleeps at sockets.

    Attributes:
        asleep: whether it has to be rung.
        ready: the sockets over which something had come when it slept last, and zmq's flags for them.
    """

    def __init__(self) -> None:
        self.asleep = False
        self._fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._closed = False
        self._closing = threading.Lock()
        self._watched: list[tuple[Any, int]] = [(self._fd, _IN)]
        self.ready: list[tuple[Any, int]] = []

    def watch(self, socket: Socket | int) -> None:
        """From now on what comes over a socket, of ZeroMQ or of the system, wakes it."""
        self._watched.append((socket, _IN))

    def leave(self, socket: Socket | int) -> None:
        """From now on it does not."""
        self._watched.remove((socket, _IN))

    def ring(self) -> None:
        """Wakes the sleeper; rings on when it is awake, so it does not fall asleep."""
        # Until it sleeps again nobody else needs to.
        self.asleep = False
        # Whoever rings may be late, and the number may belong to another file by then.
        with self._closing:
            if not self._closed:
                os.eventfd_write(self._fd, 1)

    def sleep(self, seconds: float | None) -> None:
        """Sleeps until rung since ``asleep`` was set, until something comes over a socket, or for
        ``seconds``; finds which sockets are ready."""
        # Rounded up, or it would wake just before what is due.
        milliseconds = -1 if seconds is None else max(math.ceil(seconds * 1e3), 0)
        self.ready = zmq.zmq_poll(self._watched, milliseconds)
        self.asleep = False
        # The first that is watched is the bell itself.
        if self.ready and self.ready[0][0] == self._fd:
            del self.ready[0]
            os.eventfd_read(self._fd)

    def look(self) -> None:
        """Finds which sockets are ready, without sleeping; a ring is left for the sleeper."""
        self.ready = [one for one in zmq.zmq_poll(self._watched, 0) if one[0] != self._fd]

    def forsake(self) -> None:
        """In a fork: what it rings is the parent's."""
        renew(self._closing)
        self.close()

    def close(self) -> None:
        """Gives back what it holds; from now on ringing does nothing."""
        with self._closing:
            if not self._closed:
                self._closed = True
                os.close(self._fd)
