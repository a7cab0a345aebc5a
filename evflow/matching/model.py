"""What a subscription says: a disjunction of filters, each a conjunction of constraints with perhaps an area.

The model of CCM (section 3) and CLCB (section 2). Everything here is plain data, checked when it is made;
engines get it as columns (``evflow.matching.rows``). ``str`` writes it in the language that
``evflow.matching.text`` reads.

* A constraint on an attribute that the event lacks is false, ``!=`` and all that begin with ``not`` included;
  ``not exists`` alone is true.
* A value of another type is false for every operator but ``exists``: numbers are compared with numbers,
  strings with strings.
* The same holds where an attribute is compared with another: both must be there, and of one type.
* Numbers (booleans are 0 and 1) are compared as float64, with its rules for NaN and signed zeros.
* Strings are ordered by code point, which is the order of their UTF-8 bytes.
* A filter without constraints and area is true for every event; a subscription without filters for none.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeVar

from evflow.errors import SubscriptionError
from evflow.matching.literals import (
    LIMIT,
    checked_number,
    checked_text,
    name_text,
    number_text,
    shown,
    string_text,
)
from evflow.matching.operators import Op
from evflow.matching.outlines import SHAPES, Box, GlobeBox, GlobePolygon, Polygon
from evflow.matching.patterns import searcher

__all__ = [
    "LIMIT", "Area", "Box", "Circle", "Constraint", "Filter", "GlobeBox", "GlobeCircle", "GlobePolygon", "Op",
    "Polygon", "Subscription",
]  # fmt: skip


_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, init=False, eq=False)
class Constraint:
    """One test of one attribute; ``value`` is None for ``Op.EXISTS`` and ``Op.ABSENT`` only.

    Args:
        name: of the attribute, not empty.
        op: an ``Op``, or its text.
        value: a string, or a number of Python or numpy, which becomes a float. ``startswith``, ``endswith``
            and ``contains``, with ``not`` or without, take a string; ``== attribute`` and its siblings the
            name of another attribute; ``matches`` a regular expression. With ``nocase`` behind the operator
            both sides are case-folded first.

    Raises:
        SubscriptionError: a name, operator or value that does not fit; also an integer that float64 does not
            hold exactly, a string with lone surrogates, and a regular expression that is malformed, or given
            where google-re2 is not installed.

    Example:
        >>> hot = Constraint("temp", ">", 30)
        >>> hot
        Constraint(name='temp', op=<Op.GT: 4>, value=30.0)
        >>> str(hot)
        'temp > 30'
        >>> print(Constraint("dep_delay", "> attribute", "arr_delay"))
        dep_delay > arr_delay
    """

    name: str
    op: Op
    value: float | str | None

    def __init__(self, name: str, op: Op | str, value: float | str | None = None) -> None:
        put = object.__setattr__
        put(self, "name", checked_text(name, "the name of a constraint's attribute"))
        if not name:
            raise SubscriptionError("the name of a constraint's attribute is empty")
        put(self, "op", Op.of(op))
        put(self, "value", self._checked(value))

    def _checked(self, value: object) -> float | str | None:
        if self.op.holds is None:
            if value is not None:
                raise SubscriptionError(
                    f"{self.op.symbol} {self.name} takes no value but found {shown(value)}"
                )
            return None
        if type(value) is float and self.op.compares:
            return value
        what = f"{name_text(self.name)} {self.op.symbol}"
        if isinstance(value, str):
            text = checked_text(value, what)
            return text if self.op < Op.ABSENT else self._with_sense(text, what)
        if not self.op.compares:
            wanted = "the name of an attribute" if self.op.names_other else "a string"
            raise SubscriptionError(f"{what}: expected {wanted} but found {shown(value)}")
        if value is None:
            raise SubscriptionError(f"{what}: the value is missing; expected a number or a string")
        return checked_number(value, what)

    def _with_sense(self, text: str, what: str) -> str:
        """An operand that is more than a string."""
        if self.op in (Op.MATCHES, Op.NOT_MATCHES):
            searcher(text)
        elif self.op.names_other and not text:
            raise SubscriptionError(f"{what}: expected the name of an attribute but found an empty one")
        return text

    def _key(self) -> tuple[object, ...]:
        # NaN is not a value of its own here: two constraints with it say the same.
        return self.name, self.op, self.value if self.value == self.value else None

    def __eq__(self, other: object) -> bool:
        return self._key() == other._key() if isinstance(other, Constraint) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._key())

    def __str__(self) -> str:
        name = name_text(self.name)
        if self.value is None:
            return f"{self.op.symbol} {name}"
        if self.op.names_other:
            return f"{name} {self.op.symbol.partition(' ')[0]} {name_text(str(self.value))}"
        value = string_text(self.value) if isinstance(self.value, str) else number_text(self.value)
        return f"{name} {self.op.symbol} {value}"


@dataclass(frozen=True, slots=True)
class Circle:
    """A circle on the plane, rim included (CLCB, section 2).

    A point is inside when ``dx * dx + dy * dy <= radius * radius``, each step in float64: what Python, numpy
    and SQL say. The three numbers are in any one unit, that of the events' coordinates.

    Args:
        x, y: the centre, at most 3.4028234e38 from 0.
        radius: from 0 to as much; a circle of radius 0 holds its centre.

    Raises:
        SubscriptionError: something is not a number within these bounds.

    Example:
        >>> print(Circle(3, 4, 5))
        within(3, 4, 5)
    """

    x: float
    y: float
    radius: float

    def __post_init__(self) -> None:
        for part in ("x", "y", "radius"):
            number = checked_number(getattr(self, part), f"{part} of a Circle")
            if not abs(number) <= LIMIT:
                raise SubscriptionError(
                    f"{part} of a Circle: expected a number up to {LIMIT:.8g} but found {number}"
                )
            object.__setattr__(self, part, number)
        _check_radius(self)

    def __str__(self) -> str:
        return f"within({number_text(self.x)}, {number_text(self.y)}, {number_text(self.radius)})"


@dataclass(frozen=True, slots=True)
class GlobeCircle:
    """A circle on the globe, rim included: centre in degrees, radius in metres along the surface.

    The globe is a sphere of 6,371,008.8 m. A point is inside when the square of its chord to the centre is at
    most that of the radius, in float64 (``evflow.matching.space``). The longitude may be any finite number;
    it is kept from -180 up to but not including 180.

    Args:
        latitude: of the centre, in degrees, -90 to 90.
        longitude: of the centre, in degrees.
        radius: in metres along the surface, 0 or more.

    Raises:
        SubscriptionError: a number is not finite, the latitude is beyond a pole, or the radius is negative.

    Example:
        >>> GlobeCircle(40.64, 286.25, 50_000)
        GlobeCircle(latitude=40.64, longitude=-73.75, radius=50000.0)
        >>> print(GlobeCircle(40.64, -73.75, 50_000))
        within(40.64, -73.75, 50000 m)
    """

    latitude: float
    longitude: float
    radius: float

    def __post_init__(self) -> None:
        for part in ("latitude", "longitude", "radius"):
            number = checked_number(getattr(self, part), f"{part} of a GlobeCircle")
            if not math.isfinite(number):
                raise SubscriptionError(
                    f"{part} of a GlobeCircle: expected a finite number but found {number}"
                )
            object.__setattr__(self, part, number)
        if not -90 <= self.latitude <= 90:
            raise SubscriptionError(
                f"latitude of a GlobeCircle: expected -90 to 90 degrees but found {self.latitude}"
            )
        object.__setattr__(self, "longitude", _normal_longitude(self.longitude))
        _check_radius(self)

    def __str__(self) -> str:
        centre = f"{number_text(self.latitude)}, {number_text(self.longitude)}"
        return f"within({centre}, {number_text(self.radius)} m)"


def _check_radius(area: Circle | GlobeCircle) -> None:
    if area.radius < 0:
        raise SubscriptionError(
            f"radius of a {type(area).__name__}: expected 0 or more but found {area.radius}"
        )
    object.__setattr__(area, "radius", abs(area.radius))


def _normal_longitude(degrees: float) -> float:
    """The same meridian from -180 up to 180; every step is exact."""
    rest = math.fmod(degrees, 360.0)
    return rest - 360.0 if rest >= 180.0 else rest + 360.0 if rest < -180.0 else rest


Area = Circle | GlobeCircle | Box | GlobeBox | Polygon | GlobePolygon


@dataclass(frozen=True, slots=True, init=False)
class Filter:
    """All of ``constraints`` hold and the event's place lies in ``area``, if there is one.

    Raises:
        SubscriptionError: something else than constraints and an area.

    Example:
        >>> print(Filter([Constraint("temp", ">", 30), Constraint("kind", "==", "sensor")], Circle(3, 4, 5)))
        temp > 30 and kind == 'sensor' and within(3, 4, 5)
        >>> print(Filter())
        true
    """

    constraints: tuple[Constraint, ...]
    area: Area | None

    def __init__(self, constraints: Iterable[Constraint] = (), area: Area | None = None) -> None:
        object.__setattr__(self, "constraints", _all(constraints, Constraint, "a filter's constraints"))
        if area is not None and not isinstance(area, (Circle, GlobeCircle, *SHAPES)):
            raise SubscriptionError(
                "a filter's area: expected a Circle, Box, Polygon, GlobeCircle, GlobeBox or GlobePolygon but "
                f"found {shown(area)}"
            )
        object.__setattr__(self, "area", area)

    def __str__(self) -> str:
        parts = [*self.constraints, *([] if self.area is None else [self.area])]
        return " and ".join(map(str, parts)) or "true"


@dataclass(frozen=True, slots=True, init=False)
class Subscription:
    """At least one of ``filters`` holds.

    Raises:
        SubscriptionError: something else than filters.

    Example:
        >>> hot, near = Filter([Constraint("temp", ">", 30)]), Filter(area=Circle(3, 4, 5))
        >>> print(Subscription([hot, near]))
        temp > 30 or within(3, 4, 5)
        >>> print(Subscription([]))
        false
    """

    filters: tuple[Filter, ...]

    def __init__(self, filters: Iterable[Filter]) -> None:
        object.__setattr__(self, "filters", _all(filters, Filter, "a subscription's filters"))

    def __str__(self) -> str:
        return " or ".join(map(str, self.filters)) or "false"


def _all(given: Iterable[_T], kind: type[_T], what: str) -> tuple[_T, ...]:
    if isinstance(given, (str, bytes, kind)) or not isinstance(given, Iterable):
        raise SubscriptionError(f"{what}: expected a list of {kind.__name__} but found {shown(given)}")
    found = tuple(given)
    for number, item in enumerate(found):
        if not isinstance(item, kind):
            raise SubscriptionError(f"{what}: number {number} is no {kind.__name__} but {shown(item)}")
    return found
