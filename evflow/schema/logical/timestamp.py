"""``Timestamp``: a point in time."""

from __future__ import annotations

import datetime
from typing import Any

from evflow.schema.logical.nanoseconds import Nanoseconds

__all__ = ["Timestamp", "TimestampType"]

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


class TimestampType(Nanoseconds):
    """The type of ``Timestamp``: a point in time, in UTC, to the nanosecond, from 1677 to 2262.

    It takes a ``numpy.datetime64`` (in UTC), a ``datetime`` with a time zone, or an int: nanoseconds since
    1970-01-01 00:00 UTC, as ``time.time_ns()`` has them, which is what functions see and what stands on the
    wire, as a msgpack int 64. It gives a ``numpy.datetime64`` in nanoseconds.

    Example:
        >>> import evflow as ev
        >>> quote = ev.Schema("quote", {"at": ev.Timestamp, "price": float})
        >>> batch = ev.EventBatch.from_events([quote(at=1_700_000_000_000_000_000, price=80.0)])
        >>> str(batch[0].at)
        '2023-11-14T22:13:20.000000000'
    """

    __slots__ = ()

    letter64 = "M"
    word = "timestamp"
    expected = (
        "a time: numpy.datetime64 (UTC), a datetime with a time zone, or an int of nanoseconds since 1970 "
        "(timestamp)"
    )

    def nanoseconds(self, value: Any) -> int | None:
        """Nanoseconds since 1970 of a ``datetime`` that has a time zone."""
        if not isinstance(value, datetime.datetime) or value.tzinfo is None:
            return None
        since = value - _EPOCH
        # A Timestamp of pandas has nanoseconds as well.
        micros = (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
        return micros * 1000 + int(getattr(since, "nanoseconds", 0))

    def arrow_type(self) -> Any:
        """``timestamp[ns, tz=UTC]``."""
        import pyarrow as pa

        return pa.timestamp("ns", "UTC")

    def from_arrow(self, array: Any) -> Any:
        """Times with a zone, times in UTC without one, dates, or integers of nanoseconds."""
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
