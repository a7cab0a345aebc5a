"""Fetches the rows of a Spark sink in a task, with several questions at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from pyspark.sql.datasource import InputPartition

from evflow.errors import EvflowError, FlowError, SparkError
from evflow.events.batch import EventBatch
from evflow.schema import Schema
from evflow.spark.format.connection import Connection, shared
from evflow.spark.format.options import Options
from evflow.spark.questions import Page, Read, There

_PIECE = 1 << 20
"""Bytes of rows in one answer, about."""

_IN_FLIGHT = 4
_SLICE = 16 << 20
"""Bytes of rows of one task, about, where nobody says how many tasks there are to be."""

_MOST_SLICES = 1_000


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


def slices(there: There, start: int, stop: int, count: int | None) -> list[Slice]:
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


def fetch(options: Options, part: Slice) -> Iterator[EventBatch]:
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
            raise lost(options, error) from None
        batch = EventBatch.from_bytes(schema, page.data, page.rows)
        if not 0 < len(batch) <= stop - start:
            raise SparkError(f"stone {options.stone!r} answers {len(batch)} of {stop - start} rows")
        found.append(batch)
        start += len(batch)
    return found


def lost(options: Options, error: EvflowError) -> SparkError:
    """What a query is told that needs rows which the sink does not have."""
    return SparkError(
        f"stone {options.stone!r} at {options.contact}: {error}; rows go when all queries that the sink has "
        "heard of lately have committed them, or when it is full and drops the oldest: see its patience, "
        "limit and policy"
    )
