"""Unit vectors of places in degrees, with additions and multiplications only.

Sine and cosine are Taylor series over ±45 degrees, so far that what is left out is less than half a unit in
the last place. Quarter turns are taken off exactly before, hence poles and antimeridian are exact.
"""

from __future__ import annotations

import math

import numpy as np

from evflow.matching.native import Read, WriteRows, array_kernel, compiled

_RADIAN = math.pi / 180.0
_S = tuple((-1.0) ** k / math.factorial(2 * k + 1) for k in range(1, 9))
_C = tuple((-1.0) ** k / math.factorial(2 * k) for k in range(1, 10))
(_S3, _S5, _S7, _S9, _S11, _S13, _S15, _S17) = _S
(_C2, _C4, _C6, _C8, _C10, _C12, _C14, _C16, _C18) = _C


@compiled
def sine_cosine(degrees: float) -> tuple[float, float]:
    """Sine and cosine of an angle of -180 to 180 degrees."""
    turns = 0.0
    if degrees > 45.0:
        turns = 1.0 if degrees <= 135.0 else 2.0
    elif degrees < -45.0:
        turns = -1.0 if degrees >= -135.0 else -2.0
    r = (degrees - 90.0 * turns) * _RADIAN
    z = r * r
    s = _S9 + z * (_S11 + z * (_S13 + z * (_S15 + z * _S17)))
    s = r + r * (z * (_S3 + z * (_S5 + z * (_S7 + z * s))))
    c = _C10 + z * (_C12 + z * (_C14 + z * (_C16 + z * _C18)))
    c = 1.0 + z * (_C2 + z * (_C4 + z * (_C6 + z * (_C8 + z * c))))
    if turns == 0.0:
        return s, c
    if turns == 1.0:
        return c, -s
    if turns == -1.0:
        return -c, s
    return -s, -c


@compiled
def turned(longitude: float) -> float:
    """The same meridian from -180 up to 180; every step is exact."""
    if -180.0 <= longitude < 180.0:
        return longitude
    east: float = np.fmod(longitude, 360.0)
    if east >= 180.0:
        east -= 360.0
    elif east < -180.0:
        east += 360.0
    return east


@compiled
def place_vector(latitude: float, longitude: float) -> tuple[float, float, float]:
    """The unit vector of a place in degrees; three times NaN if there is no such place.

    Example:
        >>> place_vector(0.0, -270.0)
        (0.0, 1.0, 0.0)
    """
    if not -90.0 <= latitude <= 90.0 or not -math.inf < longitude < math.inf:
        return math.nan, math.nan, math.nan
    if latitude == 90.0 or latitude == -90.0:
        return 0.0, 0.0, latitude / 90.0
    up, out = sine_cosine(latitude)
    s, c = sine_cosine(turned(longitude))
    # Without the addition a zero could be negative.
    return out * c + 0.0, out * s + 0.0, up + 0.0


@array_kernel
def unit_vectors(
    latitude: Read[np.float64], longitude: Read[np.float64], vectors: WriteRows[np.float64]
) -> None:
    """Fills (N, 3) with the unit vectors of N places."""
    for i in range(len(latitude)):
        vectors[i, 0], vectors[i, 1], vectors[i, 2] = place_vector(latitude[i], longitude[i])
