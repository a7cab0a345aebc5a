"""Columns put together of filters, one by one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from evflow.errors import SubscriptionError
from evflow.matching.areas.columns import AreaColumns, space_of_area
from evflow.matching.model import Area, Circle, Filter, GlobeCircle

NOWHERE = (np.nan, np.nan, np.nan)
"""The area of a filter that has none."""


class Content:
    """What goes into columns, while filters are added to it.

    Example:
        >>> content = Content()
        >>> content.add(0, Filter())
        >>> content.arguments()["start"]
        array([0, 0])
    """

    def __init__(self) -> None:
        self.names: dict[str, int] = {}
        self.texts: dict[str, int] = {}
        self.start = [0]
        self.rows: list[tuple[int, int, float, int]] = []
        self.subscription: list[int] = []
        self.areas: list[tuple[float, float, float]] = []
        self.shapes: list[Area | None] = []
        self.space: str | None = None

    def add(self, subscription: int, part: Filter) -> None:
        """Takes in one filter.

        Args:
            subscription: the number of its subscription.
            part: the filter.

        Raises:
            SubscriptionError: its area is not where those before it are, on the plane or on the globe.
        """
        constraints = [(one.name, one.op, one.value) for one in part.constraints]
        area = self._area(part)
        if isinstance(area, tuple):
            self.put(subscription, constraints, area)
        else:
            self.put(subscription, constraints, shape=area)

    def put(
        self,
        subscription: int,
        constraints: Iterable[tuple[str, int, float | str | None]],
        area: tuple[float, float, float] = NOWHERE,
        shape: Area | None = None,
    ) -> None:
        """Takes in one filter by its parts, which are not checked.

        Args:
            subscription: the number of its subscription.
            constraints: name, operator and operand of each.
            area: the two coordinates and the radius of a circle.
            shape: a box or a polygon.
        """
        for name, op, value in constraints:
            number, text = 0.0, -1
            if isinstance(value, str):
                text = self.texts.setdefault(value, len(self.texts))
            elif value is not None:
                number = float(value)
            self.rows.append((self.names.setdefault(name, len(self.names)), op, number, text))
        self.start.append(len(self.rows))
        self.subscription.append(subscription)
        self.areas.append(area)
        self.shapes.append(shape)

    def _area(self, part: Filter) -> tuple[float, float, float] | Area:
        area = part.area
        if area is None:
            return NOWHERE
        space = space_of_area(area)
        self.space = self.space or space
        if space != self.space:
            raise SubscriptionError(
                f"its area is on the {space}, those before it on the {self.space}; a matcher has one space "
                f"(write the radius with a unit, such as 50 km, or inside with degrees, for the globe)"
            )
        if isinstance(area, GlobeCircle):
            return (area.latitude, area.longitude, area.radius)
        return (area.x, area.y, area.radius) if isinstance(area, Circle) else area

    def arguments(self) -> dict[str, Any]:
        """The arguments of ``FilterColumns``."""
        name, op, number, text = zip(*self.rows, strict=True) if self.rows else ((), (), (), ())
        return {
            "names": list(self.names),
            "texts": list(self.texts),
            "start": np.array(self.start, np.int64),
            "name": np.array(name, np.int32),
            "op": np.array(op, np.int64),
            "number": np.array(number, np.float64),
            "text": np.array(text, np.int32),
            "subscription": np.array(self.subscription, np.int64),
            **self._placed(),
        }

    def _placed(self) -> dict[str, Any]:
        if self.space is None:
            return {}
        x, y, radius = np.array(self.areas, np.float64).reshape(-1, 3).T.copy()
        placed = {"x": x, "y": y, "radius": radius, "space": self.space}
        shapes = [shape for shape in self.shapes if shape is not None]
        if not shapes:
            return placed
        there = np.array([shape is not None for shape in self.shapes])
        area = np.where(there, np.cumsum(there) - 1, -1)
        return {**placed, "area": area, "areas": AreaColumns.of(shapes, self.space)}
