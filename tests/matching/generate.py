"""Random subscriptions and events, made so that much of it collides: few names, few values, points on rims.

All take a ``random.Random``, of a seed or of hypothesis.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal
from random import Random
from typing import Any

import numpy as np

from evflow.matching.model import Area, Circle, Constraint, Filter, GlobeCircle, Op, Subscription

NUMBERS: list[Any] = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.1,
    float("nan"),
    float("inf"),
    float("-inf"),
    1e300,
    -1e300,
    5e-324,
    3.4028235e38,
    2.0**53,
    16_777_217.0,
]
STRINGS = [
    "",
    "a",
    "ab",
    "abc",
    "b",
    "ba",
    "aab",
    "é",
    "aé",
    "𝄞",
    "a𝄞b",
    "\uffff",
    "\ue000",
    "a\0b",
    "\x7f",
    "a" * 20,
    "A",
    "aB",
    "É",
    "aß",
    "ASS",
    "İ",
]
PATTERNS = [
    "a",
    "^a",
    "b$",
    "^(ab|ba)$",
    "a.*b",
    "^$",
    "[b-é]",
    "a{2,}",
    "",
    "(?i)A",
    "^.$",
    r"\x00",
    "(a|b)*c",
]
ODD: list[Any] = [
    None,
    b"a",
    [1.0],
    {"x": 1.0},
    {"x": "a", "y": None},
    Decimal(1),
    1j,
    True,
    False,
    2**53 + 1,
    10**400,
    -(10**400),
    np.float32(0.1),
    np.int64(1),
    np.bool_(True),
    np.str_("ab"),
    np.float64("nan"),
]
COORDINATES = [
    0.0,
    -0.0,
    1.0,
    3.0,
    4.0,
    5.0,
    -3.0,
    0.1,
    1e-40,
    1e-22,
    1e18,
    1e19,
    3.4e38,
    -3.4e38,
    16_777_216.0,
]
RADII = [0.0, 1.0, 5.0, 2.5, 1e-23, 1e10, 1e19, 1e30]
LATITUDES = [0.0, 90.0, -90.0, 89.999999, 45.0, -45.0, 40.64, 1e-9, -0.0]
LONGITUDES = [0.0, 180.0, -180.0, 179.999999, -179.999999, 90.0, -73.78, 540.0, -360.0, 1e-9]
GLOBE_RADII = [0.0, 1e-6, 1.0, 50_000.0, 1e6, 10_007_557.2, 20_015_114.4, 20_015_115.0, 1e9]


@dataclass
class World:
    """What the subscriptions and events of one case draw from.

    Attributes:
        random: the source of all choices.
        space: ``plane`` or ``globe``.
        names: attributes; some are those of the place, or lie in a record.
        located: the share of filters with an area.
        pool: the values that are frequent in this case.
        usual: an event; others are like it, and many constraints hold for it.
        constraints: those made so far, to be used again.
    """

    random: Random
    space: str
    names: list[str]
    located: float
    pool: list[Any]
    usual: dict[str, Any]
    constraints: list[Constraint] = field(default_factory=list)
    areas: list[Area] = field(default_factory=list)

    @classmethod
    def make(cls, random: Random, space: str) -> World:
        names = [f"n{i}" for i in range(random.choice([1, 2, 5, 5, 12, 40]))]
        if random.random() < 0.3:
            names += ["pos", "pos.x", "pos.y"]
        if random.random() < 0.3:
            names += ["x", "latitude"]
        texts = random.sample(STRINGS, 3) if random.random() < 0.9 else ["\uffff", "\ue000", "𝄞"]
        pool = [*texts, *random.sample(NUMBERS, 2), float(random.randrange(3))]
        usual = {name: random.choice(pool) for name in names}
        return cls(random, space, names, random.choice([0.0, 0.2, 0.5, 1.0]), pool, usual)

    @property
    def location(self) -> tuple[str, str]:
        return ("x", "y") if self.space == "plane" else ("latitude", "longitude")

    def number(self) -> float:
        if self.random.random() < 0.5:
            return float(self.random.randrange(-2, 6))
        return float(self.random.choice(NUMBERS))

    def text(self) -> str:
        if self.random.random() < 0.5:
            return "".join(self.random.choice("ab") for _ in range(self.random.randrange(4)))
        return self.random.choice(STRINGS)

    def part(self, text: str) -> str:
        first = self.random.randrange(len(text) + 1)
        return self.random.choice([text, text[:first], text[first:], text[first : first + 1]])

    def constraint(self) -> Constraint:
        random = self.random
        if self.constraints and random.random() < 0.3:
            return random.choice(self.constraints)
        op, name = random.choice(list(Op)), random.choice(self.names)
        value: float | str | None = random.choice([self.usual[name], random.choice(self.pool), self.text()])
        if op in (Op.EXISTS, Op.ABSENT):
            value = None
        elif op.names_other:
            value = random.choice(self.names)
        elif op in (Op.MATCHES, Op.NOT_MATCHES):
            value = random.choice(PATTERNS)
        elif op > Op.GE:
            value = self.part(value if isinstance(value, str) else self.text())
            value = value.swapcase() if random.random() < 0.3 else value
        elif random.random() < 0.2:
            value = self.number()
        made = Constraint(name, op, value)
        self.constraints.append(made)
        return made

    def point(self) -> tuple[float, float]:
        """A place: anywhere, where something else is, or on a rim."""
        random = self.random
        if self.areas and random.random() < 0.4:
            return self.near(random.choice(self.areas))
        if self.space == "plane":
            if random.random() < 0.5:
                return random.choice(COORDINATES), random.choice(COORDINATES)
            return random.uniform(-10, 10), float(random.randrange(-10, 10))
        if random.random() < 0.5:
            return random.choice(LATITUDES), random.choice(LONGITUDES)
        return random.uniform(-90, 90), random.uniform(-200, 200)

    def near(self, area: Area) -> tuple[float, float]:
        steps = self.random.choice([(0, 0), (1, 0), (0, -1), (0.6, 0.8), (-0.8, 0.6), (0.3, 0.1)])
        if isinstance(area, Circle):
            x, y = area.x + steps[0] * area.radius, area.y + steps[1] * area.radius
            return (x, y) if abs(x) < 3.4e38 and abs(y) < 3.4e38 else (area.x, area.y)
        degrees = area.radius / 6_371_008.8 * 57.29577951308232
        latitude = max(-90.0, min(90.0, area.latitude + steps[0] * degrees))
        return latitude, area.longitude + self.random.choice([0.0, steps[1] * degrees, 180.0, 360.0])

    def radius(self) -> float:
        if self.space == "plane":
            return self.random.choice([*RADII, self.random.uniform(0, 8)])
        return self.random.choice([*GLOBE_RADII, self.random.uniform(0, 2e7)])

    def area(self) -> Area:
        kind = Circle if self.space == "plane" else GlobeCircle
        made = kind(*self.point(), self.radius())
        self.areas.append(made)
        return made

    def filter(self) -> Filter:
        random = self.random
        n = random.choice([0, 1, 1, 2, 2, 3, 4, 5, 9]) if random.random() < 0.95 else 14
        area = self.area() if random.random() < self.located else None
        return Filter(tuple(self.constraint() for _ in range(n)), area)

    def subscription(self) -> Subscription:
        n = self.random.choice([0, 1, 1, 1, 1, 2, 3, 6])
        filters = [self.filter() for _ in range(n)]
        if filters and self.random.random() < 0.1:
            filters.append(filters[0])
        return Subscription(tuple(filters))

    def value(self, name: str = "") -> Any:
        chance = self.random.random()
        if chance < 0.5 and name in self.usual:
            return self.usual[name]
        if chance < 0.65:
            return self.random.choice(self.pool)
        if chance < 0.8:
            return self.number()
        return self.text() if chance < 0.93 else self.random.choice(ODD)

    def event(self) -> dict[str, Any]:
        """A dict; names that no constraint may use are among its keys."""
        random = self.random
        share = random.choice([0.3, 0.9, 1.0])
        names = [name for name in [*self.names, "unused"] if "." not in name and random.random() < share]
        event = {name: self.value(name) for name in names}
        if "pos" in event and random.random() < 0.7:
            event["pos"] = {"x": self.value("pos.x"), "y": self.value("pos.y")}
        if self.located and random.random() < 0.9:
            event.update(zip(self.location, self.point(), strict=True))
        if self.located and random.random() < 0.1:
            event[random.choice(self.location)] = random.choice(
                [None, "a", float("nan"), float("inf"), 91, 3]
            )
        return event
