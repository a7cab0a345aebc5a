"""Engine `clcb-grid`: CLCB for today's devices, with cells, batches of events, and candidates only.

Filters stand in the order of their cells (``evflow.gpu.cells``), each with its constraints. A batch of events
is one copy there, two kernels and one copy back; several batches are in flight. Filters that are new or have
moved to another cell stand behind the others, and are tested for every event, until they are many and all are
ordered anew.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evflow.errors import DeviceError, SubscriptionError
from evflow.gpu.device import BLOCK, Device
from evflow.gpu.ordered import OrderedFilters
from evflow.gpu.slots import Slot, Ticket
from evflow.matching.engine import Matches
from evflow.matching.filters import Filters
from evflow.matching.rows import EventRows
from evflow.matching.strings import Strings

__all__ = ["Grid"]

BATCH_BYTES = 32 << 20
SEEN_BYTES = 256 << 20
WARPS = 1024
"""A batch of fewer events than this gets more than one warp an event."""


class Grid:
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

    def __init__(
        self, strings: Strings, dimensions: int, *, device: int = 0, batch: int = 1024, slots: int = 2
    ) -> None:
        for name, value in (("batch", batch), ("slots", slots)):
            if type(value) is not int or value < 1:
                raise SubscriptionError(f"engine clcb-grid: {name} {value!r}: expected a whole number from 1")
        self._device = Device(device)
        kernels = self._device.kernels("grid")
        self._kernel = kernels["grid_plane" if dimensions == 2 else "grid_globe"]
        self._clear = kernels["clear"]
        self._filters = OrderedFilters(strings, dimensions, self._device)
        self._slots = [Slot(self._device) for _ in range(slots)]
        self._flying: deque[Slot] = deque()
        self._batch = batch
        self._lock = threading.Lock()
        self._failed = False

    @property
    def filters(self) -> int:
        """How many filters there are."""
        return self._filters.filters

    # -- subscriptions

    def _land(self) -> None:
        """Waits for the batches in flight, which see filters as they are. Their tickets tell of failures."""
        with suppress(DeviceError):
            while self._flying:
                with _Safely(self):
                    self._finish()

    def add(self, filters: Filters) -> None:
        """Takes these in. After a DeviceError none of them is there."""
        with self._lock:
            self._land()
            self._filters.add(filters)

    def remove(self, ids: NDArray[np.int32]) -> None:
        """Forgets subscriptions."""
        with self._lock:
            self._land()
            self._filters.remove(ids)

    def move(
        self,
        ids: NDArray[np.int32],
        which: NDArray[np.int32],
        centre: NDArray[Any],
        reach: NDArray[Any] | None,
    ) -> None:
        """Gives filters another centre, and another reach unless None."""
        with self._lock:
            self._land()
            self._filters.move(ids, which, centre, reach)

    # -- events

    def match(self, events: EventRows, threads: int = 1) -> Matches:
        """What these events satisfy.

        Raises:
            DeviceError: the device has failed. Subscriptions are as before, and the next call tries again.
        """
        return self.collect(self.submit(events))

    def submit(self, events: EventRows) -> Ticket:
        """Starts to match events, as far as there are free slots; ``collect`` starts the rest and waits.

        Those that are started meet the subscriptions of now, the rest those of when they are.

        Raises:
            DeviceError: as for ``match``.
        """
        with self._lock:
            ticket = Ticket(events, self._filters.needs_chars)
            if not self._filters.filters:
                ticket.next = len(ticket.packed)
                return ticket
            with _Safely(self):
                self._prepare()
                while not ticket.started and len(self._flying) < len(self._slots):
                    self._launch(ticket)
        return ticket

    def collect(self, ticket: Ticket) -> Matches:
        """What submitted events satisfy.

        Raises:
            DeviceError: as for ``match``; or the events were lost when another call failed.
        """
        with self._lock:
            while ticket.error is None and not (ticket.started and not ticket.missing):
                with _Safely(self):
                    if not ticket.started and len(self._flying) < len(self._slots):
                        self._prepare()
                        self._launch(ticket)
                    else:
                        self._finish()
            if ticket.error is not None:
                raise ticket.error
            return ticket.matches()

    def _prepare(self) -> None:
        """Sends what has changed; no batch is in flight then."""
        if not (self._failed or self._filters.stale):
            return
        if self._failed:
            for slot in self._slots:
                slot.stream.synchronize()
        self._filters.flush(again=self._failed)
        self._failed = False

    def _launch(self, ticket: Ticket) -> None:
        slot = next(slot for slot in self._slots if slot.ticket is None)
        ticket.pack(self._filters.needs_chars)
        words = -(-self._filters.ids // 32)
        most = min(self._batch, max(1, SEEN_BYTES // (4 * words)))
        last = ticket.packed.cut(ticket.next, most, BATCH_BYTES)
        try:
            slot.clear(4 * words * min(most, len(ticket.packed)))
            self._start(slot, ticket, last, words)
        except BaseException:
            slot.forget()
            raise
        ticket.next = last
        ticket.missing += 1
        self._flying.append(slot)

    def _start(self, slot: Slot, ticket: Ticket, last: int, words: int) -> None:
        heads, attributes, chars, answer = slot.load(ticket, last)
        assert slot.seen
        events = slot.last - slot.first
        slot.send()
        self._kernel(
            slot.stream,
            32 * events,
            events,
            heads,
            attributes,
            chars,
            *self._filters.arguments,
            slot.seen.address,
            words,
            answer,
            slot.capacity,
            rows=max(1, min(16, WARPS // events)),
            block=min(BLOCK, 32 * events),
        )
        self._clear(slot.stream, slot.capacity, answer, slot.capacity, slot.seen.address, words)
        slot.fetch()

    def _finish(self) -> None:
        """Waits for the batch that was started first."""
        slot = self._flying[0]
        ticket = slot.ticket
        assert ticket
        count = slot.wait()
        while count > slot.capacity:
            # Once more, with room for all; the bits of those that had none are still set.
            slot.capacity = slot.expected = count + count // 4
            slot.seen = None
            words = -(-self._filters.ids // 32)
            slot.clear(4 * words * (slot.last - slot.first))
            ticket_next, ticket.next = ticket.next, slot.first
            self._start(slot, ticket, slot.last, words)
            ticket.next = ticket_next
            count = slot.wait()
        ticket.take(slot.first, slot.pairs(count))
        slot.ticket = None
        self._flying.popleft()

    def _fail(self, error: DeviceError) -> None:
        """Gives up all batches in flight."""
        self._failed = True
        for slot in self._slots:
            if slot.ticket is not None:
                slot.ticket.error = error
            slot.forget()
        self._flying.clear()

    # -- the rest

    def memory(self) -> Mapping[str, int]:
        """Bytes held, by what for."""
        return {**self._filters.memory(), "batches": sum(slot.nbytes for slot in self._slots)}

    def details(self) -> dict[str, str]:
        """What it runs on."""
        return {"device": self._device.name}

    def save(self, folder: Path) -> None:
        """Writes all state to files in ``folder``."""
        self._filters.save(folder)

    def load(self, folder: Path) -> None:
        """Takes the state that ``save`` wrote."""
        self._filters.load(folder)


class _Safely:
    """The device's context, and that a failure in it gives up what is in flight."""

    def __init__(self, grid: Grid) -> None:
        self._grid = grid
        self._current = grid._device.current("matching")

    def __enter__(self) -> None:
        self._current.__enter__()

    def __exit__(self, *error: Any) -> None:
        try:
            self._current.__exit__(*error)
        except DeviceError as failure:
            self._grid._fail(failure)
            raise
