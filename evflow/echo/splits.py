"""The two splits of a channel in a process (EVPath paper, figure 9): the upper one, to which events are
submitted, and the lower one, which leads to the process's own subscribers."""

from __future__ import annotations

from collections.abc import Iterable

from evflow.schema import Schema
from evflow.stones.split import Split

__all__ = ["LowerSplit", "UpperSplit"]


class UpperSplit(Split):
    """Where a channel's events are submitted; leads to the bridges to other processes, to the lower split,
    and to the functions of derived channels.

    Args:
        schemas: what the channel carries; none for anything.
        name: the stone's name.
        on: the node it is placed on.
    """

    linked_ports = "free"

    def __init__(
        self, schemas: Iterable[Schema] = (), *, name: str | None = None, on: str | None = None
    ) -> None:
        super().__init__(name=name, on=on)
        self.schemas = tuple(schemas)

    def emits(self, schema: Schema | None) -> tuple[Schema | None, ...]:
        return self.schemas or (None,)


class LowerSplit(UpperSplit):
    """Where a channel's events arrive from this process and from the bridges of others; leads to the
    terminals of its subscribers, of which there may be none."""

    entrance = True
