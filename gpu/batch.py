"""Events as ``clcb-grid`` sends them: a batch is one piece of memory, its heads, attributes and strings."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from evflow.gpu.pack import ATTRIBUTE, attributes, gathered, places
from evflow.gpu.store import blooms
from evflow.matching.rows import EventRows

__all__ = ["HEAD", "PackedEvents"]

HEAD = np.dtype(
    [
        ("place", np.float64, 3),
        ("bloom", np.uint32),
        ("first", np.int32),
        ("last", np.int32),
        ("unused", np.int32),
    ]
)
"""``Event`` of ``gpu/kernels/grid.cu``."""


class PackedEvents:
    """All events of a call, ready to be cut into batches.

    Args:
        events: what the matcher was given.
        needs_chars: by name: whether some constraint compares the bytes of its strings.
    """

    def __init__(self, events: EventRows, needs_chars: NDArray[np.bool_]) -> None:
        count, base = len(events), int(events.start[0])
        bounds = events.start - base
        which = np.arange(base, int(events.start[-1]))
        event = np.repeat(np.arange(count), np.diff(bounds))
        names = events.name[which]
        which = which[np.lexsort((names, event))]
        names = events.name[which]
        self.heads = np.zeros(count, HEAD)
        self.heads["place"] = places(events)
        self.heads["first"], self.heads["last"] = bounds[:-1], bounds[1:]
        self.heads["bloom"] = blooms(names, bounds)
        self.attributes: NDArray[np.void] = attributes(events, which)
        self.attributes["start"] = names
        known = names < len(needs_chars)
        wanted = known & needs_chars[np.where(known, names, 0)] if len(needs_chars) else known
        self.chars, ends = gathered(events, which[wanted])
        lengths = np.zeros(len(which), np.int64)
        lengths[wanted] = np.diff(ends)
        self._chars_at = np.append(0, np.cumsum(lengths))
        self._bounds = bounds

    def __len__(self) -> int:
        return len(self.heads)

    def layout(self, first: int, last: int) -> tuple[int, int, int]:
        """Where the attributes, the strings and the answer of these events start in their batch, in bytes."""
        a, b = int(self._bounds[first]), int(self._bounds[last])
        heads = HEAD.itemsize * (last - first)
        strings = heads + ATTRIBUTE.itemsize * (b - a)
        return heads, strings, -(-(strings + int(self._chars_at[b] - self._chars_at[a])) // 8) * 8

    def cut(self, first: int, most: int, nbytes: int) -> int:
        """The end of the batch that starts at ``first``: one event, or at most so many events and bytes."""
        last = min(first + most, len(self))
        while last > first + 1 and self.layout(first, last)[2] > nbytes:
            last = first + (last - first) // 2
        return last

    def write(self, first: int, last: int, to: NDArray[np.uint8]) -> None:
        """Writes a batch, up to the answer."""
        heads, strings, end = self.layout(first, last)
        a, b = int(self._bounds[first]), int(self._bounds[last])
        head = to[:heads].view(HEAD)
        head[:] = self.heads[first:last]
        head["first"] -= a
        head["last"] -= a
        attribute = to[heads:strings].view(ATTRIBUTE)
        attribute[:] = self.attributes[a:b]
        attribute["chars"] = self._chars_at[a:b] - self._chars_at[a]
        chars = self.chars[self._chars_at[a] : self._chars_at[b]]
        to[strings : strings + len(chars)] = chars
        to[strings + len(chars) : end] = 0
