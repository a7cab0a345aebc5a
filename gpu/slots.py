"""Batches in flight: while the device works on some, the host packs the next."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from evflow.errors import DeviceError
from evflow.events.gather import starts_of
from evflow.gpu.batch import PackedEvents
from evflow.gpu.device import Device, Memory
from evflow.matching.engine import Matches
from evflow.matching.rows import EventRows

__all__ = ["HEADER", "Slot", "Ticket"]

HEADER = 8
"""Bytes of an answer before its pairs: how many there are, and 4 more, so that pairs are aligned."""

PAIR = 8


class Ticket:
    """Events that were submitted. What they satisfy is had from ``collect`` of the engine.

    Attributes:
        packed: the events.
        next: the first event that is in no batch yet.
        missing: how many batches have been started and not been read.
        error: why there will be no answer.
    """

    def __init__(self, events: EventRows, needs_chars: NDArray[np.bool_]) -> None:
        self._events = events
        self._needs_chars = needs_chars
        self.packed = PackedEvents(events, needs_chars)
        self.next = 0
        self.missing = 0
        self.error: DeviceError | None = None
        self._event = [np.empty(0, np.int64)]
        self._ids = [np.empty(0, np.int32)]

    def pack(self, needs_chars: NDArray[np.bool_]) -> None:
        """Packs the events anew if constraints have come that look at other strings."""
        if not np.array_equal(needs_chars, self._needs_chars):
            self._needs_chars = needs_chars
            self.packed = PackedEvents(self._events, needs_chars)

    @property
    def started(self) -> bool:
        """Whether all of its events are in some batch."""
        return self.next == len(self.packed)

    def take(self, first: int, pairs: NDArray[np.int32]) -> None:
        """Takes in what was found for the batch that starts at ``first``."""
        self._event.append(pairs[:, 0].astype(np.int64) + first)
        self._ids.append(pairs[:, 1].copy())
        self.missing -= 1

    def matches(self) -> Matches:
        """All that was found."""
        event, ids = np.concatenate(self._event), np.concatenate(self._ids)
        offsets = starts_of(np.bincount(event, minlength=len(self.packed)))
        return Matches(offsets, ids[np.argsort(event, kind="stable")])


class Slot:
    """A stream, and memory on both sides, for one batch at a time.

    Attributes:
        capacity: pairs that there is room for on the device.
        expected: pairs that are copied at once; the rest, if any, by another copy.
    """

    def __init__(self, device: Device) -> None:
        self._device = device
        self.stream = device.stream()
        self.done = device.event()
        self.capacity = 1024
        self.expected = 1024
        self._pinned = device.pinned(4)
        self._answer = device.pinned(HEADER + PAIR * self.expected)
        self._memory = device.allocate(4)
        self.seen: Memory | None = None
        self.ticket: Ticket | None = None
        self.first = self.last = 0
        self._at = 0

    @property
    def nbytes(self) -> int:
        """Bytes on the device."""
        return self._memory.nbytes + (self.seen.nbytes if self.seen else 0)

    def clear(self, nbytes: int) -> None:
        """Makes sure that there are so many bytes, of zeros, for the bits of what was seen."""
        if self.seen is None or self.seen.nbytes < nbytes:
            self.seen = self._device.allocate(nbytes)
            self._device.clear(self.seen, self.stream)

    def forget(self) -> None:
        """Drops what a failure may have left behind."""
        self.ticket = self.seen = None

    def load(self, ticket: Ticket, last: int) -> tuple[int, int, int, int]:
        """Packs the events from ``ticket.next`` to ``last``.

        Returns:
            The addresses of their heads, attributes, strings, and of the answer.
        """
        self.ticket, self.first, self.last = ticket, ticket.next, last
        heads, strings, end = ticket.packed.layout(self.first, last)
        if end + HEADER > len(self._pinned):
            self._pinned = self._device.pinned(2 * (end + HEADER))
        needed = end + HEADER + PAIR * self.capacity
        if needed > self._memory.nbytes:
            self._memory = self._device.allocate(needed + needed // 2)
        ticket.packed.write(self.first, last, self._pinned)
        # The count that kernels add to comes with the events.
        self._pinned[end : end + HEADER] = 0
        self._at = end
        base = self._memory.address
        return base, base + heads, base + strings, base + end

    def send(self) -> None:
        """Copies the batch to the device."""
        self._device.send(self._memory.address, self._pinned[: self._at + HEADER], self.stream)

    def fetch(self) -> None:
        """Copies the answer to the host, as far as it is expected to go."""
        nbytes = HEADER + PAIR * min(self.expected, self.capacity)
        if nbytes > len(self._answer):
            self._answer = self._device.pinned(2 * nbytes)
        self._device.fetch(self._answer[:nbytes], self._memory.address + self._at, self.stream)
        self.done.record(self.stream)

    def wait(self) -> int:
        """Waits for the answer; gives how many pairs there are."""
        self.done.synchronize()
        return int(self._answer[:4].view(np.uint32)[0])

    def pairs(self, count: int) -> NDArray[np.int32]:
        """The answer, fetched in full: (count, 2), the event in its batch and the subscription."""
        if count > min(self.expected, self.capacity):
            self.expected = count + count // 4
            self.fetch()
            self.done.synchronize()
        found: NDArray[Any] = self._answer[HEADER : HEADER + PAIR * count].view(np.int32)
        return found.reshape(-1, 2)
