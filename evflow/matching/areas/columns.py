"""Many areas as columns, of all kinds together."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evflow.errors import SubscriptionError
from evflow.events.gather import places_of, starts_of
from evflow.matching.literals import LIMIT, first_of, shown
from evflow.matching.model import Area, Circle, GlobeCircle
from evflow.matching.outlines import LEAST, MOST_CORNERS, Box, GlobeBox, GlobePolygon, Polygon

NOTHING, POINT, CIRCLE, BOX, POLYGON = range(5)
"""Kinds of an area."""

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_SPACES = ("plane", "globe")
_NONE: Any = np.zeros(1, np.int64)
_SHORT = "ring {}: expected three corners or more, and the first again"


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class AreaColumns:
    """N points, circles, boxes and polygons on the plane or on the globe, in any mixture.

    The class methods make them: ``points``, ``circles``, ``boxes``, ``polygons``, and ``of`` for objects.
    ``columns[n]`` is an area as an object, a point as a circle of radius 0. On the globe the first coordinate
    is the latitude and the second the longitude, in degrees.

    Attributes:
        space: "plane" or "globe".
        kind: uint8, N: 1 for a point, 2 for a circle, 3 for a box, 4 for a polygon.
        numbers: float64, (N, 4): of a point its two coordinates; of a circle the centre and the radius; of a
            box x1, y1, x2, y2 (on the globe south, west, north, east); of a polygon the least and the
            greatest coordinates in the same order.
        start: int64, N + 1: where the rings of a polygon start and end; other areas have none.
        rings: int64, R + 1: where the corners of a ring start and end.
        corners: float64, (P, 2): the corners, the first of each ring once more at its end.

    Example:
        >>> columns = AreaColumns.of([Box(0, 0, 4, 3), Circle(3, 4, 5)])
        >>> len(columns), columns.kind.tolist(), columns[1]
        (2, [3, 2], Circle(x=3.0, y=4.0, radius=5.0))
    """

    space: str
    kind: NDArray[np.uint8]
    numbers: Floats
    start: Ints
    rings: Ints
    corners: Floats

    def __post_init__(self) -> None:
        _checked_space(self.space)
        for field in ("kind", "numbers", "start", "rings", "corners"):
            if not isinstance(held := getattr(self, field), np.ndarray):
                raise SubscriptionError(f"{field}: expected an array of numpy but found {shown(held)}")
        n = len(self.kind) if self.kind.ndim else 0
        types = {
            "kind": np.uint8,
            "numbers": np.float64,
            "start": np.int64,
            "rings": np.int64,
            "corners": np.float64,
        }
        shapes = {"kind": (n,), "numbers": (n, 4), "start": (n + 1,), "corners": (len(self.corners), 2)}
        for field, kind in types.items():
            held = getattr(self, field)
            if held.dtype != kind or held.shape != shapes.get(field, (len(self.rings),)):
                raise SubscriptionError(f"{field}: {held.dtype} of shape {held.shape} does not fit {n} areas")
        _offsets(self.rings, len(self.corners), "rings")
        _offsets(self.start, len(self.rings) - 1, "start")
        if n and int(self.kind.max()) > POLYGON:
            raise SubscriptionError(f"kind: expected at most {POLYGON} but found {self.kind.max()}")
        for at in first_of((self.kind == POLYGON) != (np.diff(self.start) > 0)):
            raise SubscriptionError(f"area {at}: expected rings of polygons, and of them alone")
        for at in first_of(np.diff(self.rings) < 4):
            raise SubscriptionError(_SHORT.format(at))

    def __len__(self) -> int:
        return len(self.kind)

    def __getitem__(self, number: int) -> Area:
        """An area as an object; that of a point is a circle of radius 0."""
        number = range(len(self))[number]
        globe, kind = self.space == "globe", int(self.kind[number])
        numbers = self.numbers[number].tolist()
        if kind in (POINT, CIRCLE):
            x, y, radius, _ = numbers
            return (GlobeCircle if globe else Circle)(x, y, radius if kind == CIRCLE else 0.0)
        if kind == BOX:
            return (GlobeBox if globe else Box)(*numbers)
        first, last = int(self.start[number]), int(self.start[number + 1])
        bounds = self.rings[first : last + 1].tolist()
        rings = [self.corners[i:j].tolist() for i, j in pairwise(bounds)]
        return (GlobePolygon if globe else Polygon)(rings[0], rings[1:])

    def take(self, which: ArrayLike) -> AreaColumns:
        """Some of these areas, by number, in any order.

        Args:
            which: integers, M: the numbers.

        Raises:
            SubscriptionError: one is not the number of an area.

        Example:
            >>> AreaColumns.of([Box(0, 0, 4, 3), Circle(3, 4, 5)]).take([1])[0]
            Circle(x=3.0, y=4.0, radius=5.0)
        """
        chosen = _numbers(which, len(self))
        counts = np.diff(self.start)[chosen]
        ring = places_of(self.start[:-1][chosen], counts)
        lengths = np.diff(self.rings)[ring]
        return AreaColumns(
            space=self.space,
            kind=self.kind[chosen],
            numbers=self.numbers[chosen],
            start=starts_of(counts),
            rings=starts_of(lengths),
            corners=self.corners[places_of(self.rings[:-1][ring], lengths)],
        )

    @classmethod
    def points(cls, x: ArrayLike, y: ArrayLike, space: str = "plane") -> AreaColumns:
        """Points; one whose coordinates are not a place (NaN, too far, beyond a pole) overlaps nothing.

        Args:
            x, y: float64, N: coordinates; on the globe latitudes and longitudes, which may have any value.
            space: "plane" or "globe".

        Raises:
            SubscriptionError: the columns have other shapes, or the space is neither.

        Example:
            >>> AreaColumns.points([1.0, 2.0], 3.0).numbers[:, :2].tolist()
            [[1.0, 3.0], [2.0, 3.0]]
        """
        return _whole(space, POINT, _columns(space, x=x, y=y))

    @classmethod
    def circles(cls, x: ArrayLike, y: ArrayLike, radius: ArrayLike, space: str = "plane") -> AreaColumns:
        """Circles, rims included.

        Args:
            x, y: float64, N: centres; on the globe latitudes and longitudes.
            radius: float64, N: radii; on the globe in metres.
            space: "plane" or "globe".

        Raises:
            SubscriptionError: a number is not finite, or not what ``Circle`` or ``GlobeCircle`` takes.

        Example:
            >>> AreaColumns.circles(3, 4, [5, 6])[1]
            Circle(x=3.0, y=4.0, radius=6.0)
        """
        numbers = _columns(space, x=x, y=y, radius=radius)
        most = (90.0, np.inf, np.inf) if space == "globe" else (LIMIT,) * 3
        good = np.isfinite(numbers[:, :3]).all(axis=1) & (np.abs(numbers[:, :3]) <= most).all(axis=1)
        _refuse(~(good & (numbers[:, 2] >= 0)), numbers, "not the numbers of a circle")
        if space == "globe":
            numbers[:, 1] = normal(numbers[:, 1])
        return _whole(space, CIRCLE, numbers)

    @classmethod
    def boxes(
        cls, x1: ArrayLike, y1: ArrayLike, x2: ArrayLike, y2: ArrayLike, space: str = "plane"
    ) -> AreaColumns:
        """Boxes, borders included.

        Args:
            x1, y1, x2, y2: float64, N: as of ``Box``; on the globe south, west, north, east, as of
                ``GlobeBox``.
            space: "plane" or "globe".

        Raises:
            SubscriptionError: a number is not what ``Box`` or ``GlobeBox`` takes.

        Example:
            >>> AreaColumns.boxes(0, [0, 1], 4, 3)[1]
            Box(x1=0.0, y1=1.0, x2=4.0, y2=3.0)
        """
        numbers = _columns(space, x1=x1, y1=y1, x2=x2, y2=y2)
        globe = space == "globe"
        most = (90.0, 180.0, 90.0, 180.0) if globe else (LIMIT,) * 4
        good = (np.abs(numbers) <= most).all(axis=1) & (numbers[:, 0] <= numbers[:, 2])
        _refuse(~(good & (globe | (numbers[:, 1] <= numbers[:, 3]))), numbers, "not the numbers of a box")
        numbers[np.abs(numbers) < LEAST] = 0.0
        return _whole(space, BOX, numbers)

    @classmethod
    def polygons(
        cls, corners: ArrayLike, rings: ArrayLike, start: ArrayLike | None = None, space: str = "plane"
    ) -> AreaColumns:
        """Polygons from one array of all corners, as ``shapely.to_ragged_array`` gives for polygons.

        Args:
            corners: float64, (P, 2): x and y, on the globe latitude and longitude; the first of each ring
                once more at its end.
            rings: int64, R + 1: where the corners of a ring start and end.
            start: int64, N + 1: where the rings of a polygon start and end; None: each has one ring.
            space: "plane" or "globe".

        Raises:
            SubscriptionError: a ring is not closed or has fewer than three corners, a coordinate is not what
                ``Polygon`` or ``GlobePolygon`` takes, or offsets do not fit.

        Example:
            >>> corners = [(0, 0), (4, 0), (0, 3), (0, 0)]
            >>> print(AreaColumns.polygons(corners, [0, 4])[0])
            inside('POLYGON ((0 0, 4 0, 0 3, 0 0))')
        """
        _checked_space(space)
        try:
            held = np.array(corners, np.float64)
        except (TypeError, ValueError) as error:
            raise SubscriptionError(f"corners: expected two columns of numbers: {error}") from None
        held = held if held.size else held.reshape(0, 2)
        if held.ndim != 2 or held.shape[1] != 2:
            raise SubscriptionError(f"corners: expected two columns but found shape {held.shape}")
        ends = _offsets(rings, len(held), "rings")
        begins = np.arange(len(ends)) if start is None else _offsets(start, len(ends) - 1, "start")
        most = (90.0, 360.0) if space == "globe" else (LIMIT,) * 2
        for at in first_of(~(np.abs(held) <= most).all(axis=1)):
            raise SubscriptionError(f"corner {at}: expected finite coordinates, found {held[at].tolist()}")
        for at in first_of(np.diff(ends) < 4):
            raise SubscriptionError(_SHORT.format(at))
        for at in first_of(np.not_equal(held[ends[:-1]], held[ends[1:] - 1]).any(axis=1)):
            raise SubscriptionError(f"ring {at}: expected its first corner once more at its end")
        for at in first_of(np.diff(begins) < 1):
            raise SubscriptionError(f"polygon {at} has no ring")
        counts = ends[begins[1:]] - ends[begins[:-1]] - np.diff(begins)
        for at in first_of(counts > MOST_CORNERS):
            raise SubscriptionError(
                f"polygon {at}: {counts[at]:,} corners; expected at most {MOST_CORNERS:,}"
            )
        held[np.abs(held) < LEAST] = 0.0
        first = ends[begins[:-1]]
        numbers = np.zeros((len(first), 4))
        if len(first):
            numbers[:, :2] = np.minimum.reduceat(held, first)
            numbers[:, 2:] = np.maximum.reduceat(held, first)
        for at in first_of((space == "globe") & (numbers[:, 3] - numbers[:, 1] > 360.0)):
            raise SubscriptionError(f"polygon {at}: expected longitudes within 360 degrees")
        kind = np.full(len(first), POLYGON, np.uint8)
        return cls(space=space, kind=kind, numbers=numbers, start=begins, rings=ends, corners=held)

    @classmethod
    def of(cls, areas: Iterable[Area], space: str | None = None) -> AreaColumns:
        """Areas given as objects.

        Args:
            areas: circles, boxes and polygons, all on the plane or all on the globe.
            space: "plane" or "globe": where they must be; None: where the first is, "plane" if there is none.

        Raises:
            SubscriptionError: one is not an area, or elsewhere than the others.
        """
        if not isinstance(areas, Iterable):
            raise SubscriptionError(f"areas: expected a list of areas but found {shown(areas)}")
        given = list(areas)
        for number, area in enumerate(given):
            on = space_of_area(area)
            if on is None:
                raise SubscriptionError(
                    f"area {number}: expected a circle, box or polygon but found {shown(area)}"
                )
            space = space or on
            if on != space:
                raise SubscriptionError(f"area {number}: it is on the {on}; expected all on the {space}")
        return _collected(_checked_space(space or "plane"), given)


def space_of_area(area: object) -> str | None:
    """The space of an area; None if it is not one.

    Example:
        >>> space_of_area(Circle(3, 4, 5)), space_of_area(GlobeBox(0, 0, 1, 1)), space_of_area(3)
        ('plane', 'globe', None)
    """
    if isinstance(area, (Circle, Box, Polygon)):
        return "plane"
    return "globe" if isinstance(area, (GlobeCircle, GlobeBox, GlobePolygon)) else None


def normal(longitude: Floats) -> Floats:
    """Longitudes from -180 up to, but not including, 180; every step is exact."""
    rest = np.fmod(longitude, 360.0)
    return np.where(rest >= 180.0, rest - 360.0, np.where(rest < -180.0, rest + 360.0, rest))


def joined(parts: Iterable[AreaColumns], space: str) -> AreaColumns:
    """Several columns as one, in their order.

    Example:
        >>> len(joined([AreaColumns.points(0, [1, 2]), AreaColumns.boxes(0, 0, 1, 1)], "plane"))
        3
    """
    held = list(parts)
    counts = [np.zeros(0, np.int64), *(np.diff(part.start) for part in held)]
    lengths = [np.zeros(0, np.int64), *(np.diff(part.rings) for part in held)]
    return AreaColumns(
        space=space,
        kind=np.concatenate([np.zeros(0, np.uint8), *(part.kind for part in held)]),
        numbers=np.concatenate([np.zeros((0, 4)), *(part.numbers for part in held)]),
        start=starts_of(np.concatenate(counts)),
        rings=starts_of(np.concatenate(lengths)),
        corners=np.concatenate([np.zeros((0, 2)), *(part.corners for part in held)]),
    )


def _collected(space: str, areas: list[Area]) -> AreaColumns:
    kind = np.zeros(len(areas), np.uint8)
    numbers = np.zeros((len(areas), 4))
    counts, lengths, corners = np.zeros(len(areas), np.int64), [], []
    for number, area in enumerate(areas):
        if isinstance(area, (Polygon, GlobePolygon)):
            kind[number], counts[number] = POLYGON, len(area.rings)
            flat = [corner for ring in area.rings for corner in ring]
            lengths += [len(ring) for ring in area.rings]
            corners += flat
            numbers[number] = (*np.min(flat, axis=0), *np.max(flat, axis=0))
        elif isinstance(area, Box):
            kind[number], numbers[number] = BOX, (area.x1, area.y1, area.x2, area.y2)
        elif isinstance(area, GlobeBox):
            kind[number], numbers[number] = BOX, (area.south, area.west, area.north, area.east)
        elif isinstance(area, Circle):
            kind[number], numbers[number, :3] = CIRCLE, (area.x, area.y, area.radius)
        else:
            kind[number], numbers[number, :3] = CIRCLE, (area.latitude, area.longitude, area.radius)
    return AreaColumns(
        space=space,
        kind=kind,
        numbers=numbers,
        start=starts_of(counts),
        rings=starts_of(np.array(lengths, np.int64)),
        corners=np.array(corners, np.float64).reshape(-1, 2),
    )


def _checked_space(space: str) -> str:
    if space not in _SPACES:
        raise SubscriptionError(f"space {shown(space)}: expected 'plane' or 'globe'")
    return space


def _columns(space: str, **given: ArrayLike) -> Floats:
    """Columns of numbers, one for all or one each, as (N, 4); what is not given is 0."""
    _checked_space(space)
    try:
        held = np.broadcast_arrays(*(np.atleast_1d(np.asarray(one, np.float64)) for one in given.values()))
    except (TypeError, ValueError) as error:
        raise SubscriptionError(
            f"{', '.join(given)}: expected columns of numbers of one length: {error}"
        ) from None
    if held[0].ndim != 1:
        raise SubscriptionError(f"{', '.join(given)}: expected one dimension but found shape {held[0].shape}")
    numbers = np.zeros((len(held[0]), 4))
    numbers[:, : len(held)] = np.stack(held, axis=1)
    return numbers


def _refuse(wrong: NDArray[np.bool_], numbers: Floats, what: str) -> None:
    for at in first_of(wrong):
        raise SubscriptionError(f"area {at}: {numbers[at].tolist()} are {what}")


def _whole(space: str, kind: int, numbers: Floats) -> AreaColumns:
    return AreaColumns(
        space=space,
        kind=np.full(len(numbers), kind, np.uint8),
        numbers=numbers,
        start=np.zeros(len(numbers) + 1, np.int64),
        rings=_NONE,
        corners=np.zeros((0, 2)),
    )


def _numbers(given: ArrayLike, count: int) -> Ints:
    """The numbers of some of so many areas."""
    found = np.asarray(given)
    if not found.size:
        return np.zeros(0, np.int64)
    if found.ndim != 1 or found.dtype.kind not in "iu":
        raise SubscriptionError(f"expected the numbers of areas but found {shown(given)}")
    if int(found.min()) < 0 or int(found.max()) >= count:
        raise SubscriptionError(
            f"expected the numbers of {count} areas, found {found.min()} to {found.max()}"
        )
    return found.astype(np.int64)


def _offsets(given: ArrayLike, last: int, what: str) -> Ints:
    found = np.asarray(given)
    if found.ndim != 1 or found.dtype.kind not in "iu" or not len(found):
        raise SubscriptionError(f"{what}: expected a column of offsets but found {shown(given)}")
    made: Ints = found.astype(np.int64)
    if made[0] != 0 or made[-1] != last or (np.diff(made) < 0).any():
        raise SubscriptionError(f"{what}: expected offsets that rise from 0 to {last}")
    return made
