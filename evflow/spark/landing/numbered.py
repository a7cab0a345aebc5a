"""Rows that say of what task they are and where they stand in it, found in batches that come."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from evflow.errors import FlowError
from evflow.events.attributes import AttributeColumn
from evflow.events.batch import EventBatch

__all__ = ["Run", "runs"]

_TASK, _ROW = "task", "row"
"""The attributes that say it."""

_MOST = 10_000


class Run(NamedTuple):
    """Rows of one task that follow one another.

    Attributes:
        task: the task's number.
        first: the number of the first row.
        batch: the rows.
    """

    task: int
    first: int
    batch: EventBatch


def runs(batch: EventBatch) -> tuple[list[Run], EventBatch | None]:
    """What a batch has of each task, in order, and those of its events that are of none.

    Raises:
        FlowError: it has little of so many that nobody can have meant it.

    Example:
        >>> import evflow as ev
        >>> from evflow.events.attributes import Attributes
        >>> class Ping(ev.Event):
        ...     number: int
        >>> batch = ev.EventBatch.from_columns(Ping, {"number": [1, 2, 3, 4]})
        >>> said = Attributes.from_lists({"task": [7, 7, 7, None], "row": [0, 1, 5, None]})
        >>> found, plain = runs(batch.with_attributes(said))
        >>> [(run.task, run.first, len(run.batch)) for run in found], len(plain)
        ([(7, 0, 2), (7, 5, 1)], 1)
    """
    tasks, rows = _column(batch, _TASK), _column(batch, _ROW)
    if tasks is None or rows is None or not len(batch):
        return [], batch if len(batch) else None
    if _all(tasks.present) and _all(rows.present):
        return _cut(tasks.values, rows.values, batch), None
    said = tasks.present & rows.present
    numbered = np.flatnonzero(said)
    if not len(numbered):
        return [], batch
    chosen = _cut(tasks.values[numbered], rows.values[numbered], batch.select(numbered))
    return chosen, None if len(numbered) == len(batch) else batch.select(np.flatnonzero(~said))


def _column(batch: EventBatch, name: str) -> AttributeColumn | None:
    column = None if batch.attributes is None else batch.attributes.columns.get(name)
    return column if column is not None and column.kind == "i" else None


def _all(present: np.ndarray[Any, np.dtype[np.bool_]]) -> bool:
    # Over a link many events share one element.
    return bool(present[0]) if present.strides == (0,) else bool(present.all())


def _cut(
    tasks: np.ndarray[Any, np.dtype[Any]], rows: np.ndarray[Any, np.dtype[Any]], batch: EventBatch
) -> list[Run]:
    """A batch cut where another task begins, or rows are missing or come again."""
    one = tasks.strides == (0,) or bool((tasks == tasks[0]).all())
    if one and int(rows[-1]) - int(rows[0]) == len(rows) - 1 and bool((rows[1:] > rows[:-1]).all()):
        return [Run(int(tasks[0]), int(rows[0]), batch)]
    breaks = np.flatnonzero((tasks[1:] != tasks[:-1]) | (rows[1:] != rows[:-1] + 1)) + 1
    if len(breaks) > _MOST:
        raise FlowError(f"a batch has rows of {len(breaks)} places in tasks, expected {_MOST} at most")
    bounds = [0, *breaks.tolist(), len(rows)]
    return [
        Run(int(tasks[start]), int(rows[start]), batch.slice(start, stop)) for start, stop in pairwise(bounds)
    ]
