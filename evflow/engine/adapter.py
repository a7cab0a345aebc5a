"""Turns the events that arrive at an acting stone into what its input declares."""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce

from evflow.codgen.jit import kernel
from evflow.codgen.kernel import Kernel, Port, Stage, new_state
from evflow.codgen.tree import Function
from evflow.engine.fit import Fit
from evflow.engine.passes import faulted, left
from evflow.events.batch import EventBatch
from evflow.events.convert import convert_events
from evflow.schema import Schema

__all__ = ["Adapter"]

Rejected = tuple[EventBatch, str]
"""Events that could not be converted, and why."""


class Adapter:
    """What an input needs done to events of one schema.

    Attributes:
        input: the input that takes them.
        idle: whether events are taken as they are.
    """

    def __init__(self, fit: Fit, schema: Schema, exact: bool) -> None:
        self.input = fit.input
        steps, self._slow = fit.steps(schema, exact)
        self._kernel: Kernel | None = None
        if steps:
            self._kernel = kernel((_chain(steps),), schema)
            self._states = [new_state(function) for function in steps]
        self.idle = self._kernel is None and self._slow is None

    def apply(self, batch: EventBatch) -> Iterator[tuple[EventBatch, list[Rejected]]]:
        """The converted events, in order, with those that were rejected."""
        if self._kernel is None:
            yield self._convert(batch, [])
            return
        columns = None if batch.attributes is None else batch.attributes.columns
        result = self._kernel.run(
            batch.data, batch.offsets, batch.selection, batch.rows, columns, self._states,
            [{}] * len(self._states), {},
        )  # fmt: skip
        rejected = [(event, reason) for event, reason, _ in faulted(result, batch)]
        for segment in result.exits[0]:
            yield self._convert(left(result, segment, batch), rejected)
            rejected = []
        if rejected:
            yield batch.slice(0, 0), rejected

    def _convert(self, batch: EventBatch, rejected: list[Rejected]) -> tuple[EventBatch, list[Rejected]]:
        if self._slow is None:
            return batch, rejected
        converted, _, failed = convert_events(batch, self._slow)
        return converted, rejected + [
            (batch.slice(position, position + 1), reason) for position, reason in failed
        ]


def _chain(steps: tuple[Function, ...]) -> Stage:
    last = len(steps) - 1
    first = Stage(steps[last], last, (Port((), 0),))
    return reduce(lambda after, n: Stage(steps[n], n, (Port((after,)),)), range(last - 1, -1, -1), first)
