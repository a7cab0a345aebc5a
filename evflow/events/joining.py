"""Batches by their size: many small ones joined, so that they cost no more than a few, and large ones cut."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from itertools import count, groupby

import numpy as np

from evflow.events.batch import EventBatch

MANY = 256
"""Batches that are worth joining."""

_SMALL = 16 << 10
"""Bytes up to which a batch is copied to be joined with others."""

Arrival = tuple[str, EventBatch]
"""The input that events come to, and the events."""


def joined(arrivals: Iterable[Arrival]) -> list[Arrival]:
    """The same events in the same order, in fewer batches where that costs little."""
    alone = count()
    found: list[Arrival] = []
    for _, run in groupby(arrivals, key=lambda arrival: _alike(arrival, alone)):
        together = list(run)
        if len(together) == 1:
            found += together
        else:
            found.append((together[0][0], EventBatch.concat([batch for _, batch in together])))
    return found


def join_last(arrivals: deque[Arrival], number: int) -> None:
    """Joins the last so many in place."""
    last = [arrivals.pop() for _ in range(min(number, len(arrivals)))]
    arrivals.extend(joined(reversed(last)))


def _alike(arrival: Arrival, alone: count[int]) -> tuple[object, ...]:
    """What arrivals have in common that may be joined."""
    input, batch = arrival
    if batch.nbytes > _SMALL:
        return (next(alone),)
    if batch.attributes is None:
        return input, batch.schema.fingerprint
    kinds = sorted((name, column.kind) for name, column in batch.attributes.columns.items())
    return input, batch.schema.fingerprint, *kinds


def within(batch: EventBatch, size: int, first: int = 0) -> int:
    """The greatest number of events that are ``size`` bytes or less; not above 0 if even one is more.

    Args:
        batch: the events, nothing of which is selected.
        size: bytes.
        first: the position of the first of them.
    """
    if batch.offsets is None:
        return min(size // (batch.schema.width or 1), batch.rows - first)
    return int(np.searchsorted(batch.offsets, batch.offsets[first] + size, "right")) - 1 - first


def pieces(batch: EventBatch, size: int) -> Iterator[EventBatch]:
    """The events of a batch, as many at a time as are ``size`` bytes or less, but one at least."""
    whole, first = batch.compact(), 0
    while first < whole.rows:
        count = max(within(whole, size, first), 1)
        yield whole.slice(first, first + count)
        first += count
