"""Transform: a function fills a record of another schema."""

from __future__ import annotations

from typing import Any

from evflow.codgen.front import Input, build
from evflow.codgen.tree import Function
from evflow.errors import EvflowError
from evflow.schema import Schema
from evflow.stones.code import Code, OfOneInput


class Transform(OfOneInput):
    """Fills ``output``, a new event of another schema, and sends it where the function is not zero.

    Fields that the function does not set are zero, or their schema's default. The event's attributes
    go along unless the function sets others. ``submit(port, output)`` sends one at once, so that a
    function can make several events of one.

    Args:
        code: Cod or a Python function over ``input`` and ``output``.
        output: the schema (or ``Event`` class) of what it makes.
        input: the least schema that the function needs; by default that of the events linked to it.
        fuel: what one event may spend; a unit pays for a short turn of a loop.
        name: the stone's name.
        on: the node it is placed on.

    Example:
        >>> import evflow as ev
        >>> class Celsius(ev.Event):
        ...     degrees: float
        >>> class Fahrenheit(ev.Event):
        ...     degrees: float
        >>> seen = []
        >>> g = ev.Graph()
        >>> warm = g.source("c", Celsius) >> ev.Transform(
        ...     "output.degrees = input.degrees * 9 / 5 + 32; return 1;", output=Fahrenheit
        ... )
        >>> _ = warm >> ev.Terminal(lambda event: seen.append(event.degrees))
        >>> with g.run() as flow:
        ...     flow["c"].submit(Celsius(100.0))
        >>> seen
        [212.0]
    """

    kind = "transform"
    parameters = ("code", "input", "output", "fuel")

    def __init__(
        self,
        code: Code,
        *,
        output: Any,
        input: Any = None,
        fuel: int = 10_000_000,
        name: str | None = None,
        on: str | None = None,
    ) -> None:
        super().__init__(code, input, fuel, name, on)
        self.output = Schema.of(output)

    def emits(self, schema: Schema | None) -> tuple[Schema | None, ...]:
        seen = self.input or schema
        try:
            passes = None in self.function(seen, seen).sent
        except EvflowError:
            passes = False  # what is wrong with the function is told where it is checked
        return (self.output, schema) if passes else (self.output,)

    def function(self, declared: Schema | None, actual: Schema | None) -> Function:
        return build(
            self.code,
            "transform",
            [Input("input", declared, actual)],
            [("output", self.output)],
            fuel=self.fuel,
        )
