"""Where the flights of a day are: each flies its great circle in the time that it took, at an even speed.

The data has no positions, only when a flight departed, for how long it was in the air, and between which
airports; so it is taken to be in the air from its departure on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from evflow.tools.demo.flights import Airports, batch_of

if TYPE_CHECKING:
    from pandas import DataFrame

__all__ = ["Sky", "flown_on"]

Array = NDArray[Any]


@dataclass(frozen=True)
class Sky:
    """N flights.

    Attributes:
        carrier: who flies, as two letters.
        dest: the code of the airport that it is bound for.
        departs, arrives: seconds since 1970 (UTC).
        start, end: places on the unit sphere, (N, 3).
    """

    carrier: Array
    dest: Array
    departs: Array
    arrives: Array
    start: Array
    end: Array

    def __len__(self) -> int:
        return len(self.carrier)

    def aloft(self, when: float) -> Array:
        """The numbers of the flights that are in the air."""
        return np.flatnonzero((self.departs <= when) & (when < self.arrives))

    def places(self, which: Array, when: float) -> Array:
        """Latitude and longitude of some flights in degrees, (N, 2)."""
        start, end = self.start[which], self.end[which]
        part = (when - self.departs[which]) / (self.arrives[which] - self.departs[which])
        angle = np.arccos(np.clip((start * end).sum(1), -1, 1))
        of_start, of_end = np.sin((1 - part) * angle), np.sin(part * angle)
        x, y, z = (start * of_start[:, None] + end * of_end[:, None]).T
        places: Array = np.stack((np.arctan2(z, np.hypot(x, y)), np.arctan2(y, x)), axis=1)
        return np.degrees(places)


def flown_on(day: str, flights: DataFrame, known: Airports) -> Sky:
    """The flights that departed on a day (UTC) and flew between known airports, by their departure.

    Args:
        day: such as ``2013-07-01``.
        flights: as ``read`` gives them.
        known: the airports.
    """
    begins = np.datetime64(day, "s").astype(np.int64)
    # A flight may depart a day after it should have, or some minutes before.
    days = [str(np.datetime64(day, "D") + np.timedelta64(late, "D")) for late in (-1, 0, 1)]
    near = flights[flights.time_hour.str[:10].isin(days)]
    batch = batch_of(near.assign(time_hour=near.time_hour.cat.remove_unused_categories()))
    departs = batch["scheduled"] + batch["dep_delay"].astype(np.float64) * 60
    arrives = departs + batch["air_time"].astype(np.float64) * 60
    start, end = (_on_sphere(*known.places(batch[name])) for name in ("origin", "dest"))
    flown = (departs >= begins) & (departs < begins + 86400) & (arrives > departs)
    which = np.flatnonzero(flown & ~np.isnan(start + end).any(1))
    which = which[np.argsort(departs[which], kind="stable")]
    return Sky(
        batch["carrier"][which].astype("U2"),
        batch["dest"][which].astype("U3"),
        departs[which],
        arrives[which],
        start[which],
        end[which],
    )


def _on_sphere(latitude: Array, longitude: Array) -> Array:
    north, east = np.radians(latitude), np.radians(longitude)
    return np.stack((np.cos(north) * np.cos(east), np.cos(north) * np.sin(east), np.sin(north)), axis=1)
