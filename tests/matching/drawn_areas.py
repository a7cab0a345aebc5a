"""Random subscriptions with circles, boxes and polygons, events around them, and which satisfy which."""

from __future__ import annotations

import random
from typing import Any

from evflow.matching import Box, Circle, Constraint, Filter, GlobeBox, GlobePolygon, Polygon, Subscription
from tests.matching.flat import inside

LOCATION = {"plane": ("x", "y"), "globe": ("latitude", "longitude")}


def drawn_area(chance: random.Random, space: str) -> Any:
    def at(most: int) -> float:
        return chance.randint(-2 * most, 2 * most) / 2

    if space == "plane":
        (x1, x2), (y1, y2) = sorted([at(8), at(8)]), sorted([at(8), at(8)])
        kind = chance.randrange(4)
        if kind == 0:
            return Circle(x1, y1, chance.randint(0, 5))
        if kind == 1:
            return Box(x1, y1, x2, y2)
        if kind == 2:
            return Box(x1, y1, x1 + 40, y1)  # long and thin
        corners = [(at(8), at(8)) for _ in range(chance.randint(3, 6))]
        return Polygon(corners) if corners[0] != corners[-1] else Box(0, 0, 1, 1)
    south, north = sorted([at(90), at(90)])
    if chance.random() < 0.5:
        return GlobeBox(south, at(180), chance.choice([north, 90.0]), at(180))
    west = at(180)
    corners = [(at(90), west + abs(at(89))) for _ in range(chance.randint(3, 6))]
    return GlobePolygon(corners) if corners[0] != corners[-1] else GlobeBox(0, 170, 5, -170)


def drawn(chance: random.Random, space: str) -> Subscription:
    filters = []
    for _ in range(chance.choice([1, 1, 1, 2, 3])):
        constraints = [Constraint("a", ">", chance.randint(0, 3))] if chance.random() < 0.4 else []
        constraints += [Constraint("kind", "==", "x")] if chance.random() < 0.2 else []
        filters.append(Filter(constraints, drawn_area(chance, space) if chance.random() < 0.85 else None))
    return Subscription(filters)


def drawn_events(chance: random.Random, space: str, count: int) -> list[dict[str, Any]]:
    first, second = LOCATION[space]
    most = (8, 8) if space == "plane" else (90, 180)
    found: list[dict[str, Any]] = []
    for _ in range(count):
        event: dict[str, Any] = {"a": float(chance.randint(0, 4)), "kind": chance.choice(["x", "y"])}
        if chance.random() < 0.9:
            event[first] = chance.randint(-2 * most[0], 2 * most[0]) / 2
            event[second] = chance.randint(-2 * most[1], 2 * most[1]) / 2
        found.append(event)
    return found


def satisfied(subscriptions: dict[int, Subscription], event: dict[str, Any], space: str) -> list[int]:
    first, second = LOCATION[space]

    def holds(part: Filter) -> bool:
        for constraint in part.constraints:
            value = event[constraint.name]
            if not (value > constraint.value if constraint.name == "a" else value == constraint.value):
                return False
        return part.area is None or (first in event and inside(part.area, event[first], event[second]))

    return sorted(id for id, one in subscriptions.items() if any(map(holds, one.filters)))
