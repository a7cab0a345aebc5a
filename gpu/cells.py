"""Which cell a filter's centre lies in, and the bucket that the cell's filters stand in.

Cells of level l are squares (cubes) with sides of a power of two that is more than twice the radius of the
filters there. So all centres within such a radius of a place lie in the 2 x 2 (x 2) cells nearest to it.
``gpu/kernels/grid.cu`` computes the same.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

EVERYWHERE = -1
"""The bucket of a filter that is tested for every event: it has no area, or one without bounds."""

LEVELS = 6
"""The most sizes of cells; filters of other radii are put with the next larger."""

MOST_BITS = 24

FINEST = 2.0**-40
"""The side of a cell is at least so much of its distance from the origin: its number is an int64."""

_X, _Y, _Z = (np.uint64(k) for k in (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0xD6E8FEB86659FD93))


class Cells:
    """Cells and buckets that fit some filters.

    Args:
        centre: as in ``Filters``, likewise ``reach``.
        reach: the squares of radii.

    Attributes:
        bits: there are ``2 ** bits`` buckets.
        inverse: float64: of each level one over the side of its cells.
    """

    def __init__(self, centre: NDArray[Any], reach: NDArray[Any]) -> None:
        sides = _sides(centre, reach)
        sides = np.sort(sides[sides < _UNBOUNDED])
        picked = (
            sides[np.linspace(0, len(sides) - 1, LEVELS + 1).astype(np.int64)[1:]] if len(sides) else sides
        )
        self._sides = np.unique(picked)
        self.inverse = np.ldexp(1.0, -self._sides)
        self.bits = min(max(len(sides).bit_length(), 1), MOST_BITS)

    def buckets(self, centre: NDArray[Any], reach: NDArray[Any]) -> NDArray[np.int64]:
        """The bucket of each filter, or ``EVERYWHERE``."""
        level = np.searchsorted(self._sides, _sides(centre, reach))
        found = np.full(len(centre), EVERYWHERE, np.int64)
        placed = np.flatnonzero(level < len(self._sides))
        level = level[placed]
        scaled = centre[placed].astype(np.float64) * self.inverse[level, None]
        found[placed] = self._bucket(level, np.floor(scaled))
        return found

    def near(self, places: NDArray[np.float64]) -> NDArray[np.int64]:
        """The buckets that are searched for events at these places, a row for each."""
        dimensions = places.shape[1]
        corners = np.arange(2**dimensions)[:, None] >> np.arange(dimensions) & 1
        rows = []
        for level, inverse in enumerate(self.inverse):
            cells = (np.floor(places * inverse - 0.5)[:, None, :] + corners).reshape(-1, dimensions)
            rows.append(self._bucket(np.full(len(cells), level), cells).reshape(len(places), -1))
        return np.concatenate([np.empty((len(places), 0), np.int64), *rows], axis=1)

    def _bucket(self, level: NDArray[np.int64], cells: NDArray[np.float64]) -> NDArray[np.int64]:
        cell = np.clip(cells, -4e18, 4e18).astype(np.int64).view(np.uint64)
        hashed = cell[:, 0] * _X ^ cell[:, 1] * _Y
        if cell.shape[1] == 3:
            hashed ^= cell[:, 2] * _Z
        hashed = (hashed ^ level.astype(np.uint64)) * _X
        hashed = (hashed ^ (hashed >> np.uint64(32))) * _Z
        bucket: NDArray[np.int64] = (hashed >> np.uint64(64 - self.bits)).astype(np.int64)
        return bucket


_UNBOUNDED = 200


def _sides(centre: NDArray[Any], reach: NDArray[Any]) -> NDArray[np.int64]:
    """The exponent of the side of a cell above twice the radius; ``_UNBOUNDED`` if there is none.

    A little is added, since a kernel rounds distances: a thousandth, and what underflows for tiny radii. Far
    from the origin cells are no smaller than ``FINEST`` allows.
    """
    with np.errstate(invalid="ignore"):
        radius = np.sqrt(np.maximum(reach.astype(np.float64), 0.0)) * 2.002 + 1e-21
        far = np.abs(centre.astype(np.float64)).max(axis=1, initial=0.0)
        radius = np.maximum(radius, np.where(np.isfinite(far), far, 0.0) * FINEST)
    exponent = np.frexp(np.where(np.isfinite(radius), radius, 1.0))[1].astype(np.int64)
    exponent[~np.isfinite(radius) | np.isnan(centre[:, 0])] = _UNBOUNDED
    return exponent
