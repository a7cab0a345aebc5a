"""A hundred thousand invented subscribers to real flights: where they are and what they want to know."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evflow.demo.flights import data_file
from evflow.matching import FilterColumns, Op

__all__ = ["WISHES", "Airports", "Subscribers", "airports", "subscribers"]

Array = NDArray[Any]

_SPREAD_KM = 40.0
_KM_A_DEGREE = 111.195
_RADII = np.array([10_000.0, 25_000.0, 50_000.0, 100_000.0])
_MINUTES = np.array([15.0, 45.0, 90.0, 180.0])
_CARRIERS = ("9E", "AA", "AS", "B6", "DL", "EV", "F9", "FL", "HA", "MQ", "OO", "UA", "US", "VX", "WN", "YV")
_ORIGINS = ("EWR", "JFK", "LGA")
_NAMES = ("dep_delay", "arr_delay", "carrier", "origin")

WISHES = (
    "left New York more than M minutes late",
    "left New York more than M minutes late, with my airline",
    "left from my New York airport more than M minutes late",
    "arrived more than M minutes late, with my airline",
    "arrived more than M minutes early",
)
"""What a subscriber wants to know of flights to within his reach; M is 15, 45, 90 or 180."""
_SHARES = (0.4, 0.25, 0.15, 0.1, 0.1)


@dataclass(frozen=True)
class Airports:
    """The airports of the United States, from the file beside the flights.

    Attributes:
        codes: what flights call them.
        names: what people call them.
        latitude, longitude: degrees.
    """

    codes: list[str]
    names: list[str]
    latitude: Array
    longitude: Array

    def places(self, codes: Array) -> tuple[Array, Array]:
        """Latitude and longitude of airports by their codes; NaN where one is not in the file."""
        known, inverse = np.unique(codes.astype("U3"), return_inverse=True)
        number = {code: i for i, code in enumerate(self.codes)}
        where = np.array([number.get(code, -1) for code in known.tolist()])[inverse]
        latitude, longitude = (np.append(column, np.nan)[where] for column in (self.latitude, self.longitude))
        return latitude, longitude


def airports() -> Airports:
    """Reads them.

    Raises:
        EvflowError: the package of the data is not installed; says how to get it.
    """
    file: Path = data_file().with_name("airports.csv")
    with file.open(encoding="utf-8", newline="") as lines:
        rows = list(csv.DictReader(lines))
    latitude, longitude = (np.array([float(row[key]) for row in rows]) for key in ("lat", "lon"))
    return Airports([row["faa"] for row in rows], [row["name"] for row in rows], latitude, longitude)


@dataclass(frozen=True)
class Subscribers:
    """N subscribers.

    Attributes:
        latitude, longitude: where they are, degrees.
        radius: metres within which a flight concerns them.
        wish: which of ``WISHES`` they have.
        minutes: the M of it.
        carrier, origin: numbers of an airline and an airport, which some wishes name.
    """

    latitude: Array
    longitude: Array
    radius: Array
    wish: Array
    minutes: Array
    carrier: Array
    origin: Array

    def __len__(self) -> int:
        return len(self.wish)

    def text(self, number: int) -> str:
        """The subscription of one of them, as text."""
        minutes = int(self.minutes[number])
        carrier, origin = _CARRIERS[self.carrier[number]], _ORIGINS[self.origin[number]]
        content = (
            f"dep_delay > {minutes}",
            f"dep_delay > {minutes} and carrier == '{carrier}'",
            f"dep_delay > {minutes} and origin == '{origin}'",
            f"arr_delay > {minutes} and carrier == '{carrier}'",
            f"arr_delay < {-minutes}",
        )[self.wish[number]]
        latitude, longitude = float(self.latitude[number]), float(self.longitude[number])
        return f"{content} and within({latitude!r}, {longitude!r}, {self.radius[number] / 1000:g} km)"

    def filters(self) -> FilterColumns:
        """Their subscriptions, as columns."""
        delay = np.where(self.wish < 3, 0, 1)
        early = self.wish == 4
        second = np.select([(self.wish == 1) | (self.wish == 3), self.wish == 2], [2, 3], -1)
        has_second = second >= 0
        start = np.concatenate(([0], np.cumsum(1 + has_second)))
        # Two slots a filter, of which the second may be empty.
        used = np.stack((np.ones(len(self), bool), has_second), axis=1).ravel()
        name = np.stack((delay, second), axis=1).ravel()[used]
        op = np.stack((np.where(early, Op.LT, Op.GT), np.full(len(self), Op.EQ)), axis=1).ravel()[used]
        number = np.stack((np.where(early, -self.minutes, self.minutes), np.full(len(self), np.nan)), axis=1)
        word = np.where(second == 2, self.carrier, self.origin + len(_CARRIERS))
        text = np.stack((np.full(len(self), -1), word), axis=1).ravel()[used]
        return FilterColumns(
            names=_NAMES,
            texts=(*_CARRIERS, *_ORIGINS),
            start=start,
            name=name.astype(np.int32),
            op=op.astype(np.uint8),
            number=number.ravel()[used],
            text=text.astype(np.int32),
            x=self.latitude,
            y=self.longitude,
            radius=self.radius,
        )


def subscribers(known: Airports, count: int = 100_000, seed: int = 2013) -> Subscribers:
    """Invents subscribers near the airports, each in some direction and at some distance from one of them."""
    random = np.random.default_rng(seed)
    home = random.integers(0, len(known.codes), count)
    north, east = random.normal(0.0, _SPREAD_KM / _KM_A_DEGREE, (2, count))
    latitude = np.clip(known.latitude[home] + north, -90.0, 90.0)
    longitude = known.longitude[home] + east / np.cos(np.radians(known.latitude[home]))
    # Four decimals are ten metres, and read well.
    return Subscribers(
        latitude=np.round(latitude, 4),
        longitude=np.round((longitude + 180.0) % 360.0 - 180.0, 4),
        radius=random.choice(_RADII, count),
        wish=random.choice(len(WISHES), count, p=_SHARES),
        minutes=random.choice(_MINUTES, count),
        carrier=random.integers(0, len(_CARRIERS), count),
        origin=random.integers(0, len(_ORIGINS), count),
    )
