"""Runs a function natively and by the interpreter, and compares everything that comes out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import llvmlite.binding as llvm
import numpy as np

from evflow.codgen.kernel import Kernel, Port, Result, Segment, Stage, kernel
from evflow.codgen.runtime import new_state
from evflow.codgen.tree import Fault, Function
from evflow.events.attributes import Attributes
from evflow.events.batch import EventBatch
from evflow.events.encode import encode_dict
from evflow.events.view import view_class
from evflow.schema import Schema
from tests.codgen import interpret

__all__ = ["SYSTEM", "Ran", "expected", "native", "plain", "records_at", "rows_at", "run", "run_kernel"]

PORTS = 3
SYSTEM = {"time": 1234.5, "load": 0.25, "free_memory": 1e9, "cores": 2.0}


@dataclass
class Ran:
    """What came of a batch: per port the events and their attributes, the faults, and the counts of the
    stone."""

    sent: list[list[tuple[int, Any, dict[str, Any]]]] = field(
        default_factory=lambda: [[] for _ in range(PORTS)]
    )
    faults: list[tuple[int, str, int]] = field(default_factory=list)
    counts: list[int] = field(default_factory=lambda: [0, 0, 0, 0])


def plain(value: Any) -> Any:
    """A decoded value with arrays as lists, and NaN as a word."""
    if isinstance(value, np.ndarray):
        return (value.shape, plain(value.tolist()))
    if isinstance(value, dict):
        return {name: plain(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(inner) for inner in value]
    if isinstance(value, float):
        return "nan" if value != value else (value, str(value))
    return value


def expected(
    function: Function, events: Sequence[dict[str, Any]], attributes: Sequence[dict[str, Any]], schema: Schema
) -> Ran:
    """What the interpreter says."""
    ran, state = Ran(), interpret.new_state(function)
    for position, (event, given) in enumerate(zip(events, attributes, strict=True)):
        outcome = interpret.interpret(function, event, state=state, attributes=given, system=SYSTEM)
        ran.counts[0] += 1
        if outcome.fault:
            assert outcome.fault_pos is not None
            ran.faults.append((position, outcome.fault.name, outcome.fault_pos.line))
            ran.counts[3] += 1
            continue
        sent = [
            (e.port, "in" if isinstance(e.source, tuple) else _stored(function, e), 0)
            for e in outcome.emitted
        ]
        if function.kind == "filter" and outcome.result:
            sent.append((0, "in", 0))
        elif function.kind == "router" and outcome.result >= 0:
            sent.append((outcome.result, "in", 0))
        elif not outcome.result or function.kind == "router":
            ran.counts[2] += 1
        for port, what, _ in sent:
            if 0 <= port < PORTS:
                ran.counts[1] += 1
                ran.sent[port].append((position, what, plain(outcome.attributes)))
            else:
                ran.counts[2] += 1
    return ran


def _stored(function: Function, emitted: interpret.Emitted) -> Any:
    """The record as it is once it was encoded, decoded again."""
    assert isinstance(emitted.source, int)
    schema = function.outputs[emitted.source][1]
    return plain(view_class(schema)(encode_dict(schema, emitted.event)).to_dict())


def native(
    function: Function,
    events: Sequence[dict[str, Any]],
    attributes: Sequence[dict[str, Any]],
    schema: Schema,
    *,
    optimised: bool,
    selection: Sequence[int] | None = None,
) -> Ran:
    """What machine code says; with a selection of rows the positions are those of ``events`` still."""
    batch = EventBatch.from_encoded(schema, [encode_dict(schema, event) for event in events])
    compiled = kernel((Stage(function, 0, tuple(Port((), n) for n in range(PORTS))),), schema)
    if optimised:
        compiled.code.saw(1 << 30)
    chosen = None if selection is None else np.array(selection, np.int32)
    order = list(range(len(events))) if selection is None else list(selection)
    given = Attributes.from_rows([attributes[row] for row in order])
    result = compiled.run(
        batch.data, batch.offsets, chosen, batch.rows, given.columns, [new_state(function)], [{}], SYSTEM
    )
    ran = Ran(counts=result.counts[0].tolist())
    ran.faults = [(order[note.position], Fault(note.fault).name, note.line) for note in result.faults]
    for port, segments in enumerate(result.exits):
        for segment in segments:
            ran.sent[port] += _arrivals(compiled, result, segment, given, order)
    return ran


def _arrivals(
    compiled: Kernel, result: Result, segment: Segment, given: Attributes, order: list[int]
) -> list[tuple[int, Any, dict[str, Any]]]:
    positions = range(len(segment)) if segment.positions is None else segment.positions.tolist()
    arrivals = []
    for i, position in enumerate(positions):
        values: dict[str, Any] = given.of(position)
        for name, (_, column, present) in segment.attributes.items():
            values.pop(name, None)
            if present[i]:
                values[name] = column.tolist()[i]
        row = i if segment.rows is None else int(segment.rows[i])
        what = "in" if segment.buffer == 0 else _record(result, segment.buffer, row)
        if segment.buffer == 0:
            assert row == order[position]
        arrivals.append((order[position], what, plain(values)))
    return arrivals


def _record(result: Result, buffer: int, row: int) -> Any:
    records = result.buffers[buffer]
    assert records is not None
    width = records.schema.width
    at = row * width if width is not None else int(records.offsets[row])  # type: ignore[index]
    return plain(view_class(records.schema)(memoryview(records.data), at).to_dict())


def run(
    stages: Stage | tuple[Stage, ...],
    batch: EventBatch,
    attributes: Attributes | None = None,
    stone_attributes: Mapping[str, object] | None = None,
) -> Result:
    """Runs a tree with new states."""
    stages = stages if isinstance(stages, tuple) else (stages,)
    compiled = kernel(stages, batch.schema)
    llvm.parse_assembly(compiled.code.dump_ir()).verify()
    return run_kernel(compiled, batch, attributes, stone_attributes)


def run_kernel(
    compiled: Kernel,
    batch: EventBatch,
    attributes: Attributes | None = None,
    stone_attributes: Mapping[str, object] | None = None,
) -> Result:
    routes = compiled.code.routes
    stones: dict[int, Function] = {n.stage.stone: n.stage.function for n in routes.nodes}
    states = [new_state(stones[n]) if n in stones else np.zeros(0, np.uint8) for n in range(routes.stones)]
    return compiled.run(
        batch.data,
        batch.offsets,
        batch.selection,
        batch.rows,
        None if attributes is None else attributes.columns,
        states,
        [stone_attributes or {}] * len(states),
        SYSTEM,
    )


def rows_at(result: Result, exit_: int) -> list[int]:
    """The input rows that left by an exit; they must all be input events."""
    rows: list[int] = []
    for segment in result.exits[exit_]:
        assert segment.buffer == 0
        rows += range(segment.count) if segment.rows is None else segment.rows.tolist()
    return rows


def records_at(result: Result, exit_: int) -> list[Any]:
    """The decoded records that left by an exit, with the positions they came from."""
    found = []
    for segment in result.exits[exit_]:
        records = result.buffers[segment.buffer]
        assert records is not None
        rows = range(segment.count) if segment.rows is None else segment.rows.tolist()
        positions = range(segment.count) if segment.positions is None else segment.positions.tolist()
        for row, position in zip(rows, positions, strict=True):
            width = records.schema.width
            at = int(records.offsets[row]) if records.offsets is not None else row * (width or 0)
            found.append((position, view_class(records.schema)(memoryview(records.data), at).to_dict()))
    return found
