"""A readers-writer lock: many read at once, one alone writes, and who wants to write goes first."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Condition, Lock

__all__ = ["Guard"]


class Guard:
    """Lets readers in together and a writer alone; readers that come while a writer waits queue behind it.

    A thread that reads must not enter again. ``enter`` and ``leave`` are for those who cannot afford a
    context manager.

    Example:
        >>> guard = Guard()
        >>> with guard.reading():
        ...     pass
        >>> with guard.writing():
        ...     pass
    """

    __slots__ = ("_free", "_lock", "_readers", "_waiting", "_writing")

    def __init__(self) -> None:
        self._lock = Lock()
        self._free = Condition(self._lock)
        self._readers = 0
        self._waiting = 0
        self._writing = False

    def enter(self) -> None:
        """Begins to read."""
        with self._lock:
            while self._writing or self._waiting:
                self._free.wait()
            self._readers += 1

    def leave(self) -> None:
        """Ends what ``enter`` began."""
        with self._lock:
            self._readers -= 1
            if self._waiting and not self._readers:
                self._free.notify_all()

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Holds the lock together with other readers."""
        self.enter()
        try:
            yield
        finally:
            self.leave()

    def enter_alone(self) -> None:
        """Begins to write."""
        with self._lock:
            self._waiting += 1
            try:
                while self._writing or self._readers:
                    self._free.wait()
                self._writing = True
            finally:
                self._waiting -= 1
                if not self._writing:  # interrupted while waiting
                    self._free.notify_all()

    def leave_alone(self) -> None:
        """Ends what ``enter_alone`` began."""
        with self._lock:
            self._writing = False
            self._free.notify_all()

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Holds the lock alone."""
        self.enter_alone()
        try:
            yield
        finally:
            self.leave_alone()
