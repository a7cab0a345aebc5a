"""Generator: makes events on a period."""

from __future__ import annotations

import math
from typing import Any

from evflow.errors import GraphError
from evflow.graph.ticks import TICK
from evflow.stone import titled
from evflow.stones.code import Code
from evflow.stones.transform import Transform


class Generator(Transform):
    """Calls its function every ``period`` seconds and sends ``output`` where it is not zero.

    It stops with its graph. A tick that the graph was too busy for is left out, never made up for.

    Args:
        code: Cod or a Python function over ``input`` (``count``, ``time``) and ``output``.
        output: the schema (or ``Event`` class) of what it makes.
        period: seconds between two calls, greater than 0.
        fuel: what one call may spend; a unit pays for a short turn of a loop.
        name: the stone's name.
        on: the node it is placed on.

    Raises:
        GraphError: the period is not greater than 0.

    Example:
        >>> import time, evflow as ev
        >>> class Beat(ev.Event):
        ...     number: int
        >>> seen = []
        >>> g = ev.Graph()
        >>> beats = g.add(ev.Generator("output.number = input.count; return 1;", output=Beat, period=0.01))
        >>> _ = beats >> ev.Terminal(lambda event: seen.append(event.number))
        >>> with g.run() as flow:
        ...     while len(seen) < 3:
        ...         time.sleep(0.01)
        >>> seen[:3]
        [0, 1, 2]
    """

    kind = "generator"
    parameters = ("code", "output", "period", "fuel")

    def __init__(
        self,
        code: Code,
        *,
        output: Any,
        period: float,
        fuel: int = 10_000_000,
        name: str | None = None,
        on: str | None = None,
    ) -> None:
        if not isinstance(period, int | float) or not 0 < period < math.inf:
            raise GraphError(
                f"{titled('generator', name)}: period {period!r}: expected seconds greater than 0"
            )
        super().__init__(code, output=output, input=TICK, fuel=fuel, name=name, on=on)
        self.period = float(period)
