"""``Duration``: a length of time."""

from __future__ import annotations

import datetime
from typing import Any

import numpy as np

from evflow.schema.logical._nanoseconds import Nanoseconds, nanoseconds_of

__all__ = ["Duration"]


class DurationType(Nanoseconds):
    """The type of ``Duration``: a length of time to the nanosecond, of at most 292 years, negative ones too.

    It takes a ``numpy.timedelta64``, a ``timedelta``, or an int: nanoseconds, which is what functions see and
    what stands on the wire, as a msgpack int 64. It gives a ``numpy.timedelta64`` in nanoseconds.

    Example:
        >>> import evflow as ev
        >>> from datetime import timedelta
        >>> lap = ev.Schema("lap", {"took": ev.Duration})
        >>> ev.EventBatch.from_events([lap(took=timedelta(seconds=83.5))])[0].took
        np.timedelta64(83500000000,'ns')
    """

    __slots__ = ()

    classes = (np.timedelta64, datetime.timedelta)
    spelling = "ev.Duration"
    letter64 = "m"
    word = "duration"
    expected = "a duration: numpy.timedelta64, a timedelta, or an int of nanoseconds (duration)"

    def nanoseconds(self, value: Any) -> int | None:
        """The nanoseconds of ``value``, if it is a ``timedelta``; else None."""
        return nanoseconds_of(value) if isinstance(value, datetime.timedelta) else None

    @classmethod
    def as_json(cls, value: Any) -> int | None:
        """The nanoseconds of ``value``; None if it is missing."""
        return cls.as_arrow(value)

    def arrow_type(self) -> Any:
        """``duration[ns]``."""
        import pyarrow as pa

        return pa.duration("ns")

    def from_arrow(self, array: Any) -> Any:
        """The nanoseconds of ``array``, which holds durations or integers of nanoseconds.

        Raises:
            TypeError: ``array`` holds something else.
        """
        import pyarrow as pa

        if pa.types.is_integer(array.type):
            return array.cast(pa.int64())
        if not pa.types.is_duration(array.type):
            raise TypeError
        return array.cast(pa.duration("ns")).view(pa.int64())

    def spark_type(self) -> Any:
        """``DayTimeIntervalType``, which has microseconds."""
        from pyspark.sql import types

        return types.DayTimeIntervalType()


Duration = DurationType("i64", "i", 8, 0xD3, 4)
