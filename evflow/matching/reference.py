"""Engine `reference`: every constraint is tested for every event. Slow, and plain enough to trust."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from evflow.events.gather import starts_of
from evflow.matching.engine import Matches
from evflow.matching.held import Held
from evflow.matching.moving import Moves
from evflow.matching.operators import Op
from evflow.matching.rows import NUMBER, TEXT, EventRows, Filters
from evflow.matching.strings import Strings


class Reference:
    """Brute force over the columns of all filters; needs no numba.

    Args:
        strings: the strings that constraints compare with.
        dimensions: 2 on the plane, 3 on the globe.
    """

    def __init__(self, strings: Strings, dimensions: int) -> None:
        self._strings = strings
        self._held = Held(dimensions)

    def add(self, filters: Filters) -> None:
        """Takes these in."""
        self._held.add(filters)

    def remove(self, ids: NDArray[np.int32]) -> None:
        """Forgets subscriptions."""
        self._held.remove(ids)
        self._held.compact()

    def move(self, moves: Moves) -> None:
        """Gives filters other areas."""
        self._held.move(moves)

    def match(self, events: EventRows, threads: int = 1) -> Matches:
        """What these events satisfy, one event after the other, on one core."""
        held = self._held.used()
        found = [self._match_one(held, events, event) for event in range(len(events))]
        counts = np.array([len(ids) for ids in found], np.int64)
        return Matches(starts_of(counts), np.concatenate([np.empty(0, np.int32), *found]))

    def _match_one(self, held: Filters, events: EventRows, event: int) -> NDArray[np.int32]:
        true, inside = self._tests(held, events, event)
        failed = np.concatenate([[0], np.cumsum(~true)])
        satisfied = inside & (failed[held.start[1:]] == failed[held.start[:-1]])
        ids: NDArray[np.int32] = np.unique(held.subscription[satisfied])
        return ids

    def tests(self, events: EventRows) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Which constraints the first event satisfies, and which filters' areas, in their order."""
        return self._tests(self._held.used(), events, 0)

    def _tests(
        self, held: Filters, events: EventRows, event: int
    ) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        true = np.zeros(len(held.name), bool)
        for attribute in range(int(events.start[event]), int(events.start[event + 1])):
            rows = np.flatnonzero(held.name == events.name[attribute])
            true[rows] = self._test(held, events, attribute, rows)
        inside = np.isnan(held.centre[:, 0]) | within(held.centre, held.reach, events.place[event])
        return true, inside

    def _test(
        self, held: Filters, events: EventRows, attribute: int, rows: NDArray[np.intp]
    ) -> NDArray[np.bool_]:
        """Which of some constraints on an attribute its value satisfies."""
        kind = events.kind[attribute]
        true: NDArray[np.bool_] = held.op[rows] == Op.EXISTS
        for op in Op:
            of_op = held.op[rows] == op
            if op.holds is None:
                continue
            if kind == NUMBER and op.compares:
                chosen = of_op & (held.text[rows] == -1)
                true[chosen] = op.holds(events.number[attribute], held.number[rows[chosen]])
            elif kind == TEXT:
                chosen = of_op & (held.text[rows] != -1)
                at = int(events.char_start[attribute])
                value = events.chars[at : at + int(events.char_length[attribute])].tobytes()
                operands = [self._strings.bytes_of(number) for number in held.text[rows[chosen]].tolist()]
                true[chosen] = [op.holds(value, operand) for operand in operands]
        return true

    def memory(self) -> Mapping[str, int]:
        """Bytes held."""
        return {"filters": self._held.nbytes}

    def save(self, folder: Path) -> None:
        """Writes one file a column."""
        self._held.save(folder)

    def load(self, folder: Path) -> None:
        """Takes the files that ``save`` wrote."""
        self._held.load(folder)


def within(
    centre: NDArray[np.float64], reach: NDArray[np.float64], place: NDArray[np.float64]
) -> NDArray[np.bool_]:
    """Which areas hold a place.

    Args:
        centre, reach: the areas; see ``Filters``.
        place: the place; see ``EventRows``.
    """
    with np.errstate(all="ignore"):
        away = place - centre
        squares = away * away
        distance = squares[:, 0] + squares[:, 1]
        if len(place) == 3:
            distance = distance + squares[:, 2]
    inside: NDArray[np.bool_] = distance <= reach
    return inside
