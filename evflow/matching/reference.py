"""Engine `reference`: every constraint is tested for every event. Slow, and plain enough to trust."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evflow.matching.engine import Matches
from evflow.matching.filters import Filters
from evflow.matching.mapped import mapped
from evflow.matching.model import Op
from evflow.matching.rows import NUMBER, TEXT, EventRows
from evflow.matching.strings import Strings

__all__ = ["Reference"]

_COMPARE: dict[Op, Callable[[Any, Any], Any]] = {
    Op.EQ: operator.eq,
    Op.NE: operator.ne,
    Op.LT: operator.lt,
    Op.LE: operator.le,
    Op.GT: operator.gt,
    Op.GE: operator.ge,
    Op.PREFIX: bytes.startswith,
    Op.SUFFIX: bytes.endswith,
    Op.CONTAINS: operator.contains,
}


class Reference:
    """Brute force over the columns of all filters; needs no numba.

    Args:
        strings: the strings that constraints compare with.
        dimensions: 2 on the plane, 3 on the globe.
    """

    def __init__(self, strings: Strings, dimensions: int) -> None:
        self._strings = strings
        self._filters = Filters(
            np.empty(0, np.int32),
            np.zeros(1, np.int64),
            np.empty(0, np.int32),
            np.empty(0, np.uint8),
            np.empty(0, np.float64),
            np.empty(0, np.int32),
            np.empty((0, dimensions)),
            np.empty(0),
        )

    def add(self, filters: Filters) -> None:
        """Takes these in."""
        old = self._filters
        joined = {
            field.name: np.concatenate([getattr(old, field.name), getattr(filters, field.name)])
            for field in fields(Filters)
            if field.name != "start"
        }
        start = np.concatenate([old.start, old.start[-1] + filters.start[1:]])
        self._filters = Filters(start=start, **joined)

    def remove(self, ids: NDArray[np.int32]) -> None:
        """Forgets subscriptions."""
        old = self._filters
        kept = ~np.isin(old.subscription, ids)
        sizes = np.diff(old.start)
        constraints = np.repeat(kept, sizes)
        columns = {
            field.name: getattr(old, field.name)[constraints if field.name in _BY_CONSTRAINT else kept]
            for field in fields(Filters)
            if field.name != "start"
        }
        self._filters = Filters(start=np.concatenate([[0], np.cumsum(sizes[kept])]), **columns)

    def move(
        self,
        ids: NDArray[np.int32],
        which: NDArray[np.int32],
        centre: NDArray[Any],
        reach: NDArray[Any] | None,
    ) -> None:
        """Gives filters another centre, and another reach unless None."""
        held = replace(self._filters, centre=self._filters.centre.copy(), reach=self._filters.reach.copy())
        for i in range(len(ids)):
            chosen = np.flatnonzero(held.subscription == ids[i])
            if which[i] >= 0:
                chosen = chosen[which[i] : which[i] + 1]
            else:
                chosen = chosen[~np.isnan(held.centre[chosen, 0])]
            held.centre[chosen] = centre[i]
            if reach is not None:
                held.reach[chosen] = reach[i]
        self._filters = held

    def match(self, events: EventRows, threads: int = 1) -> Matches:
        """What these events satisfy, one event after the other, on one core."""
        found = [self._match_one(events, event) for event in range(len(events))]
        offsets = np.zeros(len(found) + 1, np.int64)
        np.cumsum([len(ids) for ids in found], out=offsets[1:])
        return Matches(offsets, np.concatenate([np.empty(0, np.int32), *found]))

    def _match_one(self, events: EventRows, event: int) -> NDArray[np.int32]:
        held = self._filters
        true = np.zeros(len(held.name), bool)
        for attribute in range(int(events.start[event]), int(events.start[event + 1])):
            rows = np.flatnonzero(held.name == events.name[attribute])
            true[rows] = self._test(events, attribute, rows)
        failed = np.concatenate([[0], np.cumsum(~true)])
        satisfied = failed[held.start[1:]] == failed[held.start[:-1]]
        satisfied &= np.isnan(held.centre[:, 0]) | self._within(events.place[event])
        ids: NDArray[np.int32] = np.unique(held.subscription[satisfied])
        return ids

    def _within(self, place: NDArray[Any]) -> NDArray[np.bool_]:
        """Which filters have an area that holds this place."""
        held = self._filters
        with np.errstate(all="ignore"):
            away = place - held.centre
            squares = away * away
            distance = squares[:, 0] + squares[:, 1]
            if len(place) == 3:
                distance = distance + squares[:, 2]
        inside: NDArray[np.bool_] = distance <= held.reach
        return inside

    def _test(self, events: EventRows, attribute: int, rows: NDArray[np.intp]) -> NDArray[np.bool_]:
        """Which of some constraints on an attribute its value satisfies."""
        held = self._filters
        kind = events.kind[attribute]
        true: NDArray[np.bool_] = held.op[rows] == Op.EXISTS
        for op, compare in _COMPARE.items():
            of_op = held.op[rows] == op
            if kind == NUMBER and op <= Op.GE:
                chosen = of_op & (held.text[rows] == -1)
                true[chosen] = compare(events.number[attribute], held.number[rows[chosen]])
            elif kind == TEXT:
                chosen = of_op & (held.text[rows] != -1)
                at = int(events.char_start[attribute])
                value = events.chars[at : at + int(events.char_length[attribute])].tobytes()
                operands = [self._strings.bytes_of(number) for number in held.text[rows[chosen]].tolist()]
                true[chosen] = [compare(value, operand) for operand in operands]
        return true

    def memory(self) -> Mapping[str, int]:
        """Bytes held, by column."""
        return {field.name: getattr(self._filters, field.name).nbytes for field in fields(Filters)}

    def save(self, folder: Path) -> None:
        """Writes one file a column."""
        for field in fields(Filters):
            np.save(folder / f"{field.name}.npy", getattr(self._filters, field.name))

    def load(self, folder: Path) -> None:
        """Takes the files that ``save`` wrote."""
        self._filters = Filters(**{f.name: mapped(folder / f"{f.name}.npy") for f in fields(Filters)})


_BY_CONSTRAINT = {"name", "op", "number", "text"}
