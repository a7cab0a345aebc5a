"""The filters of an engine that keeps them as they come, in columns that grow at their ends."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evflow.matching.mapped import mapped, with_room
from evflow.matching.moving import Moves
from evflow.matching.rows import Filters
from evflow.matching.space import Globe, Plane

_OF_FILTERS = ("subscription", "centre", "reach")
_OF_CONSTRAINTS = ("name", "op", "number", "text")
_COLUMNS = [field.name for field in fields(Filters)]


class Held:
    """Filters by number, from 0; those of a subscription stand next to each other.

    Args:
        dimensions: numbers of a centre.

    Attributes:
        columns: the filters; the arrays are longer than what they hold. The subscription of a filter that was
            removed is -1.
        filters: how many filters there are, with those removed.
        live: how many were not removed.
        constraints: how many constraints these filters have.
        first: int64, one a subscription: its first filter.
        count: int32, one a subscription: how many filters it has.
    """

    def __init__(self, dimensions: int) -> None:
        self.filters = self.live = self.constraints = 0
        self._space = Plane() if dimensions == 2 else Globe()
        self.columns = Filters(
            subscription=np.empty(0, np.int32),
            start=np.zeros(1, np.int64),
            name=np.empty(0, np.int32),
            op=np.empty(0, np.uint8),
            number=np.empty(0, np.float64),
            text=np.empty(0, np.int32),
            centre=np.empty((0, dimensions)),
            reach=np.empty(0),
        )
        self.first = np.empty(0, np.int64)
        self.count = np.empty(0, np.int32)

    def used(self) -> Filters:
        """The filters, without the room behind them."""
        sizes = _sizes(self.filters, self.constraints)
        return Filters(**{name: getattr(self.columns, name)[:size] for name, size in sizes.items()})

    def add(self, filters: Filters) -> None:
        """Appends filters."""
        f, c = self.filters, self.constraints
        sizes = _sizes(f + len(filters), c + len(filters.name))
        made = {name: with_room(getattr(self.columns, name), size) for name, size in sizes.items()}
        for name in _OF_FILTERS:
            made[name][f : sizes[name]] = getattr(filters, name)
        for name in _OF_CONSTRAINTS:
            made[name][c : sizes[name]] = getattr(filters, name)
        made["start"][f : sizes["start"]] = filters.start + (c - filters.start[0])
        self.columns = Filters(**made)
        self.filters, self.constraints = sizes["reach"], sizes["name"]
        self.live += len(filters)
        self._note(filters.subscription, f)

    def _note(self, subscription: NDArray[np.int32], first: int) -> None:
        """Notes where the filters of new subscriptions stand."""
        begins = np.flatnonzero(np.diff(subscription, prepend=-2))
        counts = np.diff(np.append(begins, len(subscription)))
        size, known = int(subscription.max(initial=-1)) + 1, len(self.first)
        self.first, self.count = with_room(self.first, size), with_room(self.count, size)
        self.count[known:] = 0
        there = subscription[begins] >= 0
        ids = subscription[begins[there]]
        self.first[ids], self.count[ids] = begins[there] + first, counts[there]

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

    def moved(self, moves: Moves) -> tuple[NDArray[Any], NDArray[np.void]]:
        """The filters that moves are of, and the move of each; of the same filter a later one counts."""
        ids, which = moves["id"], moves["which"]
        there = len(ids) and int(ids.max()) < len(self.count)
        if there and bool((self.count[ids] == 1).all()) and bool((which <= 0).all()):
            # The usual: what has one filter, which then has an area.
            return self.first[ids], moves
        filters, entry = self.of(ids)
        wanted, place = which[entry], filters - self.first[ids[entry]]
        located = ~np.isnan(self.columns.centre[filters, 0])
        chosen = np.where(wanted < 0, located, wanted == place)
        return filters[chosen], moves[entry[chosen]]

    def move(self, moves: Moves) -> NDArray[np.int64]:
        """Gives filters other areas.

        Returns:
            The filters that were moved.
        """
        filters, made = self.moved(moves)
        # numpy assigns in order, so the last move of a filter stays.
        self.columns.centre[filters] = self._space.places(made["x"], made["y"])
        changed = made["radius"] >= 0
        self.columns.reach[filters[changed]] = self._space.reaches(made["radius"][changed])
        moved: NDArray[np.int64] = np.unique(filters)
        return moved

    def compact(self) -> None:
        """Forgets what was removed; the others get new numbers, in the same order."""
        if self.live == self.filters:
            return
        held = self.columns
        filters = np.flatnonzero(held.subscription[: self.filters] >= 0)
        self.columns = held.take(filters)
        self.filters, self.constraints = len(filters), len(self.columns.name)
        self._note(self.columns.subscription, 0)

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        used = self.used()
        arrays = (self.first, self.count, *(getattr(used, name) for name in _COLUMNS))
        return sum(array.nbytes for array in arrays)

    def save(self, folder: Path) -> None:
        """Writes one file a column."""
        used = self.used()
        for name in _COLUMNS:
            np.save(folder / f"held_{name}.npy", getattr(used, name))

    def load(self, folder: Path) -> None:
        """Takes what ``save`` wrote, mapped copy-on-write."""
        self.columns = Filters(**{name: mapped(folder / f"held_{name}.npy") for name in _COLUMNS})
        self.filters, self.constraints = len(self.columns), len(self.columns.name)
        self.live = int(np.count_nonzero(self.columns.subscription >= 0))
        self._note(self.columns.subscription, 0)


def _sizes(filters: int, constraints: int) -> dict[str, int]:
    """How many rows each column has."""
    sizes = dict.fromkeys(_OF_FILTERS, filters) | dict.fromkeys(_OF_CONSTRAINTS, constraints)
    return {**sizes, "start": filters + 1}
