"""Places and areas as engines compare them: float32 on the plane, float64 unit vectors on the globe.

Areas and events go through the same arithmetic, which uses additions and multiplications only. So a place
gets the same bits alone as in a column, compiled as interpreted, here as on another machine, and a circle
holds its own centre even if its radius is zero.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evflow.errors import SubscriptionError
from evflow.matching import globe

__all__ = ["EARTH_RADIUS", "LOCATIONS", "Globe", "Plane", "Space", "space_of"]

EARTH_RADIUS = 6_371_008.8
"""Radius of the globe in metres (the mean radius of the Earth, IUGG)."""

LOCATIONS = {"plane": ("x", "y"), "globe": ("latitude", "longitude")}
"""The attributes that say where an event happened, by space, unless the matcher is told others."""

_DEGREES = 90.0 / (math.pi * EARTH_RADIUS)
"""Half the angle that a metre of the surface is."""

_ALL = 5.0
"""More than the square of the longest chord of the unit sphere."""

_END = float.fromhex("0x1.ffffffp127")
"""Halfway from the largest float32 to the next, if there were one: what is less becomes a finite one."""

Floats = NDArray[np.float64]


class Space:
    """What plane and globe have in common.

    Attributes:
        name: ``plane`` or ``globe``.
        dimensions: numbers of a place.
        dtype: their type.
        bounds: what the two coordinates and the radius of an area are less than, whatever their sign.
    """

    name: str
    dimensions: int
    dtype: type[Any]
    bounds: tuple[float, float, float]

    def places(self, first: Floats, second: Floats) -> NDArray[Any]:
        """N places of events, (N, dimensions); NaN where it is missing, not finite or beyond a pole."""
        raise NotImplementedError

    def put(self, place: Any, first: float, second: float) -> None:
        """Writes the place of one event to a writeable sequence; what ``places`` would give."""
        raise NotImplementedError

    def put_reach(self, reach: Any, radius: float) -> None:
        """Writes the square of one radius to a writeable sequence; NaN if it is no radius."""
        raise NotImplementedError

    def reaches(self, radius: Floats) -> NDArray[Any]:
        """The squares of radii (of their chords on the globe), N."""
        raise NotImplementedError

    def areas(self, first: Floats, second: Floats) -> NDArray[Any]:
        """N centres of areas, (N, dimensions).

        Raises:
            SubscriptionError: one is nowhere; names it.
        """
        centre = self.places(first, second)
        wrong = np.isnan(centre[:, 0])
        if wrong.any():
            at = int(np.argmax(wrong))
            one, two = LOCATIONS[self.name]
            limits = "finite in 32 bits" if self.name == "plane" else "a latitude of -90 to 90, finite"
            raise SubscriptionError(
                f"area {at}: {one} {first[at]!s}, {two} {second[at]!s}: expected coordinates ({limits})"
            )
        return centre

    def checked_reaches(self, radius: Floats) -> NDArray[Any]:
        """The squares of the radii of areas, N.

        Raises:
            SubscriptionError: one is negative or not finite; names it.
        """
        wrong = ~((radius >= 0) & (radius < (_END if self.name == "plane" else np.inf)))
        if wrong.any():
            at = int(np.argmax(wrong))
            raise SubscriptionError(
                f"area {at}: radius {radius[at]!s}: expected a finite number that is not negative"
            )
        return self.reaches(radius)


class Plane(Space):
    """The plane: coordinates and radii are rounded to float32.

    Example:
        >>> Plane().places(np.array([0.1, np.inf]), np.array([2.0, 3.0]))
        array([[0.1, 2. ],
               [nan, nan]], dtype=float32)
    """

    name = "plane"
    dimensions = 2
    dtype = np.float32
    bounds = _END, _END, _END

    def places(self, first: Floats, second: Floats) -> NDArray[Any]:
        place = np.empty((len(first), 2), np.float32)
        with np.errstate(over="ignore"):
            place[:, 0], place[:, 1] = first, second
        finite = np.isfinite(place[:, 0]) & np.isfinite(place[:, 1])
        if not finite.all():
            place[~finite] = np.nan
        return place

    def put(self, place: Any, first: float, second: float) -> None:
        if -_END < first < _END and -_END < second < _END:
            place[0], place[1] = first, second
        else:
            place[0] = place[1] = math.nan

    def put_reach(self, reach: Any, radius: float) -> None:
        if not 0 <= radius < _END:
            reach[0] = math.nan
            return
        reach[0] = radius
        # The square of a float32 is exact in float64, so it is rounded once.
        reach[0] = reach[0] * reach[0]

    def reaches(self, radius: Floats) -> NDArray[Any]:
        with np.errstate(over="ignore", under="ignore"):
            rounded = np.asarray(radius, np.float32)
            return rounded * rounded


class Globe(Space):
    """The globe: a place in degrees is a unit vector, a radius in metres the square of its chord.

    Longitudes may go round more than once. A radius of half the circumference or more reaches everything.

    Example:
        >>> Globe().places(np.array([90.0, 0.0, 91.0]), np.array([17.0, 180.0, 0.0]))
        array([[ 0.,  0.,  1.],
               [-1.,  0.,  0.],
               [nan, nan, nan]])
    """

    name = "globe"
    dimensions = 3
    dtype = np.float64
    bounds = math.nextafter(90.0, 91.0), math.inf, math.inf

    def places(self, first: Floats, second: Floats) -> NDArray[Any]:
        place = np.empty((len(first), 3))
        latitude, longitude = np.asarray(first, np.float64), np.asarray(second, np.float64)
        globe.unit_vectors(np.ascontiguousarray(latitude), np.ascontiguousarray(longitude), place)
        return place

    def put(self, place: Any, first: float, second: float) -> None:
        place[0], place[1], place[2] = globe.unit_vector(first, second)

    def put_reach(self, reach: Any, radius: float) -> None:
        if not 0 <= radius < math.inf:
            reach[0] = math.nan
            return
        degrees = radius * _DEGREES
        half = globe.unit_vector(degrees, 0.0)[2] if degrees < 90.0 else 0.0
        reach[0] = (2.0 * half) * (2.0 * half) if degrees < 90.0 else _ALL

    def reaches(self, radius: Floats) -> NDArray[Any]:
        degrees = np.minimum(radius * _DEGREES, 90.0)
        sines = np.empty((len(degrees), 3))
        # The third number of the vector at a latitude is the sine of that.
        globe.unit_vectors(np.ascontiguousarray(degrees), np.zeros(len(degrees)), sines)
        return np.where(degrees >= 90.0, _ALL, (2.0 * sines[:, 2]) * (2.0 * sines[:, 2]))


def space_of(name: str) -> Space:
    """The plane or the globe by name.

    Raises:
        SubscriptionError: it is neither.
    """
    if name not in LOCATIONS:
        raise SubscriptionError(f"space {name!r}: expected 'plane' or 'globe'")
    return Plane() if name == "plane" else Globe()
