"""Engine `ccm`: counts satisfied constraints, one thread each (CCM, section 4).

An area is one more constraint, on the place as an attribute: the first of the three ways that CLCB, section
4.1, names. A filter that has no constraint at all gets one that is true.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from evflow.gpu.device import Memory
from evflow.gpu.pack import ATTRIBUTE
from evflow.gpu.single import MOST_ROWS, SingleEngine
from evflow.gpu.table import ALWAYS, AREA
from evflow.matching.rows import EventRows, Filters

EXTRA_ROWS = 2
"""Rows before those of names: areas, and what is always true."""


class Ccm(SingleEngine):
    """CCM as published: constraints by name, counters by atomics, two copies of counters and results in turn.

    The answer is a bit for each subscription, all of which are copied to the host.

    Example:
        >>> from evflow.matching import Matcher
        >>> matcher = Matcher("ccm")  # doctest: +SKIP
        >>> matcher.subscribe("temp > 30")  # doctest: +SKIP
        0
        >>> matcher.match({"temp": 31})  # doctest: +SKIP
        array([0], dtype=int32)
    """

    kernel_file = "ccm"
    steps = ("copy input", "count", "copy results")

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._counts: list[Memory | None] = [None, None]
        self._found: list[Memory | None] = [None, None]
        self._turn = 0
        self._out = self._device.pinned(4)

    def _named(self, filters: Filters) -> Filters:
        sizes = np.diff(filters.start)
        area = ~np.isnan(filters.centre[:, 0])
        always = (sizes == 0) & ~area
        extra = (area | always).astype(np.int64)
        start = np.append(0, np.cumsum(sizes + extra))
        made = np.ones(int(start[-1]), bool)
        first = start[:-1][extra > 0]
        made[first] = False
        columns: dict[str, Any] = {}
        for name, fill in (("name", 0), ("op", AREA), ("number", 0.0), ("text", -1)):
            old = getattr(filters, name)
            columns[name] = np.full(len(made), fill, old.dtype)
            columns[name][made] = old[filters.start[0] : filters.start[-1]]
        columns["name"][made] += EXTRA_ROWS
        true = start[:-1][always]
        columns["name"][true], columns["op"][true] = 1, ALWAYS
        return Filters(filters.subscription, start, centre=filters.centre, reach=filters.reach, **columns)

    def _reserve(self, ids: int, filters: int) -> None:
        nbytes = 4 * -(-ids // 32)
        for i in range(2):
            self._counts[i] = self._grown(self._counts[i], 4 * filters)
            self._found[i] = self._grown(self._found[i], nbytes)
        if nbytes > len(self._out):
            self._out = self._device.pinned(2 * nbytes)

    @property
    def _words(self) -> int:
        return -(-self._ids // 32)

    def _restart(self) -> None:
        for memory in (*self._counts, *self._found):
            if memory:
                self._device.clear(memory, self._stream)

    def _rows(self, events: EventRows) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        event = np.repeat(np.arange(len(events)), np.diff(events.start))
        row = events.name[events.start[0] : events.start[-1]].astype(np.int64) + EXTRA_ROWS
        attribute = np.arange(events.start[0], events.start[-1])
        every = np.arange(len(events))
        placed = np.flatnonzero(np.isfinite(events.place).all(axis=1))
        none = np.full(len(events), -1)
        event = np.concatenate((every, placed, event))
        attribute = np.concatenate((none, none[placed], attribute))
        row = np.concatenate((none + 2, none[placed] + 1, row))
        good = self._table.has(row)
        order = np.argsort(event[good], kind="stable")
        return event[good][order], attribute[good][order], row[good][order]

    def _start(self, rows: int, longest: int, chars: int, place: NDArray[np.float64], names: int) -> None:
        ours, other = self._turn, 1 - self._turn
        copies = [memory for memory in (*self._counts, *self._found) if memory]
        counts, found = copies[:2], copies[2:]
        kernel = self._kernels["ccm_plane" if self._dimensions == 2 else "ccm_globe"]
        for first in range(0, rows, MOST_ROWS):
            kernel(
                self._stream,
                longest,
                self._input.address + 32 * first,
                chars,
                *place.tolist(),
                *self._pointers,
                self._columns["centre"].address,
                self._columns["reach"].address,
                self._operands.data.address,
                self._operands.offsets.address,
                counts[ours].address,
                found[ours].address,
                counts[other].address,
                found[other].address,
                self._held.filters,
                self._words,
                rows=min(rows - first, MOST_ROWS),
            )
        self._mark(self._stream)
        self._device.fetch(self._out[: 4 * self._words], found[ours].address, self._stream)
        self._mark(self._stream)
        # Without a row no kernel ran, so neither copy has changed.
        self._turn = other if rows else ours

    def _answer(self) -> NDArray[np.int32]:
        bits = np.unpackbits(self._out[: 4 * self._words], bitorder="little")
        return np.flatnonzero(bits).astype(np.int32)

    def _traffic(self, rows: NDArray[np.int64], constraints: NDArray[np.int64]) -> tuple[Any, ...]:
        # The next event's counters and bits are cleared; a constraint is a code, an operand and a filter.
        count = 4 * self._held.filters + 4 * self._words + 13 * constraints
        return ATTRIBUTE.itemsize * rows, count, 4 * self._words

    def _state_bytes(self) -> int:
        return sum(memory.nbytes for memory in (*self._counts, *self._found) if memory)
