"""Batches of events in, batches of pairs out: what a task does, whichever the plan.

A batch is matched in slices, so that no more pairs are in memory at once than a few slices make, however many
subscriptions an event satisfies.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from evflow.spark.matching.broadcast import Opened, Shipped, opened
from evflow.spark.rows import together

if TYPE_CHECKING:
    import pyarrow as pa

_PAIRS = 1 << 18
"""Pairs that a slice is to make."""

_FIRST = 64
"""Events in the first slice of a task, when nothing is known of how many pairs they make."""

_ROWS, _BYTES = 100_000, 4 << 20
"""Events that are matched at once, or bytes of them, about."""

_FASTER = 8
"""Slices grow by this much at most."""


@dataclass(frozen=True)
class Shape:
    """The columns of the batches of a task, called ``c0``, ``c1`` …: Spark cannot hand over every name.

    Attributes:
        keys: of the events' ids, which the pairs begin with.
        attributes: what subscriptions ask for, and where events are.
        ids: the type of Arrow of the subscriptions' ids, by name.
    """

    keys: tuple[str, ...]
    attributes: tuple[str, ...]
    ids: str

    @property
    def names(self) -> tuple[str, ...]:
        """What the columns stand for; a key that is an attribute too stands once."""
        return (*self.keys, *(name for name in self.attributes if name not in self.keys))

    def column(self, name: str) -> str:
        """What the column of a key or an attribute is called.

        Example:
            >>> Shape(("id",), ("id", "x"), "int64").column("x")
            'c1'
        """
        return f"c{self.names.index(name)}"


class Pairs:
    """Makes pairs of events' ids and subscriptions' ids; one a task."""

    def __init__(self, shape: Shape) -> None:
        self._shape = shape
        self._most = _FIRST

    def of(self, batch: pa.RecordBatch, indexes: Sequence[Opened]) -> Iterator[pa.RecordBatch]:
        """The pairs of some events and all subscriptions of the indexes."""
        start = 0
        while start < batch.num_rows:
            part = batch.slice(start, self._most)
            start += part.num_rows
            found = 0
            for index in indexes:
                pairs = self._matched(part, index)
                found += pairs.num_rows
                if pairs.num_rows:
                    yield pairs
            wanted = _PAIRS * part.num_rows // max(found, 1)
            self._most = max(1, min(wanted, self._most * _FASTER))

    def _matched(self, part: pa.RecordBatch, index: Opened) -> pa.RecordBatch:
        import pyarrow as pa

        shape = self._shape
        attributes = {name: _numbers(part[shape.column(name)]) for name in shape.attributes}
        # Without a column there would be no telling how many events there are.
        matches = index.matcher.match_batch(attributes or {"": np.zeros(part.num_rows)})
        event = pa.array(np.repeat(np.arange(part.num_rows, dtype=np.int32), np.diff(matches.offsets)))
        columns = [part[shape.column(key)].take(event) for key in shape.keys]
        ids = index.ids.take(matches.ids).astype(shape.ids, copy=False)
        return pa.record_batch([*columns, pa.array(ids)], [*shape.keys, "subscription"])


def _numbers(column: pa.Array) -> pa.Array:
    """A column, decimals as the numbers that they are."""
    return column.cast("float64") if str(column.type).startswith("decimal") else column


@dataclass(frozen=True)
class Broadcast:
    """The function of a task that has the whole index."""

    shipped: Shipped
    shape: Shape

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The pairs of a partition of events.

        Between two batches Java runs, and the index leaves the processor's caches; so several are matched at
        once.
        """
        indexes = [opened(self.shipped)]
        pairs = Pairs(self.shape)
        for batch in together(batches, _ROWS, _BYTES):
            yield from pairs.of(batch, indexes)
