"""Packages that find circles around a point, each followed by the exact circle and the content test.

The trees hold the circles' boxes and find the boxes around a point. What they find is tested here by compiled
code: the circle, then the constraints one after the other until one fails; a test of a string is
one look into a table of words by operands. No index of content stands behind them, as none is on offer.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numba
import numpy as np
from matching_workloads import VALUES, Array, Workload

from evflow.matching.model import Op

BULK = 1_000
"""Events of one call of a tree's query for many points."""


class Peer(Protocol):
    """A tree over the areas of a workload."""

    def __init__(self, workload: Workload) -> None: ...

    def boxes(self, events: slice) -> tuple[Array, Array]:
        """Pairs of events and of filters whose boxes hold them; events ascend."""

    def move(self, filters: Array, x: Array, y: Array) -> None:
        """Give filters another centre, one by one."""


class Rtree:
    """``rtree``: libspatialindex's R*-tree, filled from a stream, asked for many points at once."""

    def __init__(self, workload: Workload) -> None:
        index = importlib.import_module("rtree.index")
        self._low, self._high = corners(workload)
        ids = np.arange(len(workload))
        self._tree = index.Index((ids, self._low, self._high))
        self._place = np.stack((workload.events.x, workload.events.y), axis=1).astype(np.float64)

    def boxes(self, events: slice) -> tuple[Array, Array]:
        points = self._place[events]
        ids, counts = self._tree.intersection_v(points, points)
        return np.repeat(np.arange(events.start, events.start + len(points)), counts.astype(np.int64)), ids

    def move(self, filters: Array, x: Array, y: Array) -> None:
        for number, at in zip(filters.tolist(), zip(x.tolist(), y.tolist(), strict=True), strict=True):
            low, high = self._low[number], self._high[number]
            self._tree.delete(number, (*low, *high))
            half = (high - low) / 2
            low[:], high[:] = at - half, at + half
            self._tree.insert(number, (*low, *high))


class StrTree:
    """shapely's STRtree: GEOS's packed tree, which cannot be changed, asked for many points at once."""

    def __init__(self, workload: Workload) -> None:
        shapely = importlib.import_module("shapely")
        low, high = corners(workload)
        self._tree = shapely.STRtree(shapely.box(low[:, 0], low[:, 1], high[:, 0], high[:, 1]))
        self._points = shapely.points(workload.events.x.astype(float), workload.events.y.astype(float))

    def boxes(self, events: slice) -> tuple[Array, Array]:
        found = self._tree.query(self._points[events])
        return found[0] + events.start, found[1]

    def move(self, filters: Array, x: Array, y: Array) -> None:
        raise NotImplementedError("an STRtree cannot be changed")


PEERS: dict[str, tuple[str, type[Peer]]] = {
    "rtree (R*-tree)": ("rtree", Rtree),
    "shapely STRtree": ("shapely", StrTree),
}


def corners(workload: Workload) -> tuple[Array, Array]:
    """(F, 2) float64 each: the corners of boxes that surely hold the circles."""
    centre = np.stack((workload.x, workload.y), axis=1).astype(np.float64)
    half = workload.radius[:, None].astype(np.float64) * (1 + 1e-6) + 1e-7
    return centre - half, centre + half


def available() -> dict[str, type[Peer]]:
    """The peers that are installed; says which are not."""
    found = {}
    for title, (package, kind) in PEERS.items():
        try:
            importlib.import_module(package)
        except ImportError:
            print(f"{title} is left out: {package} is not installed (pip install 'evflow[bench]')")
        else:
            found[title] = kind
    return found


@dataclass(frozen=True)
class Content:
    """A workload as the compiled tests read it.

    Attributes:
        values: (events, names) int16: the value of each name, -1 if there is none.
        holds: (4, operands, words): whether =, !=, prefix, substring hold of a word.
    """

    workload: Workload
    values: Array
    holds: Array

    @classmethod
    def of(cls, workload: Workload) -> Content:
        words = workload.texts[:VALUES]
        tests: tuple[Callable[[str, str], bool], ...] = (
            str.__eq__, str.__ne__, str.startswith, str.__contains__,
        )  # fmt: skip
        holds = np.array([[[test(word, o) for word in words] for o in workload.texts] for test in tests])
        return cls(workload, workload.events.table(len(workload.numeric)), holds)

    def matches(self, events: Array, filters: Array, located: bool = True) -> Array:
        """Which of these pairs of events and filters match."""
        w = self.workload
        place = (w.x, w.y, w.radius, w.events.x, w.events.y)
        return np.asarray(
            passing(
                events, filters, located and len(w.x) > 0, *place,
                w.start, w.name, w.op, w.number, w.text, self.values, self.holds,
            )
        )  # fmt: skip

    def brute(self, events: int, located: bool = True) -> Array:
        """How many filters each of the first events satisfies, as one finds who tries all."""
        every = np.arange(len(self.workload))
        return np.array(
            [self.matches(np.full(len(every), e), every, located).sum() for e in range(events)], np.int64
        )


@numba.njit(nogil=True, cache=True)
def passing(
    events: Any, filters: Any, located: bool, fx: Any, fy: Any, fr: Any, ex: Any, ey: Any,
    start: Any, name: Any, op: Any, number: Any, text: Any, values: Any, holds: Any,
) -> Any:  # fmt: skip
    """Of each pair whether the event lies in the filter's circle and its content passes."""
    found = np.zeros(len(events), np.bool_)
    for i in range(len(events)):
        event, which = events[i], filters[i]
        if located:
            dx, dy = float(fx[which]) - float(ex[event]), float(fy[which]) - float(ey[event])
            if not dx * dx + dy * dy <= float(fr[which]) ** 2:
                continue
        passes = True
        for at in range(start[which], start[which + 1]):
            value = values[event, name[at]]
            if value < 0:
                passes = False
            elif text[at] >= 0:
                kind = op[at] if op[at] < 2 else 2 if op[at] == PREFIX else 3
                passes = holds[kind, text[at], value]
            else:
                passes = compare(op[at], value, number[at])
            if not passes:
                break
        found[i] = passes
    return found


PREFIX = int(Op.PREFIX)


@numba.njit(nogil=True, cache=True)
def compare(op: int, value: float, number: float) -> bool:
    """A constraint on a number; the order of operators is that of ``Op``."""
    if op == 0:
        return value == number
    if op == 1:
        return value != number
    if op == 2:
        return value < number
    if op == 3:
        return value <= number
    if op == 4:
        return value > number
    return value >= number
