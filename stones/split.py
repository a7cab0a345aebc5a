"""Split: every event to every target."""

from __future__ import annotations

from evflow.stone import Passing


class Split(Passing):
    """Hands every event, by reference, to every stone linked to its port 0, in the order linked.

    A graph adds one by itself where one port is linked to several stones. ``Flow.link`` and
    ``Flow.unlink`` add and remove targets while the graph runs.

    Example:
        >>> import evflow as ev
        >>> class Ping(ev.Event):
        ...     number: int
        >>> left, right = [], []
        >>> g = ev.Graph()
        >>> fan = g.source("pings", Ping) >> ev.Split(name="fan")
        >>> _ = fan >> ev.Terminal(lambda event: left.append(event.number))
        >>> _ = fan >> ev.Terminal(lambda event: right.append(event.number))
        >>> with g.run() as flow:
        ...     flow["pings"].submit(Ping(1))
        >>> left, right
        ([1], [1])
    """

    kind = "split"
    linked_ports = "any"
