"""Small batches that wait one behind the other, joined so that many of them cost no more than a few."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from itertools import count, groupby

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
