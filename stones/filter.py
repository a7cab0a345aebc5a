"""Filter: passes the events for which a function is not zero."""

from __future__ import annotations

from typing import Any

from evflow.codgen.front import Input, build
from evflow.codgen.tree import Function
from evflow.schema import Schema
from evflow.stones.code import Code, OfOneInput


class Filter(OfOneInput):
    """Passes an event on, its bytes unchanged, where the function is not zero.

    Args:
        code: Cod (an expression or a block with ``return``) or a Python function over its input.
        input: the least schema that the function needs; by default that of the events linked to it.
        fuel: what one event may spend; a unit pays for a short turn of a loop.
        name: the stone's name.
        on: the node it is placed on.

    Example:
        >>> import evflow as ev
        >>> class Ping(ev.Event):
        ...     number: int
        >>> seen = []
        >>> g = ev.Graph()
        >>> odd = g.source("pings", Ping) >> ev.Filter("input.number % 2 == 1")
        >>> _ = odd >> ev.Terminal(lambda event: seen.append(event.number))
        >>> with g.run() as flow:
        ...     for number in range(5):
        ...         flow["pings"].submit(Ping(number))
        >>> seen
        [1, 3]
    """

    kind = "filter"
    parameters = ("code", "input", "fuel")
    _returns = "filter"

    def __init__(
        self,
        code: Code,
        *,
        input: Any = None,
        fuel: int = 10_000_000,
        name: str | None = None,
        on: str | None = None,
    ) -> None:
        super().__init__(code, input, fuel, name, on)

    def function(self, declared: Schema | None, actual: Schema | None) -> Function:
        return build(self.code, self._returns, [Input("input", declared, actual)], fuel=self.fuel)
