"""Batches of matches that wait for the program, which takes them in a thread or in asyncio."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress

from evflow.tiles.messages import Rows

__all__ = ["Batches", "Matches"]


class Matches:
    """A queue with one end in the connection's thread and one in any thread or event loop."""

    def __init__(self) -> None:
        self._rows: deque[Rows] = deque()
        self._is_closed = False
        self._changed = threading.Condition()
        self._told: list[Callable[[], object]] = []

    def put(self, rows: Rows) -> None:
        """Adds a batch.

        Args:
            rows: of ``MATCH``.
        """
        with self._changed:
            self._rows.append(rows)
            self._tell()

    def close(self) -> None:
        """Ends all who wait, once they have what is there."""
        with self._changed:
            self._is_closed = True
            self._tell()

    def _tell(self) -> None:
        self._changed.notify_all()
        for tell in self._told:
            # The loop of who does not wait any more may have ended.
            with suppress(RuntimeError):
                tell()

    def take(self, timeout: float | None) -> Iterator[Rows]:
        """Batches as they come; see ``Connection.batches`` for ``timeout``."""
        while True:
            with self._changed:
                if not self._changed.wait_for(lambda: self._rows or self._is_closed, timeout):
                    return
                if not self._rows:
                    return
                rows = self._rows.popleft()
            yield rows

    async def awaited(self, timeout: float | None) -> AsyncIterator[Rows]:
        """The same for asyncio; see ``Connection.batches`` for ``timeout``."""
        loop, came = asyncio.get_running_loop(), asyncio.Event()

        def tell() -> None:
            loop.call_soon_threadsafe(came.set)

        with self._changed:
            self._told.append(tell)
        try:
            while True:
                came.clear()
                with self._changed:
                    rows, is_closed = self._rows.popleft() if self._rows else None, self._is_closed
                if rows is not None:
                    yield rows
                elif is_closed:
                    return
                else:
                    await asyncio.wait_for(came.wait(), timeout)
        except TimeoutError:
            return
        finally:
            with self._changed:
                self._told.remove(tell)


class Batches:
    """Matches in batches: rows of ``MATCH``, by ``for`` or ``async for``.

    Args:
        matches: where they come from.
        timeout: seconds without any after which it ends; None for never.
    """

    def __init__(self, matches: Matches, timeout: float | None) -> None:
        self._matches, self._timeout = matches, timeout

    def __iter__(self) -> Iterator[Rows]:
        return self._matches.take(self._timeout)

    def __aiter__(self) -> AsyncIterator[Rows]:
        return self._matches.awaited(self._timeout)
