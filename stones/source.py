"""Source: where events enter a graph."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from evflow.schema import Schema
from evflow.stone import Passing


class Source(Passing):
    """Where a program submits events; made by ``Graph.source``.

    Args:
        schemas: the schemas (or ``Event`` classes) that are expected; none for any. Functions further on
            are checked against them. An event of another schema is taken all the same, and goes as far
            as stones accept it.
        name: the source's name, by which ``flow[name]`` finds it.
        on: the node it is placed on.

    Example:
        >>> import evflow as ev
        >>> class Ping(ev.Event):
        ...     number: int
        >>> seen = []
        >>> g = ev.Graph()
        >>> _ = g.source("pings", Ping) >> ev.Terminal(lambda event: seen.append(event.number))
        >>> with g.run() as flow:
        ...     flow["pings"].submit(Ping(7))
        >>> seen
        [7]
    """

    kind = "source"
    entrance = True

    def __init__(self, *schemas: Any, name: str | None = None, on: str | None = None) -> None:
        super().__init__(name=name, on=on)
        self.schemas: tuple[Schema, ...] = tuple(Schema.of(s) for s in schemas)

    def emits(self, schema: Schema | None) -> tuple[Schema | None, ...]:
        return self.schemas or (None,)

    def settings(self) -> dict[str, Any]:
        return {"schemas": [s.description for s in self.schemas]}

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> Source:
        return cls(*(Schema.from_description(d) for d in settings["schemas"]))
