"""Filters by slot, and which slots a subscription has: what GPU engines know of subscriptions on the host."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evflow.gpu.column import Column
from evflow.gpu.device import Device
from evflow.matching.filters import Filters

__all__ = ["NEVER", "NOBODY", "FilterStore", "bloom", "blooms"]

NOBODY = -1
"""The reach of a filter that is gone: no place is so near."""

NEVER = 0xFFFFFFFF
"""Its size: so many constraints are never satisfied."""

_GOLDEN = np.uint32(0x9E3779B1)


def bloom(names: NDArray[np.int32]) -> NDArray[np.uint32]:
    """The bits that stand for names in a 32-bit Bloom filter, two each or one (CLCB, section 4.2, step S1a).

    Example:
        >>> [int(bits).bit_count() <= 2 for bits in bloom(np.arange(3, dtype=np.int32))]
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
        found[full] = np.bitwise_or.reduceat(bloom(names), bounds[full])
    return found


class FilterStore:
    """Columns by slot, and chains of slots by subscription, in the order of its filters.

    Attributes:
        subscription: int32: whose filter it is; -1: nobody's.
        size: uint32: how many constraints it has; ``NEVER`` once the filter is gone.
        bloom: uint32: their names.
        centre: float64: its area, as in ``Filters``; NaN: none.
        reach: likewise; ``NOBODY`` once the filter is gone.
    """

    def __init__(self, dimensions: int, device: Device | None = None) -> None:
        self.subscription = Column(np.int32, 1, device)
        self.size = Column(np.uint32, 1, device)
        self.bloom = Column(np.uint32, 1, device)
        self.centre = Column(np.float64, dimensions, device)
        self.reach = Column(np.float64, 1, device)
        self._next = Column(np.int32)
        self._head = Column(np.int32)
        self._free = np.empty(0, np.int64)
        self.filters = 0

    @property
    def columns(self) -> dict[str, Column]:
        """All columns that have a copy on the device."""
        return {
            "subscription": self.subscription,
            "size": self.size,
            "bloom": self.bloom,
            "centre": self.centre,
            "reach": self.reach,
        }

    def __len__(self) -> int:
        """How many slots there are, used or not."""
        return self.subscription.length

    @property
    def ids(self) -> int:
        """One more than the highest subscription that there ever was."""
        return self._head.length

    def reserve(self, filters: Filters) -> None:
        """Makes room for these; after a DeviceError nothing has changed."""
        fresh = max(0, len(filters) - len(self._free))
        for column in (*self.columns.values(), self._next):
            column.reserve(len(self) + fresh)
        if len(filters):
            self._head.reserve(int(filters.subscription.max()) + 1)

    def add(self, filters: Filters) -> NDArray[np.int64]:
        """Takes in filters for which there is room; gives their slots."""
        slots = self._slots(len(filters))
        start, sizes = filters.start, np.diff(filters.start).astype(np.uint32)
        self.subscription.write(slots, filters.subscription)
        self.size.write(slots, sizes)
        self.bloom.write(slots, blooms(filters.name[start[0] : start[-1]], start - start[0]))
        self.centre.write(slots, filters.centre)
        self.reach.write(slots, filters.reach)
        self._chain(slots, filters.subscription)
        return slots

    def _slots(self, count: int) -> NDArray[np.int64]:
        reused, self._free = self._free[:count], self._free[count:]
        fresh = count - len(reused)
        first = len(self)
        for column in (*self.columns.values(), self._next):
            column.lengthen(fresh)
        return np.concatenate((reused, np.arange(first, first + fresh)))

    def _chain(self, slots: NDArray[np.int64], owners: NDArray[np.int32]) -> None:
        """Links the slots of each subscription, which stand next to each other."""
        if not len(slots):
            return
        highest = int(owners.max()) + 1
        if highest > self._head.length:
            self._head.extend(np.full(highest - self._head.length, -1, np.int32))
        last = np.append(owners[1:] != owners[:-1], True)
        follower = np.append(slots[1:], -1)
        follower[last] = -1
        self._next.write(slots, follower)
        first = np.append(True, owners[1:] != owners[:-1])
        self._head.write(owners[first].astype(np.int64), slots[first])
        self.filters += len(slots)

    def slots_of(
        self, ids: NDArray[np.int32]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """All slots of these subscriptions.

        Returns:
            For each slot: the position in ``ids``, the filter's number in its subscription, the slot.
        """
        at = self._head.host[ids].astype(np.int64)
        which = np.flatnonzero(at >= 0)
        parts: list[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]] = []
        number = 0
        while len(which):
            here = at[which]
            parts.append((which, np.full(len(which), number), here))
            at[which] = self._next.host[here]
            which = which[at[which] >= 0]
            number += 1
        if not parts:
            none = np.empty(0, np.int64)
            return none, none, none
        entry, numbers, slots = (np.concatenate(column) for column in zip(*parts, strict=True))
        return entry, numbers, slots

    def remove(self, ids: NDArray[np.int32]) -> NDArray[np.int64]:
        """Forgets subscriptions; gives their slots, which are not used again before ``release``."""
        _, _, slots = self.slots_of(ids)
        self._head.write(ids.astype(np.int64), -1)
        self.subscription.write(slots, -1)
        self.size.write(slots, NEVER)
        self.centre.write(slots, 0)
        self.reach.write(slots, NOBODY)
        self.filters -= len(slots)
        return slots

    def release(self, slots: NDArray[np.int64]) -> None:
        """Lets slots be used again."""
        self._free = np.concatenate((self._free, slots))

    def moved(
        self,
        ids: NDArray[np.int32],
        which: NDArray[np.int32],
        centre: NDArray[Any],
        reach: NDArray[Any] | None,
    ) -> NDArray[np.int64]:
        """Changes areas, as ``Engine.move`` says; gives the slots, each once."""
        entry, number, slots = self.slots_of(ids)
        wanted = which[entry]
        fits = (wanted == number) | ((wanted < 0) & ~np.isnan(self.centre.host[slots, 0]))
        entry, slots = entry[fits], slots[fits]
        # The last entry for a slot wins: of equal slots keep the one whose entry is highest.
        order = np.lexsort((entry, slots))
        entry, slots = entry[order], slots[order]
        last = np.append(slots[1:] != slots[:-1], True)[: len(slots)]
        entry = entry[last]
        moved: NDArray[np.int64] = slots[last]
        self.centre.write(moved, centre[entry])
        if reach is not None:
            self.reach.write(moved, reach[entry])
        return moved

    def save(self, folder: Path) -> None:
        """Writes everything to files in ``folder``."""
        for name, column in (self.columns | {"next": self._next, "head": self._head}).items():
            column.save(folder / f"{name}.npy")
        np.save(folder / "free.npy", self._free)

    def load(self, folder: Path) -> None:
        """Takes what ``save`` wrote."""
        for name, column in (self.columns | {"next": self._next, "head": self._head}).items():
            column.load(folder / f"{name}.npy")
        self._free = np.load(folder / "free.npy")
        self.filters = int(np.count_nonzero(self.subscription.used >= 0))
