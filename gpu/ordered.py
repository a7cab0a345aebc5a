"""Filters in the order of their cells, on the device, and how they change."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evflow.gpu.cells import EVERYWHERE, Cells
from evflow.gpu.column import Column, Staging
from evflow.gpu.device import Device
from evflow.gpu.operands import Operands
from evflow.gpu.store import NOBODY, FilterStore
from evflow.gpu.table import NEEDS_CHARS, coded
from evflow.matching.filters import Filters
from evflow.matching.rows import EventRows
from evflow.matching.strings import Strings

__all__ = ["OrderedFilters"]

LEAST_RECENT = 1024
RECENT_SHARE = 64
"""Ordered anew once more than this many filters, and more than this share of all, stand out of order."""


class OrderedFilters:
    """Places in an order: filters that match anywhere, filters by bucket, and recent ones in no order.

    Attributes:
        needs_chars: bool, by name: whether some constraint compares the bytes of strings.
        stale: whether something has to be sent before a kernel runs.
    """

    def __init__(self, strings: Strings, dimensions: int, device: Device) -> None:
        self._store = FilterStore(dimensions)
        self._first = Column(np.int64)
        self._place = Column(np.int64)
        self._bucket = Column(np.int64)
        self._placed = {
            "centre": Column(np.float64, dimensions, device),
            "reach": Column(np.float64, 1, device),
            "bloom": Column(np.uint32, 1, device),
            "subscription": Column(np.int32, 1, device),
            "first": Column(np.int32, 1, device),
            "size": Column(np.uint32, 1, device),
        }
        self._constraints = {
            "name": Column(np.int32, 1, device),
            "code": Column(np.uint8, 1, device),
            "operand": Column(np.float64, 1, device),
        }
        self._operands = Operands(strings, device)
        self._buckets = Column(np.uint32, 1, device)
        self._inverse = Column(np.float64, 1, device)
        self._cells = Cells(self._store.centre.used, self._store.reach.used)
        self._staging = Staging(device)
        self._everywhere = self._recent = 0
        self.needs_chars = np.zeros(0, bool)
        self.stale = True

    @property
    def filters(self) -> int:
        """How many there are."""
        return self._store.filters

    @property
    def ids(self) -> int:
        """One more than the highest subscription that there ever was."""
        return self._store.ids

    @property
    def _total(self) -> int:
        return self._placed["reach"].length

    @property
    def _by_slot(self) -> tuple[Column, ...]:
        return self._first, self._place, self._bucket

    def add(self, filters: Filters) -> None:
        """Takes these in. After a DeviceError none of them is there."""
        store, count = self._store, len(filters)
        # A column that grows has to be sent again, whatever becomes of the others.
        self.stale = True
        store.reserve(filters)
        slots_needed = len(store) + count
        for column in self._by_slot:
            column.reserve(slots_needed)
        for column in self._placed.values():
            column.reserve(self._total + count)
        base = self._constraints["name"].length
        for column in self._constraints.values():
            column.reserve(base + len(filters.name))
        self._operands.reserve()
        slots = store.add(filters)
        for column in self._by_slot:
            column.lengthen(len(store) - column.length)
        self._first.write(slots, base + filters.start[:-1] - filters.start[0])
        self._add_constraints(filters)
        self._append(slots)

    def _add_constraints(self, filters: Filters) -> None:
        part = slice(int(filters.start[0]), int(filters.start[-1]))
        names = filters.name[part]
        codes, operands = coded(filters.op[part], filters.number[part], filters.text[part])
        for name, values in (("name", names), ("code", codes), ("operand", operands)):
            self._constraints[name].extend(values)
        self._operands.update()
        missing = max(0, int(names.max(initial=-1)) + 1 - len(self.needs_chars))
        # Another array, since tickets hold the one that they were packed with.
        needs_chars = np.append(self.needs_chars, np.zeros(missing, bool))
        needs_chars[names[NEEDS_CHARS[codes]]] = True
        self.needs_chars = needs_chars

    def _append(self, slots: NDArray[np.int64]) -> None:
        """Puts filters behind all others; there is room."""
        self._place.write(slots, np.arange(self._total, self._total + len(slots)))
        for name, values in self._values(slots).items():
            self._placed[name].extend(values)
        self.stale = True

    def _values(self, slots: NDArray[np.int64]) -> dict[str, NDArray[Any]]:
        store = self._store
        by_slot = {
            "centre": store.centre,
            "reach": store.reach,
            "bloom": store.bloom,
            "subscription": store.subscription,
            "first": self._first,
            "size": store.size,
        }
        return {name: column.host[slots] for name, column in by_slot.items()}

    def _leave(self, places: NDArray[np.int64]) -> None:
        """Makes the filters that stood at these places match nothing there."""
        self._placed["centre"].write(places, 0)
        self._placed["reach"].write(places, NOBODY)
        self.stale = True

    def remove(self, ids: NDArray[np.int32]) -> None:
        """Forgets subscriptions."""
        slots = self._store.remove(ids)
        self._leave(self._place.host[slots])
        self._store.release(slots)

    def move(
        self,
        ids: NDArray[np.int32],
        which: NDArray[np.int32],
        centre: NDArray[Any],
        reach: NDArray[Any] | None,
    ) -> None:
        """Changes areas, as ``Engine.move`` says. After a DeviceError none has changed."""
        store, self.stale = self._store, True
        _, _, slots = store.slots_of(ids)
        for column in self._placed.values():
            column.reserve(self._total + len(slots))
        slots = store.moved(ids, which, centre, reach)
        places = self._place.host[slots]
        buckets = self._cells.buckets(store.centre.host[slots], store.reach.host[slots])
        stays = (places >= self._recent) | (buckets == self._bucket.host[slots])
        staying, leaving = slots[stays], slots[~stays]
        self._placed["centre"].write(places[stays], store.centre.host[staying])
        if reach is not None:
            self._placed["reach"].write(places[stays], store.reach.host[staying])
        self._leave(places[~stays])
        self._append(leaving)

    @property
    def unordered(self) -> bool:
        """Whether so many filters stand behind the others that all should be ordered anew."""
        most = max(LEAST_RECENT, self._recent // RECENT_SHARE)
        return self._total - self._recent > most or not self._buckets.length

    def flush(self, again: bool = False) -> None:
        """Sends what has changed, and waits until it has arrived.

        Args:
            again: send everything, since nobody knows what has arrived.
        """
        columns = [*self._placed.values(), *self._constraints.values(), self._buckets, self._inverse]
        if again:
            self._staging.wait()
            self._operands.renew()
            for column in columns:
                column.renew()
        for column in columns:
            column.flush(self._staging)
        self._operands.flush(self._staging)
        self._staging.wait()
        self.stale = False

    def order(self) -> None:
        """Puts all filters in order, and leaves out the constraints of those that are gone.

        After a DeviceError they stand as before.
        """
        store = self._store
        alive = np.flatnonzero(store.subscription.used >= 0)
        centre, reach = store.centre.host[alive], store.reach.host[alive]
        cells = Cells(centre, reach)
        buckets = cells.buckets(centre, reach)
        self._buckets.reserve(2**cells.bits + 1)
        self._inverse.reserve(max(len(cells.inverse), 1))
        self._cells = cells
        order = np.argsort(buckets, kind="stable")
        alive, buckets = alive[order], buckets[order]
        self._compact(alive)
        self._bucket.write(alive, buckets)
        self._place.write(alive, np.arange(len(alive)))
        for name, values in self._values(alive).items():
            self._placed[name].replace(values)
        self._everywhere = int(np.searchsorted(buckets, EVERYWHERE, side="right"))
        self._recent = len(alive)
        self._buckets.replace(np.searchsorted(buckets, np.arange(2**cells.bits + 1)).astype(np.uint32))
        self._inverse.replace(cells.inverse)

    def _compact(self, slots: NDArray[np.int64]) -> None:
        """Puts the constraints of these filters, in this order, in the place of all."""
        sizes = self._store.size.host[slots].astype(np.int64)
        first = np.cumsum(sizes) - sizes
        where = np.repeat(self._first.host[slots] - first, sizes) + np.arange(int(sizes.sum()))
        for column in self._constraints.values():
            column.replace(column.host[where])
        self._first.write(slots, first)

    @property
    def arguments(self) -> tuple[int, ...]:
        """What the kernel takes after the events: filters, constraints, strings, the order, the cells."""
        placed, constraints, operands = self._placed, self._constraints, self._operands
        names = ("centre", "reach", "bloom", "subscription", "first", "size")
        return (
            *(placed[name].address for name in names),
            *(constraints[name].address for name in ("name", "code", "operand")),
            operands.data.address,
            operands.offsets.address,
            self._everywhere,
            self._recent,
            self._total,
            self._buckets.address,
            self._cells.bits,
            len(self._cells.inverse),
            self._inverse.address,
        )

    def candidates(self, events: EventRows) -> NDArray[np.int64]:
        """How many filters the kernel looks at for each event."""
        places, bounds = events.place, self._buckets.used.astype(np.int64)
        count = np.full(len(events), self._everywhere + self._total - self._recent)
        placed = np.flatnonzero(np.isfinite(places).all(axis=1))
        near = self._cells.near(places[placed].astype(np.float64))
        count[placed] += (bounds[near + 1] - bounds[near]).sum(axis=1)
        return count

    def memory(self) -> Mapping[str, int]:
        """Bytes held, by what for."""
        device = (*self._placed.values(), *self._constraints.values(), self._buckets, self._inverse)
        host = (*self._store.columns.values(), *self._by_slot, *self._placed.values())
        return {
            "filters": sum(column.nbytes for column in host),
            "constraints": sum(column.nbytes for column in self._constraints.values()),
            "device": sum(column.device_bytes for column in device),
        }

    def save(self, folder: Path) -> None:
        """Writes all state to files in ``folder``."""
        self._store.save(folder)
        self._first.save(folder / "first.npy")
        for name, column in self._constraints.items():
            column.save(folder / f"constraint_{name}.npy")
        np.save(folder / "needs_chars.npy", self.needs_chars)

    def load(self, folder: Path) -> None:
        """Takes the state that ``save`` wrote; filters are put in order anew."""
        self._store.load(folder)
        self._first.load(folder / "first.npy")
        for name, column in self._constraints.items():
            column.load(folder / f"constraint_{name}.npy")
        self.needs_chars = np.load(folder / "needs_chars.npy")
        for column in (self._place, self._bucket):
            column.reserve(len(self._store))
            column.lengthen(len(self._store))
        for column in self._placed.values():
            column.reserve(len(self._store))
        self._operands.update()
        self.order()
        self.stale = True
