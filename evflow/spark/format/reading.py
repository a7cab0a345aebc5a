"""The readers of Spark's format ``evflow``: rows that a Spark sink holds, as a DataFrame or as a stream.

A row has an offset for good, so an epoch that is run again reads the same rows. Where a stream stands is an
offset, the sink's log that it counts in, and the query, under which the sink knows how far it has come: Spark
keeps that in the query's checkpoint, so a query that is started again from there is the same one to the sink.
"""

from __future__ import annotations

import json
import logging
import uuid
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import DataType, DateType, StructType, TimestampNTZType, TimestampType

from evflow.errors import EvflowError, FlowError, SparkError
from evflow.events.batch import EventBatch
from evflow.outside import shown
from evflow.schema import Schema
from evflow.spark.columns.kept import can_give, column_of, with_types
from evflow.spark.columns.schemas import struct_of
from evflow.spark.format.connection import Connection, shared
from evflow.spark.format.options import EARLIEST, Options
from evflow.spark.questions import CommitRead, First, Page, Range, Read, There

if TYPE_CHECKING:
    import pyarrow as pa

_log = logging.getLogger("evflow.spark")

_PIECE = 1 << 20
"""Bytes of rows in one answer, about."""

_IN_FLIGHT = 4
_SLICE = 16 << 20
"""Bytes of rows of one task, about, where nobody says how many tasks there are to be."""

_MOST_SLICES = 1_000


def schema(options: Mapping[str, str]) -> StructType:
    """The schema of the rows that a sink holds.

    Args:
        options: as Spark hands them on.

    Raises:
        SparkError: an option is wrong, the sink does not answer, or has no schema yet.
    """
    parsed = Options.parse(options, reads=True)
    with Connection(parsed) as connection:
        there = connection.ask(Range(), There)
    if there.schema is None:
        raise SparkError(
            f"stone {parsed.stone!r} has no schema before events have come to it; declare it with "
            "ev.SparkSink(schema, …), or call .schema(…) before .load()"
        )
    held = Schema.from_description(there.schema)
    return with_types(struct_of(held), origin(held))


def origin(schema: Schema) -> StructType:
    """The types of Spark that fields of a schema from outside had as columns; of the others nothing."""
    if not schema.origin:
        return StructType()
    try:
        found = StructType.fromJson(json.loads(schema.origin, object_hook=_without_classes))
    except (
        PySparkException,
        ArithmeticError,
        AttributeError,
        LookupError,
        RecursionError,
        TypeError,
        ValueError,
    ):
        raise SparkError(
            f"expected columns of Spark as the origin of schema {schema.name}, found "
            f"{shown(schema.origin, 200)}"
        ) from None
    return found


def _without_classes(read: dict[str, Any]) -> dict[str, Any]:
    """What was read of JSON; a user-defined type would have Spark import, or unpickle, what it names."""
    if read.get("type") == "udt":
        raise ValueError("a user-defined type")
    return read


class BatchReader(DataSourceReader):
    """Reads the rows that a sink holds when the job is planned; they stay there.

    Args:
        options: as Spark hands them on; see ``Options``.
        struct: the columns to read.

    Raises:
        SparkError: an option is wrong; later, that the sink does not answer, or has no such rows any more.
    """

    def __init__(self, options: Mapping[str, str], struct: StructType) -> None:
        self._options = Options.parse(options, reads=True)
        self._struct = struct

    def partitions(self) -> Sequence[InputPartition]:
        """One slice of the rows for each task."""
        with Connection(self._options) as connection:
            there = connection.ask(Range(), There)
        start, stop = _row(self._options.first, there), _row(self._options.last, there)
        if start < stop:
            _check(self._options, there, start, stop)
        return _planned(self._options, there, start, stop, self._struct)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a slice; in an executor."""
        return _read(self._options, self._struct, partition)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads the rows of a sink as they come, and tells it which it need not keep.

    Args:
        options: as Spark hands them on; see ``Options``.
        struct: the columns to read.

    Raises:
        SparkError: an option is wrong; later, that the sink does not answer, has no such rows any more, or
            another one is in its place.
    """

    def __init__(self, options: Mapping[str, str], struct: StructType) -> None:
        self._options = Options.parse(options, reads=True)
        self._struct = struct
        # Spark asks for the initial offset more than once.
        self._query = self._options.query or uuid.uuid4().hex
        self._target: int | None = None
        self._committed: int | None = None
        self._latest: dict[str, Any] | None = None
        self._connection: Connection | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_connection": None}

    def _connected(self) -> Connection:
        if self._connection is None:
            self._connection = Connection(self._options)
        return self._connection

    def _there(self, at: Mapping[str, Any]) -> There:
        """What the sink has for the query, which reads on at an offset."""
        try:
            there = self._connected().ask(Range(at["query"], at["row"], at["spool"]), There)
        except FlowError as error:
            raise _lost(self._options, error) from None
        self._latest = {**at, "row": there.next}
        return there

    def initialOffset(self) -> dict[str, Any]:
        """Where a query without a checkpoint begins."""
        there = self._connected().ask(Range(), There)
        start = _row(self._options.start, there)
        _check(self._options, there, start, max(start, there.next))
        return {"query": self._query, "row": start, "spool": there.spool}

    def getDefaultReadLimit(self) -> ReadLimit:
        """How much goes into a micro-batch."""
        most = self._options.most_rows
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def prepareForTriggerAvailableNow(self) -> None:
        """From now on what comes later is not read."""
        self._target = self._connected().ask(Range(), There).next

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Up to where the next micro-batch reads."""
        there = self._there(start)
        row = start["row"]
        _check(self._options, there, row, max(row, there.next))
        stop = there.next if self._target is None else min(there.next, self._target)
        if isinstance(limit, ReadMaxRows):
            stop = min(stop, row + int(limit.max_rows))
        stop = max(stop, row)
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
        return _planned(self._options, there, start["row"], end["row"], self._struct)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a slice; in an executor."""
        return _read(self._options, self._struct, partition)

    def commit(self, end: dict[str, Any]) -> None:
        """The query has done with the rows before an offset."""
        try:
            self._connected().ask(CommitRead(end["query"], end["spool"], end["row"]), First)
            self._committed = end["row"]
        except FlowError as error:
            raise _lost(self._options, error) from None
        except SparkError as error:
            # The next one says it, too.
            _log.warning("rows before %d are not committed yet: %s", end["row"], error)

    def stop(self) -> None:
        """The query has ended."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _check(options: Options, there: There, start: int, stop: int) -> None:
    """Sees to it that rows are there."""
    if not there.first <= start <= stop <= there.next:
        error = FlowError(f"rows {start} to {stop} are not there: the sink has {there.first} to {there.next}")
        raise _lost(options, error)


def _planned(
    options: Options, there: There, start: int, stop: int, struct: StructType
) -> Sequence[InputPartition]:
    if start >= stop:
        return []
    _check_columns(Schema.from_description(there.schema), struct)
    return _slices(there, start, stop, options.partitions)


def _read(options: Options, struct: StructType, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    from evflow.spark.columns.decoder import decode

    if not isinstance(partition, Slice):
        # Where there are no partitions Spark makes one out of nothing.
        return
    # These are what Spark compares with, to the last word on nulls.
    columns = to_arrow_schema(struct, timezone="UTC")
    for batch in _fetch(options, partition):
        yield decode(batch, columns)


@dataclass(frozen=True)
class Slice(InputPartition):
    """Rows that one task reads.

    Attributes:
        spool: the log that they are of.
        described: their schema's description.
        start, stop: the offset of the first, and the one behind the last.
        mean: bytes of a row, about.
    """

    spool: str
    described: Any
    start: int
    stop: int
    mean: int


def _slices(there: There, start: int, stop: int, count: int | None) -> list[Slice]:
    """Rows of a sink in parts of about one size, one for each task.

    Args:
        there: what the sink has.
        start, stop: the offset of the first, and the one behind the last.
        count: how many parts; None for as many as their bytes ask for.
    """
    if count is None:
        count = min(-(-there.mean * (stop - start) // _SLICE), _MOST_SLICES)
    count = max(min(count, stop - start), 1)
    bounds = [start + (stop - start) * part // count for part in range(count + 1)]
    return [Slice(there.spool, there.schema, *ends, there.mean) for ends in pairwise(bounds)]


def _fetch(options: Options, part: Slice) -> Iterator[EventBatch]:
    """The rows of a slice, in order; several questions are on their way meanwhile.

    Raises:
        SparkError: rows are not there any more, or the sink does not answer in time.
        EvflowError: what came is malformed.
    """
    step, schema = max(_PIECE // part.mean, 1), Schema.from_description(part.described)
    with shared(options) as connection, ThreadPoolExecutor(_IN_FLIGHT, "evflow fetch") as pool:
        asked: deque[Future[list[EventBatch]]] = deque()
        try:
            for start in range(part.start, part.stop, step):
                stop = min(start + step, part.stop)
                asked.append(pool.submit(_ask, connection, part.spool, schema, start, stop))
                if len(asked) >= _IN_FLIGHT:
                    yield from asked.popleft().result()
            while asked:
                yield from asked.popleft().result()
        finally:
            # A task may end early, as with a limit, or fail.
            for future in asked:
                future.cancel()


def _ask(connection: Connection, spool: str, schema: Schema, start: int, stop: int) -> list[EventBatch]:
    """All rows from ``start`` on, before ``stop``; they may take several answers."""
    found: list[EventBatch] = []
    options = connection.options
    while start < stop:
        try:
            page = connection.ask(Read(spool, start, stop, 2 * _PIECE), Page)
        except FlowError as error:
            raise _lost(options, error) from None
        batch = EventBatch.from_bytes(schema, page.data, page.rows)
        if not 0 < len(batch) <= stop - start:
            raise SparkError(f"stone {options.stone!r} answers {len(batch)} of {stop - start} rows")
        found.append(batch)
        start += len(batch)
    return found


def _lost(options: Options, error: EvflowError) -> SparkError:
    """What a query is told that needs rows which the sink does not have."""
    return SparkError(
        f"stone {options.stone!r} at {options.contact}: {error}; rows go when all queries that the sink has "
        "heard of lately have committed them, or when it is full and drops the oldest: see its patience, "
        "limit and policy"
    )


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


def _row(place: str | int, there: There) -> int:
    if isinstance(place, int):
        return place
    return there.first if place == EARLIEST else there.next
