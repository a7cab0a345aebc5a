"""Places and areas as engines compare them, in float64: two coordinates, or a unit vector on the globe.

Areas and events go through the same arithmetic, which uses additions and multiplications only. So a place
gets the same bits alone as in a column, compiled as interpreted, here as on another machine, and a circle
holds its own centre even if its radius is zero.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from evflow.errors import SubscriptionError
from evflow.matching import globe
from evflow.matching.literals import LIMIT, first_of

EARTH_RADIUS = 6_371_008.8
"""Radius of the globe in metres (the mean radius of the Earth, IUGG)."""

LOCATIONS = {"plane": ("x", "y"), "globe": ("latitude", "longitude")}
"""The attributes that say where an event happened, by space, unless the matcher is told others."""

METRE = 90.0 / (math.pi * EARTH_RADIUS)
"""Half the angle that a metre of the surface is."""

WHOLE = 5.0
"""More than the square of the longest chord of the unit sphere."""

Floats = NDArray[np.float64]


class Space:
    """What plane and globe have in common.

    Attributes:
        name: ``plane`` or ``globe``.
        dimensions: numbers of a place.
        bounds: what the two coordinates and the radius of an area are less than, whatever their sign.
    """

    name: str
    dimensions: int
    bounds: tuple[float, float, float]

    def places(self, first: Floats, second: Floats) -> Floats:
        """N places of events, (N, dimensions); NaN where it is missing, out of bounds or beyond a pole."""
        raise NotImplementedError

    def reaches(self, radius: Floats) -> Floats:
        """The squares of radii (of their chords on the globe), N."""
        raise NotImplementedError

    def check(self, first: Floats, second: Floats, radius: Floats | None) -> None:
        """Refuses areas that are nowhere.

        Raises:
            SubscriptionError: one has no such centre, or a radius that is negative or too large; names it.
        """
        for at in first_of(~((np.abs(first) < self.bounds[0]) & (np.abs(second) < self.bounds[1]))):
            one, two = LOCATIONS[self.name]
            limits = f"up to {LIMIT:.8g}" if self.name == "plane" else "a latitude of -90 to 90, finite"
            raise SubscriptionError(
                f"area {at}: {one} {first[at]!s}, {two} {second[at]!s}: expected finite "
                f"coordinates ({limits})"
            )
        for at in [] if radius is None else first_of(~((radius >= 0) & (radius < self.bounds[2]))):
            assert radius is not None
            limits = f"from 0 to {LIMIT:.8g}" if self.name == "plane" else "that is finite and not negative"
            raise SubscriptionError(f"area {at}: radius {radius[at]!s}: expected a number {limits}")


class Plane(Space):
    """The plane: coordinates as they are, of a radius the square.

    Example:
        >>> Plane().places(np.array([0.1, np.inf]), np.array([2.0, 3.0]))
        array([[0.1, 2. ],
               [nan, nan]])
    """

    name = "plane"
    dimensions = 2
    bounds = (math.nextafter(LIMIT, math.inf),) * 3

    def places(self, first: Floats, second: Floats) -> Floats:
        place = np.empty((len(first), 2))
        place[:, 0], place[:, 1] = first, second
        there = (np.abs(place[:, 0]) <= LIMIT) & (np.abs(place[:, 1]) <= LIMIT)
        if not there.all():
            place[~there] = np.nan
        return place

    def reaches(self, radius: Floats) -> Floats:
        with np.errstate(under="ignore"):
            return radius * radius


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
    bounds = math.nextafter(90.0, 91.0), math.inf, math.inf

    def places(self, first: Floats, second: Floats) -> Floats:
        place = np.empty((len(first), 3))
        latitude, longitude = np.asarray(first, np.float64), np.asarray(second, np.float64)
        globe.unit_vectors(np.ascontiguousarray(latitude), np.ascontiguousarray(longitude), place)
        return place

    def reaches(self, radius: Floats) -> Floats:
        degrees = np.minimum(radius * METRE, 90.0)
        sines = np.empty((len(degrees), 3))
        # The third number of the vector at a latitude is the sine of that.
        globe.unit_vectors(np.ascontiguousarray(degrees), np.zeros(len(degrees)), sines)
        return np.where(degrees >= 90.0, WHOLE, (2.0 * sines[:, 2]) * (2.0 * sines[:, 2]))


def space_of(name: str) -> Space:
    """The plane or the globe by name.

    Raises:
        SubscriptionError: it is neither.
    """
    if name not in LOCATIONS:
        raise SubscriptionError(f"space {name!r}: expected 'plane' or 'globe'")
    return Plane() if name == "plane" else Globe()
