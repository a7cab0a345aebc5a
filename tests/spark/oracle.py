"""Matching by brute force, in plain Python and numpy: what the plans on Spark are compared with."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

__all__ = ["Rows", "Wish", "in_circle", "on_globe", "pairs"]

Rows = Sequence[dict[str, Any]]
Wish = Sequence[Sequence[Any]]
"""Filters, of which one must hold: each a list of (name, operator, value) and ("within", x, y, radius)."""

EARTH = 6_371_008.8


def in_circle(event: dict[str, Any], x: float, y: float, radius: float) -> bool:
    """As the documents say: each step in float64."""
    if event.get("x") is None or event.get("y") is None:
        return False
    dx, dy = event["x"] - x, event["y"] - y
    return bool(dx * dx + dy * dy <= radius * radius)


def on_globe(event: dict[str, Any], latitude: float, longitude: float, radius: float) -> bool:
    """By the angle between two vectors; right where nothing lies at the rim itself."""
    if event.get("latitude") is None or event.get("longitude") is None or not -90 <= event["latitude"] <= 90:
        return False
    one, two = (_vector(*place) for place in ((event["latitude"], event["longitude"]), (latitude, longitude)))
    angle = math.atan2(float(np.linalg.norm(np.cross(one, two))), float(one @ two))
    return angle * EARTH <= radius


def _vector(latitude: float, longitude: float) -> Any:
    a, b = math.radians(latitude), math.radians(longitude)
    return np.array([math.cos(a) * math.cos(b), math.cos(a) * math.sin(b), math.sin(a)])


def _holds(event: dict[str, Any], part: Sequence[Any], globe: bool) -> bool:
    if part[0] == "within":
        return (on_globe if globe else in_circle)(event, *part[1:])
    name, operator, value = part
    held = event.get(name)
    if held is None or isinstance(held, str) != isinstance(value, str):
        return False
    return bool({"==": held == value, ">": held > value, "<=": held <= value}[operator])


def pairs(events: Rows, wishes: Iterable[tuple[int, Wish]], globe: bool = False) -> set[tuple[Any, int]]:
    """(id of the event, id of the subscription) of all that match."""
    listed = list(wishes)
    return {
        (event["id"], number)
        for event in events
        for number, filters in listed
        if any(all(_holds(event, part, globe) for part in parts) for parts in filters)
    }


def text(wish: Wish, globe: bool = False) -> str:
    """A wish in the language of subscriptions."""
    unit = " m" if globe else ""
    return " or ".join(
        " and ".join(
            f"within({p[1]!r}, {p[2]!r}, {p[3]!r}{unit})" if p[0] == "within" else f"{p[0]} {p[1]} {p[2]!r}"
            for p in parts
        )
        or "true"
        for parts in wish
    )
