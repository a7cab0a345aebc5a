"""Subscriptions with boxes or polygons: an engine finds which an event may satisfy, and a kernel decides.

Each of their filters is a subscription of its own to an engine, its *slot*, with circles that cover the
area in its place (``areas.cover``). So any engine finds the few slots that an event may satisfy; of these the
kernel tests box or polygon exactly, and what is left are filters that the event satisfies.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evflow.events.gather import places_of, starts_of
from evflow.matching.areas.columns import AreaColumns
from evflow.matching.areas.cover import cover
from evflow.matching.areas.flat import WORK
from evflow.matching.areas.meeting import found_hold, located, owners_around
from evflow.matching.areas.overlap import Arrays
from evflow.matching.columns.bulk import FilterColumns
from evflow.matching.encoding.values import Vocabulary
from evflow.matching.engine import Matches
from evflow.matching.mapped import mapped, with_room
from evflow.matching.rows import EventRows, Filters

Int32s = NDArray[np.int32]
Ints = NDArray[np.int64]

_OF_SLOTS = ("owner", "next", "several", "kind", "numbers", "first", "last")
_COLUMNS = (*_OF_SLOTS, "heads", "rings", "corners")
_NO_IDS = np.zeros(0, np.int32)


class Shaped:
    """The subscriptions of a matcher that have a box or a polygon in one of their filters, with all of these.

    Args:
        known: names and the space of the matcher.
        engine: one that holds nothing.
    """

    def __init__(self, known: Vocabulary, engine: Any) -> None:
        self._known = known
        self._engine = engine
        self._match_one = getattr(engine, "match_one", None)
        # The first slot of each subscription, and of each slot the next of its subscription; -1: none.
        self._heads, self._next = np.empty(0, np.int32), np.empty(0, np.int32)
        self._free: list[int] = []
        self._used = self._rings_used = self._corners_used = self._dead = 0
        self._owner = np.empty(0, np.int32)
        self._several = np.empty(0, np.uint8)
        self._kind = np.empty(0, np.uint8)
        self._numbers = np.empty((0, 4))
        self._first, self._last = np.empty(0, np.int64), np.empty(0, np.int64)
        # A ring has one more number than corners begin: rings of polygons do not follow each other.
        self._rings = np.empty(0, np.int64)
        self._corners = np.empty((0, 2))
        # On the globe engines get vectors, and boxes and polygons need degrees.
        self._globe = known.space.name == "globe"
        self._location = known.names.intern(known.location) if self._globe else np.zeros(2, np.int32)

    def __len__(self) -> int:
        """How many filters there are."""
        return self._used - len(self._free)

    def add(self, filters: Filters, area: Ints, areas: AreaColumns) -> None:
        """Takes subscriptions in, with all their filters.

        Args:
            filters: as an engine would get them; those with boxes and polygons have no area.
            area: one a filter: the number of its box or polygon, -1 for none.
            areas: the boxes and polygons.
        """
        count, used = len(filters), self._used
        slots = self._taken(count)
        with_shape = np.flatnonzero(area >= 0)
        found = areas.take(area[with_shape])
        covered = cover(found, self._known.space)
        # Filters in their order, each as often as it has circles.
        times = np.ones(count, np.int64)
        times[with_shape] = np.bincount(covered.of, minlength=len(found))
        row = np.repeat(np.arange(count), times)
        made = replace(filters.take(row), subscription=slots[row].astype(np.int32))
        of_shape = np.flatnonzero((area >= 0)[row])
        made.centre[of_shape], made.reach[of_shape] = covered.centre, covered.reach
        try:
            self._engine.add(made)
        except BaseException:
            self._used = used
            self._free += slots[slots < used].tolist()
            raise
        self._keep(slots, filters.subscription, with_shape, found)

    def _taken(self, count: int) -> Ints:
        """Numbers for so many filters, those first that are free again."""
        again = [self._free.pop() for _ in range(min(count, len(self._free)))]
        behind = np.arange(self._used, self._used + count - len(again))
        self._used += len(behind)
        return np.concatenate([np.array(again, np.int64), behind])

    def _keep(self, slots: Ints, owner: Int32s, with_shape: Ints, areas: AreaColumns) -> None:
        for name in _OF_SLOTS:
            setattr(self, f"_{name}", with_room(getattr(self, f"_{name}"), self._used))
        self._owner[slots] = owner
        begins = np.flatnonzero(np.diff(owner, prepend=-1))
        counts = np.diff(np.append(begins, len(owner)))
        self._several[slots] = np.repeat(counts, counts) > 1
        known = len(self._heads)
        self._heads = with_room(self._heads, int(owner.max(initial=-1)) + 1)
        self._heads[known:] = -1
        self._heads[owner[begins]] = slots[begins]
        self._next[slots[:-1]] = slots[1:]
        self._next[slots[begins + counts - 1]] = -1
        self._kind[slots] = 0
        self._numbers[slots] = 0.0
        self._first[slots] = self._last[slots] = self._rings_used
        of_shape = slots[with_shape]
        self._kind[of_shape], self._numbers[of_shape] = areas.kind, areas.numbers
        self._first[of_shape] = self._rings_used + areas.start[:-1]
        self._last[of_shape] = self._rings_used + areas.start[1:]
        # The end of the last ring is written over by the first of the next polygons, which is the same.
        end, corner = self._rings_used + len(areas.rings), self._corners_used + len(areas.corners)
        self._rings, self._corners = with_room(self._rings, end), with_room(self._corners, corner)
        self._rings[self._rings_used : end] = areas.rings + self._corners_used
        self._corners[self._corners_used : corner] = areas.corners
        self._rings_used, self._corners_used = end - 1, corner

    def holds(self, ids: Int32s) -> NDArray[np.bool_]:
        """Which subscriptions are here."""
        there = ids < len(self._heads)
        there[there] = self._heads[ids[there]] >= 0
        return there

    def _slots(self, ids: Int32s) -> tuple[NDArray[np.intp], Ints]:
        """The slots of subscriptions, in their order; before them which of ``ids`` each belongs to."""
        of = np.flatnonzero(self.holds(ids))
        slots = self._heads[ids[of]]
        found = [(of, slots)]
        while (more := self._next[slots] >= 0).any():
            of, slots = of[more], self._next[slots[more]]
            found.append((of, slots))
        of, slots = (np.concatenate(parts) for parts in zip(*found, strict=True))
        order = np.argsort(of, kind="stable")
        return of[order], slots[order].astype(np.int64)

    def remove(self, ids: Int32s) -> None:
        """Forgets subscriptions; those that are not here are passed by."""
        slots = self._slots(ids)[1]
        if not len(slots):
            return
        self._heads[self._owner[slots]] = -1
        self._engine.remove(slots.astype(np.int32))
        self._owner[slots] = self._next[slots] = -1
        self._dead += int((self._rings[self._last[slots]] - self._rings[self._first[slots]]).sum())
        self._last[slots] = self._first[slots]
        self._kind[slots] = 0
        self._free += slots.tolist()
        if 2 * self._dead > self._corners_used:
            self._compact()

    def _compact(self) -> None:
        """Gives the memory of corners back that no filter has any more."""
        held = self._all()
        self._first[: self._used], self._last[: self._used] = held.start[:-1], held.start[1:]
        self._rings, self._corners = held.rings, held.corners
        self._rings_used, self._corners_used, self._dead = len(held.rings) - 1, len(held.corners), 0

    def _all(self) -> AreaColumns:
        return self.areas(np.arange(self._used))

    def areas(self, slots: Ints) -> AreaColumns:
        """The boxes and polygons of filters; of one that has none a point."""
        counts = self._last[slots] - self._first[slots]
        ring = places_of(self._first[slots], counts)
        lengths = self._rings[ring + 1] - self._rings[ring]
        return AreaColumns(
            space=self._known.space.name,
            kind=self._kind[slots],
            numbers=self._numbers[slots],
            start=starts_of(counts),
            rings=starts_of(lengths),
            corners=self._corners[places_of(self._rings[ring], lengths)],
        )

    def of(self, ids: Int32s, owner: NDArray[np.intp]) -> tuple[Ints, AreaColumns]:
        """The boxes and polygons of subscriptions.

        Args:
            ids: subscriptions.
            owner: which of ``ids`` each of their filters belongs to, in order.

        Returns:
            One a filter: the number of its area in the columns, or -1; and the columns.
        """
        shape = np.full(len(owner), -1, np.int64)
        number, slots = self._slots(ids)
        shape[np.isin(owner, number)] = slots
        chosen = np.flatnonzero(shape >= 0)
        chosen = chosen[self._kind[shape[chosen]] > 0]
        found = self.areas(shape[chosen])
        made = np.full(len(owner), -1, np.int64)
        made[chosen] = np.arange(len(chosen))
        return made, found

    def around(self, x: float, y: float) -> Int32s:
        """The ids of subscriptions that have a box or a polygon that holds a place."""
        slots = np.flatnonzero(self._kind[: self._used] > 0)
        if not len(slots):
            return np.zeros(0, np.int32)
        held = self._holding(np.array([[x, y]]), np.array([0, len(slots)]), slots.astype(np.int32))
        return np.unique(self._owner[slots[held]])

    def match(self, events: EventRows, threads: int = 1) -> Matches:
        """What these events satisfy; each id once an event."""
        near = self._engine.match(events, threads)
        if not len(near.ids):
            return Matches(near.offsets, near.ids)
        kept = self._holding(self._places(events), near.offsets, near.ids)
        slots = near.ids[kept]
        ids, offsets = self._owner[slots], starts_of(kept.astype(np.int64))[near.offsets]
        if self._several[slots].any():
            return _once(offsets, ids)
        return Matches(offsets, ids)

    def match_one(self, events: EventRows) -> Int32s:
        """The ids that the only event of the rows satisfies, each once."""
        one = self._match_one
        near = one(events) if one else self._engine.match(events).ids
        if not len(near):
            return _NO_IDS
        out = np.empty(len(near), np.int32)
        columns, whose = self._shapes(), (self._owner, self._several)
        place = self._places(events)
        count = owners_around(int(self._globe), place, *columns, near, np.empty(WORK), *whose, out)
        return out[:count] if count >= 0 else np.unique(out[: count + len(near) + 1])

    def _holding(self, places: NDArray[np.float64], offsets: Ints, slots: Int32s) -> NDArray[np.bool_]:
        """Which of the filters hold a place; ``offsets`` is where those of each place start and end."""
        out = np.empty(len(slots), np.uint8)
        found_hold(int(self._globe), places, *self._shapes(), offsets, slots, np.empty(WORK), out)
        return out.view(np.bool_)

    def _shapes(self) -> Arrays:
        return self._kind, self._numbers, self._first, self._last, self._rings, self._corners

    def _places(self, events: EventRows) -> NDArray[np.float64]:
        """Where events happened, in two numbers."""
        if not self._globe:
            return np.ascontiguousarray(events.place)
        places = np.empty((len(events), 2))
        start, name = np.ascontiguousarray(events.start), np.ascontiguousarray(events.name)
        kind, number = np.ascontiguousarray(events.kind), np.ascontiguousarray(events.number)
        located(start, name, kind, number, int(self._location[0]), int(self._location[1]), places)
        return places

    def memory(self) -> dict[str, int]:
        """Bytes held, by what for."""
        held = {f"shapes.engine.{what}": size for what, size in self._engine.memory().items()}
        columns = sum(getattr(self, f"_{name}").nbytes for name in _COLUMNS)
        return {**held, "shapes": columns}

    def save(self, folder: Path) -> None:
        """Writes all this to files in ``folder``."""
        self._compact()
        sizes = dict.fromkeys(_OF_SLOTS, self._used)
        sizes |= {"heads": len(self._heads), "rings": self._rings_used + 1, "corners": self._corners_used}
        for name, size in sizes.items():
            np.save(folder / f"{name}.npy", getattr(self, f"_{name}")[:size])
        (folder / "engine").mkdir()
        self._engine.save(folder / "engine")

    def load(self, folder: Path) -> None:
        """Takes what ``save`` wrote, mapped copy-on-write."""
        for name in _COLUMNS:
            setattr(self, f"_{name}", mapped(folder / f"{name}.npy"))
        self._used, self._corners_used = len(self._owner), len(self._corners)
        self._rings_used = len(self._rings) - 1
        self._free = np.flatnonzero(self._owner < 0).tolist()
        self._check()
        self._engine.load(folder / "engine")

    def _check(self) -> None:
        """Refuses numbers that would lead a kernel out of the arrays.

        Raises:
            ValueError: there are some.
        """
        rings, ends = self._rings, (self._first, self._last)
        ids, leading = np.flatnonzero(self._heads >= 0), (self._heads, self._next)
        whole = (
            len(rings) > 0
            and 0 <= int(rings[0]) <= int(rings[-1]) <= len(self._corners)
            and bool((rings[1:] >= rings[:-1]).all())
            and all(0 <= int(end.min(initial=0)) <= int(end.max(initial=0)) < len(rings) for end in ends)
            and bool((self._first <= self._last).all())
            and all(links.min(initial=-1) == -1 and links.max(initial=-1) < self._used for links in leading)
        )
        if whole:
            # Each slot follows one thing, so no subscription leads in circles.
            there, more = np.flatnonzero(self._owner >= 0), np.flatnonzero(self._next >= 0)
            led = np.sort(np.concatenate([self._heads[ids], self._next[more]]))
            whole = (
                np.array_equal(led, there)
                and np.array_equal(self._owner[self._heads[ids]], ids)
                and np.array_equal(self._owner[self._next[more]], self._owner[more])
            )
        if not whole:
            raise ValueError("boxes and polygons do not fit each other")


def both(one: Matches, other: Matches) -> Matches:
    """What events satisfy of two matchings of the same events, which have no id in common.

    Example:
        >>> first = Matches(np.array([0, 1, 1]), np.array([7], np.int32))
        >>> second = Matches(np.array([0, 1, 2]), np.array([8, 9], np.int32))
        >>> both(first, second).ids
        array([7, 8, 9], dtype=int32)
    """
    if not len(other.ids):
        return one
    ids = np.empty(len(one.ids) + len(other.ids), np.int32)
    ids[np.arange(len(one.ids)) + np.repeat(other.offsets[:-1], np.diff(one.offsets))] = one.ids
    ids[np.arange(len(other.ids)) + np.repeat(one.offsets[1:], np.diff(other.offsets))] = other.ids
    return Matches(one.offsets + other.offsets, ids)


def _once(offsets: Ints, ids: Int32s) -> Matches:
    """Each id once an event."""
    event = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    pairs = np.unique((event << 32) | ids)
    counts = np.bincount(pairs >> 32, minlength=len(offsets) - 1)
    return Matches(starts_of(counts), (pairs & 0xFFFFFFFF).astype(np.int32))


def shaped_filters(columns: FilterColumns) -> NDArray[np.bool_]:
    """Which filters belong to subscriptions that have a box or a polygon in one of their filters."""
    if columns.area is None:
        return np.zeros(len(columns), np.bool_)
    has = columns.area >= 0
    if columns.subscription is None:
        return has
    of = np.zeros(columns.subscriptions, np.bool_)
    of[columns.subscription[has]] = True
    return of[columns.subscription]
