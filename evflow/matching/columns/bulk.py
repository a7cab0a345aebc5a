"""Filters in bulk, as columns: millions of them without an object for each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evflow.errors import SubscriptionError
from evflow.events.gather import places_of, starts_of
from evflow.matching.areas.columns import AreaColumns, space_of_area
from evflow.matching.columns import arrays
from evflow.matching.columns.check import check
from evflow.matching.literals import shown
from evflow.matching.model import Area, Circle, Constraint, Filter, GlobeCircle, Op, Subscription
from evflow.matching.text import parse_subscription

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


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class FilterColumns:
    """F filters with C constraints in all, of S subscriptions.

    Arrays become the types below, without a copy where they can; what the numbers mean is checked by
    ``check``, which a matcher calls. The other ways in, ``from_arrays``, ``from_arrow`` and
    ``from_subscriptions``, take friendlier forms.

    Attributes:
        names: the attributes that ``name`` numbers, from 0.
        texts: the strings that ``text`` numbers, from 0.
        start: int64, F + 1: where the constraints of a filter start and end.
        name: int32, C: the attribute, an index of ``names``.
        op: uint8, C: an ``Op``.
        number: float64, C: the operand where ``text`` is -1.
        text: int32, C: the operand as an index of ``texts``, or -1: the operand is a number, or there is none
            (``Op.EXISTS``, ``Op.ABSENT``). Of ``Op.EQ_OTHER`` and its siblings it is the name of another
            attribute.
        subscription: int64, F, or None: which subscription, from 0 to S - 1, a filter belongs to; in any
            order. None is one filter each.
        x, y, radius: float64, F, or all three None: the filter's area; NaN in ``x``: it has none. On the
            globe ``x`` is the latitude and ``y`` the longitude in degrees, and ``radius`` is in metres along
            the surface.
        area: int64, F, or None: the filter's box or polygon, a number of ``areas``; -1: it has none.
        areas: boxes and polygons; None where ``area`` is.
        space: "plane" or "globe": what the areas are on; None: on whatever the matcher's are.
        count: S; None is one more than the highest ``subscription``, which then must be less than F. A
            subscription without filters matches nothing.
        ids: int64, S, or None: the ids that the subscriptions are to have; None leaves them to the matcher.

    Raises:
        SubscriptionError: an array has another type or shape than it must.

    Example:
        >>> columns = FilterColumns(
        ...     names=["temp", "kind"], texts=["sensor"], start=[0, 2, 3],
        ...     name=[0, 1, 0], op=[Op.GT, Op.EQ, Op.LT], number=[30, 0, -5], text=[-1, 0, -1],
        ... )
        >>> columns.check()
        >>> for subscription in columns.to_subscriptions():
        ...     print(subscription)
        temp > 30 and kind == 'sensor'
        temp < -5
    """

    names: Sequence[str]
    texts: Sequence[str]
    start: NDArray[np.int64]
    name: NDArray[np.int32]
    op: NDArray[np.uint8]
    number: NDArray[np.float64]
    text: NDArray[np.int32]
    subscription: NDArray[np.int64] | None = None
    x: NDArray[np.float64] | None = None
    y: NDArray[np.float64] | None = None
    radius: NDArray[np.float64] | None = None
    area: NDArray[np.int64] | None = None
    areas: AreaColumns | None = None
    space: str | None = None
    count: int | None = None
    ids: NDArray[np.int64] | None = None

    def __post_init__(self) -> None:
        for field in ("names", "texts"):
            object.__setattr__(self, field, arrays.words(getattr(self, field), field))
        if self.count is not None:
            object.__setattr__(self, "count", arrays.whole(self.count, "count"))
        for field, kind in arrays.KINDS.items():
            given = getattr(self, field)
            if given is not None:
                object.__setattr__(self, field, arrays.column(given, kind, field))

    def __len__(self) -> int:
        return len(self.start) - 1

    @property
    def subscriptions(self) -> int:
        """S, the number of subscriptions."""
        if self.count is not None:
            return self.count
        if self.subscription is None:
            return len(self)
        return int(self.subscription.max()) + 1 if len(self.subscription) else 0

    @property
    def attributes(self) -> frozenset[str]:
        """The names of all attributes that constraints ask for; the columns must be checked.

        Example:
            >>> sorted(FilterColumns.from_subscriptions(["dep_delay > arr_delay"]).attributes)
            ['arr_delay', 'dep_delay']
        """
        others = self.text[(self.op >= Op.EQ_OTHER) & (self.op <= Op.GE_OTHER)]
        return frozenset(
            [self.names[number] for number in np.unique(self.name).tolist()]
            + [self.texts[number] for number in np.unique(others).tolist()]
        )

    def check(self, space: str | None = None) -> None:
        """Checks every number, with numpy.

        Args:
            space: "plane" or "globe": what the areas must be on; None: what ``self.space`` says.

        Raises:
            SubscriptionError: it names the first filter and constraint that is wrong, counted from 0.

        Example:
            >>> columns = FilterColumns(
            ...     names=["temp"], texts=[], start=[0, 1], name=[1], op=[0], number=[1], text=[-1]
            ... )
            >>> columns.check()
            Traceback (most recent call last):
            evflow.errors.SubscriptionError: filter 0, constraint 0: name is 1; expected 0 to 0, ...
        """
        check(self, space)

    def grouped(self) -> FilterColumns:
        """The same with the filters of a subscription next to each other, as engines need them.

        Their order stays. Columns that are so already are given as they are.
        """
        if self.subscription is None or not np.any(self.subscription[1:] < self.subscription[:-1]):
            return self
        return self.take(np.argsort(self.subscription, kind="stable"))

    def take(self, order: NDArray[np.int64]) -> FilterColumns:
        """Some filters, in an order; their strings and areas stay as they are, also those that none has.

        Args:
            order: int64, 1-D: the numbers of the filters.

        Example:
            >>> columns = FilterColumns.from_subscriptions(["a > 1", "b > 2", "c > 3"])
            >>> columns.take(np.array([2, 0])).number.tolist()
            [3.0, 1.0]
        """
        lengths = np.diff(self.start)[order]
        at = places_of(self.start[:-1][order], lengths)
        taken: dict[str, Any] = {
            field: getattr(self, field)[at] for field in ("name", "op", "number", "text")
        }
        for field in ("subscription", "x", "y", "radius", "area"):
            held = getattr(self, field)
            taken[field] = None if held is None else held[order]
        return replace(self, start=starts_of(lengths), **taken)

    @classmethod
    def from_arrays(
        cls,
        *,
        name: ArrayLike,
        op: Any,
        number: ArrayLike | None = None,
        text: ArrayLike | None = None,
        start: ArrayLike | None = None,
        names: Sequence[str] | None = None,
        texts: Sequence[str] | None = None,
        subscription: ArrayLike | None = None,
        x: ArrayLike | None = None,
        y: ArrayLike | None = None,
        radius: ArrayLike | None = None,
        area: ArrayLike | None = None,
        areas: AreaColumns | None = None,
        space: str | None = None,
    ) -> FilterColumns:
        """Columns of arrays, without a Python loop over the constraints.

        Arrays of two dimensions, (F, k), say that each filter has k constraints; a scalar, or what
        broadcasts, stands for all of them.

        Args:
            name: indices of ``names``, or strings.
            op: an ``Op`` or a text such as ``"<="``, or an array of either.
            number: the operands where ``text`` has none; default: NaN.
            text: indices of ``texts`` with -1 for none, or strings: with None for none in an array of
                objects.
            start: F + 1: where the constraints of a filter start and end; default: (F, k) arrays, or one
                constraint a filter.
            names, texts: the strings that ``name`` and ``text`` are indices of; None: those are strings.
            subscription: F: the id of a filter's subscription, any number from 0 to 2**31 - 2, in any order;
                default: each filter is one, and the matcher chooses ids.
            x, y, radius: F: circles; NaN in ``x`` for none.
            area: F: boxes and polygons, by their number in ``areas``; -1 for none. Default: 0, 1, 2 …
            areas: boxes and polygons.
            space: "plane" or "globe" if only matchers of that kind are to take them.

        Raises:
            SubscriptionError: something does not fit; the columns are checked.

        Example:
            >>> columns = FilterColumns.from_arrays(
            ...     name=["temp", "wind"], op=[">", "<"], number=[[30, 5], [20, 9]],
            ...     x=[1, 2], y=[3, 4], radius=1,
            ... )
            >>> for subscription in columns.to_subscriptions():
            ...     print(subscription)
            temp > 30 and wind < 5 and within(1, 3, 1)
            temp > 20 and wind < 9 and within(2, 4, 1)
        """
        made = arrays.intake(
            {"name": name, "op": op, "number": number, "text": text},
            {"x": x, "y": y, "radius": radius, "subscription": subscription, "area": area, "areas": areas},
            start,
            names,
            texts,
        )
        columns = cls(**made, space=space)
        columns.check()
        return columns

    @classmethod
    def from_arrow(cls, table: Any, space: str | None = None) -> FilterColumns:
        """Columns of a ``pyarrow`` Table or RecordBatch with a row for each filter, without a loop over them.

        The column ``constraints`` holds a list of structs in each row: ``name`` (a string), ``op`` (a string
        such as ``"<="``, or an integer, an ``Op``), and the operand as ``number`` or as ``text``, of which
        one is null; both are for ``exists``. Strings may be dictionaries. The column ``subscription``
        (integer) is the id of the filter's subscription; without it each filter is one. ``x``, ``y`` and
        ``radius`` are circles, null for none; ``area`` holds polygons as well-known text (which needs the
        extra ``shapes``), null for none. Other columns are not read.

        Args:
            table: a Table or RecordBatch of pyarrow.
            space: "plane" or "globe": what the areas are on; None: on whatever the matcher's are.

        Raises:
            SubscriptionError: something does not fit; the columns are checked.

        Example:
            >>> import pyarrow as pa
            >>> row = [
            ...     {"name": "temp", "op": ">", "number": 30, "text": None},
            ...     {"name": "kind", "op": "==", "number": None, "text": "sensor"},
            ... ]
            >>> table = pa.table({"constraints": [row]})
            >>> print(*FilterColumns.from_arrow(table).to_subscriptions())
            temp > 30 and kind == 'sensor'
        """
        from evflow.matching.columns.arrow import read_filters

        return cls.from_arrays(**read_filters(table, space), space=space)

    @classmethod
    def from_subscriptions(cls, subscriptions: Iterable[str | Filter | Subscription]) -> FilterColumns:
        """Columns of subscriptions given as texts or objects.

        Args:
            subscriptions: texts, filters and subscriptions; each item is one subscription.

        Raises:
            SubscriptionError: it names the first that is malformed, counted from 0; also when some areas are
                on the plane and others on the globe.

        Example:
            >>> columns = FilterColumns.from_subscriptions(["temp > 30 or wind > 20", Filter()])
            >>> len(columns), columns.subscriptions, columns.subscription
            (3, 2, array([0, 0, 1]))
        """
        if isinstance(subscriptions, (str, bytes, Filter, Subscription)):
            raise SubscriptionError(f"expected a list of subscriptions but found {shown(subscriptions)}")
        content = Content()
        number = -1
        for number, given in enumerate(subscriptions):
            try:
                for part in as_subscription(given).filters:
                    content.add(number, part)
            except SubscriptionError as error:
                raise error.within(f"subscription {number}") from None
        return cls(**content.arguments(), count=number + 1)

    def to_subscriptions(self) -> list[Subscription]:
        """The subscriptions as objects; the columns must be checked. ``space`` None counts as the plane."""
        found: list[list[Filter]] = [[] for _ in range(self.subscriptions)]
        of = np.arange(len(self)) if self.subscription is None else self.subscription
        for number, subscription in enumerate(of.tolist()):
            bounds = range(*self.start[number : number + 2].tolist())
            found[subscription].append(Filter([self._constraint(at) for at in bounds], self._area(number)))
        return [Subscription(filters) for filters in found]

    def _constraint(self, at: int) -> Constraint:
        op, text = Op(int(self.op[at])), int(self.text[at])
        value = None if op.holds is None else self.texts[text] if text >= 0 else float(self.number[at])
        return Constraint(self.names[self.name[at]], op, value)

    def _area(self, number: int) -> Area | None:
        if self.area is not None and self.areas is not None and self.area[number] >= 0:
            return self.areas[int(self.area[number])]
        if self.x is None or self.y is None or self.radius is None or np.isnan(self.x[number]):
            return None
        kind = GlobeCircle if self.space == "globe" else Circle
        return kind(*(float(held[number]) for held in (self.x, self.y, self.radius)))


def as_subscription(given: str | Filter | Subscription) -> Subscription:
    """A text, filter or subscription as a subscription.

    Args:
        given: a text, a ``Filter`` or a ``Subscription``.

    Raises:
        SubscriptionError: it is something else, or the text is malformed.

    Example:
        >>> print(as_subscription(Filter([Constraint("temp", ">", 30)])))
        temp > 30
    """
    if isinstance(given, Subscription):
        return given
    if isinstance(given, Filter):
        return Subscription((given,))
    if isinstance(given, str):
        return parse_subscription(given)
    raise SubscriptionError(f"expected a text, a Filter or a Subscription but found {shown(given)}")
