"""The subscriptions of a matcher as they were given, to be looked at; engines keep other forms.

Moves are noted as they come, and made when enough have come or somebody looks.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evflow.events.gather import places_of, starts_of
from evflow.matching.areas.columns import normal
from evflow.matching.columns.bulk import FilterColumns
from evflow.matching.encoding.values import Vocabulary
from evflow.matching.entering import filters_of, renumbered
from evflow.matching.held import Held
from evflow.matching.model import Subscription
from evflow.matching.moving import KEPT, MOVE
from evflow.matching.operators import NAMES_OTHER, TAKES_NOTHING
from evflow.matching.reference import within
from evflow.matching.rows import Filters
from evflow.matching.shaped import Shaped

_MOST = 4096 * MOVE.itemsize

Int32s = NDArray[np.int32]
Floats = NDArray[np.float64]


class Kept:
    """Subscriptions by id, in columns that grow.

    Everything but ``note`` is for one alone.

    Args:
        known: names, strings and the space of the matcher.

    Attributes:
        shaped: what holds boxes and polygons; None as long as there are none.
    """

    def __init__(self, known: Vocabulary) -> None:
        self._known = known
        # The centre is as it was given, on the globe in degrees, and the reach is the radius.
        self._held = Held(2)
        self._moves = bytearray()
        self.shaped: Shaped | None = None

    def add(self, filters: Filters, columns: FilterColumns) -> None:
        """Takes subscriptions in.

        Args:
            filters: as the engine got them.
            columns: as they were given.
        """
        self._make_moves()
        if not len(filters):
            return
        count, known = len(filters), self._known
        centre, radius = np.full((count, 2), np.nan), np.full(count, np.nan)
        if columns.x is not None and columns.y is not None and columns.radius is not None:
            centre[:, 0], centre[:, 1], radius[:] = columns.x, columns.y, columns.radius
        # Engines get other constraints in the place of some; see ``evflow.matching.derived``.
        name = renumbered(columns.name, columns.names, known.names)
        text = renumbered(columns.text, columns.texts, known.strings)
        constraints = name, columns.op, columns.number, text
        self._held.add(Filters(filters.subscription, filters.start, *constraints, centre, radius))

    def remove(self, ids: Int32s) -> None:
        """Forgets subscriptions."""
        self._make_moves()
        self._held.remove(ids)
        if self._held.filters > 2 * self._held.live + _MOST:
            self._held.compact()

    def note(self, rows: bytes | memoryview) -> None:
        """Notes moves that were made, each a ``ROW``; one of a subscription that is gone does nothing."""
        self._moves += rows
        if len(self._moves) > _MOST:
            self._make_moves()

    def _make_moves(self) -> None:
        if self._moves:
            filters, made = self._held.moved(np.frombuffer(bytes(self._moves), MOVE))
            self._moves.clear()
            held, changed = self._held.columns, made["radius"] != KEPT
            # numpy assigns in order, so the last move of a filter stays.
            held.centre[filters, 0], held.centre[filters, 1] = made["x"], made["y"]
            held.reach[filters[changed]] = made["radius"][changed]

    def subscriptions(self, ids: Int32s) -> list[Subscription]:
        """What was subscribed, as objects, with its areas where they are now."""
        return self.columns(ids).to_subscriptions()

    def columns(self, ids: Int32s) -> FilterColumns:
        """What was subscribed, as columns: one subscription for each id, in the order of the ids."""
        self._make_moves()
        held, (filters, owner) = self._held.columns, self._held.of(ids)
        lengths = held.start[filters + 1] - held.start[filters]
        at = places_of(held.start[filters], lengths)
        used, text = np.unique(held.text[at], return_inverse=True)
        none = int(np.count_nonzero(used < 0))
        texts = [self._known.strings.bytes_of(number).decode() for number in used[none:].tolist()]
        x, y = held.centre[filters].T.copy()
        area, areas = (None, None) if self.shaped is None else self.shaped.of(ids, owner)
        return FilterColumns(
            area=area,
            areas=areas,
            names=[name if isinstance(name, str) else "" for name in self._known.names.in_order()],
            texts=texts,
            start=starts_of(lengths),
            name=held.name[at],
            op=held.op[at],
            number=held.number[at],
            text=(text - none).astype(np.int32),
            subscription=owner,
            x=x,
            y=y,
            radius=held.reach[filters],
            space=self._known.space.name,
            count=len(ids),
        )

    def filters(self, ids: Int32s) -> Filters:
        """What was subscribed, as engines get it."""
        return filters_of(self.columns(ids), ids, self._known)

    def naming(self, name: str) -> NDArray[np.bool_]:
        """Which filters have a constraint on an attribute, or compare another one with it."""
        self._make_moves()
        held, known = self._held.used(), self._known
        compared = NAMES_OTHER[held.op] & (held.text == known.strings.number(name))
        rows = np.flatnonzero((held.name == known.names.numbers.get(name, -1)) | compared)
        there = np.zeros(len(held), np.bool_)
        there[np.searchsorted(held.start, rows, "right") - 1] = True
        return there

    def around(self, x: float, y: float) -> NDArray[np.bool_]:
        """Which filters have an area that holds a place."""
        self._make_moves()
        held, space = self._held.used(), self._known.space
        rows = np.flatnonzero(~np.isnan(held.centre[:, 0]))
        there = np.zeros(len(held), np.bool_)
        centre = space.places(held.centre[rows, 0], held.centre[rows, 1])
        place = space.places(np.array([x], np.float64), np.array([y], np.float64))
        there[rows] = within(centre, space.reaches(held.reach[rows]), place[0])
        return there

    def owners(self, filters: NDArray[np.bool_]) -> Int32s:
        """The ids of subscriptions that have one of these filters, ascending."""
        ids = np.unique(self._held.columns.subscription[: self._held.filters][filters])
        return ids[ids >= 0].astype(np.int32)

    def like(self, wanted: FilterColumns, ids: Int32s) -> Int32s:
        """Which of these subscriptions say the same, filter by filter and constraint by constraint.

        Args:
            wanted: one subscription.
            ids: subscriptions with as many filters, ascending.
        """
        self._make_moves()
        held, names, strings = self._held.columns, self._known.names.numbers, self._known.strings
        name = [names.get(one, -1) for one in wanted.names]
        text = [*(strings.number(one) for one in wanted.texts), -1]
        if -1 in name or -1 in text[:-1]:
            return ids[:0]
        areas = zip(*([[np.nan] * len(wanted)] * 3 if wanted.x is None else self._areas(wanted)), strict=True)
        for number, area in enumerate(areas):
            filters = self._held.first[ids] + number
            first, length = int(wanted.start[number]), int(wanted.start[number + 1] - wanted.start[number])
            same = held.start[filters + 1] - held.start[filters] == length
            x, y, radius = *held.centre[filters].T, held.reach[filters]
            for found, given in zip((x, self._meridian(y), radius), area, strict=True):
                same &= _equal(found, given)
            ids = ids[same]
            for at in range(first, first + length):
                rows = held.start[self._held.first[ids] + number] + at - first
                same = (held.name[rows] == name[wanted.name[at]]) & (held.op[rows] == wanted.op[at])
                same &= held.text[rows] == text[wanted.text[at]]
                if wanted.text[at] < 0 and not TAKES_NOTHING[wanted.op[at]]:
                    same &= _equal(held.number[rows], wanted.number[at])
                ids = ids[same]
        return ids

    def _areas(self, columns: FilterColumns) -> Iterable[Floats]:
        assert columns.x is not None and columns.y is not None and columns.radius is not None
        return columns.x, self._meridian(columns.y), columns.radius

    def _meridian(self, y: Floats) -> Floats:
        """Longitudes from -180 on; on the plane ``y`` as it is."""
        return y if self._known.space.name == "plane" else normal(y)

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return self._held.nbytes + len(self._moves)

    def save(self, folder: Path) -> None:
        """Writes all this to files in ``folder``."""
        self._make_moves()
        self._held.compact()
        self._held.save(folder)

    def load(self, folder: Path) -> None:
        """Takes what ``save`` wrote, mapped copy-on-write."""
        self._held.load(folder)


def _equal(found: NDArray[Any], given: Any) -> NDArray[np.bool_]:
    """Equality, where NaN equals itself."""
    same: NDArray[np.bool_] = (found == given) | ((found != found) & bool(given != given))
    return same
