"""Batches in flight: while the device works on some, the host packs the next."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from evflow.errors import DeviceError
from evflow.gpu.device import Device, Memory
from evflow.gpu.pack import PackedEvents

HEADER = 8
"""Bytes of an answer before its pairs: how many there are, and 4 more, so that pairs are aligned."""

PAIR = 8

LEAST_PAIRS = 1024
"""There is always room for so many."""


SPARE = 8
"""Memory of more than so many times what is needed is given back."""


@dataclass(frozen=True, slots=True)
class Part:
    """Events of a call that are matched as one batch.

    Attributes:
        first: the number of its first event.
        last: one more than that of its last.
        pairs: how many they satisfy; 0: not known yet.
    """

    first: int
    last: int
    pairs: int = 0

    def __len__(self) -> int:
        return self.last - self.first

    def halves(self) -> list[Part]:
        """The same events as two parts, or as one if there is one only."""
        middle = (self.first + self.last) // 2
        both = (Part(self.first, middle), Part(middle, self.last))
        return [part for part in both if len(part)]


class Slot:
    """A stream, and memory on both sides, for one batch at a time.

    Attributes:
        part: which events it matches now; None: it is free.
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
        self.part: Part | None = None
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
        self._dirty |= self.part is not None
        self.part = None

    def begin(self, packed: PackedEvents, part: Part, pairs: int, bits: int) -> None:
        """Makes room for a part of a call.

        Args:
            packed: the events of the call.
            part: which of them.
            pairs: how many answers are expected; there is a quarter to spare.
            bits: bytes that each event needs for the bits of what was seen.
        """
        self.settle()
        self.part = part
        self.capacity = max(LEAST_PAIRS, pairs + pairs // 4)
        device, nbytes = self._device, HEADER + PAIR * self.capacity
        self._at = packed.layout(part.first, part.last)[2]
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

    def send(self, packed: PackedEvents) -> tuple[int, int, int, int, int]:
        """Copies the batch to the device.

        Returns:
            The addresses of its heads, attributes, strings, of the answer, and of the bits of what was seen.
        """
        assert self.part and self._pinned is not None and self._memory and self._seen
        heads, strings, end = packed.layout(self.part.first, self.part.last)
        packed.write(self.part.first, self.part.last, self._pinned)
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

    def finish(self) -> tuple[Part, NDArray[np.int32] | None]:
        """Waits for the answer; then the slot is free.

        Returns:
            The part, which knows how many pairs there are, and the pairs of event and subscription, a copy;
            None if there was no room for all.
        """
        assert self.part and self._answer is not None
        self._done.synchronize()
        count = int(self._answer[:4].view(np.uint32)[0])
        if count > self._most:
            raise DeviceError(
                f"the device says {count} matches of {len(self.part)} events: expected at most {self._most}"
            )
        part, self.part = replace(self.part, pairs=count), None
        if count > self.capacity:
            # The bits of those that had no room are still set.
            self._clean = False
            return part, None
        return part, self._answer[HEADER : HEADER + PAIR * count].view(np.int32).reshape(-1, 2).copy()


def _unfit(there: int, needed: int) -> bool:
    return there < needed or (there > SPARE * needed and there > 1 << 20)
