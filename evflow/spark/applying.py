"""A graph of stones over a DataFrame: it runs inside the executors, and its open end gives the rows.

The graph travels as data. A worker of an executor builds it once, and compiles its functions once; each task
gets an engine of its own, with no thread and no node: a batch of rows in, what leaves the open end out.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

from evflow.engine.check import check_graph
from evflow.engine.engine import Engine
from evflow.engine.letters import LetterBox
from evflow.errors import FlowError, SchemaError, SparkError
from evflow.events.batch import EventBatch
from evflow.graph.graph import Graph
from evflow.outside import from_json, shown
from evflow.schema import Schema
from evflow.spark.java import explained
from evflow.spark.program import Program, entry, free_name
from evflow.spark.registering import register
from evflow.spark.rows import fitting, together
from evflow.stones.terminal import Terminal

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

_log = logging.getLogger("evflow.spark")

_FAULTS = ("fail", "drop")
_ROWS, _BYTES = 10_000, 4 << 20
"""Rows that leave are put together up to so many, as many as Spark's own batches have, or bytes."""


@explained()
def apply(df: DataFrame, graph: Graph, *, output: Any = None, faults: str = "fail") -> DataFrame:
    """Runs a graph of stones over the rows of a DataFrame, inside Spark's executors.

    The graph has one source, where the rows enter as events, and one stone that leads nowhere: what leaves
    that stone is the result, a row for each event. Filters, transforms, routers, splits, queues and match
    stones may stand between; see ``docs/spark.md``.

    If the source declares a schema the rows enter as that: columns are taken by their names, and those that
    are no field are left behind. If it declares none all columns pass on. Attributes of events do not become
    columns. Where events leave with the schema with which they entered, timestamps, dates, decimals and maps
    are again of these types; what a transform or queue makes of another schema has the types of its fields.

    Each partition is a stream of its own (of a streaming DataFrame each in each micro-batch): a function's
    statics begin anew with it, a queue sees nothing of another, and what a queue still holds at its end is
    gone. Within it events stay in order.

    Args:
        df: the rows; it may stream.
        graph: the stones; it travels as data, functions as their source.
        output: the schema (or ``Event`` class) of the rows that leave, where the open end may emit events of
            several, as a queue may; others are then given up.
        faults: "fail" ends the job at the first event that a stone gives up (a division by zero, a full
            queue, an event that fits no input) and says why; "drop" leaves such events out, and tells in the
            executor's log (``evflow.spark``) how many there were and why the first.

    Returns:
        A DataFrame of the schema of the open end.

    Raises:
        GraphError: the graph has no source or no open end, or several, or a stone that cannot run in a task.
        SchemaError: the rows do not fit the source; or events that have no counterpart in Spark leave.
        CodeError: a function is wrong.
        SparkError: ``faults`` is neither.

    Example: ``apply(flights, graph).groupBy("carrier").count()``
    """
    from pyspark.sql.pandas.types import to_arrow_schema

    from evflow.spark.columns.kept import with_types
    from evflow.spark.columns.schemas import schema_of, struct_of

    if faults not in _FAULTS:
        raise SparkError(f"apply: faults={faults!r}: expected one of {', '.join(_FAULTS)}")
    register(df.sparkSession)
    source, declared = entry(graph)
    rows = declared or schema_of(df.schema)
    df = fitting(df, rows, f"apply: the rows do not fit source {source!r}")
    program = Program.of(graph, rows, faults, _given(output))
    struct = struct_of(program.leaves)
    if program.unchanged:
        struct = with_types(struct, df.schema)
    shape = to_arrow_schema(struct, timezone="UTC")
    return df.mapInArrow(partial(run_task, program, shape=shape), struct)


def _given(output: Any) -> Schema | None:
    return None if output is None else Schema.of(output)


def run_task(
    program: Program, batches: Iterator[pa.RecordBatch], shape: pa.Schema | None = None
) -> Iterator[pa.RecordBatch]:
    """What a task does: the rows of a partition through a graph.

    Args:
        program: the graph.
        batches: the rows, as Spark hands them over.
        shape: the columns of the rows that leave; None for ``arrow_schema_of`` their schema.

    Raises:
        SchemaError: a row does not fit the source, or one that leaves does not fit ``shape``.
        SparkError: a stone gave up an event, and that is to end the job.
    """
    yield from together(_left(program, batches, shape), _ROWS, _BYTES)


def _left(
    program: Program, batches: Iterator[pa.RecordBatch], shape: pa.Schema | None
) -> Iterator[pa.RecordBatch]:
    from evflow.spark.columns.decoder import arrow_schema_of, decode
    from evflow.spark.columns.encoder import encode

    left: list[EventBatch] = []
    faults = _Faults()

    def take(batch: EventBatch) -> None:
        if batch.schema != program.leaves:
            raise SchemaError(f"a {batch.schema.name} is no row of {program.leaves.name}")
        left.append(batch)

    graph = _built(program.data).copy()
    graph.link(program.end, Terminal(take, batch=True, name=free_name(graph)))
    engine = Engine(check_graph(graph), faults)
    source = engine.topology.slots[program.source]
    shape = arrow_schema_of(program.leaves) if shape is None else shape
    try:
        for rows in batches:
            engine.submit(source, encode(program.enters, rows))
            engine.run()
            if faults.first and program.faults == "fail":
                cure = "clean the rows before, or leave such events out with faults='drop'"
                raise SparkError(f"apply: {faults.first}; {cure}")
            yield from (decode(batch, shape) for batch in left)
            left.clear()
    finally:
        engine.stop()
        if faults.counts:
            _log.warning("apply: %d events were given up (%s); the first: %s", *faults.told())


@lru_cache(maxsize=16)
def _built(data: str) -> Graph:
    """The graph of its data; once a worker process."""
    return Graph.from_dict(from_json(data))


class _Faults(LetterBox):
    """Counts the events that are given up, by stone, and tells of the first."""

    def __init__(self) -> None:
        super().__init__(0, _never)
        self.counts: Counter[str] = Counter()
        self.first = ""

    def put(
        self,
        stone: str,
        batch: EventBatch,
        reasons: Sequence[str],
        error: BaseException | None = None,
        failed: bool = True,
    ) -> None:
        """Counts them; the log of the task tells of them, too."""
        self.failures.note(stone, reasons, error, failed=failed)
        if len(batch) and not self.first:
            self.first = f"stone {stone!r} gave up {shown(batch[0], 300)}: {reasons[0]}"
        self.counts[stone] += len(batch)

    def told(self) -> tuple[int, str, str]:
        """How many there were, at which stones, and the first."""
        stones = ", ".join(f"{count} at {name!r}" for name, count in self.counts.items())
        return self.counts.total(), stones, self.first


def _never(stone: str, batch: EventBatch, timeout: float | None) -> None:
    raise FlowError(f"stone {stone!r}: nothing is submitted again in a task")
