"""A hundred thousand invented subscribers to real flights: where they are and what they want to know."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evflow.matching import FilterColumns
from evflow.tools.demo.flights import Airports

Array = NDArray[Any]

_SPREAD_KM = 40.0
_KM_A_DEGREE = 111.195
_RADII = np.array([10_000.0, 25_000.0, 50_000.0, 100_000.0])
_MINUTES = np.array([15.0, 45.0, 90.0, 180.0])
_CARRIERS = ("9E", "AA", "AS", "B6", "DL", "EV", "F9", "FL", "HA", "MQ", "OO", "UA", "US", "VX", "WN", "YV")
_ORIGINS = ("EWR", "JFK", "LGA")

_DELAY = np.array(["dep_delay", "dep_delay", "arr_delay", "arr_delay"])
_OP = np.array([">", ">", ">", "<"])
_SECOND = np.array(["carrier", "origin", "carrier", "origin"])
"""What a subscriber wants to know of flights to within reach: those of an airline, or from an airport of New
York, that left or arrived more than so many minutes late, or arrived early."""
_SHARES = (0.4, 0.3, 0.2, 0.1)


@dataclass(frozen=True)
class Subscribers:
    """N subscribers.

    Attributes:
        latitude, longitude: where they are, degrees.
        radius: metres within which a flight concerns them.
        wish: 0 to 3, what they want to know of it.
        minutes: the minutes late, or early.
        word: the airline or airport of the wish.
    """

    latitude: Array
    longitude: Array
    radius: Array
    wish: Array
    minutes: Array
    word: Array

    def __len__(self) -> int:
        return len(self.wish)

    def filters(self, most: int | None = None) -> FilterColumns:
        """The subscriptions of all, or of the first so many, as columns."""
        wish, minutes = self.wish[:most], self.minutes[:most]
        blank = np.full(len(wish), None)
        return FilterColumns.from_arrays(
            name=np.stack((_DELAY[wish], _SECOND[wish]), axis=1),
            op=np.stack((_OP[wish], np.full(len(wish), "==")), axis=1),
            number=np.stack((np.where(wish == 3, -minutes, minutes), np.full(len(wish), np.nan)), axis=1),
            text=np.stack((blank, self.word[:most]), axis=1),
            x=self.latitude[:most],
            y=self.longitude[:most],
            radius=self.radius[:most],
            space="globe",
        )

    def examples(self) -> str:
        """The first three subscriptions, a line each."""
        return "\n".join(f"  {one}" for one in self.filters(3).to_subscriptions())


def subscribers(known: Airports, count: int = 100_000, seed: int = 2013) -> Subscribers:
    """Invents subscribers near the airports, each in some direction and at some distance from one of them."""
    random = np.random.default_rng(seed)
    home = random.integers(0, len(known.codes), count)
    north, east = random.normal(0.0, _SPREAD_KM / _KM_A_DEGREE, (2, count))
    latitude = np.clip(known.latitude[home] + north, -90.0, 90.0)
    longitude = known.longitude[home] + east / np.cos(np.radians(known.latitude[home]))
    wish = random.choice(len(_SHARES), count, p=_SHARES)
    carrier, origin = random.choice(_CARRIERS, count), random.choice(_ORIGINS, count)
    # Four decimals are ten metres, and read well.
    return Subscribers(
        latitude=np.round(latitude, 4),
        longitude=np.round((longitude + 180.0) % 360.0 - 180.0, 4),
        radius=random.choice(_RADII, count),
        wish=wish,
        minutes=random.choice(_MINUTES, count),
        word=np.where(_SECOND[wish] == "carrier", carrier, origin).astype(object),
    )
