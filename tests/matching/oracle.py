"""What events satisfy, decided object by object in plain Python: no columns, no numbers for names or strings.

On the globe a point may be so near a rim that only the arithmetic of the matcher can tell; there the oracle
says that it does not know.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np

from evflow.matching.model import LIMIT, Area, Circle, Constraint, Filter, GlobeCircle, Op, Subscription

VERSUS = {
    Op.EQ_OTHER: Op.EQ,
    Op.NE_OTHER: Op.NE,
    Op.LT_OTHER: Op.LT,
    Op.LE_OTHER: Op.LE,
    Op.GT_OTHER: Op.GT,
    Op.GE_OTHER: Op.GE,
}
"""Comparisons of attributes with each other, as those with values."""

NOCASE = {
    Op.EQ_NOCASE: Op.EQ,
    Op.NE_NOCASE: Op.NE,
    Op.PREFIX_NOCASE: Op.PREFIX,
    Op.SUFFIX_NOCASE: Op.SUFFIX,
    Op.CONTAINS_NOCASE: Op.CONTAINS,
    Op.NOT_PREFIX_NOCASE: Op.NOT_PREFIX,
    Op.NOT_SUFFIX_NOCASE: Op.NOT_SUFFIX,
    Op.NOT_CONTAINS_NOCASE: Op.NOT_CONTAINS,
}
"""What is tested of two folded strings."""

RADIUS = 6_371_008.8


class Oracle:
    """Subscriptions by id, and what satisfies them.

    Args:
        location: the names of the attributes that tell the place.
    """

    def __init__(self, location: tuple[str, str]) -> None:
        self.location = location
        self.held: dict[int, list[Filter]] = {}

    def subscribe(self, id: int, subscription: Subscription) -> None:
        self.held[id] = list(subscription.filters)

    def unsubscribe(self, id: int) -> None:
        del self.held[id]

    def move(self, id: int, x: float, y: float, radius: float | None, filter: int | None) -> None:
        for i, part in enumerate(self.held[id]):
            if part.area is not None and filter in (None, i):
                self.held[id][i] = replace(part, area=moved(part.area, x, y, radius))

    def match(self, event: Mapping[str, Any]) -> tuple[set[int], set[int]]:
        """The ids that match for certain, and those that do or may."""
        attributes = flat(event)
        place = tuple(attributes.get(name) for name in self.location)
        certain, possible = set(), set()
        for id, filters in self.held.items():
            answers = [answer(part, attributes, place) for part in filters]
            if True in answers:
                certain.add(id)
            if True in answers or None in answers:
                possible.add(id)
        return certain, possible


def moved(area: Area, x: float, y: float, radius: float | None) -> Area:
    return type(area)(x, y, area.radius if radius is None else radius)


def flat(event: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """All attributes by dotted name; those that are None are not there."""
    found: dict[str, Any] = {}
    for name, value in event.items():
        if value is None:
            continue
        found[prefix + name] = value
        if isinstance(value, dict):
            for inner, held in flat(value, f"{prefix}{name}.").items():
                found.setdefault(inner, held)
    return found


def answer(part: Filter, attributes: Mapping[str, Any], place: tuple[Any, ...]) -> bool | None:
    """Whether a filter is satisfied; None: nobody can tell."""
    if not all(holds(constraint, attributes) for constraint in part.constraints):
        return False
    if part.area is None:
        return True
    if not all(is_number(value) for value in place):
        return False
    return within(part.area, *(number(value) for value in place))


def holds(constraint: Constraint, attributes: Mapping[str, Any]) -> bool:
    if constraint.op is Op.ABSENT:
        return constraint.name not in attributes
    if constraint.name not in attributes:
        return False
    value, operand, op = attributes[constraint.name], constraint.value, constraint.op
    if op is Op.EXISTS:
        return True
    if op in VERSUS:
        operand, op = attributes.get(str(operand)), VERSUS[op]
    if isinstance(value, str) and isinstance(operand, str):
        if op in NOCASE:
            return compare(NOCASE[op], value.casefold(), operand.casefold())
        return compare(op, value, operand)
    if is_number(value) and is_number(operand):
        return compare(op, number(value), number(operand))
    return False


def compare(op: Op, value: Any, operand: Any) -> bool:
    match op:
        case Op.EQ:
            return bool(value == operand)
        case Op.NE:
            return bool(value != operand)
        case Op.LT:
            return bool(value < operand)
        case Op.LE:
            return bool(value <= operand)
        case Op.GT:
            return bool(value > operand)
        case Op.GE:
            return bool(value >= operand)
        case Op.PREFIX:
            return bool(value.startswith(operand))
        case Op.SUFFIX:
            return bool(value.endswith(operand))
        case Op.CONTAINS:
            return operand in value
        case Op.MATCHES:
            return re.search(operand, value) is not None
        case Op.NOT_MATCHES:
            return re.search(operand, value) is None
        case Op.NOT_PREFIX:
            return not value.startswith(operand)
        case Op.NOT_SUFFIX:
            return not value.endswith(operand)
        case Op.NOT_CONTAINS:
            return operand not in value
    raise AssertionError(op)


def is_number(value: Any) -> bool:
    return isinstance(value, bool | int | float | np.number | np.bool_ | Decimal)


def number(value: Any) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def within(area: Area, x: float, y: float) -> bool | None:
    if isinstance(area, Circle):
        return within_circle(area, x, y)
    assert isinstance(area, GlobeCircle)
    return within_globe_circle(area, x, y)


def within_circle(area: Circle, x: float, y: float) -> bool:
    if not (abs(x) <= LIMIT and abs(y) <= LIMIT):
        return False
    dx, dy = x - area.x, y - area.y
    return dx * dx + dy * dy <= area.radius * area.radius


def within_globe_circle(area: GlobeCircle, latitude: float, longitude: float) -> bool | None:
    if not (-90 <= latitude <= 90 and math.isfinite(longitude)):
        return False
    if area.radius >= math.pi * RADIUS * (1 + 1e-12) or same_place(area, latitude, longitude):
        return True
    north = math.radians(latitude - area.latitude) / 2
    east = math.radians(math.remainder(longitude - area.longitude, 360.0)) / 2
    parallels = math.cos(math.radians(latitude)) * math.cos(math.radians(area.latitude))
    chord = 2 * math.sqrt(math.sin(north) ** 2 + parallels * math.sin(east) ** 2)
    reach = 2 * math.sin(min(area.radius / (2 * RADIUS), math.pi / 2))
    if abs(chord - reach) < 1e-14 + 1e-14 * abs(longitude):
        return None
    return chord < reach


def same_place(area: GlobeCircle, latitude: float, longitude: float) -> bool:
    around = (Fraction(longitude) - Fraction(area.longitude)) % 360
    return latitude == area.latitude and (abs(latitude) == 90 or around == 0)
