"""Fitting an event to a stone: which input takes a schema, and what must happen to the event before.

In order of preference an input takes an event

1. whose schema is the declared one,
2. that has all declared fields, of the same types (it passes on whole),
3. whose fields can be converted to the declared ones,
4. that a morph turns into one of the above,
5. whatever its schema, if the input declares none.

For an acting stone an ``Adapter`` does what has to happen; a compiled one does it in its native pass.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import reduce

from msgspec import Struct

from evflow.codgen.adapt import adapt, needs
from evflow.codgen.kernel import Kernel, Port, Stage, kernel
from evflow.codgen.runtime import new_state
from evflow.codgen.tree import Function
from evflow.engine.passes import faulted, left
from evflow.errors import SchemaError
from evflow.events.batch import EventBatch
from evflow.events.convert import convert_events
from evflow.graph.morph import Morph
from evflow.schema import Schema

_RANK = {"same": 0, "subset": 1, "convert": 2, "morph": 3, "any": 4}


class Fit(Struct, frozen=True):
    """How an event of one schema is taken.

    Attributes:
        how: "same", "subset", "convert", "morph" or "any".
        input: the input that takes it.
        declared: the schema that the input wants; None for any.
        morph: what must be done first, if anything.
    """

    how: str
    input: str
    declared: Schema | None
    morph: Morph | None = None

    def steps(self, actual: Schema, exact: bool) -> tuple[tuple[Function, ...], Schema | None]:
        """What turns an event of ``actual`` into what an acting stone wants.

        Args:
            actual: the event's schema.
            exact: whether the stone wants events of exactly ``declared``, or else takes a larger one whole.

        Returns:
            The transforms, in order, and the schema to convert to event by event where no transform can
            (None: nothing left to do).
        """
        steps: list[Function] = []
        if self.morph is not None:
            steps.append(self.morph.function(actual))
            actual = self.morph.old
        if self.declared is None or actual == self.declared:
            return tuple(steps), None
        if not exact and needs(actual, self.declared) != "convert":
            return tuple(steps), None
        function = adapt(actual, self.declared)
        if function is None:
            return tuple(steps), self.declared
        return (*steps, function), None

    def whole(self) -> Fit:
        """The same fit for a stone that declares nothing, and so takes the event as it is."""
        return self if self.morph is not None else Fit("any", self.input, None)


def best_fit(
    actual: Schema,
    inputs: Mapping[str, Sequence[Schema | None]],
    morphs: Sequence[Morph],
    only: str = "",
) -> Fit:
    """The input of a stone that takes events of ``actual`` best.

    Args:
        actual: the event's schema.
        inputs: for each input the schemas it may take; None among them for any.
        morphs: the graph's morphs.
        only: the one input to consider, where the link names it.

    Raises:
        SchemaError: none takes it; the message says why each does not.
    """
    found: list[Fit] = []
    reasons: list[str] = []
    for name, candidates in inputs.items():
        if only and name != only:
            continue
        for declared in candidates:
            try:
                found.append(_fit(actual, name, declared, morphs))
            except SchemaError as error:
                reasons.append(str(error))
    if not found:
        raise SchemaError(f"schema {actual.name} fits no input: " + "; ".join(reasons or ["there is none"]))
    return min(found, key=lambda fit: _RANK[fit.how])


def _fit(actual: Schema, name: str, declared: Schema | None, morphs: Sequence[Morph]) -> Fit:
    if declared is None:
        return Fit("any", name, None)
    if actual == declared:
        return Fit("same", name, declared)
    try:
        how = needs(actual, declared)
        return Fit("convert" if how == "convert" else "subset", name, declared)
    except SchemaError:
        for morph in morphs:
            if _can(actual, morph.new) and _can(morph.old, declared):
                return Fit("morph", name, declared, morph)
        raise


def _can(actual: Schema, declared: Schema) -> bool:
    try:
        needs(actual, declared)
    except SchemaError:
        return False
    return True


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
