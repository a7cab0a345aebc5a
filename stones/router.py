"""Router: a function chooses the port."""

from __future__ import annotations

from evflow.stones.filter import Filter


class Router(Filter):
    """Sends an event out of the port that the function returns; a negative number drops it.

    ``router[n] >> stone`` links port n. What goes to a port that is not linked is dropped and counted.

    Args:
        code: Cod or a Python function that returns the port.
        input: the least schema that the function needs; by default that of the events linked to it.
        fuel: what one event may spend; a unit pays for a short turn of a loop.
        name: the stone's name.
        on: the node it is placed on.

    Example:
        >>> import evflow as ev
        >>> class Ping(ev.Event):
        ...     number: int
        >>> small, large = [], []
        >>> g = ev.Graph()
        >>> size = g.source("pings", Ping) >> ev.Router("return input.number > 9 ? 1 : 0;")
        >>> _ = size[0] >> ev.Terminal(lambda event: small.append(event.number))
        >>> _ = size[1] >> ev.Terminal(lambda event: large.append(event.number))
        >>> with g.run() as flow:
        ...     for number in (3, 30):
        ...         flow["pings"].submit(Ping(number))
        >>> small, large
        ([3], [30])
    """

    kind = "router"
    _returns = "router"
    linked_ports = "any"
