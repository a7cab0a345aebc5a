"""Subscriptions as bytes, one piece each, and back to columns: without their text, whose reading takes
longest.

A piece is a msgpack list of filters. A filter is a list: its area or nil, then name, operator and operand of
each constraint in turn. An area is a list of three numbers, on the globe with a fourth element, "m".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgpack
import numpy as np

from evflow.errors import FlowError, SubscriptionError
from evflow.matching.columns.bulk import FilterColumns
from evflow.outside import from_msgpack, shown

__all__ = ["pack", "unpack"]


def pack(columns: FilterColumns, space: str) -> list[bytes]:
    """Each subscription as bytes.

    Args:
        columns: subscriptions, checked.
        space: where their areas are.

    Example:
        >>> both = FilterColumns.from_subscriptions(["temp > 30 or kind == 'x'", "within(3, 4, 5)"])
        >>> [msgpack.unpackb(piece) for piece in pack(both, "plane")]
        [[[None, 'temp', 4, 30.0], [None, 'kind', 0, 'x']], [[[3.0, 4.0, 5.0]]]]
    """
    count = len(columns)
    owners = range(count) if columns.subscription is None else columns.subscription.tolist()
    rows = _constraints(columns)
    starts = columns.start.tolist()
    areas = _areas(columns, ["m"] if space == "globe" else [])
    found: list[list[list[Any]]] = [[] for _ in range(columns.subscriptions)]
    for number, owner in enumerate(owners):
        parts: list[Any] = [areas[number]]
        for row in rows[starts[number] : starts[number + 1]]:
            parts += row
        found[owner].append(parts)
    encode = msgpack.Packer().pack
    return [encode(filters) for filters in found]


def _constraints(columns: FilterColumns) -> list[tuple[str, int, float | str]]:
    names, texts = columns.names, columns.texts
    parts = (columns.name.tolist(), columns.op.tolist(), columns.number.tolist(), columns.text.tolist())
    return [
        (names[name], op, number if text < 0 else texts[text])
        for name, op, number, text in zip(*parts, strict=True)
    ]


def _areas(columns: FilterColumns, mark: list[str]) -> list[list[Any] | None]:
    if columns.x is None or columns.y is None or columns.radius is None:
        return [None] * len(columns)
    circles = zip(columns.x.tolist(), columns.y.tolist(), columns.radius.tolist(), strict=True)
    # NaN: there is none.
    return [[*circle, *mark] if circle[0] == circle[0] else None for circle in circles]


def unpack(pieces: Sequence[bytes], space: str) -> FilterColumns:
    """Subscriptions that ``pack`` made, as columns that are checked.

    Args:
        pieces: one a subscription; they may come from outside.
        space: where areas must be.

    Raises:
        FlowError: one is malformed, or an area is elsewhere.
    """
    made = _Made(3 if space == "plane" else 4)
    try:
        for number, piece in enumerate(pieces):
            for parts in from_msgpack(piece):
                made.add(number, parts)
        columns = made.columns(len(pieces), space)
        columns.check(space)
    except (ValueError, TypeError, KeyError, OverflowError) as error:
        raise FlowError(f"subscriptions that were kept are malformed: {shown(error)}") from None
    except SubscriptionError as error:
        raise FlowError(f"subscriptions that were kept do not fit: {error}") from None
    return columns


class _Made:
    """Columns while they are made."""

    def __init__(self, area: int) -> None:
        self._area = area
        self._names: dict[str, int] = {}
        self._texts: dict[str, int] = {}
        self._start = [0]
        self._name: list[int] = []
        self._op: list[int] = []
        self._number: list[float] = []
        self._text: list[int] = []
        self._owner: list[int] = []
        self._circles: list[tuple[float, float, float]] = []

    def add(self, owner: int, parts: list[Any]) -> None:
        """Takes in a filter."""
        area, *constraints = parts
        if area is None:
            self._circles.append((np.nan, np.nan, np.nan))
        elif len(area) != self._area:
            raise SubscriptionError(
                f"area {shown(area, 60)} is not where the stone's areas are; has its space changed?"
            )
        else:
            x, y, radius = map(float, area[:3])
            if x != x:
                raise ValueError(f"area {shown(area)}")
            self._circles.append((x, y, radius))
        for name, op, operand in zip(constraints[::3], constraints[1::3], constraints[2::3], strict=True):
            self._name.append(self._names.setdefault(name, len(self._names)))
            self._op.append(op)
            if isinstance(operand, str):
                self._number.append(0.0)
                self._text.append(self._texts.setdefault(operand, len(self._texts)))
            else:
                self._number.append(float(operand))
                self._text.append(-1)
        self._start.append(len(self._name))
        self._owner.append(owner)

    def columns(self, count: int, space: str) -> FilterColumns:
        """All that was added."""
        circles = np.array(self._circles, np.float64).reshape(-1, 3)
        x, y, radius = circles.T.copy()
        op = np.array(self._op, np.int64).reshape(-1)
        if len(op) and not 0 <= op.min() <= op.max() <= 255:
            raise ValueError("an operator that is none")
        return FilterColumns(
            names=list(self._names),
            texts=list(self._texts),
            start=np.array(self._start, np.int64),
            name=np.array(self._name, np.int32),
            op=op.astype(np.uint8),
            number=np.array(self._number, np.float64),
            text=np.array(self._text, np.int32),
            subscription=np.array(self._owner, np.int64),
            x=x,
            y=y,
            radius=radius,
            space=space,
            count=count,
        )
