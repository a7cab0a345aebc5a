"""A graph as tasks of Spark run it: a source, where rows enter, and an open end that gives the rows."""

from __future__ import annotations

import json
from dataclasses import dataclass

from evflow.engine.check import check_graph
from evflow.errors import GraphError
from evflow.events.batch import EventBatch
from evflow.graph.graph import Graph
from evflow.schema import Schema
from evflow.stones.match import Match
from evflow.stones.matching.output import matched_schema
from evflow.stones.source import Source
from evflow.stones.terminal import Terminal

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
        (source, declared), end = entry(graph), _open_end(graph)
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
    problems.extend(f"apply: {rule.text}: a task cannot reconfigure itself" for rule in graph.rules.values())
    if problems:
        raise GraphError(*problems)


def entry(graph: Graph) -> tuple[str, Schema | None]:
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


def free_name(graph: Graph) -> str:
    """A name that no stone of a graph has."""
    name = "rows"
    while name in graph.stones:
        name += "_"
    return name


def _leaving(graph: Graph, end: str, output: Schema | None) -> Schema:
    graph = graph.copy()
    name = graph.link(end, Terminal(_nothing, batch=True, name=free_name(graph))).name
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
