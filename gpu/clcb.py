"""Engine `clcb`: areas and names first, then the constraints of filters that are left (CLCB, section 4)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evflow.gpu.device import Memory
from evflow.gpu.pack import ATTRIBUTE, blooms
from evflow.gpu.single import MOST_ROWS, SingleEngine
from evflow.matching.rows import EventRows, Filters

RUNS = 4
"""Events that share a 32-bit counter, a byte each."""

MOST_IN_BYTE = 254
"""Constraints that a byte can count beside the 1 that it starts with."""

FIRST = 1024
"""Words of the answer that are copied with every event: how many matched, and the first of them."""


class Clcb(SingleEngine):
    """CLCB as published: kernels Loc, Cont and Zip in one stream, which is waited for once an event.

    Where more than 1,023 subscriptions match, the rest are fetched by a second copy, with a wait of its own.

    Example:
        >>> from evflow.matching import Matcher
        >>> matcher = Matcher("clcb")  # doctest: +SKIP
        >>> matcher.subscribe("temp > 30 and within(3, 4, 5)")  # doctest: +SKIP
        0
        >>> matcher.match({"temp": 31, "x": 0.0, "y": 0.0})  # doctest: +SKIP
        array([0], dtype=int32)
    """

    kernel_file = "clcb"
    steps = ("copy input", "Loc", "Cont", "Zip", "copy results")
    """As in figure 6 of CLCB."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._counts: Memory | None = None
        self._matched: Memory | None = None
        self._result: Memory | None = None
        self._run = 0
        self._wide = False
        self._out = self._device.pinned(4 * FIRST)

    def _named(self, filters: Filters) -> Filters:
        return filters

    def _add(self, named: Filters) -> None:
        self._widen(np.diff(named.start))
        # The counters of new filters are cleared at a first run only.
        self._run = 0
        super()._add(named)

    def load(self, folder: Path) -> None:
        """Takes the state that ``save`` wrote."""
        super().load(folder)
        self._widen(np.diff(self._held.used().start))

    def _widen(self, sizes: NDArray[Any]) -> None:
        """Gives up bytes as counters if filters of so many constraints are too large for them."""
        self._wide |= bool(sizes.max(initial=0) > MOST_IN_BYTE)

    def _reserve(self, ids: int, filters: int) -> None:
        self._counts = self._grown(self._counts, 4 * filters)
        self._matched = self._grown(self._matched, ids)
        self._result = self._grown(self._result, 4 * (1 + ids))

    def _restart(self) -> None:
        self._run = 0
        if self._matched:
            self._device.clear(self._matched, self._stream)

    def _rows(self, events: EventRows) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        event = np.repeat(np.arange(len(events)), np.diff(events.start))
        attribute = np.arange(events.start[0], events.start[-1])
        row = events.name[attribute].astype(np.int64)
        good = self._table.has(row)
        return event[good], attribute[good], row[good]

    def _blooms(self, events: EventRows) -> NDArray[np.uint32]:
        start = events.start
        return blooms(events.name[start[0] : start[-1]], start - start[0])

    def _start(self, rows: int, longest: int, chars: int, place: NDArray[np.float64], names: int) -> None:
        counts, matched, result = self._counts, self._matched, self._result
        assert counts and matched and result
        columns, plane = self._columns, self._dimensions == 2
        self._kernels["loc_plane" if plane else "loc_globe"](
            self._stream,
            self._held.filters,
            self._held.filters,
            self._run,
            names,
            *place.tolist(),
            columns["bloom"].address,
            columns["centre"].address,
            columns["reach"].address,
            columns["size"].address,
            columns["subscription"].address,
            counts.address,
            matched.address,
            result.address,
        )
        self._mark(self._stream)
        for first in range(0, rows, MOST_ROWS):
            self._kernels["cont"](
                self._stream,
                longest,
                self._input.address + 32 * first,
                chars,
                self._run,
                0xFFFFFFFF if self._wide else 255,
                *self._pointers,
                self._operands.data.address,
                self._operands.offsets.address,
                counts.address,
                matched.address,
                rows=min(rows - first, MOST_ROWS),
            )
        self._mark(self._stream)
        self._kernels["zip"](self._stream, self._ids, self._ids, matched.address, result.address)
        self._mark(self._stream)
        self._run = 0 if self._wide else (self._run + 1) % RUNS
        first_bytes = 4 * min(FIRST, 1 + self._ids)
        self._device.fetch(self._out[:first_bytes], result.address, self._stream)
        self._mark(self._stream)

    def _answer(self) -> NDArray[np.int32]:
        assert self._result
        words = self._out.view(np.int32)
        count = int(words[0])
        if count < FIRST:
            return words[1 : 1 + count].copy()
        if 4 * (1 + count) > len(self._out):
            self._out = self._device.pinned(8 * (1 + count))
        self._device.fetch(self._out[: 4 * (1 + count)], self._result.address, self._stream)
        self._stream.synchronize()
        return self._out.view(np.int32)[1 : 1 + count].copy()

    def _traffic(self, rows: NDArray[np.int64], constraints: NDArray[np.int64]) -> tuple[Any, ...]:
        # Names and a counter of each filter, the latter at one event of four; a filter and its counter.
        loc = self._held.filters * (4 + (4 if self._wide else 1))
        return ATTRIBUTE.itemsize * rows, loc, 8 * constraints, self._ids, 4 * min(FIRST, 1 + self._ids)

    def _state_bytes(self) -> int:
        return sum(memory.nbytes for memory in (self._counts, self._matched, self._result) if memory)
