"""A readers-writer lock: many read at once, one alone writes, and who wants to write goes first.

To read takes no lock while nobody writes. Readers and writers each put a mark in a list of theirs, which the
interpreter does in one step, and look at the other list after. So of two that come at once, one sees the
other.

Changes may wait to be made together: whoever comes in next, to read or to write, makes them first.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sized
from contextlib import contextmanager
from threading import Condition, Lock
from weakref import WeakSet

from evflow.forked import renew


class Guard:
    """Lets readers in together and a writer alone; readers that come while a writer waits queue behind it.

    A thread that reads must not enter again. ``enter`` and ``leave`` are for those who cannot afford a
    context manager.

    Args:
        waiting: changes that wait to be made; false if there are none.
        make: makes them; it is called by one alone.

    Example:
        >>> guard = Guard()
        >>> with guard.reading():
        ...     pass
        >>> with guard.writing():
        ...     pass
    """

    __slots__ = ("__weakref__", "_alone", "_changed", "_make", "_readers", "_waiting", "_writers")

    def __init__(self, waiting: Sized = (), make: Callable[[], None] = lambda: None) -> None:
        self._waiting = waiting
        self._make = make
        self._readers: list[None] = []  # a mark for each that reads
        self._writers: list[None] = []  # a mark for each that writes or waits to
        self._alone = Lock()  # held by the one that writes
        self._changed = Condition(Lock())
        with _making:
            _guards.add(self)

    def enter(self) -> None:
        """Begins to read."""
        if not self._waiting:
            self._readers.append(None)
            if not self._writers:
                return
            self.leave()
        # Whoever holds the lock of writers makes the next of them wait, and comes in between any two.
        with self.writing() if self._waiting else self._alone:
            self._readers.append(None)

    def leave(self) -> None:
        """Ends what ``enter`` began."""
        self._readers.pop()
        if self._writers:
            with self._changed:
                self._changed.notify_all()

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Holds the lock together with other readers."""
        self.enter()
        try:
            yield
        finally:
            self.leave()

    def enter_alone(self) -> None:
        """Begins to write; changes that waited are made."""
        self._writers.append(None)
        alone = False
        try:
            alone = self._alone.acquire()
            if self._readers:
                self._wait_for_readers()
            if self._waiting:
                self._make()
        except BaseException:  # interrupted while waiting
            self._writers.pop()
            if alone:
                self._alone.release()
            raise

    def _wait_for_readers(self) -> None:
        with self._changed:
            while self._readers:
                self._changed.wait()

    def leave_alone(self) -> None:
        """Ends what ``enter_alone`` began."""
        self._writers.pop()
        self._alone.release()

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Holds the lock alone."""
        self.enter_alone()
        try:
            yield
        finally:
            self.leave_alone()

    def renew(self) -> None:
        """Makes it free in a fork, which no thread of the parent will leave."""
        self._readers.clear()
        self._writers.clear()
        renew(self._alone, self._changed)


_guards: WeakSet[Guard] = WeakSet()
_making = Lock()
_held: list[Guard] = []


def _before_fork() -> None:
    # A fork must not copy half a change.
    _making.acquire()
    _held[:] = _guards
    for guard in _held:
        guard.enter()


def _after_in_parent() -> None:
    for guard in _held:
        guard.leave()
    _held.clear()
    _making.release()


def _after_in_child() -> None:
    for guard in _held:
        guard.renew()
    _held.clear()
    renew(_making)


os.register_at_fork(before=_before_fork, after_in_parent=_after_in_parent, after_in_child=_after_in_child)
