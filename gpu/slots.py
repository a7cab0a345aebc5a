"""Batches in flight: while the device works on some, the host packs the next."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evflow.errors import DeviceError
from evflow.events.gather import starts_of
from evflow.gpu.batch import PackedEvents
from evflow.gpu.device import Device, Memory
from evflow.matching.engine import Matches
from evflow.matching.rows import EventRows

__all__ = ["HEADER", "PAIR", "Part", "Slot", "Ticket"]

HEADER = 8
"""Bytes of an answer before its pairs: how many there are, and 4 more, so that pairs are aligned."""

PAIR = 8

LEAST_PAIRS = 1024
"""There is always room for so many."""


SPARE = 8
"""Memory of more than so many times what is needed is given back."""


@dataclass(frozen=True, slots=True)
class Part:
    """Events of a ticket that are matched as one batch.

    Attributes:
        first: the number of its first event.
        last: one more than that of its last.
        pairs: how many they satisfy; 0: not known yet.
        started: whether they were matched already, but there was no room for the answer.
    """

    first: int
    last: int
    pairs: int = 0
    started: bool = False

    def __len__(self) -> int:
        return self.last - self.first

    def halves(self) -> list[Part]:
        """The same events as two parts, or as one if there is one only."""
        middle = (self.first + self.last) // 2
        both = (replace(self, last=middle, pairs=0), replace(self, first=middle, pairs=0))
        return [part for part in both if len(part)]


class Ticket:
    """Events that were submitted. What they satisfy is had from ``collect`` of the engine.

    Attributes:
        packed: the events.
        waiting: what has to be matched still, the first at the left.
        missing: how many batches have been started and not been read.
        error: why there will be no answer.
    """

    def __init__(self, events: EventRows, needs_chars: NDArray[np.bool_]) -> None:
        self._events = events
        self._needs_chars = needs_chars
        self.packed = PackedEvents(events, needs_chars)
        self.waiting = deque([Part(0, len(self.packed))] if len(self.packed) else [])
        self.missing = 0
        self.error: DeviceError | None = None
        self._event = [np.empty(0, np.int64)]
        self._ids = [np.empty(0, np.int32)]

    def pack(self, needs_chars: NDArray[np.bool_]) -> None:
        """Packs the events anew if constraints have come that look at other strings."""
        if not np.array_equal(needs_chars, self._needs_chars):
            self._needs_chars = needs_chars
            self.packed = PackedEvents(self._events, needs_chars)

    def left(self, started: bool = False) -> bool:
        """Whether some part waits to be matched; with ``started`` one that was matched already."""
        return bool(self.waiting) and (self.waiting[0].started or not started)

    def next_part(self, most: int, nbytes: int) -> Part:
        """Takes from those that wait: at most so many events and bytes, but one event at least."""
        part = self.waiting.popleft()
        last = self.packed.cut(part.first, min(most, len(part)), nbytes)
        if last < part.last:
            self.waiting.appendleft(replace(part, first=last, pairs=0))
            part = replace(part, last=last, pairs=0)
        return part

    def take(self, part: Part, pairs: NDArray[np.int32]) -> None:
        """Takes in what was found for a part."""
        self._event.append(pairs[:, 0].astype(np.int64) + part.first)
        self._ids.append(pairs[:, 1].copy())
        self.missing -= 1

    def matches(self) -> Matches:
        """All that was found.

        Raises:
            DeviceError: there is no answer.
        """
        if self.error is not None:
            raise self.error
        event, ids = np.concatenate(self._event), np.concatenate(self._ids)
        offsets = starts_of(np.bincount(event, minlength=len(self.packed)))
        return Matches(offsets, ids[np.argsort(event, kind="stable")])


class Slot:
    """A stream, and memory on both sides, for one batch at a time.

    Attributes:
        ticket: whose events it matches now; None: it is free.
        part: which of them.
        capacity: pairs that there is room for, all of which are copied back.
    """

    def __init__(self, device: Device) -> None:
        self._device = device
        self.stream = device.stream()
        self._done = device.mark()
        self._pinned: NDArray[np.uint8] | None = None
        self._answer: NDArray[np.uint8] | None = None
        self._memory: Memory | None = None
        self._seen: Memory | None = None
        self._clean = self._dirty = False
        self.ticket: Ticket | None = None
        self.part = Part(0, 0)
        self.capacity = 0
        self._at = self._most = 0

    def release(self) -> bool:
        """Drops all of its memory; says whether there was some."""
        held = self._pinned is not None
        self._pinned = self._answer = self._memory = self._seen = None
        return held

    @property
    def nbytes(self) -> int:
        """Bytes on the device."""
        return sum(memory.nbytes for memory in (self._memory, self._seen) if memory)

    def settle(self) -> None:
        """Waits for what a batch that was given up has left behind."""
        if self._dirty:
            self.stream.synchronize()
            self._dirty = self._clean = False

    def give_up(self) -> None:
        """Drops the batch, which may be on its way still."""
        self._dirty = True
        self.ticket = None

    def begin(self, ticket: Ticket, part: Part, pairs: int, bits: int) -> None:
        """Makes room for a part of a ticket.

        Args:
            ticket: whose events.
            part: which of them.
            pairs: how many answers are expected; there is a quarter to spare.
            bits: bytes that each event needs for the bits of what was seen.
        """
        self.settle()
        self.ticket, self.part = ticket, part
        self.capacity = max(LEAST_PAIRS, pairs + pairs // 4)
        device, nbytes = self._device, HEADER + PAIR * self.capacity
        self._at = ticket.packed.layout(part.first, part.last)[2]
        self._most = 8 * bits * len(part)
        if self._memory is None or _unfit(self._memory.nbytes, self._at + nbytes):
            self._memory = device.allocate((self._at + nbytes) * 3 // 2)
        if self._seen is None or self._seen.nbytes < bits * len(part):
            self._clean = False
            self._seen = device.allocate(bits * len(part))
        if self._pinned is None or _unfit(len(self._pinned), self._at + HEADER):
            self._pinned = device.pinned(2 * (self._at + HEADER))
        if self._answer is None or _unfit(len(self._answer), nbytes):
            self._answer = device.pinned(nbytes)
        if not self._clean:
            device.clear(self._seen, self.stream)
            self._clean = True

    def send(self) -> tuple[int, int, int, int, int]:
        """Copies the batch to the device.

        Returns:
            The addresses of its heads, attributes, strings, of the answer, and of the bits of what was seen.
        """
        assert self.ticket and self._pinned is not None and self._memory and self._seen
        heads, strings, end = self.ticket.packed.layout(self.part.first, self.part.last)
        self.ticket.packed.write(self.part.first, self.part.last, self._pinned)
        # The count that kernels add to comes with the events.
        self._pinned[end : end + HEADER] = 0
        base = self._memory.address
        self._device.send(base, self._pinned[: end + HEADER], self.stream)
        return base, base + heads, base + strings, base + end, self._seen.address

    def fetch(self) -> None:
        """Copies the answer to the host."""
        assert self._answer is not None and self._memory
        answer = self._answer[: HEADER + PAIR * self.capacity]
        self._device.fetch(answer, self._memory.address + self._at, self.stream)
        self._done.record(self.stream)

    def finish(self) -> float:
        """Waits for the answer and gives it to the ticket. If there was no room for all, all wait again.

        Returns:
            How many pairs there were for each event.
        """
        assert self.ticket and self._answer is not None
        self._done.synchronize()
        ticket, count = self.ticket, int(self._answer[:4].view(np.uint32)[0])
        if count > self._most:
            raise DeviceError(
                f"the device says {count} matches of {len(self.part)} events: expected at most {self._most}"
            )
        if count <= self.capacity:
            found: NDArray[Any] = self._answer[HEADER : HEADER + PAIR * count].view(np.int32)
            ticket.take(self.part, found.reshape(-1, 2))
        else:
            # The bits of those that had no room are still set.
            self._clean = False
            ticket.missing -= 1
            ticket.waiting.appendleft(replace(self.part, pairs=count, started=True))
        self.ticket = None
        return count / len(self.part)


def _unfit(there: int, needed: int) -> bool:
    return there < needed or (there > SPARE * needed and there > 1 << 20)
