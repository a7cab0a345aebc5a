"""The filters that an engine holds, as columns that grow at their ends."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evflow.events.gather import starts_of
from evflow.matching.filters import Filters
from evflow.matching.twophase.compiled import Columns, load_arrays, nbytes, save_arrays
from evflow.matching.twophase.predicates import codes_of

__all__ = ["Held"]


class Held:
    """Filters by number, from 0; those of a subscription stand next to each other.

    Attributes:
        columns: the filters; the arrays are longer than what they hold.
        filters: how many filters there are, with those removed.
        live: how many were not removed.
        names: the largest number of an attribute, plus 1.
    """

    def __init__(self, dimensions: int) -> None:
        self.dimensions = dimensions
        self._clear()

    def _clear(self) -> None:
        self.filters = self.live = self.constraints = self.names = 0
        self.columns = Columns(
            np.empty(0, np.int32),
            np.zeros(1, np.int64),
            np.empty(0, np.int32),
            np.empty(0, np.uint8),
            np.empty(0, np.float64),
            np.empty(0, np.int32),
            np.empty((0, self.dimensions), np.float64),
            np.empty(0, np.float64),
        )
        # Of each subscription its first filter, and how many it has.
        self.first = np.empty(0, np.int64)
        self.count = np.empty(0, np.int32)

    def add(self, filters: Filters) -> None:
        """Appends filters."""
        constraints = len(filters.name)
        self._reserve(len(filters), constraints)
        held, f, c = self.columns, self.filters, self.constraints
        held.subscription[f : f + len(filters)] = filters.subscription
        held.start[f : f + len(filters) + 1] = filters.start + (c - filters.start[0])
        held.name[c : c + constraints] = filters.name
        held.test[c : c + constraints] = codes_of(filters.op, filters.number, filters.text)
        held.number[c : c + constraints] = filters.number
        held.text[c : c + constraints] = filters.text
        held.centre[f : f + len(filters)] = filters.centre
        held.reach[f : f + len(filters)] = filters.reach
        self._note(filters.subscription, f)
        self.filters += len(filters)
        self.live += len(filters)
        self.constraints += constraints
        self.names = max(self.names, int(filters.name.max(initial=-1)) + 1)

    def _reserve(self, filters: int, constraints: int) -> None:
        f, c = self.filters + filters, self.constraints + constraints
        sizes = (f, f + 1, c, c, c, c, f, f)
        columns: tuple[NDArray[Any], ...] = self.columns
        self.columns = Columns(
            *(_with_room(column, size) for column, size in zip(columns, sizes, strict=True))
        )

    def _note(self, subscription: NDArray[np.int32], first: int) -> None:
        """Notes where the filters of new subscriptions stand."""
        if not len(subscription):
            return
        begins = np.flatnonzero(np.diff(subscription, prepend=subscription[0] ^ 1))
        size = int(subscription.max()) + 1
        known = len(self.first)
        self.first, self.count = _with_room(self.first, size), _with_room(self.count, size)
        self.count[known:] = 0
        ids = subscription[begins]
        self.first[ids] = begins + first
        self.count[ids] = np.diff(np.append(begins, len(subscription)))

    def of(self, ids: NDArray[np.int32]) -> tuple[NDArray[np.int64], NDArray[np.intp]]:
        """The filters of subscriptions, one after the other, and which of ``ids`` each belongs to."""
        count = np.zeros(len(ids), np.int64)
        known = ids < len(self.count)
        count[known] = self.count[ids[known]]
        which = np.repeat(np.arange(len(ids)), count)
        within = np.arange(len(which)) - np.repeat(np.cumsum(count) - count, count)
        return self.first[ids[which]] + within, which

    def remove(self, ids: NDArray[np.int32]) -> None:
        """Marks the filters of subscriptions as removed."""
        filters, _ = self.of(ids)
        self.columns.subscription[filters] = -1
        self.count[ids[ids < len(self.count)]] = 0
        self.live -= len(filters)

    def move(
        self,
        ids: NDArray[np.int32],
        which: NDArray[np.int32],
        centre: NDArray[Any],
        reach: NDArray[Any] | None,
    ) -> None:
        """Gives areas another centre, and reach, as ``Engine.move``."""
        filters, entry = self.of(ids)
        wanted = which[entry]
        place = filters - self.first[ids[entry]]
        located = ~np.isnan(self.columns.centre[filters, 0])
        chosen = np.where(wanted < 0, located, wanted == place)
        filters, entry = filters[chosen], entry[chosen]
        # numpy assigns in order, so the last entry for a filter stays.
        self.columns.centre[filters] = centre[entry]
        if reach is not None:
            self.columns.reach[filters] = reach[entry]

    def compact(self) -> None:
        """Forgets what was removed; the others get new numbers, in the same order."""
        if self.live == self.filters:
            return
        held = self.columns
        filters = np.flatnonzero(held.subscription[: self.filters] >= 0)
        lengths = np.diff(held.start[: self.filters + 1])[filters]
        start = starts_of(lengths)
        rows = np.repeat(held.start[filters] - start[:-1], lengths) + np.arange(start[-1])
        self.columns = Columns(
            held.subscription[filters],
            start,
            held.name[rows],
            held.test[rows],
            held.number[rows],
            held.text[rows],
            held.centre[filters],
            held.reach[filters],
        )
        self.filters, self.constraints = len(filters), len(rows)
        self.names = int(self.columns.name.max(initial=-1)) + 1
        self._note(self.columns.subscription, 0)

    def nbytes(self) -> int:
        """Bytes held."""
        return nbytes(self.columns) + self.first.nbytes + self.count.nbytes

    def save(self, folder: Path) -> None:
        """Writes the columns."""
        f, c = self.filters, self.constraints
        sizes = (f, f + 1, c, c, c, c, f, f)
        columns: tuple[NDArray[Any], ...] = self.columns
        save_arrays(folder, "held", tuple(column[:size] for column, size in zip(columns, sizes, strict=True)))
        save_arrays(folder, "subscription", (self.first, self.count))
        np.save(folder / "held.npy", np.array([self.filters, self.live, self.constraints, self.names]))

    def load(self, folder: Path) -> None:
        """Takes what ``save`` wrote."""
        self.columns = load_arrays(folder, "held", Columns, len(Columns._fields))
        self.first, self.count = load_arrays(folder, "subscription", lambda *a: a, 2)
        sizes = np.load(folder / "held.npy").tolist()
        self.filters, self.live, self.constraints, self.names = sizes


def _with_room(column: NDArray[Any], size: int) -> NDArray[Any]:
    """A column with at least that many rows, or itself."""
    if len(column) >= size:
        return column
    larger = np.empty((max(size, len(column) * 3 // 2), *column.shape[1:]), column.dtype)
    larger[: len(column)] = column
    return larger
