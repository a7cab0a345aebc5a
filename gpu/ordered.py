"""Filters in the order of their cells, on the device, and how they change."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evflow.events.gather import starts_of
from evflow.gpu.cells import EVERYWHERE, Cells
from evflow.gpu.column import Column, Operands, Staging
from evflow.gpu.device import Device
from evflow.gpu.table import NEEDS_CHARS, NOBODY, coded, filter_columns, filter_values
from evflow.matching.held import Held
from evflow.matching.mapped import with_room
from evflow.matching.moving import Moves
from evflow.matching.rows import EventRows, Filters
from evflow.matching.strings import Strings

LEAST_RECENT = 1024
RECENT_SHARE = 64
"""Ordered anew once more than this many filters, and more than this share of all, stand out of order."""


class OrderedFilters:
    """Places in an order: filters that match anywhere, filters by bucket, and recent ones in no order.

    Attributes:
        needs_chars: bool, by name: whether some constraint compares the bytes of strings.
        ids: one more than the highest subscription that there ever was.
        stale: whether something has to be sent before a kernel runs.
    """

    def __init__(self, strings: Strings, dimensions: int, device: Device) -> None:
        self._held = Held(dimensions)
        self._place = np.empty(0, np.int64)  # of each filter
        self._bucket = np.empty(0, np.int64)  # of those that were there when all were put in order
        self._placed = filter_columns(dimensions, device) | {"first": Column(np.int32, 1, device)}
        self._constraints = {
            "name": Column(np.int32, 1, device),
            "code": Column(np.uint8, 1, device),
            "operand": Column(np.float64, 1, device),
        }
        self._operands = Operands(strings, device)
        self._buckets = Column(np.uint32, 1, device)
        self._inverse = Column(np.float64, 1, device)
        self._cells = Cells(self._held.columns.centre, self._held.columns.reach)
        self._staging = Staging(device)
        self._everywhere = self._recent = self.ids = 0
        self.needs_chars = np.zeros(0, bool)
        self.stale = True

    @property
    def filters(self) -> int:
        """How many there are."""
        return self._held.live

    @property
    def _total(self) -> int:
        return self._placed["reach"].length

    def _make_room(self, filters: int, constraints: int) -> None:
        """Makes room for so many more; after a DeviceError nothing has changed."""
        # A column that grows has to be sent again, whatever becomes of the others.
        self.stale = True
        for column in self._placed.values():
            column.reserve(self._total + filters)
        for column in self._constraints.values():
            column.reserve(column.length + constraints)
        self._operands.reserve()

    def add(self, filters: Filters) -> None:
        """Takes these in. After a DeviceError none of them is there."""
        self._make_room(len(filters), len(filters.name))
        first, base = self._held.filters, self._constraints["name"].length
        self._held.add(filters)
        self.ids = max(self.ids, int(filters.subscription.max(initial=-1)) + 1)
        codes, operands = coded(filters.op, filters.number, filters.text)
        for name, values in (("name", filters.name), ("code", codes), ("operand", operands)):
            self._constraints[name].extend(values)
        self._operands.update()
        self._note_chars(filters.name, codes)
        self._place = with_room(self._place, self._held.filters)
        starts = base + filters.start[:-1] - filters.start[0]
        self._append(np.arange(first, self._held.filters), filter_values(filters) | {"first": starts})

    def _note_chars(self, names: NDArray[np.int32], codes: NDArray[np.uint8]) -> None:
        missing = max(0, int(names.max(initial=-1)) + 1 - len(self.needs_chars))
        self.needs_chars = np.append(self.needs_chars, np.zeros(missing, bool))
        self.needs_chars[names[NEEDS_CHARS[codes]]] = True

    def _append(self, numbers: NDArray[np.int64], values: Mapping[str, NDArray[Any]]) -> None:
        """Puts filters behind all others; there is room."""
        self._place[numbers] = np.arange(self._total, self._total + len(numbers))
        for name, column in self._placed.items():
            column.extend(values[name])
        self.stale = True

    def _leave(self, places: NDArray[np.int64]) -> None:
        """Makes the filters that stood at these places match nothing there."""
        self._placed["centre"].write(places, 0)
        self._placed["reach"].write(places, NOBODY)
        self.stale = True

    def remove(self, ids: NDArray[np.int32]) -> None:
        """Forgets subscriptions."""
        numbers, _ = self._held.of(ids)
        self._leave(self._place[numbers])
        self._held.remove(ids)

    def move(self, moves: Moves) -> None:
        """Gives filters other areas. After a DeviceError none has changed."""
        self._make_room(len(self._held.of(moves["id"])[0]), 0)
        numbers = self._held.move(moves)
        held, places = self._held.columns, self._place[numbers]
        stays, ordered = places >= self._recent, np.flatnonzero(places < self._recent)
        buckets = self._cells.buckets(held.centre[numbers[ordered]], held.reach[numbers[ordered]])
        stays[ordered] = buckets == self._bucket[numbers[ordered]]
        self._placed["centre"].write(places[stays], held.centre[numbers[stays]])
        if (moves["radius"] >= 0).any():
            self._placed["reach"].write(places[stays], held.reach[numbers[stays]])
        leaving, left = numbers[~stays], places[~stays]
        values = {name: column.host[left] for name, column in self._placed.items()}
        self._leave(left)
        self._append(leaving, values | {"centre": held.centre[leaving], "reach": held.reach[leaving]})

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
        """Puts all filters in order, and leaves out those that are gone.

        After a DeviceError they stand as before.
        """
        held = self._held
        there = held.columns.subscription[: held.filters] >= 0
        cells = Cells(held.columns.centre[: held.filters][there], held.columns.reach[: held.filters][there])
        self._buckets.reserve(2**cells.bits + 1)
        self._inverse.reserve(max(len(cells.inverse), 1))
        held.compact()
        filters = held.used()
        self._cells, self._bucket = cells, cells.buckets(filters.centre, filters.reach)
        order = np.argsort(self._bucket, kind="stable")
        buckets = self._bucket[order]
        self._place = np.empty(len(filters), np.int64)
        self._place[order] = np.arange(len(filters))
        sizes = np.diff(filters.start)[order]
        first = starts_of(sizes)[:-1]
        where = np.repeat(filters.start[order] - first, sizes) + np.arange(len(filters.name))
        codes, operands = coded(filters.op, filters.number, filters.text)
        for name, values in (("name", filters.name), ("code", codes), ("operand", operands)):
            self._constraints[name].replace(values[where])
        for name, values in filter_values(filters).items():
            self._placed[name].replace(values[order])
        self._placed["first"].replace(first)
        self._everywhere = int(np.searchsorted(buckets, EVERYWHERE, side="right"))
        self._recent = len(filters)
        self._buckets.replace(np.searchsorted(buckets, np.arange(2**cells.bits + 1)).astype(np.uint32))
        self._inverse.replace(cells.inverse)

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
        placed, constraints = self._placed.values(), self._constraints.values()
        device = (*placed, *constraints, self._buckets, self._inverse)
        host = self._held.nbytes + self._place.nbytes + self._bucket.nbytes
        return {
            "filters": host + sum(column.nbytes for column in placed),
            "constraints": sum(column.nbytes for column in constraints),
            "device": sum(column.device_bytes for column in device),
        }

    def save(self, folder: Path) -> None:
        """Writes all state to files in ``folder``."""
        self._held.save(folder)

    def load(self, folder: Path) -> None:
        """Takes the state that ``save`` wrote; filters are put in order anew."""
        self._held.load(folder)
        filters = self._held.used()
        self.ids = int(filters.subscription.max(initial=-1)) + 1
        self._make_room(len(filters), len(filters.name))
        self._operands.update()
        self._note_chars(filters.name, coded(filters.op, filters.number, filters.text)[0])
        self.order()
