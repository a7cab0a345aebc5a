"""Events as kernels read them: a record of 32 bytes an attribute, the bytes of strings, bits for names.

``clcb-grid`` sends a batch as one piece of memory: heads of events, attributes, strings.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from evflow.events.gather import starts_of
from evflow.matching.rows import TEXT, EventRows

_GOLDEN = np.uint32(0x9E3779B1)

ATTRIBUTE = np.dtype(
    [
        ("number", np.float64),
        ("start", np.int32),
        ("size", np.int32),
        ("kind", np.int32),
        ("text", np.int32),
        ("chars", np.int32),
        ("length", np.int32),
    ]
)
"""``Attribute`` of ``gpu/kernels/values.cuh``."""

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


def places(events: EventRows) -> NDArray[np.float64]:
    """(N, 3): where each event happened, with NaN for nowhere and 0 for a third coordinate on the plane."""
    found = np.zeros((len(events), 3))
    found[:, : events.place.shape[1]] = events.place
    found[~np.isfinite(found).all(axis=1)] = np.nan
    return found


def attributes(events: EventRows, which: NDArray[np.int64]) -> NDArray[np.void]:
    """Records of these attributes, without ``start``, ``size`` and ``chars``."""
    made = np.zeros(len(which), ATTRIBUTE)
    made["number"] = events.number[which]
    made["kind"] = events.kind[which]
    made["text"] = events.text[which]
    made["length"] = np.where(events.kind[which] == TEXT, events.char_length[which], 0)
    return made


def gathered(events: EventRows, which: NDArray[np.int64]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """The bytes of these attributes' strings, one after the other.

    Returns:
        The bytes, and for each attribute where its own start; one more for the end.
    """
    length = np.where(events.kind[which] == TEXT, events.char_length[which], 0).astype(np.int64)
    bounds = starts_of(length)
    shift = np.where(length > 0, events.char_start[which], 0) - bounds[:-1]
    return events.chars[np.repeat(shift, length) + np.arange(bounds[-1])], bounds


def _bloom(names: NDArray[np.int32]) -> NDArray[np.uint32]:
    """The bits that stand for names in a 32-bit Bloom filter, two each or one (CLCB, section 4.2, step S1a).

    Example:
        >>> [int(bits).bit_count() <= 2 for bits in _bloom(np.arange(3, dtype=np.int32))]
        [True, True, True]
    """
    hashed = names.astype(np.uint32) * _GOLDEN
    one = np.uint32(1)
    bits: NDArray[np.uint32] = one << (hashed >> np.uint32(27)) | one << (
        (hashed >> np.uint32(22)) & np.uint32(31)
    )
    return bits


def blooms(names: NDArray[np.int32], bounds: NDArray[np.int64]) -> NDArray[np.uint32]:
    """The bits of groups of names; ``bounds`` says where each group starts, and where the last ends.

    Example:
        >>> blooms(np.zeros(2, np.int32), np.array([0, 0, 2])).tolist()
        [0, 1]
    """
    found = np.zeros(len(bounds) - 1, np.uint32)
    full = np.flatnonzero(np.diff(bounds))
    if len(full):
        found[full] = np.bitwise_or.reduceat(_bloom(names), bounds[full])
    return found


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
