"""Engine `clcb-grid`: CLCB for today's devices, with cells, batches of events, and candidates only.

Filters stand in the order of their cells (``evflow.gpu.cells``), each with its constraints. A batch of events
is one copy there, two kernels and one copy back; several batches are in flight. Filters that are new or have
moved to another cell stand behind the others, and are tested for every event, until they are many and all are
ordered anew.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from evflow.errors import SubscriptionError
from evflow.events.gather import starts_of
from evflow.gpu.device import BLOCK, OutOfMemory
from evflow.gpu.engine import DeviceEngine
from evflow.gpu.ordered import OrderedFilters
from evflow.gpu.pack import PackedEvents
from evflow.gpu.slots import HEADER, PAIR, Part, Slot
from evflow.matching.engine import Matches
from evflow.matching.moving import Moves
from evflow.matching.rows import EventRows, Filters
from evflow.matching.strings import Strings

BATCH_BYTES = 32 << 20
SEEN_BYTES = 256 << 20
ANSWER_BYTES = 256 << 20
RECENT = 4
"""Room is made for as much as so many batches before have found, and those in flight."""

CLEARING = 1 << 16
"""The most threads that clear what a batch has left behind."""

WARPS = 1024
"""A batch of fewer events than this gets more than one warp an event."""


class Grid(DeviceEngine):
    """CLCB with cells and batches.

    Args:
        strings: the strings that constraints compare with.
        dimensions: 2 on the plane, 3 on the globe.
        device: which CUDA device, from 0.
        batch: the most events of a batch.
        slots: batches that may be in flight.

    Example:
        >>> from evflow.matching import Matcher
        >>> matcher = Matcher("clcb-grid", batch=256)  # doctest: +SKIP
        >>> matcher.subscribe("temp > 30 and within(3, 4, 5)")  # doctest: +SKIP
        0
        >>> matcher.match({"temp": 31, "x": 0.0, "y": 0.0})  # doctest: +SKIP
        array([0], dtype=int32)
    """

    steps = ("copy input", "match", "clear", "copy results")

    def __init__(
        self, strings: Strings, dimensions: int, *, device: int = 0, batch: int = 1024, slots: int = 2
    ) -> None:
        for name, value in (("batch", batch), ("slots", slots)):
            if type(value) is not int or value < 1:
                raise SubscriptionError(f"engine clcb-grid: {name} {value!r}: expected a whole number from 1")
        super().__init__(device)
        kernels = self._device.kernels("grid")
        self._kernel = kernels["grid_plane" if dimensions == 2 else "grid_globe"]
        self._clear = kernels["clear"]
        self._filters = OrderedFilters(strings, dimensions, self._device)
        self._slots = [Slot(self._device) for _ in range(slots)]
        self._rates: deque[float] = deque(maxlen=RECENT + slots)
        self._batch = batch
        self._failed = False

    @property
    def filters(self) -> int:
        """How many filters there are."""
        return self._filters.filters

    def _add(self, filters: Filters) -> None:
        self._filters.add(filters)

    def _remove(self, ids: NDArray[np.int32]) -> None:
        self._filters.remove(ids)

    def _move(self, moves: Moves) -> None:
        self._filters.move(moves)

    def match(self, events: EventRows, threads: int = 1) -> Matches:
        """What these events satisfy, batch by batch, several of them in flight."""
        packed = PackedEvents(events, self._filters.needs_chars)
        return self._device.do("matching", lambda: self._match(packed))

    def _match(self, packed: PackedEvents) -> Matches:
        self._check()
        found: list[NDArray[np.int64]] = [np.empty((0, 2), np.int64)]
        waiting = deque([Part(0, len(packed))] if len(packed) and self._filters.filters else [])
        flying: deque[Slot] = deque()
        try:
            if waiting:
                self._prepare()
            while waiting or flying:
                free = waiting and len(flying) < len(self._slots)
                if not (free and self._launch(packed, waiting, flying)) and flying:
                    self._finish(waiting, flying, found)
        except BaseException:
            for slot in self._slots:
                slot.give_up()
            raise
        pairs = np.concatenate(found)
        offsets = starts_of(np.bincount(pairs[:, 0], minlength=len(packed)))
        return Matches(offsets, pairs[np.argsort(pairs[:, 0], kind="stable"), 1].astype(np.int32))

    def _prepare(self) -> None:
        """Sends what has changed; no batch is in flight then, but one that was given up may be."""
        if not (self._failed or self._filters.stale):
            return
        failed, self._failed = self._failed, True
        for slot in self._slots:
            slot.settle()
        if self._filters.unordered:
            with self._changing():
                self._filters.order()
        self._filters.flush(again=failed)
        self._failed = False

    def _launch(self, packed: PackedEvents, waiting: deque[Part], flying: deque[Slot]) -> bool:
        """Starts a batch of the events that wait; whether there was room."""
        slot = next(slot for slot in self._slots if slot.part is None)
        words, rate = -(-self._filters.ids // 32), max(self._rates, default=0.0)
        most = min(self._batch, SEEN_BYTES // (4 * words), ANSWER_BYTES // (PAIR * max(1, round(rate))))
        part = waiting.popleft()
        last = packed.cut(part.first, min(max(1, most), len(part)), BATCH_BYTES)
        if last < part.last:
            waiting.appendleft(Part(last, part.last))
            part = Part(part.first, last)
        try:
            slot.begin(packed, part, part.pairs or round(rate * len(part)), 4 * words)
        except OutOfMemory as error:
            self._with_less(slot, part, waiting, flying, error)
            return False
        self._mark(slot.stream)
        heads, attributes, chars, answer, seen = slot.send(packed)
        self._mark(slot.stream)
        self._kernel(
            slot.stream,
            32 * len(part),
            len(part),
            heads,
            attributes,
            chars,
            *self._filters.arguments,
            seen,
            words,
            answer,
            slot.capacity,
            rows=max(1, min(16, WARPS // len(part))),
            block=min(BLOCK, 32 * len(part)),
        )
        self._mark(slot.stream)
        self._clear(slot.stream, min(slot.capacity, CLEARING), answer, slot.capacity, seen, words)
        self._mark(slot.stream)
        slot.fetch()
        self._mark(slot.stream)
        flying.append(slot)
        return True

    def _with_less(
        self, slot: Slot, part: Part, waiting: deque[Part], flying: deque[Slot], error: OutOfMemory
    ) -> None:
        """Goes on where a part had no room: with the memory of other slots, with less room, or with half."""
        slot.give_up()
        slot.release()
        others = [other.release() for other in self._slots if other.part is None]
        if any(others) or flying or (self._rates and not part.pairs):
            waiting.appendleft(part)
            if not flying and not any(others):
                self._rates.clear()
        elif len(part) > 1:
            waiting.extendleft(reversed(part.halves()))
        else:
            raise error

    def _finish(self, waiting: deque[Part], flying: deque[Slot], found: list[NDArray[np.int64]]) -> None:
        """Waits for the batch that was started first."""
        part, pairs = flying.popleft().finish()
        self._rates.append(part.pairs / len(part))
        if pairs is None:
            waiting.appendleft(part)
        else:
            found.append(pairs + np.array([part.first, 0]))

    def least_bytes(self, events: EventRows) -> NDArray[np.float64]:
        """Bytes that have to be read or written at least for all of these events: a column for each step."""
        packed = PackedEvents(events, self._filters.needs_chars)
        names = 4 * int(self._filters.candidates(events).sum())
        return np.array([[packed.layout(0, len(packed))[2], names, 0, HEADER]], np.float64)

    # -- the rest

    def memory(self) -> Mapping[str, int]:
        """Bytes held, by what for."""
        return {**self._filters.memory(), "batches": sum(slot.nbytes for slot in self._slots)}

    def _save(self, folder: Path) -> None:
        self._filters.save(folder)

    def load(self, folder: Path) -> None:
        """Takes the state that ``save`` wrote."""
        self._filters.load(folder)
