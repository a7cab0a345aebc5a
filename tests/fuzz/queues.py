"""Random functions of queues: what arrives, waits, leaves and faults is as the interpreter says."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any

import numpy as np

from evflow import CodeError, EventBatch, Schema
from evflow.codgen.front import Input, build
from evflow.codgen.queuekernel import QueueCode, QueueKernel, QueueResult, QueueState
from evflow.codgen.runtime import new_state
from evflow.codgen.tree import Function
from tests.codgen import interpret
from tests.codgen.oracle import SYSTEM, plain
from tests.codgen.programs import random_schema
from tests.fuzz import samples
from tests.fuzz.codprograms import CodProgram
from tests.fuzz.differential import STONE, Inputs, both_tiers, contents, same, statics
from tests.fuzz.guard import guarded

__all__ = ["check", "function"]

Tell = Callable[[str], None]
Arrival = tuple[int, Inputs, list[int] | None]
"""The queue, the events, and which of them are selected."""


class QueueProgram(CodProgram):
    """A random program over the queues ``a`` and ``b`` and an output."""

    def __init__(self, random: Random, queues: Mapping[str, Schema], output: Schema) -> None:
        self._queues = queues
        super().__init__(random, "queue", next(iter(queues.values())), output)
        # Without events to look at most functions only fault.
        enough = " && ".join(f"count({name}) > {random.choice([0, 1, 1])}" for name in queues)
        if random.random() < 0.9:
            self.text = f"{{ if (!({enough})) return;\n{self.text} }}"

    def _scan(self, path: str, schema: Schema, depth: int) -> None:
        if path != "input":
            super()._scan(path, schema, depth)
            return
        for name, queued in self._queues.items():
            self._sources["i"].append(f"count({name})")
            super()._scan(
                f"{name}[{self._pick('0', '0', '0', '1', f'count({name}) - 1', 'i0 % 2')}]", queued, depth
            )

    def _statement(self, depth: int) -> str:
        name, index = self._pick(*self._queues), self._pick("0", "0", "1", "2", "i0")
        guard = f"if (count({name}) > {self._pick('0', '1', '2', index)})"
        choice = self._random.randrange(8)
        if choice == 0:
            return f"{guard} discard({name}, {index});"
        if choice == 1:
            return f"{guard} submit({self._pick('0', '1', '-1', 'i0')}, {name}[{index}]);"
        if choice == 2 and depth:
            return f"{guard} {{ {super()._statement(depth - 1)} }}"
        if choice == 3:
            return (
                f"{guard} {{ {super()._assignment()} submit(7, {self._pick('output', 'output', 'other')}); }}"
            )
        return super()._statement(depth).replace(", input);", f", {name}[{index}]);")

    def _return(self) -> str:
        return self._pick("return;", "return 1;")


def function(random: Random) -> Function:
    """A random function of a queue that the front end accepts."""
    while True:
        queues = {"a": random_schema(random, "A", 1), "b": random_schema(random, "B", 1)}
        output = random.choice([*queues.values(), random_schema(random, "Out")])
        text = QueueProgram(random, queues, output).text
        inputs = [Input(name, schema) for name, schema in queues.items()]
        try:
            outputs = [("output", output), ("other", queues["b"])]
            return build(text, "queue", inputs, outputs, fuel=samples.FUEL)
        except CodeError:
            continue


def arrivals(random: Random, made: Function) -> list[Arrival]:
    """Batches that arrive one after the other, now at this queue and now at that."""
    found: list[Arrival] = []
    for slot in (0, 1, *(random.randrange(2) for _ in range(samples.INPUTS // 2))):
        schema = made.inputs[slot][1]
        assert schema is not None
        batch = samples.inputs(random, schema, random.randrange(1, 4))
        some = sorted(random.sample(range(len(batch.events)), random.randrange(len(batch.events) + 1)))
        found.append((slot, batch, random.choice([None, some])))
    return found


class Reference:
    """The queues as the interpreter has them."""

    def __init__(self, made: Function, limit: int) -> None:
        self.function = made
        self.limit = limit
        self.state = interpret.new_state(made)
        # Each waiting event, which is told from others by its identity, with its attributes.
        self.waiting: list[list[tuple[Mapping[str, Any], Mapping[str, Any]]]] = [[] for _ in made.inputs]

    def arrive(self, slot: int, batch: Inputs, rows: Sequence[int]) -> dict[str, Any]:
        """What the arrival of some events does."""
        sent: list[Any] = []
        faults: list[Any] = []
        refused: list[int] = []
        for position, row in enumerate(rows):
            if len(self.waiting[slot]) >= self.limit:
                refused.append(position)
                continue
            self.waiting[slot].append((batch.events[row], batch.attributes[row]))
            outcome, changed = self._call(batch.attributes[row])
            if outcome.fault:
                assert outcome.fault_pos is not None
                faults.append((position, outcome.fault.name, outcome.fault_pos.line))
                self.waiting[slot].pop()
                continue
            known = {id(event): own for queue in self.waiting for event, own in queue}
            for emitted in outcome.emitted:
                own = known.get(id(emitted.event), batch.attributes[row])
                sent.append((position, *self._record(emitted), plain({**own, **changed})))
            self.waiting = [[(event, known[id(event)]) for event in queue] for queue in outcome.queues]
        return {"sent": sent, "faults": faults, "refused": refused}

    def _call(self, given: Mapping[str, Any]) -> tuple[interpret.Outcome, dict[str, Any]]:
        """The outcome, and the attributes that were set."""
        queues = [[event for event, _ in queue] for queue in self.waiting]
        marked = {name: _MARKED[type(value)](value) for name, value in given.items()}
        outcome = interpret.interpret_queue(
            self.function, queues, state=self.state, attributes=marked, stone_attributes=STONE, system=SYSTEM
        )
        changed = {n: v for n, v in outcome.attributes.items() if type(v) not in _MARKED.values()}
        return outcome, changed

    def _record(self, emitted: interpret.Emitted) -> tuple[int, Any, Any]:
        source = emitted.source
        schema = (
            self.function.inputs[source[1]][1]
            if isinstance(source, tuple)
            else self.function.outputs[source][1]
        )
        assert schema is not None
        (record,) = (plain(view.to_dict()) for view in EventBatch.from_events([dict(emitted.event)], schema))
        return emitted.port, source, record


class _Int(int): ...


class _Float(float): ...


class _Str(str): ...


_MARKED: dict[type, Any] = {int: _Int, float: _Float, str: _Str}


class Native:
    """The queues as native code has them."""

    def __init__(self, code: QueueCode, limit: int) -> None:
        self.kernel = QueueKernel(code)
        self.state = new_state(code.function)
        self.queues = QueueState(self.kernel.schemas, limit)

    def arrive(self, slot: int, batch: Inputs, selection: list[int] | None) -> dict[str, Any]:
        count = len(batch.events)
        chosen = None if selection is None else guarded(np.array(selection, np.int32))
        columns = batch.columns(range(count) if selection is None else selection)
        arguments: Any = (self.queues, self.state, STONE, SYSTEM)
        result = self.kernel.run(slot, batch.data, batch.offsets, chosen, count, columns, *arguments)
        faults = [(note.position, note.fault.name, note.line) for note in result.faults]
        return {"sent": _sent(result), "faults": faults, "refused": result.refused.tolist()}

    def waiting(self) -> list[Any]:
        """By queue the events that wait, with their attributes."""
        return [
            [
                (plain(view.to_dict()), plain(dict(own)))
                for view, own in zip(
                    _views(schema, self.queues.events(slot)), self.queues.attributes_of(slot), strict=True
                )
            ]
            for slot, schema in enumerate(self.kernel.schemas)
        ]


def _views(schema: Schema, events: list[bytes]) -> EventBatch:
    return EventBatch.from_bytes(schema, b"".join(events), len(events))


def _sent(result: QueueResult) -> list[Any]:
    found = []
    for segment in result.segments:
        source = segment.output if segment.queue is None else ("queue", segment.queue)
        attributes = segment.attributes or [{}] * len(segment)
        for position, record, own in zip(
            segment.positions.tolist(), contents(segment.records), attributes, strict=True
        ):
            found.append((position, segment.port, source, record, plain(own)))
    return found


def check(random: Random, made: Function, tell: Tell) -> int:
    """Compares both tiers with the interpreter over some batches; gives how many events arrived."""
    batches, limit = arrivals(random, made), random.choice([2, 5, 1000])
    story = [samples.shown(made), f"limit {limit}"]
    story += [f"at {slot}: {batch.events} {batch.attributes} {rows}" for slot, batch, rows in batches]
    code = QueueCode(made)
    for tier in both_tiers(code):
        tell("\n".join([*story, tier]))
        reference, native = Reference(made, limit), Native(code, limit)
        for slot, batch, rows in batches:
            every = range(len(batch.events)) if rows is None else rows
            same(native.arrive(slot, batch, rows), reference.arrive(slot, batch, every))
            waiting = [
                [(plain(dict(event)), plain(dict(own))) for event, own in queue]
                for queue in reference.waiting
            ]
            same(native.waiting(), waiting)
        same(statics(made, native.state), plain(reference.state.values))
    return sum(len(batch.events) for _, batch, _ in batches)
