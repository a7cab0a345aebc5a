"""One function, several inputs: native code of both tiers gives what the interpreter gives.

A ``Trace`` is what the interpreter says about a list of events, one after the other: results, faults, what is
sent with which attributes, counts, and the static variables at the end. Native code has to say the same
when the events come one by one, as a batch, and as a selection of a batch; all it reads and writes ends at
guard pages.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

import numpy as np

from evflow import EventBatch, Schema
from evflow.codgen.kernel import Kernel, KernelCode, Port, Records, Result, Stage
from evflow.codgen.llvm.layout import statics_layout
from evflow.codgen.runtime import new_state
from evflow.codgen.tree import Function
from evflow.events.attributes import Attributes
from evflow.schema.types import NUMBERS
from tests.codgen import interpret
from tests.codgen.oracle import SYSTEM, plain
from tests.fuzz.guard import guarded, read_only

__all__ = [
    "STONE",
    "Arrival",
    "Inputs",
    "Trace",
    "both_tiers",
    "check",
    "decoded",
    "expected",
    "same",
    "statics",
]

PORTS = 3
MANY = 100
"""Events up to which they are also run one by one."""

STONE = {"hops": 7, "weight": 0.25, "label": "é"}
"""The attributes of the stone that functions run in."""

Arrival = tuple[int, Any, Any]
"""Position of the event, the record sent (or "in" for the event itself), its attributes."""


@dataclass
class Inputs:
    """Events with their attributes, as values and as a batch.

    Args:
        schema: theirs. events: the fields of each. attributes: of each.
    """

    schema: Schema
    events: Sequence[Mapping[str, Any]]
    attributes: Sequence[Mapping[str, Any]]

    def __post_init__(self) -> None:
        whole = EventBatch.from_events(self.events, self.schema)
        self.data = read_only(whole.to_bytes())
        self.offsets = None if whole.offsets is None else guarded(whole.offsets)

    def only(self, rows: Sequence[int]) -> Inputs:
        """Some of them."""
        return Inputs(self.schema, [self.events[n] for n in rows], [self.attributes[n] for n in rows])

    def columns(self, rows: Sequence[int]) -> dict[str, Any]:
        """The attributes of the events of these rows, as a kernel takes them."""
        columns = Attributes.from_rows([self.attributes[n] for n in rows]).columns
        for column in columns.values():
            object.__setattr__(column, "values", guarded(column.values))
            object.__setattr__(column, "present", guarded(column.present))
        return columns


@dataclass
class Trace:
    """What came of events that came one after the other.

    Attributes:
        results: for each what the function returned, or the fault and its line.
        sent: by port what was sent.
        counts: events in, out, dropped and faulted.
        statics: the static variables afterwards.
    """

    results: list[Any] = field(default_factory=list)
    sent: list[list[Arrival]] = field(default_factory=lambda: [[] for _ in range(PORTS)])
    counts: list[int] = field(default_factory=lambda: [0, 0, 0, 0])
    statics: list[Any] = field(default_factory=list)


def decoded(schema: Schema, events: Sequence[Mapping[str, Any]]) -> list[Any]:
    """Records as they are once they were encoded."""
    return [plain(view.to_dict()) for view in EventBatch.from_events(events, schema)]


def expected(function: Function, inputs: Inputs) -> Trace:
    """What the interpreter says."""
    trace, state = Trace(), interpret.new_state(function)
    for position, (event, given) in enumerate(zip(inputs.events, inputs.attributes, strict=True)):
        outcome = interpret.interpret(
            function, event, state=state, attributes=given, stone_attributes=STONE, system=SYSTEM
        )
        trace.counts[0] += 1
        if outcome.fault:
            assert outcome.fault_pos is not None
            trace.results.append((outcome.fault.name, outcome.fault_pos.line))
            trace.counts[3] += 1
            continue
        trace.results.append(outcome.result)
        for port, what in _leaving(function, outcome):
            linked = 0 <= port < PORTS
            trace.counts[1 if linked else 2] += 1
            if linked:
                trace.sent[port].append((position, what, plain(outcome.attributes)))
        nothing = outcome.result < 0 if function.kind == "router" else outcome.result == 0
        trace.counts[2] += nothing
    trace.statics = plain(state.values)
    return trace


def _leaving(function: Function, outcome: interpret.Outcome) -> list[tuple[int, Any]]:
    """(port, record) of what a call sends, and what its result sends on."""
    leaving: list[tuple[int, Any]] = []
    for port, source, event in outcome.emitted:
        schema = None if isinstance(source, tuple) else function.outputs[source][1]
        leaving.append((port, "in" if schema is None else decoded(schema, [event])[0]))
    if function.kind == "router" and outcome.result >= 0:
        leaving.append((outcome.result, "in"))
    elif function.kind == "filter" and outcome.result:
        leaving.append((0, "in"))
    return leaving


def statics(function: Function, state: Any) -> list[Any]:
    """Static variables out of a native block, as the interpreter holds them."""
    values: list[Any] = []
    offsets, _ = statics_layout(function.statics)
    for variable, at in zip(function.statics, offsets, strict=True):
        count = int(np.prod(variable.shape))
        cells = np.frombuffer(state.tobytes(), NUMBERS[variable.type].dtype, count, at).tolist()
        values.append(cells if variable.shape else cells[0])
    return plain(values)


def check(
    function: Function, inputs: Inputs, random: Random, tell: Callable[[str], None] = lambda text: None
) -> None:
    """Compares both tiers with the interpreter.

    Raises:
        AssertionError: they differ.
    """
    unseen = function.inputs[0][1] is None and random.random() < 0.5
    # A filter with one way out has a loop that all such filters share.
    alone = function.kind == "filter" and not function.sent and not function.sets
    stage = Stage(function, 0, tuple(Port((), n) for n in range(1 if alone else PORTS)))
    code = KernelCode((stage,), None if unseen else inputs.schema)
    everything = range(len(inputs.events))
    chosen = sorted(random.sample(everything, random.randrange(len(inputs.events) + 1)))
    whole, part = expected(function, inputs), expected(function, inputs.only(chosen))
    for tier in both_tiers(code):
        if len(everything) <= MANY:
            tell(f"{tier}, one by one")
            same(_one_by_one(function, code, inputs), whole)
        tell(f"{tier}, as a batch")
        same(_batch(function, code, inputs, everything, None), whole)
        tell(f"{tier}, selected {chosen}")
        same(_batch(function, code, inputs, chosen, guarded(np.array(chosen, np.int32))), part)


def same(found: object, wanted: object) -> None:
    """Requires that two things are equal.

    Raises:
        AssertionError: they are not; shows both.
    """
    if found != wanted:
        raise AssertionError(f"not the same\n found {found!r}\nwanted {wanted!r}")


def both_tiers(code: Any) -> Any:
    """Names the tiers that code goes through: the first, and the optimised one if it is not too large."""
    yield "first tier"
    code.saw(1 << 30)
    if code.optimised:
        yield "optimised"


def _batch(
    function: Function, code: KernelCode, inputs: Inputs, rows: Sequence[int], selection: Any
) -> Trace:
    kernel, state = Kernel(code), new_state(function)
    result = _run(kernel, inputs.data, inputs.offsets, selection, len(inputs.events), inputs, rows, state)
    trace = Trace()
    _add(trace, result, inputs, rows, 0)
    faults = {note.position: (note.fault.name, note.line) for note in result.faults}
    # Of a batch only the faults are known, and the result of its last event.
    trace.results = [faults.get(position) for position in range(len(rows))]
    trace.statics = statics(function, state)
    return _Partial(trace, kernel.last_result if rows and len(rows) - 1 not in faults else None)


def _one_by_one(function: Function, code: KernelCode, inputs: Inputs) -> Trace:
    trace, kernel, state = Trace(), Kernel(code), new_state(function)
    for row in range(len(inputs.events)):
        one = inputs.only([row])
        result = _run(kernel, one.data, one.offsets, None, 1, inputs, [row], state)
        _add(trace, result, inputs, [row], row)
        faults = [(note.fault.name, note.line) for note in result.faults]
        trace.results.append(faults[0] if faults else kernel.last_result)
    trace.statics = statics(function, state)
    return trace


class _Partial(Trace):
    """A trace in which most results are not known."""

    def __init__(self, trace: Trace, last: int | None) -> None:
        super().__init__(trace.results, trace.sent, trace.counts, trace.statics)
        self._last = last

    def __eq__(self, other: object) -> bool:
        assert isinstance(other, Trace)
        faults = [result if isinstance(result, tuple) else None for result in other.results]
        return (
            (self.results, self.sent, self.counts, self.statics)
            == (faults, other.sent, other.counts, other.statics)
        ) and self._last in (None, *other.results[-1:])

    __hash__ = None  # type: ignore[assignment]


def _run(
    kernel: Kernel,
    data: Any,
    offsets: Any,
    selection: Any,
    rows: int,
    inputs: Inputs,
    chosen: Sequence[int],
    state: Any,
) -> Result:
    columns = inputs.columns(chosen)
    return kernel.run(data, offsets, selection, rows, columns, [state], [STONE], SYSTEM)


def _add(trace: Trace, result: Result, inputs: Inputs, rows: Sequence[int], first: int) -> None:
    """Adds the arrivals and counts of a run; its positions count from ``first``."""
    trace.counts = [a + b for a, b in zip(trace.counts, result.counts[0].tolist(), strict=True)]
    given = Attributes.from_rows([inputs.attributes[row] for row in rows])
    buffers = [None if records is None else contents(records) for records in result.buffers]
    for port, segments in enumerate(result.exits):
        for segment in segments:
            positions = range(len(segment)) if segment.positions is None else segment.positions.tolist()
            made = buffers[segment.buffer]
            for i, position in enumerate(positions):
                row = i if segment.rows is None else int(segment.rows[i])
                attributes: dict[str, Any] = given.of(position)
                for name, (_, column, present) in segment.attributes.items():
                    attributes.pop(name, None)
                    if present[i]:
                        attributes[name] = column[i : i + 1].tolist()[0]
                what = "in" if made is None else made[row]
                trace.sent[port].append((first + position, what, plain(attributes)))


def contents(records: Records) -> list[Any]:
    """Records that native code made, validated and decoded."""
    batch = EventBatch.from_bytes(records.schema, records.data.tobytes(), records.rows)
    return [plain(view.to_dict()) for view in batch]
