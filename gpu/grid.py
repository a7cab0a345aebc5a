"""Engine `clcb-grid`: CLCB for today's devices, with cells, batches of events, and candidates only.

Filters stand in the order of their cells (``evflow.gpu.cells``), each with its constraints. A batch of events
is one copy there, two kernels and one copy back; several batches are in flight. Filters that are new or have
moved to another cell stand behind the others, and are tested for every event, until they are many and all are
ordered anew.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from weakref import WeakSet

import numpy as np
from numpy.typing import NDArray

from evflow.errors import DeviceError, SubscriptionError
from evflow.gpu.batch import PackedEvents
from evflow.gpu.changes import Changes
from evflow.gpu.device import BLOCK, Device, OutOfMemory
from evflow.gpu.ordered import OrderedFilters
from evflow.gpu.slots import HEADER, PAIR, Slot, Ticket
from evflow.gpu.timing import StepTimer
from evflow.matching.engine import Matches
from evflow.matching.filters import Filters
from evflow.matching.rows import EventRows
from evflow.matching.strings import Strings

__all__ = ["Grid"]

BATCH_BYTES = 32 << 20
SEEN_BYTES = 256 << 20
ANSWER_BYTES = 256 << 20
RECENT = 4
"""Room is made for as much as so many batches before have found, and those in flight."""

CLEARING = 1 << 16
"""The most threads that clear what a batch has left behind."""

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

    steps = ("copy input", "match", "clear", "copy results")
    """What is done for a batch, as ``times`` and ``least_bytes`` tell of it."""

    def __init__(
        self, strings: Strings, dimensions: int, *, device: int = 0, batch: int = 1024, slots: int = 2
    ) -> None:
        for name, value in (("batch", batch), ("slots", slots)):
            if type(value) is not int or value < 1:
                raise SubscriptionError(f"engine clcb-grid: {name} {value!r}: expected a whole number from 1")
        self._device = Device.of(device)
        kernels = self._device.kernels("grid")
        self._kernel = kernels["grid_plane" if dimensions == 2 else "grid_globe"]
        self._clear = kernels["clear"]
        self._filters = OrderedFilters(strings, dimensions, self._device)
        self._slots = [Slot(self._device) for _ in range(slots)]
        self._flying: deque[Slot] = deque()
        self._tickets: WeakSet[Ticket] = WeakSet()
        self._rates: deque[float] = deque(maxlen=RECENT + slots)
        self._batch = batch
        self._changes = Changes()
        self._failed = False
        self._timer = StepTimer(self._device, self.steps)

    @property
    def filters(self) -> int:
        """How many filters there are."""
        return self._filters.filters

    # -- subscriptions

    def _change(
        self, doing: str, change: Callable[[], object], undo: Callable[[], object] | None = None
    ) -> None:
        """Changes filters, once all batches under way have met them as they are."""

        def job() -> None:
            for ticket in list(self._tickets):
                # The ticket tells of failures.
                with suppress(DeviceError):
                    self._complete(ticket, started=True)
            with self._changes.making():
                change()

        self._device.do(doing, job, undo)

    def add(self, filters: Filters) -> None:
        """Takes these in. After a DeviceError or an interrupt none of them is there."""
        ids = np.unique(filters.subscription)
        self._change("subscribing", lambda: self._filters.add(filters), lambda: self.remove(ids))

    def remove(self, ids: NDArray[np.int32]) -> None:
        """Forgets subscriptions."""
        self._change("unsubscribing", lambda: self._filters.remove(ids))

    def move(
        self,
        ids: NDArray[np.int32],
        which: NDArray[np.int32],
        centre: NDArray[Any],
        reach: NDArray[Any] | None,
    ) -> None:
        """Gives filters another centre, and another reach unless None."""
        self._change("moving", lambda: self._filters.move(ids, which, centre, reach))

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
        ticket = Ticket(events, self._filters.needs_chars)
        self._device.do("matching", lambda: self._start(ticket))
        return ticket

    def collect(self, ticket: Ticket) -> Matches:
        """What submitted events satisfy.

        Raises:
            DeviceError: as for ``match``.
        """
        self._device.do("matching", lambda: self._complete(ticket))
        return ticket.matches()

    def _start(self, ticket: Ticket) -> None:
        self._changes.check()
        self._tickets.add(ticket)
        if not self._filters.filters:
            ticket.waiting.clear()
        with self._or_give_up(ticket):
            while ticket.waiting and len(self._flying) < len(self._slots):
                self._launch(ticket)

    def _complete(self, ticket: Ticket, started: bool = False) -> None:
        """Matches what is left of a ticket, or only what was started."""
        while ticket.error is None and (ticket.missing or ticket.left(started)):
            with self._or_give_up(ticket):
                if ticket.left(started) and len(self._flying) < len(self._slots):
                    self._launch(ticket)
                else:
                    self._finish()

    @contextmanager
    def _or_give_up(self, ticket: Ticket) -> Iterator[None]:
        """Whatever goes wrong in there, this ticket gets no answer, and all others get theirs."""
        try:
            with self._device.doing("matching"):
                yield
        except BaseException as error:
            self._flying = deque(slot for slot in self._flying if slot.ticket is not ticket)
            for slot in self._slots:
                if slot.ticket is ticket:
                    slot.give_up()
            ticket.error = error if isinstance(error, DeviceError) else DeviceError(f"given up: {error!r}")
            raise

    def _prepare(self) -> None:
        """Sends what has changed; no batch is in flight then, but one that was given up may be."""
        self._changes.check()
        if not (self._failed or self._filters.stale):
            return
        failed, self._failed = self._failed, True
        for slot in self._slots:
            slot.settle()
        if self._filters.unordered:
            with self._changes.making():
                self._filters.order()
        self._filters.flush(again=failed)
        self._failed = False

    def _launch(self, ticket: Ticket) -> None:
        self._prepare()
        slot = next(slot for slot in self._slots if slot.ticket is None)
        ticket.pack(self._filters.needs_chars)
        words, rate = -(-self._filters.ids // 32), max(self._rates, default=0.0)
        most = min(self._batch, SEEN_BYTES // (4 * words), ANSWER_BYTES // (PAIR * max(1, round(rate))))
        part = ticket.next_part(max(1, most), BATCH_BYTES)
        try:
            slot.begin(ticket, part, part.pairs or round(rate * len(part)), 4 * words)
        except OutOfMemory as error:
            self._with_less(slot, error)
            return
        self._timer.mark(slot.stream)
        heads, attributes, chars, answer, seen = slot.send()
        self._timer.mark(slot.stream)
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
        self._timer.mark(slot.stream)
        self._clear(slot.stream, min(slot.capacity, CLEARING), answer, slot.capacity, seen, words)
        self._timer.mark(slot.stream)
        slot.fetch()
        self._timer.mark(slot.stream)
        ticket.missing += 1
        self._flying.append(slot)

    def _with_less(self, slot: Slot, error: OutOfMemory) -> None:
        """Goes on where a part had no room: with the memory of other slots, with less room, or with half."""
        ticket, part = slot.ticket, slot.part
        assert ticket is not None
        slot.give_up()
        slot.release()
        others = [other.release() for other in self._slots if other.ticket is None]
        if any(others) or self._flying or (self._rates and not part.pairs):
            ticket.waiting.appendleft(part)
            if self._flying:
                self._finish()
            elif not any(others):
                self._rates.clear()
        elif len(part) > 1:
            ticket.waiting.extendleft(reversed(part.halves()))
        else:
            raise error

    def _finish(self) -> None:
        """Waits for the batch that was started first. If it fails its ticket says so."""
        slot = self._flying[0]
        assert slot.ticket is not None
        with suppress(DeviceError), self._or_give_up(slot.ticket):
            self._flying.popleft()
            self._rates.append(slot.finish())

    def times(self, events: EventRows) -> NDArray[np.float64]:
        """Milliseconds that the device takes: a row for each batch, a column for each of ``steps``."""
        return self._timer.times(lambda: self.match(events))

    def least_bytes(self, events: EventRows) -> NDArray[np.float64]:
        """Bytes that have to be read or written at least for all of these events: a column for each step."""
        packed = PackedEvents(events, self._filters.needs_chars)
        names = 4 * int(self._filters.candidates(events).sum())
        return np.array([[packed.layout(0, len(packed))[2], names, 0, HEADER]], np.float64)

    # -- the rest

    def memory(self) -> Mapping[str, int]:
        """Bytes held, by what for."""
        return {**self._filters.memory(), "batches": sum(slot.nbytes for slot in self._slots)}

    def details(self) -> dict[str, str]:
        """What it runs on."""
        return {"device": self._device.name}

    def save(self, folder: Path) -> None:
        """Writes all state to files in ``folder``.

        Raises:
            DeviceError: a change was broken off, so that the state is not known.
        """
        self._changes.check()
        self._filters.save(folder)

    def load(self, folder: Path) -> None:
        """Takes the state that ``save`` wrote."""
        self._filters.load(folder)
