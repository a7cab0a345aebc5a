"""The readers of Spark's format ``evflow``: rows that a Spark sink holds, as a DataFrame or as a stream.

A row has an offset for good, so an epoch that is run again reads the same rows. Where a stream stands is an
offset, the sink's log that it counts in, and the query, under which the sink knows how far it has come: Spark
keeps that in the query's checkpoint, so a query that is started again from there is the same one to the sink.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import DataType, DateType, StructType, TimestampNTZType, TimestampType

from evflow.errors import FlowError, SparkError
from evflow.outside import shown
from evflow.schema import Schema
from evflow.spark.columns.kept import can_give, column_of, with_types
from evflow.spark.columns.schemas import struct_of
from evflow.spark.format import answers
from evflow.spark.format.fetching import Slice, fetch, lost, mean_of, slices
from evflow.spark.format.options import Options
from evflow.spark.format.sending import Line

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["BatchReader", "StreamReader", "schema"]

_log = logging.getLogger("evflow.spark")

_EARLIEST, _LATEST = "earliest", "latest"
_OFFSETS = ("from", "to", "startingOffset")
_ALSO = (*_OFFSETS, "partitions", "query", "maxRowsPerTrigger")
_DIGITS = 19


def schema(options: Mapping[str, str]) -> StructType:
    """The schema of the rows that a sink holds.

    Args:
        options: as Spark hands them on.

    Raises:
        SparkError: an option is wrong, the sink does not answer, or has no schema yet.
    """
    parsed = Options.parse(options, _ALSO)
    with Line(parsed, "schema") as line:
        there = _range(line)
    described = there["schema"]
    if described is None:
        raise SparkError(
            f"stone {parsed.stone!r} has no schema before events have come to it; declare it with "
            "ev.SparkSink(schema, …), or call .schema(…) before .load()"
        )
    held = Schema.from_description(described)
    return with_types(struct_of(held), answers.origin(held))


class BatchReader(DataSourceReader):
    """Reads the rows that a sink holds when the job is planned; they stay there.

    Args:
        options: as Spark hands them on: beside those of ``Options`` ``from`` and ``to``, offsets or
            ``earliest`` and ``latest``, and ``partitions``, the number of tasks.
        struct: the columns to read.

    Raises:
        SparkError: an option is wrong; later, that the sink does not answer, or has no such rows any more.
    """

    def __init__(self, options: Mapping[str, str], struct: StructType) -> None:
        self._options = Options.parse(options, _ALSO)
        self._struct = struct
        self._from = _place(options, "from", _EARLIEST)
        self._to = _place(options, "to", _LATEST)
        self._partitions = _number(options, "partitions")

    def partitions(self) -> Sequence[InputPartition]:
        """One slice of the rows for each task."""
        with Line(self._options, "planner") as line:
            there = _range(line)
        start, stop = _row(self._from, there), _row(self._to, there)
        if start < stop:
            _check(self._options, there, start, stop)
        return _planned(there, start, stop, self._partitions, self._struct)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a slice; in an executor."""
        return _read(self._options, self._struct, partition)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads the rows of a sink as they come, and tells it which it need not keep.

    Args:
        options: as Spark hands them on: beside those of ``Options`` ``startingOffset``, an offset,
            ``earliest`` or ``latest``, for a query without a checkpoint; ``maxRowsPerTrigger``, rows of one
            micro-batch at most; ``partitions``, tasks of a micro-batch; and ``query``, what the sink knows it
            by: otherwise a random name, which is kept in the checkpoint.
        struct: the columns to read.

    Raises:
        SparkError: an option is wrong; later, that the sink does not answer, has no such rows any more, or
            another one is in its place.
    """

    def __init__(self, options: Mapping[str, str], struct: StructType) -> None:
        self._options = Options.parse(options, _ALSO)
        self._struct = struct
        self._start = _place(options, "startingOffset", _EARLIEST)
        self._partitions = _number(options, "partitions")
        self._most = _number(options, "maxRowsPerTrigger")
        self._query = options.get("query") or uuid.uuid4().hex
        self._target: int | None = None
        self._committed: int | None = None
        self._latest: dict[str, Any] | None = None
        self._line: Line | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_line": None}

    def _asked(self) -> Line:
        if self._line is None:
            self._line = Line(self._options, "query")
        return self._line

    def _there(self, at: Mapping[str, Any]) -> dict[str, Any]:
        """What the sink has for the query, which reads on at an offset."""
        try:
            known = {"query": at["query"], "at": at["row"], "spool": at["spool"]}
            there = _range(self._asked(), **known)
        except FlowError as error:
            raise lost(self._options, error) from None
        self._latest = {**at, "row": there["next"]}
        return there

    def initialOffset(self) -> dict[str, Any]:
        """Where a query without a checkpoint begins."""
        there = _range(self._asked())
        start = _row(self._start, there)
        _check(self._options, there, start, max(start, there["next"]))
        return {"query": self._query, "row": start, "spool": there["spool"]}

    def getDefaultReadLimit(self) -> ReadLimit:
        """How much goes into a micro-batch."""
        return ReadAllAvailable() if self._most is None else ReadMaxRows(self._most)

    def prepareForTriggerAvailableNow(self) -> None:
        """From now on what comes later is not read."""
        self._target = _range(self._asked())["next"]

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Up to where the next micro-batch reads."""
        there = self._there(start)
        row = start["row"]
        _check(self._options, there, row, max(row, there["next"]))
        stop = there["next"] if self._target is None else min(there["next"], self._target)
        stop = max(_limited(there, row, stop, limit, self._target is not None), row)
        if stop == row and row != self._committed:
            # The micro-batch before is done, but Spark says so only when it plans another. A full sink would
            # wait for that, and nothing would come that could be planned.
            self.commit(start)
        return {**start, "row": stop}

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Up to where there were rows when the sink was asked last."""
        return self._latest

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """One slice of the rows for each task."""
        if start["row"] == end["row"]:
            return []
        there = self._there(start)
        _check(self._options, there, start["row"], end["row"])
        return _planned(there, start["row"], end["row"], self._partitions, self._struct)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a slice; in an executor."""
        return _read(self._options, self._struct, partition)

    def commit(self, end: dict[str, Any]) -> None:
        """The query has done with the rows before an offset."""
        question = {"ask": "commit", "query": end["query"], "to": end["row"], "spool": end["spool"]}
        try:
            self._asked().ask(question)
            self._committed = end["row"]
        except FlowError as error:
            raise lost(self._options, error) from None
        except SparkError as error:
            # The next one says it, too.
            _log.warning("rows before %d are not committed yet: %s", end["row"], error)

    def stop(self) -> None:
        """The query has ended."""
        if self._line is not None:
            self._line.close()
            self._line = None


def _range(line: Line, **known: Any) -> dict[str, Any]:
    """What a sink has: ``spool``, ``first``, ``next``, ``bytes``, ``schema``."""
    there = line.ask({"ask": "range", **known})
    answers.text(there, "spool"), answers.count(there, "bytes"), answers.described(there, "schema")
    if answers.count(there, "first") > answers.count(there, "next"):
        raise SparkError(f"stone {line.options.stone!r} has rows from {there['first']} to {there['next']}")
    return there


def _check(options: Options, there: Mapping[str, Any], start: int, stop: int) -> None:
    """Sees to it that rows are there."""
    if not there["first"] <= start <= stop <= there["next"]:
        error = FlowError(
            f"rows {start} to {stop} are not there: the sink has {there['first']} to {there['next']}"
        )
        raise lost(options, error)


def _limited(there: Mapping[str, Any], row: int, stop: int, limit: ReadLimit, last: bool) -> int:
    """The offset behind the last row of a micro-batch that begins at ``row``."""
    if isinstance(limit, ReadMaxRows):
        return min(stop, row + int(limit.max_rows))
    if isinstance(limit, ReadMaxBytes):
        mean = mean_of(there)
        return min(stop, row + max(int(limit.max_bytes // mean), 1))
    if isinstance(limit, ReadMinRows) and not last and stop - row < limit.min_rows:
        return row
    return stop


def _planned(
    there: Mapping[str, Any], start: int, stop: int, count: int | None, struct: StructType
) -> Sequence[InputPartition]:
    if start >= stop:
        return []
    _check_columns(Schema.from_description(there["schema"]), struct)
    return slices(there, start, stop, count)


def _read(options: Options, struct: StructType, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    from evflow.spark.columns.arrow import decode

    if not isinstance(partition, Slice):
        # Where there are no partitions Spark makes one out of nothing.
        return
    # These are what Spark compares with, to the last word on nulls.
    columns = to_arrow_schema(struct, timezone="UTC")
    for batch in fetch(options, partition):
        yield decode(batch, columns)


def _check_columns(held: Schema, struct: StructType) -> None:
    """Sees to it that the columns to read are there; they may be some of many.

    Raises:
        SparkError: one is not there, or cannot be had as its type.
    """
    there = struct_of(held)
    for field in struct.fields:
        found = column_of(there, field.name)
        if found is None:
            raise SparkError(f"column {field.name!r}: events of {held.name} have {', '.join(there.names)}")
        if not can_give(found.dataType, field.dataType):
            own, wanted = found.dataType.simpleString(), field.dataType.simpleString()
            raise SparkError(
                f"column {field.name!r}: expected {own}, as events of {held.name} have it, or a type that "
                f"holds all such values, found {wanted}; name it {own} in .schema(…), and convert it after "
                f".load(), {_conversion(field.dataType)}"
            )


def _conversion(wanted: DataType) -> str:
    """How a column becomes of a type. A cast takes a number for seconds, whatever it counts."""
    if isinstance(wanted, (TimestampType, TimestampNTZType)):
        return "as with timestamp_micros(…), timestamp_millis(…) or timestamp_seconds(…), by what it counts"
    if isinstance(wanted, DateType):
        return "as with date_from_unix_date(…) for days"
    return "as with cast(…)"


def _place(options: Mapping[str, str], name: str, otherwise: str) -> str | int:
    """An option that is an offset, ``earliest`` or ``latest``."""
    text = options.get(name, otherwise).strip()
    if text.lower() in (_EARLIEST, _LATEST):
        return text.lower()
    found = _whole(text)
    if found is None:
        raise SparkError(f"option {name!r} {shown(text)}: expected an offset, {_EARLIEST!r} or {_LATEST!r}")
    return found


def _row(place: str | int, there: Mapping[str, Any]) -> int:
    if isinstance(place, int):
        return place
    first, next = int(there["first"]), int(there["next"])
    return first if place == _EARLIEST else next


def _number(options: Mapping[str, str], name: str) -> int | None:
    """An option that is a number of 1 or more; None if it is not given."""
    text = options.get(name)
    if text is None:
        return None
    found = _whole(text.strip())
    if not found:
        raise SparkError(f"option {name!r} {shown(text)}: expected a number of 1 or more")
    return found


def _whole(text: str) -> int | None:
    # Python reads no numbers of thousands of digits.
    return int(text) if text.isdecimal() and len(text) < _DIGITS else None
