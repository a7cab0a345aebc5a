"""The axes of the pool: which elements have rows of bits, and where their buckets begin, by quantiles."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evflow.matching.index import layout as at
from evflow.matching.index.keys import INFINITE

_ROWS_OF_A_CONSTRAINT = 384
"""Rows that a constraint pays for: each takes a bit a filter, so 48 bytes a constraint in all."""
_FEWEST_ROWS = 4
_ALL = 1 << 32


@dataclass(frozen=True, slots=True)
class Axes:
    """Axes as the pool reads them.

    Attributes:
        words: uint32, (axes, 132): element, first row, rows; from word 4 on the first keys of the buckets,
            from word 68 on their widths; the axes by element.
        rows: rows of a block, with that of the slots in use.
        share: the share of filters that rows leave of an event whose values are spread as the bounds of
            intervals are.
    """

    words: NDArray[np.uint32]
    rows: int
    share: float


def choose_axes(intervals: NDArray[np.uint32]) -> Axes:
    """Axes for filters of which these are a sample.

    Args:
        intervals: (N, 4): a number of the filter, ascending; an element; the first key of an interval, and
            its width; at least one.
    """
    filters = intervals[:, 0].astype(np.int64)
    count = int(filters[-1]) + 1
    elements, which, uses = np.unique(intervals[:, 1], return_inverse=True, return_counts=True)
    budget = max(_FEWEST_ROWS, _ROWS_OF_A_CONSTRAINT * len(intervals) // count)
    chosen = np.sort(np.argsort(-uses, kind="stable")[: budget // _FEWEST_ROWS])
    most = min(at.MOST_ROWS, budget // len(chosen))
    words = np.zeros((len(chosen), at.AXIS_SIZE // 4), np.uint32)
    words[:, at.AXIS_LOWS // 4 : at.AXIS_WIDTHS // 4] = at.NO_KEY
    held = np.ones(len(intervals))
    order = np.argsort(which.ravel(), kind="stable")
    starts = np.concatenate([[0], np.cumsum(uses)])
    row = 1
    for axis, i in enumerate(chosen):
        own = order[starts[i] : starts[i + 1]]
        first = -INFINITE if elements[i] % 3 == at.NUMBERS else 0
        lows = (intervals[own, 2].astype(np.int64) - first) % _ALL
        ends = lows + intervals[own, 3] + 1
        edges = _edges(np.concatenate([lows, ends]), most - 1, int(elements[i]) % 3)
        held[own] = _covered(edges, lows, ends - 1)
        words[axis, :3] = elements[i], row, len(edges) + 1
        place = at.AXIS_LOWS // 4 + 1
        words[axis, place : place + len(edges)] = (edges + first) % _ALL
        place = at.AXIS_WIDTHS // 4 + 1
        words[axis, place : place + len(edges)] = np.diff(np.append(edges, _ALL)) - 1
        row += len(edges) + 1
    share = np.ones(count)
    np.multiply.at(share, filters, held)
    return Axes(words, row, float(share.mean()))


def _edges(bounds: NDArray[np.int64], most: int, kind: int) -> NDArray[np.int64]:
    """Where at most ``most`` buckets begin, the first at 0."""
    # Strings that are not an operand have the last key of all.
    given = [0, at.NONE] if kind == at.TEXTS else [0]
    inside = np.sort(bounds[(bounds > 0) & (bounds < _ALL)])
    left = most - len(given)
    if left > 0 and len(inside):
        different = np.unique(inside)
        if len(different) > left:
            different = np.unique(inside[(np.arange(left) * 2 + 1) * len(inside) // (2 * left)])
        inside = different
    else:
        inside = inside[:0]
    return np.unique(np.concatenate([np.array(given[: max(1, most)], np.int64), inside]))


def _covered(edges: NDArray[np.int64], lows: NDArray[np.int64], highs: NDArray[np.int64]) -> Any:
    """The share of buckets that each interval has keys of."""
    first, last = np.searchsorted(edges, lows, "right"), np.searchsorted(edges, highs % _ALL, "right")
    wrapped = highs >= _ALL
    return (last - first + 1 + np.where(wrapped, len(edges), 0)).clip(1, len(edges)) / len(edges)
