"""What a thread needs to match: queues that grow as wanted, and room for ids."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evflow.events.gather import address_of
from evflow.matching.engine import Matches
from evflow.matching.index import layout as at
from evflow.matching.index.arranging import Counts
from evflow.matching.index.memory import Buffer
from evflow.matching.index.report import match
from evflow.matching.rows import EventRows

_START = 1 << 16
_KNOWN = 256
_MANY = 1 << 18
_NO_IDS = np.empty(0, np.int32)
_COLUMNS = [field.name for field in fields(EventRows)]


def columns_of(events: EventRows) -> tuple[NDArray[np.int64], tuple[NDArray[Any], ...]]:
    """The addresses of the nine columns, good as long as the columns that are given with them are held."""
    columns = tuple(np.ascontiguousarray(getattr(events, name)) for name in _COLUMNS)
    return np.array([address_of(column) for column in columns]), columns


class Scratch:
    """The queues of one thread; ``run`` matches events with them."""

    def __init__(self) -> None:
        self._slots = np.zeros(at.SCRATCH_SIZE, np.int64)
        self._at = address_of(self._slots)
        self._buffers = [Buffer() for _ in at.BUFFERS]
        self._pair = np.zeros(2, np.int64)
        self._pair_at = address_of(self._pair)
        self._end = self._pair.data[1:]
        self._ids = np.empty(0, np.int32)
        self._reached = False
        # Held, so that what is named by its id stays what it was.
        self._known: dict[int, tuple[int, Any, Any, EventRows]] = {}
        for i in range(len(at.BUFFERS)):
            self._grow(i, _START)

    def _grow(self, i: int, size: int) -> None:
        buffer = self._buffers[i]
        if i == at.M_OUT // 2:
            # Memory that an array is on cannot grow in place.
            self._ids = np.empty(0, np.int32)
        buffer.grow(size)
        if i == at.M_OUT // 2:
            self._ids = buffer.view(np.int32)
        self._slots[2 * i] = buffer.address
        self._slots[2 * i + 1] = buffer.size

    @property
    def size(self) -> int:
        """Bytes of memory that the queues take."""
        return sum(buffer.size for buffer in self._buffers)

    def begin_counts(self, reached: bool) -> None:
        """Begins to count what matching takes; with ``reached`` also what an event reaches of the pool."""
        self._slots[at.M_SPENT : at.M_REACHED + 1] = 0
        self._slots[at.M_ASKED] = reached
        self._reached = reached

    def counts(self, events: int) -> Counts:
        """What these events have taken since counting began."""
        spent, candidates, reached = self._slots[at.M_SPENT : at.M_REACHED + 1].tolist()
        return Counts(events, spent, candidates, reached if self._reached else None)

    def _more(self, state: NDArray[np.int64]) -> None:
        """Makes the buffer larger that was too small."""
        wanted = int(self._slots[at.M_WANTED])
        size = 2 * self._buffers[wanted].size
        if wanted == at.M_DENSE // 2:
            size = max(size, 4 * int(state[at.ELEMENTS_CAPACITY]))
        elif wanted == at.M_STAMPS // 2:
            size = 4 * int(state[at.FIRST_CAPACITY])
            self._buffers[wanted].view(np.uint8)[:] = 0
            self._slots[at.M_SERIAL] = 0
        self._grow(wanted, size)

    def _match(
        self, engine: int, state: NDArray[np.int64], rows: int, offsets: int, start: int, stop: int
    ) -> None:
        """Matches events, with queues that are as long as it takes."""
        done = start
        while (done := match(engine, self._at, rows, offsets, start, done, stop)) != stop:
            self._more(state)

    def run_one(self, engine: int, state: NDArray[np.int64], events: EventRows) -> NDArray[np.int32]:
        """What the only event of the rows satisfies. Rows that come again are known."""
        rows = (self._known.get(id(events)) or self._know(events))[0]
        if match(engine, self._at, rows, self._pair_at, 0, 0, 1) != 1:
            self._more(state)
            self._match(engine, state, rows, self._pair_at, 0, 1)
        count = self._end[0]
        return self._ids[:count].copy() if count else _NO_IDS

    def _know(self, events: EventRows) -> tuple[int, Any, Any, EventRows]:
        """Where the columns of rows stand, which stay there as long as the rows are held."""
        if len(self._known) >= _KNOWN:
            self._known.clear()
        found, columns = columns_of(events)
        known = self._known[id(events)] = (address_of(found), found, columns, events)
        return known

    def run(self, engine: int, state: NDArray[np.int64], events: EventRows, start: int, stop: int) -> Matches:
        """What the events from ``start`` to ``stop`` satisfy; ``engine`` is where the state stands."""
        found, _held = columns_of(events)
        offsets = np.zeros(stop - start + 1, np.int64)
        self._match(engine, state, address_of(found), address_of(offsets), start, stop)
        return Matches(offsets, self._taken(int(offsets[-1])))

    def _taken(self, count: int) -> NDArray[np.int32]:
        """The ids, for the caller to keep: few are copied, many are handed over with their memory."""
        ids = self._ids[:count]
        if count < _MANY:
            return ids.copy()
        out = at.M_OUT // 2
        size = self._buffers[out].size
        self._buffers[out] = Buffer()
        self._grow(out, size)
        return ids
