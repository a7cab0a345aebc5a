"""Filters made at random that a GPU can run, and what each back end says of events.

python -m tests.gpu.functions [--filters N] [--seed N]       compares them on the stand-in
"""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Sequence
from contextlib import suppress
from random import Random
from typing import Any

import numpy as np

from evflow.codgen.front import Input, build
from evflow.codgen.tree import Fault, Function
from evflow.errors import CodeError
from evflow.events.batch import EventBatch
from evflow.events.encode import encode_dict
from evflow.gpu.device import Device
from evflow.gpu.filter import GpuFilter, Verdicts, filters_on
from evflow.schema import Schema
from tests.codgen import interpret
from tests.codgen.oracle import native
from tests.codgen.programs import Program, random_event, random_type
from tests.gpu.nvrtc import SHIPPED
from tests.gpu.standin import load
from tests.gpu.toolchain import library, nvrtc

__all__ = [
    "batch_of", "by_interpreter", "by_llvm", "compare", "fixed_schema", "random_events", "random_filters",
    "said", "schema_of",
]  # fmt: skip

FUEL = 300
INEXACT = "sin|cos|tan|asin|acos|atan|sinh|cosh|tanh|exp|exp2|expm1|log|log2|log10|log1p|cbrt"
REPLACED = [
    (rf"\b({INEXACT})\(", "fabs("),
    (r"\b(pow|atan2|hypot)\(", "fmod("),
    (r"\btime\(\)", "1234.5"),
    (r'attr_ivalue\(event_attrs, "\w+"\)', "i0"),
    (r'attr_dvalue\(event_attrs, "\w+", 2.5\)', "2.5"),
    (r'attr_svalue\(event_attrs, "\w+", "none"\)', '"none"'),
    (r"\bstatic ", ""),
]
"""What a GPU cannot do, and what stands in its place."""

Said = list[tuple[bool, str, int]]
"""For each event: whether it passes, the fault, and its line."""


class GpuProgram(Program):
    """A random filter without what a GPU cannot do."""

    def _statement(self, depth: int) -> str:
        while True:
            text = super()._statement(depth)
            if "submit(" not in text and "set_" not in text:
                return text

    def __init__(self, random: Random, schema: Schema) -> None:
        super().__init__(random, "filter", schema, None)
        for found, instead in REPLACED:
            self.text = re.sub(found, instead, self.text)


def fixed_schema(random: Random, name: str, depth: int = 1) -> Schema:
    """A schema of fixed width, now and then with a record in it."""
    fields: dict[str, Any] = {}
    while len(fields) < random.randrange(2, 8):
        kind = random_type(random, 0)
        if kind.width is not None:
            fields[f"f{len(fields)}"] = kind
    if depth and random.random() < 0.3:
        fields["part"] = fixed_schema(random, f"Part{random.randrange(1 << 30)}", 0)
    return Schema(name, fields)


def random_filter(random: Random) -> Function:
    """A filter over events of a schema of its own."""
    schema = fixed_schema(random, "In")
    return build(GpuProgram(random, schema).text, "filter", [Input("input", schema)], [], fuel=FUEL)


def random_filters(random: Random, count: int) -> list[Function]:
    """So many that the front end accepts."""
    found: list[Function] = []
    while len(found) < count:
        with suppress(CodeError):
            found.append(random_filter(random))
    return found


def random_events(random: Random, function: Function, count: int) -> list[dict[str, Any]]:
    """Events for a function."""
    return [random_event(random, schema_of(function)) for _ in range(count)]


def schema_of(function: Function) -> Schema:
    """That of the events it takes."""
    schema = function.inputs[0][1]
    assert schema is not None
    return schema


def batch_of(schema: Schema, events: Sequence[dict[str, Any]]) -> EventBatch:
    """Events as a batch."""
    return EventBatch.from_encoded(schema, [encode_dict(schema, event) for event in events])


def by_interpreter(function: Function, events: Sequence[dict[str, Any]]) -> Said:
    """What the interpreter says."""
    found: Said = []
    for event in events:
        outcome = interpret.interpret(function, event)
        line = outcome.fault_pos.line if outcome.fault_pos is not None else 0
        found.append((outcome.result != 0, outcome.fault.name, line))
    return found


def by_llvm(function: Function, events: Sequence[dict[str, Any]]) -> Said:
    """What machine code says."""
    ran = native(function, events, [{}] * len(events), schema_of(function), optimised=False)
    found: Said = [(False, Fault.NONE.name, 0)] * len(events)
    for position, _, _ in ran.sent[0]:
        found[position] = (True, Fault.NONE.name, 0)
    for position, fault, line in ran.faults:
        found[position] = (False, fault, line)
    return found


def said(verdicts: Verdicts) -> Said:
    """The same, of the kernel."""
    assert verdicts.passed.dtype == np.bool_
    columns = (verdicts.passed.tolist(), verdicts.faults.tolist(), verdicts.lines.tolist())
    return [(passed, Fault(code).name, line) for passed, code, line in zip(*columns, strict=True)]


def compare(filters: list[GpuFilter], events: list[list[dict[str, Any]]]) -> set[str]:
    """Asks all three of every event; gives the faults that there were."""
    faults = set()
    for one, own in zip(filters, events, strict=True):
        wanted = by_interpreter(one.function, own)
        assert by_llvm(one.function, own) == wanted, one.function.source
        assert said(one.run(batch_of(schema_of(one.function), own))) == wanted, one.function.source
        faults |= {fault for _, fault, _ in wanted}
    return faults


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--filters", type=int, default=400)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    load().configure()
    os.environ["EVFLOW_NVRTC"] = library(nvrtc(SHIPPED[0]), "libnvrtc.so.*")
    device, random = Device.of(), Random(options.seed)
    for done in range(0, options.filters, 40):
        functions = random_filters(random, 40)
        compare(filters_on(device, functions), [random_events(random, f, 20) for f in functions])
        print(done + 40, flush=True)


if __name__ == "__main__":
    main()
