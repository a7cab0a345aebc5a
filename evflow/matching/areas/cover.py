"""Circles that cover boxes and polygons, so that an index of circles finds those that a place may be in.

A long box is covered piece by piece: one circle around it would hold many places that are not in it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from evflow.matching.areas.columns import POLYGON, AreaColumns
from evflow.matching.literals import LIMIT
from evflow.matching.space import Space

Floats = NDArray[np.float64]

_MOST = 16
"""Circles for one area."""

_MARGIN, _LEAST, _CHORD = 1e-9, 1e-150, 1e-12
"""Of a radius, of one on the plane and of a chord: more than float64 rounds in all steps."""

_FAR = LIMIT / 8


class Cover(NamedTuple):
    """Circles as engines take them.

    Attributes:
        of: int64, K: which area a circle is for; rising.
        centre: float64, (K, 2) or (K, 3); NaN: the area is too large to be covered.
        reach: float64, K.
    """

    of: NDArray[np.int64]
    centre: Floats
    reach: Floats


def cover(areas: AreaColumns, space: Space) -> Cover:
    """Circles that hold all places of boxes and polygons.

    Args:
        areas: boxes and polygons only.
        space: what they are on.

    Example:
        >>> from evflow.matching.space import Plane
        >>> cover(AreaColumns.boxes(0, 0, [3, 40], 4), Plane()).of
        array([0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1])
    """
    low, high = areas.numbers[:, :2].copy(), areas.numbers[:, 2:].copy()
    globe = space.name == "globe"
    if globe:
        high[:, 1] += np.where(high[:, 1] < low[:, 1], 360.0, 0.0)
    sizes = high - low
    shown = sizes.copy()
    if globe:
        nearest = np.clip(0.0, low[:, 0], high[:, 0])
        shown[:, 1] *= np.cos(np.radians(nearest))
    across = (shown[:, 1] > shown[:, 0]).astype(np.int64)
    if globe:
        # A circle holds what its corners are in only if it is not wider than a quarter of the globe.
        across[sizes[:, 1] > 90.0] = 1
    rows = np.arange(len(areas))
    with np.errstate(all="ignore"):
        ratio = shown[rows, across] / shown[rows, 1 - across]
    pieces = np.clip(np.nan_to_num(np.rint(ratio), nan=1.0), 1, _MOST).astype(np.int64)
    if globe:
        pieces = np.maximum(pieces, np.ceil(sizes[:, 1] / 90.0).astype(np.int64) * (across == 1))
    of = np.repeat(rows, pieces)
    number = np.arange(len(of)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    along, chosen = across[of], np.arange(len(of))
    step = (sizes[rows, across] / pieces)[of]
    least, most = low[of], high[of]
    last = number == pieces[of] - 1
    least[chosen, along] += number * step
    # The last ends where the area does; the others reach a little into the next.
    most[chosen, along] = np.where(last, most[chosen, along], least[chosen, along] + step * (1 + _MARGIN))
    return _round(of, least, most, space) if globe else _flat(of, least, most, _farthest(areas, pieces)[of])


def _farthest(areas: AreaColumns, pieces: NDArray[np.int64]) -> Floats:
    """How far the farthest corner of a polygon is from the middle of its range; infinite of others."""
    found = np.full(len(areas), np.inf)
    there = np.flatnonzero((areas.kind == POLYGON) & (pieces == 1))
    if len(there):
        chosen = areas.take(there)
        first = chosen.rings[chosen.start[:-1]]
        middle = chosen.numbers[:, :2] / 2 + chosen.numbers[:, 2:] / 2
        away = chosen.corners - np.repeat(middle, np.diff(np.append(first, len(chosen.corners))), axis=0)
        found[there] = np.maximum.reduceat(np.hypot(away[:, 0], away[:, 1]), first)
    return found


def _flat(of: NDArray[np.int64], least: Floats, most: Floats, farthest: Floats) -> Cover:
    centre = least / 2 + most / 2
    half = np.maximum(most - centre, centre - least)
    radius = np.minimum(np.hypot(half[:, 0], half[:, 1]), farthest) * (1 + _MARGIN) + _LEAST
    far = radius > _FAR
    centre[far], radius[far] = np.nan, np.nan
    # What rounding moved the centre and the ends of pieces by.
    radius += (np.abs(least).max(axis=1, initial=0.0) + np.abs(most).max(axis=1, initial=0.0)) * 2.0**-50
    return Cover(of, centre, radius * radius)


def _round(of: NDArray[np.int64], least: Floats, most: Floats, space: Space) -> Cover:
    middle = np.clip((least + most) / 2, [-90.0, -np.inf], [90.0, np.inf])
    centre = space.places(middle[:, 0], middle[:, 1])
    reach = np.zeros(len(of))
    for latitude in (least[:, 0], most[:, 0]):
        for longitude in (least[:, 1], most[:, 1]):
            away = space.places(np.clip(latitude, -90.0, 90.0), longitude) - centre
            reach = np.maximum(reach, (away * away).sum(axis=1))
    radius = np.sqrt(reach) * (1 + _MARGIN) + _CHORD
    return Cover(of, centre, radius * radius)
