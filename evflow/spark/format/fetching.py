"""The way of rows from a Spark sink to a task: questions from the task's own node, several at a time.

The node stays for the next tasks of the same Python process: reaching a node anew takes longer than a small
slice does.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from pyspark.sql.datasource import InputPartition

from evflow.errors import EvflowError, FlowError, SparkError
from evflow.events.batch import EventBatch
from evflow.schema import Schema
from evflow.spark.format import answers
from evflow.spark.format.options import Options
from evflow.spark.format.sending import Line

__all__ = ["Slice", "fetch", "lost", "mean_of", "slices"]

_PIECE = 1 << 20
"""Bytes of rows in one answer, about."""

_IN_FLIGHT = 4
_SLICE = 16 << 20
"""Bytes of rows of one task, about, where nobody says how many tasks there are to be."""

_MOST_SLICES = 1_000

_lines: dict[tuple[int, Options], Line] = {}
_lock = threading.Lock()


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


def mean_of(there: Mapping[str, Any]) -> int:
    """Bytes of a row of a sink, about; ``there`` is what it answers to ``range``."""
    return max(int(there["bytes"]) // max(int(there["next"]) - int(there["first"]), 1), 1)


def slices(there: Mapping[str, Any], start: int, stop: int, count: int | None) -> list[Slice]:
    """Rows of a sink in parts of about one size, one for each task.

    Args:
        there: what the sink answers to ``range``.
        start, stop: the offset of the first, and the one behind the last.
        count: how many parts; None for as many as their bytes ask for.
    """
    mean = mean_of(there)
    if count is None:
        count = min(-(-mean * (stop - start) // _SLICE), _MOST_SLICES)
    count = max(min(count, stop - start), 1)
    bounds = [start + (stop - start) * part // count for part in range(count + 1)]
    spool, described = there["spool"], there["schema"]
    return [Slice(spool, described, *ends, mean) for ends in pairwise(bounds) if ends[0] < ends[1]]


def fetch(options: Options, part: Slice) -> Iterator[EventBatch]:
    """The rows of a slice, in order; several questions are on their way meanwhile.

    Raises:
        SparkError: rows are not there any more, or the sink does not answer in time.
        EvflowError: what came is malformed.
    """
    step, schema = max(_PIECE // part.mean, 1), Schema.from_description(part.described)
    starts = iter(range(part.start, part.stop, step))
    with _line(options) as line, ThreadPoolExecutor(_IN_FLIGHT, "evflow fetch") as pool:
        asked: deque[Future[list[EventBatch]]] = deque()
        try:
            for start in starts:
                asked.append(pool.submit(_ask, line, part.spool, schema, start, min(start + step, part.stop)))
                if len(asked) >= _IN_FLIGHT:
                    yield from asked.popleft().result()
            while asked:
                yield from asked.popleft().result()
        finally:
            # A task may end early, as with a limit, or fail.
            for future in asked:
                future.cancel()


def _ask(line: Line, spool: str, schema: Schema, start: int, stop: int) -> list[EventBatch]:
    """All rows from ``start`` on, before ``stop``; they may take several answers."""
    found: list[EventBatch] = []
    while start < stop:
        question = {"ask": "rows", "spool": spool, "from": start, "to": stop, "most": 2 * _PIECE}
        try:
            answer = line.ask(question)
        except FlowError as error:
            raise lost(line.options, error) from None
        batch = EventBatch.from_bytes(schema, answers.data(answer, "data"), answers.count(answer, "rows"))
        if not 0 < len(batch) <= stop - start:
            raise SparkError(f"stone {line.options.stone!r} answers {len(batch)} of {stop - start} rows")
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


@contextmanager
def _line(options: Options) -> Iterator[Line]:
    """A connection of this process; one that failed is not used again."""
    if options.keys is not None:
        # Other tasks need the key when this one ends.
        with Line(options, "reader") as line:
            yield line
        return
    key = os.getpid(), options
    with _lock:
        if key not in _lines:
            _lines[key] = Line(options, "reader")
        line = _lines[key]
    try:
        yield line
    except EvflowError:
        with _lock:
            if _lines.get(key) is line:
                del _lines[key]
        line.close()
        raise
