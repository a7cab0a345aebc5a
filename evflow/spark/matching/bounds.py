"""Where events are and what areas cover, in two numbers: what tiles are made of.

On the plane these are x and y, on the globe latitude and longitude in degrees. A box holds every place that
the matcher finds in its area, with a margin for how that rounds; it may hold more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evflow.matching.areas.columns import AreaColumns, normal
from evflow.matching.model import LIMIT
from evflow.matching.space import EARTH_RADIUS

Floats = NDArray[np.float64]

_MARGIN = 1e-9
"""Of a radius on the plane: more than float64 rounds."""

_LEAST = 1e-150
"""Added to a radius on the plane: the square of what is less may be zero."""

_DEGREES = 1e-6
"""Added to a box on the globe: a tenth of a metre."""

_STEEP = 80.0
"""Degrees of a radius on the globe from which a box would not be told exactly: it is everything."""


@dataclass(frozen=True, slots=True)
class Boxes:
    """N boxes, borders included; ``of`` says which area each is part of.

    Attributes:
        low: float64, (N, 2).
        high: float64, (N, 2).
        of: int64, N.
    """

    low: Floats
    high: Floats
    of: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.of)


def places_of(space: str, first: Any, second: Any) -> Floats:
    """(N, 2): places of events; twice NaN where the matcher finds none.

    Args:
        space: ``plane`` or ``globe``.
        first: float64, N: x, or the latitude.
        second: float64, N: y, or the longitude, which may go round more than once.

    Example:
        >>> places_of("globe", np.array([0.0, 91.0]), np.array([190.0, 0.0]))
        array([[   0., -170.],
               [  nan,   nan]])
    """
    places = np.column_stack([first, second]).astype(np.float64)
    if space == "plane":
        wrong = ~(np.abs(places) <= LIMIT).all(axis=1)
    else:
        wrong = ~(np.isfinite(places).all(axis=1) & (np.abs(places[:, 0]) <= 90.0))
        places[wrong] = 0.0
        places[:, 1] = normal(places[:, 1])
    places[wrong] = np.nan
    return places


def boxes_of(space: str, first: Floats, second: Floats, radius: Floats) -> Boxes:
    """Boxes that hold areas; on the globe an area at the antimeridian has two.

    Args:
        space: ``plane`` or ``globe``.
        first: float64, N: x, or the latitude in degrees.
        second: float64, N: y, or the longitude in degrees.
        radius: float64, N; on the globe in metres.

    Example:
        >>> boxes = boxes_of("globe", np.array([0.0]), np.array([180.0]), np.array([111_195.0]))
        >>> boxes.low.round().tolist(), boxes.high.round().tolist(), boxes.of
        ([[-1.0, -180.0], [-1.0, 179.0]], [[1.0, -179.0], [1.0, 180.0]], array([0, 0]))
    """
    return _on_plane(first, second, radius) if space == "plane" else _on_globe(first, second, radius)


def _on_plane(x: Floats, y: Floats, radius: Floats) -> Boxes:
    centre = np.column_stack([x, y]).astype(np.float64)
    reach = (radius * (1 + _MARGIN) + _LEAST)[:, None]
    return Boxes(centre - reach, centre + reach, np.arange(len(x)))


def _on_globe(latitude: Floats, longitude: Floats, radius: Floats) -> Boxes:
    reach = np.degrees(np.minimum(radius / EARTH_RADIUS, np.pi)) + _DEGREES
    all_of_it = reach >= _STEEP
    south, north = latitude - reach, latitude + reach
    pole = all_of_it | (south <= -90.0 + _DEGREES) | (north >= 90.0 - _DEGREES)
    south[all_of_it], north[all_of_it] = -90.0, 90.0
    # How far the circle goes east and west of its centre, where it holds no pole.
    sine = np.sin(np.radians(np.where(pole, 0.0, reach)))
    wide = np.degrees(np.arcsin(np.minimum(sine / np.cos(np.radians(np.where(pole, 0.0, latitude))), 1.0)))
    centre, wide = normal(longitude), wide + _DEGREES
    west, east = np.where(pole, -180.0, centre - wide), np.where(pole, 180.0, centre + wide)
    # A circle over the antimeridian is where it is, and once more a turn on.
    turn = np.where(east >= 180.0, -360.0, 360.0)
    again = np.flatnonzero(~pole & ((east >= 180.0) | (west < -180.0)))
    of = np.concatenate([np.arange(len(latitude)), again])
    west, east = (np.concatenate([side, side[again] + turn[again]]) for side in (west, east))
    low, high = np.column_stack([south[of], west]), np.column_stack([north[of], east])
    ends = np.array([90.0, 180.0])
    return Boxes(np.clip(low, -ends, ends), np.clip(high, -ends, ends), of)


def boxes_of_shapes(areas: AreaColumns) -> Boxes:
    """Boxes that hold boxes and polygons; on the globe one that goes over the antimeridian has several.

    Args:
        areas: boxes and polygons.

    Example:
        >>> boxes = boxes_of_shapes(AreaColumns.boxes(0, 170, 9, -170, space="globe"))
        >>> boxes.low.round().tolist(), boxes.high.round().tolist()
        ([[-0.0, 170.0], [-0.0, -180.0]], [[9.0, 180.0], [9.0, -170.0]])
    """
    low, high, of = areas.numbers[:, :2].copy(), areas.numbers[:, 2:].copy(), np.arange(len(areas))
    if areas.space == "plane":
        return Boxes(low, high, of)
    high[:, 1] += np.where(high[:, 1] < low[:, 1], 360.0, 0.0)
    # A pole has all longitudes, and the tiles of events at it are those of any.
    pole = (high[:, 0] >= 90.0) | (low[:, 0] <= -90.0)
    low[pole, 1], high[pole, 1] = -180.0, 180.0
    low, high = low - _DEGREES, high + _DEGREES
    turns = [np.array([0.0, turn]) for turn in (0.0, -360.0, 360.0)]
    turned = [(low + turn, high + turn) for turn in turns]
    lows, highs = (np.concatenate([pair[side] for pair in turned]) for side in (0, 1))
    seen = np.flatnonzero((highs[:, 1] >= -180.0) & (lows[:, 1] <= 180.0))
    ends = np.array([90.0, 180.0])
    return Boxes(np.clip(lows[seen], -ends, ends), np.clip(highs[seen], -ends, ends), np.tile(of, 3)[seen])
