"""Subscriptions as bytes, one piece each, and back to columns: without their text, whose reading takes
longest.

A piece is a msgpack list of filters. A filter is a list: its area or nil, then name, operator and operand of
each constraint in turn. A circle is a list of three numbers, on the globe with a fourth element, "m". A box
is a list of "box" or "globe box" and four numbers; a polygon one of "polygon" or "globe polygon" and its
rings, each a list of coordinates.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgpack
import numpy as np

from evflow.errors import FlowError, SubscriptionError
from evflow.matching.columns.bulk import NOWHERE, Content, FilterColumns
from evflow.matching.outlines import Box, GlobeBox, GlobePolygon, Polygon, Shape
from evflow.outside import from_msgpack, shown

_KINDS: dict[str, type[Shape]] = {
    "box": Box,
    "globe box": GlobeBox,
    "polygon": Polygon,
    "globe polygon": GlobePolygon,
}


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
    areas = _shapes(columns, _areas(columns, ["m"] if space == "globe" else []))
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


def _shapes(columns: FilterColumns, areas: list[list[Any] | None]) -> list[list[Any] | None]:
    """The same with boxes and polygons."""
    if columns.area is None or columns.areas is None:
        return areas
    for number in np.flatnonzero(columns.area >= 0).tolist():
        area = columns.areas[int(columns.area[number])]
        name = next(name for name, kind in _KINDS.items() if isinstance(area, kind))
        if isinstance(area, (Polygon, GlobePolygon)):
            areas[number] = [name, *([c for corner in ring for c in corner] for ring in area.rings)]
        else:
            areas[number] = [name, *(getattr(area, part) for part in type(area).__slots__)]
    return areas


def unpack(pieces: Sequence[bytes], space: str) -> FilterColumns:
    """Subscriptions that ``pack`` made, as columns that are checked.

    Args:
        pieces: one a subscription; they may come from outside.
        space: where areas must be.

    Raises:
        FlowError: one is malformed, or an area is elsewhere.
    """
    content, length = Content(), 3 if space == "plane" else 4
    content.space = space
    try:
        for number, piece in enumerate(pieces):
            for area, *flat in from_msgpack(piece):
                parts = zip(flat[::3], flat[1::3], flat[2::3], strict=True)
                constraints = [(n, op, v if isinstance(v, str) else float(v)) for n, op, v in parts]
                if area and isinstance(area[0], str):
                    content.put(number, constraints, shape=_shape(area, space))
                else:
                    content.put(number, constraints, _circle(area, length))
        columns = FilterColumns(**content.arguments(), count=len(pieces))
        columns.check(space)
    except (ValueError, TypeError, KeyError, OverflowError) as error:
        raise FlowError(f"subscriptions that were kept are malformed: {shown(error)}") from None
    except SubscriptionError as error:
        raise FlowError(f"subscriptions that were kept do not fit: {error}") from None
    return columns


def _shape(area: list[Any], space: str) -> Shape:
    """A box or polygon that was packed."""
    kind, parts = _KINDS[area[0]], area[1:]
    if kind.space != space:
        raise SubscriptionError(
            f"area {shown(area, 60)} is not where the stone's areas are; has its space changed?"
        )
    if not issubclass(kind, (Polygon, GlobePolygon)):
        return kind(*parts)
    shell, *holes = [list(zip(ring[::2], ring[1::2], strict=True)) for ring in parts]
    return kind(shell, holes)


def _circle(area: Any, length: int) -> tuple[float, float, float]:
    """An area that was packed as so many elements; a ValueError if it is none."""
    if area is None:
        return NOWHERE
    if len(area) != length:
        raise SubscriptionError(
            f"area {shown(area, 60)} is not where the stone's areas are; has its space changed?"
        )
    x, y, radius = map(float, area[:3])
    if x != x:
        raise ValueError(f"area {shown(area)}")
    return x, y, radius
