"""Random trees of filters, transforms and routers in one native pass: as the interpreter, stage by stage."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import numpy as np

from evflow import Schema
from evflow.codgen.front import Input, build
from evflow.codgen.kernel import Kernel, KernelCode, Port, Result, Stage
from evflow.codgen.llvm.stage import Routes
from evflow.codgen.runtime import new_state
from evflow.codgen.tree import Function
from evflow.events.attributes import Attributes
from evflow.schema.types import NUMBERS
from tests.codgen.oracle import SYSTEM, plain
from tests.codgen.test_trees import Arrival, Reference, Tree, arrivals
from tests.fuzz import samples
from tests.fuzz.differential import Inputs, both_tiers, same, statics
from tests.fuzz.guard import guarded

__all__ = ["Chains", "check"]

_EXITS = 3


class Chains(Tree):
    """A random tree; as often as not a chain of cheap filters over events of fixed width is in it."""

    def __init__(self, random: Random) -> None:
        self._filters = random.randrange(1, 6) if random.random() < 0.5 else 0
        super().__init__(random)

    def stage(self, schema: Schema, depth: int) -> Stage:
        if self.stones == 0 and self._filters:
            numbers = list(NUMBERS.values())
            fields = {f"f{n}": self.random.choice(numbers) for n in range(self.random.randrange(1, 5))}
            self.schema = schema = Schema("In", fields)
        if self.stones >= self._filters:
            return super().stage(schema, depth)
        stone = self.stones
        self.stones += 1
        made, _ = self.function("filter", schema, None)
        behind = tuple(self.stage(schema, 0) for _ in range(self.random.choice([0, 1, 1, 1, 2])))
        return Stage(made, stone, (Port(behind, self.random.choice([None, None, 0, 1])),))

    def function(self, kind: str, schema: Schema, output: Schema | None) -> tuple[Function, str]:
        numbers = [f"input.{f.name}" for f in schema.fields if f.type.text in NUMBERS]
        if kind != "filter" or not numbers or self.random.random() < 0.2:
            return super().function(kind, schema, output)
        text = " ".join(
            [self._test(numbers), *(self._joined(numbers) for _ in range(self.random.randrange(3)))]
        )
        return build(text, kind, [Input("input", schema)], fuel=samples.FUEL), text

    def _test(self, numbers: list[str]) -> str:
        pick = self.random.choice
        left = f"{pick(['', '-', '(int)', '(float)', '(unsigned char)'])}{pick(numbers)}"
        left = f"{left} {pick('+-*')} {pick([*numbers, '2', '0.5'])}"
        return f"({left} {pick(['<', '>=', '!='])} {pick([*numbers, '1', '0.0'])})"

    def _joined(self, numbers: list[str]) -> str:
        return f"{self.random.choice(['&&', '||'])} {self._test(numbers)}"


def check(random: Random, tell: Callable[[str], None]) -> tuple[int, int]:
    """Compares both tiers over a random tree; gives the numbers of events and of functions."""
    tree = Chains(random)
    inputs = samples.inputs(random, tree.schema)
    if random.randrange(100) == 0:
        inputs = samples.many(random, inputs)
    count = len(inputs.events)
    chosen = random.choice([None, sorted(random.sample(range(count), random.randrange(count + 1)))])
    rows = range(count) if chosen is None else chosen
    reference = _reference(tree, inputs, rows)
    routes = Routes(tree.stages, tree.schema)
    functions = {node.stage.stone: node.stage.function for node in routes.nodes}
    story = [f"selected {chosen}", _shown(tree.stages), *map(samples.shown, functions.values())]
    code = KernelCode(tree.stages, tree.schema)
    for tier in both_tiers(code):
        tell("\n".join([*story, samples.listed(inputs), tier]))
        states = [
            new_state(functions[n]) if n in functions else np.zeros(8, np.uint8) for n in range(routes.stones)
        ]
        result = _run(code, inputs, chosen, rows, states)
        same([(n.stone, n.position, n.fault.name) for n in result.faults], reference.faults)
        same(result.counts.tolist(), reference.counts)
        given = Attributes.from_rows([inputs.attributes[row] for row in rows])
        for exit_ in range(len(result.exits)):
            same(_arrivals(result, exit_, given, rows), reference.exits[exit_])
        for stone, state in reference.states.items():
            same(statics(functions[stone], states[stone]), plain(state.values))
    return min(len(rows), samples.INPUTS), len(functions)


def _reference(tree: Tree, inputs: Inputs, rows: Sequence[int]) -> Reference:
    reference = Reference(tree.stages, tree.stones, _EXITS)
    for position, row in enumerate(rows):
        reference.arrive(position, inputs.events[row], dict(inputs.attributes[row]))
    return reference


def _run(
    code: KernelCode, inputs: Inputs, chosen: list[int] | None, rows: Sequence[int], states: Any
) -> Result:
    selection = None if chosen is None else guarded(np.array(chosen, np.int32))
    columns, nothing = inputs.columns(rows), [{} for _ in states]
    return Kernel(code).run(
        inputs.data, inputs.offsets, selection, len(inputs.events), columns, states, nothing, SYSTEM
    )


def _arrivals(result: Result, exit_: int, given: Attributes, rows: Sequence[int]) -> list[Arrival]:
    for segment in result.exits[exit_]:
        if segment.buffer == 0 and segment.rows is not None:
            positions = range(len(segment)) if segment.positions is None else segment.positions.tolist()
            same(segment.rows.tolist(), [rows[position] for position in positions])
    return arrivals(result, exit_, given)


def _shown(stages: Sequence[Stage]) -> str:
    """The shape of a tree: of each stage its stone, and by port what follows and the exit."""
    return ", ".join(
        f"{stage.stone}({'; '.join(f'[{_shown(port.stages)}] {port.exit}' for port in stage.ports)})"
        for stage in stages
    )
