"""``Timestamp``: a point in time."""

from __future__ import annotations

import datetime
import re
from typing import Any

import numpy as np

from evflow.schema.logical._nanoseconds import Nanoseconds, nanoseconds_of

__all__ = ["Timestamp"]

_TEXT = re.compile(
    r"(?P<day>[0-9]{4}-[0-9]{2}-[0-9]{2})([T ](?P<time>[0-9]{2}:[0-9]{2}:[0-9]{2})"
    r"(\.(?P<fraction>[0-9]{1,9}))?(?P<zone>Z|[+-][0-9]{2}:[0-9]{2}))?"
)
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


class TimestampType(Nanoseconds):
    """The type of ``Timestamp``: a point in time, in UTC, to the nanosecond, from 1677 to 2262.

    It takes a ``numpy.datetime64`` (in UTC), a ``datetime`` with a time zone, a date (its beginning in
    UTC), a text in ISO 8601 of a date or of a time with a time zone, or an int: nanoseconds since
    1970-01-01 00:00 UTC, as ``time.time_ns()`` has them, which is what functions see and what stands on
    the wire, as a msgpack int 64. It gives a ``numpy.datetime64`` in nanoseconds.

    Example:
        >>> import evflow as ev
        >>> quote = ev.Schema("quote", {"at": ev.Timestamp, "price": float})
        >>> batch = ev.EventBatch.from_events([quote(at=1_700_000_000_000_000_000, price=80.0)])
        >>> str(batch[0].at)
        '2023-11-14T22:13:20.000000000'
    """

    __slots__ = ()

    classes = (np.datetime64, datetime.date)
    spelling = "ev.Timestamp"
    letter64 = "M"
    word = "timestamp"
    expected = (
        "a time: numpy.datetime64 (UTC), a datetime with a time zone, a date, a text such as '2026-11-25' or "
        "'2026-11-25T12:00:00Z', or an int of nanoseconds since 1970 (timestamp)"
    )

    def nanoseconds(self, value: Any) -> int | None:
        """Nanoseconds since 1970 of ``value``: a ``datetime`` or text that has a time zone, or a date,
        also as a text, in UTC."""
        more = 0
        if isinstance(value, str):
            found = _TEXT.fullmatch(value)
            if found is None:
                return None
            more = int((found["fraction"] or "").ljust(9, "0"))
            try:
                time, zone = found["time"] or "00:00:00", found["zone"] or "Z"
                value = datetime.datetime.fromisoformat(f"{found['day']}T{time}{zone}")
            except ValueError:
                return None
        elif isinstance(value, datetime.date) and not isinstance(value, datetime.datetime):
            value = datetime.datetime(value.year, value.month, value.day, tzinfo=datetime.UTC)
        if not isinstance(value, datetime.datetime) or value.utcoffset() is None:
            return None
        return nanoseconds_of(value - _EPOCH) + more

    @classmethod
    def as_json(cls, value: Any) -> str | None:
        """The time ``value`` in ISO 8601; None for NaT."""
        if not isinstance(value, np.datetime64):
            return str(value.isoformat())
        return None if np.isnat(value) else f"{value}Z"

    def to_pandas(self, column: np.ndarray[Any, np.dtype[Any]]) -> Any:
        """The times of ``column`` in UTC."""
        import pandas as pd

        return pd.Series(column.astype("M8[ns]")).dt.tz_localize("UTC")

    def arrow_type(self) -> Any:
        """``timestamp[ns, tz=UTC]``."""
        import pyarrow as pa

        return pa.timestamp("ns", "UTC")

    def from_arrow(self, array: Any) -> Any:
        """The nanoseconds of ``array``: times with a zone, times in UTC without, dates, or integers of
        nanoseconds."""
        import pyarrow as pa

        if pa.types.is_integer(array.type):
            return array.cast(pa.int64())
        if not pa.types.is_timestamp(array.type) and not pa.types.is_date(array.type):
            raise TypeError
        return array.cast(pa.timestamp("ns", getattr(array.type, "tz", None))).view(pa.int64())

    def spark_type(self) -> Any:
        """``TimestampType``, which has microseconds."""
        from pyspark.sql import types

        return types.TimestampType()


Timestamp = TimestampType("i64", "i", 8, 0xD3, 4)
