"""A graph of stones over a DataFrame: it runs inside the executors, and its open end gives the rows.

The graph travels as data. A worker of an executor builds it once, and compiles its functions once; each task
gets an engine of its own, with no thread and no node: a batch of rows in, what leaves the open end out.
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

from evflow.engine.check import check_graph
from evflow.engine.engine import Engine
from evflow.engine.letters import LetterBox
from evflow.errors import FlowError, GraphError, SchemaError, SparkError
from evflow.events.batch import EventBatch
from evflow.graph.graph import Graph
from evflow.outside import from_json, shown
from evflow.schema import Schema
from evflow.spark.java import explained
from evflow.spark.registering import register
from evflow.spark.rows import fitting, together
from evflow.stones.match import Match
from evflow.stones.matching.output import matched_schema
from evflow.stones.source import Source
from evflow.stones.terminal import Terminal

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

_log = logging.getLogger("evflow.spark")

_FAULTS = ("fail", "drop")
_ROWS, _BYTES = 10_000, 4 << 20
"""Rows that leave are put together up to so many, as many as Spark's own batches have, or bytes."""

_KINDS = ("source", "split", "filter", "transform", "router", "queue", "match")
_REFUSED = {
    "terminal": "its handler would run in the executors; leave it out: what would reach it are the rows",
    "generator": "it makes events on a period, and a task has none",
    "storage": "it holds events between runs, and a task keeps nothing",
    "bridge": "it needs a node; write the rows with df.write.format('evflow') instead",
    "spark source": "the DataFrame is what comes in; begin with graph.source(…)",
    "spark sink": "the DataFrame is what comes out; leave it out",
}


@dataclass(frozen=True)
class Program:
    """A graph with one source and one open end, ready to travel.

    Attributes:
        data: the graph, as JSON.
        source: where the rows enter.
        end: the stone whose events are the rows of the result.
        enters: the schema of the rows that enter.
        leaves: that of the rows that leave.
        faults: "fail" or "drop".
        unchanged: whether fields of the rows that enter leave under their names and as what they were.
    """

    data: str
    source: str
    end: str
    enters: Schema
    leaves: Schema
    faults: str = "fail"
    unchanged: bool = False

    @classmethod
    def of(cls, graph: Graph, rows: Schema, faults: str = "fail", output: Schema | None = None) -> Program:
        """The program of a graph.

        Args:
            graph: the graph; it is not changed.
            rows: what the source takes where it declares no schema.
            faults, output: see ``apply``.

        Raises:
            GraphError: the graph cannot run in a task; ``problems`` has each reason.
            EvflowError: see ``Graph.check``.
        """
        (source, declared), end = _entry(graph), _open_end(graph)
        graph = graph.copy()
        if declared is None:
            declared = rows
            graph.stones[source] = Source(rows, name=source, on=graph.stones[source].on)
        leaves = _leaving(graph, end, output)
        unchanged = leaves in _passing(graph, declared)
        return cls(json.dumps(graph.to_dict()), source, end, declared, leaves, faults, unchanged)


def _passing(graph: Graph, schema: Schema) -> set[Schema]:
    """The schema of the rows that enter, and what match stones make of it by adding a field."""
    found = {schema}
    for stone in graph.stones.values():
        if isinstance(stone, Match) and not stone.route:
            found |= {matched_schema(one, stone.field) for one in found if stone.field not in one}
    return found


def _refuse(graph: Graph) -> None:
    problems = []
    for name, stone in graph.stones.items():
        if stone.kind not in _KINDS:
            why = _REFUSED.get(stone.kind, f"only {', '.join(_KINDS)} stones can")
            problems.append(f"apply: stone {name!r} ({stone.kind}) cannot run in a Spark task: {why}")
        elif isinstance(stone, Match) and stone.path is not None:
            problems.append(
                f"apply: stone {name!r} (match) cannot run in a Spark task: tasks would share the file "
                f"{stone.path}, in which it keeps changes; leave path= out"
            )
        elif isinstance(stone, Match) and stone.track is not None:
            problems.append(
                f"apply: stone {name!r} (match) cannot run in a Spark task: a task sees only some of the "
                f"events with the same {stone.track}, and in no order; leave track= out"
            )
    problems.extend(f"apply: {rule.text}: a task cannot reconfigure itself" for rule in graph.rules.values())
    if problems:
        raise GraphError(*problems)


def _entry(graph: Graph) -> tuple[str, Schema | None]:
    """Where the rows enter, and as what; None for whatever they are."""
    _refuse(graph)
    sources = [(name, stone) for name, stone in graph.stones.items() if isinstance(stone, Source)]
    if len(sources) != 1:
        found = ", ".join(repr(name) for name, _ in sources) or "none"
        raise GraphError(f"apply: graph {graph.name}: expected one source, for the rows; found {found}")
    name, source = sources[0]
    if len(source.schemas) > 1:
        found = ", ".join(schema.name for schema in source.schemas)
        raise GraphError(f"apply: source {name!r} declares {found}; expected one schema, that of the rows")
    return name, source.schemas[0] if source.schemas else None


def _open_end(graph: Graph) -> str:
    linked = {link.source for link in graph.links}
    ends = [name for name in graph.stones if name not in linked]
    if len(ends) != 1:
        found = ", ".join(map(repr, ends)) or "none"
        raise GraphError(
            f"apply: graph {graph.name}: expected one stone that leads nowhere, whose events are the rows; "
            f"found {found}; several become one when they are linked to one ev.Split()"
        )
    return ends[0]


def _free_name(graph: Graph) -> str:
    """A name that no stone of a graph has."""
    name = "rows"
    while name in graph.stones:
        name += "_"
    return name


def _leaving(graph: Graph, end: str, output: Schema | None) -> Schema:
    graph = graph.copy()
    name = graph.link(end, Terminal(_nothing, batch=True, name=_free_name(graph))).name
    arriving = check_graph(graph).slots[name].arrivals
    known = [schema for schema in arriving if schema is not None]
    found = ", ".join(schema.name for schema in known) or "events of any schema"
    if output is not None and output not in known:
        raise GraphError(f"apply: output={output.name}: {found} leave stone {end!r}, and no such events")
    if output is None and (len(known), len(arriving)) != (1, 1):
        raise GraphError(
            f"apply: rows have one schema, but {found} leave stone {end!r}; say which are rows with output="
        )
    return known[0] if output is None else output


def _nothing(batch: EventBatch) -> None:
    """Stands for what takes the rows, where the graph is only checked."""


@explained()
def apply(df: DataFrame, graph: Graph, *, output: Any = None, faults: str = "fail") -> DataFrame:
    """Runs a graph of stones over the rows of a DataFrame, inside Spark's executors.

    The graph has one source, where the rows enter as events, and one stone that leads nowhere: what leaves
    that stone is the result, a row for each event. Filters, transforms, routers, splits, queues and match
    stones may stand between; see ``docs/spark.md``.

    If the source declares a schema the rows enter as that: columns are taken by their names, and those that
    are not fields are left behind. If it declares none, all pass on. Attributes of events do not become
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
    source, declared = _entry(graph)
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
            raise SchemaError(f"a {batch.schema.name} is not a row of {program.leaves.name}")
        left.append(batch)

    graph = _built(program.data).copy()
    graph.link(program.end, Terminal(take, batch=True, name=_free_name(graph)))
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
