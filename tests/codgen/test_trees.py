"""Random trees of random programs: one native pass gives what the interpreter gives, stage by stage."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import llvmlite.binding as llvm
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evflow.codgen.front import Input, build
from evflow.codgen.kernel import Port, Result, Stage, kernel
from evflow.codgen.tree import Function
from evflow.errors import CodeError
from evflow.events.attributes import Attributes
from evflow.events.batch import EventBatch
from evflow.events.encode import encode_dict
from evflow.events.view import view_class
from evflow.schema import Schema
from tests.codgen import interpret
from tests.codgen.oracle import SYSTEM, plain, records_at, run_kernel
from tests.codgen.programs import Program, random_attributes, random_event, random_schema
from tests.examples import tried

pytestmark = pytest.mark.slow

Arrival = tuple[int, Any, Any]


class Reference:
    """Runs a tree by the interpreter, one event after the other."""

    def __init__(self, stages: Sequence[Stage], stones: int, exits: int) -> None:
        self.stages = stages
        self.states: dict[int, interpret.State] = {}
        self.counts = [[0, 0, 0, 0] for _ in range(stones)]
        self.exits: list[list[Arrival]] = [[] for _ in range(exits)]
        self.faults: list[tuple[int, int, str]] = []

    def arrive(self, position: int, event: Any, attributes: dict[str, Any]) -> None:
        for stage in self.stages:
            self.see(stage, position, event, "in", attributes)

    def see(self, stage: Stage, position: int, event: Any, name: Any, attributes: dict[str, Any]) -> None:
        made, counts = stage.function, self.counts[stage.stone]
        state = self.states.setdefault(stage.stone, interpret.new_state(made))
        outcome = interpret.interpret(made, event, state=state, attributes=attributes, system=SYSTEM)
        counts[0] += 1
        if outcome.fault:
            counts[3] += 1
            self.faults.append((stage.stone, position, outcome.fault.name))
            return
        sent: list[tuple[int, Any, Any]] = []
        for e in outcome.emitted:
            if isinstance(e.source, tuple):
                sent.append((e.port, event, name))
            else:
                schema = made.outputs[e.source][1]
                record = view_class(schema)(encode_dict(schema, e.event)).to_dict()
                sent.append((e.port, record, plain(record)))
        if made.kind == "filter" and outcome.result:
            sent.append((0, event, name))
        elif made.kind == "router" and outcome.result >= 0:
            sent.append((outcome.result, event, name))
        elif not outcome.result or made.kind == "router":
            counts[2] += 1
        for port, what, label in sent:
            linked = 0 <= port < len(stage.ports) and stage.ports[port].linked
            counts[1 if linked else 2] += 1
            if linked:
                self.send(stage.ports[port], position, what, label, outcome.attributes)

    def send(self, port: Port, position: int, event: Any, name: Any, attributes: dict[str, Any]) -> None:
        for stage in port.stages:
            self.see(stage, position, event, name, attributes)
        if port.exit is not None:
            self.exits[port.exit].append((position, name, plain(attributes)))


class Tree:
    """A random tree of stages over random programs."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.stones = 0
        self.schema = random_schema(random, "In", 1)
        self.stages = tuple(self.stage(self.schema, 2) for _ in range(random.randrange(1, 3)))

    def stage(self, schema: Schema, depth: int) -> Stage:
        random, stone = self.random, self.stones
        self.stones += 1
        kind = random.choice(["filter", "filter", "transform", "router"])
        output = (
            random.choice([schema, random_schema(random, f"Out{stone}", 1)]) if kind == "transform" else None
        )
        made, text = self.function(kind, schema, output)
        leaving = schema if output is None else output
        fused = depth > 0 and (leaving == schema or "submit(" not in text)
        ports = []
        for _ in range(random.randrange(1, 4)):
            inner = tuple(self.stage(leaving, depth - 1) for _ in range(random.randrange(3) if fused else 0))
            ports.append(Port(inner, random.choice([None, 0, 1, 2])))
        return Stage(made, stone, tuple(ports))

    def function(self, kind: str, schema: Schema, output: Schema | None) -> tuple[Function, str]:
        for _ in range(20):
            text = Program(self.random, kind, schema, output).text
            outputs = [] if output is None else [("output", output)]
            try:
                return build(text, kind, [Input("input", schema)], outputs, fuel=300), text
            except CodeError:
                continue
        raise AssertionError("no program was accepted")


def arrivals(result: Result, exit_: int, given_: Attributes) -> list[Arrival]:
    found: list[Arrival] = []
    for segment in result.exits[exit_]:
        positions = range(segment.count) if segment.positions is None else segment.positions.tolist()
        one = Result(result.counts, [[segment]], result.buffers, result.faults)
        names = ["in"] * segment.count if segment.buffer == 0 else [plain(r) for _, r in records_at(one, 0)]
        for i, (position, name) in enumerate(zip(positions, names, strict=True)):
            values: dict[str, Any] = given_.of(position)
            for key, (_, column, present) in segment.attributes.items():
                values.pop(key, None)
                if present[i]:
                    values[key] = column.tolist()[i]
            found.append((position, name, plain(values)))
    return found


def compare_tree(seed: int, *, optimised: bool) -> None:
    """Compares a random tree with the reference."""
    random = Random(seed)
    tree = Tree(random)
    events = [random_event(random, tree.schema) for _ in range(5)]
    attributes = [random_attributes(random) for _ in events]
    reference = Reference(tree.stages, tree.stones, 3)
    for position, (event, own) in enumerate(zip(events, attributes, strict=True)):
        reference.arrive(position, event, own)
    batch = EventBatch.from_encoded(tree.schema, [encode_dict(tree.schema, event) for event in events])
    compiled = kernel(tree.stages, tree.schema)
    llvm.parse_assembly(compiled.code.dump_ir()).verify()
    if optimised:
        compiled.code.saw(1 << 30)
    given_ = Attributes.from_rows(attributes)
    result = run_kernel(compiled, batch, given_)
    assert [(n.stone, n.position, n.fault.name) for n in result.faults] == reference.faults
    assert result.counts.tolist() == reference.counts
    for exit_ in range(len(result.exits)):
        assert arrivals(result, exit_, given_) == reference.exits[exit_]


@settings(max_examples=tried(20), deadline=None)
@given(st.integers(0, 2**64 - 1))
def test_tree_of_random_programs_agrees_with_the_interpreter(seed: int) -> None:
    compare_tree(seed, optimised=False)


@settings(max_examples=tried(8), deadline=None)
@given(st.integers(0, 2**64 - 1))
def test_optimised_tree_agrees_with_the_interpreter(seed: int) -> None:
    compare_tree(seed, optimised=True)
